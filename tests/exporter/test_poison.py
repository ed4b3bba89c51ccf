"""An entry that is damaged or expands too far is poison; the layout and the archive continue."""

from __future__ import annotations

from collections.abc import Callable

import apsw
import pytest
from layouts import event
from sites import archived_entries

from waybill.exporter import Query
from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.runner import Progress, progress_of


def ended(number: int, **more: object) -> bytes:
    return event(f"run-{number}", "COMPLETE", number, **more)


def damage(journal: Journal, seq: int, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of an entry behind the journal's back, as a failing disk may."""
    connection = apsw.Connection(str(journal.path))
    body = connection.execute("SELECT body FROM entries WHERE seq = ?", (seq,)).get
    connection.execute("UPDATE entries SET body = ? WHERE seq = ?", (change(body), seq))
    connection.close()


def corrupted(body: bytes) -> bytes:
    return bytes(len(body))


def flipped(body: bytes) -> bytes:
    return body.replace(b"run-3", b"run-2")


def dids(settings: Settings) -> set[str]:
    return {record.did for record in find(settings.root, Query())}


@pytest.mark.parametrize(
    ("change", "padding", "reason"),
    [
        (corrupted, "x" * 10_000, "its bytes cannot be read (Corrupt Lz4 compressed data.); check the disk"),
        (flipped, "", "its bytes are not those that were accepted; check the disk"),
    ],
)
def test_a_damaged_entry_is_poison_and_its_neighbours_are_filed_and_archived(
    settings: Settings, change: Callable[[bytes], bytes], padding: str, reason: str
) -> None:
    journal = Journal(settings.home, packs=True)
    seqs = journal.append_many((Kind.OPENLINEAGE, ended(n, padding=padding), "") for n in range(6))
    damage(journal, seqs[3], change)
    report = flush(settings)
    assert (report.left, report.problems, report.poison) == ({}, {}, {"archive": 1, "index": 1, "layout": 1})
    assert dids(settings) == {f"run-{number}" for number in (0, 1, 2, 4, 5)}
    whole = [entry for entry in journal.read(0) if entry.kind is Kind.OPENLINEAGE and not entry.damage]
    assert [entry for entry in archived_entries(settings.root) if entry.kind is Kind.OPENLINEAGE] == whole
    poison = journal.poison.all("layout")
    assert [(one.seq, one.reason, one.tries) for one in poison] == [(seqs[3], reason, 0)]
    assert progress_of(journal, "layout", seqs[3]) is Progress.POISON
    journal.close()


def ruin_a_page(journal: Journal) -> None:
    """Clear a page of an entry, in the file."""
    for number in (7, 8):  # so that the log no longer has an older page
        journal.append(Kind.OPENLINEAGE, ended(number))
        journal.checkpoint()
    journal.close()
    content = bytearray(journal.path.read_bytes())
    page = next(at for at in range(0, len(content), 4096) if content.count(b"x", at, at + 4096) > 4_000)
    content[page : page + 4096] = bytes(4096)
    journal.path.write_bytes(content)


def ruin_a_text(journal: Journal) -> None:
    """Make an entry's system name invalid as text."""
    connection = apsw.Connection(str(journal.path))
    connection.execute("UPDATE entries SET system_name = CAST(X'e5646765' AS TEXT) WHERE seq = 1")
    connection.close()


@pytest.mark.parametrize("ruin", [ruin_a_page, ruin_a_text])
def test_an_entry_of_which_sqlite_cannot_read_a_page_or_a_text_stops_no_projection(
    settings: Settings, journal: Journal, ruin: Callable[[Journal], None]
) -> None:
    journal.append_many((Kind.OPENLINEAGE, ended(n, padding="x" * 20_000), "edge") for n in range(6))
    ruin(journal)
    report = flush(settings)
    assert (report.left, report.problems, report.poison) == ({}, {}, {"archive": 1, "index": 1, "layout": 1})
    assert dids(settings) >= {f"run-{number}" for number in range(1, 6)}
    assert "run-0" not in dids(settings)
    (poison,) = journal.poison.all("layout")
    assert (poison.seq, "check the disk" in poison.reason) == (1, True)
    for name in ("layout", "archive", "index"):
        journal.poison.retry(name, [1])
    assert flush(settings).problems == {}


def test_a_damaged_entry_that_is_tried_again_is_taken_as_it_is(settings: Settings, journal: Journal) -> None:
    journal.append_many((Kind.OPENLINEAGE, ended(n), "") for n in (1, 3))
    damage(journal, 2, lambda body: body.replace(b"run-3", b"run-4"))
    flush(settings)
    assert dids(settings) == {"run-1"}
    for name in ("layout", "archive", "index"):
        journal.poison.retry(name, [2])
    report = flush(settings)
    assert (report.problems, report.poison, journal.poison.all()) == ({}, {}, [])
    assert dids(settings) == {"run-1", "run-4"}
    assert any(b"run-4" in entry.body for entry in archived_entries(settings.root))


def test_an_entry_that_the_layout_cannot_read_is_poison_instead_of_a_line_in_a_log(
    settings: Settings,
    journal: Journal,
) -> None:
    journal.append_many((Kind.OPENLINEAGE, body, "") for body in (ended(1), b'{"no": "event"}', ended(2)))
    journal.append(Kind.PROVENANCE, b'[{"did": 7}]')
    report = flush(settings)
    assert report.poison == {"layout": 2}
    assert dids(settings) == {"run-1", "run-2"}
    assert [one.seq for one in journal.poison.all("layout")] == [2, 4]
