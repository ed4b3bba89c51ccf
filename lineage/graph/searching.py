"""Finding datasets and jobs by words: of their names, columns, tags, owners and descriptions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.query import InvalidQueryError

from .documents import PUT_DOCUMENTS, WORDED
from .elements import Node, NodeKind, as_json
from .properties import columns_in, description_in, owners_in, properties_of, tags_in
from .walking import list_columns, nodes_with

if TYPE_CHECKING:
    from .elements import Ask

MATCHES_MAX: Final = 10_000
"""So many matches are ranked: of words that nearly every name has, that would take too long."""
TEXT_CHARS_MAX: Final = 1_000

_CLEAR: Final = "INSERT INTO main.document (document) VALUES ('delete-all')"
_NODES: Final = "SELECT number FROM main.node WHERE kind IN ('dataset', 'job')"
_MATCH: Final = """
SELECT rowid, {2} FROM {0}.document WHERE document MATCH ? {1} ORDER BY 2 LIMIT ?
"""
_RANK: Final = "bm25(document, 10, 4, 3, 3, 1)"
_NOT_IN_MEMORY: Final = "AND rowid NOT IN (SELECT number FROM main.node)"


class FoundNode(msgspec.Struct, frozen=True):
    """A dataset or a job that has the words.

    Attributes:
        node: the dataset or the job.
        columns: those of its columns that have one of the words.
        tags: its tags, ``key:value``.
        owners: those that the facet `ownership` names.
        description: what the facet `documentation` says; empty: nothing.
    """

    node: Node
    columns: tuple[str, ...]
    tags: tuple[str, ...]
    owners: tuple[str, ...]
    description: str


class SearchResult(msgspec.Struct, frozen=True):
    """What a search finds.

    Attributes:
        nodes: the best matches, the best first.
        matches: how many datasets and jobs have all words.
        is_all: False: there are more matches than that, too many to rank, and the nodes are any of them.
    """

    nodes: tuple[FoundNode, ...]
    matches: int
    is_all: bool


def search(ask: Ask, text: str, limit: int) -> SearchResult:
    """The datasets and jobs that have all words of a text, each as the beginning of one of theirs.

    What is between letters and digits separates words; accents and upper case do not matter.

    Raises:
        InvalidQueryError: the text is too long.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidQueryError("text", f"{text[:40]}…", f"has more than {TEXT_CHARS_MAX:,} characters")
    words = [word for word in text.replace("\0", " ").split() if any(map(str.isalnum, word))]
    if not words:
        return SearchResult((), 0, is_all=True)
    # The documents of what the index does not have yet are made now: other questions need none.
    ask(_CLEAR, ())
    ask(PUT_DOCUMENTS.format("all_"), (as_json(number for (number,) in ask(_NODES, ())),))
    asked = " ".join(f'"{word.replace(chr(34), "")}"*' for word in words)
    places = (("main", ""), ("disk", _NOT_IN_MEMORY))

    def match(rank: str, count: int) -> list[tuple[int, float]]:
        return [row for place in places for row in ask(_MATCH.format(*place, rank), (asked, count))]

    rows = match("0", MATCHES_MAX + 1)
    matches, is_all = min(len(rows), MATCHES_MAX), len(rows) <= MATCHES_MAX
    if is_all:
        rows = sorted(match(_RANK, limit), key=itemgetter(1, 0))
    nodes = _described(ask, [number for number, _ in rows[:limit]], [word.casefold() for word in words])
    return SearchResult(nodes, matches, is_all)


def _described(ask: Ask, numbers: list[int], words: Collection[str]) -> tuple[FoundNode, ...]:
    nodes = nodes_with(ask, numbers)
    facets = properties_of(ask, numbers, *WORDED)
    columns: defaultdict[int, set[str]] = defaultdict(set)
    for namespace, name, column in list_columns(ask, nodes.values()):
        columns[Node(NodeKind.DATASET, namespace, name).number].add(column)
    found = []
    for number in numbers:
        schema, tags, ownership, documentation = (facets.get((number, key), "{}") for key in WORDED)
        named = columns[number] | set(columns_in(schema))
        worded = sorted(column for column in named if any(word in column.casefold() for word in words))
        told = (tags_in(tags), owners_in(ownership), description_in(documentation))
        found.append(FoundNode(nodes[number], tuple(worded), *told))
    return tuple(found)
