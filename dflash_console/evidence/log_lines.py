"""Lines of an engine's log → events, by key and never by position.

The shapes differ between releases, forks and log collectors; unknown keys are kept or ignored, missing ones stay unknown.
Prefixes: ``[date time]`` with ranks (``DP5 TP5``, ``ATTN_CP0 MOE_DP1 TP0 EP0``), ``[time]`` alone; in front of them
``(Name pid=…)``, a container's ``name  | ``, RFC 3339 and syslog stamps, ``program[pid]:``, ``[pod/name/container]``. A logging
configuration of the user's may print others: what a line says counts wherever it begins, but never inside a quoted text, which
may be anybody's prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .log_events import (
    NO_RANK,
    AccessLine,
    DDTreeWorker,
    DecodeBatch,
    DraftRunner,
    EngineEvent,
    EngineWarning,
    ErrorLine,
    FirstVerify,
    GraphCapture,
    HotChange,
    KvPool,
    LoadWeight,
    MaskToken,
    ModelPart,
    Other,
    PrefillBatch,
    Rank,
    ReadLine,
    Ready,
    SchedulerSummary,
    ServerArgsLine,
    TracebackStart,
    WarningKind,
)
from .secrets import MASK, is_secret_name, mask_text
from .terminal_text import Progress, split_line
from .values import real, whole, whole_of

_PREFIX = re.compile(
    r"(?:[\w.-]+\s+\|\s+)?"
    r"(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)\s+(?:std(?:out|err) [FP] )?(?:[\w.-]+ (?=[\w./-]+\[\d+\]:))?)?"
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ )?"
    r"(?:[\w./-]+(?:\[\d+\])?:\s+)?"
    r"(?:\[[A-Za-z][\w./:-]{0,80}\]:?\s*)?"
    r"(?:\([\w:.-]+ pid=[^)]*\)\s*)?"
    r"\[(?P<stamp>(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?(?P<ranks>(?: [A-Z_]{2,16}\d+)*)\]\s*"
)
_RANK = re.compile(r" (DP|TP|EP|PP)(\d+)")
"""Kinds of ranks that are told apart; engines have more (``ATTN_CP0``)."""
_LEVEL = re.compile(r"(?:WARNING|INFO|ERROR|DEBUG|CRITICAL):?\s+")

_PAIR = re.compile(r"(?P<key>#?[A-Za-z][\w .#-]{0,60}?(?: \([^)]{0,40}\))?)\s{0,4}:\s*(?P<value>(?:[^,]|,(?=\d))*)(?:,\s*|$)")
_ASSIGNED = re.compile(
    r"(?P<key>[A-Za-z_]\w*)=(?P<value>\[[^\]]*\]|\([^)]*\)|<[^>]*>|'[^']*'|\"[^\"]*\"|\w+\([^)]*\)|\d{1,3}(?:,\d{3})+(?!\w)|[^,\s]+)"
)
_DRAFT_RUNNER = re.compile(r"Initialized (?P<algorithm>[A-Za-z0-9_]+) draft runner\b\.?\s*(?P<rest>.*)")
_TREE_WORKER = re.compile(r"Initialized DDTree(?: v\d+)? worker\b\.?\s*(?P<rest>.*)", re.IGNORECASE)
_LOAD = re.compile(r"Load weight (?P<what>begin|end)\b")
_CAPTURE = re.compile(r"Capture (?P<what>.*?)\s*(?:CUDA|cuda|npu|NPU|cpu|CPU) graph (?P<when>begin|end|failed)\b")
_VERIFY = re.compile(r"(?P<algorithm>DFLASH|DDTREE)(?: v\d+)? verify completed\.?\s*(?P<rest>.*)")
_HOT = re.compile(
    r"Hot change (?P<what>applied|refused)\. (?P<name>\w+): (?P<old>\S+) -> (?P<new>\S+)(?: \(from [^)]*\))?(?::\s*(?P<why>.*))?"
)
_ACCESS = re.compile(r'"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[\d.]+" (?P<status>\d{3})')
_FLAG = r"(?:--[a-z][\w-]*|speculative_[a-z_]+)"
_NO_EFFECT = re.compile(
    rf"(?P<flag>{_FLAG})\b.*\b(?:ha(?:s|ve) no effect|(?:is|are|was|were|will be|being) ignored)\b"
    rf"|\b[Ii]gnoring (?P<ignored>{_FLAG})\b"
)
_BATCH = re.compile(r"(?P<what>Decode|Prefill) batch\s*(?:\[(?P<iteration>\d+)\])?[.,]?\s*")
_FOREIGN_PREFIX = re.compile(r"[^'\"=]{0,120}?(?:[\]:|>-]\s*|\s)(?=(?:Decode|Prefill) batch\b)")
"""What another logging configuration prints before a line: ``INFO 05-02 09:00:01 scheduler.py:120] ``, ``… - INFO - ``."""
_QUOTING = ("Receive: obj=", "Finish: obj=")
"""How lines begin that hold a request's text (``--log-requests``)."""
_SCHEDULER = re.compile(r"max_total_num_tokens=\d")
_ERROR = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL)\b|^[\w.]*(?:Error|Exception|Interrupt)\b(?::|$)|(?<=[\w-]): error: |\bCUDA out of memory\b"
    r"|\bcrashed with exit code\b|\bgraph failed\b|\bScheduler hit an exception\b|^Killed$|^Segmentation fault"
)
_WARNINGS: tuple[tuple[WarningKind, re.Pattern[str]], ...] = (
    (WarningKind.NO_EFFECT, _NO_EFFECT),
    (
        WarningKind.GREEDY_FALLBACK,
        re.compile(r"falling back to greedy|greedy (?:argmax )?verification.*temperature", re.IGNORECASE),
    ),
    (WarningKind.BLOCK_MISMATCH, re.compile(r"block size mismatch", re.IGNORECASE)),
    (WarningKind.BACKEND_FALLBACK, re.compile(r"draft worker .*(?:does not support|only supports).*[Ff]alling back to")),
    (WarningKind.GRAPH_SKIPPED, re.compile(r"Disable \S+ draft cuda graph", re.IGNORECASE)),
    (WarningKind.REQUEST_CAP, re.compile(r"Max running requests is reset", re.IGNORECASE)),
)

HEAD = 2_000
"""Characters in which a line says what it is. All longer lines but the list of flags quote something (a prompt, mostly); the
patterns above may take a time that grows with the square of what they are given, and the screen waits for them."""


def read_events(text: str) -> tuple[ReadLine, ...]:
    """Everything that one stored line tells: usually one event, with carriage-return bars several."""
    return tuple(_read(part) for part in split_line(text))


def read_event(text: str) -> EngineEvent:
    """The event of a line; of a line with several the last one that is no progress bar, else the bar."""
    events = [line.event for line in read_events(text)]
    telling = [event for event in events if not isinstance(event, Progress)]
    if telling:
        return telling[-1]
    return events[-1] if events else Other("")


def _read(part: str | Progress) -> ReadLine:
    if isinstance(part, Progress):
        return ReadLine(part, text=f"{part.label} {part.done}/{part.total}".strip())
    match = _PREFIX.match(part)
    rank, stamp, body = NO_RANK, "", part
    if match is not None:
        ranks = {name: whole(number) for name, number in _RANK.findall(match["ranks"])}
        rank = Rank(ranks.get("DP"), ranks.get("TP"), ranks.get("EP"), ranks.get("PP")) if ranks else NO_RANK
        stamp, body = match["stamp"].replace("T", " "), part[match.end() :]
    return ReadLine(_event(body), rank, stamp, body)


def _event(body: str) -> EngineEvent:
    head = body[:HEAD]
    if head.startswith(_QUOTING):
        return Other(body)
    for mark, reader in _READERS:
        if (at := head.find(mark)) >= 0 and (reader is _access or not _quoted(head, at)):
            event = reader(body if reader is _server_args else head)
            if event is not None:
                return event
    for kind, pattern in _WARNINGS:
        match = pattern.search(head)
        if match is not None:
            return EngineWarning(kind, mask_text(_LEVEL.sub("", body, count=1)), _named_flag(match))
    if _ERROR.search(head):
        return ErrorLine(mask_text(body))
    return Other(body)


def _named_flag(match: re.Match[str]) -> str:
    """The flag that a warning speaks of, under its own spelling or the name of its field; empty where it names none."""
    groups = match.groupdict()
    named = groups.get("flag") or groups.get("ignored") or ""
    return named if named.startswith("--") or not named else f"--{named.replace('_', '-')}"


def _quoted(text: str, at: int) -> bool:
    """Whether what begins at ``at`` stands inside quotes. An apostrophe opens none."""
    quote = ""
    for place in range(at):
        if quote:
            quote = "" if text[place] == quote else quote
        elif text[place] in "'\"" and not text[place - 1 : place].isalnum():
            quote = text[place]
    return bool(quote)


def _decode_or_prefill(body: str) -> EngineEvent | None:
    foreign = _FOREIGN_PREFIX.match(body)
    match = _BATCH.match(body, foreign.end() if foreign is not None else 0)
    if match is None:
        return None
    pairs = {pair["key"].strip(): pair["value"].strip() for pair in _PAIR.finditer(body, match.end())}
    if match["what"] == "Decode":
        graph = next((value for key, value in pairs.items() if key.endswith(" graph")), None)
        return DecodeBatch(
            running=_int(pairs.get("#running-req")),
            queued=_int(pairs.get("#queue-req")),
            tokens=_int(pairs.get("#token", pairs.get("#full token"))),
            token_usage=_float(pairs.get("token usage", pairs.get("full token usage"))),
            accept_len=_float(pairs.get("accept len")),
            accept_rate=_float(pairs.get("accept rate")),
            graph={"True": True, "False": False}.get(graph or ""),
            throughput=_float(pairs.get("gen throughput (token/s)")),
            iteration=_int(match["iteration"]),
        )
    return PrefillBatch(
        new_sequences=_int(pairs.get("#new-seq")),
        new_tokens=_int(pairs.get("#new-token")),
        cached_tokens=_int(pairs.get("#cached-token")),
        running=_int(pairs.get("#running-req")),
        queued=_int(pairs.get("#queue-req")),
        token_usage=_float(pairs.get("token usage", pairs.get("full token usage"))),
        throughput=_float(pairs.get("input throughput (token/s)")),
    )


def _initialized(body: str) -> EngineEvent | None:
    match = _DRAFT_RUNNER.search(body)
    if match is not None:
        return DraftRunner(match["algorithm"].upper(), assignments(match["rest"]))
    match = _TREE_WORKER.search(body)
    return DDTreeWorker(assignments(match["rest"])) if match is not None else None


def _load_weight(body: str) -> EngineEvent | None:
    match = _LOAD.search(body)
    if match is None:
        return None
    if match["what"] == "begin":
        return LoadWeight(ended=False)
    values = assignments(body)
    model = values.get("type", "")
    memory = re.search(r"mem usage=([\d.]+)", body)
    elapsed = re.search(r"elapsed=([\d.]+)", body)
    return LoadWeight(
        True, _part(model), model, _float(elapsed[1]) if elapsed else None, _float(memory[1].rstrip(".")) if memory else None
    )


def _part(model_type: str) -> ModelPart:
    if not model_type:
        return ModelPart.UNKNOWN
    return ModelPart.DRAFT if re.search(r"draft|dflash|eagle|nextn|mtp", model_type, re.IGNORECASE) else ModelPart.TARGET


def _kv_pool(body: str) -> EngineEvent | None:
    tokens = re.search(r"#tokens: (\d+)", body)
    dtype = re.search(r"dtype: ([\w.]+)", body)
    sizes = [size for text in re.findall(r"(?:K|V|KV) size: ([\d.]*\d)", body) if (size := real(text)) is not None]
    return KvPool(whole(tokens[1]) if tokens else None, dtype[1] if dtype else "", sum(sizes) if sizes else None)


def _capture(body: str) -> EngineEvent | None:
    match = _CAPTURE.match(body)
    if match is None:
        return None
    if match["when"] == "failed":
        return ErrorLine(mask_text(body))
    elapsed = re.search(r"(?:elapsed=|Time elapsed: )([\d.]*\d)", body)
    return GraphCapture(match["when"] == "end", match["what"].strip(), _float(elapsed[1]) if elapsed else None)


def _scheduler(body: str) -> EngineEvent | None:
    return SchedulerSummary(assignments(body)) if _SCHEDULER.match(body) else None


def _verify(body: str) -> EngineEvent | None:
    match = _VERIFY.search(body)
    return FirstVerify(match["algorithm"], match["rest"]) if match is not None else None


def _hot_change(body: str) -> EngineEvent | None:
    match = _HOT.search(body)
    if match is None:
        return None
    return HotChange(match["name"], match["old"], match["new"], match["what"] == "applied", match["why"] or "")


def _access(body: str) -> EngineEvent | None:
    match = _ACCESS.search(body)
    return AccessLine(match["method"], match["path"], int(match["status"])) if match is not None else None


def _mask_token(body: str) -> EngineEvent | None:
    return MaskToken(assignments(body))


def _server_args(body: str) -> EngineEvent | None:
    return ServerArgsLine(server_arguments(body))


_READERS: tuple[tuple[str, Callable[[str], EngineEvent | None]], ...] = (
    (" batch", _decode_or_prefill),
    (" HTTP/", _access),
    ("Initialized ", _initialized),
    ("Load weight ", _load_weight),
    ("KV Cache is allocated", _kv_pool),
    ("Capture ", _capture),
    ("max_total_num_tokens=", _scheduler),
    ("fired up and ready", lambda _: Ready()),
    ("verify completed", _verify),
    ("Hot change ", _hot_change),
    ("draft runner ready", _mask_token),
    ("server_args=", _server_args),
    ("Traceback (most recent call last)", TracebackStart),
)


def assignments(text: str) -> dict[str, str]:
    """``key=value`` pairs in any order, separated by commas or blanks."""
    found = {match["key"]: match["value"].strip("'\"").rstrip(".") for match in _ASSIGNED.finditer(text)}
    # A bracket around all of the pairs is no part of the last one.
    return {key: value if "(" in value else value.rstrip(").") for key, value in found.items()}


def server_arguments(text: str) -> dict[str, str]:
    """The settings of a ``ServerArgs(key='value', …)`` line; nested brackets and quoted commas stay in their value."""
    begin = text.find("ServerArgs(")
    settings: dict[str, str] = {}
    for item in _top_level_items(text, begin + len("ServerArgs(") if begin >= 0 else text.find("server_args=") + 12):
        key, equals, value = item.partition("=")
        key = key.strip()
        if equals and key.isidentifier():
            secret = is_secret_name(key) and value.strip() not in ("None", "''")
            settings[key] = MASK if secret else value.strip().strip("'\"")
    return settings


def _top_level_items(text: str, start: int) -> Iterator[str]:
    depth, quote, begin, at = 0, "", start, start
    while at < len(text):
        character = text[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            if depth == 0:
                break
            depth -= 1
        elif character == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
        at += 1
    yield text[begin:at]


def _int(text: str | None) -> int | None:
    return whole_of(_float(text))


def _float(text: str | None) -> float | None:
    """A finite number; ``nan`` and anything else is unknown."""
    if text is None or not re.fullmatch(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?%?", text):
        return None
    return real(text.rstrip("%"))
