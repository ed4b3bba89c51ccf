"""Pages whose commands are pasted, one after the other: each works, and prints what the page shows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pasting import blocks, commands, commands_of, paste
from worlds import WORLDS, World

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FAILING = ("python orders.py", "waybill root show", "waybill verify /data/lineage")
"""What a page pastes in order to see it fail."""
WITH_OUTPUT = ("README.md", "quickstart.md", "audit.md", "openlineage.md", "deltafi.md")
"""Pages that show much of what is printed."""
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
    "waybill dead-letters": "it takes a Marquez that refuses; tests/cli/test_dead_letters.py has one",
    "waybill reconcile": "it takes a Marquez; tests/cli/test_reconcile.py has one",
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


def is_left_out(command: str) -> bool:
    return any(command.startswith(start) for start in LEFT_OUT)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ELSEWHERE], ids=lambda page: page.name
)
def test_a_page_can_be_pasted(page: Path, tmp_path: Path) -> None:
    text, world = page.read_text(encoding="utf-8"), World(tmp_path)
    if not any(list(commands_of(block)) for block in blocks(text)):
        pytest.skip("it has no command")
    if page.name in WORLDS:
        WORLDS[page.name](world)
    roots = {"/data/": "data", "/mnt/": "mnt", "/var/lib/": "var/lib", "s3://bucket/": "bucket"}
    places = {place: f"{tmp_path / other}/" for place, other in roots.items()}
    shown = 0
    for done in paste(text, tmp_path, places=places, is_left_out=is_left_out, before=world.happen):
        assert not done.code or done.command in FAILING, f"{done.command}\n{done.printed}"
        assert done.is_as_shown, f"{done.command}\n{done.printed}"
        shown += bool(done.shown)
    assert shown >= (2 if page.name in WITH_OUTPUT else 0)


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
