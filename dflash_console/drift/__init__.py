"""Configuration drift: what was trained, written, loaded, started, reported and printed, and one verdict a setting. Pure.

A verdict is a statement about readings that are there: a source that could not be read is *unknown* and never a mismatch.
:mod:`table` lays the rows out, :mod:`causes` finds what each one comes to, :mod:`verdicts` has the records.
"""

from .port import port_verdict as port_verdict
from .table import truth_table as truth_table
from .table import witnesses_of as witnesses_of
from .verdicts import DriftKind as DriftKind
from .verdicts import Severity as Severity
from .verdicts import TruthRow as TruthRow
from .verdicts import TruthTable as TruthTable
from .verdicts import Verdict as Verdict
from .verdicts import drift_items as drift_items
