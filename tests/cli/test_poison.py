"""`waybill poison`, and how other commands tell of it."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    from conftest import Run

EVENT = (
    b'{"eventTime":"2026-01-31T12:00:00Z","eventType":"COMPLETE","producer":"a:","run":{"runId":"run-%d"},'
    b'"job":{"namespace":"edge","name":"job"},"note":"\xc2\x9b31m"}'
)


@pytest.fixture
def poisoned(settings: Settings) -> Settings:
    """A home whose second entry was damaged before it was filed."""
    settings = settings.with_values({"archive_enabled": False}, "tests")
    journal = Journal(settings.home)
    journal.append_many((Kind.OPENLINEAGE, EVENT % number, "") for number in (1, 2, 3))
    connection = apsw.Connection(str(journal.path))
    damaged = (EVENT % 2).replace(b"run-2", b"run-9")
    connection.execute("UPDATE entries SET body = ? WHERE seq = 2", (damaged,))
    connection.close()
    journal.close()
    assert flush(settings).poison == {"index": 1, "layout": 1}
    return settings


def test_no_command_that_looks_at_the_home_is_content_with_poison(called: Run, poisoned: Settings) -> None:
    status = called("status", "--home", poisoned.home)
    assert status.returncode == 1
    assert (
        "layout has set aside 1 entry that it cannot apply; to see why: `waybill poison list --home"
        in status.stdout
    )
    flushed = called("flush", "--home", poisoned.home)
    assert flushed.returncode == 1
    assert "layout has set aside 1 entry that it cannot apply; `waybill poison list`" in flushed.stderr
    where = called("where", f"{Journal(poisoned.home).node}-2", "--home", poisoned.home)
    told = [line.split(maxsplit=1) for line in where.stdout.splitlines()]
    assert ["layout", "set aside as poison"] in told


def test_a_collector_tells_of_it_in_its_metrics_and_of_the_entry_that_it_is(
    script: Path, poisoned: Settings
) -> None:
    places = ["--home", str(poisoned.home), "--root", str(poisoned.root), "--listen", "127.0.0.1:0"]
    options = ["--provenance-enabled", "--no-archive-enabled", "--runner", "none"]
    options += ["--log-level", "error"]
    with subprocess.Popen([script, "serve", *places, *options], stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            url = serving.stdout.readline().split()[2].rstrip(",")

            def ask(path: str) -> str:
                with urllib.request.urlopen(url + path, timeout=60) as answer:  # noqa: S310 - a URL of ours
                    return str(answer.read().decode())

            assert 'waybill_poison_entries{projection="layout"} 1' in ask("/metrics").splitlines()
            node = Journal(poisoned.home).node
            became = [json.loads(ask(f"/where?receipt={node}-{at}"))["projections"] for at in (1, 2, 3)]
            layout = [one["layout"] for one in became]
            assert layout == ["done", "set aside as poison", "done"]
        finally:
            serving.terminate()


def test_it_is_applied_as_it_is_when_it_is_tried_again(called: Run, poisoned: Settings) -> None:
    done = called("poison", "retry", "2", "--home", poisoned.home)
    assert (done.returncode, done.stdout) == (0, "2 of 2 succeeded\n")
    assert "run-9" in called("find", "--json", "--home", poisoned.home).stdout
    assert called("poison", "list", "--home", poisoned.home).stderr.strip() == "there are no poison entries"
