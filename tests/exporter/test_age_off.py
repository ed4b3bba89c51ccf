from __future__ import annotations

import os
from pathlib import Path

import pytest
from layouts import HOUR_MS, START_MS, Layout, record

from waybill.exporter import age_off, check, export, open_destination
from waybill.exporter.compaction import Retraction
from waybill.exporter.retention import AgedOff
from waybill.facets import FinalState, record_key
from waybill.lineage import find

FILE = "provenance/compacted/edge/20260101/00.parquet"
NEXT = "provenance/compacted/edge/20260101/01.parquet"
CORE = "provenance/compacted/core/20260101/00.parquet"
LATE = "provenance/late/edge/20260101/00.parquet"
DAY_MS = 86_400_000
NOW_MS = START_MS + HOUR_MS + 3 * DAY_MS
"""Three days after the end of the first hour, to the millisecond."""


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Two hours of one system and one of another, all written when their hours ended."""
    layout = Layout(tmp_path_factory.mktemp("filed"))
    layout.add(record("a"), record("b", at_ms=HOUR_MS), record("c", system_name="core"))
    written_as_they_ended(layout)
    return layout


@pytest.fixture
def layout(filed: Layout, root: Path) -> Layout:
    return filed.copy(root)


def written_as_they_ended(layout: Layout) -> None:
    for path in layout.compacted():
        at_s = START_MS / 1_000 + 3_600 * (int(path.stem) + 1)
        os.utime(path, (at_s, at_s))


def there(layout: Layout) -> list[str]:
    return [str(path.relative_to(layout.root)) for path in layout.compacted()]


def test_what_ended_that_long_ago_goes_and_the_rest_stays(layout: Layout) -> None:
    assert age_off(layout.root, days=3, now_ms=NOW_MS - 1) == AgedOff()
    done = age_off(layout.root, days=3, now_ms=NOW_MS)
    assert (done.removed, done.waiting) == ((CORE, FILE), ())
    assert done.size_bytes > 0
    assert there(layout) == [NEXT]
    assert not (layout.root / CORE).parent.exists()


def test_a_system_may_be_kept_longer_or_shorter(layout: Layout) -> None:
    done = age_off(layout.root, days=3, days_by_system={"edge": 30, "core": 1}, now_ms=NOW_MS + HOUR_MS)
    assert done.removed == (CORE,)


def test_a_dry_run_only_says_what_would_go(layout: Layout) -> None:
    said = age_off(layout.root, days=3, dry_run=True, now_ms=NOW_MS)
    assert len(there(layout)) == 3
    assert age_off(layout.root, days=3, now_ms=NOW_MS) == said


def test_what_came_late_ages_from_its_arrival(layout: Layout) -> None:
    layout.add(record("late"))
    arrived_ms = int((layout.root / FILE).stat().st_mtime * 1_000)
    assert age_off(layout.root, days=3, now_ms=NOW_MS).removed == (CORE,)
    assert FILE not in age_off(layout.root, days=3, now_ms=arrived_ms + 3 * DAY_MS - 1_000).removed
    assert age_off(layout.root, days=3, now_ms=arrived_ms + 3 * DAY_MS + 1_000).removed == (FILE,)


def test_only_what_is_exported_everywhere_as_it_is_goes(layout: Layout, tmp_path: Path) -> None:
    nowhere = age_off(layout.root, days=3, only_exported=True, now_ms=NOW_MS)
    assert (nowhere.removed, nowhere.waiting) == ((), (CORE, FILE))
    first, second = (open_destination(str(tmp_path / name)) for name in ("first", "second"))
    export(layout.root, first)
    layout.add(record("late", system_name="core"))
    written_as_they_ended(layout)
    changed = age_off(layout.root, days=3, only_exported=True, dry_run=True, now_ms=NOW_MS)
    assert (changed.removed, changed.waiting) == ((FILE,), (CORE,))
    export(layout.root, second)
    export(layout.root, first)
    assert age_off(layout.root, days=3, only_exported=True, now_ms=NOW_MS).removed == (CORE, FILE)


def test_a_late_record_of_an_hour_that_has_gone_is_kept_until_it_is_exported(
    layout: Layout, tmp_path: Path
) -> None:
    there_ = open_destination(str(tmp_path / "there"))
    export(layout.root, there_)
    age_off(layout.root, days=3, now_ms=NOW_MS)
    late = record("late", system_name="edge")
    layout.write(late)
    assert find(layout.root)[-1] == late
    layout.compactor().compact()
    assert (there(layout), layout.raw()) == ([NEXT], [])
    assert [row.did for row in find(layout.root)] == ["b", "late"]
    assert [finding for one in check(layout.root) for finding in one.findings] == []
    forever = age_off(layout.root, days=3, now_ms=NOW_MS + 3_000 * DAY_MS)
    assert (forever.removed, forever.waiting) == ((NEXT,), (LATE,))
    assert export(layout.root, there_).merged == (LATE,)
    assert age_off(layout.root, days=3, now_ms=NOW_MS).removed == (LATE,)
    assert [row.did for row in find(tmp_path / "there")] == ["b", "late", "c", "a"]


def test_a_late_record_that_is_taken_back_leaves_the_late_file(layout: Layout) -> None:
    age_off(layout.root, days=3, now_ms=NOW_MS)
    wrong = record("late", final_state=FinalState.ERROR)
    layout.add(wrong, record("other"))
    layout.compactor().compact([], retraction=Retraction(layout.write(), frozenset({record_key(wrong)})))
    assert [row.did for row in find(layout.root)] == ["b", "other"]
