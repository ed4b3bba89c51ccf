"""What a delivery stores with its cursor: all of it at once, and nothing is lost when the disk fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.marquez.state_batch import StateBatch
from waybill.transport import Kind

if TYPE_CHECKING:
    import pytest

    from waybill.transport import Journal


def test_the_last_change_of_a_row_counts(journal: Journal) -> None:
    journal.commit("p", put={"old": b"", "older": b""})
    batch = StateBatch(journal, "p")
    batch.put("a", b"1")
    batch.put("a", b"2")
    batch.put("b", b"1")
    batch.delete("b", "old", "older", "never there")
    batch.put("older", b"again")
    batch.commit(3)
    assert journal.state("p") == {"a": b"2", "older": b"again"}
    assert journal.cursor("p") == 3


def test_a_row_that_is_tied_to_an_entry_goes_with_it_unless_it_was_written_anew(journal: Journal) -> None:
    journal.append_many((Kind.OPENLINEAGE, b"%d" % number, "") for number in range(3))
    batch = StateBatch(journal, "p")
    for key in ("tied", "tied no more", "tied to a later entry", "deleted and put"):
        batch.put(key, b"", seq=1)
    batch.put("tied no more", b"")
    batch.put("tied to a later entry", b"", seq=3)
    batch.delete("deleted and put")
    batch.put("deleted and put", b"")
    batch.commit(3)
    journal.prune(2, 2**62)
    assert sorted(journal.state("p")) == ["deleted and put", "tied no more", "tied to a later entry"]


def test_nothing_is_written_where_nothing_has_changed(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = StateBatch(journal, "p")
    batch.put("a", b"1")
    batch.commit(1)
    commits: list[object] = []
    monkeypatch.setattr(journal, "commit", lambda *given, **_: commits.append(given))
    batch.commit(1)
    assert commits == []
    batch.commit(2)
    assert commits == [("p",)]
