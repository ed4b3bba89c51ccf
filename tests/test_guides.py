"""The guides: their examples run, their links lead somewhere, their figures are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from waybill.facets.overrides import OVERRIDABLE
from waybill.spark import LISTENER_VERSION
from waybill.transport.runner import runner

REPOSITORY = Path(__file__).parent.parent
ROOMS = ("facets", "transport", "marquez", "exporter", "collector", "spark", "cli")
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])
EXAMPLES = {"tracker.md": "tracker.py", "spark.md": "spark_pipeline.py"}


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


@pytest.mark.parametrize("page", EXAMPLES)
def test_an_example_prints_what_its_guide_says(page: str, tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "examples" / EXAMPLES[page])]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert done.stdout == block(page, "text")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8"))
    for path, anchor in links:
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_the_guide_to_spark_names_the_listener_that_is_fetched() -> None:
    named = re.findall(r"openlineage-spark(?:_2\.1\d:)? ?(\d+\.\d+\.\d+)", text_of("spark.md"))
    assert len(named) >= 2
    assert set(named) == {LISTENER_VERSION}


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
    """Files of a room are named without the two folders that make it a portion of the namespace."""
    named = re.findall(r"`([a-z]+)/([\w/.]+)`", text_of("architecture.md"))
    paths = [
        REPOSITORY / first / rest if first == "tests" else REPOSITORY / first / "waybill" / first / rest
        for first, rest in named
    ]
    assert len(paths) > 40
    assert [str(path) for path in paths if not path.exists()] == []


def test_the_architecture_names_each_room_and_package() -> None:
    page = text_of("architecture.md")
    for room in ROOMS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{room}` |"))
        folders = [path.parent.name for path in (REPOSITORY / room / "waybill" / room).glob("*/__init__.py")]
        assert [name for name in folders if f"`{name}/`" not in row] == []
