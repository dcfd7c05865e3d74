"""From a wanted change and what is known of the service to a plan: text, diff, command, predictions, findings. Pure."""

from .maker import make_plan
from .records import Change, Finding, KnobChange, Mode, Plan, PlanError, Predictions, Severity, Survey

__all__ = [
    "Change",
    "Finding",
    "KnobChange",
    "Mode",
    "Plan",
    "PlanError",
    "Predictions",
    "Severity",
    "Survey",
    "make_plan",
]
