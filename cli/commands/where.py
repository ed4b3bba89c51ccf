"""`waybill where`: show where an entry that a collector acknowledged is."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.transport import NotFoundError, Settings
from waybill.transport.journal import Receipt

from .. import console
from ..arguments import JsonObject, argument
from ..home import open_answers
from ..options import with_settings
from ..records import as_plain


@with_settings("home", "root")
def where(
    settings: Settings,
    receipt: Annotated[str, argument("RECEIPT", "The response's header Waybill-Receipt.")],
    *,
    as_json: JsonObject = False,
) -> None:
    """Show where an acknowledged entry is: in the journal, in which file, exported, delivered.

    Exit code 2 if this home never had the entry.

    Examples:
      waybill where 5f0c6a1b2d3e-4711
    """
    parsed = Receipt.parse(receipt)
    if parsed is None:
        raise typer.BadParameter(
            f"{receipt} is not a receipt; give the header's value, such as 5f0c6a1b2d3e-4711"
        )
    with open_answers(settings, None) as (answers, _, _):
        found = answers.locate(parsed)
    if found is None:
        raise NotFoundError(
            f"{settings.home} never had {receipt}; give the home of the collector that answered"
        )
    if as_json:
        console.json(as_plain(found))
        return
    let_go = "deleted: every projection has it" if found.projections else "lost"
    console.line(f"journal\t{'there' if found.in_journal else let_go}")
    for name, progress in found.projections.items():
        console.line(f"{name}\t{progress}")
    for file in found.files:
        exported = f", exported to {', '.join(file.exported)}" if file.exported else ""
        console.line(f"{file.place}\t{file.file}{exported}")
    if found.remark:
        console.line(f"file\t{found.remark}")
