"""The process in which an index has events analyzed is there while it is of use."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from keeping import dataset, install_analyzer, keep, keep_filed, ran

from waybill.cli.commands.status import status_of
from waybill.lineage import Index
from waybill.lineage.analyzers import Worker
from waybill.lineage.graph import OfAnalyzers
from waybill.lineage.index import IndexReader, analysis
from waybill.transport import Journal

if TYPE_CHECKING:
    import pytest

    from waybill.transport import Settings


def processes() -> int:
    """How many processes of analyzers this one has started that have not ended."""
    told = 0
    for path in Path("/proc/self/task").glob("*/children"):
        for child in path.read_text().split():
            command = Path(f"/proc/{child}/cmdline")
            told += command.exists() and b"waybill.lineage.analyzers" in command.read_bytes()
    return told


PLUG_IN = """
class Board:
    name, covers, confidence = "board", "the board of a table", 0.5

    def analyze(self, event, catalog):
        return {"outputs": [{"namespace": "dashboard", "name": "week"}]}
"""


def told_by(home: Path) -> set[str]:
    """The analyzers that told the edges of an index."""
    with closing(apsw.Connection(str(home / "index.db"))) as connection:
        return {name for (name,) in connection.execute("SELECT DISTINCT analyzer FROM edge")}


def index_all(journal: Journal, settings: Settings) -> None:
    with closing(Index(journal, settings, linger_s=0)) as index:
        while index.step().applied:
            pass
        index.finish()


def test_an_index_that_is_made_again_has_what_a_new_analyzer_finds_in_earlier_events(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(settings.home, [ran("etl/s", ["lake/in"])])
    with closing(Journal(settings.home)) as journal:
        index_all(journal, settings)
        earlier = told_by(settings.home)
        install_analyzer(PLUG_IN, tmp_path, monkeypatch)
        index_all(journal, settings)
        assert told_by(settings.home) == earlier
        for path in settings.home.glob("index.db*"):
            path.unlink()
        index_all(journal, settings)
    assert told_by(settings.home) == earlier | {"board"}


def test_the_process_is_started_for_an_event_and_ended_when_it_is_idle(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "Worker", Worker)
    monkeypatch.setattr(analysis, "IDLE_S", 0.5)
    before = processes()
    tables = [dataset(name, types={"a": "string"}) for name in ("in", "out")]
    keep(settings.home, [ran("etl/r", ["lake/b"])])
    with closing(Journal(settings.home)) as journal, closing(Index(journal, settings, linger_s=0)) as index:
        while index.step().applied:
            pass
        assert processes() == before  # nothing in it is for an analyzer
        keep(settings.home, [ran("etl/s", tables[:1], tables[1:])])
        seen, until_s = 0, time.monotonic() + 60
        while time.monotonic() < until_s and not (seen and processes() == before):
            step = index.step()
            seen = max(seen, processes() - before)
            time.sleep(0.01 if step.applied else min(step.retry_s or 0, 0.1))
        assert (seen, processes()) == (1, before)


KILLED = """
import os, signal

class Board:
    name, covers, confidence = "board", "the board of a table", 0.5

    def analyze(self, event, catalog):
        if os.path.exists({0!r}):
            os.kill(os.getpid(), signal.SIGKILL)
        return {{"outputs": [{{"namespace": "dashboard", "name": "week"}}]}}
"""


def lacks_of(settings: Settings) -> tuple[list[str], list[str]]:
    """What an answer about the graph lacks, and the notes of `waybill status`."""
    with closing(Journal(settings.home)) as journal, IndexReader.open(settings.home, journal) as index:
        told = index.graph_lacks()
    return told, [note for note in status_of(settings).notes if "analyzers" in note]


def test_what_accidents_kept_analyzers_from_reading_is_told_and_read_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = tmp_path / "kills"
    kills.touch()
    install_analyzer(KILLED.format(str(kills)), tmp_path, monkeypatch)
    monkeypatch.setattr(analysis, "Worker", partial(Worker, pauses_s=(0.0, 0.0)))
    keep(settings.home, [ran("etl/s", ["lake/in"])])
    with closing(Journal(settings.home)) as journal:
        index_all(journal, settings)
    sentence = (
        "analyzers could not read 1 event; they try again when a runner starts, and once a day; "
        "`waybill analyzers` says why"
    )
    assert lacks_of(settings) == ([sentence], [sentence])
    assert "board" not in told_by(settings.home)
    with closing(Journal(settings.home)) as journal:
        with IndexReader.open(settings.home, journal) as index:
            (problem,) = index.answer(OfAnalyzers()).problems
        assert problem.problem == "reading it ends the analyzers' process (signal SIGKILL)"
        kills.unlink()
        index_all(journal, settings)
    assert "board" in told_by(settings.home)
    assert lacks_of(settings) == ([], [])


def test_an_answer_says_that_more_was_found_than_is_kept_and_no_part_is_shown_as_the_whole(
    settings: Settings,
) -> None:
    names = [f"d{at}" for at in range(150)]
    text = (
        f"INSERT INTO z SELECT {', '.join(f'x AS c{at}' for at in range(150))}, y AS last "  # noqa: S608
        f"FROM (SELECT {' + '.join(names)} AS x, d0 AS y FROM b) AS s"
    )
    lineage = keep_filed(settings, [ran({"namespace": "db://store", "name": "j"}, sql=text)])
    sentence = "analyzers found more in 1 event than is kept; `waybill analyzers` says what is left out"
    assert lacks_of(settings) == ([sentence], [sentence])
    edges = "SELECT target, count(*) FROM edge WHERE kind = 'derive' GROUP BY target"
    with closing(apsw.Connection(str(settings.home / "index.db"))) as connection:
        counts = [count for _, count in connection.execute(edges)]
    assert 9_000 < sum(counts) <= 10_000
    assert sorted(set(counts)) == [1, 150]
    (told,) = lineage.analyzers().problems
    left_out = f"what {151 - len(counts)} columns come from is left out, since there are more than 10,000"
    assert left_out in told.problem
