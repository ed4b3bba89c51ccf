"""The proof that a root is right, and the proof behind one file's records."""

from .collisions import Collision as Collision, find_collisions as find_collisions
from .continuity import claims as claims
from .explanation import (
    Explanation as Explanation,
    RowSeen as RowSeen,
    StepSeen as StepSeen,
    explain as explain,
    mentioning as mentioning,
    run_event as run_event,
)
from .verification import (
    CheckedFile as CheckedFile,
    Finding as Finding,
    NoLedgerError as NoLedgerError,
    accept_findings as accept_findings,
    check as check,
)
