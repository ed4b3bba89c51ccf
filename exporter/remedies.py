"""The complete commands that fix a root, for use in messages."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

FROM_A_COPY: Final = "restore it from a copy"


def repair_command(root: Path) -> str:
    """The command that restores the files that a root has lost."""
    return shlex.join(["waybill", "repair", "--root", str(root)])


def accept_command(root: Path, finding: str) -> str:
    """The command that accepts a finding, given by its ID."""
    return shlex.join(["waybill", "verify", str(root), "--accept", finding])
