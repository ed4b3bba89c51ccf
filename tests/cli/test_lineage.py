"""`waybill lineage`: a dataset or a job between those that it depends on and those that depend on it."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from events import members

from waybill.lineage.index import analysis
from waybill.transport import FlushReport, Journal, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run


@pytest.fixture
def told(home: Path) -> Path:
    """A home with a job's run, and one of a job that reads what it wrote."""
    inputs = ["kafka://production/user-events", "postgres://users-db/users"]
    outputs = ["s3://analytics-bucket/processed/", "dashboard/user-metrics"]
    job = {"namespace": "analytics", "name": "my-package"}
    told = [
        members("r", "START", "2025-01-22T10:00:00Z", job=job),
        members("r", "COMPLETE", "2025-01-22T10:05:32Z", job=job)
        | {"inputs": [split(one) for one in inputs], "outputs": [split(one) for one in outputs]},
        members("s", "START", "2025-01-22T11:00:00Z", job="analytics/mail")
        | {"inputs": [split("dashboard/user-metrics")], "outputs": [split("smtp/reports")]},
    ]
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, json.dumps(one).encode(), "tests") for one in told)
    return home


def split(name: str) -> dict[str, str]:
    """A dataset: the namespace ends with the first slash after the host, if there is one."""
    at = name.index("/", name.index("//") + 2 if "//" in name else 0)
    return {"namespace": name[:at], "name": name[at + 1 :]}


def test_openlineage_events_tell_the_same(called: Run, told: Path, tmp_path: Path) -> None:
    words = ("lineage", "user-metrics", "--up", "all", "--down", "all")
    events = called(*words, "--home", told, "--openlineage").stdout.splitlines()
    with closing(Journal(tmp_path / "again")) as journal:
        journal.append_many((Kind.OPENLINEAGE, event.encode(), "tests") for event in events)
    again = called(*words, "--home", tmp_path / "again").stdout
    tree, _, run = called(*words, "--home", told).stdout.partition("Last Run:")
    assert again == f"{tree}Last Run:\n  none\n" != f"{tree}Last Run:{run}"


def test_what_waits_for_the_analyzers_is_read_before_an_answer_that_is_to_be_fresh(
    called: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = {"sql": {"query": "INSERT INTO daily (id) SELECT key FROM orders", "dialect": "spark"}}
    job = {"namespace": "etl", "name": "daily", "facets": sql}
    tables = [
        {"namespace": "lake", "name": name, "facets": {"schema": {"fields": [{"name": column}]}}}
        for name, column in (("orders", "key"), ("daily", "id"))
    ]
    told = members("r", job=job, inputs=tables[:1], outputs=tables[1:])
    with closing(Journal(home)) as journal:
        journal.append(Kind.OPENLINEAGE, json.dumps(told).encode(), "tests")
    words = ("lineage", "lake/daily.id", "--home", home)
    assert "Upstream:\n  none\n" in called(*words).stdout
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["waybill.cli.commands.lineage"], "_REFRESH_S", 0.0)
        patch.setattr(analysis, "FINISH_S", 0.0)
        late = called(*words, "--refresh")
        assert (late.returncode, late.stdout) == (1, "")
        assert "1 event could not be read within 0 s; ask again, or leave out --refresh" in late.stderr
    fresh = called(*words, "--refresh")
    assert fresh.returncode == 0, fresh.stderr
    assert "Upstream:\n  └─ lake/orders.key\n" in fresh.stdout
    assert called(*words, "--refresh").stdout == called(*words).stdout == fresh.stdout


def test_an_index_that_is_held_up_is_no_answer(
    called: Run, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = FlushReport(problems={"index": "index.db cannot be written", "marquez": "it is down"})
    monkeypatch.setattr(sys.modules["waybill.cli.commands.lineage"], "flush_with_progress", lambda *_: report)
    held_up = called("lineage", "mail", "--home", told, "--refresh")
    assert (held_up.returncode, held_up.stdout) == (1, "")
    assert held_up.stderr == "waybill: index.db cannot be written\n"
