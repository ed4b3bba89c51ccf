"""A delivery that starts again over the same journal repeats an event only if its answer was never seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from waybill.marquez import dead_letters
from waybill.transport import Journal, JournalError, Kind

if TYPE_CHECKING:
    from contract_server import ContractServer
    from delivering import Worker

Keep = Callable[..., int]
Numbers = Callable[[list[dict[str, Any]], str], list[int]]


def test_what_passed_beside_a_blocked_run_is_not_repeated_after_a_restart(
    journal: Journal, marquez: ContractServer, new_worker: type[Worker], keep: Keep, numbers_of: Numbers
) -> None:
    for number in range(10):
        keep("ill", number)
        keep("well", number)
    marquez.fault_of = lambda body: "500" if b'"ill"' in body else None
    new_worker(journal, marquez.url).run(until=lambda: len(marquez.stored) == 10)
    assert journal.cursor("marquez") == 0
    marquez.fault_of = None
    second = new_worker(journal, marquez.url)
    assert second.delivery.pending() == 10
    second.run()
    assert numbers_of(marquez.stored, "well") == numbers_of(marquez.stored, "ill") == list(range(10))
    assert len(marquez.stored) == 20
    assert journal.cursor("marquez") == journal.last_seq()
    assert journal.state("marquez", "done:") == {}


def test_an_answer_that_could_not_be_stored_is_stored_later_and_its_event_not_sent_again(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("run", 0)
    bad = keep("run", 1, producer=...)
    keep("run", 2)

    commit = journal.commit
    for sent in (1, 2, 3):

        def fail_from_the_answer_on(*given: Any, sent: int = sent, **named: Any) -> None:  # noqa: ANN401 - as given
            if len(marquez.received) == sent:
                raise JournalError("the disk is full; make room")
            commit(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(journal, "commit", fail_from_the_answer_on)
            for _ in range(3):
                with pytest.raises(JournalError):
                    worker.delivery.step()
        assert len(marquez.received) == sent
        assert journal.cursor("marquez") == sent - 1
        worker.delivery._store()  # noqa: SLF001 - the next step would store and send at once
        assert journal.cursor("marquez") == sent
    assert [letter.seq for letter in dead_letters(journal)] == [bad]


def test_a_journal_that_cannot_be_read_for_a_while_loses_nothing(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        keep("run", number, pad="x" * 5 * 2**20)  # more than one step reads
    worker.delivery.step()

    def fail(*_: object, **__: object) -> None:
        raise JournalError("the disk fails; replace it")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "read", fail)
        for _ in range(3):
            with pytest.raises(JournalError):
                worker.delivery.step()
    worker.run()
    assert [event["number"] for event in marquez.stored] == [0, 1, 2]


def test_letting_go_of_many_thousand_waiting_events_takes_a_bounded_window(
    journal: Journal, marquez: ContractServer, new_worker: type[Worker], event_of: Callable[..., bytes]
) -> None:
    ill = [(Kind.OPENLINEAGE, event_of("ill", number), "") for number in range(10_000)]
    many = [(Kind.OPENLINEAGE, event_of(f"run-{number}"), "") for number in range(10_000)]
    journal.append_many(ill + many)
    marquez.fault_of = lambda body: "500" if b'"ill"' in body else None
    worker = new_worker(journal, marquez.url)
    held = []

    def enough() -> bool:
        held.append(worker.delivery.held)
        return len(marquez.stored) >= 300

    worker.run(until=enough)
    worker.delivery.finish()
    assert max(held) <= 64 + 256 + 256
    assert worker.delivery.pending() == 20_000 - len(marquez.stored)
