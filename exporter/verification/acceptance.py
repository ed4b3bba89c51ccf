"""Accepting findings: a user who may write the root declares them settled, and the ledger records that."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.transport.errors import WaybillError
from waybill.transport.files import Files

from ..ledger import compare_again, finding_id, read_ledger, recorded, seal_there
from ..quarantine import settle
from .verification import hash_of

if TYPE_CHECKING:
    from .verification import Finding


class NoLedgerError(WaybillError):
    """A root has no ledger in which anything could be accepted."""


def accept_findings(
    root: Path, findings: Collection[Finding], why: str = "", *, files: Files | None = None
) -> None:
    """Write into the ledger that findings are accepted.

    A file that the ledger did not have is in the ledger from then on. A new occurrence is a new finding.

    Raises:
        NoLedgerError: there is no ledger.
        OSError: an entry or a report cannot be written.
    """
    files = files or Files()
    if read_ledger(root) is None:
        raise NoLedgerError(
            f"{root} has no ledger that could record an accepted finding; fix the finding instead"
        )
    with recorded(root, files, ()) as changed:
        changed.accepted = {one.id: why for one in findings}
        for one in findings:
            # By now another file may be there.
            is_same = one.id == finding_id("unrecorded", one.path, hash_of(root / one.path))
            if is_same and (seal := seal_there(root / one.path)) is not None:
                changed[one.path] = seal
        settle(root, {one.path for one in findings if one.kind == "damaged"}, files)
    compare_again(root, files)
