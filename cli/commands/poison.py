"""`waybill poison`: the entries that a projection cannot apply."""

from __future__ import annotations

from waybill.transport import Journal
from waybill.transport.journal import Poison

from .. import completing
from ..home import check_projection
from ..set_aside import Kind, Left, commands_of


class _Entries(Kind[Poison]):
    command = "poison"
    what = "the entries that a projection cannot apply"
    nouns = "poison entry", "poison entries"
    key = "seq", "projection"
    complete = completing.projections
    columns = (("tries", lambda entry: entry.tries),)
    examples = "4711 > entry.json", "--all --projection layout", "4711"

    def read(self, journal: Journal | None) -> list[Poison]:
        check_projection(journal, self.chosen)
        return journal.poison.all(self.chosen) if journal else []

    def show(self, journal: Journal, item: Poison) -> bytes | None:
        """Print one entry byte for byte as the journal holds it and, on stderr, why it cannot be applied.

        On a terminal, control characters are escaped. With --json it is text beside the fields that `list`
        shows for the first projection.
        """
        return journal.poison.body(item.projection, item.seq)

    def retry(self, journal: Journal, items: list[Poison], timeout_s: float | None, /) -> Left[Poison]:
        """Apply poison entries again, and wait; a damaged entry is applied as it is.

        An entry that can now be applied is no longer poison. Exit code 1 if any stays.
        """
        for projection, seqs in self.by_owner(items):
            journal.poison.retry(projection, seqs)
        return self.left_after_flush(journal, items, timeout_s)

    def drop(self, journal: Journal, items: list[Poison]) -> None:
        """Drop poison entries for good: they are never applied."""
        for projection, seqs in self.by_owner(items):
            journal.poison.drop(projection, seqs)


app = commands_of(_Entries)
