"""Asking the graph of datasets and jobs, and showing what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

from . import console
from .arguments import argument
from .home import open_graph
from .records import as_plain

if TYPE_CHECKING:
    from waybill.lineage.graph import Question
    from waybill.transport import Settings

_Answer = TypeVar("_Answer")

NodeName = Annotated[
    str,
    argument(
        "DATASET[.COLUMN]|JOB", "Its name: with its namespace and a slash, without it, or its last part."
    ),
]


def ask_graph(settings: Settings, question: Question[_Answer]) -> _Answer:
    """Ask a home a question about the graph; what the answer lacks is said on stderr."""
    with open_graph(settings) as (answers, _):
        found = answers.answer(question)
    for note in answers.notes:
        console.note(note)
    return found


def show_answer(
    found: object,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    nothing: str,
    as_json: bool,
    as_csv: bool = False,
) -> None:
    """Print an answer as JSON, as CSV or as a table.

    Args:
        found: the answer.
        columns: the headings.
        rows: their cells: texts, numbers, nodes, tuples of texts, or None for an empty one.
        nothing: said if there is no row.
        as_json: whether the whole answer is printed instead.
        as_csv: whether it is CSV, which has its headings even then.
    """
    if as_json:
        console.json(as_plain(found))
        return
    told = [tuple(map(_cell, row)) for row in rows]
    if told or as_csv:
        console.table(columns, told, as_csv=as_csv)
    if not told:
        console.note(nothing)


def show_sql(of: str, lines: Iterable[str]) -> None:
    """Print the lines of a job's SQL below its name."""
    console.line((f"SQL of {of}", "bold"))
    for line in lines:
        console.line(f"  {line}")


def _cell(value: object) -> str:
    from waybill.lineage.graph import Node, shown

    if isinstance(value, Node):
        return shown(value)
    return ", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
