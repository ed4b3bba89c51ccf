"""`waybill dead-letters`: the events that a backend refuses permanently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.transport import Journal

from .. import completing
from ..home import backends_of
from ..set_aside import Kind, Left, commands_of

if TYPE_CHECKING:
    from waybill.marquez import DeadLetter


class _Letters(Kind["DeadLetter"]):
    command = "dead-letters"
    what = "the events that a backend refuses permanently"
    nouns = "dead letter", "dead letters"
    key = "seq", "backend"
    complete = completing.backends
    columns = ("status", lambda letter: letter.status or "none"), ("about", lambda letter: letter.key)
    examples = "4711 | jq .", "4711 4712", "4711"

    def read(self, journal: Journal | None) -> list[DeadLetter]:
        from waybill.marquez import dead_letters

        backends = backends_of(self.settings, journal, self.chosen)
        letters = [letter for name in backends for letter in dead_letters(journal, name)] if journal else []
        return sorted(letters, key=lambda letter: (letter.seq, letter.backend))

    def show(self, journal: Journal, item: DeadLetter) -> bytes | None:
        """Print one event byte for byte as it was accepted and, on stderr, the backend's response.

        On a terminal, control characters are escaped. With --json it is text beside the fields that `list`
        shows for the first backend.
        """
        from waybill.marquez import dead_letter_body

        return dead_letter_body(journal, item.seq, item.backend)

    def retry(
        self, journal: Journal, items: list[DeadLetter], timeout_s: float | None, /
    ) -> Left[DeadLetter]:
        """Send dead letters again, and wait for the responses.

        An event that the backend now accepts is no longer a dead letter. One that it refuses again stays,
        with the new response. Exit code 1 if any stays.
        """
        from waybill.marquez import retry_dead_letters

        for backend, seqs in self.by_owner(items):
            retry_dead_letters(journal, seqs, backend)
        return self.left_after_flush(journal, items, timeout_s)

    def drop(self, journal: Journal, items: list[DeadLetter]) -> None:
        """Drop dead letters for good. Their records stay in the provenance files."""
        from waybill.marquez import drop_dead_letters

        for backend, seqs in self.by_owner(items):
            drop_dead_letters(journal, seqs, backend)


app = commands_of(_Letters)
