"""What a drafter's ``config.json`` says of the settings: how it was trained. The schema lives with the engine."""

from __future__ import annotations

from engine_launch.spec.drafter_config import DrafterConfig, DrafterConfigError, parse_drafter_config

from ..knobs import OFF, Knob
from .reading import Reading, absent, unknown, valued

_WHERE = "drafter's config.json"


def read_drafter(data: bytes | str) -> tuple[DrafterConfig | None, str]:
    """The configuration and an empty text, or nothing and one sentence why."""
    try:
        return parse_drafter_config(data), ""
    except DrafterConfigError as error:
        return None, f"the drafter's config.json cannot be used: {error}"


def trained_reading(config: DrafterConfig | None, knob: Knob) -> Reading:
    """What ``knob`` was in training; *absent* for settings that training does not fix (budget, top-k …)."""
    if config is None:
        return unknown("the drafter's configuration has not been read")
    if knob.name == "block_size":
        return valued(config.block_size, "", f"{_WHERE}: block_size")
    if knob.name == "layers_window":
        window, where = config.sliding_window, f"{_WHERE}: layer_types, sliding_window"
        # The number comes first and little follows it: a column of the truth table has room for a dozen characters.
        text = f"{window}, {config.sliding_layers} of {config.num_layers}" if window and config.sliding_layers else OFF
        return valued(window or OFF, text, where, config.window_text)
    if knob.name == "draft_window":
        if config.sliding_window is None:
            return absent("trained without a window", _WHERE)
        return valued(config.sliding_window, "", f"{_WHERE}: sliding_window", "the window that sliding layers were trained with")
    return absent("not fixed by training", _WHERE)
