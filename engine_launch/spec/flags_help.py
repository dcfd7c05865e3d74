"""The text of ``ddtree-launch serve --help``, made from the flag catalogue."""

from __future__ import annotations

import textwrap

from engine_launch.spec.flags import HONOURED, Flag, Kind

_INDENT = " " * 30
_NARROWEST, _WIDEST = 60, 120
"""Columns between which the text fits the terminal."""


def serve_help(columns: int = 80) -> str:
    """The text for a terminal of so many columns."""
    columns = within_bounds(columns)
    lines = [
        "usage: ddtree-launch serve [flags]",
        "",
        *textwrap.wrap(
            "Serves a model over SGLang's HTTP API. Flags have SGLang's spelling; --flag VALUE and --flag=VALUE are the same, "
            "and a prefix that fits one flag only will do.",
            columns,
            break_on_hyphens=False,
        ),
        "",
    ]
    for flag in HONOURED:
        lines += flag_lines(flag, columns)
    rest = "Other flags of SGLang 0.5.17 are read past with a warning (embedded engine) or passed on (--engine sglang)."
    return "\n".join([*lines, "", *textwrap.wrap(rest, columns, break_on_hyphens=False)])


def within_bounds(columns: int) -> int:
    """Columns of the text on a terminal of so many."""
    return min(max(columns, _NARROWEST), _WIDEST)


def flag_lines(flag: Flag, columns: int) -> list[str]:
    """One flag, with its value and what it does, in lines of at most so many columns."""
    head = f"  {flag.name}{_value_name(flag)}"
    text = flag.help + (f" (default: {flag.default})" if flag.default is not None and flag.kind is not Kind.SWITCH else "")
    if flag.aliases:
        text += f"; also {', '.join(flag.aliases)}"
    wrapped = textwrap.wrap(text, columns - len(_INDENT), break_on_hyphens=False)
    if len(head) < len(_INDENT) - 1:
        return [head.ljust(len(_INDENT)) + wrapped[0], *(_INDENT + line for line in wrapped[1:])]
    return [head, *(_INDENT + line for line in wrapped)]


def _value_name(flag: Flag) -> str:
    if flag.kind is Kind.SWITCH:
        return ""
    if flag.kind in (Kind.INT, Kind.INT_OR_WORD):
        return f" {'|'.join([*flag.choices, 'N'])}"
    if flag.choices:
        return f" {'|'.join(flag.choices)}"
    return " WORD ..." if flag.kind is Kind.ANY else " TEXT"
