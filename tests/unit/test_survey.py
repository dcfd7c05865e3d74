"""What is asked of a host for a plan."""

from __future__ import annotations

import pytest

from dflash_console.survey import names_hub_model


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("moonshotai/Kimi-K2.6", True),
        ("z-lab/Qwen3.5-4B-DFlash", True),
        ("/models/drafter", False),
        ("./models/drafter", False),
        ("../drafter", False),
        ("~/drafter", False),
        ("models/kimi/drafter", False),
        ("drafter", False),
        ("", False),
    ],
)
def test_a_name_on_a_hub_is_an_owner_and_a_name(value: str, expected: bool) -> None:
    assert names_hub_model(value) is expected
