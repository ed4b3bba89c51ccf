"""What a root is held against by `waybill verify`: what stored events give, and what an object store has."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.cli import console

if TYPE_CHECKING:
    from waybill.exporter.names import Hour
    from waybill.exporter.rebuilding import RebuildReport
    from waybill.facets import ProvenanceRecord
    from waybill.transport import Settings


@contextlib.contextmanager
def rebuilt(settings: Settings, source: str, places: Sequence[str]) -> Iterator[tuple[Path, RebuildReport]]:
    """A root that is made of what a source has, in a folder that goes afterwards.

    Args:
        settings: the names and annotations that the records get.
        source: as `waybill rebuild --from` has it.
        places: which one.

    Raises:
        SourceError: there is no such source.
    """
    from waybill.exporter import Wanted, open_source, rebuild as rebuild_layout

    wanted = Wanted(
        system_name=settings.system_name, annotations_allowed=settings.provenance_annotations_allowed
    )
    opened = open_source(source, places, settings)
    with tempfile.TemporaryDirectory(prefix="waybill-verify-") as folder:
        with console.progress() as bar:
            task = bar.add_task("reading", total=None)
            report = rebuild_layout(
                opened,
                Path(folder),
                wanted,
                workers=os.cpu_count() or 1,
                on_progress=lambda what, done, total: bar.update(
                    task, description=what, completed=done, total=total
                ),
            )
        yield Path(folder), report


@contextlib.contextmanager
def fetched(place: Path | str) -> Iterator[Path]:
    """A root as a folder: itself, or a copy of what an object store has, which goes afterwards.

    Raises:
        SourceError: there is no such place, or it cannot be read.
    """
    if isinstance(place, Path):
        yield place
        return
    from waybill.exporter.exporting import fetch_root

    with tempfile.TemporaryDirectory(prefix="waybill-verify-") as folder:
        with console.progress() as bar:
            task = bar.add_task(f"fetching {place}", total=None)
            fetch_root(
                place,
                Path(folder),
                on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        yield Path(folder)


def has_aged_off(root: Path, record: ProvenanceRecord) -> bool:
    """Whether a record's hour has left a root by a recorded age-off or export."""
    from waybill.exporter.names import hour_of

    return _is_gone(root, record.system_name, hour_of(record.completed))


@functools.lru_cache(maxsize=1_024)
def _is_gone(root: Path, system_name: str, hour: Hour) -> bool:
    from waybill.exporter.names import safe_name
    from waybill.exporter.tombstones import was_removed

    return was_removed(root, safe_name(system_name), hour)
