"""Events that the backend will never take: parked with its words, and the others go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delivering import HASTY_S

from waybill.marquez import dead_letter_body, dead_letters
from waybill.transport import Kind

if TYPE_CHECKING:
    from delivering import Site, Worker


def is_ill(body: bytes) -> bool:
    return b'"ill' in body


def stream(site: Site, worker: Worker, *, for_s: float) -> None:
    """Let time pass, with a new event of another run every ten seconds."""
    end_s = worker.clock.monotonic_s() + for_s
    while (now_s := worker.clock.monotonic_s()) < end_s:
        site.keep(f"well-{now_s}")
        worker.run(at_most_s=10)
        worker.clock.move(now_s + 10 - worker.clock.monotonic_s())


def test_what_is_refused_for_good_is_parked_with_the_backends_words_and_its_run_goes_on(
    site: Site, worker: Worker
) -> None:
    site.keep("run", 0)
    bad = site.keep("run", 1, parts="ill")
    site.keep("run", 2)
    site.marquez.fault_of = lambda body: "422" if is_ill(body) else None
    worker.run()
    assert site.numbers("run") == [0, 2]
    (letter,) = dead_letters(site.journal)
    assert (letter.seq, letter.key, letter.status, letter.tries) == (bad, "run run", 422, 1)
    assert letter.reason == '{"code": 422, "message": "fault 422 on request"}'
    body = dead_letter_body(site.journal, bad)
    assert body is not None
    assert json.loads(body)["number"] == 1
    assert letter.size_bytes == len(body)
    assert letter.set_aside_ms >= letter.received_ms > 0
    assert worker.problem is None
    assert site.journal.cursor("marquez") == site.journal.last_seq()


@pytest.mark.parametrize(
    "members", [{"name": "a\0b"}, {"eventType": ...}], ids=["a NUL character", "no event type"]
)
def test_an_event_that_is_answered_500_for_good_is_parked_while_others_pass(
    site: Site, worker: Worker, members: dict[str, Any]
) -> None:
    bad = site.keep("ill", 0, **members)
    site.keep("ill", 1)
    stream(site, worker, for_s=600)
    sent = {received.event["number"] for received in site.marquez.received if is_ill(received.body)}
    assert sent == {0, 1}
    (letter,) = dead_letters(site.journal)
    assert (letter.seq, letter.status) == (bad, 500)
    assert "Error 500 Internal Server Error" in letter.reason
    assert 8 <= letter.tries < 30
    assert site.marquez.runs["ill"] == "RUNNING"
    assert site.journal.cursor("marquez") == site.journal.last_seq()


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"eventTime":"yesterday"}', b'{"run":5}'])
def test_what_marquez_says_it_cannot_read_is_parked_at_once_though_it_answers_500(
    site: Site, worker: Worker, body: bytes
) -> None:
    bad = site.journal.append(Kind.OPENLINEAGE, body)
    worker.run()
    (letter,) = dead_letters(site.journal)
    assert (letter.seq, letter.status, letter.tries) == (bad, 500, 1)
    assert '"code":400' in letter.reason
    assert dead_letter_body(site.journal, bad) == body
    assert worker.problem is None


@pytest.mark.parametrize("fault", ["500", "404"])
def test_poison_at_the_head_never_keeps_the_others_waiting(site: Site, worker: Worker, fault: str) -> None:
    site.keep("ill", 0)
    for number in range(20):
        site.keep("well", number)
        site.keep("ill", number + 1)
    site.marquez.fault_of = lambda body: fault if is_ill(body) and json.loads(body)["number"] == 0 else None
    worker.run(at_most_s=100)
    assert site.numbers("well") == list(range(20))
    assert [n for n in site.numbers("ill") if n] == []
    stream(site, worker, for_s=1200)
    assert [letter.key for letter in dead_letters(site.journal)] == ["run ill"]
    assert [n for n in site.numbers("ill") if n] == list(range(1, 21))


def test_an_event_that_marquez_never_answers_keeps_no_other_waiting_for_long(site: Site) -> None:
    worker = site.worker(timeout_s=HASTY_S)
    site.keep("ill", 0)
    site.keep("ill", 1)
    for number in range(5):
        site.keep("well", number)
    site.marquez.fault_of = lambda body: "hang" if is_ill(body) and json.loads(body)["number"] == 0 else None
    worker.run(at_most_s=100)
    assert set(site.numbers("well")) == set(range(5))
    assert site.numbers("ill") == []
    stream(site, worker, for_s=1200)
    assert [letter.key for letter in dead_letters(site.journal)] == ["run ill"]
    assert "no answer within 0.3 s" in dead_letters(site.journal)[0].reason
    assert set(site.numbers("ill")) == {1}


def test_a_lone_event_that_fails_is_kept_until_others_pass_and_survives_retention(
    site: Site, worker: Worker
) -> None:
    ill = site.keep("ill")
    site.marquez.fault_of = lambda body: "500" if is_ill(body) else None
    worker.run(at_most_s=600)
    assert dead_letters(site.journal) == []
    assert worker.problem is not None
    assert "answers 500" in worker.problem
    stream(site, worker, for_s=60)
    step = worker.delivery.step()
    assert "fault 500 on request" in (step.problem or "")
    assert (step.retry_s or 0.0) <= 1.0, "new ones are looked for meanwhile"
    stream(site, worker, for_s=600)
    site.journal.prune(site.journal.last_seq(), 2**62)
    assert [letter.seq for letter in dead_letters(site.journal)] == [ill]
    assert dead_letter_body(site.journal, ill) is not None


def test_the_words_of_a_backend_are_kept_to_a_bounded_line_without_the_key(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    import contract_server

    site.marquez.upstream = None  # the real one says nothing of the kind
    answer = "you sent\n\x1b[31m Bearer se-cret " + "é" * 5_000_000
    monkeypatch.setattr(contract_server, "judge", lambda _: (422, answer))
    site.keep("run")
    site.worker("se-cret").run()
    (letter,) = dead_letters(site.journal)
    assert letter.reason.startswith("you sent [31m Bearer ******** éé")
    assert len(letter.reason) == 1000
