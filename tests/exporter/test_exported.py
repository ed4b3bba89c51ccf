"""Asking what was exported, at a folder by its URL and at a server that speaks S3's protocol."""

from __future__ import annotations

import functools
import hashlib
import io
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from layouts import HOUR_MS, START_MS, Layout, find, queries_strategy, record, records_strategy, stats
from stores import Store, new_bucket

from waybill.exporter import (
    IncompleteError,
    Query,
    SourceError,
    SourceUnreachableError,
    export,
    open_destination,
)
from waybill.exporter.query import ExportedFiles, cursor_of
from waybill.facets import FinalState
from waybill.lineage import Lineage
from waybill.transport import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from waybill.facets import ProvenanceRecord


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty destination, by its URL."""
    if request.param == "s3":
        return new_bucket(request.getfixturevalue("s3"), monkeypatch)
    folder = tmp_path / "the re"
    return Store(folder.as_uri().replace("%20", " "), pyarrow.fs.LocalFileSystem(), str(folder))


@pytest.fixture
def opened(store: Store) -> Callable[[], ExportedFiles]:
    """Open the destination anew, as another process would."""
    return functools.partial(ExportedFiles, store.url)


def exported(layout: Layout, url: str, *records: ProvenanceRecord, delete_after: bool = False) -> None:
    """Write records and export them."""
    layout.add(*records)
    assert export(layout.root, open_destination(url), delete_after=delete_after).failed == {}


def of_hours(count: int) -> list[ProvenanceRecord]:
    return [record(f"did-{at}", at_ms=at * HOUR_MS) for at in range(count)]


def asked(files: ExportedFiles, query: Query | None = None) -> list[str]:
    return [one.did for one in find(files.root, query, access=files)]


BY_KIND = (
    Query(),
    Query(final_state=FinalState.ERROR),
    Query(system_name="edge", since_ms=START_MS + 1),
    Query(has_data_sink=True, until_ms=START_MS + HOUR_MS),
)
BATCHES = st.lists(st.tuples(st.lists(records_strategy(), max_size=6), st.booleans()), min_size=1, max_size=2)


@hypothesis_settings(max_examples=4)
@given(BATCHES, st.lists(queries_strategy(), min_size=2, max_size=3))
def test_an_exported_root_gives_the_answers_of_a_root_that_kept_everything(
    batches: list[tuple[list[ProvenanceRecord], bool]], queries: list[Query]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept, leaving, there = (
            Layout(Path(folder, "kept")),
            Layout(Path(folder, "root")),
            Path(folder, "there"),
        )
        for records, delete_after in batches:
            exported(leaving, str(there), record("first"), *records, delete_after=delete_after)
            kept.add(record("first"), *records)
            files = ExportedFiles(there.as_uri())
            for query in (
                *queries,
                msgspec.structs.replace(queries[0], oldest_first=True, limit=2),
                *BY_KIND,
            ):
                assert find(files.root, query, access=files) == find(kept.root, query)
                assert stats(files.root, query, access=files) == stats(kept.root, query)
        assert paged(files) == find(kept.root)


def paged(files: ExportedFiles) -> list[ProvenanceRecord]:
    """All records, one page of two after the other."""
    found: list[ProvenanceRecord] = []
    after: str | None = None
    while page := find(files.root, Query(limit=2, after=after), access=files):
        found += page
        after = cursor_of(page[-1])
    return found


def test_a_question_reads_only_the_manifests_and_files_of_its_time_and_system(
    layout: Layout, store: Store, opened: Callable[[], ExportedFiles]
) -> None:
    other = record("other", at_ms=3 * HOUR_MS, system_name="other")
    exported(layout, store.url, *of_hours(27), other)
    for path in store.files():
        if path.endswith(".parquet") and "edge/20260101/03." not in path:
            store.remove(path)
    for path in ("edge/20260102.json", "other/20260101.json"):
        store.put(f"provenance/manifest/{path}", b"{")
    of_hour = Query(system_name="edge", since_ms=START_MS + 3 * HOUR_MS, until_ms=START_MS + 4 * HOUR_MS)
    assert asked(opened(), of_hour) == ["did-3"]
    for query in (Query(system_name="edge"), msgspec.structs.replace(of_hour, system_name=None)):
        with pytest.raises(SourceError, match=r"\.json is not a manifest .*; move it away and export again"):
            asked(opened(), query)


def test_a_manifest_that_lists_another_s_file_is_named(
    layout: Layout, store: Store, opened: Callable[[], ExportedFiles]
) -> None:
    exported(layout, store.url, *of_hours(1))
    manifest = "provenance/manifest/edge/20260101.json"
    for listed in (b"edge/20260102", b"other/20260101", b"../edge/20260101"):
        content = store.files()[manifest]
        store.put(manifest, content.replace(b"edge/20260101", listed))
        with pytest.raises(SourceError, match=r"lists .*, which is no file of the layout; move it away"):
            asked(opened())
        store.put(manifest, content)


def test_python_asks_a_destination_by_its_url(layout: Layout, store: Store) -> None:
    family = [record("a"), *(record(f"b{at}", parent_did="a", at_ms=at * HOUR_MS) for at in range(3))]
    exported(layout, store.url, *family)
    there, here = Lineage.open(store.url), Lineage.open(layout.root)
    assert there.trace("a") == here.trace("a")
    assert [one.did for one in there.descendants("a")] == ["b0", "b1", "b2"]
    assert there.find(Query(parent_did="a")) == here.find(Query(parent_did="a"))
    assert (there.stats(), there.count()) == (here.stats(), 4)
    assert there.find().to_arrow().num_rows == 4
    assert there.duplicates() == []


def test_where_nothing_was_exported_the_answer_is_an_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "the re").mkdir()
    with pytest.raises(NotFoundError, match=r"nothing was exported to .*; check the URL"):
        Lineage.open(store.url).find()


def test_a_store_that_does_not_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, s3: str, layout: Layout
) -> None:
    store = new_bucket(s3, monkeypatch)
    exported(layout, store.url, *of_hours(1))
    files = ExportedFiles(store.url)
    assert asked(files) == ["did-0"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(SourceUnreachableError, match=r"cannot be read .*; check the object store"):
        asked(ExportedFiles(store.url))


def test_a_file_that_is_gone_or_damaged_is_named_by_its_url_and_the_others_answer(
    layout: Layout, store: Store, opened: Callable[[], ExportedFiles]
) -> None:
    exported(layout, store.url, *of_hours(4))
    paths = [f"provenance/compacted/edge/20260101/0{at}.parquet" for at in range(4)]
    store.remove(paths[0])
    store.put(paths[1], b"PAR1 and nothing more PAR1")
    store.put(paths[2], b"")
    files = opened()
    found: list[ProvenanceRecord] = []
    with pytest.raises(IncompleteError) as raised:
        found += find(files.root, access=files)
    reasons = ["the manifest lists it, and it is gone"] + 2 * ["it is not a whole Parquet file"]
    assert sorted(raised.value.unread) == [
        f"{files.name}/{path} is damaged ({reason}); put a good copy in its place"
        for path, reason in zip(paths, reasons, strict=False)
    ]
    assert asked(files, Query(since_ms=START_MS + 3 * HOUR_MS)) == ["did-3"]


def test_an_older_file_than_the_listed_one_is_no_answer_and_a_newer_one_is(
    layout: Layout, store: Store, opened: Callable[[], ExportedFiles]
) -> None:
    exported(layout, store.url, *of_hours(2))
    path = layout.compacted()[0].relative_to(layout.root).as_posix()
    older = (layout.root / path).read_bytes()
    files = opened()
    listing = files.list_files(files.root, Query(), ())  # which reads the manifests
    before = store.files()[manifest := "provenance/manifest/edge/20260101.json"]
    exported(layout, store.url, record("did-2"))
    assert pq.read_metadata(files.place(listing.compacted(listing.hours[0], ())[0])).num_rows == 2
    after = store.files()[manifest]
    store.put(manifest, before)  # The export was stopped before it wrote this.
    assert asked(opened(), Query(until_ms=START_MS + 1)) == ["did-2", "did-0"]
    store.put(manifest, after)
    store.put(path, older)
    with pytest.raises(IncompleteError, match="it has fewer records than the manifest lists"):
        asked(opened())


def test_raw_files_that_programs_wrote_there_are_named_until_they_are_compacted(
    layout: Layout, store: Store, opened: Callable[[], ExportedFiles]
) -> None:
    exported(layout, store.url, *of_hours(2))
    layout.write(record("new", at_ms=1))
    (raw,) = layout.raw()
    store.put(path := raw.relative_to(layout.root).as_posix(), raw.read_bytes())
    for query in (Query(), Query(did="new"), Query(until_ms=START_MS + 2)):
        with pytest.raises(IncompleteError) as raised:
            asked(opened(), query)
        name = opened().name
        assert raised.value.unread == (
            f"{name}/{path} is not compacted yet; run `{shlex.join(['waybill', 'compact', name])}`",
        )
    assert asked(opened(), Query(since_ms=START_MS + HOUR_MS)) == ["did-1"]


def test_many_files_answer_in_order_while_the_next_are_opened(
    layout: Layout, store: Store, opened: Callable[[], ExportedFiles]
) -> None:
    exported(layout, store.url, *of_hours(12))
    for query in (Query(), Query(oldest_first=True), Query(filename="orders.csv", limit=7)):
        assert asked(opened(), query) == [one.did for one in find(layout.root, query)]


def test_a_large_file_is_read_in_parts_and_not_at_all_if_its_filters_rule_it_out(
    layout: Layout, store: Store, opened: Callable[[], ExportedFiles]
) -> None:
    names = [hashlib.sha256(str(at).encode()).hexdigest() for at in range(20_000)]
    exported(layout, store.url, *(record(name, at_ms=at, filename=name) for at, name in enumerate(names)))
    for query in (Query(did=names[777]), Query(filename=names[5]), Query(limit=3)):
        files = opened()
        assert find(files.root, query, access=files) == find(layout.root, query)
    ((path, data),) = [one for one in store.files().items() if one[0].endswith(".parquet")]
    assert len(data) > 2**20
    # Without its rows, what is left are the filters and the footer.
    rows_end = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0).bloom_filter_offset
    store.put(path, bytes(rows_end) + data[rows_end:])
    files = opened()
    assert asked(files, Query(did="another")) == []
    with pytest.raises(IncompleteError):
        asked(files, Query(did=names[777]))
