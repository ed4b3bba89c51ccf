from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from layouts import (
    FILES,
    NODE,
    START_MS,
    Layout,
    StoppedError,
    StoppingFiles,
    record,
    records_strategy,
    temporaries,
)

from waybill.exporter.compaction import Retraction, squash_hour
from waybill.exporter.directory import raw_files, raw_hours
from waybill.exporter.names import Hour, RawName, hour_of
from waybill.facets import ProvenanceRecord, merge_all, record_key
from waybill.lineage import find
from waybill.transport.files import Files


class _KeepingFiles(Files):
    """Dies when a file is about to be removed."""

    def remove(self, path: Path) -> None:
        raise StoppedError(path)


HOUR: Hour = hour_of(START_MS)


def raws(layout: Layout) -> list[RawName | None]:
    return [RawName.parse(path.name) for path in layout.raw()]


def test_many_small_files_become_one_of_the_whole_range_which_is_left_as_it_is(layout: Layout) -> None:
    for at in range(5):
        layout.write(record(f"did-{at}", at_ms=5 - at))
    assert squash_hour(layout.root, HOUR, node=NODE) == [RawName(NODE, 1, 50)]
    assert raws(layout) == [RawName(NODE, 1, 50)]
    assert squash_hour(layout.root, HOUR, node=NODE) == []
    assert sorted(one.did for one in find(layout.root)) == [f"did-{at}" for at in range(5)]


def test_a_large_file_is_left_alone_and_no_range_spans_it(layout: Layout) -> None:
    small = [layout.write(record(f"a{at}")) for at in range(2)]
    large = layout.write(*(record(f"did-{at}", filename=f"{at:0100}") for at in range(100)))
    small += [layout.write(record(f"b{at}")) for at in range(2)]
    sizes = {RawName.parse(path.name): path.stat().st_size for path in layout.raw()}
    made = squash_hour(layout.root, HOUR, node=NODE, large_bytes=sizes[large])
    assert made == [RawName(NODE, 1, 20), RawName(NODE, 31, 50)]
    assert raws(layout) == [made[0], large, made[1]]
    assert len(find(layout.root)) == 104


def test_no_file_becomes_much_larger_than_large(layout: Layout) -> None:
    for at in range(9):
        layout.write(record(f"did-{at}"))
    size_bytes = layout.raw()[0].stat().st_size
    assert squash_hour(layout.root, HOUR, node=NODE, large_bytes=size_bytes + 1) == [
        RawName(NODE, 1, 30),
        RawName(NODE, 31, 60),
        RawName(NODE, 61, 90),
    ]
    assert len(find(layout.root)) == 9


def test_an_older_file_waits_until_those_after_it_are_as_large_together(layout: Layout) -> None:
    sizes = []
    for at in range(32):
        layout.write(*(record(f"did-{at}-{more}", filename=f"{at}{more}" * 20) for more in range(20)))
        squash_hour(layout.root, HOUR, node=NODE)
        sizes.append(len(layout.raw()))
    assert 2 <= max(sizes) <= 8
    assert len(find(layout.root)) == 32 * 20


def test_files_of_another_journal_are_not_touched(layout: Layout) -> None:
    others = [layout.write(record(f"o{at}"), node="bb") for at in range(3)]
    layout.write(record("a"))
    layout.write(record("b"))
    squash_hour(layout.root, HOUR, node=NODE)
    assert raws(layout) == [RawName(NODE, 1, 20), *others]


def test_a_damaged_file_and_those_beside_it_stay_for_the_compaction_to_tell(layout: Layout) -> None:
    for at in range(3):
        layout.write(record(f"did-{at}"))
    layout.raw()[1].write_bytes(b"PAR1")
    before = raws(layout)
    assert squash_hour(layout.root, HOUR, node=NODE) == []
    assert raws(layout) == before


def test_what_a_compaction_has_read_is_not_joined_with_what_it_has_not(root: Path) -> None:
    # It published, and was stopped before the raw files were removed; retracted rows must not return with
    # them.
    layout = Layout(root)
    layout.write(record("gone"))
    layout.write(record("kept"))
    taken = Retraction(RawName(NODE, 21, 30), frozenset({record_key(record("gone"))}))
    with pytest.raises(StoppedError):
        Layout(root, _KeepingFiles()).compactor().compact(retraction=taken)
    layout.write(record("later"))
    layout.write(record("latest"))
    squash_hour(root, HOUR, node=NODE)
    layout.compactor().compact()
    assert sorted(one.did for one in find(root)) == ["kept", "later", "latest"]


@FILES
@given(st.lists(st.lists(records_strategy(), max_size=4), min_size=2, max_size=5), st.integers(1, 40))
def test_a_squash_stopped_anywhere_loses_nothing_and_the_next_one_ends_it(
    ranges: list[list[ProvenanceRecord]], stop_at: int
) -> None:
    wanted = merge_all(itertools.chain(*ranges))
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        for some in ranges:
            layout.write(*some)
        hours = sorted(raw_hours(layout.root))
        files = StoppingFiles(stop_at)
        try:
            for hour in hours:
                squash_hour(layout.root, hour, node=NODE, files=files)
        except StoppedError:
            assert merge_all(find(layout.root)) == wanted
            assert len(find(layout.root)) == len(wanted)
            for hour in hours:
                squash_hour(layout.root, hour, node=NODE)
        for hour in hours:
            ranges_left = [(raw.first, raw.last) for raw in raw_files(layout.root, hour)]
            assert all(one[1] < two[0] for one, two in itertools.pairwise(ranges_left))
        assert merge_all(find(layout.root)) == wanted
        layout.compactor().compact()
        assert merge_all(layout.rows()) == wanted
        assert layout.raw() == temporaries(layout.root) == []
