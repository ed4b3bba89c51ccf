"""`waybill rejects`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from waybill.transport import Journal, Kind, Rejects

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

GOOD = b'[{"did": "1", "finalState": "COMPLETE", "created": 1, "completed": 2}]'
BAD = GOOD.replace(b"COMPLETE", b"BANANA")


def test_a_reject_is_listed_shown_corrected_and_accepted(
    called: Run, home: Path, journal: Journal, tmp_path: Path
) -> None:
    Rejects(journal).add(Kind.PROVENANCE, [(BAD, "the state is unknown"), (b"{", "no JSON")])
    rows = [
        json.loads(line) for line in called("rejects", "list", "--home", home, "--json").stdout.splitlines()
    ]
    by_reason = {row["reason"]: row["id"] for row in rows}
    name = by_reason["the state is unknown"]
    assert called("rejects", "show", name, "--home", home).stdout == BAD.decode() + "\n"
    again = called("rejects", "retry", name, "--home", home)
    assert (again.returncode, again.stdout) == (1, "0 of 1 succeeded\n")
    assert "finalState" in again.stderr
    mended = tmp_path / "mended.json"
    mended.write_bytes(GOOD)
    kept = called("rejects", "retry", name, "--with", mended, "--home", home)
    assert (kept.returncode, kept.stdout) == (0, "1 of 1 succeeded\n"), kept.stderr
    assert [entry.body for entry in journal.read(0)] == [GOOD]
    assert called("rejects", "drop", by_reason["no JSON"], "--yes", "--home", home).returncode == 0
    assert Rejects(journal).all() == []
    assert called("rejects", "show", name, "--home", home).returncode == 2
