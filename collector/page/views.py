"""All views of the page. What they ask with loads pyarrow, so they are imported for the first question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .view import View

DRAWN: Final = ("/find", "/file", "/dataset", "/job", "/column")
"""The paths of those that have a drawing."""

PATHS: Final = ("/", "/open", "/search", *DRAWN)
"""The paths of the views that need only answers."""

DESCRIBED: Final = ("/slis",)
"""The paths that are a part of the HTTP interface for programs."""


def load_views() -> dict[str, View]:
    """The views that need only answers, by path."""
    from .file import FILE
    from .finding import FIND, OPEN
    from .home import HOME
    from .node import NODES
    from .searching import SEARCH

    return {view.path: view for view in (HOME, FIND, OPEN, SEARCH, FILE, *NODES)}
