"""Places to export to, and ways to inspect them without our code."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer

from waybill.exporter import open_destination
from waybill.facets.arrow import from_table

if TYPE_CHECKING:
    import pytest

    from waybill.exporter.exporting import Destination
    from waybill.facets import ProvenanceRecord


def new_bucket(address: str, patch: pytest.MonkeyPatch, *, through: str | None = None) -> Store:
    """A bucket of an S3 server, and the environment for it.

    Args:
        address: host and port of the server.
        patch: sets the environment for as long as the test runs.
        through: host and port of what stands before it, for the export alone.
    """
    environment = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{through or address}",
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in environment.items():
        patch.setenv(name, value)
    bucket = f"b{secrets.token_hex(6)}"
    files = pa.fs.S3FileSystem(
        access_key="testing",
        secret_key="testing",  # noqa: S106 - the server takes any
        region="us-east-1",
        scheme="http",
        endpoint_override=address,
        allow_bucket_creation=True,
        # The default timeout, 3 seconds, is too short for a busy machine.
        connect_timeout=60,
        request_timeout=60,
    )
    files.create_dir(bucket)
    return Store(f"s3://{bucket}/line age", files, f"{bucket}/line age")


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server that speaks S3's protocol, conditional puts included."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


class Store:
    """A destination as a test sees it.

    Args:
        url: what a user would give.
        files: what is behind it, as pyarrow reads it, and the folder in it.
    """

    def __init__(self, url: str, files: pyarrow.fs.FileSystem, folder: str) -> None:
        self.url = url
        self._files = pa.fs.SubTreeFileSystem(folder, files)

    def below(self, name: str) -> Store:
        """A folder in it."""
        return Store(f"{self.url}/{name}", self._files, name)

    def open(self, *, timeout_s: float = 20.0) -> Destination:
        """Open it anew."""
        return open_destination(self.url, timeout_s=timeout_s)

    def files(self) -> dict[str, bytes]:
        """Every file, by path."""
        selector = pa.fs.FileSelector("", recursive=True, allow_not_found=True)
        return {
            info.path: self._files.open_input_file(info.path).read()
            for info in sorted(self._files.get_file_info(selector), key=lambda info: info.path)
            if info.is_file and not Path(info.path).name.startswith(".")
        }

    def put(self, path: str, data: bytes) -> None:
        """Put a file there."""
        self._files.create_dir(str(Path(path).parent))
        with self._files.open_output_stream(path, compression=None) as stream:
            stream.write(data)

    def remove(self, path: str) -> None:
        """Delete a file there."""
        self._files.delete_file(path)

    def rows(self) -> list[ProvenanceRecord]:
        """The rows of all compacted files."""
        return [
            row
            for path, data in self.files().items()
            if path.endswith(".parquet")
            for row in from_table(pq.ParquetFile(pa.BufferReader(data)).read())
        ]
