"""The servers that the parts ask for, by name."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from tests.gpu.models import write_configs, write_weights
from tests.gpu.oracle import TABLE_VARIABLE
from tests.gpu.servers import ServerSpec

DEFAULT_STORE = Path("/tmp/ddtree-gpu")
"""Where ``stage.sh`` puts things."""
BUDGETS = (1, 2, 7, 8, 15, 16, 31, 32, 64)
TOPKS = (1, 2, 4, 8)
WIDTHS = "2,3,8,9,16,17,32,33,65"
ROOM = ("--max-total-tokens=150000", "--mem-fraction-static=0.7")
"""Several servers share the card, so none takes all that is left."""
LITTLE_ROOM = ("--max-total-tokens=40000", "--mem-fraction-static=0.7")
"""For fp32, whose prompts are short and whose tokens take twice the bytes."""
FP32 = ("--dtype=float32",)
FP32_MODULE = "tests.gpu.fp32_server"
FP32_PRODUCTS: Mapping[str, str] = MappingProxyType({"TRITON_F32_DEFAULT": "tf32x3"})
"""Without it Triton multiplies fp32 matrices in TF32, and text differs between batch shapes as in bf16."""


def tree_flags(drafter: Path, *, budget: int = 16, topk: int = 4, most: int = 64, widths: str = WIDTHS) -> tuple[str, ...]:
    return (
        "--speculative-algorithm=DDTREE",
        f"--speculative-draft-model-path={drafter}",
        f"--speculative-ddtree-budget={budget}",
        f"--speculative-ddtree-topk={topk}",
        f"--speculative-ddtree-max-budget={most}",
        "--speculative-ddtree-max-topk=8",
        f"--speculative-ddtree-verify-widths={widths}",
    )


def chain_flags(drafter: Path) -> tuple[str, ...]:
    return ("--speculative-algorithm=DFLASH", f"--speculative-draft-model-path={drafter}")


def graphs(*batch_sizes: int) -> tuple[str, ...]:
    """CUDA graphs for these batch sizes, the last of them being the most that run at once."""
    return ("--cuda-graph-bs", *map(str, batch_sizes), f"--max-running-requests={batch_sizes[-1]}")


SMALL_BATCHES = graphs(1, 8, 32)
"""Few of them, because each is captured for every width."""
BATCHES = graphs(1, 2, 4, 8, 16, 32)
HOOKS: Mapping[str, str] = MappingProxyType({"DDTREE_TEST_HOOKS": "1"})
SPEED_WIDTHS = "5,9,13,17,25,33"


def _spec(name: str, model: Path, flags: tuple[str, ...], environment: Mapping[str, str], ranks: int = 1) -> ServerSpec:
    if FP32[0] not in flags:
        return ServerSpec(name, model, flags, environment, ranks)
    return ServerSpec(name, model, flags, MappingProxyType({**environment, **FP32_PRODUCTS}), ranks, FP32_MODULE)


def table_path(store: Path, name: str) -> Path:
    """Where a server with an oracle looks for its table."""
    return store / f"oracle-{name}.npz"


def _oracle(store: Path, name: str) -> Mapping[str, str]:
    table_path(store, name).unlink(missing_ok=True)
    return MappingProxyType(
        {
            **HOOKS,
            "DDTREE_PROPOSER": "tests.gpu.oracle:propose",
            TABLE_VARIABLE: str(table_path(store, name)),
            "DDTREE_CHECK_RANKS": "1",
        }
    )


DRAFTERS: Mapping[str, tuple[int, int]] = MappingProxyType({"dense-8b": (5, 0), "dense-small": (3, 2), "mla-moe": (6, 5)})
"""Random target → its drafter's layers, and how many of them slide."""
DUMMIES = frozenset({"dense-8b"})
"""Random targets whose weights SGLang makes itself."""


def random_model(store: Path, name: str) -> tuple[Path, Path]:
    """The folders of a random target and its drafter, written when they are not there yet; who comes meanwhile waits."""
    place = store / "random"
    place.mkdir(parents=True, exist_ok=True)
    with (place / f"{name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / f"{name}.written"
        if not done.exists():
            layers, sliding = DRAFTERS[name]
            folders = write_configs(name, place, store / "target", layers=layers, sliding=sliding)
            if name not in DUMMIES:
                write_weights(*folders)
            done.touch()
    return place / name, place / f"{name}-drafter"


def _smollm(
    name: str, flags: Callable[[Path], tuple[str, ...]], environment: Mapping[str, str] | None = None
) -> Callable[[Path], ServerSpec]:
    def spec(store: Path) -> ServerSpec:
        own = flags(store / "drafter")
        room = LITTLE_ROOM if FP32[0] in own else ROOM
        return _spec(name, store / "target", (*room, *own), environment or MappingProxyType({}))

    return spec


def _moe(name: str, tree: bool) -> Callable[[Path], ServerSpec]:
    def spec(store: Path) -> ServerSpec:
        target, drafter = random_model(store, "mla-moe")
        flags = (*LITTLE_ROOM, *FP32, *SMALL_BATCHES, "--disable-shared-experts-fusion")
        if not tree:
            return _spec(name, target, flags, MappingProxyType({}))
        return _spec(name, target, (*flags, *tree_flags(drafter, widths="9,17,33", most=32)), _oracle(store, name))

    return spec


def _dense(name: str, tree: bool) -> Callable[[Path], ServerSpec]:
    def spec(store: Path) -> ServerSpec:
        target, drafter = random_model(store, "dense-8b")
        room = ("--max-total-tokens=8000", "--mem-fraction-static=0.7")
        dummy = ("--load-format=dummy", "--speculative-draft-load-format=dummy", *room, *graphs(1, 8))
        if not tree:
            return ServerSpec(name, target, (*dummy, *chain_flags(drafter)))
        return ServerSpec(name, target, (*dummy, *tree_flags(drafter, widths="9,17", most=16)), _oracle(store, name))

    return spec


MANY = (
    "--disable-custom-all-reduce",
    "--enforce-disable-flashinfer-allreduce-fusion",
)
"""NCCL alone adds over the ranks: one way that is known to be right, and no multicast memory."""
UNEVEN: Mapping[str, str] = MappingProxyType({"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"})
"""The first GPU also has the servers of one GPU, and SGLang does not start where a tenth less is free on one than on another."""


def _spread(name: str, target: str, ranks: int) -> Callable[[Path], ServerSpec]:
    """A random target over ``ranks`` GPUs, with the oracle and the times of a round's parts."""

    def spec(store: Path) -> ServerSpec:
        model, drafter = random_model(store, target)
        tree = tree_flags(drafter, widths="2,8,9,17,33", most=32)
        flags = (*LITTLE_ROOM, *FP32, *SMALL_BATCHES, "--disable-shared-experts-fusion", f"--tp-size={ranks}", *MANY, *tree)
        return _spec(name, model, flags, {**_oracle(store, name), **UNEVEN, "DDTREE_TIMING": "1"}, ranks)

    return spec


RING_WINDOW = 64
"""Tokens; the prompts of the ring's checks are longer."""


def _draft_window(window: int) -> str:
    return f"--speculative-draft-window-size={window}"


def _ring(window: int) -> tuple[str, ...]:
    return (_draft_window(window), "--speculative-ddtree-draft-pool=ring")


def _small_fp32(drafter: Path) -> tuple[str, ...]:
    """Small, because it stands beside many; prompts come in several chunks, as long ones do elsewhere."""
    small = ("--max-total-tokens=40000", "--chunked-prefill-size=128")
    return (*FP32, *graphs(1, 8), *tree_flags(drafter, widths="17", most=16), *small)


def _window(window: int, ring: bool = False) -> Callable[[Path], tuple[str, ...]]:
    extra = _ring(window) if ring else (_draft_window(window),) if window else ()
    return lambda d: (*graphs(1, 4), *tree_flags(d, widths="17", most=16), *extra, "--max-total-tokens=200000")


SETUPS: Mapping[str, Callable[[Path], ServerSpec]] = MappingProxyType(
    {
        "plain32": _smollm("plain32", lambda _: (*FP32, *SMALL_BATCHES)),
        "tree32": _smollm("tree32", lambda d: (*FP32, *SMALL_BATCHES, *tree_flags(d)), HOOKS),
        "tree32-eager": _smollm(
            "tree32-eager", lambda d: (*FP32, "--disable-cuda-graph", "--max-running-requests=8", *tree_flags(d)), HOOKS
        ),
        "tree32-saver": _smollm(
            "tree32-saver",
            # Graphs for fewer requests than run at once, and memory that can be given away.
            lambda d: (
                *FP32,
                *("--cuda-graph-bs", "8", "32"),
                "--max-running-requests=64",
                "--enable-memory-saver",
                *tree_flags(d, widths="17", most=16),
            ),
        ),
        "plain16": _smollm("plain16", lambda _: BATCHES),
        "chain16": _smollm("chain16", lambda d: (*BATCHES, *chain_flags(d))),
        "tree16": _smollm("tree16", lambda d: (*BATCHES, *tree_flags(d, widths=SPEED_WIDTHS, most=32))),
        "tree16-timed": _smollm(
            "tree16-timed",
            lambda d: (*graphs(1), *tree_flags(d, widths=SPEED_WIDTHS, most=32)),
            MappingProxyType({"DDTREE_TIMING": "1"}),
        ),
        "window-off": _smollm("window-off", _window(0)),
        "window-2048": _smollm("window-2048", _window(2048)),
        "window-512": _smollm("window-512", _window(512)),
        "window-512-ring": _smollm("window-512-ring", _window(512, ring=True)),
        "tree32-window": _smollm("tree32-window", lambda d: (*_small_fp32(d), _draft_window(RING_WINDOW))),
        "tree32-ring": _smollm("tree32-ring", lambda d: (*_small_fp32(d), *_ring(RING_WINDOW))),
        "moe-plain": _moe("moe-plain", False),
        "moe-tree": _moe("moe-tree", True),
        "dense-chain": _dense("dense-chain", False),
        "dense-tree": _dense("dense-tree", True),
        "self-test": _smollm(
            "self-test",
            lambda d: (
                *graphs(1, 4),
                *tree_flags(d, widths="9,17", most=16),
                "--ddtree-self-test",
                "--speculative-draft-window-size=2048",
            ),
        ),
    }
)
"""Name → what starts it, given the folder that ``stage.sh`` filled."""


def setup(name: str, store: Path, gpus: int) -> ServerSpec:
    """What starts the server ``name``; those that are spread go over all ``gpus``.

    Raises:
        KeyError: there is no such server.
    """
    if name in SPREAD:
        return _spread(name, SPREAD[name], gpus if name.endswith("-many") else 1)(store)
    return SETUPS[name](store)


SPREAD: Mapping[str, str] = MappingProxyType(
    {"dense-one": "dense-small", "dense-many": "dense-small", "moe-one": "mla-moe", "moe-many": "mla-moe"}
)
"""Servers of tensor parallelism and their targets; each on one GPU and on all."""
