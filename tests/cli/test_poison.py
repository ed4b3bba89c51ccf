"""`waybill poison` over an entry that was damaged; the other sessions are among the snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
from events import event

from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    from conftest import Run


def test_a_damaged_entry_is_told_of_and_applied_as_it_is_when_it_is_tried_again(
    called: Run, settings: Settings, journal: Journal
) -> None:
    settings = settings.with_values({"archive_enabled": False}, "tests")
    journal.append_many((Kind.OPENLINEAGE, event(f"run-{number}"), "") for number in (1, 2, 3))
    connection = apsw.Connection(str(journal.path))
    damaged = event("run-2").replace(b"run-2", b"run-9")
    connection.execute("UPDATE entries SET body = ? WHERE seq = 2", (damaged,))
    connection.close()
    assert flush(settings).poison == {"index": 1, "layout": 1}
    for seq, state in ((1, "done"), (2, "set aside as poison"), (3, "done")):
        where = called("where", f"{journal.node}-{seq}", "--home", settings.home)
        assert ["layout", state] in [line.split(maxsplit=1) for line in where.stdout.splitlines()]
    done = called("poison", "retry", "2", "--home", settings.home)
    assert (done.returncode, done.stdout) == (0, "2 of 2 succeeded\n")
    assert "run-9" in called("find", "--json", "--home", settings.home).stdout
    assert called("poison", "list", "--home", settings.home).stderr.strip() == "there are no poison entries"
