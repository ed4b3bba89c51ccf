"""`waybill status`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from letters import letter, row_of

from waybill.marquez import Counters
from waybill.transport import Journal, Kind, Settings, flush, locks
from waybill.transport.fallback import fallback_of

if TYPE_CHECKING:
    from conftest import Run


def test_a_home_with_nothing_in_it_is_empty_and_one_that_is_not_there_is_exit_code_2(
    called: Run, home: Path
) -> None:
    done = called("status", "--home", home, "--json")
    assert (done.returncode, str(home) in done.stderr, home.exists()) == (2, True, False)
    Journal(home).close()
    done = called("status", "--home", home, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["journal"].pop("size_bytes") >= 0
    assert found["journal"] == {"entries": 0, "last_seq": 0, "oldest": None}
    assert (found["projections"], found["runner_alive"], found["dead_letters"]) == ({}, False, 0)


def test_depth_lag_and_problem_are_those_of_the_journal(called: Run, home: Path, journal: Journal) -> None:
    for number in range(5):
        journal.append(Kind.OPENLINEAGE, b"%d" % number)
    journal.commit("marquez", cursor=3)
    journal.commit("runner", put={"marquez": b'{"problem":"nobody answers; start it"}'})
    journal.close()
    done = called("status", "--home", home, "--json")
    assert done.returncode == 1, "a projection that is held up"
    found = json.loads(done.stdout)
    assert (found["journal"]["entries"], found["journal"]["last_seq"]) == (5, 5)
    problem = "nobody answers; start it"
    marquez = found["projections"]["marquez"]
    assert 0 <= marquez.pop("lag_s") < 60
    assert marquez == {"cursor": 3, "behind": 2, "unsettled": 0, "problem": problem}
    plain = called("status", "--home", home).stdout
    (line,) = [line.split("\t") for line in plain.splitlines() if line.startswith("marquez\t")]
    assert line[:3] == ["marquez", "3", "2"]
    assert re.fullmatch(r"(\d+s )?\d+m?s", line[3])
    assert f"marquez   {problem}" in plain.splitlines()
    assert plain.count(problem) == 1, "a problem is told once"


def test_the_marks_of_a_flush_are_no_backlog(called: Run, home: Path, journal: Journal) -> None:
    journal.append(Kind.OPENLINEAGE, b"1")
    journal.mark(b"flush")
    journal.append(Kind.OPENLINEAGE, b"2")
    journal.commit("marquez", cursor=0)
    journal.mark(b"flush")
    marquez = json.loads(called("status", "--home", home, "--json").stdout)["projections"]["marquez"]
    assert marquez["behind"] == 2
    journal.commit("marquez", cursor=3)
    marquez = json.loads(called("status", "--home", home, "--json").stdout)["projections"]["marquez"]
    assert (marquez["behind"], marquez["lag_s"]) == (0, 0)


def test_dead_letters_are_told_once_and_only_where_something_is(
    called: Run, home: Path, journal: Journal
) -> None:
    assert "for good" not in called("status", "--home", home).stdout
    put = row_of(letter()) | {"figures": msgspec.json.encode(Counters(delivered=7, refused=1))}
    journal.commit("marquez", cursor=0, put=put)
    journal.close()
    told = called("status", "--home", home).stdout
    assert "marquez has refused 1 event for good" in told
    assert f"`waybill dead-letters list --home {home}`" in told
    assert (told.count("for good"), told.count("dead letters")) == (1, 0)


def test_runs_that_wait_to_settle_are_counted(called: Run, home: Path, journal: Journal) -> None:
    journal.commit("layout", cursor=0, put={"due:r": b"", "due:s": b"", "run:r": b""})
    journal.close()
    found = json.loads(called("status", "--home", home, "--json").stdout)
    assert found["projections"]["layout"]["unsettled"] == 2
    assert "2 runs have ended" in called("status", "--home", home).stdout


def test_what_became_of_a_backends_events_is_counted(called: Run, home: Path, journal: Journal) -> None:
    figures = Counters(delivered=7, failed=2, refused=1, coalesced=900, summaries=3)
    journal.commit("marquez", cursor=0, put={"figures": msgspec.json.encode(figures)})
    journal.close()
    found = json.loads(called("status", "--home", home, "--json").stdout)
    assert found["deliveries"] == {
        "marquez": {
            "delivered": 7,
            "failed": 2,
            "refused": 1,
            "dead_letters": 0,
            "coalesced": 900,
            "summaries": 3,
        }
    }
    assert "marquez\t7\t2\t900\t3" in called("status", "--home", home).stdout.splitlines()


def test_depth_counts_what_is_left_after_pruning(called: Run, home: Path, journal: Journal) -> None:
    for number in range(5):
        journal.append(Kind.OPENLINEAGE, b"%d" % number)
    assert journal.prune(2, 2**60) == 2
    journal.close()
    found = json.loads(called("status", "--home", home, "--json").stdout)
    assert (found["journal"]["entries"], found["journal"]["last_seq"]) == (3, 5)


def test_a_live_runner_is_named(called: Run, home: Path) -> None:
    Journal(home).close()
    held = locks.take(home)
    assert held is not None
    try:
        found = json.loads(called("status", "--home", home, "--json").stdout)
    finally:
        held.release()
    assert found["runner_alive"] is True
    assert isinstance(found["runner_pid"], int)
    assert json.loads(called("status", "--home", home, "--json").stdout)["runner_alive"] is False


@pytest.mark.parametrize("way", ["put back", "copied"])
def test_a_note_says_that_a_home_was_put_back_or_copied(
    called: Run, settings: Settings, tmp_path: Path, way: str
) -> None:
    def keep(kept_in: Settings, did: str) -> list[str]:
        fields = {"did": did, "systemName": "edge", "finalState": "COMPLETE", "created": 1, "completed": 2}
        journal = Journal(kept_in.home)
        journal.append(Kind.PROVENANCE, json.dumps([fields]).encode())
        journal.close()
        assert flush(kept_in).problems == {}
        notes = json.loads(called("status", "--home", kept_in.home, "--json").stdout)["notes"]
        return [note for note in notes if "entries are filed as" in note]

    assert keep(settings, "before") == []
    copy = msgspec.structs.replace(settings, home=tmp_path / "copy")
    shutil.copytree(settings.home, copy.home)
    if way == "put back":
        assert keep(settings, "between") == []
        shutil.rmtree(settings.home)
        copy.home.rename(settings.home)
        (note,) = keep(settings, "after")
        assert "it was at entry 2, and the root has entries up to 4" in note
    else:
        (note,) = keep(copy, "of the copy")
        assert "copy" in note
        assert keep(settings, "of the original") == []


def test_what_is_kept_elsewhere_since_the_home_could_not_be_used_is_told(
    called: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fallback = tmp_path / "fallback"
    fallback.mkdir(0o700)
    settings = Settings.load({"home": home, "fallback_home": fallback}, env={}, cwd=tmp_path)
    folder = fallback_of(settings)
    assert folder is not None
    folder.mkdir(0o755)
    monkeypatch.setenv("WAYBILL_FALLBACK_HOME", str(fallback))
    done = called("status", "--home", home, "--json")
    assert f"nothing is adopted from {folder}" in done.stdout
