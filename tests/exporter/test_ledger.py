"""Seals and the ledger: altered, removed and inserted files are findings; the exporter's changes are not."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from events import event
from growth import check_linear
from layouts import HOUR_MS, Layout, StoppedError, StoppingFiles, findings, kinds, record

from waybill.exporter import Compactor, Wanted, age_off, export, open_destination, rebuild
from waybill.exporter.compaction import Retraction
from waybill.exporter.directory import raw_hours
from waybill.exporter.ledger import Changes, LedgerState, hold_against_ledger, holding, read_ledger
from waybill.exporter.names import Hour
from waybill.exporter.sources import LinesSource
from waybill.exporter.verification import accept_findings
from waybill.facets import record_key
from waybill.facets.arrow import to_table
from waybill.transport.files import Files

FILE = "provenance/compacted/edge/20260101/00.parquet"
NEXT = "provenance/compacted/edge/20260101/01.parquet"
LEDGER = "provenance/ledger"
FAR_MS = 4_000_000_000_000


def footer(path: Path, key: str) -> str | None:
    value = pq.read_metadata(path).metadata.get(key.encode())
    return None if value is None else value.decode()


def add(layout: Layout, did: str, at_ms: int = 0) -> None:
    layout.add(record(did, at_ms=at_ms))


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Two hours, the first of which was written twice."""
    layout = Layout(tmp_path_factory.mktemp("filed"))
    add(layout, "a")
    add(layout, "b", HOUR_MS)
    add(layout, "c")
    return layout


@pytest.fixture
def layout(filed: Layout, root: Path) -> Layout:
    return filed.copy(root)


def test_a_file_names_the_one_that_it_replaced(layout: Layout) -> None:
    first, second = (layout.root / path for path in (FILE, NEXT))
    seal = footer(first, "waybill.seal")
    assert footer(second, "waybill.before") is None
    add(layout, "d")
    assert footer(first, "waybill.before") == seal
    assert footer(first, "waybill.seal") not in {seal, None}
    assert kinds(layout.root) == []


def test_any_byte_that_is_changed_is_found(layout: Layout, seed: int) -> None:
    path = layout.root / FILE
    content = path.read_bytes()
    chance = random.Random(seed)  # noqa: S311 - nothing is secret here
    for at in {*chance.sample(range(len(content)), 16), 0, len(content) - 1}:
        changed = bytearray(content)
        changed[at] ^= 1 << (at % 8)
        path.write_bytes(changed)
        assert {name for name, _ in kinds(layout.root)} == {FILE}, at
    path.write_bytes(content)
    assert kinds(layout.root) == []


def test_a_file_that_is_sealed_and_not_recorded_is_found(layout: Layout, tmp_path: Path) -> None:
    other = Layout(tmp_path / "other")
    other.write(record("forged"), node="f0f0")
    other.compactor().compact()
    shutil.copy(other.root / FILE, layout.root / FILE)
    shutil.copytree(layout.root / "provenance/compacted/edge", layout.root / "provenance/compacted/slipped")
    found = kinds(layout.root)
    assert (FILE, "unrecorded") in found
    assert (FILE.replace("edge", "slipped"), "unrecorded") in found
    assert not any(path == NEXT for path, _ in found)


def test_a_file_without_a_seal_that_is_slipped_in_or_put_in_anothers_place_is_found(layout: Layout) -> None:
    slipped = "provenance/compacted/edge/20260101/02.parquet"
    rows = [record("z", at_ms=2 * HOUR_MS)]
    pq.write_table(to_table(rows), layout.root / slipped)
    pq.write_table(pq.read_table(layout.root / NEXT).replace_schema_metadata(None), layout.root / NEXT)
    assert kinds(layout.root) == [(NEXT, "unrecorded"), (slipped, "unrecorded")]


def entries(root: Path) -> list[Path]:
    return sorted((root / LEDGER).rglob("*.json"))


def test_an_entry_that_is_changed_or_left_out_is_found(layout: Layout) -> None:
    first, second, third = entries(layout.root)
    content = first.read_bytes()
    first.write_bytes(json.dumps({**json.loads(content), "at_ms": 1}).encode())
    assert kinds(layout.root) == [(LEDGER, "ledger")]
    first.unlink()
    assert (LEDGER, "ledger") in kinds(layout.root)
    first.write_bytes(content)
    assert kinds(layout.root) == []
    second.unlink()
    assert (LEDGER, "ledger") in kinds(layout.root)
    second.write_bytes(third.read_bytes())
    assert (LEDGER, "ledger") in kinds(layout.root)
    second.write_bytes(b"{")
    assert (LEDGER, "ledger") in kinds(layout.root)


def test_what_the_exporter_itself_removes_is_recorded(layout: Layout, tmp_path: Path) -> None:
    taken = Retraction(layout.write(), frozenset({record_key(record("b", at_ms=HOUR_MS))}))
    layout.compactor().compact([], retraction=taken)
    assert kinds(layout.root) == []
    assert age_off(layout.root, days=1, now_ms=FAR_MS).removed == (FILE, NEXT)
    assert kinds(layout.root) == []
    add(layout, "late")
    assert kinds(layout.root) == []
    export(layout.root, open_destination(str(tmp_path / "there")), delete_after=True)
    assert kinds(layout.root) == []
    assert [json.loads(entry.read_bytes())["before"] != "" for entry in entries(layout.root)] == [
        False,
        *[True] * 6,
    ]


def test_what_a_rebuild_changes_is_recorded(layout: Layout, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_bytes(event("r", at="2026-01-01T00:00:01Z"))
    rebuild(LinesSource((events,)), layout.root, Wanted(system_name="edge"))
    assert "r" in {row.did for row in layout.rows()}
    assert kinds(layout.root) == []


def test_a_clock_that_is_put_back_breaks_no_chain(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    yesterday_ns = time.time_ns() - 86_400 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: yesterday_ns)
    add(layout, "d")
    add(layout, "e", HOUR_MS)
    assert kinds(layout.root) == []
    assert [int(entry.stem) for entry in entries(layout.root)] == [1, 2, 3, 4, 5]


def test_a_file_that_an_export_merges_names_the_one_at_the_destination(
    layout: Layout, tmp_path: Path
) -> None:
    there = open_destination(str(tmp_path / "there"))
    export(layout.root, there, delete_after=True)
    seal = footer(tmp_path / "there" / FILE, "waybill.seal")
    add(layout, "late")
    export(layout.root, there)
    assert footer(tmp_path / "there" / FILE, "waybill.before") == seal
    assert kinds(tmp_path / "there") == []


def test_a_compaction_with_nothing_new_leaves_no_entry(layout: Layout) -> None:
    before = entries(layout.root)
    assert layout.compactor().compact([Hour("20260101", "00")]).published == ()
    assert entries(layout.root) == before


# -- days that are over ------------------------------------------------------------------------------------


class Calendar:
    """A clock that the test sets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._now_ns = time.time_ns()
        patch.setattr(time, "time_ns", lambda: self._now_ns)

    def pass_days(self, days: int) -> None:
        self._now_ns += days * 86_400 * 10**9


def folded(root: Path) -> list[list[str]]:
    """The files of each day of the ledger."""
    return [sorted(path.name for path in day.iterdir()) for day in sorted((root / LEDGER).iterdir())]


def test_a_day_that_is_over_becomes_one_file_with_the_chain_as_it_was(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    calendar = Calendar(monkeypatch)
    before = read_ledger(layout.root)
    calendar.pass_days(1)
    add(layout, "d")
    add(layout, "e")
    assert folded(layout.root) == [
        ["0000000001-0000000003.jsonl"],
        ["0000000004.json", "0000000005.json"],
    ]
    after = read_ledger(layout.root)
    assert before is not None
    assert after is not None
    assert before.heads < after.heads
    assert (after.entries, after.doubts) == (5, {})
    assert kinds(layout.root) == []
    calendar.pass_days(30)
    add(layout, "f")
    assert [len(day) for day in folded(layout.root)] == [1, 1, 1]
    assert kinds(layout.root) == []


@pytest.mark.parametrize("change", ["a byte", "a line", "the file"])
def test_what_is_changed_in_a_days_file_is_found(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    Calendar(monkeypatch).pass_days(1)
    add(layout, "d")
    (day,) = (layout.root / LEDGER).rglob("*.jsonl")
    lines = day.read_bytes().splitlines(keepends=True)
    if change == "a byte":
        day.write_bytes(b"".join(lines).replace(b'"at_ms":1', b'"at_ms":2', 1))
    elif change == "a line":
        day.write_bytes(b"".join(lines[:1] + lines[2:]))
    else:
        day.unlink()
    assert (LEDGER, "ledger") in kinds(layout.root)


def test_a_crash_at_any_step_when_a_day_is_folded_breaks_no_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calendar = Calendar(monkeypatch)
    for at in range(1, 100, 5):
        layout = Layout(tmp_path / str(at))
        for did in "abc":
            add(layout, did)
        calendar.pass_days(1)
        layout.write(record("d"))
        try:
            Compactor(layout.root, nodes=["a1b2c3"], files=StoppingFiles(at), workers=1).compact()
            survived = True
        except StoppedError:
            survived = False
        assert {kind for _, kind in kinds(layout.root)} <= {"left"}
        add(layout, "e")
        assert kinds(layout.root) == []
        calendar.pass_days(1)
        add(layout, "f")
        assert kinds(layout.root) == []
        assert [len(day) for day in folded(layout.root)] == [1] * len(folded(layout.root))
        if survived:
            return
    pytest.fail("it never ran to its end")


def test_a_ledger_is_read_whole_while_its_days_are_folded(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    calendar = Calendar(monkeypatch)
    stop, seen = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            state = read_ledger(layout.root)
            seen.append((state.doubts, state.entries) if state else ({}, 0))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(12):
        calendar.pass_days(number % 2)
        add(layout, f"n{number}")
    stop.set()
    reader.join()
    assert [broken for broken, _ in seen if broken] == []
    counts = [count for _, count in seen]
    assert counts == sorted(counts)


# -- laundering --------------------------------------------------------------------------------------------


def forged(root: Path, tmp_path: Path) -> bytes:
    """A sealed file that names the existing one as its predecessor."""
    other = Layout(tmp_path / "forger")
    (other.root / FILE).parent.mkdir(parents=True)
    shutil.copy(root / FILE, other.root / FILE)
    other.write(record("forged"), node="f0f0")
    other.compactor().compact()
    return (other.root / FILE).read_bytes()


def tamper(how: str, layout: Layout, tmp_path: Path) -> None:
    path = layout.root / FILE
    if how == "deleted":
        path.unlink()
    elif how == "older":
        older = path.read_bytes()
        add(layout, "newer")
        path.write_bytes(older)
    else:
        path.write_bytes(forged(layout.root, tmp_path))
    if "noted" in how:
        (note,) = (layout.root / "provenance/seals").rglob("00.json")
        note.write_text(json.dumps({FILE: footer(path, "waybill.seal")}))


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("deleted", ["removed"]),
        ("older", ["damaged"]),
        ("forged", ["damaged"]),
        ("forged and noted", ["unrecorded"]),
    ],
)
def test_what_was_tampered_with_stays_a_finding_over_compactions_until_it_is_accepted(
    layout: Layout, tmp_path: Path, how: str, found: list[str]
) -> None:
    tamper(how, layout, tmp_path)
    for did in ("next", "after next"):
        add(layout, did)
        assert [one.kind for one in findings(layout.root)] == found
    assert layout.compactor().compact().aside == ()
    (one,) = findings(layout.root)
    accept_findings(layout.root, [one], "seen")
    assert [(again.id, again.accepted) for again in findings(layout.root)] == [(one.id, "seen")]
    tamper("deleted", layout, tmp_path)
    assert sorted(again.accepted is None for again in findings(layout.root)) == [False, True]


def test_an_older_or_forged_file_is_quarantined_and_never_merged(layout: Layout, tmp_path: Path) -> None:
    content = forged(layout.root, tmp_path)
    (layout.root / FILE).write_bytes(content)
    layout.write(record("next"))
    (aside,) = layout.compactor().compact().aside
    assert "in the ledger its seal is" in aside.reason
    assert (layout.root / aside.kept).read_bytes() == content
    assert [row.did for row in layout.rows()] == ["next", "b"]
    (layout.root / aside.kept).unlink()
    assert [one.path for one in findings(layout.root)] == [aside.kept]


def test_a_file_that_is_accepted_is_the_ledgers_from_then_on(layout: Layout, tmp_path: Path) -> None:
    (layout.root / FILE).write_bytes(forged(layout.root, tmp_path))
    accept_findings(layout.root, findings(layout.root))
    layout.write(record("next"))
    assert layout.compactor().compact().aside == ()
    assert {row.did for row in layout.rows()} >= {"forged", "next"}
    assert findings(layout.root) == []


class MeanwhileFiles(Files):
    """Makes somebody else start too, when the first file gets its name."""

    def __init__(self, other: threading.Thread) -> None:
        self.other = other

    def rename(self, source: Path, target: Path) -> None:
        if self.other.ident is None:
            self.other.start()
            self.other.join(0.5)
        super().rename(source, target)


def test_a_file_that_is_replaced_before_its_finding_is_accepted_is_not_the_ledgers(
    layout: Layout, tmp_path: Path
) -> None:
    (layout.root / FILE).write_bytes(forged(layout.root, tmp_path))
    accepting = threading.Thread(target=accept_findings, args=(layout.root, findings(layout.root)))
    layout.write(record("next"))
    Compactor(layout.root, files=MeanwhileFiles(accepting)).compact()
    accepting.join()
    assert [one.kind for one in findings(layout.root)] == ["damaged"]


def test_an_age_off_removes_no_file_that_is_not_the_ledgers(layout: Layout, tmp_path: Path) -> None:
    (layout.root / FILE).write_bytes(forged(layout.root, tmp_path))
    assert age_off(layout.root, days=1, now_ms=FAR_MS).removed == (NEXT,)
    assert [one.kind for one in findings(layout.root)] == ["damaged"]


def test_a_file_that_is_deleted_before_a_crash_is_mended_is_found(layout: Layout) -> None:
    layout.write(record("d"))
    with pytest.raises(StoppedError):
        Compactor(layout.root, nodes=("a1b2c3",), files=StoppingFiles(12), workers=1).compact()
    (layout.root / FILE).unlink()
    add(layout, "e")
    add(layout, "f")
    assert kinds(layout.root) == [(FILE, "removed")]


def test_a_compaction_reads_the_ledger_only_where_a_file_is_not_the_noted_one(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def noted(root: Path) -> LedgerState | None:
        read.append(root)
        return read_ledger(root)

    monkeypatch.setattr(holding, "read_ledger", noted)
    add(layout, "d")
    add(layout, "new hour", 9 * HOUR_MS)
    assert read == []
    shutil.rmtree(layout.root / "provenance/seals")
    add(layout, "e")
    add(layout, "f")
    assert read == [layout.root]
    assert kinds(layout.root) == []


def test_a_root_without_a_ledger_begins_one_with_the_files_that_are_there(layout: Layout) -> None:
    shutil.rmtree(layout.root / LEDGER)
    shutil.rmtree(layout.root / "provenance/seals")
    add(layout, "d", HOUR_MS)
    add(layout, "e")
    assert kinds(layout.root) == []
    assert sorted(row.did for row in layout.rows()) == ["a", "b", "c", "d", "e"]


@pytest.mark.exhaustive
def test_files_of_many_systems_are_held_against_the_ledger_in_time_that_grows_as_they_do(
    tmp_path: Path,
) -> None:
    def prepare(number: int) -> Callable[[], object]:
        layout = Layout(tmp_path / str(number))
        layout.write(*(record(system_name=f"system-{at}", at_ms=at * HOUR_MS) for at in range(number)))
        hours = raw_hours(layout.root)
        layout.compactor().compact()
        return lambda: hold_against_ledger(layout.root, Files(), hours, Changes())

    check_linear(prepare, 60)


def test_a_change_reads_no_more_of_the_ledger_than_its_last_entry(layout: Layout) -> None:
    entries = sorted((layout.root / LEDGER).rglob("*.json"))
    assert len(entries) > 1
    entries[0].unlink()
    entries[0].mkdir()  # cannot be read
    add(layout, "x")
    assert "x" in [row.did for row in layout.rows()]
