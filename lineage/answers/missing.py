"""Files that arrived, and did not get to a sink.

A file got there if it has a record that is COMPLETE with this sink, or if any file below it has one. Files
are followed down through their splits and joins, a generation at a time. Each file is in the answer once, by
its last record.

A record that names as its parent a file of the same name and source tells of work on that file, as a run of
Spark does which names the file that it works on. It is no file of its own, unless that file was split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import Query
from waybill.exporter.parquet import in_pieces
from waybill.exporter.query import TooManyError, beyond, in_order, read_cursor
from waybill.facets import FinalState
from waybill.facets.arrow import PIECE_BYTES, SCHEMA

Ask = Callable[..., Iterator[pa.Table]]
"""Answers a query with the columns of `SCHEMA` that are asked for."""

Below = Callable[[Iterable[str]], Mapping[str, Collection[str]]]
"""The files that came directly from each file, besides those whose records say so."""

FILES_MAX: Final = 1_000_000
"""So many files may have arrived, and as many got there: their dids are in memory."""

_ROWS_BYTES_MAX: Final = 256 * 2**20
_DIDS_AT_ONCE: Final = 20_000
_BEFORE_MS: Final = 86_400_000
"""What came of a file ended at most this long before the file began: the clocks of hosts differ."""


class Known(NamedTuple):
    """What answers the questions about missing files.

    Attributes:
        ask: answers queries without `missing_sink` for the files themselves.
        ask_beside: answers those for what came of them.
        below: knows of joins.
        check_sink: raises an error if no record has the sink. It is called if nothing got there.
    """

    ask: Ask
    ask_beside: Ask
    below: Below
    check_sink: Callable[[], None]


def find_missing(
    known: Known,
    query: Query,
    columns: Sequence[str] = SCHEMA.names,
    *,
    began_ms: Mapping[str, int],
    unended: set[str],
) -> Iterator[pa.Table]:
    """The last record of each file that meets a query and did not get to its `missing_sink`.

    Args:
        known: answers the questions that this takes.
        query: the conditions, which choose the files by their records.
        columns: the columns of the tables.
        began_ms: the files that have begun and not ended, which did not get there either: when each of them
            began, by did, in epoch milliseconds.
        unended: gets those of them that have no record that meets the query.

    Raises:
        TooManyError: more than `FILES_MAX` files meet the conditions or got there.
        Exception: the errors of `known`; nothing is answered then, since files would seem to be missing.
    """
    arrived = msgspec.structs.replace(query, missing_sink=None, oldest_first=False, after=None, limit=None)
    waiting: set[str] = set()
    first_ms = _began(known.ask, arrived, waiting)
    if began_ms:
        first_ms = min([*began_ms.values(), *([first_ms] if waiting else [])])
        waiting.update(began_ms)
    if not waiting:
        known.check_sink()
        return
    within = Query(since_ms=max(first_ms - _BEFORE_MS, 0))
    at_sink = msgspec.structs.replace(
        within,
        data_sink=query.missing_sink,
        literal=frozenset({"data_sink"}),
        other_names={"data_sink": query.other_names.get("missing_sink", frozenset())},
        final_state=FinalState.COMPLETE,
    )
    there: set[str] = set()
    for dids, parents in _texts(known.ask_beside(at_sink, columns=("did", "parent_did"))):
        there.update(dids)
        _check(len(there))
        waiting.difference_update(dids, parents)
    if not there:
        known.check_sink()
    waiting -= _above(known, within, waiting, there)
    if not waiting:
        return
    records = _records(known.ask, arrived, waiting)
    unended.update(waiting.intersection(began_ms).difference(records["did"].to_pylist()))
    told_of = _work_on_others(known.ask_beside, within, records)
    yield from _last(records, told_of, query, columns)


def _began(ask: Ask, arrived: Query, waiting: set[str]) -> int:
    """When the first of the files that arrived began, in epoch milliseconds; adds their dids."""
    began_ms = 0
    for table in ask(arrived, columns=("did", "created")):
        if table.num_rows:
            first_ms = pc.min(table["created"].cast(pa.int64())).as_py()
            began_ms = min(began_ms or first_ms, first_ms)
            waiting.update(table["did"].to_pylist())
            _check(len(waiting))
    return began_ms


def _check(count: int) -> None:
    if count > FILES_MAX:
        raise TooManyError(
            f"more than {FILES_MAX:,} files would have to be compared; narrow the question: "
            "a source, a system, a shorter span of time"
        )


def _above(known: Known, within: Query, waiting: Collection[str], there: Collection[str]) -> set[str]:
    """Those of the files that a file which got there came from."""
    found: set[str] = set()
    seen: defaultdict[str, set[str]] = defaultdict(set)
    generation: dict[str, set[str]] = {did: {did} for did in waiting}
    while generation:
        following: defaultdict[str, set[str]] = defaultdict(set)
        for part in _parts(generation):
            for child, parent in _edges(known, within, part):
                above = generation.get(parent, set()) - seen[child]
                seen[child] |= above
                (found if child in there else following[child]).update(above)
        generation = {did: left for did, above in following.items() if (left := above - found)}
    return found


def _edges(known: Known, within: Query, dids: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The files that came directly from some files, each with the file that it came from."""
    asked = msgspec.structs.replace(within, parent_dids=dids)
    for children, parents in _texts(known.ask_beside(asked, columns=("did", "parent_did"))):
        yield from zip(children, parents, strict=True)
    for parent, others in known.below(dids).items():
        yield from ((child, parent) for child in others)


def _records(ask: Ask, arrived: Query, dids: Collection[str]) -> pa.Table:
    """The records of some of the files that arrived."""
    if len(dids) <= _DIDS_AT_ONCE:
        arrived = msgspec.structs.replace(arrived, dids=frozenset(dids))
    values = pa.array(dids, pa.string())
    found, size_bytes = [SCHEMA.empty_table()], 0
    for table in ask(arrived):
        found.append(table.filter(pc.is_in(table["did"], values)))
        size_bytes += found[-1].nbytes
        if size_bytes > _ROWS_BYTES_MAX:
            raise TooManyError(
                "the missing files take too much memory; narrow the question: a shorter span of time"
            )
    return pa.concat_tables(found)


def _work_on_others(ask: Ask, within: Query, records: pa.Table) -> set[str]:
    """The dids of records that tell of work on another file, which has their name and source."""
    same = ("filename", "data_source")
    parents = {did for did in records["parent_did"].to_pylist() if did is not None}
    named: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    split: set[str] = set()
    for part in _parts(parents):
        asked = msgspec.structs.replace(within, dids=part)
        for dids, states, *names in _texts(ask(asked, columns=("did", "final_state", *same))):
            for did, state, *name in zip(dids, states, *names, strict=True):
                named[did].add(tuple(name))
                if state == FinalState.SPLIT:
                    split.add(did)
    rows = zip(*(records[name].to_pylist() for name in ("did", "parent_did", *same)), strict=True)
    return {
        did
        for did, parent, *name in rows
        if parent != did and parent not in split and tuple(name) in named.get(parent, ())
    }


def _last(records: pa.Table, left_out: set[str], query: Query, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The last record of each file, in the order of the query."""
    newest = in_order(records, oldest_first=False)
    seen = set(left_out)
    places = []
    for at, did in enumerate(newest["did"].to_pylist()):
        if did not in seen:
            seen.add(did)
            places.append(at)
    found = newest.take(pa.array(places[::-1] if query.oldest_first else places, pa.int64()))
    if query.after is not None:
        found = beyond(found, read_cursor(query.after), oldest_first=query.oldest_first)
    yield from in_pieces(found.slice(0, query.limit).select(list(columns)), PIECE_BYTES)


def _parts(dids: Iterable[str]) -> Iterator[frozenset[str]]:
    """So many dids at a time as one question may be about."""
    wanted = sorted(dids)
    for at in range(0, len(wanted), _DIDS_AT_ONCE):
        yield frozenset(wanted[at : at + _DIDS_AT_ONCE])


def _texts(tables: Iterable[pa.Table]) -> Iterator[list[list[Any]]]:
    for table in tables:
        yield [column.to_pylist() for column in table.columns]
