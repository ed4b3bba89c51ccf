"""Fixtures of the exporter's tests: a layout, and destinations of an export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.fs
import pytest
from layouts import Layout
from sites import Site
from stores import Store, new_bucket, s3_server

if TYPE_CHECKING:
    from waybill.transport import Settings


@pytest.fixture
def layout(root: Path) -> Layout:
    """An empty root."""
    return Layout(root)


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    """A home whose layout and archive are worked by hand."""
    made = Site(settings)
    yield made
    made.close()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a server that speaks S3's protocol, conditional puts included."""
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty bucket."""
    return new_bucket(s3, monkeypatch)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty destination."""
    if request.param == "folder":
        return Store(str(tmp_path / "there"), pyarrow.fs.LocalFileSystem(), str(tmp_path / "there"))
    return new_bucket(request.getfixturevalue("s3"), monkeypatch)
