"""Dead letters go out again when somebody asks for it, before anything new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from waybill.marquez import dead_letter_body, dead_letters, drop_dead_letters, retry_dead_letters

if TYPE_CHECKING:
    from contract_server import ContractServer
    from delivering import Site, Worker


def refuse_one(marquez: ContractServer, worker: Worker, mark: bytes) -> None:
    """Let everything go out while what has the mark is refused."""
    marquez.fault_of = lambda body: "422" if mark in body else None
    worker.run()
    marquez.fault_of = None


def test_a_retried_event_arrives_once_before_anything_new(site: Site, worker: Worker) -> None:
    bad = site.keep("run", 0)
    refuse_one(site.marquez, worker, b'"run"')
    site.keep("other", 1)
    retry_dead_letters(site.journal, [bad])
    for _ in range(2):
        worker.run()
    assert [event["run"]["runId"] for event in site.marquez.stored] == ["run", "other"]
    kept = {key.partition(":")[0] for key in site.journal.state("marquez")}
    assert kept == {"end", "figures", "held"}, "what is known of runs, and no more of any event"


@pytest.mark.parametrize("ends", [("FAIL", "COMPLETE"), ("ABORT", "FAIL")])
def test_a_retried_terminal_event_leaves_the_run_in_the_state_of_its_record(
    site: Site, worker: Worker, ends: tuple[str, str]
) -> None:
    bad = site.keep("run", 0, eventType=ends[0])
    site.keep("run", 1, eventType=ends[1])
    refuse_one(site.marquez, worker, f'"{ends[0]}"'.encode())
    retry_dead_letters(site.journal, [bad])
    worker.run()
    assert site.marquez.runs == {"run": "FAILED"}


def test_what_is_refused_again_stays_with_the_words_of_now(site: Site, worker: Worker) -> None:
    bad = site.keep("run", 0, producer=...)
    worker.run()
    (before,) = dead_letters(site.journal)
    site.marquez.fault = "413"
    retry_dead_letters(site.journal, [bad])
    worker.run()
    (letter,) = dead_letters(site.journal)
    assert (letter.seq, letter.status) == (bad, 413)
    assert letter.set_aside_ms >= before.set_aside_ms
    assert dead_letter_body(site.journal, bad) is not None
    assert worker.delivery.pending() == 0


def test_a_retry_outlasts_an_outage_a_restart_and_retention(site: Site) -> None:
    bad, delivered = site.keep("run", 0), site.keep("run", 1)
    refuse_one(site.marquez, site.worker(), b'"number": 0')
    retry_dead_letters(site.journal, [bad, delivered, 4711])
    site.journal.prune(delivered, 2**62)
    site.marquez.refuse()
    assert site.deliver(at_most_s=100).delivery.pending() == 1
    site.marquez.start()
    site.deliver()
    assert site.numbers("run") == [1, 0]
    assert dead_letters(site.journal) == []


def test_what_is_dropped_is_not_sent_again_and_frees_its_rows(site: Site, worker: Worker) -> None:
    bad = [site.keep("run", number, producer=...) for number in range(3)]
    worker.run()
    retry_dead_letters(site.journal, bad[:1])
    drop_dead_letters(site.journal, bad[:2])
    site.marquez.received.clear()
    worker.run()
    assert site.marquez.received == []
    assert [letter.seq for letter in dead_letters(site.journal)] == bad[2:]
    assert dead_letter_body(site.journal, bad[0]) is None
