"""The demo's proof: its provenance files, rebuilt from each place where the events are stored."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from waybill.cli.demo.report import Trail
    from waybill.exporter import Source, Wanted
    from waybill.transport import Settings


class RebuildCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A rebuild from one source, compared with the demo's own files.

    Attributes:
        source: its name, as `waybill rebuild --from` takes it.
        differing: how many records are not the same in both.
        findings: how many faults a verification finds in the rebuilt files alone.
        problem: why nothing was rebuilt from this source.
    """

    source: str
    events: int = 0
    records: int = 0
    differing: int = 0
    findings: int = 0
    problem: str | None = None

    @property
    def is_different(self) -> bool:
        """Whether the rebuilt files are wrong, or not the demo's own."""
        return bool(self.differing or self.findings)

    def verdict(self) -> str:
        """The result in a few words."""
        if self.problem is not None:
            return self.problem
        if self.is_different:
            return f"{self.differing} records differ, {self.findings} findings"
        return "identical"


def rebuilds(trail: Trail, settings: Settings, *, delivered: bool) -> Iterator[RebuildCheck]:
    """Rebuild from each source into a temporary folder, and compare the result with the demo's root.

    Args:
        trail: the records that the demo's root holds.
        settings: the demo's own.
        delivered: whether the backend, if there is one, has every event.
    """
    from waybill.exporter import Wanted, open_source

    wanted = Wanted(
        system_name=settings.system_name, annotations_allowed=settings.provenance_annotations_allowed
    )
    for name in ("journal", "events"):
        yield _again(name, open_source(name, [], settings), settings.root, wanted)
    with tempfile.TemporaryDirectory(prefix="waybill-lines-") as folder:
        lines = _as_lines(open_source("journal", [], settings), Path(folder, "events.jsonl"))
        yield _again("jsonl", open_source("jsonl", [str(lines)], settings), settings.root, wanted)
    if settings.marquez_url is None:
        return
    if not delivered:
        yield RebuildCheck(source="marquez", problem="it has not got every event yet")
        return
    # Marquez may hold the events of others, too.
    since_ms, systems = trail.extent()
    own = msgspec.structs.replace(wanted, since_ms=since_ms, systems=systems)
    yield _from_marquez(open_source("marquez", [], settings), settings.root, own)


def _as_lines(source: Source, path: Path) -> Path:
    """Write the events as OpenLineage's file transport does, one a line."""
    from waybill.transport import Kind

    with path.open("wb") as file:
        for part in source.parts():
            for batch in source.read(part):
                bodies = (one.body for one in batch if one.kind is Kind.OPENLINEAGE)
                file.writelines(b" ".join(body.splitlines()) + b"\n" for body in bodies)
    return path


def _from_marquez(source: Source, root: Path, wanted: Wanted) -> RebuildCheck:
    from waybill.exporter import SourceError

    try:
        if len(source.parts()) > 1:
            what = "it holds too much else for a demo; use `waybill rebuild --from marquez`"
            return RebuildCheck(source="marquez", problem=what)
        return _again("marquez", source, root, wanted)
    except SourceError as error:
        return RebuildCheck(source="marquez", problem=str(error))


def _again(name: str, source: Source, root: Path, wanted: Wanted) -> RebuildCheck:
    from waybill.exporter import check, compare, rebuild

    with tempfile.TemporaryDirectory(prefix="waybill-again-") as folder:
        report = rebuild(source, Path(folder), wanted)
        checked = list(check(Path(folder)))
        return RebuildCheck(
            source=name,
            events=report.entries,
            records=sum(one.rows for one in checked),
            differing=sum(1 for _ in compare(root, Path(folder))),
            findings=sum(len(one.findings) for one in checked) + (not report.is_whole),
        )
