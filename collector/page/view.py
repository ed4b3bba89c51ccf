"""What one view of the page is: a question, and the forms of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import msgspec

    from waybill.lineage.answers import HomeAnswers

Rows = Iterable[Sequence[object]]
"""The rows of a table; the first one names the columns."""


class View(NamedTuple):
    """One view: a page, and its JSON, CSV and drawing behind the same path and parameters.

    Attributes:
        path: its path, which its template is named after; those of its other forms end with ``.json``,
            ``.csv`` and ``.svg``.
        title: its name, for the title of the page and the navigation.
        read: reads the query string; its result is `params` in the template. It raises a `Problem` that names
            the parameter.
        ask: asks for what the view shows: the JSON, and `shown` in the template. It is called in a thread,
            and may raise what `problems_told` knows, a `NotFoundError` and a `Problem`.
        rows: the CSV of it.
        draw: the SVG of it, by the struct and the parameters; None: there is none. With `is_alone` it is a
            file of its own; without, it is a part of the page, has no style of its own, and may have links.
            The template has it as `drawing()|safe`.
        is_long: whether the answer takes seconds with some parameters.
        helpers: further functions that its template calls.
        leads_to: the address of another page that shows it better; None: there is none.
    """

    path: str
    title: str
    read: Callable[[str], Any]
    ask: Callable[[HomeAnswers, Any], msgspec.Struct]
    rows: Callable[[Any], Rows]
    draw: Callable[..., str] | None = None
    is_long: Callable[[Any], bool] = lambda _: False
    helpers: Mapping[str, Callable[..., object]] = {}
    leads_to: Callable[[Any], str | None] | None = None

    @property
    def template(self) -> str:
        """The name of its template."""
        return f"{self.path.strip('/') or 'home'}.html"
