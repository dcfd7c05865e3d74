"""What the console remembers between sessions: samples for the plots, marks, requests, operations, the plain baseline."""

from .records import Baseline, Mark, MarkKind, OperationRow, RequestRow, Sample
from .store import History, HistoryError, open_history

__all__ = [
    "Baseline",
    "History",
    "HistoryError",
    "Mark",
    "MarkKind",
    "OperationRow",
    "RequestRow",
    "Sample",
    "open_history",
]
