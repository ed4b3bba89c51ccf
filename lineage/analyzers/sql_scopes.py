"""The names that are in reach in an SQL text, and what the columns behind them come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

IDENTITY: Final = "IDENTITY"
TRANSFORMATION: Final = "TRANSFORMATION"
AGGREGATION: Final = "AGGREGATION"
DIRECT: Final = (IDENTITY, TRANSFORMATION, AGGREGATION)
"""The subtypes by which a value comes from another, the plainest first; all others only decide about it."""

UNKNOWN: Final = "UNKNOWN"
"""Instead of a subtype: nobody can say which column it is."""
_OF_ROWS: Final = frozenset({"FILTER", "JOIN", "GROUP_BY", "SORT", UNKNOWN})
"""The subtypes of what decides about rows: they stay what they are in whatever is made of these rows."""
Name = tuple[str, ...]
"""A table's name in its parts."""


class Origin(NamedTuple):
    """A column of a table, and how another comes from it."""

    table: Name
    column: str
    subtype: str = IDENTITY
    masking: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether values come from it."""
        return self.subtype in DIRECT

    def then(self, subtype: str, *, masking: bool = False) -> Origin:
        """The same after a further step of a value: what says more counts."""
        if not self.is_direct:
            return self
        more = max(self.subtype, subtype, key=DIRECT.index)
        return self._replace(subtype=more, masking=self.masking or masking)

    def deciding(self, subtype: str) -> Origin:
        """The same where the value only decides about others."""
        return self if self.subtype in _OF_ROWS else self._replace(subtype=subtype, masking=False)


Origins = frozenset[Origin]
Columns = tuple[tuple[str, Origins], ...]
Other = Callable[[str], Origins]
NONE: Final[Origins] = frozenset()
UNKNOWN_ORIGINS: Final[Origins] = frozenset({Origin((), "", UNKNOWN)})


class Relation(NamedTuple):
    """Something with rows and columns.

    Attributes:
        columns: those that are known, in their order, each with its origins; a name is empty if it has none.
        rows: what decides which rows there are.
        other: the origins of a column that is not among them; None: there is no other.
        tables: the tables that who reads it reads: of a table itself, of a temporary one those behind it.
    """

    columns: Columns = ()
    rows: Origins = NONE
    other: Other | None = None
    tables: frozenset[Name] = frozenset()

    def find(self, name: str) -> Origins | None:
        """The origins of a column; None: it is not among those that are known."""
        found = [origins for known, origins in self.columns if known == name]
        alike = (origins for known, origins in self.columns if known.casefold() == name.casefold())
        return found[0] if found else next(alike, None)

    def of(self, name: str) -> Origins:
        """The origins of a column; unknown ones if there is no such column."""
        found = self.find(name)
        return found if found is not None else self.other(name) if self.other else UNKNOWN_ORIGINS

    def renamed(self, names: Iterable[str]) -> Relation:
        """With other names for its first columns; which these are is not known behind a star."""
        names = list(names)
        if self.other and names:
            return Relation((), self.rows, nothing)
        kept = [*names, *(name for name, _ in self.columns[len(names) :])]
        return self._replace(columns=tuple(zip(kept, (origins for _, origins in self.columns), strict=False)))


class Scope:
    """The names in reach of an expression, and what decides the rows of its query.

    Attributes:
        ctes: the CTEs.
        sources: what stands after FROM.
        named: the same by the names of tables that have none of their own.
        merged: the columns that joins make one, those of the last join first.
        hidden: the columns that a star leaves out, as a join makes them one with others; by their source.
        aliases: the columns of the query itself, where they are in reach.
        outer: what a correlated query may use, too.
        rows: what decides which rows there are.
    """

    def __init__(self, ctes: Mapping[str, Relation], outer: Scope | None = None) -> None:
        self.ctes = dict(ctes)
        self.sources: dict[str, Relation] = {}
        self.named: dict[Name, Relation] = {}
        self.merged: dict[str, Origins] = {}
        self.hidden: dict[str, set[str]] = {}
        self.aliases: dict[str, Origins] = {}
        self.outer = outer
        self.rows: set[Origin] = set()

    def find(self, table: str) -> Relation | None:
        """What has a name here or, in a correlated query, outside."""
        found = self.sources.get(table)
        return found if found is not None or self.outer is None else self.outer.find(table)

    def column(self, name: str, *, is_known: bool = False) -> Origins:
        """The origins of a column whose table is not said; is_known: only of one that a table surely has."""
        if name in self.merged:
            return self.merged[name]
        for source in self.sources.values():
            if (origins := source.find(name)) is not None:
                return origins
        if name in self.aliases:
            return self.aliases[name]
        others = [source.other for source in self.sources.values() if source.other is not None]
        if len(others) == 1 and not is_known:
            return others[0](name)
        if self.outer is not None and (is_known or not others):
            return self.outer.column(name, is_known=is_known)
        return UNKNOWN_ORIGINS

    def merge(self, column: str, left: list[str], right: list[str], side: str) -> Origins:
        """Make one of the columns of this name by which two sides are joined; what they come from."""
        used: Origins = NONE
        values: list[Origins] = []
        for names in (left, right):
            named = {name: self.sources[name] for name in names}
            having = [name for name, one in named.items() if one.find(column) is not None]
            having = having or [name for name, one in named.items() if one.other is not None]
            shown = [name for name in having if column not in self.hidden.get(name, ())]
            value = named[shown[0]].of(column) if len(shown) == 1 else UNKNOWN_ORIGINS
            used |= value
            is_merged = len(having) > len(shown) and column in self.merged
            values.append(self.merged[column] if is_merged else value)
        for name in shown:
            self.hidden.setdefault(name, set()).add(column)
        both = frozenset(origin.then(TRANSFORMATION) for origin in values[0] | values[1])
        self.merged.pop(column, None)
        self.merged = {column: {"FULL": both, "RIGHT": values[1]}.get(side, values[0]), **self.merged}
        self.rows |= {origin.deciding("JOIN") for origin in used}
        return used

    def all(self, *, are_merged_first: bool) -> list[Relation]:
        """What a star without a table stands for: a column that joins make one is there once."""
        places = {name: at for at, name in enumerate(self.merged if are_merged_first else ())}
        told: list[Relation] = []
        columns: list[tuple[str, Origins]] = []
        for name, source in self.sources.items():
            hidden = self.hidden.get(name, set())
            columns += [(one, self.merged.get(one, of)) for one, of in source.columns if one not in hidden]
            told.append(source._replace(columns=()))
        columns.sort(key=lambda one: places.get(one[0], len(places)))
        return [Relation(tuple(columns)), *told]


def nothing(_: str) -> Origins:
    """The origins of a column of which nobody can say which one it is."""
    return UNKNOWN_ORIGINS


ROWS: Final = Relation(other=nothing)
"""Rows of which nothing is known."""


def whole_row(relation: Relation | None) -> Origins:
    """The origins of a whole row."""
    if relation is None or relation.other is not None:
        return UNKNOWN_ORIGINS
    return frozenset(o.then(TRANSFORMATION) for _, origins in relation.columns for o in origins)


def table_of(name: Name, columns: Iterable[str] | None) -> Relation:
    """A table of which these are the columns; None: they are not known."""
    if columns is None:
        return Relation(other=lambda column: frozenset({Origin(name, column)}), tables=frozenset({name}))
    told = tuple((column, frozenset({Origin(name, column)})) for column in columns)
    return Relation(told, tables=frozenset({name}))


def by_place(left: Relation, right: Relation) -> Relation:
    """Rows of one or the other, whose columns are the same by place."""
    rows = left.rows | right.rows
    if left.other or right.other:  # places are not known behind a star
        return Relation((), rows, lambda name: left.of(name) | right.of(name))
    pairs = zip(left.columns, right.columns, strict=False)
    return Relation(tuple((name, origins | more) for (name, origins), (_, more) in pairs), rows)


def united(left: Relation, right: Relation) -> Relation:
    """Rows of one or the other, whose columns are the same by name."""
    told: dict[str, Origins] = {}
    for name, origins in (*left.columns, *right.columns):
        if name:
            told[name] = told.get(name, NONE) | origins
    return Relation(tuple(told.items()), left.rows | right.rows, left.other or right.other)
