"""What F1 says about the panel in focus: definitions, sources, and what not to read into a figure."""

from __future__ import annotations

from dataclasses import dataclass

from .comparison import NEAR_TIES


@dataclass(frozen=True)
class Topic:
    """One explanation."""

    title: str
    text: str


TOPICS: dict[str, Topic] = {
    "console": Topic(
        "This console",
        "The header says which server this is, in which state, with which settings in effect, and how old the newest "
        "data are.\n"
        "Keys that do something now are in the last line; ? lists all of them, : finds any action by its name.",
    ),
    "decode": Topic(
        "Decode throughput",
        "Tokens per second that the engine emits after prefill, all running requests together.\n\n"
        "Source, best first: the counter realtime_tokens_total{mode=decode}, which grows with every round; else the "
        "decode line of the log; else the engine's gauge. The gauge covers one log interval and keeps its last value "
        "when the engine is idle, so it is shown beside the counters and never in their place.\n\n"
        "The dotted line is plain decoding on this host: measured at a start without speculation. Speculation "
        "switched off while the engine runs is another thing (the drafter is still fed) and never becomes this line.\n\n"
        "Marks: restarts and hot changes.",
    ),
    "commit": Topic(
        "Commit length",
        "Tokens that one verify pass of the target brings: accepted drafts + 1, because the target's own next token "
        "always counts. SGLang calls it accept length.\n\n"
        "Over a span: (tokens generated − requests finished) ÷ verify calls. The first token of a request comes from "
        "prefill, not from a verify, so it is taken off. SGLang's own figure leaves it in and is a little higher for "
        "short answers.\n\n"
        "The lower edge says which of two holds here. 'every verify': this engine counts each verify as it happens (the "
        "embedded one does), so the value moves while answers stream. 'finished requests': the counters grow when a request "
        "finishes (stock SGLang), so the value comes in steps, and between them it is the last one known. While nothing runs, "
        "'last known' says of how many verifies the value is: those of the last minute in which there were some. After a change "
        "that may be the one of the prompt that proved it.\n\n"
        "Accept rate is another figure: accepted ÷ proposed. A tree proposes more nodes than can ever be accepted, so "
        "its rate falls as the budget grows while its commit length rises. Compare commit length and tok/s across "
        "budgets, never the rate.",
    ),
    "histogram": Topic(
        "Accepted drafts per verify",
        "How many verify passes accepted 0, 1, 2 … drafts. Commit length is the mean of this, plus 1.\n\n"
        "Counted are those of the last minute, and while nothing runs those of the last minute in which something did. A "
        "start and every change of the running engine begin anew, so that no verify from before is mixed in; the lower edge "
        "says since when.\n\n"
        "A high column at 0 means that the drafter's first guess is often wrong: a wider tree (top-k) helps. A high "
        "column at the right end means that drafts run out: a larger block or budget may help.",
    ),
    "requests": Topic(
        "Requests",
        "running / queued: requests that are decoded now, and those that wait for a slot.\n"
        "TTFT: from arrival to the first token, percentiles from the engine's histogram over the span.\n"
        "KV used: share of the target's KV pool held by running requests.\n"
        "prefix cached: prompt tokens that came from the prefix cache.\n"
        "draft KV: bytes that the drafter's caches hold now; the compact draft cache bounds them per request.\n\n"
        "one round (where the engine measures it): a draft and its verify, over all running requests, on average over the "
        "last minute in which there were some. verify: the target's pass over the trees and the walk through them. draft: the "
        "drafter's pass. the other parts: taking in what was committed, choosing candidates, building trees, moving what the "
        "cache keeps.",
    ),
    "gpu": Topic(
        "GPUs",
        "As nvidia-smi on the host reports them: utilisation, memory in use, power and temperature of each; the title has the "
        "kind, and the memory of each where all have the same. TP0, TP1 …: the server's rank on it; others': a GPU that it does "
        "not use and others do.\n\n"
        "✗ a GPU that cannot do its part: lost (the driver cannot reach it), reset (it requires one), ECC 3 (uncorrected memory "
        "errors since the driver was loaded), no rank (the server's rank on it is gone).\n"
        "! one to look at: slow 94° (slowed down by heat or the power supply; the power cap is in order), stranger (a process "
        "that is not this unit's holds its memory), MIG, error (figures that the driver cannot tell).\n"
        "z maximises the panel and shows each of these in a sentence, with what to do.\n\n"
        "8 of 8 ranks: rank processes that hold GPU memory, of those that the command line asks for on this host.",
    ),
    "events": Topic(
        "Events",
        "The newest things that the log of this start said, in plain words, newest first. 4 opens the log itself.",
    ),
    "settings": Topic(
        "Settings",
        "now: what the running engine says is in effect.  new: your edit.  from: where the present value comes from.\n\n"
        "'now' after an edit: the engine takes it while it runs, in about a second. 'restart': it is written to the "
        "configuration and takes a new start.\n\n"
        "Two windows, easily mistaken for one. Compact draft cache: the worker keeps only the last so many tokens of "
        "draft KV, a setting of the server. Drafter layers' window: the attention layers' own sliding window, as the "
        "drafter was trained.\n\n"
        "Neither changes the output: the target decides every token.",
    ),
    "plan": Topic(
        "What will be written",
        "The difference between the configuration file as it is and as it would be, and the command that results. "
        "Nothing is written before you apply.",
    ),
    "truth": Topic(
        "Truth",
        "Each setting as six sources give it: what the drafter was trained with, the configuration file, what the "
        "service manager has loaded, the command line of the running process, what the server reports, and what the "
        "log of this very start said.\n\n"
        "– means that the source does not name the setting; ? that it could not be read. Neither is a mismatch.",
    ),
    "log": Topic(
        "Log",
        "Lines of this start, or of all (t changes it). f follows the end; scrolling up stops that for good until f "
        "or end.\n"
        "/ searches (regular expression), n and N go on, l filters by level and R by rank, w wraps long lines, c jumps to "
        "the confirmation line, y copies the line, S saves what is shown.\n"
        "Progress bars are one line that moves; tracebacks are folded (enter opens them).",
    ),
    "playground": Topic(
        "Playground",
        "Shades: neighbouring tokens of one shade came from one verify, so the width of a shade is the commit length "
        "seen.\n\n"
        "TTFT: from sending to the first token, seen here. decode tok/s: tokens after the first ÷ time between first "
        "and last. commit: mean of the request's own histogram.\n\n"
        "same output?: at temperature 0 the answer must be the one that plain decoding gives. c asks the same of this "
        "server with speculation off for that request; C shows the answer beside it, or beside parallel and earlier ones, "
        "and where they part.\n"
        f"{NEAR_TIES}\n\n"
        "R sends the text as it stands, without the model's chat template: a base model's way to be asked, and the only "
        "one through which stock SGLang reports verifies of each request.",
    ),
    "hosts": Topic(
        "Hosts",
        "All configured hosts, and this machine's embedded engine. They are looked at while this screen is open, every few "
        "seconds, each over a connection of its own: one that does not answer delays no other. A minute after the screen is "
        "left the connections are closed.\n\n"
        "enter shows a host on all screens; an operation that runs on the one before goes on there. n adds what ssh would take "
        "(user@host, host:port, an alias of ~/.ssh/config) to the configuration file, whose comments stay; d removes a host from "
        "it.\n\n"
        "tok/s and commit length: the newest values, and the last quarter of an hour. ? in drift: not all sources are read yet.",
    ),
    "tree": Topic(
        "One verify",
        "The tree that one draft proposed: each node with its token and the drafter's probability of the path to it. "
        "● nodes were accepted; the line after them is the target's own token, where it left the tree.\n"
        "Expected commit length: 1 + the sum of all path probabilities, if the drafter were right about itself.",
    ),
}


def topic(name: str) -> Topic:
    """The explanation called ``name``; the general one for an unknown name."""
    return TOPICS.get(name, TOPICS["console"])
