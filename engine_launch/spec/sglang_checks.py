"""What a command line for SGLang itself may not ask for, as far as the words alone tell.

Pure. SGLang's parser has the last word (its flags change from release to release, and plugins add some), so flags that are not
known here pass; what is refused is what SGLang or the DDTREE plugin would refuse after a minute of loading.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine_launch.spec.flags import BY_SPELLING, CONFIG_FILE, Flag, Kind
from engine_launch.spec.tree_sizes import MAX_BUDGET, TREE_FLAGS, OptionError, parse_widths, tree_sizes

ATTENTION_FLAGS: tuple[str, ...] = ("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend")
_REFUSED_SWITCHES: tuple[str, ...] = (
    "--enable-deterministic-inference",
    "--enable-strict-thinking",
    "--speculative-use-rejection-sampling",
    "--speculative-adaptive",
    "--enable-dp-attention",
    "--enable-two-batch-overlap",
    "--enable-pdmux",
    "--enable-lora",
    "--lora-paths",
    "--enable-unified-memory",
    "--enable-page-major-kv-layout",
    "--enable-multi-layer-eagle",
)
_REFUSED_ABOVE_ONE: tuple[str, ...] = ("--pp-size", "--dcp-size", "--attn-cp-size")
_REFUSED_BUT_FOR: tuple[tuple[str, str], ...] = (
    ("--speculative-accept-threshold-single", "1.0"),
    ("--speculative-accept-threshold-acc", "1.0"),
    ("--kv-canary", "none"),
    ("--disaggregation-mode", "null"),
)
"""Flags that DDTREE bears only with SGLang's own default."""
_REFUSED_VALUES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("--kv-cache-dtype", ("mxfp8", "nvfp4", "fp4_mx_block16", "fp4_e2m1"), "fp8_e4m3, fp8_e5m2 and bf16 can be used"),
    ("--speculative-draft-attention-backend", ("trtllm_mha",), "give triton or flashinfer"),
)
_SIZES: tuple[str, ...] = ("budget", "topk", "max-budget", "max-topk")
DRAFT_POOL = f"{TREE_FLAGS}draft-pool"
ALGORITHMS = ("DDTREE", "DFLASH", "DSPARK", "EAGLE", "EAGLE3", "FROZEN_KV_MTP", "NEXTN", "NGRAM", "NONE", "STANDALONE")
"""Names that SGLang 0.5.17 knows, and the plugin's; other plugins may add some."""


@dataclass(frozen=True)
class Verdicts:
    """Sentences for the user."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_flags(argv: Sequence[str]) -> dict[str, str]:
    """Flag → value, the last one given; aliases and beginnings under their flag's name, switches with an empty value.

    Never raises: a word that belongs to no flag is left to SGLang's parser.
    """
    found: dict[str, str] = {}
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        if not word.startswith("--"):
            continue
        spelling, equals, value = word.partition("=")
        known = _known(spelling)
        name = known.name if known else spelling
        if not equals and (known is None or known.kind is not Kind.SWITCH):
            words = []
            while position < len(argv) and not argv[position].startswith("--"):
                words.append(argv[position])
                position += 1
            value = " ".join(words)
        found[name] = value
    return found


def _known(spelling: str) -> Flag | None:
    """The flag of this spelling, or the only one that begins so, which SGLang's parser takes it for as well."""
    exact = BY_SPELLING.get(spelling)
    if exact is not None:
        return exact
    beginning = {flag.name: flag for full, flag in BY_SPELLING.items() if full.startswith(spelling)}
    return next(iter(beginning.values())) if len(beginning) == 1 else None


def asked_algorithm(flags: Mapping[str, str]) -> str:
    """The speculative algorithm in capitals, empty for plain decoding."""
    return flags.get("--speculative-algorithm", "").upper()


def number(flags: Mapping[str, str], name: str) -> int | None:
    """A flag's value as a number; ``None`` when it is not given or is none."""
    try:
        return int(flags.get(name, ""))
    except ValueError:
        return None


def block_given(flags: Mapping[str, str]) -> int | None:
    """The block size that the flags name."""
    block = number(flags, "--speculative-dflash-block-size")
    return number(flags, "--speculative-num-draft-tokens") if block is None else block


def check_sglang_flags(flags: Mapping[str, str], block: int | None) -> Verdicts:
    """Everything that the flags tell about a start of SGLang.

    Args:
        flags: as :func:`read_flags` gives them.
        block: the drafter's block size, from the flags or its configuration; ``None`` when it is not known.
    """
    algorithm = asked_algorithm(flags)
    errors: list[str] = []
    warnings: list[str] = []
    if algorithm and algorithm not in ALGORITHMS:
        near = difflib.get_close_matches(algorithm, ALGORITHMS, n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        warnings.append(f"--speculative-algorithm {algorithm} is none that SGLang 0.5.17 has or this plugin adds.{meant}")
    if "--speculative-draft-layers-window" in flags:
        errors.append("--speculative-draft-layers-window is a flag of the embedded engine: SGLang takes it as trained.")
    if algorithm in ("DDTREE", "DFLASH"):
        errors += _drafter_errors(flags, algorithm, block)
    if algorithm == "DDTREE":
        errors += _tree_errors(flags, block)
    elif any(name.startswith(TREE_FLAGS) for name in flags):
        warnings.append(f"--speculative-ddtree-* has no effect with speculative_algorithm={algorithm or None} (DDTREE only).")
    return Verdicts(tuple(errors), tuple(warnings))


def _drafter_errors(flags: Mapping[str, str], algorithm: str, block: int | None) -> list[str]:
    errors = []
    if not flags.get("--speculative-draft-model-path") and CONFIG_FILE not in flags:
        errors.append(f"--speculative-algorithm {algorithm} needs a drafter: give --speculative-draft-model-path.")
    window = number(flags, "--speculative-draft-window-size")
    if window is not None and block is not None and window < block:
        errors.append(
            f"--speculative-draft-window-size {window} is below the block size {block}: give at least {block}, or none."
        )
    tokens, own = number(flags, "--speculative-num-draft-tokens"), number(flags, "--speculative-dflash-block-size")
    if tokens is not None and own is not None and tokens != own:
        errors.append(
            f"--speculative-num-draft-tokens {tokens} and --speculative-dflash-block-size {own} are one setting: give one."
        )
    if algorithm == "DFLASH":
        # SGLang refuses a --speculative-dflash-block-size of 0. The other flag's 0 counts as given there too, not as the
        # drafter's own, and the server ends at its first decode step. (A tree's block has bounds of its own.)
        errors += [
            f"DFLASH needs a block of at least 1: {name} is {value}; leave it out for the drafter's own."
            for name in ("--speculative-num-draft-tokens", "--speculative-dflash-block-size")
            if (value := number(flags, name)) is not None and value < 1
        ]
    return errors


def _tree_errors(flags: Mapping[str, str], block: int | None) -> list[str]:
    errors = []
    device = flags.get("--device", "cuda")
    if not device.startswith("cuda"):
        errors.append(f"DDTREE needs a GPU of NVIDIA or AMD (--device cuda), not {device}.")
    page = number(flags, "--page-size")
    if page is not None and page != 1:
        errors.append(f"DDTREE needs --page-size 1, not {page}: a tree's branches cannot share a page.")
    chosen = {name: flags[name] for name in ATTENTION_FLAGS if name in flags}
    wrong = {name: value for name, value in chosen.items() if value != "triton"}
    if wrong:
        name, value = next(iter(wrong.items()))
        errors.append(f"DDTREE needs an attention backend with tree masks: {name} is {value}, give triton.")
    elif "--attention-backend" not in chosen and len(chosen) < 2 and CONFIG_FILE not in flags:
        errors.append("DDTREE needs an attention backend with tree masks: give --attention-backend triton.")
    errors += [f"DDTREE does not work with {name}: leave it out." for name in _REFUSED_SWITCHES if name in flags]
    errors += [f"DDTREE does not work with {name} above 1." for name in _REFUSED_ABOVE_ONE if (number(flags, name) or 1) > 1]
    errors += [
        f"DDTREE does not work with {name} {flags[name]}: leave it out."
        for name, default in _REFUSED_BUT_FOR
        if name in flags and not _same(flags[name], default)
    ]
    errors += [
        f"DDTREE does not work with {name} {flags[name]}: {advice}."
        for name, values, advice in _REFUSED_VALUES
        if flags.get(name) in values
    ]
    if "--ddtree-self-test" in flags:
        if "--skip-server-warmup" in flags:
            errors.append("--ddtree-self-test is a part of the server's warm-up: leave --skip-server-warmup out.")
        if (number(flags, "--tokenizer-worker-num") or 1) > 1:
            errors.append("--ddtree-self-test does not work with --tokenizer-worker-num above 1: use one of them.")
    return [*errors, *_pool_errors(flags), *_size_errors(flags, block)]


def _same(given: str, default: str) -> bool:
    """Whether a value is the default, also written otherwise (``1`` for ``1.0``)."""
    try:
        return given == default or float(given) == float(default)
    except ValueError:
        return False


def _size_errors(flags: Mapping[str, str], block: int | None) -> list[str]:
    """What the plugin would say of its own numbers."""
    errors = []
    sizes: dict[str, int | None] = {}
    for size in _SIZES:
        name = f"{TREE_FLAGS}{size}"
        given = number(flags, name)
        if name in flags and (given is None or given < 1):
            errors.append(f"{name} takes a whole number of at least 1, not {flags[name]!r}.")
        sizes[size.replace("-", "_")] = given
    widths, name = None, f"{TREE_FLAGS}verify-widths"
    if name in flags:
        try:
            widths = parse_widths(flags[name])
        except OptionError as error:
            errors.append(f"{name} {error}.")
    if not errors:
        try:
            # The widest block there is, where it is not known: it only limits the widths.
            tree_sizes(MAX_BUDGET + 1 if block is None else block, **sizes, widths=widths)
        except OptionError as error:
            errors.append(f"{error}.")
    return errors


def _pool_errors(flags: Mapping[str, str]) -> list[str]:
    pool = flags.get(DRAFT_POOL, "stock")
    if pool not in ("stock", "ring"):
        return [f"{DRAFT_POOL} is stock or ring, not {pool!r}."]
    if pool == "stock":
        return []
    errors = []
    if not number(flags, "--speculative-draft-window-size") and CONFIG_FILE not in flags:
        errors.append(f"{DRAFT_POOL} ring needs --speculative-draft-window-size: it is what a request's ring has room for.")
    if "--enable-hierarchical-cache" in flags:
        errors.append(f"{DRAFT_POOL} ring does not work with --enable-hierarchical-cache: use one of them.")
    if "--enable-streaming-session" in flags:
        errors.append(f"{DRAFT_POOL} ring does not work with --enable-streaming-session: use one of them.")
    return errors
