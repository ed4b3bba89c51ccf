"""Journals whose numbers were used before, and roots that were replaced."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from layouts import HOUR_MS, StoppedError, StoppingFiles, event, facet, findings, temporaries
from sites import NAMES, Site, archived_entries

from waybill.exporter.layout import write_again
from waybill.exporter.names import COMPACTED
from waybill.lineage import find
from waybill.transport import Kind, RootError, Settings
from waybill.transport.files import Files
from waybill.transport.root import JournalFile, adopt_root, check_root, known_root, plan_adoption, read_marker
from waybill.transport.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE_FILE = JournalFile(1, 1)
PARTS = 200


class Filed(Site):
    """A home whose entries are events of files, each named by its did."""

    def __init__(self, settings: Settings) -> None:
        self.acknowledged: set[str] = set()
        super().__init__(settings)

    def emit_files(self, *dids: str) -> None:
        self.emit(*map(of_file, dids))
        self.acknowledged.update(dids)

    def file(self, *dids: str) -> None:
        self.emit_files(*dids)
        self.flush()

    def copy(self, home: Path) -> None:
        """Copy the home's files while none is open, like a snapshot."""
        self.journal.close()
        shutil.copytree(self.settings.home, home)


def of_file(did: str, at_ms: int = 0) -> bytes:
    return event(f"run-{did}", "COMPLETE", at_ms, facets=facet(did=did))


def filed(root: Path) -> set[str]:
    return {record.did for record in find(root)}


def archived(root: Path) -> list[str]:
    """The dids of the archive's entries, one for each entry that is not a mark."""
    bodies = [entry.body for entry in archived_entries(root) if entry.kind is not Kind.MARK]
    return [json.loads(body)["run"]["runId"].removeprefix("run-") for body in bodies]


def published(root: Path) -> dict[Path, bytes]:
    """Every file that is published only once."""
    return {path: path.read_bytes() for path in root.glob("events/*/*/*.parquet")}


@pytest.fixture
def site(settings: Settings) -> Iterator[Filed]:
    made = Filed(settings)
    yield made
    made.close()


def check_all_there(site: Filed, before: dict[Path, bytes]) -> None:
    assert site.acknowledged - filed(site.root) == set()
    assert site.acknowledged - set(archived(site.root)) == set()
    assert {path: path.read_bytes() for path in before} == before, "nothing was overwritten"
    assert findings(site.root) == []


@pytest.mark.parametrize("reopened_by", ["emitter", "projections"])
@pytest.mark.parametrize("way", ["log lost", "put back"])
def test_a_journal_that_forgot_numbers_files_new_entries_under_another_node(
    site: Filed, tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str, reopened_by: str
) -> None:
    site.file(*(f"old-{at}" for at in range(20)))
    site.journal.checkpoint()
    site.copy(tmp_path / "snapshot")
    site.file(*(f"between-{at}" for at in range(PARTS)))
    node, before = site.journal.node, published(site.root)
    site.close()
    if way == "put back":
        for path in tmp_path.joinpath("snapshot").glob("journal.db*"):
            shutil.copyfile(path, site.settings.home / path.name)
        (site.settings.home / "journal.db-shm").unlink(missing_ok=True)
    else:
        for suffix in ("-wal", "-shm"):
            (site.settings.home / f"journal.db{suffix}").unlink()
    if reopened_by == "emitter":
        site.open()
        assert site.journal.node != node, "it has another one before anything is accepted"
    else:
        site.open(as_emitter=False)
    assert site.journal.last_seq() == 21
    site.file(*(f"new-{at}" for at in range(PARTS)))
    check_all_there(site, before)
    renewed = site.journal.nodes()[-1]
    assert renewed.lost == (22, 222)
    assert f"is known as {renewed.name} instead of {node} from now on: it was at entry 21" in caplog.text
    site.emit_files("one more")
    assert site.journal.node == site.journal.nodes()[-1].name != node


def test_a_copy_of_a_home_beside_the_original_has_a_node_of_its_own(site: Filed, tmp_path: Path) -> None:
    site.file("common")
    other = tmp_path / "clone"
    site.copy(other)
    clone = Filed(msgspec.structs.replace(site.settings, home=other))
    assert clone.journal.node != site.journal.node
    site.open()
    for each, name in ((site, "original"), (clone, "clone")):
        each.file(*(f"{name}-{at}" for at in range(PARTS)))
    clone.close()
    site.acknowledged |= clone.acknowledged
    check_all_there(site, {})
    assert len(archived(site.root)) == 2 * PARTS + 1


def test_two_homes_with_one_node_that_are_both_at_work_part_at_the_first_claim(
    site: Filed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like two machines made from one image: nothing distinguishes the files of their journals."""
    monkeypatch.setattr("waybill.transport.root.JournalFile.of", lambda _: ONE_FILE)
    site.file("common")
    site.copy(tmp_path / "clone")
    clone = Filed(msgspec.structs.replace(site.settings, home=tmp_path / "clone"))
    site.open()
    assert clone.journal.node == site.journal.node
    for at in range(PARTS // 20):
        for each, name in ((site, "original"), (clone, "clone")):
            each.emit_files(*(f"{name}-{at}-{of}" for of in range(20)))
            assert each.problems() == []
    for each in (site, clone):
        each.flush()
    assert clone.journal.nodes()[-1] != site.journal.nodes()[-1]
    clone.close()
    site.acknowledged |= clone.acknowledged
    check_all_there(site, {})


def test_a_crash_at_any_call_on_the_way_to_another_node_loses_nothing(
    settings: Settings, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - nothing is secret here
    for at in chance.sample(range(1, 60), 4):
        place = tmp_path / str(at)
        site = Filed(msgspec.structs.replace(settings, home=place / "home", root=place / "root"))
        site.file("common")
        site.copy(place / "snapshot")
        site.file("between")
        site.close()
        put_back = Filed(msgspec.structs.replace(site.settings, home=place / "snapshot"))
        put_back.emit_files("new", "newer")
        put_back.restart(StoppingFiles(at))
        with contextlib.suppress(StoppedError):
            put_back.flush()
        put_back.emit_files("newest")
        put_back.restart()
        put_back.flush()
        put_back.acknowledged |= site.acknowledged
        check_all_there(put_back, {})
        assert temporaries(site.root) == []
        put_back.close()


# -- a root that is not there --------------------------------------------------------------------------------


def adopt(site: Filed) -> int:
    """Adopt as the command does; return how many entries are filed once more."""
    adoption = plan_adoption(site.journal, site.root, NAMES)
    write_again(site.journal, adoption.cursors["layout"])
    adopt_root(site.journal, site.root, adoption)
    site.restart()
    return adoption.entries


def test_a_root_that_is_not_mounted_loses_nothing_is_told_and_recovers(site: Filed) -> None:
    root = site.root
    site.file("before")
    root.rename(root.with_name("unmounted"))
    root.mkdir()
    site.emit_files(*(f"meanwhile-{at}" for at in range(PARTS)))
    site.journal.mark(b"flush")
    for again in (False, True):
        problems = site.problems()
        assert len(problems) == len(NAMES)
        for problem in problems:
            assert "no waybill-root.json" in problem
            assert problem.endswith("mount it, or run `waybill root adopt`")
        assert list(root.iterdir()) == [], "nothing is written below the mount point"
        if not again:
            site.restart()
    for projection in (site.archive, site.layout):
        with contextlib.suppress(RootError):
            projection.finish()
    assert list(root.iterdir()) == []
    root.rmdir()
    root.with_name("unmounted").rename(root)
    assert site.problems() == []
    check_all_there(site, {})


@pytest.mark.parametrize(("folder", "name"), [("provenance", "layout"), ("events", "archive")])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_root_that_has_lost_a_folder_or_what_was_in_it_is_told_and_gets_what_the_journal_holds(
    site: Filed, folder: str, name: str, *, is_empty: bool
) -> None:
    root = site.root
    site.file("before")
    shutil.rmtree(root / folder)
    if is_empty:
        (root / folder).mkdir()
    site.emit_files("meanwhile")
    lost = f"what was in the folder {folder}" if is_empty else f"the folder {folder}"
    for again in (False, True):
        problems = site.problems()
        assert len(problems) == len(NAMES)
        assert f"{root} has lost {lost}, into which the {name} has filed" in problems[0]
        if not again:
            site.restart()
    with pytest.raises(RootError, match="waybill root adopt"):
        check_root(site.journal, root)
    assert plan_adoption(site.journal, root, NAMES).cursors[name] == 0
    adopt(site)
    site.flush()
    assert site.acknowledged == filed(root) == set(archived(root))
    # The ledger still knows of the archive's files.
    kinds = [finding.kind for finding in findings(root)]
    assert kinds == (["removed"] if folder == "events" else [])


def test_a_root_that_is_mounted_elsewhere_is_taken_silently(
    site: Filed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.file("before")
    before = published(site.root)
    shutil.copytree(site.root, tmp_path / "elsewhere")
    shutil.rmtree(site.root)
    site.root.symlink_to(tmp_path / "elsewhere")
    known = known_root(site.journal)
    site.restart()
    site.file("after")
    check_all_there(site, before)
    assert (len(site.journal.nodes()), caplog.text) == (1, "")
    assert known_root(site.journal) == known


def test_a_root_of_another_format_is_refused_and_left_as_it_is(site: Filed) -> None:
    site.file("before")
    marker = site.root / "waybill-root.json"
    marker.write_bytes(marker.read_bytes().replace(b'"format":1', b'"format":2'))
    files = {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()}
    site.emit_files("after")
    assert all("has format 2, and this Waybill reads format 1" in problem for problem in site.problems())
    with pytest.raises(RootError, match="use the Waybill that wrote it"):
        adopt_root(site.journal, site.root, plan_adoption(site.journal, site.root, NAMES))
    assert {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()} == files


def test_a_root_that_goes_away_while_it_is_written_moves_no_cursor(site: Filed) -> None:
    root = site.root
    site.file("before")
    cursor = site.journal.cursor("layout")
    site.emit_files("meanwhile")
    write = site.layout._writer.write_tables  # noqa: SLF001 - the moment after it is what this is about

    def unmounting(*args: object) -> object:
        hours = write(*args)  # type: ignore[arg-type]
        root.rename(root.with_name("unmounted"))
        return hours

    site.layout._writer.write_tables = unmounting  # type: ignore[method-assign, assignment] # noqa: SLF001
    assert "mount it" in str(site.layout.step().problem)
    assert site.journal.cursor("layout") == cursor
    root.with_name("unmounted").rename(root)
    site.restart()
    site.flush()
    check_all_there(site, {})


class Unmounting(Files):
    """A disk that is unmounted when the first compacted file has been published."""

    def __init__(self, root: Path, aside: Path) -> None:
        self.root = root
        self.aside = aside

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if target.is_relative_to(self.root / COMPACTED) and not self.aside.exists():
            self.root.rename(self.aside)


def test_a_root_that_goes_away_while_hours_are_compacted_gets_no_further_hour(site: Filed) -> None:
    root, aside = site.root, site.root.with_name("unmounted")
    site.acknowledged = {f"{hour:02}" for hour in range(12)}
    site.emit(*(of_file(did, at_ms=int(did) * HOUR_MS) for did in site.acknowledged))
    site.journal.mark(b"flush")
    site.restart(Unmounting(root, aside))
    assert "mount it" in str(site.problems())
    assert not root.exists()
    aside.rename(root)
    assert len(list((root / COMPACTED).rglob("*.parquet"))) == 1
    site.restart()
    site.flush()
    assert len(list((root / COMPACTED).rglob("*.parquet"))) == len(site.acknowledged)
    check_all_there(site, {})


def test_the_journal_keeps_what_an_older_copy_in_the_root_s_place_lacks(
    site: Filed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = site.root
    site.file("before")
    shutil.copytree(root, tmp_path / "copy")
    site.file(*(f"between-{at}" for at in range(PARTS)))
    shutil.rmtree(root)
    (tmp_path / "copy").rename(root)
    monkeypatch.setattr("waybill.transport.clock.time.time_ns", lambda: 2**62)
    entries = len(site.journal.read(0))
    work_with_runner(site)
    assert len(site.journal.read(0)) == entries
    site.restart()
    problems = site.problems()
    assert ["is an older copy of the root" in problem for problem in problems] == [True] * len(NAMES)
    assert filed(root) == {"before"}
    assert adopt(site) == PARTS + 3, "the last range that it has may be there in part"
    site.flush()
    check_all_there(site, {})
    check_root(site.journal, root)
    work_with_runner(site)
    assert len(site.journal.read(0)) == 1


def work_with_runner(site: Filed) -> None:
    rounds = iter(range(40))
    Runner(site.journal, site.settings).run(until=lambda: next(rounds, None) is None)


def test_derived_records_are_written_again_into_an_adopted_root(site: Filed, tmp_path: Path) -> None:
    site.file("before")
    shutil.copytree(site.root, tmp_path / "copy")
    site.tell(event("derived", "COMPLETE", 5))
    records = find(site.root)
    assert len(records) == 2
    shutil.rmtree(site.root)
    (tmp_path / "copy").rename(site.root)
    adopt(site)
    site.flush()
    assert find(site.root) == records


def test_an_empty_folder_can_be_adopted_and_gets_all_that_the_journal_holds(site: Filed) -> None:
    root = site.root
    site.file("pruned")
    site.journal.prune(1, 2**60)
    site.file("kept")
    shutil.rmtree(root)
    site.emit_files("after")
    assert len(site.problems()) == len(NAMES)
    assert not root.exists()
    adoption = plan_adoption(site.journal, root, NAMES)
    assert adoption.cursors == {"archive": 0, "layout": 0}
    assert adoption.missing == {"archive": (1, 1), "layout": (1, 1)}
    assert adopt(site) == 4
    site.flush()
    assert filed(root) == {"kept", "after"} == set(archived(root))
    marker, known = read_marker(root), known_root(site.journal)
    assert marker is not None
    assert known is not None
    assert marker.id == known.id


def test_another_root_is_refused_and_several_homes_share_one(site: Filed, tmp_path: Path) -> None:
    other = Filed(msgspec.structs.replace(site.settings, home=tmp_path / "second"))
    for each, name in ((site, "first"), (other, "second")):
        each.file(name)
    assert filed(site.root) == {"first", "second"}
    third = Filed(
        site.settings.with_values({"home": tmp_path / "third", "root": tmp_path / "theirs"}, "tests")
    )
    third.file("third")
    site.settings = site.settings.with_values({"root": third.settings.root}, "tests")
    site.restart()
    site.emit_files("lost?")
    assert all("it is another one" in problem for problem in site.problems())
    assert filed(third.settings.root) == {"third"}
    for each in (other, third):
        each.close()


@pytest.mark.parametrize("content", [None, b"damaged"])
@pytest.mark.parametrize("place", ["events", "provenance/raw"])
def test_a_file_that_has_a_name_is_never_replaced(
    site: Filed, caplog: pytest.LogCaptureFixture, place: str, content: bytes | None
) -> None:
    """Another home has published it, but no claim says so: for example, a file copied here."""
    root = site.root
    site.emit_files("a")
    assert site.problems() == []
    (path,) = (root / place).glob("*/*/*.parquet")
    stranger = path.with_name(f"{site.journal.node}-2-2.parquet")
    stranger.write_bytes(path.read_bytes() if content is None else content)
    content, node = stranger.read_bytes(), site.journal.node
    site.emit_files("b")
    assert site.problems() == []
    assert stranger.read_bytes() == content
    renewed = site.journal.nodes()[-1].name
    assert renewed != node
    assert f"is known as {renewed} instead of {node} from now on: {stranger} has other bytes" in caplog.text
    if content == b"damaged":
        stranger.unlink()
    assert filed(root) == {"a", "b"} <= set(archived(root))


def test_a_retraction_reaches_records_that_were_filed_under_an_earlier_node(site: Filed) -> None:
    site.tell(event("r", "COMPLETE", 5))
    site.journal.renew_node(site.journal.node, "for a test")
    site.tell(event("r", "FAIL", 6))
    assert [record.final_state for record in find(site.root)] == ["ERROR"]
