"""Pages whose commands are pasted, one after the other: each works, and prints what the page shows."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from loaded import Loaded, loaded_waybill
from pasting import PROGRAMS, blocks, commands, commands_of, environment, paste
from worlds import WORLDS, World

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FAILING = ("python orders.py", "waybill root show", "waybill verify /data/lineage")
"""What a page pastes in order to see it fail."""
WITH_OUTPUT = ("README.md", "quickstart.md", "audit.md", "openlineage.md", "deltafi.md")
"""Pages that show much of what is printed."""
REAL = "quickstart.md"
"""The page whose commands are all run with the real program."""
ELSEWHERE = {
    "benchmarks.md": "it measures for hours; the options are checked below",
    "cli.md": "it is the help, whose options are checked with those of all pages",
    "index.md": "`make demo` makes its home, and tests/cli/test_demo.py looks at it",
    "quickstart-spark.md": "tests/spark/test_quickstart.py pastes it, with Spark",
    "spark-submit.md": "it takes a cluster",
    "spark-connect.md": "it takes a server of Spark",
}
"""Pages whose commands are not run here, and why."""
LEFT_OUT = {
    "sudo": "it takes systemd and its user root",
    "printf": "it takes systemd and its user root",
    "docker": "it takes Docker",
    "kubectl": "it takes Kubernetes",
    "waybill dev": "it takes Docker",
    "dbt-ol": "it takes dbt; tests/ecosystem/test_dbt.py runs it",
    "waybill lineage s3://lake/daily/orders --down all --dot": "it takes Graphviz",
    "waybill dead-letters": "it takes a Marquez that refuses; tests/cli/snapshots/set-aside.txt has one",
    "waybill reconcile": "it takes a Marquez; tests/cli/snapshots/kept.reconcile.txt has one",
    "waybill verify /data/lineage http": "it takes a Marquez",
    "waybill verify --seen": "its hash is an example; tests/cli/test_verify.py has one",
    "waybill rebuild --from marquez": "it takes a Marquez; tests/exporter/test_marquez_sources.py has one",
    "waybill rebuild --from jsonl s3": "it takes an object store",
    "waybill rebuild --from events s3": "it takes an object store, and Spark",
    "waybill compact /mnt/shared/lineage --engine spark": "it takes a cluster",
    "waybill compact s3": "it takes an object store, and Spark",
    "waybill slis": "its values are an example; tests/cli/test_slis.py measures some",
    "waybill trace orders-2026-05.zip --as-of": "it takes files of May 2026",
}
"""Blocks that cannot be run here, by how they begin, and why; their options are checked with the others."""

GIVEN = {
    "export.md": "",
    "fingerprints.md": """
from waybill import Tracker
tracker, path = Tracker(), "orders.csv"
""",
    "marquez.md": "",
    "pipelines.md": """
import waybill
tracker, rows, fetch = waybill.Tracker(), [{"url": "https://example.org/a"}], print
""",
    "tracker.md": """
from pathlib import Path
from waybill import Tracker
tracker, paths = Tracker(), [Path("monday.csv"), Path("tuesday.csv")]
f, began = (tracker.file(name, data_source="sftp-in") for name in ("lake.csv", "began.csv"))
did = began.did
""",
}
"""What each example in Python of a page takes for granted."""
NOT_RUN = {
    "STEPS = {": "tests/pages/test_guides.py runs the program that it is from",
    "def loaded(": "tests/pages/test_guides.py runs the program that it is from",
    "def pipeline(": "tests/pages/test_guides.py runs the program that it is from",
    "def handle(tracker": "tests/pages/test_guides.py runs the program that it is from",
    "from waybill import Tracker\n\ntracker = Tracker()": "tests/pages/test_guides.py runs the cells",
    "from waybill import Query, Settings, find, flush": "tests/pages/test_guides.py runs the cells",
    "import waybill.spark\n": "it takes Spark; tests/spark/test_quickstart.py begins a session",
    "spark = waybill.spark.session(": "it takes Spark; tests/spark/test_session.py begins some so",
    "spark.read.parquet(": "it takes Spark; tests/spark/test_readers.py makes this view",
    "records = spark.read.parquet(": "it takes Spark; tests/spark/test_readers.py reads these files",
    "with waybill.spark.SparkRows(": "it takes Spark; tests/spark/test_packages.py counts rows so",
}
"""Examples in Python that are not run here, by how they begin, and why."""
RUN_EACH = """
import ast, asyncio, inspect, json, sys
for program in json.load(sys.stdin):
    code = compile(program, program, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if inspect.isawaitable(done := eval(code, {"__name__": "__main__"})):
        asyncio.run(done)
"""


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    """`waybill` for all pages, but for one."""
    with loaded_waybill() as loaded:
        yield loaded


def is_left_out(command: str) -> bool:
    return any(command.startswith(start) for start in LEFT_OUT)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ELSEWHERE], ids=lambda page: page.name
)
def test_a_page_can_be_pasted(page: Path, tmp_path: Path, loaded: Loaded) -> None:
    text, world = page.read_text(encoding="utf-8"), World(tmp_path)
    if not any(list(commands_of(block)) for block in blocks(text)):
        pytest.skip("it has no command")
    if page.name in WORLDS:
        WORLDS[page.name](world)
    roots = {"/data/": "data", "/mnt/": "mnt", "/var/lib/": "var/lib", "s3://bucket/": "bucket"}
    places = {place: f"{tmp_path / other}/" for place, other in roots.items()}
    shown = 0
    program = None if page.name == REAL else loaded
    for done in paste(
        text, tmp_path, loaded=program, places=places, is_left_out=is_left_out, before=world.happen
    ):
        assert not done.code or done.command in FAILING, f"{done.command}\n{done.printed}"
        assert done.is_as_shown, f"{done.command}\n{done.printed}"
        shown += bool(done.shown)
    assert shown >= (2 if page.name in WITH_OUTPUT else 0)


def programs(page: Path) -> list[str]:
    """The examples in Python of a page that no command of it runs."""
    found = blocks(page.read_text(encoding="utf-8"))
    return [one.text for one in found if one.language in {"py", "python"} and not one.title]


@pytest.mark.parametrize("page", GIVEN)
def test_the_examples_in_python_of_a_page_run(page: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    if page in WORLDS:
        WORLDS[page](world)
    (world.stands / "orders.csv").write_text("id,amount\n", encoding="utf-8")
    run = [one for one in programs(REPOSITORY / "docs" / page) if not one.startswith(tuple(NOT_RUN))]
    given = [f"{GIVEN[page]}{one}".replace("s3://bucket/", f"{tmp_path / 'bucket'}/") for one in run]
    done = subprocess.run(
        [PROGRAMS / "python", "-c", RUN_EACH],
        check=False,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=world.stands,
        env=environment(tmp_path, PROGRAMS) | {"WAYBILL_RUNNER": "none"},
    )
    assert not done.returncode, done.stderr
    assert given


def test_an_example_in_python_that_is_not_run_has_a_reason_and_each_reason_an_example() -> None:
    untold, used = list[str](), set[str]()
    for page in PAGES:
        for one in programs(page):
            used |= (reasons := {start for start in NOT_RUN if one.startswith(start)})
            if not reasons and page.name not in GIVEN:
                untold.append(f"{page.name}: {one}")
    assert untold == []
    assert used == NOT_RUN.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_installs_is_a_checkout_or_a_wheel_with_extras_that_there_are(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        for extras in re.findall(r"(?: '\.|\.whl)\[([\w,]+)\]", block.text):
            assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
        assert not re.search(rf"pip install[^\n]* '?{PROJECT['name']}\b", block.text), "no index has it"


def test_the_page_about_installing_names_every_extra_and_the_wheel_that_is_built() -> None:
    text = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(PROJECT["optional-dependencies"])
    assert f"dist/{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}-py3-none-any.whl[" in text


def test_the_readme_is_one_screen_and_begins_with_commands_that_make_and_the_checks_have() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    demo, test = (command.partition("#")[0].strip() for command, _ in commands(blocks(text)[0].text))
    assert (demo, test) == ("make demo", "make test")
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    checks = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert test in checks.splitlines()
