"""What the console remembers between sessions: samples for the plots, marks, requests, operations, the plain baseline."""

from .records import Baseline, Mark, MarkKind, OperationRow, RequestRow, Sample
from .store import History, open_history

__all__ = [
    "Baseline",
    "History",
    "Mark",
    "MarkKind",
    "OperationRow",
    "RequestRow",
    "Sample",
    "open_history",
]
