"""The files that came from each file, as the correlation index of a home has them.

A record names one parent, and a joined file has several. The index has them all.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final, cast

import apsw

from waybill.transport.errors import reason_of
from waybill.transport.known_contents import INDEX_NAME, open_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

log = logging.getLogger("waybill.exporter")

_CHILDREN: Final = "SELECT id_parent, id_child FROM correlation_lineage WHERE id_parent = ? AND depth = 1"


def children_of(home: Path, dids: Iterable[str]) -> Mapping[str, set[str]]:
    """The files that came directly from each file; none if the home has no index that can be read."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    try:
        index = open_index(home)
        if index is None:
            return found
        with contextlib.closing(index):
            for parent, child in index.executemany(_CHILDREN, [(did,) for did in dids]):
                found[cast("str", parent)].add(cast("str", child))
    except apsw.Error as error:
        what = "so a joined file is followed from its first parent only"
        log.warning("%s cannot be read (%s), %s", home / INDEX_NAME, reason_of(error), what)
    return found
