"""What an SQL text reads and writes, down to columns.

sqlglot parses; this module follows the parsed text as a reader does: names are those that are in reach, a CTE
hides a table, a temporary table is what it was made of, and a column of a table whose columns nobody knows is
taken from it only if no other can have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

IDENTITY: Final = "IDENTITY"
TRANSFORMATION: Final = "TRANSFORMATION"
AGGREGATION: Final = "AGGREGATION"
DIRECT: Final = (IDENTITY, TRANSFORMATION, AGGREGATION)
"""The subtypes by which a value comes from another, the plainest first; all others only decide about it."""

_NESTED_ALIASES: Final = ("snowflake", "redshift", "databricks", "spark", "spark2", "duckdb", "clickhouse")
"""The dialects in which a column of a query may be used in that query's other columns."""
_MASKING: Final = (
    exp.Count, exp.CountIf, exp.ApproxDistinct, exp.MD5, exp.MD5Digest, exp.SHA, exp.SHA1Digest, exp.SHA2,
    exp.SHA2Digest, exp.StandardHash, exp.FarmFingerprint,
)  # fmt: skip
_MASKING_NAMES: Final = frozenset({"hash", "xxhash64", "mask", "murmur_hash", "hashbytes"})
_ROUNDS_MAX: Final = 100

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
        """The same after a further step: what says more counts."""
        if not self.is_direct:
            return self
        if subtype not in DIRECT:
            return self._replace(subtype=subtype, masking=False)
        more = max(self.subtype, subtype, key=DIRECT.index)
        return self._replace(subtype=more, masking=self.masking or masking)


Origins = frozenset[Origin]
_NONE: Final[Origins] = frozenset()


class Relation(NamedTuple):
    """Something with rows and columns.

    Attributes:
        columns: those that are known, in their order, each with its origins; a name is empty if it has none.
        rows: what decides which rows there are.
        other: the origins of a column that is not among them; None: there is no other.
    """

    columns: tuple[tuple[str, Origins], ...] = ()
    rows: Origins = _NONE
    other: Callable[[str], Origins] | None = None

    def find(self, name: str) -> Origins | None:
        """The origins of a column; None: it is not among those that are known."""
        return next(
            (
                origins
                for same in (str, str.casefold)
                for known, origins in self.columns
                if same(known) == same(name)
            ),
            None,
        )

    def renamed(self, names: Iterable[str]) -> Relation:
        """With other names for its first columns; which these are is not known behind a star."""
        names = list(names)
        if self.other and names:
            return Relation((), self.rows, lambda _: _NONE)
        kept = [*names, *(name for name, _ in self.columns[len(names) :])]
        return self._replace(columns=tuple(zip(kept, (origins for _, origins in self.columns), strict=False)))


class Reading(NamedTuple):
    """What a text reads and writes.

    Attributes:
        inputs: the tables that it reads.
        outputs: those that it writes, with the columns that it writes.
        sources: those that it reads for each table that it writes.
        query: the last query that writes nothing.
        notes: what could not be read, and what was taken for granted; one sentence each.
    """

    inputs: set[Name]
    outputs: dict[Name, Relation]
    sources: dict[Name, set[Name]]
    query: Relation | None
    notes: list[str]


def read_sql(
    text: str, dialect: str | None, columns_of: Callable[[Name], Mapping[str, str] | None]
) -> Reading:
    """Read an SQL text of one or several statements.

    Args:
        text: the statements.
        dialect: sqlglot's name of the dialect; None: none in particular.
        columns_of: the columns of a table with their types; None: they are not known.

    Raises:
        sqlglot.errors.SqlglotError: a statement cannot be parsed.
        RecursionError: the text is nested too deeply.
        ValueError: there is no such dialect, or a part of a statement is absent.
    """
    reader = _Reader(dialect, columns_of)
    for number, statement in enumerate(sqlglot.parse(text, dialect=dialect), 1):
        if statement is None:
            continue
        try:
            reader.read(normalize_identifiers(statement, dialect=dialect), number)
        except (AttributeError, TypeError) as error:  # the parser lets some parts be absent
            raise ValueError(f"statement {number} has a form that cannot be read") from error
    return Reading(reader.inputs, reader.outputs, reader.sources, reader.query, reader.notes)


class _Scope:
    """The names in reach of an expression."""

    def __init__(self, tables: Mapping[str, Relation], outer: _Scope | None = None) -> None:
        self.tables = dict(tables)
        self.sources: dict[str, Relation] = {}
        self.names: dict[str, Name] = {}
        self.shown: list[str] = []
        self.merged: set[str] = set()
        self.aliases: dict[str, Origins] = {}
        self.outer = outer
        self.prefers_aliases = False
        self.may_be_alias = False

    def add(self, name: str, relation: Relation, *, shown: bool = True) -> None:
        self.sources[name or f"\0{len(self.sources)}"] = relation
        if shown:
            self.shown.append(name or f"\0{len(self.sources) - 1}")

    def find(self, table: str) -> Relation | None:
        found = self.sources.get(table)
        return found if found is not None or self.outer is None else self.outer.find(table)

    def column(self, name: str) -> Origins:
        """The origins of a column whose table is not said."""
        if self.prefers_aliases and name in self.aliases:
            return self.aliases[name]
        for source in self.sources.values():
            if (origins := source.find(name)) is not None:
                return origins
        if self.may_be_alias and name in self.aliases:
            return self.aliases[name]
        others = [source.other for source in self.sources.values() if source.other is not None]
        if len(others) == 1 or (others and name in self.merged):
            return others[0](name)
        return self.outer.column(name) if not others and self.outer is not None else _NONE


class _Reader:
    """Follows the statements of one text."""

    def __init__(self, dialect: str | None, columns_of: Callable[[Name], Mapping[str, str] | None]) -> None:
        self._dialect = dialect or ""
        self._columns_of = columns_of
        self._made: dict[Name, tuple[str, ...]] = {}
        self._temporary: dict[str, Relation] = {}
        self._behind: dict[str, set[Name]] = {}
        self.inputs: set[Name] = set()
        self.outputs: dict[Name, Relation] = {}
        self.sources: dict[Name, set[Name]] = {}
        self.query: Relation | None = None
        self.notes: list[str] = []

    def read(self, statement: exp.Expr, number: int) -> None:
        """Read one statement."""
        before, self.inputs = self.inputs, set()
        self._follow(statement, number)
        self.inputs |= before

    def _follow(self, statement: exp.Expr, number: int) -> None:
        scope = self._with(statement, _Scope(self._temporary))
        match statement:
            case exp.Create():
                self._create(statement, scope)
            case exp.Insert():
                query = self._query(statement.expression, scope) if statement.expression else Relation()
                self._insert(statement, query)
            case exp.Update():
                self._update(statement, scope)
            case exp.Delete():
                self._delete(statement, scope)
            case exp.Merge():
                self._merge(statement, scope)
            case exp.Query():
                relation = self._query(statement, scope)
                into = next((select.args["into"] for select in statement.find_all(exp.Select)
                             if select.args.get("into")), None)  # fmt: skip
                if into is not None:
                    self._keep(into.this, relation, is_temporary=bool(into.args.get("temporary")))
                else:
                    self.query = relation
            case exp.Command() | exp.Copy() | exp.MultitableInserts():
                words = " ".join(statement.sql(dialect=self._dialect).split()[:2])
                self.notes.append(f"statement {number} ({words} …) is not read")
            case _:
                pass  # drops, grants, settings: no data moves

    # Statements that write

    def _create(self, create: exp.Create, scope: _Scope) -> None:
        if create.kind not in {"TABLE", "VIEW"}:
            return
        target = create.this
        table = target.this if isinstance(target, exp.Schema) else target
        named = [one.name for one in target.expressions] if isinstance(target, exp.Schema) else []
        is_temporary = bool(create.find(exp.TemporaryProperty)) or table.name.startswith("#")
        if isinstance(create.expression, exp.Query):
            relation = self._query(create.expression, scope)
            self._keep(table, relation.renamed(named), is_temporary=is_temporary)
        elif isinstance(clone := create.args.get("clone"), exp.Clone):
            self._keep(table, self._source(clone.this, scope), is_temporary=is_temporary)
        elif named and not is_temporary:
            self._made[_name(table)] = tuple(named)
        elif is_temporary:
            self._temporary[table.name] = Relation(tuple((name, _NONE) for name in named))

    def _insert(self, insert: exp.Insert, query: Relation) -> None:
        target = insert.this
        table = target.this if isinstance(target, exp.Schema) else target
        if not isinstance(table, exp.Table):
            return  # a folder or a function
        if isinstance(target, exp.Schema):
            query = query.renamed(one.name for one in target.expressions)
        elif not insert.args.get("by_name"):
            partition = table.args.get("partition")
            fixed = {one.this.name for one in partition.find_all(exp.EQ)} if partition else set()
            known = [name for name in self._known(_name(table)) or () if name not in fixed]
            if known:
                query = query.renamed(known)
            elif query.columns:
                self.notes.append(
                    f"the columns of {'.'.join(_name(table))} are taken to be named as those of the query"
                )
        self._keep(table, query, is_insert=True)

    def _update(self, update: exp.Update, scope: _Scope) -> None:
        rows = set[Origin]()
        self._sources(update, scope, rows)
        name = self._target(update.this, scope)
        columns = self._set(update, scope)
        rows |= self._deciding(update.args.get("where"), scope, "FILTER")
        self._write(name, Relation(tuple(columns), frozenset(rows)))

    def _delete(self, delete: exp.Delete, scope: _Scope) -> None:
        rows = set[Origin]()
        for source in delete.args.get("using") or ():
            self._join(source, scope, rows)
        name = self._target(delete.this, scope)
        rows |= self._deciding(delete.args.get("where"), scope, "FILTER")
        self._write(name, Relation((), frozenset(rows)))

    def _merge(self, merge: exp.Merge, scope: _Scope) -> None:
        rows = set[Origin]()
        self._join(merge.args["using"], scope, rows)
        source = next(iter(scope.sources.values()))
        name = self._target(merge.this, scope)
        rows |= self._deciding(merge.args.get("on"), scope, "JOIN")
        columns: list[tuple[str, Origins]] = []
        other = None
        for when in merge.args["whens"].expressions:
            rows |= self._deciding(when.args.get("condition"), scope, "FILTER")
            then = when.args.get("then")
            if not isinstance(then, exp.Update | exp.Insert):
                continue  # delete, or nothing
            if isinstance(then.this, exp.Star) or any(isinstance(one, exp.Star) for one in then.expressions):
                columns += source.columns
                other = source.other
            elif isinstance(then, exp.Update):
                columns += self._set(then, scope)
            elif isinstance(then.expression, exp.Tuple):
                values = [self._value(one, scope) for one in then.expression.expressions]
                names = then.this.expressions if then.this else self._known(name) or ()
                columns += zip((str(getattr(one, "name", one)) for one in names), values, strict=False)
        self._write(name, Relation(tuple(columns), frozenset(rows), other))

    def _target(self, table: exp.Table, scope: _Scope) -> Name:
        """The table that a statement changes: it is in reach, yet read only if values come from it."""
        if (name := scope.names.get(table.name)) is not None and len(table.parts) == 1:
            self.inputs.discard(name)  # it stands after FROM only to be joined
            return name
        scope.add(table.alias_or_name, self._table(_name(table)))
        return _name(table)

    def _set(self, update: exp.Update, scope: _Scope) -> list[tuple[str, Origins]]:
        return [
            (one.this.name, self._value(one.expression, scope))
            for one in update.expressions
            if isinstance(one, exp.EQ)
        ]

    def _keep(
        self, table: exp.Table, relation: Relation, *, is_temporary: bool = False, is_insert: bool = False
    ) -> None:
        name = _name(table)
        if is_temporary or (is_insert and len(name) == 1 and name[0] in self._temporary):
            before = self._temporary.get(name[-1]) if is_insert else None
            self._behind[name[-1]] = self.inputs | (self._behind.get(name[-1], set()) if is_insert else set())
            self._temporary[name[-1]] = relation if before is None else _either(before, relation)
            return
        if relation.other is None and not is_insert:
            self._made[name] = tuple(column for column, _ in relation.columns if column)
        self._write(name, relation)

    def _write(self, name: Name, relation: Relation) -> None:
        self.inputs |= {o.table for _, origins in relation.columns for o in origins if o.is_direct}
        self.sources.setdefault(name, set()).update(self.inputs)
        known = self.outputs.get(name)
        self.outputs[name] = _united(relation if known is None else _either(known, relation, by_name=True))

    # Queries

    def _with(self, expression: exp.Expr, scope: _Scope) -> _Scope:
        """The scope with the CTEs of an expression."""
        clause = expression.args.get("with_")
        if clause is None:
            return scope
        inner = _Scope(scope.tables, scope.outer)
        inner.sources = scope.sources
        for cte in clause.expressions:
            query, names = cte.this, [one.name for one in cte.args["alias"].columns]
            if clause.args.get("recursive") and isinstance(query, exp.SetOperation):
                relation = self._query(query.left, inner).renamed(names)
                for _ in range(_ROUNDS_MAX):
                    inner.tables[cte.alias] = relation
                    more = self._query(query, inner).renamed(names)
                    if more[:2] == relation[:2]:
                        break
                    relation = more
            elif isinstance(query, exp.DML) and (table := query.find(exp.Table)) is not None:
                self._follow(query, 0)  # what it returns is of the table that it changes
                relation = self._source(table, inner)
            else:
                relation = self._query(query, inner).renamed(names)
            inner.tables[cte.alias] = relation
        return inner

    def _query(self, query: exp.Expr, scope: _Scope) -> Relation:
        """What a query gives; the scope has the CTEs in reach, and what a correlated one may use."""
        scope = self._with(query, scope)
        match query:
            case exp.Subquery() | exp.Paren():
                return self._query(query.this, scope)
            case exp.SetOperation():
                left, right = self._query(query.left, scope), self._query(query.right, scope)
                return _either(left, right, by_name=bool(query.args.get("by_name")))
            case exp.Values():
                rows = set[Origin]()
                tuples = [
                    [self._flow(one, scope, rows) for one in (row.expressions or [row])]
                    for row in query.expressions
                ]
                merged = [frozenset().union(*column) for column in zip(*tuples, strict=False)]
                return Relation(tuple(("", origins) for origins in merged), frozenset(rows))
            case exp.Select():
                return self._select(query, scope)
            case exp.Table():
                return self._source(query, scope)
            case _:
                return Relation()

    def _select(self, select: exp.Select, outer: _Scope) -> Relation:
        scope, rows = _Scope(outer.tables, outer if outer.sources else outer.outer), set[Origin]()
        self._sources(select, scope, rows)
        scope.may_be_alias = self._dialect in _NESTED_ALIASES
        columns: list[tuple[str, Origins]] = []
        others: list[Callable[[str], Origins]] = []
        for one in select.expressions:
            star = one.this if isinstance(one, exp.Column) else one
            if isinstance(star, exp.Star):
                only = one.table if isinstance(one, exp.Column) else None
                columns += self._star(star, scope, only, others)
            else:
                origins = self._value(one, scope)
                columns.append((one.alias_or_name, origins))
                if one.alias:
                    scope.aliases[one.alias] = origins
        rows |= self._deciding(select.args.get("where"), scope, "FILTER")
        scope.may_be_alias = True
        if (group := select.args.get("group")) is not None:
            rows |= self._deciding_each(group, scope, "GROUP_BY", columns)
        rows |= self._deciding(select.args.get("having"), scope, "FILTER")
        rows |= self._deciding(select.args.get("qualify"), scope, "FILTER")
        if (order := select.args.get("order")) is not None:
            scope.prefers_aliases = True
            rows |= self._deciding_each(order, scope, "SORT", columns)
        other = others[0] if len(others) == 1 else (lambda _: _NONE) if others else None
        return Relation(tuple(columns), frozenset(rows), other)

    def _star(
        self, star: exp.Star, scope: _Scope, only: str | None, others: list[Callable[[str], Origins]]
    ) -> Iterator[tuple[str, Origins]]:
        dropped = {one.name for one in star.args.get("except_") or ()}
        replaced = {one.alias: one for one in star.args.get("replace") or ()}
        renamed = {one.this.name: one.alias for one in star.args.get("rename") or ()}
        merged = set[str]()
        for name in scope.shown if only is None else [only]:
            source = scope.find(name) or Relation()
            for column, origins in source.columns:
                if column in dropped or (only is None and column in merged):
                    continue
                merged |= {column} & scope.merged
                new = replaced.get(column)
                yield renamed.get(column, column), origins if new is None else self._value(new, scope)
            if source.other is not None:
                others.append(source.other)

    def _sources(self, expression: exp.Expr, scope: _Scope, rows: set[Origin]) -> None:
        """Bring what stands after FROM and JOIN into reach."""
        clause = expression.args.get("from_")
        first = [clause.this] if clause is not None else []
        for one in (*first, *(expression.args.get("joins") or ()), *(expression.args.get("laterals") or ())):
            self._join(one, scope, rows)

    def _join(self, one: exp.Expr, scope: _Scope, rows: set[Origin]) -> None:
        source = one.this if isinstance(one, exp.Join) else one
        inner = list(source.args.get("joins") or ())
        while isinstance(source, exp.Paren) or (isinstance(source, exp.Subquery) and not source.alias
                                                and isinstance(source.this, exp.Table)):  # fmt: skip
            source = source.this
            inner += source.args.get("joins") or ()
        relation = self._source(source, scope)
        rows |= relation.rows
        is_shown = not (isinstance(one, exp.Join) and one.kind in {"SEMI", "ANTI"})
        scope.add(source.alias_or_name, relation, shown=is_shown)
        if isinstance(source, exp.Table):
            scope.names[source.alias_or_name] = _name(source)
        if isinstance(one, exp.Join):
            for name in (identifier.name for identifier in one.args.get("using") or ()):
                for joined in scope.sources.values():
                    found = joined.find(name)
                    origins = found if found is not None else joined.other(name) if joined.other else _NONE
                    rows |= {origin.then("JOIN") for origin in origins}
                scope.merged.add(name)
            rows |= self._deciding(one.args.get("on"), scope, "JOIN")
        for join in inner:
            self._join(join, scope, rows)

    def _source(self, source: exp.Expr, scope: _Scope) -> Relation:
        """One thing that stands after FROM."""
        alias = source.args.get("alias")
        names = [one.name for one in alias.columns] if isinstance(alias, exp.TableAlias) else []
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            name = _name(source)
            known = scope.tables.get(name[0]) if len(name) == 1 else None
            relation = self._table(name) if known is None else known
            if known is None:
                self.inputs.add(name)
            elif known is self._temporary.get(name[0]):
                self.inputs |= self._behind.get(name[0], set())
        elif isinstance(source, exp.Subquery | exp.Values):
            relation = self._query(source, _Scope(scope.tables, scope.outer))
        elif isinstance(source, exp.Lateral) and isinstance(source.this, exp.Subquery):
            relation = self._query(source.this, _Scope(scope.tables, scope))
        else:  # a function that gives rows
            rows = set[Origin]()
            given = frozenset(
                origin.then(TRANSFORMATION)
                for one in (source.expressions or [source.this])
                for origin in self._flow(one, scope, rows)
            )
            known_names = tuple((name, given) for name in names)
            return Relation(known_names, frozenset(rows), None if names else lambda _: given)
        for pivot in source.args.get("pivots") or ():
            relation = self._pivot(pivot, relation, scope)
            pivot_alias = pivot.args.get("alias")
            if isinstance(pivot_alias, exp.TableAlias):
                names = [one.name for one in pivot_alias.columns]
                source.set("alias", pivot_alias)
        return relation.renamed(names)

    def _table(self, name: Name) -> Relation:
        known = self._known(name)
        if known is None:
            return Relation(other=lambda column: frozenset({Origin(name, column)}))
        return Relation(tuple((column, frozenset({Origin(name, column)})) for column in known))

    def _known(self, name: Name) -> Iterable[str] | None:
        return self._made.get(name) or self._columns_of(name)

    def _pivot(self, pivot: exp.Pivot, relation: Relation, scope: _Scope) -> Relation:
        inner, rows = _Scope(scope.tables), set[Origin]()
        inner.add("", relation)
        (field, *_) = pivot.args.get("fields") or (None,)
        if not isinstance(field, exp.In):
            return Relation(rows=relation.rows, other=lambda _: _NONE)
        if pivot.args.get("unpivot"):
            taken = {one.name for one in field.find_all(exp.Column) if one is not field.this}
            values = self._flow(exp.Tuple(expressions=field.expressions), inner, rows)
            new = [(field.this.name, _NONE), *((one.name, values) for one in pivot.expressions)]
        else:
            taken = {
                one.name for part in (*pivot.expressions, field.this) for one in part.find_all(exp.Column)
            }
            values = self._flow(exp.Tuple(expressions=pivot.expressions), inner, rows)
            decided = self._deciding(field.this, inner, "CONDITIONAL")
            new = [(one.name, values | decided) for one in pivot.args.get("columns") or ()]
        kept = [(name, origins) for name, origins in relation.columns if name not in taken]
        if not pivot.args.get("unpivot"):
            rows |= {origin.then("GROUP_BY") for _, origins in kept for origin in origins}
        return Relation((*kept, *new), relation.rows | rows, relation.other)

    # Expressions

    def _deciding(self, expression: exp.Expr | None, scope: _Scope, subtype: str) -> Origins:
        """What an expression that decides about rows depends on."""
        if expression is None:
            return _NONE
        rows = set[Origin]()
        used = self._flow(expression, scope, rows)
        return frozenset({origin._replace(subtype=subtype, masking=False) for origin in used} | rows)

    def _deciding_each(
        self, clause: exp.Expr, scope: _Scope, subtype: str, columns: list[tuple[str, Origins]]
    ) -> Origins:
        """The same of a list in which a number stands for a column."""
        told = set[Origin]()
        lists = [
            clause.expressions,
            *(clause.args.get(key) or () for key in ("rollup", "cube", "grouping_sets")),
        ]
        for one in (one for some in lists if isinstance(some, list | tuple) for one in some):
            plain = one.this if isinstance(one, exp.Ordered) else one
            if isinstance(plain, exp.Literal) and plain.is_int:
                at = int(plain.name) - 1
                used = columns[at][1] if 0 <= at < len(columns) else _NONE
                told |= {origin._replace(subtype=subtype, masking=False) for origin in used}
            else:
                told |= self._deciding(plain, scope, subtype)
        return frozenset(told)

    def _value(self, expression: exp.Expr, scope: _Scope) -> Origins:
        """The origins of a value, with what decides the rows of its subqueries."""
        rows = set[Origin]()
        return self._flow(expression, scope, rows) | rows

    def _flow(self, expression: exp.Expr, scope: _Scope, rows: set[Origin]) -> Origins:
        """The origins of a value; what decides the rows of its subqueries is added to `rows`."""
        match expression:
            case exp.Column():
                return self._column(expression, scope)
            case exp.Alias() | exp.Paren():
                return self._flow(expression.this, scope, rows)
            case exp.Query():
                found = self._query(expression, _Scope(scope.tables, scope))
                rows |= found.rows
                return frozenset().union(*(origins for _, origins in found.columns))
            case exp.Case() | exp.If():
                return self._conditional(expression, scope, rows)
            case exp.Window():
                values = self._flow(expression.this, scope, rows)
                by = [*(expression.args.get("partition_by") or ()), expression.args.get("order")]
                deciding = [self._deciding(one, scope, "WINDOW") for one in by]
                return values.union(*deciding)
        subtype = AGGREGATION if isinstance(expression, exp.AggFunc) else TRANSFORMATION
        if isinstance(expression, exp.Distinct | exp.Tuple):
            subtype = IDENTITY
        masking = isinstance(expression, _MASKING) or (
            isinstance(expression, exp.Anonymous) and expression.name.lower() in _MASKING_NAMES
        )
        return frozenset(
            origin.then(subtype, masking=masking)
            for child in expression.iter_expressions()
            for origin in self._flow(child, scope, rows)
        )

    def _conditional(self, expression: exp.Case | exp.If, scope: _Scope, rows: set[Origin]) -> Origins:
        branches = expression.args.get("ifs") or [expression]
        conditions = [one.this for one in branches]
        values = [one.args.get("true") for one in branches]
        values += [expression.args.get("default"), expression.args.get("false")]
        if isinstance(expression, exp.Case) and expression.this is not None:
            conditions.append(expression.this)
        told = {
            origin.then(TRANSFORMATION)
            for value in values
            if value is not None
            for origin in self._flow(value, scope, rows)
        }
        return frozenset(told).union(*(self._deciding(one, scope, "CONDITIONAL") for one in conditions))

    def _column(self, column: exp.Column, scope: _Scope) -> Origins:
        if isinstance(column.this, exp.Star):  # as in count(t.*)
            return _NONE
        if not column.table:
            return scope.column(column.name)
        source = scope.find(column.table)
        if source is None:  # a field of a structure
            first = column.args.get("db")
            owner = scope.find(first.name) if first is not None else None
            whole = _of(owner, column.table) if owner is not None else scope.column(column.table)
            return frozenset(origin.then(TRANSFORMATION) for origin in whole)
        return _of(source, column.name)


def _of(relation: Relation, column: str) -> Origins:
    found = relation.find(column)
    return found if found is not None else relation.other(column) if relation.other else _NONE


def _name(table: exp.Table) -> Name:
    return tuple(part.name for part in table.parts)


def _either(left: Relation, right: Relation, *, by_name: bool = False) -> Relation:
    """Rows of one or the other, whose columns are the same by place or by name."""
    rows, other = left.rows | right.rows, left.other or right.other
    if by_name:
        return Relation((*left.columns, *right.columns), rows, other)
    if left.other or right.other:  # places are not known behind a star
        return Relation((), rows, lambda name: _of(left, name) | _of(right, name))
    pairs = zip(left.columns, right.columns, strict=False)
    return Relation(tuple((name, origins | more) for (name, origins), (_, more) in pairs), rows)


def _united(relation: Relation) -> Relation:
    """With each column once, and none without a name."""
    told: dict[str, Origins] = {}
    for name, origins in relation.columns:
        if name:
            told[name] = told.get(name, _NONE) | origins
    return relation._replace(columns=tuple(told.items()))
