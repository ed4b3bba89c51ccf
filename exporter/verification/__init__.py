"""The proof that a root is right, and the proof behind one file's records."""

from waybill.exporter.verification.acceptance import (
    NoLedgerError as NoLedgerError,
    accept_findings as accept_findings,
)
from waybill.exporter.verification.collisions import (
    Collision as Collision,
    find_collisions as find_collisions,
)
from waybill.exporter.verification.continuity import claims as claims
from waybill.exporter.verification.explanation import (
    Explanation as Explanation,
    RowSeen as RowSeen,
    StepSeen as StepSeen,
    explain as explain,
)
from waybill.exporter.verification.verification import (
    CheckedFile as CheckedFile,
    Finding as Finding,
    check as check,
)
