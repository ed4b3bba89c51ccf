"""What an SQL text reads and writes, down to columns.

sqlglot parses; this module follows the parsed text as a reader does: names are those that are in reach, a CTE
hides a table, a temporary table is what it was made of, and a column of a table whose columns nobody knows is
taken from it only if no other can have it. sqlglot's own `qualify` refuses most texts without a catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.helper import ensure_list
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

IDENTITY: Final = "IDENTITY"
TRANSFORMATION: Final = "TRANSFORMATION"
AGGREGATION: Final = "AGGREGATION"
DIRECT: Final = (IDENTITY, TRANSFORMATION, AGGREGATION)
"""The subtypes by which a value comes from another, the plainest first; all others only decide about it."""

_OF_ROWS: Final = frozenset({"FILTER", "JOIN", "GROUP_BY", "SORT"})
"""The subtypes of what decides about rows: they stay what they are in whatever is made of these rows."""
_NESTED_ALIASES: Final = ("snowflake", "redshift", "databricks", "spark", "spark2", "duckdb", "clickhouse")
"""The dialects in which a column of a query may be used in that query's other columns."""
_MASKING: Final = (
    exp.Count, exp.CountIf, exp.ApproxDistinct, exp.MD5, exp.MD5Digest, exp.SHA, exp.SHA1Digest, exp.SHA2,
    exp.SHA2Digest, exp.StandardHash, exp.FarmFingerprint,
)  # fmt: skip
_MASKING_NAMES: Final = frozenset({"hash", "xxhash64", "mask", "murmur_hash", "hashbytes"})
_UNREAD: Final = (exp.Command, exp.Copy, exp.MultitableInserts)
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
        """The same after a further step of a value: what says more counts."""
        if not self.is_direct:
            return self
        more = max(self.subtype, subtype, key=DIRECT.index)
        return self._replace(subtype=more, masking=self.masking or masking)

    def deciding(self, subtype: str) -> Origin:
        """The same where the value only decides about others."""
        return self if self.subtype in _OF_ROWS else self._replace(subtype=subtype, masking=False)


Origins = frozenset[Origin]
_Columns = tuple[tuple[str, Origins], ...]
_Other = Callable[[str], Origins]
_NONE: Final[Origins] = frozenset()


class Relation(NamedTuple):
    """Something with rows and columns.

    Attributes:
        columns: those that are known, in their order, each with its origins; a name is empty if it has none.
        rows: what decides which rows there are.
        other: the origins of a column that is not among them; None: there is no other.
        tables: the tables that who reads it reads: of a table itself, of a temporary one those behind it.
    """

    columns: _Columns = ()
    rows: Origins = _NONE
    other: _Other | None = None
    tables: frozenset[Name] = frozenset()

    def find(self, name: str) -> Origins | None:
        """The origins of a column; None: it is not among those that are known."""
        found = [origins for known, origins in self.columns if known == name]
        alike = (origins for known, origins in self.columns if known.casefold() == name.casefold())
        return found[0] if found else next(alike, None)

    def of(self, name: str) -> Origins:
        """The origins of a column; none if there is no such column."""
        found = self.find(name)
        return found if found is not None else self.other(name) if self.other else _NONE

    def renamed(self, names: Iterable[str]) -> Relation:
        """With other names for its first columns; which these are is not known behind a star."""
        names = list(names)
        if self.other and names:
            return Relation((), self.rows, _nothing)
        kept = [*names, *(name for name, _ in self.columns[len(names) :])]
        return self._replace(columns=tuple(zip(kept, (origins for _, origins in self.columns), strict=False)))


@dataclass
class Reading:
    """What a text reads and writes.

    Attributes:
        inputs: the tables that it reads.
        outputs: those that it writes, with the columns that it writes.
        sources: those that it reads for each table that it writes.
        query: the last query that writes nothing.
        notes: what could not be read, and what was taken for granted; one sentence each.
    """

    inputs: set[Name] = field(default_factory=set)
    outputs: dict[Name, Relation] = field(default_factory=dict)
    sources: dict[Name, set[Name]] = field(default_factory=dict)
    query: Relation | None = None
    notes: list[str] = field(default_factory=list)


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
    reader = _Reader(dialect or "", columns_of)
    for number, statement in enumerate(sqlglot.parse(text, dialect=dialect), 1):
        if statement is None:
            continue
        before, reader.inputs = reader.inputs, set()
        try:
            reader.follow(normalize_identifiers(statement, dialect=dialect), number, {})
        except (AttributeError, TypeError) as error:  # the parser lets some parts be absent
            raise ValueError(f"statement {number} has a form that cannot be read") from error
        reader.inputs |= before
    return reader


class _Scope:
    """The names in reach of an expression, and what decides the rows of its query.

    Attributes:
        ctes: the CTEs.
        sources: what stands after FROM.
        merged: the columns that a join makes one.
        aliases: the columns of the query itself, where they are in reach.
        outer: what a correlated query may use, too.
        rows: what decides which rows there are.
    """

    def __init__(self, ctes: Mapping[str, Relation], outer: _Scope | None = None) -> None:
        self.ctes = dict(ctes)
        self.sources: dict[str, Relation] = {}
        self.merged: set[str] = set()
        self.aliases: dict[str, Origins] = {}
        self.outer = outer
        self.rows: set[Origin] = set()

    def find(self, table: str) -> Relation | None:
        found = self.sources.get(table)
        return found if found is not None or self.outer is None else self.outer.find(table)

    def column(self, name: str) -> Origins:
        """The origins of a column whose table is not said."""
        for source in self.sources.values():
            if (origins := source.find(name)) is not None:
                return origins
        if name in self.aliases:
            return self.aliases[name]
        others = [source.other for source in self.sources.values() if source.other is not None]
        if len(others) == 1 or (others and name in self.merged):
            return others[0](name)
        return self.outer.column(name) if not others and self.outer is not None else _NONE


class _Reader(Reading):
    """Follows the statements of one text."""

    def __init__(self, dialect: str, columns_of: Callable[[Name], Mapping[str, str] | None]) -> None:
        super().__init__()
        self._dialect = dialect
        self._columns_of = columns_of
        self._made: dict[Name, Relation] = {}
        self._changed: exp.Expr | None = None

    def follow(self, statement: exp.Expr, number: int, ctes: Mapping[str, Relation]) -> None:
        """Follow one statement, with the CTEs in reach."""
        scope = self._with(statement, _Scope(ctes))
        match statement:
            case exp.Create():
                self._create(statement, scope)
            case exp.Insert():
                self._insert(statement, scope)
            case exp.Update():
                self._change(statement, scope, _assigned(statement))
            case exp.Delete():
                self._change(statement, scope, [])
            case exp.Merge():
                self._merge(statement, scope)
            case exp.Query():
                relation = self._query(statement, scope)
                selects = statement.find_all(exp.Select)
                if into := next((one.args["into"] for one in selects if one.args.get("into")), None):
                    self._make(into.this, relation, into)
                else:
                    self.query = relation
            case exp.Alter() if renamed := statement.find(exp.AlterRename):
                # It is read and written: another table may get the earlier name later.
                before, after = _name(statement.this), _name(renamed.this)
                self._write(
                    (*before[: -len(after)], *after),
                    self._source(statement.this, scope),
                    is_temporary=self._is_temporary(before),
                )
            case _:  # of others, drops, grants and settings move no data
                if isinstance(statement, _UNREAD) or statement.find(exp.SwapTable):
                    words = " ".join(statement.sql(dialect=self._dialect).split()[:2])
                    self.notes.append(f"statement {number} ({words} …) is not read")

    # Statements that write

    def _create(self, create: exp.Create, scope: _Scope) -> None:
        table, named = _listed(create.this)
        clone = create.args.get("clone")
        source = create.expression if clone is None else clone.this
        if create.kind not in {"TABLE", "VIEW"}:
            return
        if isinstance(source, exp.Query | exp.Table):
            self._make(table, self._query(source, scope).renamed(named), create)
        elif _says_temporary(table, create):
            self._make(table, Relation(tuple((name, _NONE) for name in named)), create)
        elif named:
            self._made[_name(table)] = _table(_name(table), named)

    def _make(self, table: exp.Table, relation: Relation, statement: exp.Expr) -> None:
        self._write(_name(table), relation, is_temporary=_says_temporary(table, statement))

    def _insert(self, insert: exp.Insert, scope: _Scope) -> None:
        query = self._query(insert.expression, scope) if insert.expression else Relation()
        table, named = _listed(insert.this)
        if not isinstance(table, exp.Table):
            return  # a folder or a function
        if not named and not insert.args.get("by_name"):
            partition = table.args.get("partition")
            fixed = {one.this.name for one in partition.find_all(exp.EQ)} if partition else set()
            named = [name for name in self._list_columns(table) if name not in fixed]
            if not named and query.columns:
                self.notes.append(
                    f"the columns of {'.'.join(_name(table))} are taken to be named as those of the query"
                )
        self._write(_name(table), query.renamed(named), is_new=False)

    def _merge(self, merge: exp.Merge, scope: _Scope) -> None:
        columns: list[exp.Expr] = []
        for then in (when.args.get("then") for when in merge.args["whens"].expressions):
            if not isinstance(then, exp.Update | exp.Insert):
                continue  # delete, or nothing
            if isinstance(then.this, exp.Star) or any(isinstance(one, exp.Star) for one in then.expressions):
                source = exp.to_identifier(merge.args["using"].alias_or_name)
                columns.append(exp.Column(this=exp.Star(), table=source))
            elif isinstance(then, exp.Update):
                columns += _assigned(then)
            elif isinstance(then.expression, exp.Tuple):
                listed = [getattr(one, "name", "") for one in then.this.expressions] if then.this else []
                columns += map(_as, listed or self._list_columns(merge.this), then.expression.expressions)
        self._change(merge, scope, columns)

    def _change(self, statement: exp.Expr, scope: _Scope, columns: list[exp.Expr]) -> None:
        """Follow a statement that changes a table: this is in reach, yet read only if values come from it."""
        args = statement.args
        sources = [args["from_"].this] if args.get("from_") else []
        sources += [*ensure_list(args.get("using") or []), *(args.get("joins") or ())]
        changed = statement.this
        for table in (table for one in sources for table in one.find_all(exp.Table)):
            is_here = table.find_ancestor(exp.Select, type(statement)) is statement
            if is_here and len(changed.parts) == 1 and table.alias == changed.name:
                changed = table
        self._changed = changed
        for one in sources if changed is not statement.this else [*sources, changed]:
            self._join(one, scope)
        written, other = self._columns(columns, scope, {})
        conditions = (
            [when.args.get("condition") for when in args["whens"].expressions] if "whens" in args else []
        )
        rows = scope.rows | self._deciding([args.get("on")], scope, "JOIN")
        rows |= self._deciding([args.get("where"), *conditions], scope, "FILTER")
        self._write(_name(changed), Relation(written, frozenset(rows), other), is_new=False)

    def _write(
        self, name: Name, relation: Relation, *, is_temporary: bool = False, is_new: bool = True
    ) -> None:
        self.inputs |= {o.table for _, origins in relation.columns for o in origins if o.is_direct}
        if is_temporary or (not is_new and self._is_temporary(name)):
            before = Relation() if is_new else self._made[name]
            made = relation if is_new else _united(before, relation)
            self._made[name] = made._replace(tables=before.tables | self.inputs)
            return
        if is_new and relation.other is None:
            self._made[name] = _table(name, (column for column, _ in relation.columns if column))
        self.sources.setdefault(name, set()).update(self.inputs)
        self.outputs[name] = _united(self.outputs.get(name, Relation()), relation)

    def _is_temporary(self, name: Name) -> bool:
        """Whether a table is a temporary one of this text, which is no table for others."""
        return name in self._made and name not in self._made[name].tables

    # Queries

    def _with(self, expression: exp.Expr, scope: _Scope) -> _Scope:
        """The scope with the CTEs of an expression."""
        clause = expression.args.get("with_")
        if clause is None:
            return scope
        inner = copy(scope)
        inner.ctes = dict(scope.ctes)
        for cte in clause.expressions:
            query, names = cte.this, [one.name for one in cte.args["alias"].columns]
            is_recursive = clause.args.get("recursive") and isinstance(query, exp.SetOperation)
            if isinstance(query, exp.DML) and (table := query.find(exp.Table)) is not None:
                self.follow(query, 0, inner.ctes)
                relation = self._source(table, inner)  # what it returns is of the table that it changes
            else:
                relation = self._query(query.left if is_recursive else query, inner).renamed(names)
            for _ in range(_ROUNDS_MAX if is_recursive else 0):
                inner.ctes[cte.alias], before = relation, relation
                relation = self._query(query, inner).renamed(names)
                if relation[:2] == before[:2]:
                    break
            inner.ctes[cte.alias] = relation
        return inner

    def _query(self, query: exp.Expr, scope: _Scope) -> Relation:
        """What a query gives; the scope has the CTEs in reach, and what a correlated one may use."""
        scope = self._with(query, scope)
        match query:
            case exp.Subquery() | exp.Paren():
                return self._query(query.this, scope)
            case exp.SetOperation():
                left, right = self._query(query.left, scope), self._query(query.right, scope)
                return _united(left, right) if query.args.get("by_name") else _by_place(left, right)
            case exp.Values():
                rows = [
                    [self._flow(one, scope) for one in row.expressions or [row]] for row in query.expressions
                ]
                columns = (frozenset[Origin]().union(*column) for column in zip(*rows, strict=False))
                return Relation(tuple(("", origins) for origins in columns))
            case exp.Select():
                return self._select(query, scope)
            case exp.Table():
                return self._source(query, scope)
            case _:
                return Relation()

    def _select(self, select: exp.Select, outer: _Scope) -> Relation:
        scope = _Scope(outer.ctes, outer if outer.sources else outer.outer)
        args = select.args
        sources = [args["from_"].this] if args.get("from_") else []
        for one in (*sources, *(args.get("joins") or ()), *(args.get("laterals") or ())):
            self._join(one, scope)
        aliases: dict[str, Origins] = scope.aliases if self._dialect in _NESTED_ALIASES else {}
        columns, other = self._columns(select.expressions, scope, aliases)
        rows = scope.rows | self._deciding([args.get("where")], scope, "FILTER")
        scope.aliases = aliases
        rows |= self._deciding([args.get("group")], scope, "GROUP_BY", columns)
        rows |= self._deciding([args.get("having"), args.get("qualify")], scope, "FILTER")
        sorted_ = _Scope(outer.ctes, scope)
        sorted_.sources[""] = Relation(tuple(aliases.items()))
        rows |= self._deciding([args.get("order")], sorted_, "SORT", columns)
        return Relation(columns, frozenset(rows), other)

    def _columns(
        self, expressions: Iterable[exp.Expr], scope: _Scope, aliases: dict[str, Origins]
    ) -> tuple[_Columns, _Other | None]:
        """What a list of columns gives, and what may be behind its stars; adds to the aliases."""
        columns, others = list[tuple[str, Origins]](), list[_Other]()
        for one in expressions:
            star = one.this if isinstance(one, exp.Column) else one
            if isinstance(star, exp.Star):
                named = [scope.find(one.table) or Relation()] if isinstance(one, exp.Column) else None
                sources = list(scope.sources.values()) if named is None else named
                columns += self._star(star, sources, scope)
                others += [source.other for source in sources if source.other is not None]
            else:
                columns.append((one.alias_or_name, self._flow(one, scope)))
                if one.alias:
                    aliases[one.alias] = columns[-1][1]
        return tuple(columns), others[0] if len(others) == 1 else _nothing if others else None

    def _star(self, star: exp.Star, sources: list[Relation], scope: _Scope) -> Iterator[tuple[str, Origins]]:
        dropped = {one.name for one in star.args.get("except_") or ()}
        replaced = {one.alias: one for one in star.args.get("replace") or ()}
        renamed = {one.this.name: one.alias for one in star.args.get("rename") or ()}
        for source in sources:
            for column, origins in source.columns:
                if column not in dropped:
                    new = replaced.get(column)
                    yield renamed.get(column, column), origins if new is None else self._flow(new, scope)
            dropped |= {column for column, _ in source.columns} & scope.merged

    def _join(self, one: exp.Expr, scope: _Scope) -> None:
        """Bring what stands after FROM or JOIN into reach."""
        source = one.this if isinstance(one, exp.Join) else one
        inner = list(source.args.get("joins") or ())
        while isinstance(source, exp.Paren) or (isinstance(source, exp.Subquery) and not source.alias
                                                and isinstance(source.this, exp.Table)):  # fmt: skip
            source = source.this
            inner += source.args.get("joins") or ()
        before = list(scope.sources.values())
        relation = self._source(source, scope)
        name = source.alias_or_name
        if not name or name in scope.sources:  # tables of two schemas may have one name
            name = f"\0{len(before)}"
        scope.sources[name] = relation
        scope.rows |= relation.rows
        if isinstance(one, exp.Join):
            merged = [identifier.name for identifier in one.args.get("using") or ()]
            if one.method == "NATURAL":
                merged = self._list_common(before, relation)
            scope.merged |= set(merged)
            used = {
                origin for column in merged for joined in (*before, relation) for origin in joined.of(column)
            }
            scope.rows |= {origin.deciding("JOIN") for origin in used}
            scope.rows |= self._deciding([one.args.get("on")], scope, "JOIN")
            if one.kind in {"SEMI", "ANTI"}:
                del scope.sources[name]
        for join in inner:
            self._join(join, scope)

    def _list_common(self, before: list[Relation], relation: Relation) -> list[str]:
        """The columns by which a NATURAL JOIN joins."""
        if any(source.other for source in (*before, relation)):
            self.notes.append("the columns of a NATURAL JOIN are not known, as those of a table are not")
        return [
            name for name, _ in relation.columns if any(source.find(name) is not None for source in before)
        ]

    def _source(self, source: exp.Expr, scope: _Scope) -> Relation:
        """What one thing gives that stands after FROM."""
        alias = source.args.get("alias")
        names = [one.name for one in alias.columns] if isinstance(alias, exp.TableAlias) else []
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            cte = scope.ctes.get(source.name) if len(source.parts) == 1 else None
            relation = self._table(_name(source)) if cte is None else cte
            self.inputs |= relation.tables if source is not self._changed else set()
        elif isinstance(source, exp.Subquery | exp.Values):
            relation = self._query(source, _Scope(scope.ctes, scope.outer))
        elif isinstance(source, exp.Lateral) and isinstance(source.this, exp.Subquery):
            relation = self._query(source.this, _Scope(scope.ctes, scope))
        else:  # a function that gives rows
            used = {o for one in source.expressions or [source.this] for o in self._flow(one, scope)}
            given = frozenset(origin.then(TRANSFORMATION) for origin in used)
            return Relation(tuple((name, given) for name in names), other=None if names else lambda _: given)
        for pivot in source.args.get("pivots") or ():
            relation = self._pivot(pivot, relation, scope)
            if isinstance(renamed := pivot.args.get("alias"), exp.TableAlias):
                names = [one.name for one in renamed.columns]
                source.set("alias", renamed)
        return relation.renamed(names)

    def _table(self, name: Name) -> Relation:
        return self._made.get(name) or _table(name, self._columns_of(name))

    def _list_columns(self, table: exp.Table) -> list[str]:
        """The columns of a table; none, if they are not known."""
        relation = self._table(_name(table))
        return [] if relation.other else [column for column, _ in relation.columns]

    def _pivot(self, pivot: exp.Pivot, relation: Relation, scope: _Scope) -> Relation:
        fields = pivot.args.get("fields") or []
        if pivot.args.get("unpivot") or not all(isinstance(one, exp.In) for one in fields):
            self.notes.append("the columns of an UNPIVOT, or of a PIVOT by a query, are not followed")
            return Relation(rows=relation.rows, other=_nothing)
        inner = _Scope(scope.ctes)
        inner.sources[""] = relation
        by = [one.this for one in fields]
        used = {one.name for part in (*pivot.expressions, *by) for one in part.find_all(exp.Column)}
        values = self._flow(exp.Tuple(expressions=pivot.expressions), inner)
        values |= self._deciding(by, inner, "CONDITIONAL")
        kept = [(name, origins) for name, origins in relation.columns if name not in used]
        new = [(one.name, values) for one in pivot.args.get("columns") or ()]
        grouped = {origin.deciding("GROUP_BY") for _, origins in kept for origin in origins}
        return Relation((*kept, *new), relation.rows | grouped, relation.other)

    # Expressions

    def _deciding(
        self, by: Iterable[exp.Expr | None], scope: _Scope, subtype: str, columns: _Columns = ()
    ) -> Origins:
        """What expressions depend on that decide; a number in a list may stand for one of the columns."""
        used = set[Origin]()
        for expression in (one for one in by if one is not None):
            used |= self._flow(expression, scope)
            for one in expression.expressions if columns else ():
                plain = one.this if isinstance(one, exp.Ordered) else one
                if isinstance(plain, exp.Literal) and plain.is_int and 0 < int(plain.name) <= len(columns):
                    used |= columns[int(plain.name) - 1][1]
        return frozenset(origin.deciding(subtype) for origin in used)

    def _flow(self, expression: exp.Expr, scope: _Scope) -> Origins:
        """The origins of a value, with what decides the rows of its subqueries."""
        match expression:
            case exp.Column():
                return self._column(expression, scope)
            case exp.Alias() | exp.Paren():
                return self._flow(expression.this, scope)
            case exp.Query():
                found = self._query(expression, _Scope(scope.ctes, scope))
                return found.rows.union(*(origins for _, origins in found.columns))
            case exp.Case() | exp.If():
                return self._conditional(expression, scope)
            case exp.Window():
                by = [*(expression.args.get("partition_by") or ()), expression.args.get("order")]
                return self._flow(expression.this, scope) | self._deciding(by, scope, "WINDOW")
        subtype = AGGREGATION if isinstance(expression, exp.AggFunc) else TRANSFORMATION
        if isinstance(expression, exp.Distinct | exp.Tuple):
            subtype = IDENTITY
        masking = isinstance(expression, _MASKING) or (
            isinstance(expression, exp.Anonymous) and expression.name.lower() in _MASKING_NAMES
        )
        used = (origin for child in expression.iter_expressions() for origin in self._flow(child, scope))
        return frozenset(origin.then(subtype, masking=masking) for origin in used)

    def _conditional(self, expression: exp.Case | exp.If, scope: _Scope) -> Origins:
        args = expression.args
        branches = args.get("ifs") or [expression]
        conditions = [*(one.this for one in branches), args.get("this") if args.get("ifs") else None]
        values = [*(one.args.get("true") for one in branches), args.get("default"), args.get("false")]
        used = {origin for one in values if one is not None for origin in self._flow(one, scope)}
        told = frozenset(origin.then(TRANSFORMATION) for origin in used)
        return told | self._deciding(conditions, scope, "CONDITIONAL")

    def _column(self, column: exp.Column, scope: _Scope) -> Origins:
        if isinstance(column.this, exp.Star):  # as in count(t.*)
            return _NONE
        if not column.table:
            return scope.column(column.name)
        if (source := scope.find(column.table)) is not None:
            return source.of(column.name)
        owner = scope.find(column.text("db"))  # else it is a field of a structure
        whole = owner.of(column.table) if owner is not None else scope.column(column.table)
        return frozenset(origin.then(TRANSFORMATION) for origin in whole)


def _nothing(_: str) -> Origins:
    """The origins of a column of which nobody can say which one it is."""
    return _NONE


def _name(table: exp.Table) -> Name:
    return tuple(part.name for part in table.parts)


def _table(name: Name, columns: Iterable[str] | None) -> Relation:
    """A table of which these are the columns; None: they are not known."""
    if columns is None:
        return Relation(other=lambda column: frozenset({Origin(name, column)}), tables=frozenset({name}))
    told = tuple((column, frozenset({Origin(name, column)})) for column in columns)
    return Relation(told, tables=frozenset({name}))


def _says_temporary(table: exp.Table, statement: exp.Expr) -> bool:
    is_said = statement.find(exp.TemporaryProperty) is not None or bool(statement.args.get("temporary"))
    return is_said or table.name.startswith("#")


def _listed(target: exp.Table | exp.Schema) -> tuple[exp.Table, list[str]]:
    """A table that is written, and the columns that are listed behind it."""
    if isinstance(target, exp.Schema):
        return target.this, [one.name for one in target.expressions]
    return target, []


def _assigned(update: exp.Update) -> list[exp.Expr]:
    """The columns that an UPDATE sets, as a query would have them."""
    return [_as(one.this.name, one.expression) for one in update.expressions if isinstance(one, exp.EQ)]


def _as(name: str, value: exp.Expr) -> exp.Alias:
    return exp.Alias(this=value, alias=exp.Identifier(this=name))


def _by_place(left: Relation, right: Relation) -> Relation:
    """Rows of one or the other, whose columns are the same by place."""
    rows = left.rows | right.rows
    if left.other or right.other:  # places are not known behind a star
        return Relation((), rows, lambda name: left.of(name) | right.of(name))
    pairs = zip(left.columns, right.columns, strict=False)
    return Relation(tuple((name, origins | more) for (name, origins), (_, more) in pairs), rows)


def _united(left: Relation, right: Relation) -> Relation:
    """Rows of one or the other, whose columns are the same by name."""
    told: dict[str, Origins] = {}
    for name, origins in (*left.columns, *right.columns):
        if name:
            told[name] = told.get(name, _NONE) | origins
    return Relation(tuple(told.items()), left.rows | right.rows, left.other or right.other)
