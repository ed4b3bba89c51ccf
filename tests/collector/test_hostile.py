"""Clients that are slow, broken or hostile: each is served or refused, and the others never notice."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from served import JSON, Collector, event, own, record, reply_of, without_runner

if TYPE_CHECKING:
    from conftest import Start

PATH = "/api/v1/lineage"
MEMORY_BYTES_MAX = 600 * 10**6
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PROMPT_S = 20.0
"""Far less than a client would wait, and far more than a busy machine needs."""
WITHIN_S = 2.0 if "PYTEST_XDIST_WORKER" in os.environ else 1.0
FILES = 2_000


@pytest.fixture(scope="module", autouse=True)
def _many_files() -> Iterator[None]:
    """Let this process have as many connections as a test wants; many systems begin with 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def sockets(collector: Collector, count: int, say: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections, each of which has said as much."""
    host, _, port = collector.address.partition(":")
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            one = socket.create_connection((host, int(port)), timeout=30)
            stack.enter_context(one)
            if say:
                one.sendall(say)
            found.append(one)
        yield found


def serves(collector: Collector, name: str) -> bool:
    began_s = time.monotonic()
    status = collector.post(PATH, own(name)).status
    return status == 201 and time.monotonic() - began_s < PROMPT_S


def said_before_the_end(one: socket.socket) -> bytes:
    """What was answered on a connection that the server ends."""
    said = b""
    with contextlib.suppress(ConnectionResetError):  # it had not read all that was sent
        while part := one.recv(4096):
            said += part
    return said


def answers(one: socket.socket, count: int) -> list[int]:
    """The statuses of so many answers on one connection."""
    stream, found = one.makefile("rb"), []
    for _ in range(count):
        found.append(int(stream.readline().split()[1]))
        length = 0
        while (line := stream.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        stream.read(length)
    return found


def test_a_thousand_idle_connections_keep_nobody_out(shared: Collector) -> None:
    with sockets(shared, 1_000) as idle:
        assert serves(shared, "beside idle ones")
        body = own("from an idle one")
        idle[-1].sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert answers(idle[-1], 1) == [201]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector that nobody sends anything: what it takes to answer, the machine takes."""
    with without_runner(tmp_path_factory.mktemp("calm") / "home") as collector:
        yield collector


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector that gets all of it, with what a test machine has of patience."""
    with without_runner(tmp_path_factory.mktemp("shared") / "home") as collector:
        yield collector


@contextlib.contextmanager
def health_within_a_second(collector: Collector, calm: Collector) -> Iterator[None]:
    """Ask for health and metrics all the time: the slowest answer of all comes within a second.

    Beside other tests it may take two, and on a machine that is so busy that a calm collector needs as long,
    twice as long as that one's slowest answer to the same question in the same time.
    """
    over = threading.Event()

    def slowest_s(one: Collector, path: str) -> float:
        worst_s = 0.0
        while not over.wait(0.02):
            began_s = time.monotonic()
            while not is_healthy(one, path):  # Who is slow to ask may lose the connection to a crowd.
                assert time.monotonic() - began_s < PROMPT_S
            worst_s = max(worst_s, time.monotonic() - began_s)
        return worst_s

    with ThreadPoolExecutor(4) as pool:
        watched = {
            path: [pool.submit(slowest_s, one, path) for one in (collector, calm)]
            for path in ("/health/live", "/metrics")
        }
        try:
            yield
        finally:
            over.set()
    for path, (asked, beside) in watched.items():
        bound_s = max(WITHIN_S, 2 * beside.result())
        assert asked.result() < bound_s, (path, asked.result(), beside.result())


def is_healthy(one: Collector, path: str) -> bool:
    """Whether an answer came: one that came says that all is well."""
    try:
        assert one.get(path).status == 200
    except ConnectionError:
        return False
    return True


def test_small_bodies_find_memory_beside_large_ones_that_arrive(shared: Collector, calm: Collector) -> None:
    head = f"{HEAD}Content-Length: {64 << 20}\r\n\r\n".encode()
    with (
        health_within_a_second(shared, calm),
        sockets(shared, 2, head) as large,
        contextlib.suppress(ConnectionError),
    ):
        large[0].sendall(bytes(48 << 20))
        large[1].sendall(bytes(30 << 20))
        assert serves(shared, "beside large ones")


def test_elements_that_take_long_keep_the_health_and_others_waiting_for_nobody(
    shared: Collector, calm: Collector
) -> None:
    zipped, headers = gzip.compress(b"[" + b"1," * 98_999 + b"1]"), JSON | {"Content-Encoding": "gzip"}
    assert len(zipped) < 250
    # All but the last of their members are good, so that whoever tells what is wrong has to look at each.
    inputs = [{"namespace": "n", "name": "a"}] * 30_000
    events = b"[" + b",".join([event(inputs=[*inputs, {"namespace": 7}])] * 16) + b"]"
    records = json.dumps([record(transforms=[*(["a"] * 120_000), 7])] * 16).encode()
    with health_within_a_second(shared, calm), ThreadPoolExecutor(34) as pool:
        paths = ["/provenance", f"{PATH}/batch"] * 16
        bad = [pool.submit(shared.post, path, zipped, headers) for path in paths]
        long = [pool.submit(shared.post, *sent) for sent in zip(paths, (records, events), strict=False)]
        assert serves(shared, "beside bad elements")
        assert {one.result().status for one in bad} == {422}
        assert [one.result().status for one in long] == [422, 200]


def test_51_mb_of_records_are_taken_at_once_though_one_is_bad(shared: Collector, calm: Collector) -> None:
    many = [record(did=f"{at:08}-9e75", annotations={"a": "b", "customer": "c"}) for at in range(1_000)]
    piece = json.dumps(many, separators=(",", ":")).encode()[1:-1]
    count = 51 * 10**6 // len(piece)
    body = b"[" + b",".join([piece] * count) + b"]"
    with health_within_a_second(shared, calm):
        reply = shared.post("/provenance", body)
        assert (reply.status, reply.json["accepted"]) == (202, 1_000 * count)
        reply = shared.post("/provenance", b'[{"did": 7},' + body[1:])
        assert (reply.status, reply.json["accepted"]) == (202, 1_000 * count)
    assert len(reply.json["failed"]) == 1


def test_who_sends_slowly_or_nothing_is_let_go_and_keeps_nobody_out(start: Start, calm: Collector) -> None:
    # Long enough for a good request of a machine that is busy.
    collector = start("--runner", "none", "--idle-timeout", "3", "--body-timeout", "3")
    begun = f"{HEAD}Content-Length: 1000\r\n\r\n".encode()
    with (
        health_within_a_second(collector, calm),
        sockets(collector, 50, HEAD.encode()[:20]) as heads,
        sockets(collector, 50, begun) as bodies,
        sockets(collector, 3) as idle,
        sockets(collector, 3, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n") as content,
    ):
        assert [answers(one, 1) for one in content] == [[200]] * 3
        for one in (*heads, *bodies):
            with contextlib.suppress(OSError):
                one.sendall(b"{")
        assert serves(collector, "beside slow ones")
        assert [answers(one, 1) for one in bodies] == [[408]] * 50
        let_go = (*heads, *idle, *content)
        assert {said_before_the_end(one).partition(b"\r\n\r\n")[2] for one in let_go} == {b""}
    assert collector.bodies() == [own("beside slow ones")]


def test_a_body_that_breaks_off_is_not_kept(shared: Collector) -> None:
    before, half = shared.bodies(), own("half")
    for framing in (
        f"Content-Length: {len(half)}\r\n\r\n".encode() + half[:-9],
        b"Content-Length: 9000000\r\n\r\n" + half + b" " * 5_000_000,
        b"Transfer-Encoding: chunked\r\n\r\n20\r\n" + half[:16],
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + half,
        b"Content-Length: -5\r\n\r\n" + half,
    ):
        with sockets(shared, 5, HEAD.encode() + framing):
            pass
    chunks = {"Transfer-Encoding": "chunked"} | JSON
    connection, whole = shared.connect(), own("after half ones")
    connection.request("POST", PATH, iter([whole[:9], whole[9:50], whole[50:]]), chunks, encode_chunked=True)
    assert connection.getresponse().status == 201
    connection.close()
    assert shared.bodies() == [*before, whole]


def test_requests_in_a_pipeline_are_answered_in_order(shared: Collector) -> None:
    bodies = [own("pipe 1"), b"{", own("pipe 2"), b"[]", own("pipe 3")]
    said = b"".join(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies)
    with sockets(shared, 1, said) as (one,):
        assert answers(one, 5) == [201, 400, 201, 422, 201]
    assert shared.bodies()[-3:] == [own(f"pipe {number}") for number in (1, 2, 3)]


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0" * 1000,
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        HEAD.encode()
        + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        HEAD.encode() + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    ],
    ids=["TLS", "zeros", "long path", "many headers", "version", "two framings", "two lengths"],
)
def test_what_is_no_request_is_kept_nowhere_and_the_next_is_served(shared: Collector, said: bytes) -> None:
    before = shared.bodies()
    with sockets(shared, 1) as (one,), contextlib.suppress(OSError):
        one.sendall(said)
        one.settimeout(0.2)
        answer = one.recv(4096)
        assert not answer.startswith(b"HTTP/1.1 2")
    assert shared.get("/health/live").status == 200
    assert shared.bodies() == before


DENSE = 16 * 2**20
HOSTILE = {
    "numbers": (b"[" + b"1," * (DENSE // 2) + b"1]", 413),
    "objects": (b"[" + b"{}," * (DENSE // 10) + b"{}]", 413),
    "texts": (
        json.dumps([record()])[:-2].encode() + b', "more": [' + b'"ab",' * (DENSE // 5) + b'"ab"]}]',
        413,
    ),
    "short texts": (
        json.dumps([record(transforms=[f"{at:02}" for at in range(100)] * 4_900)] * 12).encode(),
        422,
    ),
    "short annotations": (
        json.dumps(
            [record(annotations={f"{at:06x}": f"{at % 100:02}" for at in range(245_000)})] * 12
        ).encode(),
        422,
    ),
    "more annotations": (
        json.dumps([record(annotations={f"{at:06x}": "" for at in range(260_000)})]).encode(),
        413,
    ),
    "one name": (json.dumps([record(filename="a" * (60 * 2**20))]).encode(), 422),
    "spaces": (b" " * (60 * 2**20), 400),
    "deep": (b"[" * DENSE, 422),
    "one text": (b'["' + b"a" * (60 * 2**20) + b'"]', 422),
    "no UTF-8": (b'["' + b"\xff" * DENSE + b'"]', 400),
}


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_memory_and_the_wait_for_health_are_bounded_whatever_clients_send(
    start: Start, calm: Collector
) -> None:
    # A busy machine may need long for so much.
    collector = start("--runner", "none", "--journal-max-bytes", "2GiB", "--body-timeout", "300")
    got: list[tuple[str, int]] = []

    def send(name: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        # Who is told to come back does.
        while True:
            connection = http.client.HTTPConnection(collector.address, timeout=300)
            # One that is refused before all was sent finds its connection broken.
            with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                status = reply_of(connection, "POST", path, body, headers).status
                if status != 503:
                    got.append((name, status))
                    return
            time.sleep(0.2)

    zipped = JSON | {"Content-Encoding": "gzip"}
    threads = [
        threading.Thread(target=send, args=(name, "/provenance", body, headers))
        for name, (plain, _) in HOSTILE.items()
        for body, headers in ((plain, JSON), (gzip.compress(plain, 1), zipped))
    ]
    with health_within_a_second(collector, calm):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
    assert sorted(got) == sorted((name, status) for name, (_, status) in HOSTILE.items() for _ in range(2))
    assert serves(collector, "after all of it")
    assert collector.peak_bytes < MEMORY_BYTES_MAX


def test_a_small_body_that_stands_for_large_records_is_refused_at_every_door(shared: Collector) -> None:
    long = {"namespace": "n", "name": "x" * 90_000}
    outputs = [{"namespace": "n", "name": f"o{number}"} for number in range(1_000)]
    hostile = event(eventType="COMPLETE", job=long, inputs=[long], outputs=outputs)
    assert len(gzip.compress(hostile)) < 10_000
    refused = shared.post(PATH, hostile)
    assert (refused.status, "has 90,000 characters" in refused.json["detail"]) == (422, True)
    good = event(producer="https://example.org/beside")
    batch = shared.post(f"{PATH}/batch", b"[" + hostile + b"," + good + b"]")
    assert (batch.json["summary"]["successful"], batch.json["failed_events"][0]["index"]) == (1, 0)
    records = [record(transforms=["x" * 90_000]), record(did="beside")]
    taken = shared.post("/provenance", json.dumps(records).encode())
    assert (taken.status, taken.json["accepted"], taken.json["failed"][0]["index"]) == (202, 1, 0)
