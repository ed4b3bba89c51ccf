"""Names in questions: which are patterns, and which nothing has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.exporter import IncompleteError, Query
from waybill.exporter.query import Dimension, is_pattern
from waybill.transport import NotFoundError
from waybill.transport.likeness import most_alike

if TYPE_CHECKING:
    Ask = Callable[..., Iterator[Any]]
    """Answers a query with these columns, or with sums; see `FileAnswers.tables`."""

_NAMED_MAX: Final = 5
_NEWEST: Final = 1_000
_LIKENESS_MIN: Final = 0.5
_WHAT: Final = {
    "data_sink": ("sink", Dimension.SINK),
    "data_source": ("source", Dimension.SOURCE),
    "system_name": ("system", Dimension.SYSTEM),
}
_WITH_PATTERNS: Final = ("filename", "data_source", "data_sink")
_ONE: Final = Query(limit=1)
_WITH_LAST_PART: Final = ("data_source", "data_sink")


class UnknownNameError(NotFoundError):
    """A question names something that no record has.

    Args:
        what: the kind of name, such as ``sink``.
        name: the name.
        nearest: names that exist, the most alike first.
    """

    def __init__(self, what: str, name: str, nearest: tuple[str, ...]) -> None:
        super().__init__(what, name, nearest)
        self.what = what
        self.name = name
        self.nearest = nearest

    def __str__(self) -> str:
        there = f"there are {', '.join(self.nearest)}" if self.nearest else "there are none yet"
        return f"no record has the {self.what} {self.name!r}; {there}"


def settle_patterns(query: Query, ask: Ask, is_other_name: Callable[[str], bool]) -> Query:
    """The query with each of its names taken as it is meant; settling it again asks nothing.

    A pattern that something has exactly so is that name. A source or a sink that no record has is the last
    part of a dataset's name, if it is that: ``lake`` of ``file:/data/lake``. An annotation that no record
    has is split at another ``=``, if a record has that: ``dt=day=1`` then has the key ``dt=day``.

    Args:
        query: the conditions.
        ask: answers queries.
        is_other_name: whether a file that has no record, or an input of a run, has a name.
    """
    literal = set(query.literal)
    for field in filter(query.is_pattern, _WITH_PATTERNS):
        name = getattr(query, field)
        is_other = field == "filename" and is_other_name(name)
        if is_other or _is_there(ask, Query(**{field: name}, literal=frozenset({field}), limit=1)):
            literal.add(field)
    parts: dict[str, str] = {}
    for field in _WITH_LAST_PART:
        name = getattr(query, field)
        if name is None or "/" in name or is_pattern(name) or field in literal:
            continue
        exactly, part = (msgspec.structs.replace(_ONE, **{field: said}) for said in (name, f"*/{name}"))
        if _is_there(ask, exactly):
            literal.add(field)
        elif _is_there(ask, part):
            parts[field] = f"*/{name}"
    annotations = dict(_settle_pair(key, value, ask) for key, value in query.annotations.items())
    return msgspec.structs.replace(query, literal=frozenset(literal), annotations=annotations, **parts)


def _settle_pair(key: str, value: str, ask: Ask) -> tuple[str, str]:
    """An annotation, split at the first ``=`` at which it is one that a record has; else as it is."""
    words = value.split("=")
    pairs = [("=".join([key, *words[:at]]), "=".join(words[at:])) for at in range(len(words))]
    if len(pairs) == 1:
        return key, value
    there = (pair for pair in pairs if _is_there(ask, Query(annotations=dict([pair]), limit=1)))
    return next(there, pairs[0])


def check_sink(query: Query, ask: Ask) -> None:
    """Raise an `UnknownNameError` if no record has the `missing_sink` of a query by any of its names."""
    sink, known = query.missing_sink or "", set[str]()
    names = {sink, *query.other_names.get("missing_sink", ())}
    try:
        known.update(_known(ask, Dimension.SINK))
    except IncompleteError:
        if names.isdisjoint(known):
            raise
    if names.isdisjoint(known):
        raise UnknownNameError("sink", sink, _nearest(sink, known))


def unknown_names(query: Query, ask: Ask) -> Iterator[str]:
    """A sentence about each name in a query that no record has."""
    for field, (what, dimension) in _WHAT.items():
        name = getattr(query, field)
        if name is not None and not (is_pattern(name) and field in _WITH_PATTERNS):
            known = set(_known(ask, dimension))
            if known.isdisjoint({name, *query.other_names.get(field, ())}):
                yield str(UnknownNameError(what, name, _nearest(name, known)))
    name = query.filename
    if name is not None and not is_pattern(name) and not query.filename_dids:
        newest = {
            text
            for table in ask(Query(limit=_NEWEST), ("filename",))
            for text in table["filename"].to_pylist()
        }
        if name not in newest and not _is_there(ask, Query(filename=name, limit=1)):
            alike = most_alike(name, newest, _NAMED_MAX, likeness_min=_LIKENESS_MIN)
            told = f"; among the newest are {', '.join(alike)}" if alike else ""
            yield f"no record has the filename {name!r}{told}"


def unknown_keys(keys: Collection[str], ask: Ask) -> Iterator[str]:
    """A sentence about each key of an annotation that none of the newest records has."""
    if not keys:
        return
    newest = {
        key
        for table in ask(Query(limit=_NEWEST), ("annotations",))
        for annotations in table["annotations"].to_pylist()
        for key, _ in annotations or ()
    }
    for key in sorted(set(keys) - newest):
        there = f"they have {', '.join(_nearest(key, newest))}" if newest else "they have none"
        yield f"none of the newest {_NEWEST:,} records has the annotation {key!r}; {there}"


def _is_there(ask: Ask, query: Query) -> bool:
    """Whether a record answers a query."""
    return any(table.num_rows for table in ask(query, ("did",)))


def _known(ask: Ask, dimension: Dimension) -> Iterator[str]:
    """The names that records have; raises `IncompleteError` after those of the files that could be read."""
    for table in ask(Query(), summed_by=[dimension]):
        yield from table[dimension].unique().drop_null().to_pylist()


def _nearest(name: str, known: Collection[str]) -> tuple[str, ...]:
    alike = most_alike(name, known, _NAMED_MAX, likeness_min=_LIKENESS_MIN)
    return tuple(dict.fromkeys([*alike, *sorted(known)]))[:_NAMED_MAX]
