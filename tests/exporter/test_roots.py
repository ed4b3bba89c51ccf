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
from layouts import HOUR_MS, StoppedError, StoppingFiles, event, findings, temporaries

from waybill.exporter.archive import Archive, archived_files, read_entries
from waybill.exporter.layout import Layout, write_again
from waybill.exporter.names import COMPACTED
from waybill.lineage import find
from waybill.transport import Journal, Kind, RootError, Settings
from waybill.transport.files import Files
from waybill.transport.home import Home
from waybill.transport.root import JournalFile, adopt_root, check_root, known_root, plan_adoption, read_marker
from waybill.transport.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ONE_FILE = JournalFile(1, 1)
PARTS = 200
NAMES = ("archive", "layout")


class Site:
    """A home, with its layout and archive run by hand."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.acknowledged: set[str] = set()
        self.open()

    def open(self) -> None:
        """Open it as an emitter does."""
        self.journal = Home.open(self.settings).journal
        self.restart()

    def restart(self, files: Files | None = None) -> None:
        self.layout = Layout(self.journal, self.settings, files=files, workers=1, linger_s=0.0)
        self.archive = Archive(self.journal, self.settings, files=files, gather_s=0.0)

    def emit(self, dids: Iterable[str]) -> None:
        dids = list(dids)
        self.journal.append_many((Kind.OPENLINEAGE, of_file(did), "edge") for did in dids)
        self.acknowledged.update(dids)

    def work(self) -> list[str]:
        """Step until nothing is left or a problem is reported; return the problem."""
        problems = []
        for projection in (self.archive, self.layout):
            while (step := projection.step()).applied:
                pass
            problems += [step.problem] if step.problem else []
        return problems

    def flush(self) -> None:
        self.journal.mark(b"flush")
        assert self.work() == []
        assert {self.journal.cursor(name) for name in NAMES} == {self.journal.last_seq()}

    def copy(self, home: Path) -> None:
        """Copy the home's files while none is open, like a snapshot."""
        self.journal.close()
        shutil.copytree(self.settings.home, home)

    def close(self) -> None:
        self.journal.close()


def of_file(did: str, at_ms: int = 0) -> bytes:
    facet = {"waybill_deltaFile": {"_producer": "p", "_schemaURL": "s", "did": did}}
    return event(f"run-{did}", "COMPLETE", at_ms, facets=facet)


def filed(root: Path) -> set[str]:
    return {record.did for record in find(root)}


def archived(root: Path) -> list[str]:
    """The dids of the archive's entries, one for each entry that is not a mark."""
    bodies = (
        entry.body
        for _, path in archived_files(root)
        for batch in read_entries(path)
        for entry in batch
        if entry.kind is not Kind.MARK
    )
    return [json.loads(body)["run"]["runId"].removeprefix("run-") for body in bodies]


def published(root: Path) -> dict[Path, bytes]:
    """Every file that is published only once."""
    return {path: path.read_bytes() for path in root.glob("events/*/*/*.parquet")}


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    made = Site(settings)
    yield made
    made.close()


def check_all_there(site: Site, before: dict[Path, bytes]) -> None:
    assert site.acknowledged - filed(site.settings.root) == set()
    assert site.acknowledged - set(archived(site.settings.root)) == set()
    assert {path: path.read_bytes() for path in before} == before, "nothing was overwritten"
    assert findings(site.settings.root) == []


@pytest.mark.parametrize("reopened_by", ["emitter", "projections"])
@pytest.mark.parametrize("way", ["log lost", "put back"])
def test_a_journal_that_forgot_numbers_files_new_entries_under_another_node(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str, reopened_by: str
) -> None:
    site.emit(f"old-{at}" for at in range(20))
    site.flush()
    site.journal.checkpoint()
    site.copy(tmp_path / "snapshot")
    site.emit(f"between-{at}" for at in range(PARTS))
    site.flush()
    node, before = site.journal.node, published(site.settings.root)
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
        site.journal = Journal(site.settings.home)
        site.restart()
    assert site.journal.last_seq() == 21
    site.emit(f"new-{at}" for at in range(PARTS))
    site.flush()
    check_all_there(site, before)
    renewed = site.journal.nodes()[-1]
    assert renewed.lost == (22, 222)
    assert f"is known as {renewed.name} instead of {node} from now on: it was at entry 21" in caplog.text
    site.emit(["one more"])
    assert site.journal.node == site.journal.nodes()[-1].name != node


def test_a_copy_of_a_home_beside_the_original_has_a_node_of_its_own(site: Site, tmp_path: Path) -> None:
    site.emit(["common"])
    site.flush()
    other = tmp_path / "clone"
    site.copy(other)
    clone = Site(msgspec.structs.replace(site.settings, home=other))
    assert clone.journal.node != site.journal.node
    site.open()
    for each, name in ((site, "original"), (clone, "clone")):
        each.emit(f"{name}-{at}" for at in range(PARTS))
        each.flush()
    clone.close()
    site.acknowledged |= clone.acknowledged
    check_all_there(site, {})
    assert len(archived(site.settings.root)) == 2 * PARTS + 1


def test_two_homes_with_one_node_that_are_both_at_work_part_at_the_first_claim(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like two machines made from one image: nothing distinguishes the files of their journals."""
    monkeypatch.setattr("waybill.transport.root.JournalFile.of", lambda _: ONE_FILE)
    site.emit(["common"])
    site.flush()
    site.copy(tmp_path / "clone")
    clone = Site(msgspec.structs.replace(site.settings, home=tmp_path / "clone"))
    site.open()
    assert clone.journal.node == site.journal.node
    for at in range(PARTS // 20):
        for each, name in ((site, "original"), (clone, "clone")):
            each.emit(f"{name}-{at}-{of}" for of in range(20))
            assert each.work() == []
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
    for at in chance.sample(range(1, 60), 6):
        place = tmp_path / str(at)
        site = Site(msgspec.structs.replace(settings, home=place / "home", root=place / "root"))
        site.emit(["common"])
        site.flush()
        site.copy(place / "snapshot")
        site.emit(["between"])
        site.flush()
        site.close()
        put_back = Site(msgspec.structs.replace(site.settings, home=place / "snapshot"))
        put_back.emit(["new", "newer"])
        put_back.restart(StoppingFiles(at))
        with contextlib.suppress(StoppedError):
            put_back.flush()
        put_back.emit(["newest"])
        put_back.restart()
        put_back.flush()
        put_back.acknowledged |= site.acknowledged
        check_all_there(put_back, {})
        assert temporaries(site.settings.root) == []
        put_back.close()


# -- a root that is not there --------------------------------------------------------------------------------


def adopt(site: Site) -> int:
    """Adopt as the command does; return how many entries are filed once more."""
    adoption = plan_adoption(site.journal, site.settings.root, NAMES)
    write_again(site.journal, adoption.cursors["layout"])
    adopt_root(site.journal, site.settings.root, adoption)
    site.restart()
    return adoption.entries


def test_a_root_that_is_not_mounted_loses_nothing_is_told_and_recovers(site: Site) -> None:
    root = site.settings.root
    site.emit(["before"])
    site.flush()
    root.rename(root.with_name("unmounted"))
    root.mkdir()
    site.emit(f"meanwhile-{at}" for at in range(PARTS))
    site.journal.mark(b"flush")
    for again in (False, True):
        problems = site.work()
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
    assert site.work() == []
    check_all_there(site, {})


@pytest.mark.parametrize(("folder", "name"), [("provenance", "layout"), ("events", "archive")])
def test_a_root_that_has_lost_a_folder_is_told_and_gets_what_the_journal_holds(
    site: Site, folder: str, name: str
) -> None:
    root = site.settings.root
    site.emit(["before"])
    site.flush()
    (root / folder).rename(root / "lost")
    site.emit(["meanwhile"])
    problems = site.work()
    assert len(problems) == len(NAMES)
    assert f"{root} has lost the folder {folder}, into which the {name} has filed" in problems[0]
    with pytest.raises(RootError, match="waybill root adopt"):
        check_root(site.journal, root)
    assert plan_adoption(site.journal, root, NAMES).cursors[name] == 0
    shutil.rmtree(root / "lost")
    adopt(site)
    site.flush()
    assert site.acknowledged == filed(root) == set(archived(root))
    # The ledger still knows of the archive's files.
    kinds = [finding.kind for finding in findings(root)]
    assert kinds == (["removed"] if folder == "events" else [])


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_of_a_root_that_lacks_the_files_is_told_and_gets_what_the_journal_holds(
    site: Site, name: str
) -> None:
    root = site.settings.root
    site.emit(["before"])
    site.flush()
    folder = {"layout": "provenance", "archive": "events"}[name]
    shutil.rmtree(root / folder)
    (root / folder).mkdir()
    site.emit(["meanwhile"])
    for again in (False, True):
        problems = site.work()
        assert len(problems) == len(NAMES)
        assert f"{root} has lost what was in the folder {folder}, into which the {name}" in problems[0]
        if not again:
            site.restart()
    assert plan_adoption(site.journal, root, NAMES).cursors[name] == 0
    adopt(site)
    site.flush()
    assert site.acknowledged == filed(root) == set(archived(root))


def test_a_root_that_is_mounted_elsewhere_is_taken_silently(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.emit(["before"])
    site.flush()
    before = published(site.settings.root)
    shutil.copytree(site.settings.root, tmp_path / "elsewhere")
    shutil.rmtree(site.settings.root)
    site.settings.root.symlink_to(tmp_path / "elsewhere")
    known = known_root(site.journal)
    site.restart()
    site.emit(["after"])
    site.flush()
    check_all_there(site, before)
    assert (len(site.journal.nodes()), caplog.text) == (1, "")
    assert known_root(site.journal) == known


def test_a_root_of_another_format_is_refused_and_left_as_it_is(site: Site) -> None:
    site.emit(["before"])
    site.flush()
    marker = site.settings.root / "waybill-root.json"
    marker.write_bytes(marker.read_bytes().replace(b'"format":1', b'"format":2'))
    files = {path: path.read_bytes() for path in site.settings.root.rglob("*") if path.is_file()}
    site.emit(["after"])
    assert {"has format 2, and this Waybill reads format 1" in problem for problem in site.work()} == {True}
    with pytest.raises(RootError, match="use the Waybill that wrote it"):
        adopt_root(site.journal, site.settings.root, plan_adoption(site.journal, site.settings.root, NAMES))
    assert {path: path.read_bytes() for path in site.settings.root.rglob("*") if path.is_file()} == files


def test_a_root_that_goes_away_while_it_is_written_moves_no_cursor(site: Site) -> None:
    root = site.settings.root
    site.emit(["before"])
    site.flush()
    cursor = site.journal.cursor("layout")
    site.emit(["meanwhile"])
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


def test_a_root_that_goes_away_while_hours_are_compacted_gets_no_further_hour(site: Site) -> None:
    root, aside = site.settings.root, site.settings.root.with_name("unmounted")
    site.acknowledged = {f"{hour:02}" for hour in range(12)}
    site.journal.append_many(
        (Kind.OPENLINEAGE, of_file(did, at_ms=int(did) * HOUR_MS), "edge") for did in site.acknowledged
    )
    site.journal.mark(b"flush")
    site.restart(Unmounting(root, aside))
    assert "mount it" in str(site.work())
    assert not root.exists()
    aside.rename(root)
    assert len(list((root / COMPACTED).rglob("*.parquet"))) == 1
    site.restart()
    site.flush()
    assert len(list((root / COMPACTED).rglob("*.parquet"))) == len(site.acknowledged)
    check_all_there(site, {})


@pytest.mark.parametrize("in_its_place", ["an older copy", "an empty folder"])
def test_the_journal_keeps_what_the_folder_in_a_root_s_place_lacks(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_its_place: str
) -> None:
    root, is_copy = site.settings.root, in_its_place == "an older copy"
    site.emit(["before"])
    site.flush()
    if is_copy:
        shutil.copytree(root, tmp_path / "copy")
    else:
        (tmp_path / "copy").mkdir()
    site.emit(f"between-{at}" for at in range(PARTS))
    site.flush()
    shutil.rmtree(root)
    (tmp_path / "copy").rename(root)
    monkeypatch.setattr("waybill.transport.clock.time.time_ns", lambda: 2**62)
    entries = len(site.journal.read(0))
    work_with_runner(site)
    assert len(site.journal.read(0)) == entries
    site.restart()
    problems = site.work()
    told = "is an older copy of the root" if is_copy else "no waybill-root.json"
    assert [told in problem for problem in problems] == [True] * len(NAMES)
    assert filed(root) == ({"before"} if is_copy else set())
    assert adopt(site) == PARTS + 3, "the last range that it has may be there in part"
    site.flush()
    check_all_there(site, {})
    check_root(site.journal, root)
    work_with_runner(site)
    assert len(site.journal.read(0)) == 1


def work_with_runner(site: Site) -> None:
    rounds = iter(range(40))
    Runner(site.journal, site.settings).run(until=lambda: next(rounds, None) is None)


def test_derived_records_are_written_again_into_an_adopted_root(site: Site, tmp_path: Path) -> None:
    site.emit(["before"])
    site.flush()
    shutil.copytree(site.settings.root, tmp_path / "copy")
    site.journal.append(Kind.OPENLINEAGE, event("derived", "COMPLETE", 5), "edge")
    site.flush()
    records = find(site.settings.root)
    assert len(records) == 2
    shutil.rmtree(site.settings.root)
    (tmp_path / "copy").rename(site.settings.root)
    adopt(site)
    site.flush()
    assert find(site.settings.root) == records


def test_an_empty_folder_can_be_adopted_and_gets_all_that_the_journal_holds(site: Site) -> None:
    root = site.settings.root
    site.emit(["pruned"])
    site.flush()
    site.journal.prune(1, 2**60)
    site.emit(["kept"])
    site.flush()
    shutil.rmtree(root)
    site.emit(["after"])
    assert len(site.work()) == len(NAMES)
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


def test_another_root_is_refused_and_several_homes_share_one(site: Site, tmp_path: Path) -> None:
    other = Site(msgspec.structs.replace(site.settings, home=tmp_path / "second"))
    for each, name in ((site, "first"), (other, "second")):
        each.emit([name])
        each.flush()
    assert filed(site.settings.root) == {"first", "second"}
    third = Site(
        site.settings.with_values({"home": tmp_path / "third", "root": tmp_path / "theirs"}, "tests")
    )
    third.emit(["third"])
    third.flush()
    site.settings = site.settings.with_values({"root": third.settings.root}, "tests")
    site.restart()
    site.emit(["lost?"])
    assert all("it is another one" in problem for problem in site.work())
    assert filed(third.settings.root) == {"third"}
    for each in (other, third):
        each.close()


@pytest.mark.parametrize("content", [None, b"damaged"])
@pytest.mark.parametrize("place", ["events", "provenance/raw"])
def test_a_file_that_has_a_name_is_never_replaced(
    site: Site, caplog: pytest.LogCaptureFixture, place: str, content: bytes | None
) -> None:
    """Another home has published it, but no claim says so: for example, a file copied here."""
    root = site.settings.root
    site.emit(["a"])
    assert site.work() == []
    (path,) = (root / place).glob("*/*/*.parquet")
    stranger = path.with_name(f"{site.journal.node}-2-2.parquet")
    stranger.write_bytes(path.read_bytes() if content is None else content)
    content, node = stranger.read_bytes(), site.journal.node
    site.emit(["b"])
    assert site.work() == []
    assert stranger.read_bytes() == content
    renewed = site.journal.nodes()[-1].name
    assert renewed != node
    assert f"is known as {renewed} instead of {node} from now on: {stranger} has other bytes" in caplog.text
    if content == b"damaged":
        stranger.unlink()
    assert filed(root) == {"a", "b"} <= set(archived(root))


def test_a_retraction_reaches_records_that_were_filed_under_an_earlier_node(site: Site) -> None:
    site.journal.append(Kind.OPENLINEAGE, event("r", "COMPLETE", 5), "edge")
    site.flush()
    site.journal.renew_node(site.journal.node, "for a test")
    site.journal.append(Kind.OPENLINEAGE, event("r", "FAIL", 6), "edge")
    site.flush()
    assert [record.final_state for record in find(site.settings.root)] == ["ERROR"]
