"""The archive's age-off: only the oldest files that nobody needs go, and the rest verifies."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from layouts import HOUR_MS, Layout, open_findings, record

from waybill.exporter import Wanted, age_off_archive, export, open_destination, rebuild
from waybill.exporter.archive.files import ArchivedEntry, encode_entries, read_entries
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.exporter.quarantine import list_quarantined
from waybill.exporter.retention import AgedOff
from waybill.exporter.sources import EventsSource
from waybill.lineage import find

if TYPE_CHECKING:
    from sites import Site

DAY_MS = 86_400_000


def later_ms(days: float) -> int:
    """An instant this long after the end of this hour."""
    now_ms = time.time_ns() // 1_000_000
    return now_ms - now_ms % HOUR_MS + HOUR_MS + int(days * DAY_MS)


def keep(site: Site, *dids: str) -> None:
    """Archive and compact some records, each of its own system and in its own archive file."""
    for did in dids:
        site.accept(did, system_name=did)
        site.flush()


def archived(root: Path) -> list[str]:
    found = sorted((RawName.parse(path.name), path) for path in root.glob("events/*/*/*.parquet"))
    return [path.relative_to(root).as_posix() for _, path in found]


def test_what_arrived_that_long_ago_goes_and_the_rest_still_proves_itself(site: Site) -> None:
    root = site.root
    keep(site, "a", "b")
    old = archived(root)
    assert age_off_archive(root, days=2, now_ms=later_ms(2) - 1) == AgedOff()
    would = age_off_archive(root, days=2, now_ms=later_ms(2), dry_run=True)
    assert (would.removed, archived(root)) == (tuple(old), old)
    assert would.size_bytes == sum((root / path).stat().st_size for path in old)
    assert age_off_archive(root, days=2, now_ms=later_ms(2)) == would
    assert archived(root) == []
    assert open_findings(root) == []
    keep(site, "c", "d")
    assert open_findings(root) == []
    rebuild(EventsSource(root), root.with_name("again"), Wanted(system_name="tests"))
    assert sorted(row.did for row in find(root.with_name("again"))) == ["c", "d"]
    (root / archived(root)[0]).unlink()
    assert {kind for kind, _ in open_findings(root)} == {"chain", "removed"}


def test_a_file_goes_only_when_all_that_its_entries_came_to_is_exported(site: Site, tmp_path: Path) -> None:
    root, there = site.root, open_destination(str(tmp_path / "there"))

    def go(**filed: int) -> AgedOff:
        now_ms = later_ms(2)
        return age_off_archive(root, days=1, now_ms=now_ms, only_exported=True, filed=filed, dry_run=True)

    keep(site, "a")
    (first,) = archived(root)
    node = Path(first).name.partition("-")[0]
    assert go() == AgedOff(waiting=(first,))
    export(root, there)
    assert go().removed == (first,)
    assert go(**{node: 1}).waiting == (first,)
    keep(site, "b")
    _, second = archived(root)
    assert (go().removed, go().waiting) == ((first,), (second,))
    export(root, there)
    assert go().removed == (first, second)
    RawWriter(root).write(RawName(node, 1, 1), [record("raw")])
    assert go() == AgedOff(waiting=(first, second))


def test_nothing_goes_while_a_damaged_file_is_set_aside(site: Site) -> None:
    root = site.root
    keep(site, "a")
    RawWriter(root).write(RawName("ffff", 1, 1), [record("b")])
    next((root / "provenance/raw").rglob("*.parquet")).write_bytes(b"damaged")
    Layout(root).compactor().compact()
    assert age_off_archive(root, days=1, now_ms=later_ms(2)) == AgedOff(waiting=tuple(archived(root)))


def test_a_file_that_is_not_the_ledgers_is_set_aside_and_not_reported_as_removed(site: Site) -> None:
    root = site.root
    keep(site, "a", "b")
    first, second = archived(root)
    (entries,) = read_entries((root / second).read_bytes())
    rows = list(map(ArchivedEntry.of, entries))
    forged, _ = encode_entries(Path(second).name.partition("-")[0], rows, None)
    (root / second).write_bytes(forged)
    done = age_off_archive(root, days=1, now_ms=later_ms(2))
    assert done.removed == (first,)
    assert [one.path for one in list_quarantined(root)] == [second]


def test_an_age_off_that_cannot_read_a_compacted_file_says_which(site: Site) -> None:
    root = site.root
    keep(site, "a")
    export(root, open_destination(str(root.with_name("there"))))
    (damaged,) = Layout(root).compacted()
    damaged.write_bytes(b"damaged")
    with pytest.raises(OSError, match=f"{damaged} is damaged"):
        age_off_archive(root, days=1, now_ms=later_ms(2), only_exported=True)
