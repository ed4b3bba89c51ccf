"""The conditions of a query as SQL over the columns of records."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.facets.record import AFTER_LAST_MS, FIRST_MS

from .database import connect, run

if TYPE_CHECKING:
    import pyarrow as pa

    from .query import Query

_WILD: Final = str.maketrans({"*": "%", "?": "_", "%": r"\%", "_": r"\_", "\\": r"\\"})
_LISTED_MAX: Final = 64
"""So few texts are compared one by one, which statistics and Bloom filters answer without reading rows."""


class Conditions:
    """The conditions of a query.

    Attributes:
        by_key: those on the natural key: they hold for a record exactly if for each of its repeats. Of
            `after` they have only its instant; `beyond` has the rest.
        by_rest: those on the other fields, which a merge of repeats can change.
        params: the values that both name.
    """

    def __init__(self, query: Query) -> None:
        self.params: dict[str, Any] = {}
        self.by_key = " AND ".join(self._by_key(query)) or "true"
        self.by_rest = " AND ".join(self._by_rest(query)) or "true"

    @property
    def all(self) -> str:
        """All of them."""
        return f"({self.by_key}) AND ({self.by_rest})"

    @property
    def is_any(self) -> bool:
        """Whether every record meets them."""
        return self.by_key == self.by_rest == "true"

    def filter(self, table: pa.Table) -> pa.Table:
        """The rows of a table that meet all conditions."""
        return table if self.is_any else self._filter(table, self.all)

    def filter_by_rest(self, table: pa.Table) -> pa.Table:
        """The rows of a table that meet the conditions on the other fields."""
        return table if self.by_rest == "true" else self._filter(table, self.by_rest)

    def _filter(self, table: pa.Table, condition: str) -> pa.Table:
        with connect() as connection:
            connection.register("records", table)
            found = run(connection, f"FROM records WHERE {condition}", self.params)
            return found.to_arrow_table().cast(table.schema)

    def param(self, value: object) -> str:
        """The name by which the text of a query has a value."""
        name = f"p{len(self.params)}"
        self.params[name] = value
        return f"${name}"

    def instant(self, epoch_ms: int) -> str:
        """An instant that records can have, or the first after all of them."""
        return f"make_timestamptz({self.param(min(max(epoch_ms, FIRST_MS), AFTER_LAST_MS) * 1_000)})"

    def _by_key(self, query: Query) -> list[str]:
        found = []
        if query.system_name is not None:
            found.append(f"system_name = {self.param(query.system_name)}")
        if query.final_state is not None:
            found.append(self._is_any("final_state", query.final_state))
        if query.not_final_states:
            found.append(f"NOT {self._is_any('final_state', query.not_final_states)}")
        if query.data_sink is not None:
            found.append(self._is_named(query, "data_sink"))
        if query.has_data_sink is not None:
            found.append(f"data_sink IS {'NOT ' if query.has_data_sink else ''}NULL")
        if query.not_data_sinks:
            found.append(f"(data_sink IS NULL OR NOT {self._is_any('data_sink', query.not_data_sinks)})")
        if query.did is not None:
            found.append(f"did = {self.param(query.did)}")
        if query.dids is not None:
            found.append(self._is_any("did", query.dids))
        return found + self._within("completed", query.window.since_ms, query.window.until_ms)

    def _by_rest(self, query: Query) -> list[str]:
        found = []
        if query.parent_did is not None:
            found.append(f"parent_did = {self.param(query.parent_did)}")
        if query.parent_dids is not None:
            found.append(self._is_any("parent_did", query.parent_dids))
        if query.data_source is not None:
            found.append(self._is_named(query, "data_source"))
        if query.filename is not None:
            named = self._is_named(query, "filename")
            others = self._is_any("did", query.filename_dids)
            found.append(f"({named} OR {others})" if query.filename_dids else named)
        for key, value in query.annotations.items():
            found.append(f"annotations[{self.param(key)}] = {self.param(value)}")
        return found + self._within("created", query.created_since_ms, query.created_until_ms)

    def _within(self, column: str, since_ms: int | None, until_ms: int | None) -> list[str]:
        found = []
        if since_ms is not None and since_ms > FIRST_MS:
            found.append(f"{column} >= {self.instant(since_ms)}")
        if until_ms is not None and until_ms < AFTER_LAST_MS:
            found.append(f"{column} < {self.instant(until_ms)}")
        return found

    def _is_named(self, query: Query, column: str) -> str:
        """Whether a column has a name, or another of the same dataset, or one that its pattern matches."""
        name = getattr(query, column)
        named = f"{column} = {self.param(name)}"
        if query.is_pattern(column):
            named = rf"{column} LIKE {self.param(name.translate(_WILD))} ESCAPE '\'"
        others = query.other_names.get(column)
        return f"({named} OR {self._is_any(column, others)})" if others else named

    def _is_any(self, column: str, texts: Collection[str]) -> str:
        if not texts:
            return "false"
        if len(texts) > _LISTED_MAX:
            # As one text they are handed over in a third of the time that a list of them takes.
            told = msgspec.json.encode(list(texts)).decode()
            return f"""{column} IN (SELECT unnest(from_json({self.param(told)}, '["VARCHAR"]')))"""
        return f"{column} IN ({', '.join(self.param(str(text)) for text in texts)})"
