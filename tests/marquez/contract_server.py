"""A server that answers as Marquez 0.51.1 does; never kinder than it.

What it does was measured on the real one: 201 for nearly anything well-formed; 422 for what its validation
misses; 500, as for an outage, for broken JSON, an array, an unparsable date, a run event without eventType
or a NUL character; 415 for other content types; no deduplication; a START after COMPLETE sets the run back to
RUNNING.

Beyond that it fails on request, for every event (`fault`), for the next ones (`faults`) or by what the event
is (`fault_of`):

    "500", "503", "401", ...   that status, nothing stored       "500-stored"   that status, but stored
    "429:7"                    with Retry-After: 7                "hang"         no answer until `release`
    "close"                    the connection ends unanswered     "close-stored" the same, but stored
    "cut"                      ends within the answer's status    "drip"         a 500 whose body never ends
    "302"                      a redirect to a page that answers 200
    "page"                     a web page answers 200: this is not Marquez at all

With an `upstream` it stands in front of a real Marquez: what no fault keeps back gets that one's answer.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
import socket
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from contract_graph import Graph

Request = socket.socket | tuple[bytes, socket.socket]
LINEAGE = "/api/v1/lineage"
JOB = re.compile(r"/api/v1/namespaces/([^/]+)/jobs/([^/]+)(?:/tags/([^/]+))?")
STATES = {
    "COMPLETE": "COMPLETED",
    "ABORT": "ABORTED",
    "FAIL": "FAILED",
}
KNOWN_FACETS = {
    "run": ("nominalTime", "parent"),
    "job": ("documentation", "sourceCodeLocation", "sql"),
    "dataset": ("documentation", "schema", "dataSource", "columnLineage", "lifecycleStateChange"),
}
TEXT_MAX = 20_000_000
"""The longest text that its JSON library reads."""
PAGE = "<html><head><title>Sign in</title></head><body>Sign in</body></html>"
HTML_500 = (
    "<html><head><title>Error 500 Internal Server Error</title></head>"
    "<body><h2>HTTP ERROR 500 Internal Server Error</h2></body></html>"
)


@dataclass(frozen=True)
class Received:
    """One POST: its body unzipped, its headers, the status answered (None: none), whether it was stored."""

    body: bytes
    headers: dict[str, str]
    status: int | None
    stored: bool
    path: str = LINEAGE

    @functools.cached_property  # since tests wait for what is stored, and so ask again and again
    def event(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.body))


@dataclass
class ContractServer:
    """The server; `start` makes it listen, `refuse` makes connections fail until `start` is called again."""

    port: int = 0
    upstream: str | None = None
    """Where a real Marquez is; its state then is what counts, and not what is noted here."""
    api_key: str | None = None
    reads_gzip: bool = True
    fault: str | None = None
    fault_of: Callable[[bytes], str | None] | None = None
    faults: deque[str | None] = field(default_factory=deque)
    received: list[Received] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    """The stored run events as `GET /api/v1/events/lineage` gives them, in the order of arrival."""
    runs: dict[str, str] = field(default_factory=dict)
    """Run id to state; any type of event that is no end sets it to RUNNING."""
    graph: Graph = field(default_factory=Graph)
    """The jobs and datasets that `GET /api/v1/lineage` draws."""
    connections: int = 0
    """How many were made."""
    unreadable: set[str] = field(default_factory=set)
    """The runs whose events it cannot read: a page that has one of them is answered 500."""
    tags: dict[str, str | None] = field(default_factory=dict)
    """The known tags, with their descriptions."""
    changes: list[str] = field(default_factory=list)
    """The requests that set or removed a tag, or deleted a job, whatever their response."""
    others: int = 0
    """How many JobEvents and DatasetEvents were stored: totalCount has them, `events` has not."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server: _Server | None = None
        self._refusing: socket.socket | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def stored(self) -> list[dict[str, Any]]:
        """What was stored, as it came, in the order of arrival."""
        return [received.event for received in self.received if received.stored]

    def start(self) -> ContractServer:
        """Listen; again at the same port after `refuse`."""
        self._released.clear()
        if self._refusing is not None:
            self._refusing.close()
            self._refusing = None
        self._server = _Server(self.port, self)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def refuse(self) -> None:
        """Stop listening and end every connection; what is still under way is not stored any more."""
        self.release()
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            server.end_connections()
            # Bound, so that no server of another test gets the port meanwhile; not listening, so it refuses.
            self._refusing = socket.socket()
            self._refusing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._refusing.bind(("127.0.0.1", self.port))

    def release(self) -> None:
        """Let go of the requests that hang; those that come later hang anew."""
        self._released.set()
        self._released = threading.Event()

    def wait_while_hanging(self) -> None:
        self._released.wait()

    def take_fault(self, body: bytes) -> str | None:
        """What shall go wrong with this request; None: nothing."""
        with self._lock:
            queued = self.faults.popleft() if self.faults else None
        return queued or (self.fault_of(body) if self.fault_of else None) or self.fault

    def keep(self, received: Received, server: _Server) -> bool:
        """Note a request and, if it is to be stored, what it does to the run; False if the server is gone."""
        with self._lock:
            if server is not self._server:
                return False
            self.received.append(received)
            if not received.stored:
                return True
            event = received.event
            changed = self.graph.take(event, kind_of(event))
            if kind_of(event) != "RunEvent":
                self.others += 1
                return True
            self.events.append(reserialised(event))
            state = STATES.get(str(event.get("eventType")).upper(), "RUNNING")
            self.runs |= dict.fromkeys(changed, state)
            return True


NOT_FOUND = 404, json.dumps({"code": 404, "message": "HTTP 404 Not Found"})


def described(contract: ContractServer, kind: str, name: tuple[str, str]) -> tuple[int, str]:
    """The known facts about a job or a dataset; a dataset is called as it was asked for."""
    graph = contract.graph
    if kind == "datasets":
        shown = graph.names.get(name, name)
        if shown not in graph.datasets:
            return NOT_FOUND
        said = {"description": graph.datasets[shown], "fields": graph.columns.get(shown, [])}
        return 200, json.dumps({"namespace": name[0], "name": name[1], **said})
    job = graph.jobs.get(name)
    if job is None:
        return NOT_FOUND
    listed = {side: job.listed(side) for side in ("inputs", "outputs")}
    latest = next((one for one in [graph.latest_run(name)] if one in contract.runs), None)
    content = {
        "namespace": name[0],
        "name": name[1],
        "simpleName": job.simple_name,
        "description": job.description,
        "location": job.location,
        "facets": job.facets,
        "latestRun": latest and said_of_run(contract, latest),
        "tags": job.tags if job.simple_name == name[1] else [],
        **listed,
    }
    return 200, json.dumps(content)


def said_of_run(contract: ContractServer, run_id: str) -> dict[str, Any]:
    """A run as it is in answers."""
    run = contract.graph.runs[run_id]
    return {
        "id": run_id,
        "state": contract.runs[run_id],
        "startedAt": written(run.started),
        "endedAt": written(run.ended),
        "durationMs": run.duration_ms,
        "facets": contract.graph.facets_of_run.get(run_id, {}),
    }


def runs_of(contract: ContractServer, job: tuple[str, str], query: dict[str, list[str]]) -> tuple[int, str]:
    """A page of the runs of a job."""
    found = contract.graph.jobs.get(job)
    if found is None:
        return NOT_FOUND
    runs = [one for one in contract.graph.runs_of(job) if one in contract.runs]
    offset, limit = (int(query.get(name, [text])[0]) for name, text in (("offset", "0"), ("limit", "100")))
    page = [said_of_run(contract, one) for one in runs[offset : offset + limit]]
    return 200, json.dumps({"runs": page, "totalCount": len(runs)})


def run_of(
    contract: ContractServer, run_id: str, query: dict[str, list[str]], facets: str | None
) -> tuple[int, str]:
    """The known facts about a run; or its facets, which its page requests with ``type=run``."""
    if run_id not in contract.runs:
        return 404, json.dumps({"code": 404, "message": f"Run '{run_id}' not found."})
    if facets is None:
        return 200, json.dumps(said_of_run(contract, run_id))
    if query.get("type") != ["run"]:
        return 400, json.dumps({"errors": ["query param type must not be null"]})
    return 200, json.dumps({"runId": run_id, "facets": contract.graph.facets_of_run.get(run_id, {})})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, contract: ContractServer) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.contract = contract
        self._connections: set[Request] = set()

    def process_request(self, request: Request, client_address: object) -> None:
        self.contract.connections += 1
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Request) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._connections):
            end(connection)

    def handle_error(self, request: Request, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 64 * 1024  # one packet an answer, or delayed acknowledgement costs 40 ms each
    server: _Server

    def do_PUT(self) -> None:
        self._change()

    def do_DELETE(self) -> None:
        self._change()

    def do_POST(self) -> None:
        contract = self.server.contract
        if JOB.match(self.path):
            return self._change()
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body, problem = self._unzipped(raw)
        fault = contract.take_fault(body)
        passes = contract.upstream is not None and (fault is None or fault.endswith("-stored"))
        status, answer = (
            problem or self._refusal(contract) or (self._pass_on(body) if passes else judge(body))
        )
        stored = status == 201
        if fault == "hang":
            self._keep(body, None, stored=False)
            contract.wait_while_hanging()
            return end(self.connection)
        if fault in {"close", "close-stored", "cut"}:
            self._keep(body, None, stored=stored and fault == "close-stored")
            if fault == "cut":
                self.wfile.write(b"HTTP/1.1 20")
                self.wfile.flush()
            return end(self.connection)
        if fault == "drip":
            self._keep(body, 500, stored=False)
            return self._drip()
        headers = {}
        if fault == "page":
            status, answer, stored = 200, PAGE, False
        elif fault is not None:
            code, _, retry_after_s = fault.removesuffix("-stored").partition(":")
            status, answer = int(code), json.dumps({"code": int(code), "message": f"fault {code} on request"})
            stored = stored and fault.endswith("-stored")
            headers = {"Retry-After": retry_after_s} if retry_after_s else {}
        if not self._keep(body, status, stored=stored):
            return end(self.connection)  # what was not stored must not be acknowledged
        self._answer(status, answer, headers)
        return None

    def _change(self) -> None:
        """Answer a request that sets or removes a tag, or deletes a job."""
        contract = self.server.contract
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        contract.changes.append(f"{self.command} {self.path}")
        fault = contract.take_fault(body)
        if fault is not None:
            end(self.connection) if not fault[:3].isdigit() else self._answer(int(fault[:3]), "{}")
        elif refusal := self._refusal(contract):
            self._answer(*refusal)
        elif contract.upstream is not None:
            self._answer(*self._pass_on(body))
        else:
            self._answer(*self._changed(contract, body))

    def _changed(self, contract: ContractServer, body: bytes) -> tuple[int, str]:
        path = urlsplit(self.path).path
        if self.command == "PUT" and (found := re.fullmatch(r"/api/v1/tags/([^/]+)", path)):
            contract.tags[unquote(found[1])] = json.loads(body)["description"]
            return 200, json.dumps({"name": unquote(found[1])} | json.loads(body))
        found = JOB.fullmatch(path)
        if found is None:
            return NOT_FOUND
        job = unquote(found[1]), unquote(found[2])
        if found[3] is None and self.command == "DELETE":
            answer = described(contract, "jobs", job)
            contract.graph.jobs.pop(job, None)  # until its next event
            return answer
        if found[3] is None or self.command == "PUT":
            return 405, json.dumps({"code": 405, "message": "HTTP 405 Method Not Allowed"})
        tag = unquote(found[3])
        status = contract.graph.tag(job, tag, is_set=self.command == "POST")
        if status == 200 and self.command == "POST":
            contract.tags.setdefault(tag, None)
        if status == 500:
            return 500, json.dumps({"code": 500, "message": "null value in column job_uuid"})
        return described(contract, "jobs", job)

    def do_GET(self) -> None:
        contract = self.server.contract
        fault = contract.take_fault(b"")
        path = urlsplit(self.path).path
        if fault == "hang":
            contract.wait_while_hanging()
            end(self.connection)
        elif fault is not None and fault[:3].isdigit():
            self._answer(int(fault[:3]), json.dumps({"message": f"fault {fault} on request"}))
        elif refusal := self._refusal(contract):
            self._answer(*refusal)
        elif fault == "page":
            self._answer(200, PAGE)
        elif path == "/api/v1/namespaces":
            names = sorted({event["job"]["namespace"] for event in contract.events} | {"default"})
            self._answer(200, json.dumps({"namespaces": [{"name": name} for name in names]}))
        elif path == "/api/v1/events/lineage":
            self._answer(*self._events(contract))
        elif path == LINEAGE:
            self._answer(*self._lineage(contract))
        else:
            self._answer(*self._named(contract, path, parse_qs(urlsplit(self.path).query)))

    def _named(self, contract: ContractServer, path: str, query: dict[str, list[str]]) -> tuple[int, str]:
        """Answer a request for a job, a dataset, a run or the tags."""
        if found := re.fullmatch(r"/api/v1/namespaces/([^/]+)/(jobs|datasets)/([^/]+)", path):
            return described(contract, found[2], (unquote(found[1]), unquote(found[3])))
        if found := re.fullmatch(r"/api/v1/namespaces/([^/]+)/jobs/([^/]+)/runs", path):
            return runs_of(contract, (unquote(found[1]), unquote(found[2])), query)
        if found := re.fullmatch(r"/api/v1/jobs/runs/([^/]+)(/facets)?", path):
            return run_of(contract, unquote(found[1]), query, found[2])
        if path == "/api/v1/tags":
            tags = [{"name": name, "description": says} for name, says in sorted(contract.tags.items())]
            return 200, json.dumps({"tags": tags})
        return NOT_FOUND

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""

    def _unzipped(self, raw: bytes) -> tuple[bytes, tuple[int, str] | None]:
        if self.headers.get("Content-Encoding") != "gzip":
            return raw, None
        if not self.server.contract.reads_gzip:
            return raw, (415, json.dumps({"code": 415, "message": "HTTP 415 Unsupported Media Type"}))
        try:
            return gzip.decompress(raw), None
        except (OSError, EOFError, zlib.error):
            return raw, (400, json.dumps({"code": 400, "message": "Unable to process gzip"}))

    def _refusal(self, contract: ContractServer) -> tuple[int, str] | None:
        if contract.api_key is not None and self.headers.get("Authorization") != f"Bearer {contract.api_key}":
            return 401, json.dumps(
                {"code": 401, "message": "Credentials are required to access this resource."}
            )
        if JOB.match(self.path):
            return None
        if self.command == "POST" and urlsplit(self.path).path != LINEAGE:
            return 404, json.dumps({"code": 404, "message": "HTTP 404 Not Found"})
        if self.command == "POST" and self.headers.get_content_type() != "application/json":
            return 415, json.dumps({"code": 415, "message": "HTTP 415 Unsupported Media Type"})
        return None

    def _events(self, contract: ContractServer) -> tuple[int, str]:
        query = parse_qs(urlsplit(self.path).query)
        first = {name: values[0] for name, values in query.items()}
        after = instant(first.get("after", "1970-01-01T00:00:00+00:00"))
        before = instant(first.get("before", "2030-01-01T00:00:00+00:00"))
        if after is None or before is None:
            return 400, json.dumps({"code": 400, "message": "not a full ISO 8601 instant with a zone"})
        chosen = [e for e in contract.events if after <= cast("datetime", instant(e["eventTime"])) < before]
        descending = first.get("sortDirection", "desc").lower() == "desc"
        chosen.sort(key=lambda e: cast("datetime", instant(e["eventTime"])), reverse=descending)
        offset, limit = int(first.get("offset", 0)), int(first.get("limit", 100))
        total = len(chosen) + contract.others
        page = chosen[offset : offset + limit]
        if not contract.unreadable.isdisjoint(event["run"]["runId"] for event in page):
            return 500, json.dumps({"code": 500, "message": "There was an error processing your request."})
        return 200, json.dumps({"events": page, "totalCount": total})

    def _lineage(self, contract: ContractServer) -> tuple[int, str]:
        query = parse_qs(urlsplit(self.path).query)
        (node_id,), (depth,) = query.get("nodeId", [""]), query.get("depth", ["20"])
        if not re.match(r"(dataset|datasetField|job|run):", node_id):
            return 400, json.dumps({"code": 400, "message": f"node ID ({node_id}) must start with 'dataset'"})
        nodes = contract.graph.lineage(node_id, int(depth))
        if nodes is None:
            return 404, json.dumps({"code": 404, "message": f"Node '{node_id}' not found."})
        return 200, json.dumps({"graph": nodes})

    def _pass_on(self, body: bytes) -> tuple[int, str]:
        """Ask the real Marquez."""
        parts = urlsplit(str(self.server.contract.upstream))
        connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        try:
            connection.request(self.command, self.path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def _keep(self, body: bytes, status: int | None, *, stored: bool) -> bool:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return self.server.contract.keep(Received(body, headers, status, stored, self.path), self.server)

    def _answer(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        content = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if body.startswith("<") else "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _drip(self) -> None:
        self.send_response(500)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        released = self.server.contract._released  # noqa: SLF001 - the handler is a part of the server
        while not released.wait(0.05):
            self.wfile.write(b".")
            self.wfile.flush()
        end(self.connection)


def end(connection: Request) -> None:
    try:
        cast("socket.socket", connection).shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def kind_of(event: dict[str, Any]) -> str:
    """The kind of an event, as Marquez tells it: by the last path segment of its schemaURL."""
    last = str(event.get("schemaURL", "")).rstrip("/").rpartition("/")[2]
    return last if last in {"JobEvent", "DatasetEvent"} else "RunEvent"


def judge(body: bytes) -> tuple[int, str]:
    """Marquez's answer to one POST of a lineage event."""
    unreadable = 500, '{"code":400,"message":"Unable to process JSON"}'
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return unreadable
    if not isinstance(event, dict) or (
        event.get("eventTime") is not None and instant(event["eventTime"]) is None
    ):
        return unreadable
    if is_ill_shaped(event) or any(len(text) > TEXT_MAX for text in texts(event)):
        return unreadable
    if any("\0" in text for text in texts(event)):
        return 500, HTML_500
    if errors := list(missing(event)):
        return 422, json.dumps({"errors": errors}, separators=(",", ":"))
    if kind_of(event) == "RunEvent" and not event.get("eventType"):
        return 500, HTML_500
    return 201, ""


def is_ill_shaped(event: dict[str, Any]) -> bool:
    """Whether something is no object or list that Marquez reads as one; what it does not know may be any."""
    datasets = []
    for side in ("inputs", "outputs"):
        named = event.get(side) or []
        if not isinstance(named, list):
            return True
        datasets += named
    holders = [(event.get(kind), kind) for kind in KNOWN_FACETS] + [(one, "dataset") for one in datasets]
    for holder, kind in holders:
        facets = holder.get("facets") if isinstance(holder, dict) else None
        known = [facets.get(name) for name in KNOWN_FACETS[kind]] if isinstance(facets, dict) else []
        if any(not isinstance(one, dict | None) for one in (holder, facets, *known)):
            return True
    return False


def missing(event: dict[str, Any]) -> list[str]:
    """What Marquez's validation misses in an event."""
    kind = kind_of(event)
    needed = {
        "RunEvent": ["eventTime", "producer", "run", "run.runId", "job", "job.name", "job.namespace"],
        "JobEvent": ["eventTime", "producer", "job", "job.name", "job.namespace"],
        "DatasetEvent": ["eventTime", "producer", "dataset", "dataset.name", "dataset.namespace"],
    }[kind]
    errors = [f"{path} must not be null" for path in needed if at(event, path) is None]
    errors += facet_errors(event.get("run"), "run") + facet_errors(event.get("job"), "job")
    for side in ("inputs", "outputs"):
        for dataset in event.get(side) or []:
            errors += [
                f"{side}[].{name} must not be null" for name in ("namespace", "name") if name not in dataset
            ]
            errors += facet_errors(dataset, "dataset")
    return errors


def facet_errors(holder: object, kind: str) -> list[str]:
    facets = holder.get("facets") if isinstance(holder, dict) else None
    if not isinstance(facets, dict):
        return []
    present = {name: facets[name] for name in KNOWN_FACETS[kind] if facets.get(name) is not None}
    return [
        f"{kind}.facets.{name}.{member} must not be null"
        for name, facet in present.items()
        for member in ("_producer", "_schemaURL")
        if not isinstance(facet, dict) or facet.get(member) is None
    ]


def texts(value: object) -> Iterator[str]:
    """Every string in a JSON value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for member in value.values():
            yield from texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts(member)


def at(event: dict[str, Any], path: str) -> object:
    value: object = event
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def instant(text: object) -> datetime | None:
    """An ISO 8601 instant with a zone; None for anything else."""
    try:
        parsed = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return parsed if parsed is not None and parsed.tzinfo is not None else None


def written(moment: str | None) -> str | None:
    """A time as Marquez writes it."""
    return moment and cast("datetime", instant(moment)).isoformat().replace("+00:00", "Z")


def reserialised(event: dict[str, Any]) -> dict[str, Any]:
    """A stored event as Marquez gives it back: absent known facets are null, a zone of zero is Z."""
    copy = cast("dict[str, Any]", json.loads(json.dumps(event)))
    moment = cast("datetime", instant(copy["eventTime"]))
    copy["eventTime"] = moment.isoformat().replace("+00:00", "Z")
    for kind in ("run", "job"):
        facets = copy[kind].get("facets")
        if isinstance(facets, dict):
            copy[kind]["facets"] = dict.fromkeys(KNOWN_FACETS[kind]) | facets
    return copy
