"""Asking what was exported, at a folder by its URL and at a server that speaks S3's protocol."""

from __future__ import annotations

import functools
import hashlib
import io
import shlex
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from layouts import (
    HOUR_MS,
    START_MS,
    Layout,
    StoppedError,
    StoppingFiles,
    find,
    record,
    records_strategy,
    stats,
)
from stores import Store, new_bucket

from waybill.exporter import IncompleteError, Query, SourceUnreachableError, export, open_destination
from waybill.exporter.keys import ExportedKeys, open_exported
from waybill.exporter.keys.contents import read_contents
from waybill.exporter.query import cursor_of
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


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))


@pytest.fixture
def opened(store: Store, tmp_path: Path) -> Callable[..., ExportedKeys]:
    """Open the destination anew, as another process would."""
    return functools.partial(ExportedKeys, store.url, tmp_path / "cache")


def exported(layout: Layout, url: str, *records: ProvenanceRecord, delete_after: bool = False) -> None:
    """Write records and export them."""
    layout.write(*records)
    layout.compactor().compact()
    assert export(layout.root, open_destination(url), delete_after=delete_after).failed == {}


def of_hours(count: int) -> list[ProvenanceRecord]:
    return [record(f"did-{at}", at_ms=at * HOUR_MS) for at in range(count)]


def asked(keys: ExportedKeys, query: Query | None = None) -> list[str]:
    return [one.did for one in find(keys.root, query, access=keys)]


def make(keys: ExportedKeys) -> int:
    """Ask for a text, so that all files are read; return how many of them have keys."""
    keys.list_files(keys.root, Query(did="nobody"), ())
    contents = read_contents(keys.root)
    return 0 if contents is None else sum(span.live for span in contents.spans)


def maybe(*values: object) -> st.SearchStrategy[object]:
    return st.none() | st.sampled_from(values)


QUERIES = st.builds(
    Query,
    did=maybe("d1", "d2", "d3"),
    dids=maybe(frozenset({"d1", "d3"}), frozenset()),
    parent_did=maybe("p1", "p3"),
    system_name=maybe("edge", "core/7", "nobody"),
    filename=maybe("a", "a*", "", "ab"),
    final_state=maybe(FinalState.ERROR),
    annotations=st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["a", "", "b"]), max_size=1),
    since_ms=maybe(START_MS + 1, START_MS + HOUR_MS),
    until_ms=maybe(START_MS + 1, START_MS + HOUR_MS),
    oldest_first=st.booleans(),
    limit=maybe(1, 3),
)
BY_KIND = (
    Query(),
    Query(final_state=FinalState.ERROR),
    Query(system_name="edge", since_ms=START_MS + 1),
    Query(has_data_sink=True, until_ms=START_MS + HOUR_MS),
)
BATCHES = st.lists(st.tuples(st.lists(records_strategy(), max_size=6), st.booleans()), min_size=1, max_size=3)


@hypothesis_settings(max_examples=8)
@given(BATCHES, st.lists(QUERIES, min_size=2, max_size=4), st.sampled_from([0, 2**25]))
def test_an_exported_root_gives_the_answers_of_a_root_that_kept_everything(
    batches: list[tuple[list[ProvenanceRecord], bool]], queries: list[Query], read_first_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept, leaving, there = (
            Layout(Path(folder, "kept")),
            Layout(Path(folder, "root")),
            Path(folder, "there"),
        )
        for records, delete_after in batches:
            exported(leaving, str(there), record("first"), *records, delete_after=delete_after)
            kept.write(record("first"), *records)
            kept.compactor().compact()
            keys = ExportedKeys(there.as_uri(), Path(folder, "cache"), read_first_bytes=read_first_bytes)
            for query in queries:
                found = find(keys.root, query, access=keys)
                assert found == find(kept.root, query)
                assert stats(keys.root, query, access=keys) == stats(kept.root, query)
            if len(records) % 2:
                make(keys)
            for query in BY_KIND:
                assert find(keys.root, query, access=keys) == find(kept.root, query)
                assert stats(keys.root, query, access=keys) == stats(kept.root, query)
        assert paged(keys) == find(kept.root)


def paged(keys: ExportedKeys) -> list[ProvenanceRecord]:
    """All records, one page of two after the other."""
    found: list[ProvenanceRecord] = []
    after: str | None = None
    while page := find(keys.root, Query(limit=2, after=after), access=keys):
        found += page
        after = cursor_of(page[-1])
    return found


def test_a_question_opens_only_the_files_that_may_hold_the_answer_and_each_is_read_once(
    layout: Layout, store: Store, opened: Callable[..., ExportedKeys]
) -> None:
    exported(layout, store.url, *of_hours(6))
    assert make(opened()) == 6
    for path in [path for path in store.files() if path.endswith(".parquet") and "/03." not in path]:
        store.remove(path)
    keys = opened()
    for query in (Query(did="did-3"), Query(dids=frozenset({"did-3"})), Query(until_ms=START_MS)):
        assert asked(keys, query) == (["did-3"] if query.until_ms is None else [])
    assert keys.problem is None


def test_files_that_the_keys_has_are_counted_without_being_opened_until_they_are_replaced(
    layout: Layout, store: Store, opened: Callable[..., ExportedKeys]
) -> None:
    failed = record("failed", at_ms=2 * HOUR_MS, final_state=FinalState.ERROR)
    exported(layout, store.url, *of_hours(2), failed)
    assert make(opened()) == 3
    exported(layout, store.url, record("more", at_ms=1))
    for path in [path for path in store.files() if path.endswith(("/01.parquet", "/02.parquet"))]:
        store.put(path, b"PAR1 and nothing more PAR1")
    keys = opened()
    assert stats(keys.root, access=keys).by_final_state == {"COMPLETE": 3, "ERROR": 1}
    assert stats(keys.root, Query(until_ms=START_MS + HOUR_MS), access=keys).total_records == 2
    assert asked(keys, Query(final_state=FinalState.FILTERED)) == []
    with pytest.raises(IncompleteError):
        asked(keys, Query(final_state=FinalState.ERROR))


def test_what_is_exported_later_is_in_the_next_answer_and_in_the_keys(
    layout: Layout, store: Store, opened: Callable[..., ExportedKeys]
) -> None:
    exported(layout, store.url, *of_hours(2), delete_after=True)
    assert asked(opened(), Query(filename="orders.csv")) == ["did-1", "did-0"]
    exported(
        layout, store.url, record("late", at_ms=1, filename="late.csv"), record("new", at_ms=2 * HOUR_MS)
    )
    assert asked(opened()) == ["new", "did-1", "late", "did-0"]
    assert asked(opened(), Query(filename="late.csv")) == ["late"]
    assert make(opened()) == 3


def test_many_files_are_opened_without_the_keys_which_a_note_says(
    layout: Layout, store: Store, opened: Callable[..., ExportedKeys]
) -> None:
    exported(layout, store.url, *of_hours(3))
    keys = opened(read_first_bytes=0)
    assert asked(keys, Query(did="did-2")) == ["did-2"]
    assert keys.problem is not None
    assert keys.problem.startswith(f"3 of the 3 files at {keys.name} have no keys yet; each question")
    assert make(keys) == 0
    seen: list[tuple[int, int]] = []
    progress = functools.partial(nullcontext, lambda completed, total: seen.append((completed, total)))
    keys = opened(progress=progress)
    assert asked(keys, Query(did="did-2")) == ["did-2"]
    assert seen == [(0, 3)]
    assert keys.problem is None


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


def test_the_keys_is_in_the_home_if_there_is_one_and_in_the_user_s_cache_if_not(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "the re").mkdir()
    assert open_exported(store.url, tmp_path / "home").root.parent == tmp_path / "home/exported"
    assert open_exported(store.url, tmp_path / "none").root.parent == tmp_path / "own/waybill/exported"


def test_without_a_place_for_the_keys_the_answer_is_the_same(
    layout: Layout, store: Store, tmp_path: Path
) -> None:
    exported(layout, store.url, *of_hours(2))
    (tmp_path / "cache").write_text("somebody's file")
    assert asked(ExportedKeys(store.url, tmp_path / "cache"), Query(did="did-1")) == ["did-1"]
    keys = ExportedKeys(store.url, tmp_path / "other")
    (keys.root / "provenance").write_text("somebody's file")
    assert asked(keys, Query(did="did-1")) == ["did-1"]
    assert keys.problem is not None
    assert "cannot be written" in keys.problem


def test_where_nothing_was_exported_the_answer_is_an_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "the re").mkdir()
    with pytest.raises(NotFoundError, match=r"nothing was exported to .*; check the URL"):
        Lineage.open(store.url).find()


def test_a_store_that_does_not_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, s3: str, layout: Layout, tmp_path: Path
) -> None:
    store = new_bucket(s3, monkeypatch)
    exported(layout, store.url, *of_hours(1))
    keys = ExportedKeys(store.url, tmp_path / "cache")
    assert asked(keys) == ["did-0"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(SourceUnreachableError, match=r"cannot be read .*; check the object store"):
        asked(ExportedKeys(store.url, tmp_path / "cache"))


def test_a_file_that_is_gone_or_damaged_is_named_by_its_url_and_the_others_answer(
    layout: Layout, store: Store, opened: Callable[..., ExportedKeys]
) -> None:
    exported(layout, store.url, *of_hours(4))
    paths = [f"provenance/compacted/edge/20260101/0{at}.parquet" for at in range(4)]
    store.remove(paths[0])
    store.put(paths[1], b"PAR1 and nothing more PAR1")
    store.put(paths[2], b"")
    keys = opened()
    assert make(keys) == 1
    found: list[ProvenanceRecord] = []
    with pytest.raises(IncompleteError) as raised:
        found += find(keys.root, access=keys)
    reasons = ["the manifest lists it, and it is gone"] + 2 * ["it is not a whole Parquet file"]
    assert sorted(raised.value.unread) == [
        f"{keys.name}/{path} is damaged ({reason}); put a good copy in its place"
        for path, reason in zip(paths, reasons, strict=False)
    ]
    contents = (keys.root / "provenance/keys/contents.json").read_bytes()
    with pytest.raises(IncompleteError):
        asked(keys, Query(did="did-3"))
    assert keys.problem is None
    assert (keys.root / "provenance/keys/contents.json").read_bytes() == contents
    assert asked(keys, Query(since_ms=START_MS + 3 * HOUR_MS)) == ["did-3"]


def test_an_older_file_than_the_listed_one_is_no_answer_and_a_newer_one_is(
    layout: Layout, store: Store, opened: Callable[..., ExportedKeys]
) -> None:
    exported(layout, store.url, *of_hours(2))
    path = layout.compacted()[0].relative_to(layout.root).as_posix()
    older = (layout.root / path).read_bytes()
    keys = opened()
    listing = keys.list_files(keys.root, Query(), ())  # which reads the manifests
    before = store.files()[manifest := "provenance/manifest/edge/20260101.json"]
    exported(layout, store.url, record("did-2"))
    assert pq.read_metadata(keys.place(listing.compacted(listing.hours[0], ())[0])).num_rows == 2
    after = store.files()[manifest]
    store.put(manifest, before)  # The export was stopped before it wrote this.
    assert asked(opened(), Query(until_ms=START_MS + 1)) == ["did-2", "did-0"]
    store.put(manifest, after)
    store.put(path, older)
    with pytest.raises(IncompleteError, match="it has fewer records than the manifest lists"):
        asked(opened())


def test_raw_files_that_programs_wrote_there_are_named_until_they_are_compacted(
    layout: Layout, store: Store, opened: Callable[..., ExportedKeys]
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
    layout: Layout, store: Store, opened: Callable[..., ExportedKeys]
) -> None:
    exported(layout, store.url, *of_hours(70))
    for query in (Query(), Query(oldest_first=True), Query(filename="orders.csv", limit=33)):
        assert asked(opened(), query) == [one.did for one in find(layout.root, query)]


def test_a_large_file_is_read_in_parts_and_not_at_all_if_its_filters_rule_it_out(
    layout: Layout, store: Store, opened: Callable[..., ExportedKeys]
) -> None:
    names = [hashlib.sha256(str(at).encode()).hexdigest() for at in range(20_000)]
    exported(layout, store.url, *(record(name, at_ms=at, filename=name) for at, name in enumerate(names)))
    for query in (Query(did=names[777]), Query(filename=names[5]), Query(limit=3)):
        for keys in (opened(read_first_bytes=0), opened()):
            assert find(keys.root, query, access=keys) == find(layout.root, query)
    ((path, data),) = [one for one in store.files().items() if one[0].endswith(".parquet")]
    assert len(data) > 2**20
    # Without its rows, what is left are the filters and the footer.
    rows_end = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0).bloom_filter_offset
    store.put(path, bytes(rows_end) + data[rows_end:])
    keys = opened(read_first_bytes=0)
    assert asked(keys, Query(did="another")) == []
    with pytest.raises(IncompleteError):
        asked(keys, Query(did=names[777]))


def damaged(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(b"" if how == "empty" else data)


@pytest.mark.parametrize(
    "kind", ["manifests.json", "provenance/keys/contents.json", "**/*.files.parquet", "**/*.keys.parquet"]
)
@pytest.mark.parametrize("how", ["flipped", "empty", "gone"])
def test_a_damaged_cache_is_set_aside_and_made_again(
    layout: Layout, tmp_path: Path, kind: str, how: str
) -> None:
    there = tmp_path / "there"
    exported(layout, str(there), *of_hours(4))
    keys = ExportedKeys(there.as_uri(), tmp_path / "cache")
    assert make(keys) == 4
    (path,) = keys.root.glob(kind)
    path.unlink() if how == "gone" else damaged(path, how)
    for _ in range(2):
        keys = ExportedKeys(there.as_uri(), tmp_path / "cache")
        assert asked(keys, Query(did="did-1")) == ["did-1"]
        assert asked(keys, Query(did="nothing")) == []
    assert make(keys) == 4
    assert path.exists() or "*" in kind


def test_whoever_makes_the_keys_dies_at_any_step_and_the_next_goes_on(layout: Layout, tmp_path: Path) -> None:
    there = tmp_path / "there"
    exported(layout, str(there), *of_hours(3))
    for calls in range(1, 100):
        cache = tmp_path / f"cache-{calls}"
        try:
            make(ExportedKeys(there.as_uri(), cache, files=StoppingFiles(calls)))
        except StoppedError:
            pass
        else:
            break
        assert asked(ExportedKeys(there.as_uri(), cache), Query(did="did-1")) == ["did-1"]
        assert make(ExportedKeys(there.as_uri(), cache)) == 3
    assert calls > 8
