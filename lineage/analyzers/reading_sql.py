"""What an SQL text reads and writes, down to columns.

sqlglot parses; this module follows the statements of the parsed text as a reader does: a CTE
hides a table, a temporary table is what it was made of, and a column of a table whose columns nobody knows is
taken from it only if no other can have it. sqlglot's own `qualify` refuses most texts without a catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby, pairwise
from typing import Final

from sqlglot import TokenType, exp, parse_one
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.helper import ensure_list
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from .analyzer import FILE
from .sql_scopes import (
    AGGREGATION,
    IDENTITY,
    NONE,
    ROWS,
    TRANSFORMATION,
    UNKNOWN_ORIGINS,
    Columns,
    Name,
    Origin,
    Origins,
    Other,
    Relation,
    Scope,
    by_place,
    nothing,
    table_of,
    united,
    whole_row,
)

_NESTED_ALIASES: Final = ("snowflake", "redshift", "databricks", "spark", "spark2", "duckdb", "clickhouse")
"""The dialects in which a column of a query may be used in that query's other columns."""
_MASKING: Final = (
    exp.Count, exp.CountIf, exp.ApproxDistinct, exp.MD5, exp.MD5Digest, exp.SHA, exp.SHA1Digest, exp.SHA2,
    exp.SHA2Digest, exp.StandardHash, exp.FarmFingerprint,
)  # fmt: skip
_MASKING_NAMES: Final = frozenset({"hash", "xxhash64", "mask", "murmur_hash", "hashbytes"})
_MOVE_NOTHING: Final = (
    exp.Alter, exp.Analyze, exp.Attach, exp.Cache, exp.Comment, exp.Commit, exp.Declare, exp.Describe,
    exp.Detach,
    exp.Drop, exp.Grant, exp.Kill, exp.Pragma, exp.Refresh, exp.Revoke, exp.Rollback, exp.Semicolon, exp.Set,
    exp.Show, exp.Summarize, exp.Transaction, exp.TruncateTable, exp.Uncache, exp.Use,
)  # fmt: skip
"""The statements that move no data, beside those that are followed."""
_MOVING_NOTHING: Final = (
    "CHECKPOINT",
    "CLUSTER",
    "DISCARD",
    "LISTEN",
    "LOCK",
    "NOTIFY",
    "REINDEX",
    "RESET",
    "VACUUM",
)
"""The first words of such statements that the parser does not know."""
_MADE: Final = ("TABLE", "VIEW")
_NAMED: Final = (exp.Identifier, exp.Dot, exp.Parameter)
"""What a table is that has a name."""
_TEMPORARY: Final = ("#", "@")
"""With what the names of T-SQL's temporary tables and table variables begin."""
_FILTERS: Final = ("where", "prewhere", "connect", "sample")
_OF_NO_TABLE: Final = frozenset(
    {
        ("", "default"),
        ("oracle", "rownum"),
        ("oracle", "level"),
        ("oracle", "user"),
        ("oracle", "uid"),
        ("postgres", "user"),
    }
)
"""What stands in a dialect as columns do, and is none."""
_WHOLE_ROWS: Final = ("postgres", "redshift", "materialize", "risingwave", "duckdb", "bigquery")
"""The dialects in which the name of a table stands for its whole row."""
_READS_FILES: Final = re.compile(r"read_\w+|(?:parquet|delta|iceberg)_scan", re.IGNORECASE)
_READS_NO_TABLE: Final = re.compile(
    r"^table$|json|generat|range|number|seq|split|string|unnest|flatten|explode|regexp|glob", re.IGNORECASE
)
"""In the names of functions that give rows, and read their arguments only."""
_FILE_ENDS: Final = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".gz", ".zst", ".xlsx")
_BARE_JOINS: Final = ("mysql", "sqlite", "spark", "spark2", "databricks", "hive")
"""The dialects in which a JOIN needs no condition."""
_MERGED_IN_PLACE: Final = ("sqlite", "duckdb", "clickhouse")
"""The dialects in which a star has the columns by which USING joins at their places, not first."""
_OF_VALUES: Final = {
    "postgres": "column", "redshift": "column", "sqlite": "column", "snowflake": "COLUMN", "spark": "col",
    "spark2": "col", "databricks": "col",
}  # fmt: skip
"""How the columns of VALUES are called, before their number."""
_ROUNDS_MAX: Final = 100


@dataclass
class Reading:
    """What a text reads and writes.

    Attributes:
        inputs: the tables that it reads.
        outputs: those that it writes, with the columns that it writes.
        sources: those that it reads for each table that it writes.
        query: the last query that writes nothing.
        notes: what was taken for granted, or nobody can say; one sentence each.
        unread: what was not read; one sentence each.
    """

    inputs: set[Name] = field(default_factory=set)
    outputs: dict[Name, Relation] = field(default_factory=dict)
    sources: dict[Name, set[Name]] = field(default_factory=dict)
    query: Relation | None = None
    notes: dict[str, None] = field(default_factory=dict)
    unread: dict[str, None] = field(default_factory=dict)


def read_sql(
    text: str, dialect: str | None, columns_of: Callable[[Name], Mapping[str, str] | None]
) -> Reading:
    """Read an SQL text of one or several statements.

    Args:
        text: the statements.
        dialect: sqlglot's name of the dialect; None: none in particular.
        columns_of: the columns of a table with their types; None: they are not known.

    Raises:
        sqlglot.errors.ParseError: no statement can be parsed.
        RecursionError: the text is nested too deeply.
        ValueError: there is no such dialect.
    """
    reader = _Reader(dialect or "", columns_of)
    for number, statement in enumerate(_parse(text, dialect, reader.unread), 1):
        if statement is None:
            continue
        before, reader.inputs = reader.inputs, set()
        try:
            named = normalize_identifiers(_with_names(statement, dialect), dialect=dialect)
            reader.follow(named, number, {})
            reader.look_for_others(named)
        except (AttributeError, TypeError, ParseError):  # the parser lets some parts be absent
            reader.unread[f"statement {number} has a form that cannot be read"] = None
        reader.inputs |= before
    return reader


def _parse(text: str, dialect: str | None, unread: dict[str, None]) -> list[exp.Expr | None]:
    """The statements of a text; adds to what is unread which of several ones cannot be parsed."""
    own = Dialect.get_or_raise(dialect)
    try:
        tokens = own.tokenize(text)
        return own.parser().parse(tokens, text)
    except TokenError:
        raise ParseError("the text cannot be read: a quote or a comment in it may have no end") from None
    except ParseError as error:
        problem = error
    groups = [
        [*group]
        for is_end, group in groupby(tokens, lambda one: one.token_type == TokenType.SEMICOLON)
        if not is_end
    ]
    statements: list[exp.Expr | None] = []
    for number, group in enumerate(groups, 1):
        try:
            statements += own.parser().parse(group, text)
        except ParseError as error:
            problem = error
            statements.append(None)
            unread[f"statement {number} cannot be parsed{_place_of(error)}"] = None
    if not any(statements):
        raise ParseError(f"the text cannot be parsed{_place_of(problem)}")
    return statements


def _place_of(error: ParseError) -> str:
    """Where a text cannot be parsed and what is wrong there, without words of the text itself."""
    told = error.errors[0] if error.errors else {}
    what = re.sub(r" but got <Token.*| for <.*", "", str(told.get("description") or "it ends too early"))
    return f" at line {told.get('line')}, column {told.get('col')}: {what}"


class _Reader(Reading):
    """Follows the statements of one text."""

    def __init__(self, dialect: str, columns_of: Callable[[Name], Mapping[str, str] | None]) -> None:
        super().__init__()
        self._dialect = dialect
        self._columns_of = columns_of
        self._made: dict[Name, Relation] = {}
        self._changed: set[int] = set()
        self._seen: set[int] = set()
        self._written: set[Name] = set()

    def follow(self, statement: exp.Expr, number: int, ctes: Mapping[str, Relation]) -> None:
        """Follow one statement, with the CTEs in reach."""
        scope = self._with(statement, Scope(ctes))
        match statement:
            case exp.Create():
                self._create(statement, number, scope)
            case exp.Cache() if statement.expression is not None:
                self._write(
                    self._name(statement.this), self._query(statement.expression, scope), is_temporary=True
                )
            case exp.Insert():
                self._insert(statement, scope)
            case exp.Update() | exp.Delete():
                self._change(statement, scope, [])
            case exp.Merge():
                self._merge(statement, scope)
            case exp.Query() | exp.Pivot():
                relation = self._query(statement, scope)
                selects = statement.find_all(exp.Select)
                if into := next((one.args["into"] for one in selects if one.args.get("into")), None):
                    self._make(into.this, relation, into)
                else:
                    self.query = relation
            case exp.Alter():
                self._alter(statement, number, scope)
            case _ if (
                not isinstance(statement, _MOVE_NOTHING) and statement.name.upper() not in _MOVING_NOTHING
            ):
                self._leave_out(statement, number)

    def look_for_others(self, statement: exp.Expr) -> None:
        """Take the tables of a followed statement that stand where nothing has been followed as read."""
        is_made = isinstance(statement, exp.Create) and statement.expression and statement.kind in _MADE
        if not (is_made or isinstance(statement, exp.DML | exp.Query | exp.Pivot)) or isinstance(
            statement, exp.Copy
        ):
            return
        if any(returned.args.get("into") for returned in statement.find_all(exp.Returning)):
            self.unread["what OUTPUT … INTO writes is not read"] = None
        ctes = {cte.alias for cte in statement.find_all(exp.CTE)}
        for table in statement.find_all(exp.Table):
            name = _name(table)
            is_cte = len(name) == 1 and name[0] in ctes
            is_named = isinstance(table.this, _NAMED) and not is_cte
            is_named = is_named and table.find_ancestor(exp.Hint, exp.Lock) is None
            if is_named and id(table) not in self._seen:
                self.unread[f"the table {'.'.join(name)} stands where it is not followed"] = None
                self.inputs |= self._table(name).tables
                for written in self._written:
                    self.sources[written] |= self._table(name).tables
        self._written.clear()

    def _leave_out(self, statement: exp.Expr, number: int) -> None:
        words = " ".join(statement.sql(dialect=self._dialect).split()[:2])
        self.unread[f"statement {number} ({words} …) is not read"] = None

    # Statements that write

    def _alter(self, alter: exp.Alter, number: int, scope: Scope) -> None:
        name, tables = self._name(alter.this), list(alter.find_all(exp.Table))
        if renamed := alter.find(exp.AlterRename):
            # It is read and written: another table may get the earlier name later.
            after, is_temporary = self._name(renamed.this), self._is_temporary(name)
            read = self._source(alter.this, scope)
            self._write((*name[: -len(after)], *after), read, is_temporary=is_temporary)
        elif replaced := alter.find(exp.ReplacePartition):
            self._write(name, self._source(replaced.args["source"], scope), is_new=False)
        elif len(tables) > 1 and alter.find(exp.Reference) is None:
            self._leave_out(alter, number)

    def _create(self, create: exp.Create, number: int, scope: Scope) -> None:
        if create.kind not in _MADE:
            if create.expression is not None and create.kind != "FUNCTION":
                self._leave_out(create, number)
            return
        table, named = _listed(create.this)
        clone = create.args.get("clone")
        source = create.expression if clone is None else clone.this
        kept = create.find(exp.ToTableProperty)
        self._name(table)
        if kept is not None and isinstance(source, exp.Query):  # such a view has no rows itself
            self._write(self._name(kept.this), self._query(source, scope), is_new=False)
        elif isinstance(source, exp.Table) and clone is None and self._dialect == "clickhouse":
            self._name(source)  # its columns, without its rows
        elif isinstance(source, exp.Query | exp.Table | exp.Pivot):
            self._make(table, self._query(source, scope).renamed(named), create)
        elif _says_temporary(create):
            self._make(table, Relation(tuple((name, NONE) for name in named)), create)
        elif named:
            self._made[self._name(table)] = table_of(self._name(table), named)

    def _make(self, table: exp.Table, relation: Relation, statement: exp.Expr) -> None:
        self._write(self._name(table), relation, is_temporary=_says_temporary(statement))

    def _insert(self, insert: exp.Insert, scope: Scope) -> None:
        given = insert.expression or insert.args.get("source")
        query = self._query(given, scope) if given else Relation()
        table, named = _listed(insert.this)
        if not isinstance(table, exp.Table):
            self.unread["the folder or function into which an INSERT writes is not read"] = None
            return
        if not named and not insert.args.get("by_name"):
            partition = table.args.get("partition")
            fixed = {one.this.name for one in partition.find_all(exp.EQ)} if partition else set()
            named = [name for name in self._list_columns(table) if name not in fixed]
            if not named and query.columns:
                told = f"the columns of {'.'.join(_name(table))} are taken to be named as those of the query"
                self.notes[told] = None
        query, name = query.renamed(named), self._name(table)
        if conflict := insert.args.get("conflict"):
            new = Scope(scope.ctes)
            new.sources = dict.fromkeys(("excluded", given.alias_or_name if given else ""), query)
            own = Scope(scope.ctes, new)
            own.sources[table.alias_or_name] = self._table(name)
            columns, _ = self._columns((one for _, one in _assigned(conflict)), own, {})
            query = united(
                query, Relation(columns, self._deciding([conflict.args.get("where")], own, "FILTER"))
            )
        self._write(name, query, is_new=False)

    def _merge(self, merge: exp.Merge, scope: Scope) -> None:
        columns: list[exp.Expr] = []
        for then in (when.args.get("then") for when in merge.args["whens"].expressions):
            if not isinstance(then, exp.Update | exp.Insert):
                continue  # delete, or nothing
            if isinstance(then.this, exp.Star | exp.Var) or any(
                isinstance(one, exp.Star) for one in then.expressions
            ):
                source = exp.to_identifier(merge.args["using"].alias_or_name)
                columns.append(exp.Column(this=exp.Star(), table=source))
            elif isinstance(then, exp.Update):
                columns += [one for _, one in _assigned(then)]
            elif isinstance(then.expression, exp.Tuple):
                listed = [getattr(one, "name", "") for one in then.this.expressions] if then.this else []
                columns += map(_as, listed or self._list_columns(merge.this), then.expression.expressions)
        self._change(merge, scope, columns)

    def _change(self, statement: exp.Expr, scope: Scope, columns: list[exp.Expr]) -> None:
        """Follow a statement that changes tables: they are in reach, and read if values come from them."""
        args, named = statement.args, [statement.this]
        joined = [join.this for join in statement.this.args.get("joins") or ()]
        sources = [args["from_"].this] if args.get("from_") else []
        sources += [*ensure_list(args.get("using") or []), *(args.get("joins") or ())]
        if args.get("tables"):  # DELETE a, b FROM …
            named, sources = args["tables"], [statement.this, *sources]
        elif joined and args.get("using"):  # DELETE FROM a, b USING …
            statement.this.set("joins", None)
            named += joined
        tables = [table for one in sources for table in one.find_all(exp.Table)]
        here = [table for table in tables if table.find_ancestor(exp.Select, type(statement)) is statement]
        changed = [next((table for table in here if _is_meant(one, table)), one) for one in named]
        sources += [one for one in changed if not any(one is table for table in here)]
        set_in = [(changed[0], columns)] if columns else [(table, []) for table in changed]
        if isinstance(statement, exp.Update):
            set_in = self._assigned_in(
                statement, changed[0], [one for one in joined if isinstance(one, exp.Table)]
            )
        self._changed |= {id(table) for table, _ in set_in}
        self._seen |= {id(one) for one in named}
        joined_before: list[str] = []
        for one in sources:
            joined_before = self._join(one, scope, joined_before)
        whens = args["whens"].expressions if "whens" in args else []
        conditions = [args.get("where"), *(when.args.get("condition") for when in whens)]
        rows = scope.rows | self._deciding([args.get("on")], scope, "JOIN")
        rows |= self._deciding(conditions, scope, "FILTER")
        for table, ones in set_in:
            written, other = self._columns(ones, scope, {})
            self._write(self._name(table), Relation(written, frozenset(rows), other), is_new=False)

    def _assigned_in(
        self, update: exp.Update, first: exp.Table, joined: list[exp.Table]
    ) -> list[tuple[exp.Table, list[exp.Expr]]]:
        """The tables that an UPDATE changes, each with what it sets there as a query would have it."""
        told: dict[int, tuple[exp.Table, list[exp.Expr]]] = {}
        for column, value in _assigned(update):
            owners = (
                one
                for one in (first, *joined)
                if column.text("table") == one.alias_or_name
                or (not column.text("table") and self._table(_name(one)).find(column.name) is not None)
            )
            owner = next(owners, first)
            if joined and owner is first and not column.text("table"):
                self.notes[f"the column {column.name} is taken to be of {'.'.join(_name(first))}"] = None
            told.setdefault(id(owner), (owner, []))[1].append(value)
        return [*told.values()]

    def _write(
        self, name: Name, relation: Relation, *, is_temporary: bool = False, is_new: bool = True
    ) -> None:
        self.inputs |= {o.table for _, origins in relation.columns for o in origins if o.is_direct}
        self._written.add(name)
        is_temporary = is_temporary or name[-1].startswith(_TEMPORARY)
        if is_temporary or (not is_new and self._is_temporary(name)):
            before = Relation() if is_new else self._made.get(name, Relation())
            made = relation if is_new else united(before, relation)
            self._made[name] = made._replace(tables=before.tables | self.inputs)
            return
        if is_new and relation.other is None:
            self._made[name] = table_of(name, (column for column, _ in relation.columns if column))
        self.sources.setdefault(name, set()).update(self.inputs)
        self.outputs[name] = united(self.outputs.get(name, Relation()), relation)

    def _is_temporary(self, name: Name) -> bool:
        """Whether a table is a temporary one of this text, which is no table for others."""
        return name in self._made and name not in self._made[name].tables

    # Queries

    def _with(self, expression: exp.Expr, scope: Scope) -> Scope:
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
                first = self._query(query.left, self._with(query, inner)) if is_recursive else None
                relation = (first or self._query(query, inner)).renamed(names)
            for _ in range(_ROUNDS_MAX if is_recursive else 0):
                inner.ctes[cte.alias], before = relation, relation
                relation = self._query(query, inner).renamed(names)
                if relation[:2] == before[:2]:
                    break
            inner.ctes[cte.alias] = relation
        return inner

    def _query(self, query: exp.Expr, scope: Scope) -> Relation:
        """What a query gives; the scope has the CTEs in reach, and what a correlated one may use."""
        scope = self._with(query, scope)
        if isinstance(query, exp.Select):
            return self._select(query, scope)
        given = self._unsorted(query, scope)
        return given._replace(rows=given.rows | self._sorting(query, scope, given))

    def _unsorted(self, query: exp.Expr, scope: Scope) -> Relation:
        match query:
            case exp.Subquery() | exp.Paren():
                return self._query(query.this, scope)
            case exp.SetOperation():
                left, right = self._query(query.left, scope), self._query(query.right, scope)
                if isinstance(query, exp.Except):  # its right side gives no values
                    used = frozenset[Origin]().union(*(origins for _, origins in right.columns))
                    without = right.rows | {origin.deciding("FILTER") for origin in used}
                    right = Relation(tuple((name, NONE) for name, _ in left.columns), without)
                return united(left, right) if query.args.get("by_name") else by_place(left, right)
            case exp.Pivot():
                self.unread["the columns of a PIVOT or UNPIVOT that its rows name are not followed"] = None
                return Relation(rows=self._source(query.this, scope).rows, other=nothing)
            case exp.Values():
                rows = [
                    [self._flow(one, scope) for one in row.expressions or [row]] for row in query.expressions
                ]
                columns = (frozenset[Origin]().union(*column) for column in zip(*rows, strict=False))
                named = _OF_VALUES.get(self._dialect, "")
                return Relation(
                    tuple((named and f"{named}{at}", origins) for at, origins in enumerate(columns, 1))
                )
            case exp.Table():
                return self._source(query, scope)
            case _:
                return Relation()

    def _select(self, select: exp.Select, outer: Scope) -> Relation:
        scope = Scope(outer.ctes, outer if outer.sources else outer.outer)
        args = select.args
        sources = [args["from_"].this] if args.get("from_") else []
        joined: list[str] = []
        for one in (*sources, *(args.get("joins") or ()), *(args.get("laterals") or ())):
            joined = self._join(one, scope, joined)
        if args.get("match"):
            self.unread["the columns of a MATCH_RECOGNIZE are not followed"] = None
            scope.sources = dict.fromkeys(scope.sources, ROWS)
        aliases: dict[str, Origins] = scope.aliases if self._dialect in _NESTED_ALIASES else {}
        columns, other = self._columns(select.expressions, scope, aliases)
        rows = scope.rows | self._deciding(map(args.get, _FILTERS), scope, "FILTER")
        scope.aliases = aliases
        rows |= self._deciding([args.get("group")], scope, "GROUP_BY", columns)
        rows |= self._deciding([args.get("having"), args.get("qualify")], scope, "FILTER")
        rows |= self._sorting(select, scope, Relation(tuple(aliases.items())), columns)
        return Relation(columns, frozenset(rows), other)

    def _sorting(self, query: exp.Expr, scope: Scope, given: Relation, columns: Columns = ()) -> Origins:
        """What the order and number of a query's rows depend on, which may use the columns that it gives."""
        inner, args = Scope(scope.ctes, scope), query.args
        inner.sources[""] = given
        distinct = args.get("distinct")
        by = distinct.args.get("on") if isinstance(distinct, exp.Distinct) else None
        kept = self._deciding([by], inner, "GROUP_BY", columns)
        kept |= self._deciding([args.get("limit"), args.get("offset")], scope, "FILTER")
        return kept | self._deciding([args.get("order")], inner, "SORT", columns or given.columns)

    def _columns(
        self, expressions: Iterable[exp.Expr], scope: Scope, aliases: dict[str, Origins]
    ) -> tuple[Columns, Other | None]:
        """What a list of columns gives, and what may be behind its stars; adds to the aliases."""
        columns, others = list[tuple[str, Origins]](), list[Other]()
        for one in expressions:
            star = one.this if isinstance(one, exp.Column) else one
            if isinstance(star, exp.Star) and not star.args.get("ilike"):
                if isinstance(one, exp.Column):
                    sources = [scope.find(one.table) or ROWS]
                else:
                    sources = scope.all(are_merged_first=self._dialect not in _MERGED_IN_PLACE)
                columns += self._star(star, sources, scope)
                others += [source.other for source in sources if source.other is not None]
            elif (
                one.is_star
                or _is_pattern(one)
                or one.find(exp.Columns, exp.Apply, exp.QueryTransform) is not None
            ):
                others.append(nothing)  # nobody can say which columns it gives
                self._flow(one, scope)
            elif isinstance(one, exp.Aliases):
                columns += self._by_place(one, scope)
            else:
                columns.append((one.alias_or_name, self._flow(one, scope)))
                if one.alias:
                    aliases[one.alias] = columns[-1][1]
        return tuple(columns), others[0] if len(others) == 1 else nothing if others else None

    def _by_place(self, one: exp.Aliases, scope: Scope) -> Columns:
        """Several columns that one expression gives: a query by their places, a function each from all."""
        names = [alias.name for alias in one.expressions]
        if not isinstance(query := one.this.unnest(), exp.Query):
            return tuple(dict.fromkeys(names, self._flow(one.this, scope)).items())
        given = self._query(query, Scope(scope.ctes, scope)).renamed(names)
        return tuple((name, given.of(name) | given.rows) for name in names)

    def _star(self, star: exp.Star, sources: list[Relation], scope: Scope) -> Iterator[tuple[str, Origins]]:
        dropped = {one.name for one in star.args.get("except_") or ()}
        replaced = {one.alias: one for one in star.args.get("replace") or ()}
        renamed = {one.this.name: one.alias for one in star.args.get("rename") or ()}
        for source in sources:
            for column, origins in source.columns:
                if column not in dropped:
                    new = replaced.get(column)
                    yield renamed.get(column, column), origins if new is None else self._flow(new, scope)

    def _join(self, one: exp.Expr, scope: Scope, left: list[str]) -> list[str]:
        """Bring what stands after FROM or JOIN into reach; its names, and those that it is joined with."""
        source = one.this if isinstance(one, exp.Join) else one
        inner = list(source.args.get("joins") or ())
        while isinstance(source, exp.Paren | exp.Final) or _is_parenthesis(source):
            source = source.this
            inner = [*(source.args.get("joins") or ()), *inner]
        relation = self._source(source, scope)
        name = source.alias_or_name
        if not name or name in scope.sources:  # tables of two schemas may have one name
            name = f"\0{len(scope.sources)}"
        scope.sources[name] = relation
        if isinstance(source, exp.Table) and not source.alias:
            scope.named[_name(source)] = relation
        scope.rows |= relation.rows
        right = [name]
        for join in inner:
            right = self._join(join, scope, right)
        if not isinstance(one, exp.Join):
            return right
        merged = [identifier.name for identifier in one.args.get("using") or ()]
        if one.method == "NATURAL":
            merged = self._list_common(*([scope.sources[name] for name in side] for side in (left, right)))
        for column in reversed(merged):
            self._told(exp.column(column), scope.merge(column, left, right, one.side))
        joined = Scope(scope.ctes, scope)
        joined.sources = {name: scope.sources[name] for name in (*left, *right)}
        joined.merged = scope.merged
        scope.rows |= self._deciding([one.args.get("on")], joined, "JOIN")
        if one.kind in {"SEMI", "ANTI"}:
            for name in right:
                del scope.sources[name]
            return left
        # A comma binds less than JOIN; where that may stand without a condition, they are parsed alike.
        is_comma = one.args.keys() <= {"this"} and self._dialect not in _BARE_JOINS
        return right if is_comma else [*left, *right]

    def _list_common(self, left: list[Relation], right: list[Relation]) -> list[str]:
        """The columns by which a NATURAL JOIN joins."""
        if any(source.other for source in (*left, *right)):
            self.notes["the columns of a NATURAL JOIN are not known, as those of a table are not"] = None
        common = (name for source in left for name, _ in source.columns)
        return [name for name in dict.fromkeys(common) if any(one.find(name) is not None for one in right)]

    def _source(self, source: exp.Expr, scope: Scope) -> Relation:
        """What one thing gives that stands after FROM."""
        alias = source.args.get("alias")
        names = [one.name for one in alias.columns] if isinstance(alias, exp.TableAlias) else []
        if files := _files(source, self._dialect):
            relation = reduce(by_place, [self._table((FILE, file)) for file in files])
            self._seen.add(id(source))
            self.inputs |= {(FILE, file) for file in files}
        elif isinstance(source, exp.Table) and isinstance(source.this, _NAMED):
            cte = scope.ctes.get(source.name) if len(source.parts) == 1 else None
            relation = self._table(self._name(source)) if cte is None else cte
            self.inputs |= relation.tables if id(source) not in self._changed else set()
        elif isinstance(source, exp.Subquery) and isinstance(source.this, exp.Table | exp.Subquery):
            inner = Scope(scope.ctes, scope.outer)  # a join in parentheses that has a name
            joined: list[str] = []
            for one in (source.this, *(source.args.get("joins") or ())):
                joined = self._join(one, inner, joined)
            columns, other = self._columns([exp.Star()], inner, {})
            relation = Relation(columns, frozenset(inner.rows), other)
        elif isinstance(source, exp.Subquery | exp.Values | exp.Pivot):
            relation = self._query(source, Scope(scope.ctes, scope.outer))
        elif isinstance(source, exp.Lateral) and isinstance(source.this, exp.Subquery):
            relation = self._query(source.this, Scope(scope.ctes, scope))
        else:
            relation = self._function(source, names, scope)
            if not source.args.get("pivots"):
                return relation
        for pivot in source.args.get("pivots") or ():
            relation = self._pivot(pivot, relation, scope)
            if isinstance(renamed := pivot.args.get("alias"), exp.TableAlias):
                names = [one.name for one in renamed.columns]
                source.set("alias", renamed)
        return relation.renamed(names)

    def _function(self, source: exp.Expr, names: list[str], scope: Scope) -> Relation:
        """What a function gives that stands after FROM."""
        function = source.this if isinstance(source.this, exp.Expression) else source
        query = source.find_ancestor(exp.Query)
        if isinstance(source, exp.Alias | exp.Column):  # ClickHouse's ARRAY JOIN
            return Relation(((source.alias_or_name, self._flow(source, scope)),))
        called = function.find_all(exp.Anonymous, exp.ReadParquet, exp.ReadCSV)
        unsure = [
            f"what the function {name} reads itself is not known"
            for name in (_called(one, self._dialect) for one in called)
            if not _READS_NO_TABLE.search(name)
        ]
        if isinstance(function, exp.Var | exp.Placeholder | exp.DynamicIdentifier):
            unsure.append(f"what {function.sql()} has is not known")
        self.unread |= dict.fromkeys(unsure)
        given = UNKNOWN_ORIGINS if unsure else NONE
        for table in function.find_all(exp.Table):
            if not isinstance(table.this, _NAMED) or table.find_ancestor(exp.Query) is not query:
                continue  # it is a function, or read by a query
            if table is function.this and not isinstance(function, exp.VectorSearch | exp.FeaturesAtTime):
                self._seen.add(id(table))  # a model
            else:
                given |= whole_row(self._source(table, scope))
        if isinstance(function, exp.Predict):  # it adds columns to those of what it reads
            return self._source(function.expression, scope)._replace(other=nothing)
        parts = source.args.get("rows_from") or source.expressions or [source.this]
        used = {origin for one in parts for origin in self._flow(one, scope)}
        given |= {origin.then(TRANSFORMATION) for origin in used}
        return Relation(tuple((name, given) for name in names), other=None if names else lambda _: given)

    def _name(self, table: exp.Table) -> Name:
        """A table's name; it is followed."""
        self._seen.add(id(table))
        return _name(table)

    def _table(self, name: Name) -> Relation:
        if found := self._made.get(name):
            return found
        return ROWS if name[-1].startswith(_TEMPORARY) else table_of(name, self._columns_of(name))

    def _list_columns(self, table: exp.Table) -> list[str]:
        """The columns of a table; none, if they are not known."""
        relation = self._table(_name(table))
        return [] if relation.other else [column for column, _ in relation.columns]

    def _pivot(self, pivot: exp.Pivot, relation: Relation, scope: Scope) -> Relation:
        fields = pivot.args.get("fields") or []
        if pivot.args.get("unpivot") or not all(isinstance(one, exp.In) for one in fields):
            self.unread["the columns of an UNPIVOT, or of a PIVOT by a query, are not followed"] = None
            return Relation(rows=relation.rows, other=nothing)
        inner = Scope(scope.ctes)
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
        self, by: Iterable[exp.Expr | None], scope: Scope, subtype: str, columns: Columns = ()
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

    def _flow(self, expression: exp.Expr, scope: Scope) -> Origins:
        """The origins of a value, with what decides the rows of its subqueries."""
        match expression:
            case exp.Column():
                return self._column(expression, scope)
            case exp.Star():
                is_counted = isinstance(expression.parent, exp.Count)
                return NONE.union(*map(whole_row, () if is_counted else scope.sources.values()))
            case exp.Alias() | exp.Paren():
                return self._flow(expression.this, scope)
            case exp.Query():
                found = self._query(expression, Scope(scope.ctes, scope))
                return found.rows.union(*(origins for _, origins in found.columns))
            case exp.Case() | exp.If():
                return self._conditional(expression, scope)
            case exp.Window():
                select = expression.find_ancestor(exp.Select)
                named = (select.args.get("windows") or ()) if select else ()
                by: list[exp.Expr | None] = []
                for one in (expression, *(one for one in named if one.name == expression.alias)):
                    by += [*(one.args.get("partition_by") or ()), one.args.get("order")]
                return self._flow(expression.this, scope) | self._deciding(by, scope, "WINDOW")
            case exp.Filter():  # of the rows that an aggregation takes
                decides = self._deciding([expression.expression], scope, "CONDITIONAL")
                return self._flow(expression.this, scope) | decides
        subtype = AGGREGATION if isinstance(expression, exp.AggFunc) else TRANSFORMATION
        if isinstance(expression, exp.Distinct | exp.Tuple):
            subtype = IDENTITY
        masking = isinstance(expression, _MASKING) or (
            isinstance(expression, exp.Anonymous) and expression.name.lower() in _MASKING_NAMES
        )
        used = (origin for child in expression.iter_expressions() for origin in self._flow(child, scope))
        return frozenset(origin.then(subtype, masking=masking) for origin in used)

    def _conditional(self, expression: exp.Case | exp.If, scope: Scope) -> Origins:
        args = expression.args
        branches = args.get("ifs") or [expression]
        conditions = [*(one.this for one in branches), args.get("this") if args.get("ifs") else None]
        values = [*(one.args.get("true") for one in branches), args.get("default"), args.get("false")]
        used = {origin for one in values if one is not None for origin in self._flow(one, scope)}
        told = frozenset(origin.then(TRANSFORMATION) for origin in used)
        return told | self._deciding(conditions, scope, "CONDITIONAL")

    def _column(self, column: exp.Column, scope: Scope) -> Origins:
        if isinstance(column.this, exp.Star):
            is_counted = isinstance(column.parent, exp.Count)
            return NONE if is_counted else self._told(column, whole_row(scope.find(column.table)))
        parts = [part.name for part in column.parts]
        if (
            len(parts) == 1
            and not column.this.quoted
            and _OF_NO_TABLE & {(one, parts[0].lower()) for one in ("", self._dialect)}
        ):
            return NONE
        if len(parts) == 1:
            row = scope.find(parts[0]) if self._dialect in _WHOLE_ROWS else None
            found = scope.column(parts[0], is_known=row is not None)
            return self._told(
                column, whole_row(row) if row is not None and found == UNKNOWN_ORIGINS else found
            )
        if (source := scope.named.get(tuple(parts[:-1])) or scope.find(parts[-2])) is not None:
            return self._told(column, source.of(parts[-1]))
        if parts[-1].lower() in {"nextval", "currval"}:
            return NONE
        # Else it is a field of a structure.
        owners = ((scope.find(owner), name) for owner, name in pairwise(parts[:-1]))
        owned = [owner.of(name) for owner, name in owners if owner is not None]
        whole = owned[0] if owned else scope.column(parts[0], is_known=True)
        if whole == UNKNOWN_ORIGINS:
            self.unread[f"{'.'.join(parts)} is of no table in reach"] = None
        return frozenset(origin.then(TRANSFORMATION) for origin in whole)

    def _told(self, column: exp.Expr, found: Origins) -> Origins:
        if found >= UNKNOWN_ORIGINS:
            self.notes[f"nobody can say where the column {column.sql()} comes from"] = None
        return found


def _with_names(statement: exp.Expr, dialect: str | None) -> exp.Expr:
    """The statement with the tables and columns that it names by a text, as in IDENTIFIER('shop.orders')."""
    if isinstance(statement, exp.Command) and statement.this.upper() == "REPLACE":  # elsewhere an INSERT
        statement = parse_one(f"INSERT {statement.expression.name}", dialect=dialect)
    kinds = (exp.Anonymous, exp.DynamicIdentifier, exp.Schema, exp.TableFromRows)
    for node in list(statement.find_all(*kinds)):
        said = node.expressions[0] if node.expressions else node.this
        called = node.this.name if isinstance(node, exp.Schema) and node.this else node.name
        if called.upper() == "TABLE" and isinstance(said, exp.Column):
            node.replace(exp.Table(this=said.this, db=said.args.get("table"), catalog=said.args.get("db")))
        is_said = isinstance(node, exp.DynamicIdentifier | exp.TableFromRows)
        is_said = is_said or called.upper() == "IDENTIFIER"
        if not (is_said and isinstance(said, exp.Literal)):
            continue
        held = node.parent if isinstance(node.parent, exp.Table | exp.TableFromRows) else node
        table = exp.to_table(said.name, dialect=dialect)
        if held is not node or isinstance(node, exp.TableFromRows):
            held.replace(exp.Table(**{**held.args, **table.args}))
        elif isinstance(node, exp.Schema):
            held.replace(table)
        else:
            held.replace(exp.to_column(said.name, dialect=dialect))
    for dot in list(statement.find_all(exp.Dot)) if dialect == "tsql" else ():
        if isinstance(dot.this, exp.Column) and dot.this.args.get("catalog"):
            dot.replace(exp.column(dot.expression, dot.this.this))  # server.database.schema.table.column
    return statement


def _files(source: exp.Expr, dialect: str) -> list[str]:
    """The paths and URIs of files that are read as a table; of a pattern, the folder in which it looks."""
    read = source.this if isinstance(source, exp.Table) else None
    given: list[exp.Expr] = []
    if isinstance(read, exp.Identifier) and dialect == "duckdb" and not source.args.get("db"):
        given = [read] if "/" in read.name or read.name.lower().endswith(_FILE_ENDS) else []
    elif isinstance(read, exp.ReadParquet | exp.ReadCSV) or (
        isinstance(read, exp.Anonymous) and _READS_FILES.fullmatch(read.name)
    ):
        first = read.this if isinstance(read, exp.ReadCSV) else read.expressions[0]
        listed = first.expressions if isinstance(first, exp.Array) else [first]
        given = listed if all(isinstance(one, exp.Literal) for one in listed) else []
    return [re.sub(r"/[^/]*[*?\[{].*", "", one.name) for one in given]


def _called(function: exp.Expr, dialect: str) -> str:
    """The name of a function, as a text of the dialect has it."""
    return function.sql(dialect=dialect).partition("(")[0].rpartition(".")[2].lower()


def _is_pattern(one: exp.Expr) -> bool:
    """Whether it is a star with a condition on the names of columns."""
    return isinstance(one, exp.Binary) and one.left.is_star


def _is_parenthesis(source: exp.Expr) -> bool:
    """Whether something stands in parentheses that say nothing."""
    is_bare = isinstance(source, exp.Subquery) and not source.alias and not source.args.get("pivots")
    return is_bare and isinstance(source.this, exp.Table | exp.Subquery | exp.Final)


def _is_meant(named: exp.Table, table: exp.Table) -> bool:
    """Whether a statement that changes a table by a name means this one of its sources."""
    return _name(named) == ((table.alias,) if table.alias else _name(table))


def _name(table: exp.Table) -> Name:
    parts = ((part.name, isinstance(part, exp.Parameter)) for part in table.parts if part.name)
    return tuple(f"@{name}" if is_variable else name for name, is_variable in parts)


def _says_temporary(statement: exp.Expr) -> bool:
    return statement.find(exp.TemporaryProperty) is not None or bool(statement.args.get("temporary"))


def _listed(target: exp.Table | exp.Schema) -> tuple[exp.Table, list[str]]:
    """A table that is written, and the columns that are listed behind it."""
    if isinstance(target, exp.Schema):
        return target.this, [one.name for one in target.expressions]
    return target, []


def _assigned(update: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """The columns that an UPDATE sets, each as it names it and as a query would have it."""
    for one in update.expressions:
        if not isinstance(one, exp.EQ):
            continue
        columns, value = one.this.expressions or [one.this.unnest()], one.expression
        if isinstance(one.this, exp.Tuple) and value.expressions:
            yield from (
                (column, _as(column.name, one))
                for column, one in zip(columns, value.expressions, strict=False)
            )
        else:
            yield (
                columns[0],
                exp.Aliases(this=value, expressions=[exp.to_identifier(one.name) for one in columns]),
            )


def _as(name: str, value: exp.Expr) -> exp.Alias:
    return exp.Alias(this=value, alias=exp.Identifier(this=name))
