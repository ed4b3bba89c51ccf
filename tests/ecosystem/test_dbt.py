"""dbt on DuckDB, through `dbt-ol`, by configuration alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from clients import call, program_of, records_of, run_package, started_by
from pasting import blocks

from waybill.facets import FinalState

pytestmark = pytest.mark.ecosystem

PROJECT = Path(__file__).with_name("dbt_project")
GUIDE = Path(__file__).parents[2] / "docs" / "dbt.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "dbt"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a dbt project."""
    return shutil.copytree(PROJECT, tmp_path / "project")


def dbt(project: Path, transport: dict[str, object], *arguments: str) -> None:
    """Run dbt, which fails as its project does."""
    (project / "openlineage.yml").write_text(json.dumps({"transport": transport}, default=str))
    done = call(
        program_of("dbt", "dbt-ol"),
        *arguments,
        "--consume-structured-logs",
        "--no-version-check",
        cwd=project,
        OPENLINEAGE_CONFIG=project / "openlineage.yml",
        DBT_PROFILES_DIR=project,
        DBT_SEND_ANONYMOUS_USAGE_STATS="false",
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Underlying dbt execution returned 1" in said


def states_of(home: Path, root: Path) -> dict[str, FinalState]:
    """How each of dbt's own steps has ended; its single statements are left out."""
    ends = {record.transforms[0]: record.final_state for record in records_of(home, root)}
    return {name.rpartition(".shop.")[2]: state for name, state in ends.items() if ".sql." not in name}


def in_yaml(home: Path, root: Path) -> dict[str, object]:
    """The transport as the guide has it, with a home of the test's own."""
    config = next(
        block for block in blocks(GUIDE.read_text(encoding="utf-8")) if block.title == "openlineage.yml"
    )
    return {**yaml.safe_load(config.text)["transport"], "home": home, "root": root, "runner": "none"}


def test_models_and_tests_that_succeed_and_fail_are_what_dbt_says_of_them(
    project: Path, home: Path, root: Path
) -> None:
    dbt(project, in_yaml(home, root), "run")
    assert states_of(home, root) == {
        "dbt-run-shop": FinalState.ERROR,
        "orders": FinalState.COMPLETE,
        "totals": FinalState.COMPLETE,
        "broken": FinalState.ERROR,
        "after": FinalState.CANCELLED,
    }
    dbt(project, in_yaml(home, root), "test", "--select", "orders")
    ends = {name.partition(".")[0]: state for name, state in states_of(home, root).items()}
    assert ends["unique_orders_id"] is FinalState.COMPLETE
    assert ends["accepted_values_orders_amount__1"] is FinalState.ERROR


def test_the_runs_of_dbt_in_a_package_are_below_its_run(home: Path, tmp_path: Path) -> None:
    package = shutil.copytree(EXAMPLE, tmp_path / "package")
    above = run_package("dbt", package, home, DBT_SEND_ANONYMOUS_USAGE_STATS="false")
    models = {name: parent for name, parent in above.items() if ".sql." not in name}
    assert models == {
        "dbt-run-shop": "shop-models",
        "model.shop.orders": "dbt-run-shop",
        "model.shop.totals": "dbt-run-shop",
    }
    assert {parent for name, parent in above.items() if ".sql." in name} == models.keys() - {"dbt-run-shop"}
    assert started_by("shop-models", home) == ["dbt/dbt-run-shop"]
