"""Bad input, from the endpoint to the files: a clear error or a correct record, and no harm to others."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from seam.chance import chance_from
from seam.emissions import emission, instant
from seam.homes import settings_in
from seam.oracle import check_visible, read_compacted

from waybill.exporter import Query
from waybill.exporter.archive import archived_files, read_entries
from waybill.facets import FinalState, ProvenanceRecord
from waybill.lineage import find
from waybill.transport import AdmissionError, Journal, Kind, Settings, WaybillConfig, WaybillTransport, flush
from waybill.transport.admission import Bounds, Redaction
from waybill.transport.receiver import Receiver
from waybill.transport.root import CLAIMS, MARKER

TEN_MB = 10 * 2**20
LAST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z"""

SYSTEM_NAMES = (
    "../../x",
    "a/b",
    "a'b",
    'a"b',
    "a\\b",
    "..",
    ".",
    "/",
    "/etc/passwd",
    "-rf",
    "_hidden",
    ".hidden",
    " ",
    "%2e%2e%2f",
    "line\nbreak",
    "tab\there",
    "münchen",
    "名前",
    "🛂",
    "e\u0301",
    "\u00e9",
    "\u202egpj",
    "x" * 300,
    "x" * 299 + "y",
    "/" * 300,
    "名" * 300,
    "CON",
    "a" * 200,
    "AbC",
    "aBc",
)


class Site:
    """A home with an endpoint in front of it and a layout behind."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.journal = Journal(settings.home)
        redaction = Redaction(bounds=Bounds(name_chars=TEN_MB))
        self.receiver = Receiver(
            lambda body: self.journal.append(Kind.OPENLINEAGE, redaction.admit(body), "stamped")
        )
        self.receiver.start()
        self._numbers = iter(range(0, 3_000, 3))
        self._good: list[ProvenanceRecord] = []

    def post(self, body: bytes, **headers: str) -> tuple[int, str]:
        """Send a body to the endpoint; the status and the sentence of the answer."""
        connection = http.client.HTTPConnection(urlsplit(self.receiver.url).netloc, timeout=60)
        connection.request("POST", "/api/v1/lineage", body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, json.loads(content)["errors"][0] if content else ""

    def post_good(self) -> None:
        """Send an event that nothing is wrong with: the neighbour of the others."""
        one = emission(next(self._numbers))
        assert self.post(one.items[0][1]) == (201, "")
        self._good.append(one.record)

    def others(self) -> list[ProvenanceRecord]:
        """Flush; the records of all but the neighbours, which must all be there and as they were."""
        report = flush(self.settings)
        assert not report.problems, report.problems
        check_visible(self.settings.root)
        outside = [
            path
            for path in self.settings.home.parent.rglob("*")
            if path.is_file()
            and not path.is_relative_to(self.settings.home)
            and not path.is_relative_to(self.settings.root / "provenance")
            and not path.is_relative_to(self.settings.root / "events")
            and not path.is_relative_to(self.settings.root / CLAIMS)
            and path != self.settings.root / MARKER
        ]
        assert not outside
        archived = [
            entry
            for _, path in archived_files(self.settings.root)
            for batch in read_entries(path)
            for entry in batch
        ]
        assert archived == self.journal.read(0), "the archive is the journal, to the byte"
        found = read_compacted(self.settings.root)
        lost = [record for record in self._good if record not in found]
        assert not lost
        return [record for record in found if record not in self._good]


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    site = Site(settings_in(folder / "site"))
    yield site
    site.receiver.close()
    site.journal.close()


def event(number: int = 1, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """A terminal event without the facet, with some members replaced."""
    body: dict[str, Any] = json.loads(emission(3 * number + 1).items[-1][1])
    return body | changes


def faceted(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """A terminal event with the facet, with some of the facet's members replaced."""
    body: dict[str, Any] = json.loads(emission(3_000).items[0][1])
    body["run"]["facets"]["waybill_deltaFile"] |= changes
    return body


def as_bytes(value: object) -> bytes:
    return json.dumps(value).encode()


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "not valid JSON"),
    "not JSON": (b"hello", 400, "not valid JSON"),
    "half an event": (as_bytes(event())[:-20], 400, "not valid JSON"),
    "two events": (as_bytes(event()) * 2, 400, "not valid JSON"),
    "an array": (as_bytes([event()]), 422, "object"),
    "a number": (b"1", 422, "object"),
    "null": (b"null", 422, "object"),
    "no UTF-8": (as_bytes(event(more="?")).replace(b"?", b"\xff"), 400, "UTF-8"),
    "nested without end": (b'{"a":' * 50_000, 422, "deep"),
    "a NUL byte": (as_bytes(event()).replace(b"job", b"j\0b"), 400, "not valid JSON"),
    "a NUL escaped": (as_bytes(event(producer="https://p/\0")), 422, "NUL"),
    "a NUL in a facet's key": (
        as_bytes(event(job={"namespace": "n", "name": "j", "facets": {"\0": 1}})),
        422,
        "NUL",
    ),
    "no run": (as_bytes({k: v for k, v in event().items() if k != "run"}), 422, "missing"),
    "no producer": (as_bytes({k: v for k, v in event().items() if k != "producer"}), 422, "missing"),
    "a run that is a text": (as_bytes(event(run="r")), 422, "run"),
    "a run id that is a number": (as_bytes(event(run={"runId": 7})), 422, "runId"),
    "an empty run id": (as_bytes(event(run={"runId": ""})), 422, "runId"),
    "inputs that are an object": (as_bytes(event(inputs={})), 422, "inputs"),
    "a time that is none": (as_bytes(event(eventTime="yesterday")), 422, "eventTime"),
    "a day that is none": (as_bytes(event(eventTime="2026-02-30T00:00:00Z")), 422, "eventTime"),
    "a time before 1970": (as_bytes(event(eventTime="1969-12-31T23:59:59Z")), 422, "eventTime"),
    "a time after 9999": (as_bytes(event(eventTime="10000-01-01T00:00:00Z")), 422, "eventTime"),
    "a completed before 1970": (as_bytes(faceted(completed="0001-01-01T00:00:00Z")), 422, "completed"),
    "a final state that is none": (as_bytes(faceted(finalState="BANANA")), 422, "finalState"),
    "transforms that are a text": (as_bytes(faceted(transforms="unpack")), 422, "transforms"),
    "a did that is a number": (as_bytes(faceted(did=7)), 422, "did"),
    "more than 64 MiB": (b'{"a":"' + bytes(65 * 2**20) + b'"}', 413, "larger than"),
}


def test_what_is_refused_is_refused_with_a_reason_and_costs_no_neighbour(site: Site) -> None:
    for case, (body, status, what) in REFUSED.items():
        site.post_good()
        answered, sentence = site.post(body)
        assert (answered, what in sentence) == (status, True), f"{case}: {answered} {sentence[:300]}"
        assert ";" in sentence, f"{case}: no way out in {sentence!r}"
        assert len(sentence) < 400, f"{case}: {len(sentence)} characters"
    site.post_good()
    assert site.others() == []


def test_any_system_name_is_kept_whole_and_leaves_no_folder_of_its_own(site: Site) -> None:
    for number, name in enumerate(SYSTEM_NAMES):
        body = faceted(did=f"did-{number}", systemName=name)
        body["run"]["runId"] = f"run-{number}"
        assert site.post(as_bytes(body)) == (201, "")
        derived = event(number, run={"runId": f"derived-{number}"}, job={"namespace": name, "name": "job"})
        assert site.post(as_bytes(derived)) == (201, "")
        site.post_good()
    found = {(record.system_name, record.did) for record in site.others()}
    assert found == {
        (name, did)
        for number, name in enumerate(SYSTEM_NAMES)
        for did in (f"did-{number}", f"derived-{number}")
    }
    root = site.settings.root
    for number, name in enumerate(SYSTEM_NAMES):
        dids = {record.did for record in find(root, Query(system_name=name))}
        assert dids == {f"did-{number}", f"derived-{number}"}, name
    folders = {path.name for path in (root / "provenance" / "compacted").iterdir()}
    depths = {"compacted": 5, "relations": 4}
    for kind, depth in depths.items():
        paths = list((root / "provenance" / kind).rglob("*.parquet"))
        assert {len(path.relative_to(root).parts) for path in paths} == {depth}
    assert {path.name for path in (root / "provenance").iterdir() if any(path.rglob("*.parquet"))} == set(
        depths
    )
    assert len(folders) >= len(SYSTEM_NAMES)


def test_no_system_name_is_the_stamped_one(site: Site) -> None:
    for number, name in enumerate(("", None)):
        body = faceted(did=f"did-{number}", systemName=name)
        body["run"]["runId"] = f"run-{number}"
        assert site.post(as_bytes(body)) == (201, "")
    assert site.post(as_bytes(event(job={"namespace": "", "name": "job"}))) == (201, "")
    site.post_good()
    assert {record.system_name for record in site.others()} == {"stamped"}


@pytest.mark.parametrize(
    ("written", "completed_ms"),
    [
        ("1970-01-01T00:00:00.001Z", 1),
        ("9999-12-31T23:59:59.999Z", LAST_MS),
        ("9999-12-31T23:59:59.999999Z", LAST_MS),
        ("2026-01-01T00:00:00+14:00", 1_767_175_200_000),
        ("2026-01-01T00:00:00-12:00", 1_767_268_800_000),
        ("2024-02-29T23:59:59.9Z", 1_709_251_199_900),
        ("2026-01-01T00:30:00", 1_767_227_400_000),
    ],
)
def test_a_time_far_away_is_in_the_hour_it_names(site: Site, written: str, completed_ms: int) -> None:
    site.post_good()
    assert site.post(as_bytes(event(eventTime=written))) == (201, "")
    site.post_good()
    (record,) = site.others()
    assert (record.completed, record.created) == (completed_ms, completed_ms)
    assert find(site.settings.root, Query(since_ms=completed_ms, until_ms=completed_ms + 1)) == [record]


@pytest.mark.parametrize("known", [False, True])
def test_a_facet_of_ten_megabytes_passes_and_costs_no_neighbour(site: Site, known: bool) -> None:  # noqa: FBT001
    body = faceted(filename="x" * TEN_MB) if known else faceted()
    if not known:
        body["run"]["facets"]["other"] = {
            "_producer": "https://p",
            "_schemaURL": "https://s",
            "text": "x" * TEN_MB,
        }
    site.post_good()
    assert site.post(as_bytes(body)) == (201, "")
    site.post_good()
    (record,) = site.others()
    assert len(record.filename) == TEN_MB if known else record == emission(3_000).record


def test_repeats_and_any_order_change_nothing(site: Site, seed: int) -> None:
    chance = chance_from(seed)
    emissions = [emission(number) for number in range(3_000, 3_030) if number % 3 != 2]
    bodies = [body for one in emissions for _, body, _ in one.items]
    # The same event with other whitespace is a different entry but the same event.
    again = [json.dumps(json.loads(body), indent=1).encode() for body in bodies]
    sent = bodies * 2 + again
    chance.shuffle(sent)
    for body in sent:
        assert site.post(body) == (201, "")
    site.post_good()
    found = sorted(site.others(), key=lambda record: record.did)
    assert found == [one.record for one in emissions], f"repeat with --seed={seed}"


def test_the_events_of_a_run_may_come_last_first_and_after_a_flush(site: Site) -> None:
    one = emission(3_001)
    start, end = (body for _, body, _ in one.items)
    assert site.post(end) == (201, "")
    (record,) = site.others()
    assert record.completed == one.record.completed
    assert site.post(start) == (201, "")
    assert site.others() == [one.record]


def test_the_transport_refuses_a_bad_event_and_keeps_the_next(folder: Path) -> None:
    settings = settings_in(folder / "site")
    given = {"home": settings.home, "root": settings.root, "provenance_enabled": True, "runner": "none"}
    transport = WaybillTransport(WaybillConfig.from_dict(given))
    client = OpenLineageClient(transport=transport)

    def emit(run_id: str, namespace: str) -> None:
        run, job = Run(run_id), Job(namespace, "job")
        moment = instant(emission(0).record.completed)
        client.emit(
            RunEvent(eventType=RunState.COMPLETE, eventTime=moment, run=run, job=job, producer="https://p")
        )

    dids = [emission(number).record.did for number in range(3)]
    emit(dids[0], "../../x")
    with pytest.raises(AdmissionError, match="NUL character"):
        emit(dids[1], "a\0b")
    emit(dids[2], "x" * 300)
    assert transport.close()
    assert not flush(settings).problems
    found = read_compacted(settings.root)
    assert {(record.did, record.system_name) for record in found} == {
        (dids[0], "../../x"),
        (dids[2], "x" * 300),
    }
    assert {record.final_state for record in found} == {FinalState.COMPLETE}


def test_what_no_door_lets_in_costs_no_neighbour_either(site: Site) -> None:
    for body in (b"", b"\xff", b"null", b"[{]", as_bytes(event(eventTime="never")), as_bytes([{"did": 7}])):
        for kind in (Kind.OPENLINEAGE, Kind.PROVENANCE):
            site.post_good()
            site.journal.append(kind, body)
    site.post_good()
    assert site.others() == []
