"""Asking the graph of datasets and jobs, for the commands that show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from . import console
from .home import open_answers

if TYPE_CHECKING:
    from waybill.lineage.graph import Question
    from waybill.transport import Settings

_Answer = TypeVar("_Answer")

NodeName = Annotated[
    str,
    typer.Argument(
        metavar="DATASET[.COLUMN]|JOB",
        help="Its name: with its namespace and a slash, without it, or its last part.",
    ),
]


def ask_graph(settings: Settings, question: Question[_Answer]) -> _Answer:
    """Ask a home a question about the graph; what the answer lacks is said on stderr."""
    with open_answers(settings, None) as (answers, _, _):
        found = answers.answer(question)
    for note in answers.notes:
        console.note(note)
    return found
