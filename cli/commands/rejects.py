"""`waybill rejects`: what the collector refused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from waybill.transport import AdmissionError, Journal, Reject, Rejects
from waybill.transport.admission import Redaction

from ..home import as_agreed
from ..set_aside import Kind, Left, commands_of

_With = typer.Option("--with", metavar="FILE", help="Read the corrected content from this file.")


class _Rejects(Kind[Reject]):
    command = "rejects"
    what = "what the collector refused"
    nouns = "reject", "rejects"
    key = ("id",)
    columns = (("sent as", lambda reject: reject.kind.name.lower()),)
    examples = "5f0c6a1b2d3e > fixed.json", "5f0c6a1b2d3e --with fixed.json", "5f0c6a1b2d3e"
    retry_option = ("file", Annotated[Path | None, _With])
    retry_settings = "home", "system_name", "admit_name_chars", "admit_items", "admit_made_chars"

    def read(self, journal: Journal | None) -> list[Reject]:
        return Rejects(journal).all() if journal else []

    def show(self, journal: Journal, item: Reject) -> bytes | None:
        """Print one reject as it was sent, except for what is redacted, and, on stderr, the reason.

        A record is printed inside an array. On a terminal, control characters are escaped. With --json it is
        text beside the fields that `list` shows.
        """
        return Rejects(journal).body(item.id)

    def retry(self, journal: Journal, items: list[Reject], file: Path | None, /) -> Left[Reject]:
        """Submit rejects again, unchanged or corrected.

        One that is accepted now is no longer a reject. Exit code 1 if any is refused again.
        """
        if file is not None and len(items) != 1:
            raise typer.BadParameter("--with takes one reject; give only its ID")
        agreed = as_agreed(self.settings, journal)
        rejects = Rejects(journal, Redaction(agreed.redact, agreed.bounds))
        left = []
        for item in items:
            body = rejects.body(item.id) or b"" if file is None else file.read_bytes()
            try:
                rejects.retry(item.id, body, self.settings.system_name)
            except AdmissionError as error:
                left.append((item, f"refused again: {error}"))
        return left

    def drop(self, journal: Journal, items: list[Reject]) -> None:
        """Drop rejects for good."""
        Rejects(journal).drop([item.id for item in items])


app = commands_of(_Rejects)
