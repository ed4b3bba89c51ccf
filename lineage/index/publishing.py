"""Publishing what the index knows beside the compacted files, so that a root or an export answers as a home.

What is known of a system's files of a day is one file, which is written again when it has changed: on a flush
and else after a while, so that it takes a small share of the time however large the day is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

import msgspec

from waybill.exporter.names import relations_path
from waybill.transport.files import Files

from .facts import Kind
from .tables import DAY_MS, OPEN_RUN

if TYPE_CHECKING:
    import apsw

    from waybill.exporter.relations import Relation
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal
    from waybill.transport.runner import OpenRun

_AFTER_S: Final = 60.0
_TIMES_AS_LONG: Final = 50
"""A day is not written again before so many times the time that it took."""

_UNPUBLISHED: Final = "SELECT day, system FROM unpublished ORDER BY day, system"
_PUBLISHED: Final = "DELETE FROM unpublished WHERE day = ? AND system = ?"
_FACTS: Final = """
SELECT did, kind, value.text, at_ms FROM fact JOIN value ON value.number = fact.value
WHERE system = (SELECT number FROM value WHERE text = ?) AND at_ms >= ? AND at_ms < ?
ORDER BY did, kind, value.text
"""
_OPEN: Final = """
SELECT did, began_ms, last_ms, begun FROM run WHERE did IS NOT NULL AND began_ms >= ? AND began_ms < ?
"""

_Day = tuple[int, str]


class Publisher:
    """Publishes what an index has.

    Args:
        connection: the index.
        journal: of its nodes the first one names the files, since several may file below one root.
        settings: the root, and which annotations may leave the journal.
    """

    def __init__(self, connection: apsw.Connection, journal: Journal, settings: Settings) -> None:
        self._clock = journal.clock
        self._connection = connection
        self._root = settings.root
        self._node = journal.nodes()[0].name
        self._files = Files()
        self._rule = settings.annotation_rule
        self._due_s: dict[_Day, float] = {}

    def publish(self, *, all_now: bool = False) -> float | None:
        """Publish the first day that has changed and is due; raises `OSError` if a file cannot be written.

        Args:
            all_now: every day that has changed is due, and published.

        Returns:
            How many seconds later the next one is due, or 0; None: none has changed.
        """
        now_s = self._clock.monotonic_s()
        days = cast("list[_Day]", self._connection.execute(_UNPUBLISHED).fetchall())
        later = {day: due_s for day, due_s in self._due_s.items() if due_s > now_s}
        self._due_s = {day: self._due_s.get(day, now_s + _AFTER_S) for day in days} | later
        due = [day for day in days if all_now or self._due_s[day] <= now_s]
        for day in due if all_now else due[:1]:
            self._publish(*day)
            took_s = self._clock.monotonic_s() - now_s
            self._due_s[day] = self._clock.monotonic_s() + max(_AFTER_S, _TIMES_AS_LONG * took_s)
        waiting = [self._due_s[day] for day in days if day not in due] + [now_s] * (len(due) - 1)
        return max(min(waiting) - now_s, 0.0) if waiting and not all_now else None

    def _publish(self, day: int, system: str) -> None:
        from waybill.exporter.relations import write_relations  # loads pyarrow

        name = f"{datetime.fromtimestamp(day * DAY_MS / 1_000, UTC):%Y%m%d}"
        path = self._root / relations_path(system, name, self._node)
        write_relations(self._files, path, self._rows(day, system))
        with self._connection:
            self._connection.execute(_PUBLISHED, (day, system))

    def _rows(self, day: int, system: str) -> Iterator[Relation]:
        span = day * DAY_MS, (day + 1) * DAY_MS
        facts = cast("Iterable[Relation]", self._connection.execute(_FACTS, (system, *span)))
        return heapq.merge(facts, sorted(self._open_rows(system, span)))

    def _open_rows(self, system: str, span: tuple[int, int]) -> Iterator[Relation]:
        for did, began_ms, last_ms, begun in self._connection.execute(_OPEN, span):
            run = OPEN_RUN.decode(cast("bytes", begun))
            if run.of_system == system:
                value = msgspec.json.encode((last_ms, self._with_kept_annotations(run))).decode()
                yield cast("str", did), Kind.OPEN, value, cast("int", began_ms)

    def _with_kept_annotations(self, run: OpenRun) -> OpenRun:
        """The run with those of the annotations that its record will have."""
        replace, rule = msgspec.structs.replace, self._rule
        if (told := run.told) is not None:
            said = {name: getattr(told, name) for name in ("annotations", "late_annotations")}
            kept = {name: {key: some[key] for key in some if rule.keeps(key)} for name, some in said.items()}
            run = replace(run, told=replace(told, **kept))
        file = run.delta_file
        if file is None or not file.annotations:
            return run
        allowed = msgspec.json.decode(run.file) | {"annotations": rule.kept(file.annotations) or {}}
        return replace(run, file=msgspec.json.encode(allowed))
