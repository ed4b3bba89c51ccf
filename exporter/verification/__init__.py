"""The proof that a root is right, and the proof behind one file's records."""

from .collisions import Collision, find_collisions
from .continuity import claims
from .explanation import Explanation, RowSeen, StepSeen, explain, mentioning, run_event
from .verification import CheckedFile, Finding, NoLedgerError, accept_findings, check
