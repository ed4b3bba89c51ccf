"""The loopback endpoint, over real connections."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from events import members
from waiting import at_once

from waybill.transport import Journal, Kind, Receiver
from waybill.transport.admission import MAX_BODY_BYTES, Redaction

if TYPE_CHECKING:
    from pathlib import Path

PATH = "/api/v1/lineage"
JSON = {"Content-Type": "application/json; charset=UTF-8"}


def event(**changes: object) -> bytes:
    return json.dumps(members("01a1fd6a-9e75-7d78-870f-24897efac4a4", "START") | changes).encode()


class Sender(http.client.HTTPConnection):
    """A connection of a program that was given the URL."""

    def __init__(self, receiver: Receiver) -> None:
        url = urlsplit(receiver.url)
        super().__init__(url.netloc, timeout=60)
        self.path = url.path + PATH.lstrip("/")


@pytest.fixture
def seen() -> list[bytes]:
    return []


@pytest.fixture
def receiver(journal: Journal, seen: list[bytes]) -> Iterator[Receiver]:
    receiver = Receiver(keep_in(journal), seen.append)
    receiver.start()
    yield receiver
    receiver.close()


@pytest.fixture
def connection(receiver: Receiver) -> Iterator[Sender]:
    connection = Sender(receiver)
    yield connection
    connection.close()


@contextlib.contextmanager
def connected(receiver: Receiver) -> Iterator[Sender]:
    """A connection to an endpoint of its own."""
    receiver.start()
    with contextlib.closing(Sender(receiver)) as connection:
        yield connection
    receiver.close()


def answer(
    connection: Sender,
    body: object,
    headers: dict[str, str] = JSON,
    *,
    path: str | None = None,
    method: str = "POST",
) -> tuple[int, str]:
    connection.request(method, path or connection.path, body, headers)  # type: ignore[arg-type]
    response = connection.getresponse()
    content = response.read()
    return response.status, json.loads(content)["errors"][0] if content else ""


def keep_in(journal: Journal) -> Callable[[bytes], object]:
    return lambda body: journal.append(Kind.OPENLINEAGE, Redaction().admit(body), "tests")


def bodies(journal: Journal) -> list[bytes]:
    return [entry.body for entry in journal.read(0)]


def test_an_answered_event_is_in_the_journal(connection: Sender, journal: Journal, seen: list[bytes]) -> None:
    assert answer(connection, event()) == (201, "")
    (entry,) = journal.read(0)
    assert (entry.kind, entry.system_name, entry.body) == (Kind.OPENLINEAGE, "tests", event())
    assert seen == [event()]


def test_an_event_in_chunks_is_kept_whole(connection: Sender, journal: Journal) -> None:
    whole = gzip.compress(event())
    parts = iter([whole[:7], whole[7:40], whole[40:]])
    headers = JSON | {"Content-Encoding": "gzip", "Transfer-Encoding": "chunked"}
    connection.request("POST", connection.path, parts, headers, encode_chunked=True)
    assert connection.getresponse().read() == b""
    assert answer(connection, event(eventType="COMPLETE"))[0] == 201
    assert bodies(journal) == [event(), event(eventType="COMPLETE")]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "is not valid JSON"),
        (event(eventTime="yesterday"), 422, "$.eventTime"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 422, "nested too deeply"),
    ],
)
def test_a_bad_event_is_refused_with_its_reason(
    connection: Sender, journal: Journal, body: bytes, status: int, words: str
) -> None:
    got, sentence = answer(connection, body)
    assert (got, words in sentence) == (status, True), sentence
    # The next event on the same connection is not lost.
    assert answer(connection, event())[0] == 201
    assert bodies(journal) == [event()]


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"path": "/api/v1/other"}, 404, PATH),
        ({"method": "GET"}, 405, PATH),
        ({"method": "PUT"}, 501, "PUT"),
        ({"headers": {"Content-Type": "text/plain"}}, 415, "application/json"),
        ({"headers": JSON | {"Content-Encoding": "br"}}, 415, "gzip"),
        ({"headers": JSON | {"Content-Encoding": "gzip"}}, 400, "not valid gzip"),
        ({"headers": JSON | {"Host": "evil.example:80"}}, 403, "Host"),
        ({"headers": JSON | {"Host": "[::1"}}, 403, "Host"),
        ({"headers": JSON | {"Host": "evil.example@127.0.0.1"}}, 403, "Host"),
        ({"headers": JSON | {"Host": "localhost", "host": "localhost"}}, 403, "Host"),
        ({"headers": JSON | {"Content-Length": str(MAX_BODY_BYTES + 1)}}, 413, "smaller"),
        ({"headers": JSON | {"Content-Length": "-5"}}, 411, "Content-Length"),
        ({"headers": JSON | {"Content-Length": "9" * 5_000}}, 411, "Content-Length"),
    ],
)
def test_a_bad_request_is_refused_with_its_reason(
    connection: Sender,
    journal: Journal,
    changes: dict[str, dict[str, str]],
    status: int,
    words: str,
) -> None:
    got, sentence = answer(connection, event(), **changes)  # type: ignore[arg-type]
    assert (got, words in sentence) == (status, True), sentence
    assert answer(connection, event())[0] == 201
    assert bodies(journal) == [event()]


def test_a_large_event_passes_and_a_small_one_that_unpacks_too_large_does_not(
    connection: Sender, journal: Journal
) -> None:
    assert answer(connection, event(padding="x" * (10 << 20)))[0] == 201
    bomb = gzip.compress(b" " * (MAX_BODY_BYTES + 1))
    assert answer(connection, bomb, JSON | {"Content-Encoding": "gzip"})[0] == 413
    assert len(bodies(journal)) == 1


def test_a_sender_that_breaks_off_leaves_nothing(receiver: Receiver, journal: Journal) -> None:
    address = urlsplit(receiver.url)
    head = f"POST {address.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=20) as half:
        half.sendall(head.encode() + b"Content-Length: 9999\r\n\r\n" + event())
        half.shutdown(socket.SHUT_WR)
        assert b"is incomplete" in half.makefile("rb").read()
    assert bodies(journal) == []


def test_many_connections_at_once_lose_nothing(receiver: Receiver, journal: Journal) -> None:
    def send(sender: int) -> None:
        connection = Sender(receiver)
        for number in range(5):
            assert answer(connection, event(producer=f"https://example.org/{sender}/{number}"))[0] == 201
        connection.close()

    at_once(partial(send, sender) for sender in range(8))
    assert len(set(bodies(journal))) == 40


def test_what_follows_from_an_event_may_fail_without_anybody_noticing(journal: Journal) -> None:
    def fail(_: bytes) -> None:
        raise RuntimeError("a bug")

    with connected(Receiver(keep_in(journal), fail)) as connection:
        assert answer(connection, event())[0] == 201
    assert bodies(journal) == [event()]


def test_a_full_journal_is_said_as_the_collector_says_it(home: Path) -> None:
    journal = Journal(home, max_bytes=1)
    with connected(Receiver(keep_in(journal))) as connection:
        for at in range(3):
            body = event(padding="x" * 100_000, producer=f"https://x/{at}")
            connection.request("POST", connection.path, body, JSON)
            response = connection.getresponse()
            response.read()
    journal.close()
    assert (response.status, response.headers["Retry-After"]) == (503, "2")


def test_only_this_machine_reaches_it_and_who_was_not_given_the_url_is_let_in_nowhere(
    receiver: Receiver, connection: Sender, journal: Journal
) -> None:
    stranger = f"/{'x' * 32}"
    for path in (
        PATH,
        "/",
        "//",
        stranger,
        f"{stranger}{PATH}",
        connection.path.upper(),
        f"{connection.path}/x",
    ):
        assert answer(connection, event(), path=path)[0] == 404, path
        assert answer(connection, event(), path=path, method="GET")[0] == 404, path
    assert bodies(journal) == []
    assert urlsplit(receiver.url).hostname == "127.0.0.1"
    whole = urlsplit(receiver.url).path
    for number, path in enumerate((whole, whole.rstrip("/"), f"{whole}/api/v1/lineage/", connection.path)):
        assert answer(connection, event(producer=f"https://example.org/{number}"), path=path)[0] == 201, path
    other = Receiver(keep_in(journal))
    assert urlsplit(other.url).path != whole
    other.close()


def test_a_closed_endpoint_frees_its_port(journal: Journal) -> None:
    receiver = Receiver(keep_in(journal))
    receiver.start()
    port = urlsplit(receiver.url).port or 0
    receiver.close()
    with socket.create_server(("127.0.0.1", port)):
        pass
