"""`waybill lineage`: a dataset or a job between those that it depends on and those that depend on it."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from events import members

from waybill.lineage.index import analysis
from waybill.transport import FlushReport, Journal, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Kept, Run

PAGE = """\
Lineage for: my-package
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━

Upstream:
  ├─ kafka://production/user-events
  └─ postgres://users-db/users

Downstream:
  ├─ s3://analytics-bucket/processed/
  └─ dashboard/user-metrics

Last Run:
  Status: COMPLETE
  Started: 2025-01-22T10:00:00Z
  Finished: 2025-01-22T10:05:32Z
  Duration: 5m 32s
"""


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


def test_a_job_is_shown_with_what_it_reads_and_writes_and_how_it_ran_last(called: Run, told: Path) -> None:
    done = called("lineage", "my-package", "--home", told)
    assert (done.returncode, done.stdout) == (0, PAGE)


def test_a_dataset_is_shown_as_a_tree_as_deep_as_asked(called: Run, told: Path) -> None:
    done = called("lineage", "user-metrics", "--home", told, "--up", "all", "--down", "2")
    upstream, _, rest = done.stdout.partition("\n\nDownstream:\n")
    assert upstream.splitlines()[4:] == [
        "  └─ analytics/my-package",
        "     ├─ kafka://production/user-events",
        "     └─ postgres://users-db/users",
    ]
    downstream, _, last_run = rest.partition("\n\nLast Run:\n")
    assert downstream.splitlines() == ["  └─ analytics/mail", "     └─ smtp/reports"]
    assert last_run.splitlines()[:2] == ["  Job: analytics/my-package", "  Status: COMPLETE"]


def test_a_run_that_has_not_ended_is_running_and_a_dataset_that_nobody_writes_has_none(
    called: Run, told: Path
) -> None:
    mail = called("lineage", "mail", "--home", told).stdout
    assert mail.endswith("Last Run:\n  Status: RUNNING\n  Started: 2025-01-22T11:00:00Z\n")
    users = called("lineage", "users", "--home", told).stdout
    assert "Upstream:\n  none\n" in users
    assert users.endswith("Last Run:\n  none\n")


def test_nothing_is_said_of_a_direction_that_was_not_followed(called: Run, told: Path) -> None:
    for words, left_out in (
        (("lineage", "my-package", "--up", "0"), "Upstream"),
        (("lineage", "my-package", "--down", "0"), "Downstream"),
        (("trace", "my-package", "--down"), "Upstream"),
        (("trace", "smtp/reports", "--up"), "Downstream"),
    ):
        done = called(*words, "--home", told)
        assert done.returncode == 0, done.stderr
        ways = [line.rstrip(":") for line in done.stdout.splitlines() if line.startswith(("Up", "Down"))]
        assert ways == [way for way in ("Upstream", "Downstream") if way != left_out], words


def test_json_has_the_nodes_with_their_distances_and_the_edges(called: Run, told: Path) -> None:
    found = json.loads(called("lineage", "mail", "--home", told, "--up", "3", "--json").stdout)
    assert [(one["distance"], one["node"]["name"]) for one in found["upstream"]["nodes"]] == [
        (1, "user-metrics"),
        (2, "my-package"),
        (3, "user-events"),
        (3, "users"),
    ]
    assert {edge["kind"] for edge in found["upstream"]["edges"]} == {"read", "write"}
    assert found["last_run"]["state"] == "RUNNING"


def test_pictures_are_printed_or_written(called: Run, told: Path, tmp_path: Path) -> None:
    words = ("lineage", "user-metrics", "--home", told, "--up", "all", "--down", "all")
    drawn = called(*words, "--mermaid").stdout
    assert drawn.startswith("flowchart LR\n")
    assert '(["<div>analytics/my-package<br>last run: COMPLETE</div>"])' in drawn
    assert drawn.count("-->") == 5
    assert called(*words, "--dot").stdout.startswith("digraph lineage {\n")
    for option, counts in (("--graphml", {"<node": 6, "<edge": 5}), ("--svg", {"<g>": 6, 'fill="none"': 5})):
        printed = called(*words, option, "-").stdout
        done = called(*words, option, tmp_path / "graph")
        assert (done.returncode, done.stdout) == (0, "")
        assert (tmp_path / "graph").read_text(encoding="utf-8") == printed
        assert {mark: printed.count(mark) for mark in counts} == counts


def test_a_wide_fan_is_one_line_that_says_what_it_holds(called: Run, home: Path) -> None:
    wide = [{"namespace": "s3://lake", "name": f"t{at}"} for at in range(38)]
    told = [
        members("a", "COMPLETE", "2025-01-22T10:00:00Z", job="etl/split", outputs=wide, inputs=["sftp/in"]),
        members("b", "COMPLETE", "2025-01-22T10:00:00Z", job="etl/report", inputs=wide[:2], outputs=["x/y"]),
    ]
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, json.dumps(one).encode(), "tests") for one in told)
    words = ("lineage", "sftp/in", "--home", home, "--down", "all")
    tree = called(*words).stdout.partition("Downstream:\n")[2].partition("\n\n")[0]
    assert tree.splitlines() == [
        "  └─ etl/split",
        "     └─ 38 datasets in s3://lake, and 2 nodes beyond, with 3 edges among them",
    ]
    assert called(*words, "--unfold").stdout.count("─ s3://lake/t") == 38
    assert called(*words, "--mermaid").stdout.count("<div>") == 3
    assert called(*words, "--mermaid", "--unfold").stdout.count("<div>") == 42
    assert len(json.loads(called(*words, "--json").stdout)["downstream"]["nodes"]) == 41
    assert called("lineage", "split", "--home", home).stdout.count("─ s3://lake/t") == 38


def test_openlineage_events_tell_the_same(called: Run, told: Path, tmp_path: Path) -> None:
    words = ("lineage", "user-metrics", "--up", "all", "--down", "all")
    events = called(*words, "--home", told, "--openlineage").stdout.splitlines()
    with closing(Journal(tmp_path / "again")) as journal:
        journal.append_many((Kind.OPENLINEAGE, event.encode(), "tests") for event in events)
    again = called(*words, "--home", tmp_path / "again").stdout
    tree, _, run = called(*words, "--home", told).stdout.partition("Last Run:")
    assert again == f"{tree}Last Run:\n  none\n" != f"{tree}Last Run:{run}"


def test_what_was_told_later_is_left_out(called: Run, told: Path) -> None:
    words = ("lineage", "user-metrics", "--home", told, "--down", "all", "--as-of")
    assert "─ analytics/mail\n" in called(*words, "2025-01-22T11:00:00Z").stdout
    assert "Downstream:\n  none\n" in called(*words, "2025-01-22T10:59:00Z").stdout
    assert "is not a date or time" in called(*words, "never").stderr


def test_columns_are_shown_below_their_datasets_with_what_they_come_from(called: Run, home: Path) -> None:
    source = {"namespace": "lake", "name": "in"}
    fields = {
        "total": {"inputFields": [source | {"field": "amount"}]},
        "note": {"inputFields": [source | {"field": "a\x1bb", "transformations": [{"type": "INDIRECT"}]}]},
    }
    schema = {"fields": [{"name": "total"}, {"name": "id"}]}
    facets = {"schema": schema, "columnLineage": {"fields": fields, "dataset": [source | {"field": "state"}]}}
    orders = {"namespace": "lake", "name": "orders", "facets": facets}
    other = {"namespace": "hive", "name": "db.in"}
    reads = source | {"facets": {"symlinks": {"identifiers": [other | {"type": "TABLE"}]}}}
    at = "2026-01-31T12:00:00Z"
    told = [
        members("a", "COMPLETE", at, job="etl/sum", inputs=[reads], outputs=[orders]),
        members("b", "COMPLETE", at, job="etl/read", inputs=[other], outputs=["lake/out"]),
    ]
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, json.dumps(one).encode(), "tests") for one in told)
    words = ("lineage", "orders", "--home", home, "--up", "all", "--columns")
    assert called(*words).stdout.partition("\nDownstream")[0].splitlines()[2:] == [
        "",
        "Columns:",
        "  all rows, from lake/in.state (indirect)",
        "  total, from lake/in.amount",
        "  id",
        "  note, from lake/in.a\\x1bb (indirect)",
        "",
        "Upstream:",
        "  └─ etl/sum",
        "     └─ lake/in",
        "           a\\x1bb",
        "           amount",
        "           state",
    ]
    for form in ("--mermaid", "--dot"):
        assert "total, from lake/in.amount" in called(*words, form).stdout
    graph = called(*words, "--graphml", "-").stdout
    assert (graph.count(">derive<"), graph.count(">influence<"), graph.count(">column<")) == (1, 5, 6)
    (sources, orders) = json.loads(called(*words, "--json").stdout)["columns"][::-1]
    assert (sources["edges"], orders["names"]) == ([], ["total", "id", "note"])


def test_what_is_known_besides_data_is_listed_below_if_there_is_any(called: Run, home: Path) -> None:
    parent = {"run": {"runId": "p"}, "job": {"namespace": "airflow", "name": "night\x1b[2J"}}
    jobs = [{"job": {"namespace": "ml", "name": name}} for name in ("load", "mail")]
    dependencies = {"upstream": jobs[:1], "downstream": jobs[1:]}
    owned = {"ownership": {"owners": [{"name": "team:ml"}]}}
    told = []
    for day in range(1, 24):
        facets = {**owned, "version": {"datasetVersion": f"v{day}"}}
        model = {"namespace": "models", "name": "churn", "facets": facets}
        event = members(f"r{day}", "COMPLETE", f"2025-01-{day:02}T10:00:00Z", job="ml/train", outputs=[model])
        event["run"]["facets"] = {"parent": parent, "jobDependencies": dependencies}
        told.append(event)
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, json.dumps(one).encode(), "tests") for one in told)

    def below(*words: str) -> list[str]:
        return called("lineage", *words, "--home", home).stdout.partition("Last Run:\n")[2].splitlines()[4:]

    by_job = [*("Started By:", "  airflow/night\\x1b[2J", ""), *("Runs After:", "  ml/load", "")]
    assert below("ml/train") == ["", *by_job, "Runs Before:", "  ml/mail"]
    versions = [f"  v{day}" for day in range(23, 0, -1)]
    blocks = ["", "Owners:", "  team:ml", "", "Versions:"]
    assert below("churn")[1:] == [*blocks, *versions[:20], "  and 3 more, told earlier: --unfold lists them"]
    assert below("churn", "--unfold")[1:] == [*blocks, *versions]
    assert called("lineage", "ml/load", "--home", home).stdout.endswith("none\n\nRuns Before:\n  ml/train\n")
    starts = called("lineage", "airflow/night\x1b[2J", "--home", home).stdout
    assert starts.endswith("\nStarts:\n  ml/train\n")
    found = json.loads(called("lineage", "churn", "--home", home, "--json").stdout)
    assert [one["target"]["version"] for one in found["related"] if one["kind"] == "version"] == [
        one.strip() for one in versions
    ]


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


def test_what_cannot_be_flushed_cannot_be_refreshed(called: Run, kept: Kept, tmp_path: Path) -> None:
    shutil.copytree(kept.home / "provenance", tmp_path / "files" / "provenance")
    refused = called("lineage", "lake", "--root", tmp_path / "files", "--refresh")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no journal, so nothing can be refreshed" in refused.stderr


def test_an_index_that_is_held_up_is_no_answer(
    called: Run, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = FlushReport(problems={"index": "index.db cannot be written", "marquez": "it is down"})
    monkeypatch.setattr(sys.modules["waybill.cli.commands.lineage"], "flush_with_progress", lambda *_: report)
    held_up = called("lineage", "mail", "--home", told, "--refresh")
    assert (held_up.returncode, held_up.stdout) == (1, "")
    assert held_up.stderr == "waybill: index.db cannot be written\n"


def test_a_dataset_without_a_namespace_has_a_word_about_it(home: Path, waybill: Run) -> None:
    told = members("r", job="flink/count", inputs=[{"namespace": "", "name": "c.d.t"}], outputs=["lake/out"])
    with closing(Journal(home)) as journal:
        journal.append(Kind.OPENLINEAGE, json.dumps(told).encode())
    done = waybill("lineage", "t", "--home", str(home))
    assert done.stdout.startswith("Lineage for: t\n")
    assert "its namespace is empty, so equal names of two places are one dataset here" in done.stderr
    assert "namespace" not in waybill("lineage", "lake/out", "--home", str(home)).stderr
