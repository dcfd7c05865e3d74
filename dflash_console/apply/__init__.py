"""The one way out for changes: plans carried out in stages, confirmed by the very start or change they caused, rolled back."""

from .audit import audit_lines
from .confirmed import ConfirmedConfig, ConfirmedStore
from .control import restart_service, start_service, stop_service
from .edited import plan_rebase, plan_release
from .engine import apply_plan
from .journal import PendingOperation, pending_operations
from .pending import discard, resume, roll_back_operation
from .records import ApplyResult, OnEvent, Stage, StageEvent, StageStatus, Timeouts, Verdict
from .rollback import carry_out_roll_back, plan_roll_back, roll_back, way_of_roll_back

__all__ = [
    "ApplyResult",
    "ConfirmedConfig",
    "ConfirmedStore",
    "OnEvent",
    "PendingOperation",
    "Stage",
    "StageEvent",
    "StageStatus",
    "Timeouts",
    "Verdict",
    "apply_plan",
    "audit_lines",
    "carry_out_roll_back",
    "discard",
    "pending_operations",
    "plan_rebase",
    "plan_release",
    "plan_roll_back",
    "restart_service",
    "resume",
    "roll_back",
    "roll_back_operation",
    "start_service",
    "stop_service",
    "way_of_roll_back",
]
