"""The direct parents and children of files, as the correlation index of a home knows them.

A record names one parent. A file that was joined has several, which only the index has. A home without an
index, or whose index is damaged, is asked without it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import apsw

from .correlation import Relations

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("waybill.lineage")

_Found = Mapping[str, tuple[str, ...]]


class Kin:
    """Who came directly from whom, besides what the records say; knows nothing if there is no index."""

    def __init__(self, relations: Relations | None = None) -> None:
        self._relations = relations

    def parents_of(self, dids: Collection[str]) -> _Found:
        """The files that each file came from; without files that came from none."""
        return {} if self._relations is None else self._asked(self._relations.parents_of, dids)

    def children_of(self, dids: Collection[str]) -> _Found:
        """The files that came from each file; without files that none came from."""
        return {} if self._relations is None else self._asked(self._relations.children_of, dids)

    def _asked(self, ask: Callable[[Iterable[str]], _Found], dids: Collection[str]) -> _Found:
        try:
            return ask(dids)
        except apsw.Error as error:
            _warn(error)
            self._relations = None
            return {}


@contextlib.contextmanager
def open_kin(home: Path) -> Iterator[Kin]:
    """Open the index of a home, with what it does not have yet.

    Raises:
        JournalError: the journal cannot be read.
    """
    try:
        relations = Relations.open(home)
    except apsw.Error as error:
        _warn(error)
        relations = None
    with contextlib.nullcontext() if relations is None else relations:
        yield Kin(relations)


def _warn(error: apsw.Error) -> None:
    log.warning(
        "the correlation index cannot be read (%s), so a joined file is shown below its first parent only; "
        "delete index.db in the home, and the runner makes it again",
        error,
    )
