"""`waybill package`: manifests are written, checked, listed and shown, and a change shows what it breaks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

READER = """\
metadata: {name: report}
runtime: {command: ["true"]}
inputs:
  - {name: orders, binding: "s3://lake/orders"}
"""
WRITER = """\
metadata: {name: load, owner: data-team}
runtime: {command: ["true"]}
outputs:
  - name: orders
    binding: s3://lake/orders
    schema: [{name: id}, {name: total}]
"""


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dk.yaml").write_text(text)
    return folder


def git(folder: Path, *arguments: str) -> None:
    own = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", folder, *own, *arguments], check=True, capture_output=True)  # noqa: S607


def test_a_new_manifest_is_written_once_and_is_valid(called: Run, tmp_path: Path) -> None:
    folder = tmp_path / "my package"
    done = called("package", "init", folder)
    assert done.stdout == f"{folder / 'dk.yaml'}\n"
    again = called("package", "init", folder)
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    (folder / "main.py").touch()
    text = (folder / "dk.yaml").read_text().replace("[python, main.py]", f"[{sys.executable}, main.py]")
    (folder / "dk.yaml").write_text(text)
    checked = called("package", "validate", folder)
    assert (checked.returncode, "1 package, 0 errors" in checked.stderr) == (0, True)


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ('["no-such-program"]', "no-such-program"),
        ("['true']", ""),
        ("[./run.sh]", "./run.sh"),
        ("[sh, load.sh, other.sh]", "load.sh"),
        ("[sh, -c, x.py]", ""),
        ("sh there.sh", ""),
    ],
)
def test_a_program_or_script_that_is_not_there_is_an_error(
    called: Run, tmp_path: Path, command: str, missing: str
) -> None:
    folder = write(tmp_path / "a", WRITER.replace('["true"]', command))
    (folder / "there.sh").touch()
    done = called("package", "validate", tmp_path)
    says = f"{folder / 'dk.yaml'}:2: error: runtime.command: there is no {missing}, which is to be run; "
    assert done.stdout == (f"{says}write or install it, or correct the command\n" if missing else "")
    assert (done.returncode, f"1 package, {1 if missing else 0} error" in done.stderr) == (
        bool(missing),
        True,
    )


def test_each_mistake_is_a_line_and_the_exit_code_says_so(called: Run, tmp_path: Path) -> None:
    write(tmp_path / "a", WRITER)
    write(tmp_path / "b", READER.replace('orders"', 'Orders"'))
    write(tmp_path / "c", READER.replace("binding", "bindng").replace("report", "other"))
    done = called("package", "validate", tmp_path)
    assert done.returncode == 1
    says = f"s3://lake Orders is s3://lake orders in load ({tmp_path / 'a/dk.yaml'}); spell it in one way"
    b, c = (tmp_path / name / "dk.yaml" for name in "bc")
    assert done.stdout.splitlines() == [
        f"{c}:4: error: inputs.0.bindng: there is no such field; did you mean binding?",
        f"{b}:4: error: inputs.0.binding: {says}",
    ]
    told = [
        json.loads(line) for line in called("package", "validate", tmp_path, "--json").stdout.splitlines()
    ]
    assert [(one["path"], one["line"], one["is_error"]) for one in told] == [
        (str(c), 4, True),
        (str(b), 4, True),
    ]


def test_warnings_fail_only_if_that_is_asked(called: Run, tmp_path: Path) -> None:
    write(tmp_path / "b", READER)
    done = called("package", "validate", tmp_path)
    assert (done.returncode, "warning: inputs.0.binding: no package writes" in done.stdout) == (0, True)
    assert called("package", "validate", tmp_path, "--strict").returncode == 1


def test_what_a_change_breaks_is_shown_with_what_the_home_knows(
    called: Run, tmp_path: Path, settings: Settings
) -> None:
    event = {
        "eventTime": "2026-01-31T12:00:00Z", "eventType": "COMPLETE", "producer": "p", "schemaURL": "s",
        "run": {"runId": "01000000-0000-7000-8000-000000000001"}, "job": {"namespace": "n", "name": "mail"},
        "inputs": [{"namespace": "s3://lake", "name": "orders"}], "outputs": [],
    }  # fmt: skip
    journal = Journal(settings.home)
    journal.append(Kind.OPENLINEAGE, json.dumps(event).encode())
    journal.close()
    flush(settings)
    packages = tmp_path / "packages"
    write(packages / "a", WRITER)
    write(packages / "b", READER)
    git(packages, "init", "-b", "main")
    git(packages, "add", ".")
    git(packages, "commit", "-m", "x")
    where = ("package", "validate", packages, "--home", settings.home, "--impact")
    assert called(*where, "main").returncode == 0
    write(packages / "a", WRITER.replace(", {name: total}", ""))
    done = called(*where, "main")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"breaks: s3://lake orders: the column total is gone; {packages / 'b/dk.yaml'} reads it",
        "  reaches n/mail",
    ]
    unknown = called(*where, "no-such-branch")
    assert (unknown.returncode, "git does not have no-such-branch" in unknown.stderr) == (2, True)


def test_packages_are_listed_and_shown(called: Run, tmp_path: Path) -> None:
    write(tmp_path / "a", WRITER)
    done = called("package", "list", tmp_path)
    assert done.stdout.splitlines()[1].split("\t")[:4] == ["load", "default", "", "data-team"]
    assert json.loads(called("package", "list", tmp_path, "--json").stdout)["metadata"]["name"] == "load"
    shown = called("package", "show", tmp_path / "a").stdout
    assert "    orders: s3://lake orders" in shown.splitlines()
    told = json.loads(called("package", "show", tmp_path / "a", "--json").stdout)
    assert told["outputs"][0]["dataset"] == ["s3://lake", "orders"]


def test_the_schema_of_manifests_is_printed_like_those_of_facets(called: Run) -> None:
    assert "package" in called("schema").stdout.splitlines()
    assert json.loads(called("schema", "package", "--json").stdout)["$ref"] == "#/$defs/Manifest"
