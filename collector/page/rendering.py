"""The templates, and how they write numbers, instants and links."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from waybill.facets import FinalState
from waybill.facets.record import AFTER_LAST_MS
from waybill.lineage.graph import NO_NAMESPACE, Node, NodeKind, shown
from waybill.lineage.index import shown_as
from waybill.transport.counting import counted, duration_text, size_text

from .assets import asset_url

if TYPE_CHECKING:
    from jinja2 import Environment

    from .view import Rows

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take a cell for a formula."""

_PUBLIC: Final = SimpleNamespace(path="")


def lead_below(public_path: str) -> None:
    """Let all addresses of the page, in this process, be below the path by which users know it."""
    _PUBLIC.path = public_path


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill in a template."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    # Loaded with the first page: it takes a tenth of the start of a collector.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "instant": instant,
        "number": "{:,}".format,
        "duration": duration_text,
        "short": short,
        "size": size_text,
    }
    made.globals |= {
        "asset": lambda name: link(asset_url(name)),
        "link": link,
        "node_url": node_url,
        "node_name": shown,
        "told": shown_as,
        "no_namespace": NO_NAMESPACE,
        "counted": counted,
        "states": list(FinalState),
    }
    return made


def instant(at_ms: int | None) -> str:
    """An instant in epoch milliseconds, as people read it; empty for none."""
    if at_ms is None:
        return ""
    in_range_ms = min(at_ms, AFTER_LAST_MS - 1)  # the end of the last year has no text of its own
    return f"{datetime.fromtimestamp(in_range_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}"


def short(text: str, chars_max: int = 120) -> str:
    """The beginning and the end of a text that is too long for a line."""
    half = chars_max // 2
    return text if len(text) <= chars_max else f"{text[:half]}…{text[-half:]}"


def link(path: str, params: Mapping[str, Any] | Iterable[tuple[str, str]] = (), **more: object) -> str:
    """An address of the page, without parameters that are None or empty; several values repeat theirs."""
    pairs = [*(params.items() if hasattr(params, "items") else params), *more.items()]
    several = [
        (name, str(value))
        for name, values in pairs
        for value in (values if isinstance(values, list | tuple) else [values])
        if value not in {None, ""}
    ]
    query = f"?{urlencode(several)}" if several else ""
    return f"{_PUBLIC.path}{path}{query}"


def node_url(node: Node, column: str = "") -> str:
    """The address of the view of a dataset, a job or a column."""
    if column or node.kind is NodeKind.COLUMN:
        return link("/column", node=shown(node.dataset), column=column or node.column)
    return link(f"/{node.kind}", node=shown(node))


def csv_of(rows: Rows) -> str:
    """A table as CSV; a cell that a spreadsheet would take for a formula begins with an apostrophe."""
    text = io.StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
