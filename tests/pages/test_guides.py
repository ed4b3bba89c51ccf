"""The guides: their examples run, their links lead somewhere, their figures are those of the code."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from calls import refused
from contract_server import ContractServer
from pasting import blocks, commands
from shown_runs import running_runs

from waybill.facets.overrides import OVERRIDABLE
from waybill.lineage.levels import read_plan
from waybill.lineage.levels.objectives import Objectives
from waybill.marquez import Backend, Delivery
from waybill.spark import LISTENER_VERSION
from waybill.transport import Journal, Settings
from waybill.transport.config import SETTINGS
from waybill.transport.runner import runner
from waybill.transport.runner.unended import SETTLE_MS, UnendedRuns

REPOSITORY = Path(__file__).parents[2]
ROOMS = ("facets", "transport", "marquez", "exporter", "collector", "spark", "cli")
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])
Example = tuple[str, str, Path]
EXAMPLES = {
    "datasets.md": "model_lineage.py",
    "facets.md": "facet.py",
    "tracker.md": "tracker.py",
    "spark.md": "spark_pipeline.py",
}


def text_of(page: str) -> str:
    return (REPOSITORY / "docs" / page).read_text(encoding="utf-8")


def block(page: str, language: str) -> str:
    (found,) = re.finditer(rf"^```{language}\n(.*?)^```$", text_of(page), flags=re.MULTILINE | re.DOTALL)
    return found[1]


def anchors(page: Path) -> set[str]:
    """What a link can name within a page, as GitHub makes it of the headings."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", EXAMPLES)
def test_a_guide_quotes_its_example(page: str) -> None:
    assert block(page, "python") in (REPOSITORY / "examples" / EXAMPLES[page]).read_text(encoding="utf-8")


KEEPS_ITS_FOLDER = """
import contextlib, runpy, sys, tempfile
example, folder = sys.argv[1:]
tempfile.TemporaryDirectory = lambda: contextlib.nullcontext(folder)
runpy.run_path(example, run_name="__main__")
"""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(page, marks=pytest.mark.spark_truth if page == "spark.md" else ()) for page in EXAMPLES
    ],
)
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Example:
    """A guide whose example has run, what that has printed, and the folder that it has used."""
    page: str = request.param
    folder = tmp_path_factory.mktemp("example")
    script = str(REPOSITORY / "examples" / EXAMPLES[page])
    command = [sys.executable, "-c", KEEPS_ITS_FOLDER, script, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, timeout=200)
    return page, done.stdout, folder


def test_an_example_prints_what_its_guide_says(example: Example) -> None:
    page, printed, _ = example
    assert printed == block(page, "text")


def test_after_an_example_marquez_shows_no_run_as_running(example: Example) -> None:
    *_, folder = example
    (database,) = folder.rglob("journal.db")
    journal, marquez = Journal(database.parent), ContractServer().start()
    unended = UnendedRuns(journal)  # a runner's part, which the examples do without
    for now_ms in (now := time.time_ns() // 1_000_000, now + SETTLE_MS + 1_000):
        while unended.look(now_ms):
            pass
    delivery = Delivery(journal, Backend(marquez.url), draws=True)
    while delivery.pending():
        assert delivery.step().problem is None
    delivery.close()
    journal.close()
    assert set(marquez.runs.values()) & {"COMPLETED", "FAILED"}
    assert running_runs(marquez) == set()
    marquez.refuse()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8"))
    for path, anchor in links:
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert target.is_relative_to(page.parent), f"{path} is no page of the site: name it in code"
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_of_the_repository_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(
        r"`((?:benchmarks|deploy|docs|examples|monitoring|tests)/[^`\s]*)`", page.read_text(encoding="utf-8")
    )
    assert [path for path in named if not list(REPOSITORY.glob(path))] == []


def test_the_site_has_every_page_once() -> None:
    site = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- .*: ([\w-]+\.md)$", site, re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in PAGES if page.name != "README.md")


def test_the_site_asks_no_other_host_for_anything() -> None:
    site = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false\n" in site
    assert "repo_url:" not in site
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "mermaid" not in {block.language for block in blocks(text)}, page.name
        assert not re.search(r"!\[[^]]*\]\(https?:|<(?:img|script|iframe)\b[^>]*https?:", text), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_example_compiles_and_imports_what_is_there(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language not in {"python", "py"}:
            continue
        tree = compile(block.text, page.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "waybill":
                module = importlib.import_module(str(node.module))
                assert [one.name for one in node.names if not hasattr(module, one.name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_configuration_of_a_page_has_only_settings_that_there_are(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "yaml":
            keys = set(
                settings_in(yaml.safe_load(block.text), whole="waybill.yaml" in (block.title or block.text))
            )
            assert keys <= SETTINGS.keys(), block.text


def settings_in(value: object, *, whole: bool) -> Iterator[str]:
    """The keys of a file of Waybill's own, and of its transport wherever that is."""
    if isinstance(value, dict):
        if whole or value.get("type") == "waybill.transport.WaybillTransport":
            yield from value.keys() - {"type"}
        else:
            for one in value.values():
                yield from settings_in(one, whole=False)


def test_every_benchmark_of_the_page_is_there_with_its_options() -> None:
    for block in blocks(text_of("benchmarks.md")):
        for command, _ in commands(block.text) if block.language == "console" else ():
            words = shlex.split(command, comments=True)
            if words[:2] == ["python", "-m"]:
                path = REPOSITORY / f"{words[2].replace('.', '/')}.py"
                assert [
                    one for one in words if one.startswith("--") and f'"{one}"' not in known_to(path)
                ] == []


def known_to(program: Path) -> str:
    """The source of a benchmark, and of what all share."""
    return "".join(one.read_text(encoding="utf-8") for one in (program, *program.parent.glob("measur*.py")))


def test_the_objectives_of_the_guide_are_a_file_that_can_be_read(settings: Settings) -> None:
    (block,) = [one for one in blocks(text_of("service-levels.md")) if one.language == "yaml"]
    settings.home.mkdir()
    (settings.home / "slis.yaml").write_text(block.text, encoding="utf-8")
    plan = read_plan(settings)
    assert plan.file.objectives == Objectives(), "these are the defaults, as the guide says"
    assert plan.file.tiers
    assert plan.file.maintenance


def test_what_a_model_is_configured_with_is_a_command_that_there_is() -> None:
    (block,) = [one for one in blocks(text_of("mcp.md")) if one.language == "json"]
    (server,) = json.loads(block.text)["mcpServers"].values()
    assert (server["command"], refused(server["args"])) == ("waybill", "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_has_only_options_that_there_are(page: Path) -> None:
    for line in waybill_lines(page):
        assert refused(shlex.split(line)[1:]) == "", line


def waybill_lines(page: Path) -> Iterator[str]:
    """Each call of `waybill` in the code of a page, without what a shell does around it."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    if page.name == "cli.md":
        code = re.findall(r"^ {4}(waybill .*)$", text, re.MULTILINE)
    else:
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        code = re.findall(r"`(waybill [a-z][^`]*)`", prose)
        for block in blocks(text):
            code += [block.text] if block.language == "sh" else []
            code += [one for one, _ in commands(block.text)] if block.language == "console" else []
    starts = re.compile(r"(?:^|&& |/bin/| -- |\()(waybill [a-z][^\n|;&)>#$]*)", re.MULTILINE)
    for found in starts.finditer("\n".join(code)):
        yield re.sub(r"['\"]", "", found[1])


def test_the_cells_of_the_guide_to_jupyter_find_what_they_tracked(home: Path, tmp_path: Path) -> None:
    _, told, asked = (block.text for block in blocks(text_of("jupyter.md")) if block.language == "py")
    given = {"WAYBILL_HOME": str(home), "WAYBILL_PROVENANCE_ENABLED": "true", "WAYBILL_RUNNER": "none"}
    done = subprocess.run(
        [sys.executable, "-c", told + asked],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | given,
        timeout=60,
    )
    assert done.stdout == "COMPLETE upload None\n"


def test_the_guides_to_spark_name_the_listener_that_is_fetched() -> None:
    guides = ("spark.md", "spark-submit.md", "spark-connect.md")
    named = [re.findall(r"openlineage-spark(?:_2\.1\d:)? ?(\d+\.\d+\.\d+)", text_of(one)) for one in guides]
    assert all(named)
    assert {one for each in named for one in each} == {LISTENER_VERSION}


def test_the_guide_to_spark_names_each_field_that_can_be_set_before_those_that_cannot() -> None:
    rows = re.findall(
        r"^\| (`\w+`.*?) \|", text_of("spark.md").partition("### Names and annotations")[2], re.MULTILINE
    )
    fields = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert set(fields[: len(OVERRIDABLE)]) == OVERRIDABLE
    assert fields[len(OVERRIDABLE) :] == ["created", "completed", "annotations"]


def test_the_guide_to_operation_says_when_a_runner_ends() -> None:
    prose = " ".join(text_of("operations.md").split())
    assert (
        f"by itself {runner.IDLE_S:.0f} seconds after nothing is left to do, an hour after the last" in prose
    )
    assert runner.BLOCKED_S == 3600


def test_every_path_of_the_architecture_is_there() -> None:
    named = re.findall(r"`([a-z]+/[\w/.]+)`", text_of("architecture.md"))
    paths = [REPOSITORY / path for path in named]
    assert len(paths) > 40
    assert [str(path) for path in paths if not path.exists()] == []


def test_the_architecture_names_each_room_and_package() -> None:
    page = text_of("architecture.md")
    for room in ROOMS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{room}` |"))
        folders = [path.parent.name for path in (REPOSITORY / room).glob("*/__init__.py")]
        assert [name for name in folders if f"`{name}/`" not in row] == []
