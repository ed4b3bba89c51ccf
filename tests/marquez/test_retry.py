"""Dead letters go out again when somebody asks for it, before anything new."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from waybill.marquez import dead_letter_body, dead_letters, drop_dead_letters, retry_dead_letters

if TYPE_CHECKING:
    from conftest import Worker
    from contract_server import ContractServer

    from waybill.transport import Journal

Keep = Callable[..., int]
Numbers = Callable[[list[dict[str, Any]], str], list[int]]


def refuse_one(marquez: ContractServer, worker: Worker, mark: bytes) -> None:
    """Let everything go out while what has the mark is refused."""
    marquez.fault_of = lambda body: "422" if mark in body else None
    worker.run()
    marquez.fault_of = None


def test_a_retried_event_arrives_once_and_is_no_dead_letter_any_more(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep, numbers_of: Numbers
) -> None:
    bad = keep("run", 0)
    refuse_one(marquez, worker, b'"run"')
    retry_dead_letters(journal, [bad])
    worker.run()
    assert numbers_of(marquez.stored, "run") == [0]
    kept = {key.partition(":")[0] for key in journal.state("marquez")}
    assert kept == {"end", "figures", "held"}, "what is known of runs, and no more of any event"
    worker.run()
    assert len(marquez.stored) == 1


def test_a_retried_event_goes_before_anything_new(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    bad = keep("run", 0)
    refuse_one(marquez, worker, b'"run"')
    keep("other", 1)
    retry_dead_letters(journal, [bad])
    worker.run()
    assert [event["run"]["runId"] for event in marquez.stored] == ["run", "other"]


def test_a_retried_start_leaves_no_finished_run_running(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep, numbers_of: Numbers
) -> None:
    bad = keep("run", 0, eventType="START")
    keep("run", 1, eventType="COMPLETE")
    refuse_one(marquez, worker, b'"START"')
    retry_dead_letters(journal, [bad])
    worker.run()
    assert numbers_of(marquez.stored, "run") == [1, 0, 1]
    assert marquez.runs == {"run": "COMPLETED"}


@pytest.mark.parametrize("ends", [("FAIL", "COMPLETE"), ("COMPLETE", "FAIL"), ("ABORT", "FAIL")])
def test_a_retried_terminal_event_leaves_the_run_in_the_state_of_its_record(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep, ends: tuple[str, str]
) -> None:
    bad = keep("run", 0, eventType=ends[0])
    keep("run", 1, eventType=ends[1])
    refuse_one(marquez, worker, f'"{ends[0]}"'.encode())
    retry_dead_letters(journal, [bad])
    worker.run()
    assert marquez.runs == {"run": "FAILED"}


def test_what_is_refused_again_stays_with_the_words_of_now(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    bad = keep("run", 0, producer=...)
    worker.run()
    (before,) = dead_letters(journal)
    marquez.fault = "413"
    retry_dead_letters(journal, [bad])
    worker.run()
    (letter,) = dead_letters(journal)
    assert (letter.seq, letter.status) == (bad, 413)
    assert letter.set_aside_ms >= before.set_aside_ms
    assert dead_letter_body(journal, bad) is not None
    assert worker.delivery.pending() == 0


def test_a_retry_outlasts_an_outage_and_a_restart(
    journal: Journal,
    marquez: ContractServer,
    new_worker: type[Worker],
    keep: Keep,
    numbers_of: Numbers,
) -> None:
    bad = keep("run", 0)
    refuse_one(marquez, new_worker(journal, marquez.url), b'"run"')
    retry_dead_letters(journal, [bad])
    marquez.refuse()
    down = new_worker(journal, marquez.url)
    down.run(at_most_s=100)
    assert down.delivery.pending() == 1
    marquez.start()
    new_worker(journal, marquez.url).run()
    assert numbers_of(marquez.stored, "run") == [0]
    assert dead_letters(journal) == []


def test_an_event_that_the_journal_let_go_of_is_sent_again_from_its_letter(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep, numbers_of: Numbers
) -> None:
    bad = keep("run", 0)
    refuse_one(marquez, worker, b'"run"')
    keep("other")
    journal.prune(bad, 2**62)
    retry_dead_letters(journal, [bad])
    worker.run()
    assert numbers_of(marquez.stored, "run") == [0]


def test_what_is_dropped_is_not_sent_again_and_frees_its_rows(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    bad = [keep("run", number, producer=...) for number in range(3)]
    worker.run()
    retry_dead_letters(journal, bad[:1])
    drop_dead_letters(journal, bad[:2])
    marquez.received.clear()
    worker.run()
    assert marquez.received == []
    assert [letter.seq for letter in dead_letters(journal)] == bad[2:]
    assert dead_letter_body(journal, bad[0]) is None


def test_what_is_no_dead_letter_is_not_sent_again(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    delivered = keep("run", 0)
    worker.run()
    retry_dead_letters(journal, [delivered, 4711])
    worker.run()
    assert len(marquez.stored) == 1
