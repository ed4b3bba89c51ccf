"""What waits for the index is in the graph's answers up to a bound; beyond it they say what they lack."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest
from calling import call
from keeping import index as index_all, keep, keep_filed, ran

from waybill.lineage import IndexReader, Lineage
from waybill.lineage.graph import OfDependencies, OfWhole, shown
from waybill.lineage.index import KeptIndex, reading
from waybill.transport import Journal, NotFoundError, Settings

if TYPE_CHECKING:
    from pathlib import Path

LATER = "too many to answer now; try again later, or see `waybill status`"
CHAIN_LENGTH = 12


def steps(numbers: range) -> list[dict[str, Any]]:
    """A run for each number, of a job that reads a dataset and writes the next one of a chain."""
    return [ran(f"etl/j{at}", [f"lake/t{at}"], [f"lake/t{at + 1}"]) for at in numbers]


@pytest.fixture
def waiting(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home without a runner: three entries are in its index, and more wait than there is room for."""
    monkeypatch.setattr(reading, "_GRAPH_SIZE_MAX", 20)
    keep_filed(settings, steps(range(CHAIN_LENGTH)), 3)
    return settings


def lacking(home: Path) -> int:
    """How many entries the graph lacks; the others are those that came first."""
    with contextlib.closing(Journal(home)) as journal, IndexReader.open(home, journal) as index:
        whole = index.answer(OfWhole())
        jobs = sorted(int(node.name[1:]) for node in whole.nodes if node.kind == "job")
        assert jobs == list(range(len(jobs)))
        assert index.graph_waiting == CHAIN_LENGTH - len(jobs)
        return index.graph_waiting


def note_of(count: int) -> str:
    return f"{count} accepted entries are not in the graph yet, {LATER}"


def test_an_answer_about_more_than_there_is_room_for_says_how_much_it_lacks(
    waiting: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    home = waiting.home
    count = lacking(home)
    assert 1 < count < CHAIN_LENGTH - 3  # some of what waits is there
    for command in (("lineage", "lake/t0"), ("impact", "lake/t0")):
        done = call(*command, "--home", home)
        assert (done.returncode, note_of(count) in " ".join(done.stderr.split())) == (0, True), done
        assert f"t{CHAIN_LENGTH}" not in done.stdout
    with caplog.at_level(logging.WARNING):
        reached = Lineage.open(home).downstream("lake/t0", None)
    assert len(reached) == 2 * (CHAIN_LENGTH - count)
    assert caplog.messages == [note_of(count)]


def test_what_is_not_found_may_be_in_what_it_lacks(waiting: Settings) -> None:
    count = lacking(waiting.home)
    missing = f"lake/t{CHAIN_LENGTH}"
    sentence = f"no dataset, column or job has the name '{missing}'; {note_of(count)}"
    with pytest.raises(NotFoundError) as raised:
        Lineage.open(waiting.home).dependencies(missing)
    assert str(raised.value) == sentence
    done = call("lineage", missing, "--home", waiting.home)
    assert (done.returncode, sentence in " ".join(done.stderr.split())) == (2, True), done


def test_an_index_that_stays_open_lacks_what_came_later_until_it_is_indexed(waiting: Settings) -> None:
    with contextlib.closing(Journal(waiting.home)) as journal, contextlib.closing(KeptIndex(journal)) as kept:
        with kept.open() as index:
            count = index.graph_waiting
        keep(waiting.home, steps(range(CHAIN_LENGTH, CHAIN_LENGTH + 2)))
        with kept.open() as again:
            assert again is index
            assert index.graph_lacks() == [note_of(count + 2)]
        index_all(waiting)
        with kept.open() as index:
            assert index.graph_lacks() == []
            down = index.answer(OfDependencies("lake/t0", 0, "all")).downstream
        assert shown(down.nodes[-1].node) == f"lake/t{CHAIN_LENGTH + 2}"
