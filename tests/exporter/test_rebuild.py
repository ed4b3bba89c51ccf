"""The rebuild: the same rows as the live layout, wherever the events are stored."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st
from layouts import HOUR_MS, START_MS, DiesWhenDone, Layout, StoppedError, event, facet, split
from sites import Site

from waybill.exporter.rebuilding import WORK, Limits, RebuildError, Wanted, place_below, rebuild
from waybill.exporter.sources import EventsSource, JournalSource, LinesSource, Source, Stored
from waybill.facets import ProvenanceRecord, decode_event, fold, merge_all
from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings

ALLOWED = frozenset({"customer"})


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, provenance_annotations_allowed=ALLOWED)


def dataset(name: str) -> dict[str, str]:
    return {"namespace": "file", "name": name}


RUNS = st.lists(
    st.tuples(
        st.sampled_from(["r1", "r2", "r3", "r4"]),
        st.sampled_from(["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]),
        st.integers(0, 2 * HOUR_MS),
        st.sampled_from(
            [
                {},
                {"inputs": [dataset("in")]},
                {"outputs": [dataset("out/a")]},
                {"outputs": [dataset("out/b"), dataset("out/a")]},
                {"facets": facet(did="d1", annotations={"customer": "acme", "secret": "x"})},
                {"facets": facet(did="d2", systemName="own", dataSink="lake")},
                {"facets": {"errorMessage": {"message": "broken\nlines"}}},
                {"facets": {"waybill_inferred": {"reason": "stale"}}},
                {"facets": {**facet(did="d1"), "waybill_inferred": {"reason": "stale"}}},
                {"facets": {"tags": {"tags": [{"key": "waybill_filename", "value": "named.csv"}]}}},
            ]
        ),
    ),
    min_size=1,
    max_size=14,
)


def flushed(
    settings: Settings, items: Sequence[tuple[Kind, bytes, str]], cuts: Sequence[int] = ()
) -> Journal:
    """The journal of a home with these entries, which was flushed at the cuts."""
    site = Site(settings)
    for some in split(items, cuts):
        site.journal.append_many(some)
        site.flush()
    return site.journal


def wanted_by(settings: Settings) -> Wanted:
    return Wanted(system_name=settings.system_name, rule=settings.annotation_rule)


def rows(root: Path) -> list[ProvenanceRecord]:
    assert not Layout(root).raw()
    assert not (root / WORK).exists()
    return Layout(root).rows()


def as_lines(journal: Journal, path: Path) -> Path:
    bodies = [entry.body for entry in journal.read(0) if entry.kind is Kind.OPENLINEAGE]
    path.write_bytes(b"".join(body + b"\n" for body in bodies))
    return path


# -- the same rows -----------------------------------------------------------------------------------------


@given(RUNS, st.lists(st.integers(0, 20), max_size=2), st.randoms(use_true_random=False))
@hypothesis_settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_events_rebuild_to_the_rows_of_the_live_layout_from_every_source(
    tmp_path_factory: pytest.TempPathFactory,
    settings: Settings,
    runs: list[tuple[str, str, int, dict[str, object]]],
    cuts: list[int],
    chance: random.Random,
) -> None:
    folder = tmp_path_factory.mktemp("site")
    own = msgspec.structs.replace(settings, home=folder / "home", root=folder / "live")
    bodies = [event(run, kind, at_ms, **more) for run, kind, at_ms, more in runs]
    items = [(Kind.OPENLINEAGE, body, "") for body in bodies]
    journal = flushed(own, items, cuts)
    live = rows(own.root)
    lines = as_lines(journal, folder / "events.jsonl")
    shuffled = lines.read_bytes().splitlines(keepends=True)
    chance.shuffle(shuffled)
    (folder / "shuffled.jsonl").write_bytes(b"".join(shuffled + shuffled[:3]))
    sources: list[Source] = [
        JournalSource(own.home),
        EventsSource(own.root),
        LinesSource((lines,)),
        LinesSource((folder / "shuffled.jsonl",)),
    ]
    for at, source in enumerate(sources):
        assert isinstance(source, Source)
        report = rebuild(source, folder / f"again{at}", wanted_by(own))
        assert report.is_whole
        assert rows(folder / f"again{at}") == live
    journal.close()


def test_records_and_stamps_come_back_from_journal_and_archive(tmp_path: Path, settings: Settings) -> None:
    record = {"did": "d", "finalState": "COMPLETE", "created": START_MS, "completed": START_MS + 5}
    items = [
        (Kind.PROVENANCE, json.dumps([record, {**record, "systemName": "own"}]).encode(), "stamped"),
        (Kind.OPENLINEAGE, event("r", "COMPLETE", 7, facets=facet(did="e")), "other"),
        (Kind.OPENLINEAGE, event("s", "COMPLETE", 7, facets=facet(did="f")), ""),
    ]
    journal = flushed(settings, items)
    sources: tuple[Source, ...] = (JournalSource(settings.home), EventsSource(settings.root))
    for at, source in enumerate(sources):
        report = rebuild(source, tmp_path / f"again{at}", wanted_by(settings))
        assert (report.entries, report.records) == (4, 4)
        found = rows(tmp_path / f"again{at}")
        assert found == rows(settings.root)
        assert {row.system_name for row in found} == {"stamped", "own", "other", "tests"}
    journal.close()


def test_a_rebuild_into_a_root_that_has_rows_merges(tmp_path: Path, settings: Settings) -> None:
    flushed(settings, [(Kind.OPENLINEAGE, event("r", "COMPLETE", 1), "")]).close()
    before = rows(settings.root)
    path = tmp_path / "more.jsonl"
    path.write_bytes(event("r", "COMPLETE", 1) + b"\n" + event("new", "COMPLETE", 2))
    for _ in range(2):
        rebuild(LinesSource((path,)), settings.root, wanted_by(settings))
        assert [row.did for row in rows(settings.root)] == ["r", "new"]
        assert rows(settings.root)[:1] == before


# -- restrictions ------------------------------------------------------------------------------------------


def test_restrictions_choose_whole_rows_and_never_change_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(
        b"\n".join(
            [
                event("r", "START", 0, inputs=[dataset("in")]),
                event("r", "COMPLETE", HOUR_MS + 5),
                event("early", "COMPLETE", 3),
                event("other", "COMPLETE", HOUR_MS + 5, facets=facet(did="d", systemName="core")),
            ]
        )
    )

    def dids(**restrictions: object) -> list[str]:
        root = tmp_path / msgspec.json.encode(restrictions, order="sorted").hex()[:80]
        rebuild(LinesSource((path,)), root, Wanted(system_name="host", **restrictions))  # type: ignore[arg-type]
        return [row.did for row in find(root)]

    assert sorted(dids()) == ["d", "early", "r"]
    assert dids(until_ms=START_MS + HOUR_MS) == ["early"]
    assert dids(systems=["core"]) == ["d"]
    assert dids(since_ms=START_MS + HOUR_MS + 5, systems=["edge"]) == ["r"]
    (row,) = [row for root in tmp_path.iterdir() if root.is_dir() for row in find(root) if row.did == "r"][:1]
    assert (row.created, row.data_source) == (START_MS, "file/in")


# -- files of JSON lines -----------------------------------------------------------------------------------


BODIES = [event(f"r{at}", "COMPLETE", at * 60_000, note="ü" * at) for at in range(50)]
EXPECTED = fold([decode_event(body) for body in BODIES], system_name="host")  # type: ignore[misc]


def compress_plain(data: bytes) -> bytes:
    return data


def gzip_members(data: bytes) -> bytes:
    middle = data.index(b"\n", len(data) // 2) + 1
    return gzip.compress(data[:middle]) + gzip.compress(data[middle:])


def zstd_frames(data: bytes) -> bytes:
    middle = data.index(b"\n", len(data) // 2) + 1
    return zstandard.compress(data[:middle]) + zstandard.compress(data[middle:])


@pytest.mark.parametrize(
    ("compress", "end"),
    [(compress_plain, b""), (compress_plain, b"\n\n \n"), (gzip_members, b"\n"), (zstd_frames, b"\n")],
)
def test_lines_are_read_plain_or_compressed_whatever_the_file_is_called(
    tmp_path: Path, compress: Callable[[bytes], bytes], end: bytes
) -> None:
    (tmp_path / "log").write_bytes(compress(b"\n".join(BODIES) + end))
    report = rebuild(LinesSource((tmp_path / "log",)), tmp_path / "root", Wanted(system_name="host"))
    assert report.is_whole
    assert (report.entries, report.parts) == (50, 1)
    assert rows(tmp_path / "root") == EXPECTED


@pytest.mark.parametrize("part_bytes", [1, 100, 257, 5_000])
def test_wherever_a_file_is_cut_each_line_is_read_once(tmp_path: Path, part_bytes: int) -> None:
    (tmp_path / "log").write_bytes(b"\n".join(BODIES) + b"\n")
    source = LinesSource((tmp_path / "log",), part_bytes)
    found = [stored for part in source.parts() for batch in source.read(part) for stored in batch]
    assert [one.body.rstrip(b"\n") for one in found] == BODIES
    data = (tmp_path / "log").read_bytes()
    assert all(data[one.at :].startswith(one.body) for one in found)


def test_what_is_no_event_is_counted_and_costs_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(BODIES[0] + b"\nnonsense\n[]\n" + BODIES[1] + b"\n" + BODIES[2][:40])
    report = rebuild(LinesSource((tmp_path / "log",)), tmp_path / "root", Wanted(system_name="host"))
    assert (report.entries, report.unreadable, report.is_whole) == (5, 3, False)
    assert f"byte {len(BODIES[0]) + 1:,} of {tmp_path / 'log'}" in (report.first_unreadable or "")
    assert rows(tmp_path / "root") == EXPECTED[:2]


@pytest.mark.parametrize(
    ("lines", "lost", "kept"),
    [
        ([b"\xef\xbb\xbf" + BODIES[0], BODIES[1]], 0, 2),
        ([BODIES[0] + BODIES[1], BODIES[2]], 0, 3),
        ([BODIES[0] + b" \t" + BODIES[1] + BODIES[2], BODIES[3]], 0, 4),
        ([BODIES[5][:60] + BODIES[0], BODIES[1]], 1, 2),
        ([BODIES[5][:-1] + BODIES[0], BODIES[1]], 1, 2),
        ([BODIES[0] + BODIES[5][:60], BODIES[1]], 1, 2),
        ([BODIES[0], BODIES[1], bytes(200)], 1, 2),
    ],
)
def test_what_a_dying_program_left_of_a_line_hides_no_event_and_is_counted(
    tmp_path: Path, lines: list[bytes], lost: int, kept: int
) -> None:
    (tmp_path / "log").write_bytes(b"\n".join(lines))
    report = rebuild(LinesSource((tmp_path / "log",)), tmp_path / "root", Wanted(system_name="host"))
    assert (report.entries, report.unreadable) == (kept + lost, lost)
    assert rows(tmp_path / "root") == EXPECTED[:kept]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_damaged_file_is_named_and_the_others_are_read(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "a").write_bytes(compress(BODIES[0] * 50)[:-30])
    (tmp_path / "b").write_bytes(BODIES[1])
    report = rebuild(LinesSource((tmp_path,)), tmp_path.with_name("root"), Wanted(system_name="host"))
    assert not report.is_whole
    (damaged,) = report.damaged
    assert f"{tmp_path / 'a'} is damaged" in damaged
    assert EXPECTED[1] in rows(tmp_path.with_name("root"))


# -- memory, resumption, processes -------------------------------------------------------------------------


class Unreliable(msgspec.Struct, frozen=True):
    """A source that breaks when it is read for the N-th time; a file contains the count."""

    lines: LinesSource
    counter: Path
    breaks_at: int

    def describe(self) -> str:
        return "unreliable"

    def parts(self) -> list[str]:
        return self.lines.parts()

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        with self.counter.open("a") as file:
            file.write("x")
        if self.counter.stat().st_size == self.breaks_at:
            raise ConnectionError("the line is cut")
        return self.lines.read(part)

    def place(self, part: str, at: int) -> str:
        return self.lines.place(part, at)


SMALL = Limits(records=2, runs=2, fold_bytes=1)
"""All bounds are tight."""


def small(path: Path) -> LinesSource:
    """A file with many parts."""
    return LinesSource((path,), 700)


def mixed(path: Path) -> tuple[Path, list[ProvenanceRecord]]:
    """Runs whose events are far apart, with and without the facet, and their records."""
    bodies = [event(f"r{at}", "START", at, inputs=[dataset(f"in{at}")]) for at in range(12)]
    bodies += [event(f"f{at}", "START", at, facets=facet(did=f"d{at}")) for at in range(12)]
    bodies += [event(f"r{at}", "COMPLETE", HOUR_MS + at, outputs=[dataset("o")]) for at in range(12)]
    bodies += [event(f"f{at}", "COMPLETE", at, facets=facet(did=f"d{at}")) for at in range(12)]
    bodies += [event(f"r{at}", "FAIL", HOUR_MS + at) for at in range(0, 12, 3)]
    path.write_bytes(b"\n".join(bodies))
    return path, fold([decode_event(body) for body in bodies], system_name="host")  # type: ignore[misc]


def test_runs_and_records_that_fit_into_no_memory_are_spilled_and_come_together(tmp_path: Path) -> None:
    path, expected = mixed(tmp_path / "log")
    report = rebuild(small(path), tmp_path / "root", Wanted(system_name="host"), limits=SMALL)
    assert report.parts > 10
    assert merge_all(rows(tmp_path / "root")) == expected


def test_a_rebuild_that_was_cut_short_anywhere_goes_on_and_reads_nothing_twice(tmp_path: Path) -> None:
    path, expected = mixed(tmp_path / "log")
    parts = len(small(path).parts())
    source = Unreliable(small(path), tmp_path / "count", parts // 2)
    with pytest.raises(ConnectionError):
        rebuild(source, tmp_path / "root", Wanted(system_name="host"), limits=SMALL)
    path.write_bytes(path.read_bytes() + b"\nwhat came meanwhile is for the next rebuild")
    report = rebuild(source, tmp_path / "root", Wanted(system_name="host"), limits=SMALL)
    assert report.resumed == parts // 2 - 1
    assert source.counter.stat().st_size == parts + 1
    assert merge_all(rows(tmp_path / "root")) == expected


def test_what_a_rebuild_left_that_died_when_it_was_done_hides_nothing_from_the_next(tmp_path: Path) -> None:
    source, root, wanted = LinesSource((tmp_path / "log",)), tmp_path / "root", Wanted(system_name="host")
    (tmp_path / "log").write_bytes(event("r0", "COMPLETE", 0))
    with pytest.raises(StoppedError):
        rebuild(source, root, wanted, files=DiesWhenDone())
    assert list((root / WORK).glob("*/runs-*"))
    (tmp_path / "log").write_bytes(event("r0", "COMPLETE", 0) + b"\n" + event("r1", "COMPLETE", 1))
    assert rebuild(source, root, wanted).resumed == 0
    assert [row.did for row in rows(root)] == ["r0", "r1"]


def test_a_rebuild_of_another_format_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\n".join(BODIES))
    source, root, wanted = LinesSource((tmp_path / "log",)), tmp_path / "root", Wanted(system_name="host")
    job = place_below(root, source, wanted)
    assert isinstance(job, Path)
    job.mkdir(parents=True)
    plan = {"node": "00", "source": source.describe(), "parts": ["0-9:none"], "format": 1}
    (job / "plan.json").write_text(json.dumps(plan))
    (job / "runs-0000000.arrow").write_bytes(b"of another format")
    report = rebuild(source, root, wanted)
    assert (report.resumed, report.entries) == (0, len(BODIES))
    assert rows(root) == EXPECTED


def test_an_hour_that_cannot_be_compacted_is_taken_up_again(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\n".join([event("r0", "COMPLETE", 0), event("r1", "COMPLETE", HOUR_MS)]))
    source, root = LinesSource((tmp_path / "log",)), tmp_path / "root"
    blocked = root / "provenance/compacted/edge/20260101/00.parquet"
    blocked.mkdir(parents=True)
    report = rebuild(source, root, Wanted(system_name="host"))
    assert (len(report.failed), report.is_whole) == (1, False)
    blocked.rmdir()
    again = rebuild(source, root, Wanted(system_name="host"))
    assert (again.resumed, again.is_whole) == (1, True)
    assert [row.did for row in rows(root)] == ["r0", "r1"]


def test_a_damaged_file_of_the_root_is_set_aside_and_told(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(event("r0", "COMPLETE", 0))
    source, root = LinesSource((tmp_path / "log",)), tmp_path / "root"
    (path,) = rebuild(source, root, Wanted(system_name="host")).files
    (root / path).write_bytes(b"nonsense")
    report = rebuild(source, root, Wanted(system_name="host"))
    assert ([one.path for one in report.aside], report.files) == ([path], (path,))
    assert not report.is_whole
    assert [row.did for row in rows(root)] == ["r0"]


def test_several_processes_give_the_same_and_progress_is_told(tmp_path: Path) -> None:
    path, expected = mixed(tmp_path / "log")
    told: list[tuple[str, int, int]] = []
    report = rebuild(
        LinesSource((path,), 4_000),
        tmp_path / "root",
        Wanted(system_name="host"),
        workers=2,
        on_progress=lambda *said: told.append(said),
    )
    assert told[0] == ("reading", 0, report.parts)
    assert ("reading", report.parts, report.parts) in told
    assert told[-1] == ("compacting", 2, 2)
    assert merge_all(rows(tmp_path / "root")) == expected


def test_the_same_rebuild_twice_at_once_is_declined(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(BODIES[0])

    def again(what: str, _done: int, _total: int) -> None:
        if what == "reading":
            with pytest.raises(RebuildError, match="running in another process"):
                rebuild(LinesSource((tmp_path / "log",)), tmp_path / "root", Wanted(system_name="host"))

    rebuild(
        LinesSource((tmp_path / "log",)), tmp_path / "root", Wanted(system_name="host"), on_progress=again
    )
    assert rows(tmp_path / "root") == EXPECTED[:1]


def test_an_event_with_the_facet_that_cannot_be_read_does_not_silence_its_run(tmp_path: Path) -> None:
    unreadable = event("r", "COMPLETE", 5, facets=facet(did="d", created="never"))
    (tmp_path / "lines").write_bytes(b"\n".join([unreadable, event("r", "FAIL", 6)]))
    report = rebuild(LinesSource((tmp_path / "lines",)), tmp_path / "root", Wanted(system_name="x"))
    assert (report.unreadable, report.records) == (1, 1)
    assert [row.did for row in Layout(tmp_path / "root").rows()] == ["r"]
