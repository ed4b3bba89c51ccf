"""A grammar of queries and of statements that change tables; a database says which ones are valid.

Each value is a whole number, so that any column fits anywhere. Each column of a derived table is used by the
query around it: a database names columns that are read anywhere, lineage those that something comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "orders": ("id", "customer", "total", "placed"),
    "customers": ("id", "region", "score"),
    "items": ("id", "product", "amount", "price"),
    "regions": ("region", "boss"),
    '"Order Lines"': ("id", '"Line No"', '"order"', '"Total"'),
    "events": ("id", "kind", "at", "parent"),
}
_DEPTH_MAX: Final = 3
_T = TypeVar("_T")


class Source(NamedTuple):
    """Something behind FROM: the name by which it is in reach, its columns, and whether it is derived."""

    name: str
    columns: tuple[str, ...]
    is_derived: bool = False


class Statement(NamedTuple):
    """A statement.

    Attributes:
        text: it.
        written: the table that it changes; None: it is a query.
        columns: those that it gives or changes.
        is_coarse: whether SQLite reads all columns of a join in it, also those that the text does not name.
    """

    text: str
    written: str | None
    columns: tuple[str, ...]
    is_coarse: bool


class _Reach:
    """The sources in reach of an expression, and those of the query around it."""

    def __init__(self, sources: Sequence[Source] = (), outer: _Reach | None = None) -> None:
        self.sources = list(sources)
        self.outer = outer
        self.used = set[tuple[str, str]]()

    def own(self) -> list[tuple[str, str]]:
        return [(source.name, column) for source in self.sources for column in source.columns]

    def around(self) -> list[tuple[_Reach, str, str]]:
        found, reach = list[tuple[_Reach, str, str]](), self.outer
        hidden = {source.name for source in self.sources}
        while reach is not None:
            found += [(reach, *pair) for pair in reach.own() if pair[0] not in hidden]
            hidden |= {source.name for source in reach.sources}
            reach = reach.outer
        return found


class Grammar:
    """Makes one text.

    Args:
        random: what chooses.
        is_postgres: whether it may be what only PostgreSQL takes; otherwise SQLite takes it, too.
        tables: those that there are.
    """

    def __init__(
        self, random: Random, *, is_postgres: bool, tables: Mapping[str, tuple[str, ...]] = TABLES
    ) -> None:
        self._random = random
        self._pg = is_postgres
        self._tables = dict(tables)
        self._read = set[str]()
        self._names = 0
        self._is_coarse = False

    def _is(self, chance: float) -> bool:
        return self._random.random() < chance

    def _one(self, some: Sequence[_T]) -> _T:
        return some[self._random.randrange(len(some))]

    def _name(self, stem: str) -> str:
        self._names += 1
        return f'"{stem.capitalize()} {self._names}"' if self._is(0.15) else f"{stem}{self._names}"

    # Queries

    def query(
        self, depth: int = 0, outer: _Reach | None = None, width: int | None = None
    ) -> tuple[str, tuple[str, ...]]:
        """A query, and the names of its columns; `width` is their number."""
        ctes, before = self._ctes(depth)
        text, columns = self._body(depth, outer, width)
        return self._head(ctes, before) + text, columns

    def _head(self, ctes: Mapping[str, tuple[str, set[str]]], before: Mapping[str, tuple[str, ...]]) -> str:
        """The CTEs without those that nothing reads, which end here."""
        self._tables = dict(before)
        parts = list[str]()
        for name, (text, read) in reversed(list(ctes.items())):
            if name in self._read:
                parts.insert(0, text)
                self._read.discard(name)
                self._read |= read
        return f"WITH RECURSIVE {', '.join(parts)} " if parts else ""

    def _body(self, depth: int, outer: _Reach | None, width: int | None) -> tuple[str, tuple[str, ...]]:
        if depth < _DEPTH_MAX and self._is(0.2):
            width = width or self._random.randint(1, 3)
            left, columns = self._select(depth + 1, outer, width, is_bare=True)
            for _ in range(self._random.randint(1, 2)):
                kind = self._one(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
                if self._pg and self._is(0.3):
                    right = f"({self._body(depth + 1, outer, width)[0]})"
                else:
                    right = self._select(depth + 1, outer, width, is_bare=True)[0]
                left = f"{left} {kind} {right}"
            return left + (" ORDER BY 1" if self._is(0.2) else ""), columns
        if depth and self._is(0.05):
            width = width or 2
            rows = (", ".join(self._plain() for _ in range(width)) for _ in range(2))
            return "VALUES " + ", ".join(f"({row})" for row in rows), tuple(
                f"column{at + 1}" for at in range(width)
            )
        return self._select(depth, outer, width)

    def _ctes(self, depth: int) -> tuple[dict[str, tuple[str, set[str]]], dict[str, tuple[str, ...]]]:
        """Perhaps some CTEs with what they read, in reach from now on; and the tables that were before."""
        before, ctes = dict(self._tables), dict[str, tuple[str, set[str]]]()
        for _ in range(self._random.randint(1, 2) if depth < _DEPTH_MAX and self._is(0.3) else 0):
            # One that hides a table, too; SQLite's authorizer does not tell them apart.
            name = self._one(list(TABLES)) if self._pg and self._is(0.15) else self._name("c")
            if name in ctes or name in self._read:
                continue
            around, self._read = self._read, set()
            text, columns = self._recursive(depth, name) if self._is(0.25) else self._cte(depth, name)
            ctes[name] = text, self._read
            self._read = around
            self._tables[name] = columns
        return ctes, before

    def _cte(self, depth: int, name: str) -> tuple[str, tuple[str, ...]]:
        kind = self._one(["", "MATERIALIZED ", "NOT MATERIALIZED "]) if self._is(0.2) else ""
        text, columns = self.query(depth + 1)
        listed = ""
        if self._is(0.3) or len(set(columns)) < len(columns):
            columns = tuple(self._name("n") for _ in columns)
            listed = f" ({', '.join(columns)})"
        return f"{name}{listed} AS {kind}({text})", columns

    def _recursive(self, depth: int, name: str) -> tuple[str, tuple[str, ...]]:
        columns = tuple(self._name("r") for _ in range(2))
        first = self._select(depth + 1, None, len(columns), is_bare=True)[0]
        before, self._tables = self._tables, {**self._tables, name: columns}
        table = self._one(list(TABLES))
        if table == name:
            table = "events" if name != "events" else "orders"
        self._read.add(table)
        is_derived = self._tables[table] != TABLES[table]
        reach = _Reach(
            [Source("up", columns, is_derived=True), Source("step", self._tables[table], is_derived)]
        )
        on = self._condition(depth + 1, reach, is_plain=True)
        values = [f"{self._column(reach)} + 0", self._column(reach)]
        where = self._where(reach, depth)
        self._tables = before
        union = self._one(["UNION", "UNION ALL"])
        again = f"SELECT {', '.join(values)} FROM {table} AS step JOIN {name} AS up ON {on}{where}"
        return f"{name} ({', '.join(columns)}) AS ({first} {union} {again})", columns

    def _select(
        self, depth: int, outer: _Reach | None, width: int | None = None, *, is_bare: bool = False
    ) -> tuple[str, tuple[str, ...]]:
        reach = _Reach(outer=outer)
        sources = self._from(depth, reach)
        if width is None and self._is(0.12) and (star := self._star(reach)):
            return f"SELECT {star[0]} FROM {sources}{self._where(reach, depth)}", star[1]
        width = width or self._random.randint(1, 4)
        if self._is(0.2):
            return self._grouped(depth, reach, sources, width)
        named = [(self._value(depth, reach, is_windowed=True), self._name("v")) for _ in range(width)]
        distinct = self._one(["", "", "", "", "DISTINCT "])
        if self._pg and not is_bare and self._is(0.1):
            distinct = f"DISTINCT ON ({self._column(reach)}) "
        order = ""
        if not is_bare and not distinct and self._is(0.3):
            by = self._one([named[0][1], "1", ""]) or self._value(depth, reach)
            order = f" ORDER BY {by}{self._one(['', ' DESC', ' NULLS LAST'])}"
            if self._is(0.4):
                limit = self._one(["3", f"(SELECT count(*) FROM {self._one(list(TABLES))})"])
                order += f" LIMIT {limit}" + self._one(["", " OFFSET 1"])
        where = self._where(reach, depth)
        columns = ", ".join(f"{value} AS {name}" for value, name in named)
        return f"SELECT {distinct}{columns} FROM {sources}{where}{order}", tuple(name for _, name in named)

    def _star(self, reach: _Reach) -> tuple[str, tuple[str, ...]] | None:
        one = self._one(reach.sources)
        columns = one.columns
        if len(set(columns)) < len(columns):
            return None
        reach.used |= {(one.name, column) for column in columns}
        return f"{one.name}.*", columns

    def _grouped(self, depth: int, reach: _Reach, sources: str, width: int) -> tuple[str, tuple[str, ...]]:
        keys = [self._column(reach) for _ in range(self._random.randint(1, 2))]
        values = [self._one(keys), *(self._aggregate(reach) for _ in range(width - 1))]
        names = tuple(self._name("g") for _ in values)
        by = ", ".join(keys)
        if self._pg and self._is(0.4):
            by = self._one([f"GROUPING SETS (({by}), ())", f"ROLLUP ({by})", f"CUBE ({by})"])
        having = f" HAVING {self._aggregate(reach)} > 1" if self._is(0.3) else ""
        columns = ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))
        return f"SELECT {columns} FROM {sources}{self._where(reach, depth)} GROUP BY {by}{having}", names

    def _where(self, reach: _Reach, depth: int) -> str:
        """Conditions, with all columns of derived sources that nothing has used yet."""
        parts = [self._condition(depth, reach)] if self._is(0.4) else []
        for source in reach.sources:
            if source.is_derived:
                unused = [one for one in source.columns if (source.name, one) not in reach.used]
                parts += [f"{source.name}.{column} IS NOT NULL" for column in unused]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    # What stands after FROM

    def _from(self, depth: int, reach: _Reach) -> str:
        parts = [self._joined(depth, reach) for _ in range(self._one([1, 1, 1, 2]))]
        return ", ".join(parts)

    def _joined(self, depth: int, reach: _Reach) -> str:
        """One source, or a join of several in any nesting."""
        if self._is(0.55 + 0.15 * depth):
            return self._source(depth, reach)
        first = len(reach.sources)
        left = self._joined(depth + 1, reach)
        middle = len(reach.sources)
        right = self._joined(depth + 1, reach)
        if not self._pg and len(reach.sources) > middle + 1 and not right.startswith("("):
            right = f"({right})"
            self._is_coarse = True
        here = _Reach(reach.sources[first:], reach.outer)
        # SQLite's authorizer does not name the columns by which USING and NATURAL join.
        named = ["USING", "NATURAL"] if self._pg else []
        kind = self._one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", *named])
        if kind == "FULL JOIN":
            one, two = (
                self._one(self._pairs(some)) for some in (reach.sources[first:middle], reach.sources[middle:])
            )
            text = f"{left} FULL JOIN {right} ON {'.'.join(one)} = {'.'.join(two)}"
            reach.used |= {one, two}
        elif kind == "CROSS JOIN":
            text = f"{left} CROSS JOIN {right}"
        elif kind in {"USING", "NATURAL"} and (
            common := self._common(reach.sources[first:middle], reach.sources[middle:])
        ):
            column = self._one(common)
            how = self._one(["", "LEFT ", "FULL "])
            used = common if kind == "NATURAL" else [column]
            reach.used |= {pair for pair in here.own() if pair[1] in used}
            text = (
                f"{left} NATURAL {how}JOIN {right}"
                if kind == "NATURAL"
                else f"{left} {how}JOIN {right} USING ({column})"
            )
        else:
            on = self._condition(depth + 1, here)
            reach.used |= here.used
            text = f"{left} {kind if kind.endswith(' JOIN') else 'JOIN'} {right} ON {on}"
        self._is_coarse |= (is_nested := self._is(0.5))
        return f"({text})" if is_nested else text

    def _pairs(self, sources: Iterable[Source]) -> list[tuple[str, str]]:
        return [(source.name, column) for source in sources for column in source.columns]

    def _common(self, left: Sequence[Source], right: Sequence[Source]) -> list[str]:
        """The columns by which both may be joined: each has them once."""
        counts = [[column for _, column in self._pairs(side)] for side in (left, right)]
        return [one for one in dict.fromkeys(counts[0]) if counts[0].count(one) == 1 == counts[1].count(one)]

    def _source(self, depth: int, reach: _Reach) -> str:
        kinds: list[Callable[[], str]] = [lambda: self._table(reach)] * 4
        if depth < _DEPTH_MAX:
            kinds += [lambda: self._derived(depth, reach)] * 2
        if self._pg:
            kinds += [lambda: self._function(reach)]
        return self._one(kinds)()

    def _table(self, reach: _Reach) -> str:
        table = self._one(list(self._tables))
        self._read.add(table)
        columns = self._tables[table]
        is_derived = TABLES.get(table) != columns
        taken = {source.name for source in reach.sources}
        if table not in taken and self._is(0.4):
            reach.sources.append(Source(table, columns, is_derived))
            return table
        alias, listed = self._name("t"), ""
        if self._pg and self._is(0.15):
            renamed = tuple(self._name("x") for _ in columns[: self._random.randint(1, len(columns))])
            columns, listed = (*renamed, *columns[len(renamed) :]), f" ({', '.join(renamed)})"
        reach.sources.append(Source(alias, columns, is_derived))
        return f"{table} AS {alias}{listed}"

    def _derived(self, depth: int, reach: _Reach) -> str:
        is_lateral = self._pg and self._is(0.4)
        # What stands on the left is in reach of a LATERAL one.
        outer = _Reach(reach.sources, reach.outer) if is_lateral else reach.outer
        text, columns = self.query(depth + 1, outer)
        if is_lateral and outer is not None:
            reach.used |= outer.used
        alias, listed = self._name("d"), ""
        if self._pg and (self._is(0.2) or len(set(columns)) < len(columns)):
            columns = tuple(self._name("y") for _ in columns)
            listed = f" ({', '.join(columns)})"
        reach.sources.append(Source(alias, columns, is_derived=True))
        return f"{'LATERAL ' if is_lateral else ''}({text}) AS {alias}{listed}"

    def _function(self, reach: _Reach) -> str:
        alias, column = self._name("f"), self._name("z")
        upto = self._column(reach) if reach.sources and self._is(0.5) else ""
        reach.sources.append(Source(alias, (column,), bool(upto)))
        return f"generate_series(1, {upto or 3}) AS {alias}({column})"

    # Expressions

    def _column(self, reach: _Reach) -> str:
        """A column in reach, sometimes of the query around, sometimes without its source's name."""
        around = reach.around()
        if around and self._is(0.25):
            owner, source, column = self._one(around)
            owner.used.add((source, column))
            return f"{source}.{column}"
        source, column = self._one(reach.own())
        reach.used.add((source, column))
        names = [one for _, one in reach.own()]
        return column if names.count(column) == 1 and self._is(0.3) else f"{source}.{column}"

    def _plain(self) -> str:
        return str(self._random.randint(0, 9))

    def _value(self, depth: int, reach: _Reach, *, is_windowed: bool = False) -> str:
        column = self._column
        kinds: list[Callable[[], str]] = [
            lambda: column(reach),
            lambda: column(reach),
            lambda: f"{column(reach)} + {column(reach)}",
            lambda: f"coalesce({column(reach)}, {column(reach)}, 0)",
            lambda: (
                f"CASE WHEN {self._condition(depth, reach, is_plain=True)} THEN {column(reach)} ELSE 7 END"
            ),
            lambda: f"CASE {column(reach)} WHEN 1 THEN {column(reach)} WHEN {column(reach)} THEN 2 END",
            lambda: f"abs({column(reach)})",
            lambda: f"length(CAST({column(reach)} AS text))",
            self._plain,
        ]
        if depth < _DEPTH_MAX:
            kinds += [lambda: self._scalar(depth, reach)] * 2
        if is_windowed:
            kinds += [lambda: self._window(reach)] * 2
        return self._one(kinds)()

    def _scalar(self, depth: int, reach: _Reach) -> str:
        inner = _Reach(outer=reach)
        sources = self._from(depth + 1, inner)
        value = self._aggregate(inner)
        return f"(SELECT {value} AS {self._name('s')} FROM {sources}{self._where(inner, depth + 1)})"

    def _window(self, reach: _Reach) -> str:
        by = f"PARTITION BY {self._column(reach)} " if self._is(0.6) else ""
        frame = self._one(["", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"])
        over = f"({by}ORDER BY {self._column(reach)}{frame})"
        value = self._one(["max", "lag", "count", "row_number"])
        return f"{value}({'' if value == 'row_number' else self._column(reach)}) OVER {over}"

    def _aggregate(self, reach: _Reach) -> str:
        column = self._own_column(reach)
        some = [f"max({column})", f"min({column} + 1)", f"count({column})", f"count(DISTINCT {column})"]
        some += [f"max(CASE WHEN {column} > 1 THEN {column} END)"]
        text = self._one(some)
        if self._is(0.15):
            text += f" FILTER (WHERE {self._own_column(reach)} > {self._plain()})"
        return text

    def _own_column(self, reach: _Reach) -> str:
        """A column of the query itself: an aggregate of the query around would be that one's."""
        source, column = self._one(reach.own())
        reach.used.add((source, column))
        return f"{source}.{column}"

    def _condition(self, depth: int, reach: _Reach, *, is_plain: bool = False) -> str:
        column = self._column
        kinds: list[Callable[[], str]] = [
            lambda: f"{column(reach)} = {column(reach)}",
            lambda: f"{column(reach)} > {self._plain()}",
            lambda: f"({column(reach)} = 1 OR NOT {column(reach)} IS NULL)",
            lambda: f"{column(reach)} BETWEEN {column(reach)} AND {self._plain()}",
            lambda: f"({column(reach)}, {column(reach)}) = (1, {column(reach)})",
        ]
        if depth < _DEPTH_MAX and not is_plain:
            kinds += [
                lambda: f"EXISTS (SELECT 1 FROM {self._inside(depth, reach)})",
                lambda: f"{column(reach)} IN ({self.query(depth + 1, reach, 1)[0]})",
                lambda: f"{column(reach)} NOT IN ({self.query(depth + 1, reach, 1)[0]})",
                lambda: f"({column(reach)}, 2) IN ({self.query(depth + 1, reach, 2)[0]})",
            ]
            if self._pg:
                kinds += [
                    lambda: f"{column(reach)} = ANY ({self.query(depth + 1, reach, 1)[0]})",
                    lambda: f"{column(reach)} = ANY (ARRAY({self.query(depth + 1, reach, 1)[0]}))",
                    lambda: f"{column(reach)} > ALL ({self.query(depth + 1, reach, 1)[0]})",
                ]
        return self._one(kinds)()

    def _inside(self, depth: int, reach: _Reach) -> str:
        inner = _Reach(outer=reach)
        sources = self._from(depth + 1, inner)
        return f"{sources}{self._where(inner, depth + 1)}"

    # Statements

    def statement(self) -> Statement:
        """A query, or a statement that changes a table."""
        if self._is(0.4):
            text, columns = self.query()
            return Statement(text, None, columns, self._is_coarse)
        ctes, before = self._ctes(1)
        target = self._one([one for one in TABLES if one not in ctes])
        make = self._one([self._insert, self._insert, self._update, self._update, self._delete])
        text, columns = make(target)
        return Statement(self._head(ctes, before) + text, target, columns, self._is_coarse)

    def _insert(self, target: str) -> tuple[str, tuple[str, ...]]:
        columns = TABLES[target]
        listed = ""
        if self._is(0.6):
            columns = tuple(self._random.sample(columns, self._random.randint(1, len(columns))))
            listed = f" ({', '.join(columns)})"
        if self._is(0.15):
            nothing = _Reach()
            row = [self._scalar(1, nothing) if self._is(0.4) else self._plain() for _ in columns]
            return f"INSERT INTO {target}{listed} VALUES ({', '.join(row)})", columns
        text = self._body(1, None, len(columns))[0]
        return f"{self._one(['INSERT', 'REPLACE'])} INTO {target}{listed} {text}", columns

    def _update(self, target: str) -> tuple[str, tuple[str, ...]]:
        alias = self._name("u") if self._is(0.3) else target
        reach = _Reach([Source(alias, TABLES[target])])
        sources = f" FROM {self._from(1, reach)}" if self._is(0.4) else ""
        self._is_coarse |= len(reach.sources) > len(("target", "source"))
        columns = tuple(self._random.sample(TABLES[target], self._random.randint(1, 2)))
        if self._is(0.2):
            values = [f"({', '.join(columns)}) = ({self.query(1, reach, len(columns))[0]})"]
        else:
            values = [f"{column} = {self._value(1, reach)}" for column in columns]
        named = f"{target} AS {alias}" if alias != target else target
        return f"UPDATE {named} SET {', '.join(values)}{sources}{self._where(reach, 1)}", columns

    def _delete(self, target: str) -> tuple[str, tuple[str, ...]]:
        alias = self._name("u") if self._is(0.3) else target
        named = f"{target} AS {alias}" if alias != target else target
        return f"DELETE FROM {named}{self._where(_Reach([Source(alias, TABLES[target])]), 1)}", ()
