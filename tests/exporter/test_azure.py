"""Azure's protocol, with Microsoft's emulator: exports, compactions and `verify`."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from layouts import HOUR_MS, Layout, findings, record

from waybill.exporter import export, open_destination
from waybill.exporter.compaction import compact_remote
from waybill.exporter.exporting import ReplacedError, fetch_root
from waybill.facets import merge_all
from waybill.lineage import find

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's public account and key."""
CONTAINER = "box"


@pytest.fixture(scope="module")
def azure() -> Iterator[str]:
    """The URL of a folder in a new emulator."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not on the PATH (npm install --global azurite)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            _make_container(port)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
                patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
                patch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}/{ACCOUNT}")
                yield f"az://{CONTAINER}/line age"
        finally:
            process.terminate()


def _make_container(port: int) -> None:
    """Make the container as soon as the emulator listens."""
    headers = {
        "x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "x-ms-version": "2021-08-06",
    }
    signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in headers.items())
    signed += f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers |= {
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    until_s = time.monotonic() + 60
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with contextlib.closing(connection), contextlib.suppress(ConnectionError):
            connection.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers=headers)
            assert connection.getresponse().status == 201
            return
        assert time.monotonic() < until_s
        time.sleep(0.2)


def test_a_file_is_replaced_only_where_it_is_still_the_one_that_was_seen(azure: str) -> None:
    there = open_destination(f"{azure}/files")
    assert there.read("a/b") is None
    first = there.write("a/b", b"one", None)
    with pytest.raises(ReplacedError):
        there.write("a/b", b"two", None)
    second = there.write("a/b", b"three", first)
    with pytest.raises(ReplacedError):
        there.write("a/b", b"four", first)
    assert there.read("a/b") == (b"three", second)
    assert there.version("a/b") == second


def test_a_late_row_joins_its_hour_and_raw_files_are_compacted_and_all_of_it_is_verified(
    azure: str, tmp_path: Path
) -> None:
    url, layout, host = f"{azure}/root", Layout(tmp_path / "root"), Layout(tmp_path / "host")
    rows = [record(f"{at:02}", at_ms=at * HOUR_MS // 10) for at in range(20)]
    layout.add(*rows)
    assert export(layout.root, open_destination(url), delete_after=True).failed == {}
    late, raw = record("late", at_ms=1), record("raw", at_ms=2)
    layout.add(late)
    assert len(export(layout.root, open_destination(url)).merged) == 1
    host.write(raw)
    for path in host.raw():
        open_destination(url).write(str(path.relative_to(host.root)), path.read_bytes(), None)
    report = compact_remote(url)
    assert (len(report.published), report.failed) == (1, {})
    assert compact_remote(url).published == ()
    fetch_root(url, tmp_path / "fetched", on_progress=lambda _done, _total: None)
    assert findings(tmp_path / "fetched") == []
    assert merge_all(find(tmp_path / "fetched")) == merge_all([*rows, late, raw])
