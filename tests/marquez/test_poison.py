"""Events that the backend will never take: parked with its words, and the others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from waybill.marquez import dead_letter_body, dead_letters
from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from conftest import Worker
    from contract_server import ContractServer

Keep = Callable[..., int]
Numbers = Callable[[list[dict[str, Any]], str], list[int]]


def is_ill(body: bytes) -> bool:
    return b'"ill' in body


def stream(worker: Worker, keep: Keep, *, for_s: float, name: str = "well") -> None:
    """Let time pass, with a new event of another run every ten seconds."""
    end_s = worker.clock.monotonic_s() + for_s
    while (now_s := worker.clock.monotonic_s()) < end_s:
        keep(f"{name}-{now_s}")
        worker.run(at_most_s=10)
        worker.clock.move(now_s + 10 - worker.clock.monotonic_s())


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_what_is_refused_for_good_is_parked_with_the_backends_words_and_its_run_goes_on(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep, numbers_of: Numbers, status: int
) -> None:
    keep("run", 0)
    bad = keep("run", 1, parts="ill")
    keep("run", 2)
    marquez.fault_of = lambda body: str(status) if is_ill(body) else None
    worker.run()
    assert numbers_of(marquez.stored, "run") == [0, 2]
    (letter,) = dead_letters(journal)
    assert (letter.seq, letter.key, letter.status, letter.tries) == (bad, "run run", status, 1)
    assert letter.reason == f'{{"code": {status}, "message": "fault {status} on request"}}'
    body = dead_letter_body(journal, bad)
    assert body is not None
    assert json.loads(body)["number"] == 1
    assert letter.size_bytes == len(body)
    assert letter.set_aside_ms >= letter.received_ms > 0
    assert worker.problem is None
    assert journal.cursor("marquez") == journal.last_seq()


@pytest.mark.parametrize(
    ("what", "members", "words"),
    [
        ("a NUL character", {"name": "a\0b"}, "Error 500 Internal Server Error"),
        ("no event type", {"eventType": ...}, "Error 500 Internal Server Error"),
    ],
)
def test_an_event_that_is_answered_500_for_good_is_parked_while_others_pass(
    journal: Journal,
    marquez: ContractServer,
    worker: Worker,
    keep: Keep,
    what: str,
    members: dict[str, Any],
    words: str,
) -> None:
    bad = keep("ill", 0, **members)
    keep("ill", 1)
    stream(worker, keep, for_s=600)
    assert {received.event["number"] for received in marquez.received if is_ill(received.body)} == {0, 1}, (
        what
    )
    (letter,) = dead_letters(journal)
    assert (letter.seq, letter.status) == (bad, 500)
    assert words in letter.reason
    assert 8 <= letter.tries < 30
    assert marquez.runs["ill"] == "RUNNING"
    assert journal.cursor("marquez") == journal.last_seq()


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"eventTime":"yesterday"}', b'{"run":5}'])
def test_what_marquez_says_it_cannot_read_is_parked_at_once_though_it_answers_500(
    journal: Journal, worker: Worker, body: bytes
) -> None:
    bad = journal.append(Kind.OPENLINEAGE, body)
    worker.run()
    (letter,) = dead_letters(journal)
    assert (letter.seq, letter.status, letter.tries) == (bad, 500, 1)
    assert '"code":400' in letter.reason
    assert dead_letter_body(journal, bad) == body
    assert worker.problem is None


@pytest.mark.parametrize("fault", ["500", "403", "404", "close"])
def test_poison_at_the_head_never_keeps_the_others_waiting(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep, numbers_of: Numbers, fault: str
) -> None:
    keep("ill", 0)
    for number in range(20):
        keep("well", number)
        keep("ill", number + 1)
    marquez.fault_of = lambda body: fault if is_ill(body) and json.loads(body)["number"] == 0 else None
    worker.run(at_most_s=100)
    assert numbers_of(marquez.stored, "well") == list(range(20))
    assert [n for n in numbers_of(marquez.stored, "ill") if n] == []
    stream(worker, keep, for_s=1200)
    assert [letter.key for letter in dead_letters(journal)] == ["run ill"]
    assert [n for n in numbers_of(marquez.stored, "ill") if n] == list(range(1, 21))


def test_an_event_that_marquez_never_answers_keeps_no_other_waiting_for_long(
    journal: Journal, marquez: ContractServer, hasty_worker: Worker, keep: Keep, numbers_of: Numbers
) -> None:
    keep("ill", 0)
    keep("ill", 1)
    for number in range(20):
        keep("well", number)
    marquez.fault_of = lambda body: "hang" if is_ill(body) and json.loads(body)["number"] == 0 else None
    hasty_worker.run(at_most_s=100)
    assert set(numbers_of(marquez.stored, "well")) == set(range(20))
    assert numbers_of(marquez.stored, "ill") == []
    stream(hasty_worker, keep, for_s=1200)
    assert [letter.key for letter in dead_letters(journal)] == ["run ill"]
    assert "no answer within 0.3 s" in dead_letters(journal)[0].reason
    assert set(numbers_of(marquez.stored, "ill")) == {1}


def test_a_lone_event_that_fails_is_kept_until_others_pass(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    keep("ill")
    marquez.fault_of = lambda body: "500" if is_ill(body) else None
    worker.run(at_most_s=1200)
    assert dead_letters(journal) == []
    assert worker.problem is not None
    assert "answers 500" in worker.problem
    stream(worker, keep, for_s=600)
    assert len(dead_letters(journal)) == 1


def test_an_event_that_waits_alone_is_said_but_new_ones_are_looked_for_every_second(
    marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    keep("ill")
    marquez.fault_of = lambda body: "500" if is_ill(body) else None
    stream(worker, keep, for_s=60)
    step = worker.delivery.step()
    assert step.problem is not None
    assert "fault 500 on request" in step.problem
    assert step.retry_s is not None
    assert step.retry_s <= 1.0


def test_the_words_of_a_backend_are_kept_to_a_bounded_line_without_the_key(
    journal: Journal,
    marquez: ContractServer,
    new_worker: type[Worker],
    keep: Keep,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import contract_server

    marquez.upstream = None  # the real one says nothing of the kind
    answer = "you sent\n\x1b[31m Bearer se-cret " + "é" * 5_000_000
    monkeypatch.setattr(contract_server, "judge", lambda _: (422, answer))
    keep("run")
    new_worker(journal, marquez.url, "se-cret").run()
    (letter,) = dead_letters(journal)
    assert letter.reason.startswith("you sent [31m Bearer ******** éé")
    assert len(letter.reason) == 1000


def test_dead_letters_survive_a_restart_and_the_journals_retention(
    journal: Journal, worker: Worker, new_worker: type[Worker], marquez: ContractServer, keep: Keep
) -> None:
    first = keep("run", producer=...)
    worker.run()
    second = keep("run", job=...)
    new_worker(journal, marquez.url).run()
    journal.prune(journal.last_seq(), 2**62)
    assert [letter.seq for letter in dead_letters(journal)] == [first, second]
    assert dead_letter_body(journal, first) is not None
