"""The store of a rebuild's progress: a folder and an object store behave alike."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stores import new_bucket

from waybill.exporter import DestinationError
from waybill.exporter.exporting import BlobStore, ReplacedError, open_blob_store
from waybill.transport.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable

    Reopen = Callable[[], BlobStore]


@pytest.fixture(params=["folder", "bucket"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reopen:
    """Opens the same place each time."""
    if request.param == "folder":
        (tmp_path / "blobs").mkdir()
        return lambda: open_blob_store(tmp_path / "blobs", Files())
    url = f"{new_bucket(request.getfixturevalue('s3'), monkeypatch).url}/blobs"
    return lambda: open_blob_store(url, Files())


def keep(store: BlobStore, path: str, data: bytes) -> None:
    with store.writing(path) as file:
        file.write_bytes(data)


def content(store: BlobStore, path: str) -> bytes | None:
    file = store.open(path)
    if file is None:
        return None
    with file:
        return file.read()


def test_what_is_kept_is_listed_and_read_by_whoever_opens_the_place_and_may_be_replaced(
    reopen: Reopen,
) -> None:
    for path, data in (("b", b"two"), ("a/c", b"one"), ("b", b"three")):
        keep(reopen(), path, data)
    assert reopen().names() == ["a/c", "b"]
    assert content(reopen(), "b") == b"three"
    assert content(reopen(), "none") is None


def test_another_process_gets_a_copy_that_leads_to_the_same_place(reopen: Reopen) -> None:
    keep(reopen(), "a", b"1")
    copy = pickle.loads(pickle.dumps(reopen()))
    assert content(copy, "a") == b"1"


def test_a_file_that_could_not_be_written_to_its_end_is_not_there(reopen: Reopen) -> None:
    with pytest.raises(ConnectionError), reopen().writing("a") as file:
        file.write_bytes(b"half")
        raise ConnectionError("the source went away")
    assert reopen().names() == []


def test_what_is_deleted_is_gone_whether_or_not_it_was_there(reopen: Reopen) -> None:
    keep(reopen(), "a", b"1")
    keep(reopen(), "b", b"2")
    reopen().delete(["a", "none"])
    assert reopen().names() == ["b"]
    reopen().delete([])
    assert content(reopen(), "b") == b"2"


def test_of_two_who_begin_at_once_one_is_first(reopen: Reopen) -> None:
    version = reopen().write("plan", b"ours", None)
    with pytest.raises(ReplacedError):
        reopen().write("plan", b"theirs", None)
    assert reopen().read("plan") == (b"ours", version)


def test_a_folder_fails_with_the_systems_error_and_an_object_store_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        open_blob_store(tmp_path / "file", Files()).read("a")
    store = new_bucket(s3, monkeypatch)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    with pytest.raises(DestinationError, match="fix that and export again"):
        open_blob_store(store.url.replace("s3://", "s3://none-"), Files()).names()
