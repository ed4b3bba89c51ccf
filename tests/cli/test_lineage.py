"""`waybill lineage`: a dataset or a job between those that it depends on and those that depend on it."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from events import members

from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nothing",), "no dataset, column or job has the name 'nothing'"),
        (("mail", "--up", "-1"), "'-1' is no number of edges"),
        (("mail", "--down", "some"), "'some' is no number of edges"),
    ],
)
def test_what_cannot_be_asked_is_exit_code_2(
    called: Run, told: Path, words: tuple[str, ...], says: str
) -> None:
    done = called("lineage", *words, "--home", told)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
