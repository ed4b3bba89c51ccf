"""A home and its root, whose layout and archive a test works by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from layouts import START_MS, Layout, in_order

from waybill.exporter.archive import Archive, archived_files, read_entries
from waybill.exporter.layout import Layout as Projection
from waybill.facets import ProvenanceRecord, RunEvent, decode_event, fold
from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings
from waybill.transport.clock import SYSTEM_CLOCK, Clock
from waybill.transport.home import Home

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.transport import Entry
    from waybill.transport.files import Files

NAMES = ("archive", "layout")


class Site:
    """A home that is opened as an emitter does it; entries that are emitted together are one batch.

    Args:
        names: the projections that are worked where a test names none.
        clock: the journal's; one that a test moves is also moved by work that has to wait.
        layout: further arguments of the layout.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        names: tuple[str, ...] = NAMES,
        clock: Clock = SYSTEM_CLOCK,
        **layout: Any,  # noqa: ANN401 - whatever it takes
    ) -> None:
        self.settings, self.root = settings, settings.root
        self.names, self.clock, self._layout = names, clock, layout
        self.bodies: list[bytes] = []
        self.open()

    def open(self, *, as_emitter: bool = True) -> None:
        """Open the home; if not as an emitter does it, nothing looks at the root meanwhile."""
        self.journal = Journal(self.settings.home, clock=self.clock)
        if as_emitter:
            Home.open(self.settings, self.journal)
        self.restart()

    def restart(self, files: Files | None = None, **layout: Any) -> None:  # noqa: ANN401 - as above
        """Begin with other projections of the same journal."""
        given = {"workers": 1, "linger_s": 0.0, **self._layout, **layout}
        self.layout = Projection(self.journal, self.settings, files=files, **given)
        self.archive = Archive(self.journal, self.settings, files=files, gather_s=0.0)

    def close(self) -> None:
        self.journal.close()

    def emit(self, *bodies: bytes) -> None:
        """Keep these events."""
        self.journal.append_many((Kind.OPENLINEAGE, body, "stamped") for body in bodies)
        self.bodies += bodies

    def accept(self, did: str, at_ms: int = 0, system_name: str = "edge") -> None:
        """Keep a record that completed this long after `START_MS`."""
        fields = {"did": did, "systemName": system_name, "finalState": "COMPLETE", "created": START_MS}
        self.journal.append(Kind.PROVENANCE, json.dumps([{**fields, "completed": START_MS + at_ms}]).encode())

    def problems(self, *names: str) -> list[str]:
        """Step until nothing is left to do or a problem is told; return the problems."""
        problems = []
        for name in names or self.names:
            projection: Projection | Archive = getattr(self, name)
            while (step := projection.step()).problem is None:
                if step.applied:
                    continue
                if self.journal.cursor(name) >= self.journal.last_seq():
                    break
                self.clock.sleep(step.retry_s or 0.0)
            problems += [step.problem] if step.problem else []
        return problems

    def work(self, *names: str) -> None:
        """Step until nothing is left to do."""
        assert self.problems(*names) == []

    def flush(self, *names: str) -> list[str]:
        """Have all that was emitted filed; return the files that the layout has published."""
        mark = self.journal.mark(b"flush")
        self.work(*names)
        assert {self.journal.cursor(name) for name in names or self.names} == {self.journal.last_seq()}
        files: list[str] = json.loads(self.journal.state_get("layout", f"flush:{mark}") or b"[]")
        return files

    def tell(self, *bodies: bytes) -> None:
        """Keep these events, and have them filed."""
        self.emit(*bodies)
        self.flush()

    def rows(self) -> list[ProvenanceRecord]:
        """The rows of the compacted files."""
        return Layout(self.root).rows()

    def found(self) -> list[ProvenanceRecord]:
        """The records that the root has."""
        return find(self.root)

    def check(self) -> None:
        """Check that the rows are what all events come to."""
        assert in_order(self.rows()) == in_order(folded(*self.bodies))


def archived_entries(root: Path) -> list[Entry]:
    """The entries of an archive, in order."""
    return [entry for _, path in archived_files(root) for batch in read_entries(path) for entry in batch]


def folded(*bodies: bytes) -> list[ProvenanceRecord]:
    """What these events come to, in order."""
    events = [decode_event(body) for body in bodies]
    return fold([one for one in events if isinstance(one, RunEvent)], system_name="stamped")
