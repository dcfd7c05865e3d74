"""Errors that can be planted on purpose, for the tests that must catch them (``DDTREE_TEST_HOOKS=1``, key ``ddtree_plant``)."""

from __future__ import annotations

PLANT_NONE, PLANT_MASK, PLANT_POSITION, PLANT_FEATURE, PLANT_MOVE = range(5)
"""None; drafts do not see the root; their positions are one too high; features of the wrong rows; accepted KV is not moved."""
