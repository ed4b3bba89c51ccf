"""What a DeltaFi system sends and asks."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import resource
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import apsw
import pytest
from hypothesis import given, settings, strategies as st
from served import COMPLETED_MS, DID, Collector, Reply, event, record, reply_of

from waybill.collector.endpoints import reading
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.facets import FinalState, ProvenanceRecord
from waybill.transport import Kind, Rejects, Settings, flush

if TYPE_CHECKING:
    from conftest import Open, Start
    from inside import Inside

MEMORY_BYTES_MAX = 600 * 10**6
SHOWN = {
    "did": DID,
    "parent_did": None,
    "system_name": "edge",
    "data_source": "sftp-in",
    "filename": "orders.csv",
    "transforms": ["decompress", "enrich"],
    "data_sink": "lake",
    "final_state": "COMPLETE",
    "created": COMPLETED_MS - 1_000,
    "completed": COMPLETED_MS,
    "annotations": None,
}


def filed(did: str, completed: int, *, transforms: tuple[str, ...] = ()) -> ProvenanceRecord:
    """A record as the layout has it."""
    return ProvenanceRecord(
        did=did,
        system_name="edge",
        data_source="in",
        filename="orders.csv",
        transforms=transforms,
        data_sink="out",
        final_state=FinalState.COMPLETE,
        created=completed,
        completed=completed,
    )


def fill(home: Path, files: int) -> None:
    """File so many records, each in a raw file of its own."""
    writer = RawWriter(home)
    for at in range(files):
        writer.write(RawName("a0", at + 1, at + 1), [filed(f"did-{at}", COMPLETED_MS + at)])


def send(collector: Inside, *records: object) -> Reply:
    return collector.post("/provenance", json.dumps(records).encode())


def ask(collector: Inside, **wanted: object) -> list[dict[str, Any]]:
    pairs = "&".join(f"{name}={value}" for name, value in wanted.items())
    reply = collector.get(f"/api/v1/records?{pairs}")
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = reply.json
    return found


def rejects(collector: Inside) -> dict[str, bytes | None]:
    kept = Rejects(collector.journal)
    return {one.reason: kept.body(one.id) for one in kept.all()}


def test_a_record_is_acknowledged_and_seen_at_once(shared: Inside) -> None:
    reply = send(shared, record())
    assert (reply.status, reply.json) == (202, {"received": 1, "accepted": 1, "failed": []})
    assert reply.headers["waybill-receipt"]
    assert ask(shared, did=DID) == [SHOWN]


def test_a_record_is_found_however_its_texts_are_written(shared: Inside) -> None:
    did, sink = 'a"b/\u00fc\u4e2d', "out\\\u00fc"
    for raw in (True, False):  # as UTF-8 and with escapes
        told = record(did=f"{did}{raw}", dataSink=sink, annotations={"note": "plain"})
        assert shared.post("/provenance", json.dumps([told], ensure_ascii=not raw).encode()).status == 202
        plain = record(did=f"\u00fc{raw}", dataSink=f"\u00fc{raw}")
        assert shared.post("/provenance", json.dumps([plain], ensure_ascii=not raw).encode()).status == 202
        assert [one["data_sink"] for one in ask(shared, did=quote(f"{did}{raw}"))] == [sink]
        assert [one["did"] for one in ask(shared, data_sink=quote(f"\u00fc{raw}"))] == [f"\u00fc{raw}"]
    assert len(ask(shared, data_sink=quote(sink))) == 2
    assert ask(shared, did="ab") == []


def test_the_newest_come_first_a_page_at_a_time_with_a_link_to_the_next(shared: Inside) -> None:
    ended = [COMPLETED_MS + at for at in range(250)]
    send(shared, *(record(did=f"page-{at_ms}", dataSource="pages", completed=at_ms) for at_ms in ended))
    newest = [f"page-{at_ms}" for at_ms in reversed(ended)]
    assert [one["did"] for one in ask(shared, data_source="pages")] == newest[:100]
    assert [one["did"] for one in ask(shared, data_source="pages", limit=7, offset=101)] == newest[101:108]
    assert len(ask(shared, data_source="pages", limit=5_000)) == 250
    for offset in (250, 10**14):
        assert ask(shared, data_source="pages", offset=offset) == []
    assert len(ask(shared, **{"data_source": "pages", "from": ended[10], "to": ended[12]})) == 3
    for door in ("/api/v1/records", "/provenance/query"):
        for order, wanted in (("newest", newest), ("oldest", newest[::-1])):
            found, text = [], f"data_source=pages&order={order}&limit=90"
            while text:
                reply = shared.get(f"{door}?{text}")
                found += [one["did"] for one in reply.json]
                text = reply.headers.get("link", "").removeprefix("<?").removesuffix('>; rel="next"')
            assert found == wanted
    reply = shared.get("/api/v1/records?data_source=pages&limit=2&offset=1")
    assert "offset" not in reply.headers["link"]


PIECES = ("'", '"', "%", "%27", "\\", "; --", "*", "?", "[", "]", "ü", "中", "😀", "=", "&", "#", ",", "a")
ODD_TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9),
    st.sampled_from(["' OR '1'='1", "x" * 1_000, "%" * 1_000, "\"'\\%[" * 200]),
).filter(lambda text: text == text.strip() and not text.startswith("="))
"""Names that would do harm where a text is taken for more than data."""


@settings(max_examples=settings().max_examples // 10)
@given(odd=ODD_TEXTS)
def test_any_text_is_only_data_in_every_filter(shared: Inside, odd: str) -> None:
    names = ("did", "parentDid", "systemName", "dataSource", "filename", "dataSink")
    for text in (odd, f"{odd}'"):
        whole = record(**dict.fromkeys(names, text), annotations={"k": text})
        assert send(shared, whole).status == 202
    fields = ("did", "parent_did", "system_name", "data_source", "data_sink", "filename")
    pairs = [*((name, odd) for name in fields), ("annotation", f"k={odd}"), ("not_data_sink", f"{odd}'")]
    for door in ("api/v1/records", "provenance/query"):
        assert [one["did"] for one in shared.get(f"/{door}?{urlencode(pairs)}").json] == [odd]
    assert shared.get(f"/provenance/stats?{urlencode(pairs)}").json["total_records"] == 1
    missing = urlencode([("did", f"{odd}'"), ("missing_sink", odd)])
    assert [one["did"] for one in shared.get(f"/api/v1/records?{missing}").json] == [f"{odd}'"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("colour=red", "colour"),
        ("limit=ten", "limit"),
        ("limit=-1", "limit"),
        ("from=yesterday", "from"),
        ("final_state=BANANA", "final_state"),
        ("annotation_key=a", "annotation_value"),
        ("did=1&did=2", "did"),
        ("did=a%00", "did"),
        ("did=%ff", "UTF-8"),
        ("partial=perhaps", "partial"),
        ("not_final_state=LOST", "not_final_state"),
        ("annotation=k", "annotation"),
        ("after=nonsense", "after"),
        ("order=best", "order"),
        ("no_data_sink=1", "no_data_sink"),
        ("missing_sink=a&missing_sink=b", "missing_sink"),
    ],
)
def test_a_parameter_that_cannot_be_is_a_400_that_names_it(shared: Inside, text: str, named: str) -> None:
    for door in ("records", "records/stats"):
        reply = shared.get(f"/api/v1/{door}?{text}")
        assert (reply.status, named in reply.json["detail"]) == (400, True), reply


IN_DELTAFIS_FORM = {
    "did": "a1",
    "parent_did": "",
    "system_name": "edge",
    "data_source": "forms",
    "filename": "f.csv",
    "transforms": "[t1, a, b, it's, , q\"q]",
    "data_sink": "lake",
    "final_state": "COMPLETE",
    "created": "2026-01-31T11:59:59Z",
    "completed": "2026-01-31T12:00:00.123Z",
    "annotations": {"k": "a,b=c"},
}
"""What DeltaFi's own collector answered to the first of the records in the test below."""


def test_deltafi_is_answered_in_its_own_form(shared: Inside) -> None:
    odd = ["t1", "a, b", "it's", "", 'q"q']
    assert (
        send(
            shared,
            record(did="a1", dataSource="forms", filename="f.csv", transforms=odd, annotations={"k": "a,b=c"})
            | {"created": COMPLETED_MS - 1_000, "completed": COMPLETED_MS + 123},
            record(
                did="a2", parentDid="a1", dataSource="forms", transforms=[], dataSink=None, finalState="ERROR"
            )
            | {"systemName": "other", "completed": COMPLETED_MS + 100},
        ).status
        == 202
    )
    first, second = shared.get(
        "/provenance/query?data_source=forms&did=&annotation_key=k&annotation_value="
    ).json
    assert first == IN_DELTAFIS_FORM
    assert {
        key: second[key] for key in ("parent_did", "transforms", "data_sink", "completed", "annotations")
    } == {
        "parent_did": "a1",
        "transforms": "[]",
        "data_sink": "",
        "completed": "2026-01-31T12:00:00.1Z",
        "annotations": None,
    }
    assert shared.get("/provenance/stats?data_source=forms&annotation_key=k").json == {
        "total_records": 2,
        "by_final_state": {"COMPLETE": 1, "ERROR": 1},
        "by_system_name": {"edge": 1, "other": 1},
        "by_data_source": {"forms": 2},
        "oldest_record": "2026-01-31T12:00:00.1Z",
        "newest_record": "2026-01-31T12:00:00.123Z",
    }
    assert shared.get("/provenance/query?did=nobody").body == b"null"
    assert shared.get("/provenance/stats?did=nobody").json == {
        "total_records": 0,
        "by_final_state": {},
        "by_system_name": {},
        "by_data_source": {},
    }


def test_deltafi_is_told_of_fifty_systems_at_most_and_of_none_without_a_name(shared: Inside) -> None:
    names = [f"system-{at:02}" for at in range(60)]
    send(shared, *(record(did=f"many-{name}", dataSink="many", systemName=name) for name in names))
    send(shared, record(did="again", dataSink="many", systemName=names[-1], dataSource=""))
    told = shared.get("/provenance/stats?data_sink=many").json
    assert (len(told["by_system_name"]), told["by_system_name"][names[-1]]) == (50, 2)
    assert told["by_data_source"] == {"sftp-in": 60}
    assert len(shared.get("/api/v1/records/stats?data_sink=many").json["by_system_name"]) == 60


def test_the_first_answer_loads_what_computes_and_neither_numpy_nor_pandas(start: Start) -> None:
    pytest.importorskip("pandas")
    collector = start("--runner", "none")
    assert collector.post("/provenance", json.dumps([record(did="taken")]).encode()).status == 202
    assert collector.get("/health/ready").status == 200
    maps = Path(f"/proc/{collector.process.pid}/maps")
    mapped = maps.read_text(encoding="utf-8")
    assert "/pyarrow/" in mapped, "it packs bodies"
    assert "/pyarrow/_compute" not in mapped
    assert collector.get("/api/v1/records?did=unknown").json == []
    assert collector.get("/api/v1/records/stats?by=hour").status == 200
    mapped = maps.read_text(encoding="utf-8")
    assert "/pyarrow/_compute" in mapped
    assert "/numpy/" not in mapped
    assert "/pandas/" not in mapped


def test_an_answer_has_a_bound_and_each_record_can_be_had(inside: Open) -> None:
    collector = inside(provenance_enabled=True, admit_name_chars=6_000_000)
    for at in range(3):
        large = record(did=f"large-{at}", filename="x" * 6_000_000, completed=COMPLETED_MS + at)
        assert send(collector, large).status == 202
    reply = collector.get("/api/v1/records")
    assert (reply.status, "limit" in reply.json["detail"]) == (400, True)
    pages = [ask(collector, limit=1, offset=at) for at in (0, 2, 3)]
    assert [[one["did"] for one in page] for page in pages] == [["large-2"], ["large-0"], []]


def test_statistics_count_each_record_once(shared: Inside) -> None:
    send(
        shared,
        *(
            record(did=f"count-{at}", filename="count", finalState=state)
            for at, state in enumerate(["COMPLETE", "ERROR", "ERROR"])
        ),
    )
    send(shared, record(did="count-0", filename="count", finalState="COMPLETE", created=COMPLETED_MS - 5))
    facets = {"waybill_deltaFile": {"did": "count-open", "dataSource": "sftp-in", "filename": "count"}}
    begun = event(run={"runId": "count-open", "facets": facets})
    assert shared.post("/api/v1/lineage", begun).status == 201
    assert shared.get("/api/v1/records/stats?filename=count").json == {
        "total_records": 3,
        "by_final_state": {"COMPLETE": 1, "ERROR": 2},
        "by_system_name": {"edge": 3},
        "by_data_source": {"sftp-in": 3},
        "oldest_record": COMPLETED_MS,
        "newest_record": COMPLETED_MS,
        "unended_files": 1,
    }
    for door, hour in (("/api/v1/records", COMPLETED_MS), ("/provenance", "2026-01-31T12:00:00Z")):
        assert shared.get(f"{door}/stats?filename=count&by=hour,sink,state").json == [
            {"hour": hour, "data_sink": "lake", "final_state": state, "count": count}
            for state, count in (("COMPLETE", 1), ("ERROR", 2))
        ]
        assert shared.get(f"{door}/stats?filename=none&by=source").json == []
        reply = shared.get(f"{door}/stats?by=state,color")
        assert (reply.status, "the parameter by is 'color'" in reply.json["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("bad", "words"),
    [(record(did="bad-5", finalState="BANANA"), "finalState"), (record(filename="a\0b"), "NUL"), (7, "$")],
    ids=["an unknown state", "a NUL character", "no record at all"],
)
def test_one_bad_record_costs_no_neighbour_and_is_kept_as_a_reject(
    shared: Inside, bad: object, words: str
) -> None:
    mark = f"neighbour of {json.dumps(bad)}"
    good = [record(did=f"{mark} {at}", filename=mark) for at in range(2)]
    reply = send(shared, good[0], bad, good[1])
    (failed,) = reply.json["failed"]
    assert (reply.status, reply.json["received"], reply.json["accepted"], failed["index"]) == (202, 3, 2, 1)
    assert words in failed["reason"]
    assert b"[" + json.dumps(bad).encode() + b"]" in rejects(shared).values()
    assert {one["did"] for one in ask(shared, limit=1000)} >= {one["did"] for one in good}
    assert send(shared, bad).status == 422


def test_more_than_a_thousand_bad_records_cost_the_good_ones_too(shared: Inside) -> None:
    bad = [record(did=f"many-{at}", finalState="BANANA") for at in range(1_001)]
    good = record(did="among many", dataSource="among many")
    refused = send(shared, *bad, good)
    assert (refused.status, ask(shared, data_source=quote("among many"))) == (422, [])
    assert "more than 1,000 elements are wrong, so none was stored" in refused.json["detail"]
    assert json.dumps([*bad, good]).encode() in rejects(shared).values()
    taken = send(shared, *bad[1:], good)
    assert (taken.status, taken.json["accepted"], len(taken.json["failed"])) == (202, 1, 1_000)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"[]", 202), (b"{}", 422), (b"[{]", 400), (b"", 400), (b"\xff", 400), (b"[" * 9_000, 422)],
)
def test_what_is_no_array_of_records_is_refused_whole(shared: Inside, body: bytes, status: int) -> None:
    assert shared.post("/provenance", body).status == status


def test_too_many_entries_to_fold_for_one_answer_are_an_error_that_passes(
    inside: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_UNFILED_ENTRIES_MAX", 1)
    collector = inside()
    for at in range(2):
        send(collector, record(did=f"did-{at}"))
    reply = collector.get("/api/v1/records")
    assert (reply.status, "2 accepted entries are not in files yet" in reply.json["detail"]) == (503, True)


def test_a_flush_files_what_was_taken_and_answers_with_its_report(inside: Open) -> None:
    collector = inside(provenance_enabled=True)
    assert send(collector, record()).status == 202
    report = collector.post("/provenance/flush", b"")
    assert (report.status, report.json["left"], len(report.json["files"])) == (200, {}, 1)
    assert ask(collector) == [SHOWN]


def test_an_answer_that_would_lack_records_is_an_error_unless_a_part_will_do(inside: Open) -> None:
    collector = inside(provenance_enabled=True)
    fill(collector.home, 3)
    bad = next((collector.home / "provenance/raw").rglob("a0-1-1.parquet"))
    bad.write_bytes(bad.read_bytes()[:-9])
    for door, whole in (("query", list), ("stats", dict)):
        reply = collector.get(f"/provenance/{door}")
        assert (reply.status, reply.headers["content-type"]) == (503, "application/problem+json")
        assert [str(bad) in one for one in reply.json["errors"]] == [True]
        reply = collector.get(f"/provenance/{door}?partial=true")
        assert (reply.status, type(reply.json)) == (200, whole)
        assert "incomplete: 1 file or entry could" in reply.headers["warning"]
    assert [one["did"] for one in ask(collector, partial="true")] == ["did-2", "did-1"]
    bad.unlink()
    assert "warning" not in collector.get("/provenance/query?partial=true").headers
    assert len(ask(collector)) == 2


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")
def test_an_answer_with_too_few_descriptors_is_whole_or_says_that_it_is_not(start: Start) -> None:
    collector, files = start("--runner", "none", "--provenance-enabled"), 20
    fill(collector.home, files)
    doors = ("/provenance/query", "/provenance/query?partial=true")
    # All that is loaded late is loaded, and nobody needs a descriptor for a connection.
    clients = [collector.connect() for _ in doors * 2]
    assert [len(reply_of(client, "GET", doors[0]).json) for client in clients] == [files] * len(clients)
    pid = collector.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir())

    def ask_often(client: http.client.HTTPConnection, door: str) -> list[tuple[str, Reply]]:
        return [(door, reply_of(client, "GET", door)) for _ in range(5)]

    replies = {}
    with ThreadPoolExecutor(len(clients)) as pool:
        for limit in (3, highest + 2, highest + 3):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
            replies[limit] = list(chain.from_iterable(pool.map(ask_often, clients, doors * 2)))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert {reply.status for _, reply in replies[3]} == {503}
    for door, reply in chain.from_iterable(replies.values()):
        assert reply.status in {200, 503}, reply
        if reply.status == 200 and len(reply.json or ()) < files:
            assert door == doors[1]
            assert "incomplete: " in reply.headers["warning"]
    assert len(collector.get(doors[0]).json) == files


DOORS = ["/api/v1/records", "/api/v1/records/stats", "/provenance/query", "/provenance/stats"]


def damage(home: Path, seq: int) -> None:
    """Alter the bytes of an entry behind the journal's back."""
    connection = apsw.Connection(str(home / "journal.db"))
    connection.execute(
        "UPDATE entries SET body = CAST(replace(body, 'did-', 'dxd-') AS BLOB) WHERE seq = ?", (seq,)
    )
    connection.close()


def test_an_answer_that_lacks_a_damaged_entry_says_so_before_and_after_it_becomes_poison(
    inside: Open, settings: Settings, root: Path
) -> None:
    collector = inside(provenance_enabled=True, root=root)
    for at in range(4):
        send(collector, record(did=f"did-{at}", completed=COMPLETED_MS + at))
        if not at:  # what it has read before, it knows
            assert ["warning" in collector.get(door).headers for door in DOORS] == [False] * 4
    damage(collector.home, 2)
    for door in DOORS:
        reply = collector.get(f"{door}?did=did-0")
        assert (reply.status, ["entry 2 of" in one for one in reply.json["errors"]]) == (503, [True])
        reply = collector.get(f"{door}?partial=true")
        assert (reply.status, "incomplete: 1 file or entry could" in reply.headers["warning"]) == (200, True)
    assert flush(settings).poison == {"layout": 1, "archive": 1, "index": 1}
    for door in DOORS:
        reply = collector.get(door)
        note = "1 entry is poison and in no answer; see `waybill poison list`"
        assert (reply.status, reply.headers["warning"]) == (200, f'199 waybill "{note}"')
    assert [one["did"] for one in ask(collector)] == ["did-3", "did-2", "did-0"]


def test_an_entry_that_no_record_can_be_made_of_is_not_left_out_silently(inside: Open) -> None:
    collector = inside(provenance_enabled=True)
    collector.journal.append(Kind.PROVENANCE, b'[{"did": 1}]')
    reply = collector.get("/api/v1/records")
    assert (reply.status, ["entry 1 of" in one for one in reply.json["errors"]]) == (503, [True])


def test_a_root_that_is_away_is_an_error_and_not_an_empty_answer(
    inside: Open, settings: Settings, root: Path
) -> None:
    collector = inside(provenance_enabled=True, root=root)
    receipt = send(collector, record()).headers["waybill-receipt"]
    assert flush(settings).left == {}
    doors = ["/api/v1/records", "/api/v1/records/stats", "/provenance/query?partial=true"]
    doors.append(f"/where?receipt={receipt}")
    assert [collector.get(door).status for door in doors] == [200, 200, 200, 200]
    root.rename(root.with_name("away"))
    root.mkdir()
    for door in doors:
        reply = collector.get(door)
        assert (reply.status, "waybill root adopt" in reply.body.decode()) == (503, True), door


@pytest.fixture(params=["shared", "of an instant", "all different"])
def loaded(start: Start, request: pytest.FixtureRequest) -> Collector:
    """A collector whose root has records with long texts."""
    collector = start("--runner", "none", "--provenance-enabled")
    writer, chance = RawWriter(collector.home), random.Random(7)  # noqa: S311 - it guards no secret
    for part in range(5):
        records = [
            filed(
                chance.randbytes(8).hex(),
                COMPLETED_MS + (at if request.param == "all different" else at % 2),
                transforms=("x" * 900_000 if request.param == "shared" else chance.randbytes(450_000).hex(),),
            )
            for at in range(60)
        ]
        writer.write(RawName("a0", part + 1, part + 1), records)
    return collector


@pytest.mark.exhaustive
def test_questions_about_long_texts_take_no_more_memory_than_is_promised(loaded: Collector) -> None:
    questions = ("records/stats", "records?limit=10", "records?limit=500", "records/stats?data_source=in")

    def ask(question: str) -> Reply:
        # How long the answers to several at once take is up to the machine; how much memory is not.
        with contextlib.closing(loaded.connect(timeout_s=240)) as connection:
            return reply_of(connection, "GET", f"/api/v1/{question}")

    with ThreadPoolExecutor(len(questions)) as clients:
        replies = list(clients.map(ask, questions))
    assert [reply.status for reply in replies] == [200, 200, 400, 200]
    counted, some, refused, of_source = (reply.json for reply in replies)
    assert counted["total_records"] == of_source["total_records"] == 300
    assert len(some) == 10
    assert "use a smaller limit" in refused["detail"]
    assert loaded.peak_bytes < MEMORY_BYTES_MAX
