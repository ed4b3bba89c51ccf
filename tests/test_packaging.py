"""The promises of the package as a whole: what is in the wheel, what an import loads, what is public."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import waybill
from waybill.spark.runtime.jars import MAVEN_CENTRAL
from waybill.transport import WaybillError

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = ("facets", "transport", "marquez", "exporter", "collector", "spark", "cli")
FOREIGN = re.compile(
    r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/"
    r"|\b(?:pypi|pythonhosted|npmjs|maven|debian|crates)\.(?:org|io)\b|apache\.org/maven"
)


def sources(room: str) -> list[Path]:
    """The files of a room, relative to the folder of its portion of the namespace."""
    portion = REPOSITORY / room
    return [
        path.relative_to(portion)
        for path in sorted(portion.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]


def python(code: str, folder: Path) -> str:
    """What a fresh interpreter prints that runs this code in an empty folder."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as wheel:
        yield wheel


def test_the_wheel_holds_every_file_of_the_rooms_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    expected = {path.as_posix() for room in ROOMS for path in sources(room)}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected


def test_the_wheel_brings_licence_command_and_projections(wheel: zipfile.ZipFile) -> None:
    by_name = {name.split(".dist-info/")[-1]: name for name in wheel.namelist()}
    licence = (REPOSITORY / "LICENSE").read_bytes()
    assert wheel.read(by_name["licenses/LICENSE"]) == licence
    entry_points = wheel.read(by_name["entry_points.txt"]).decode()
    assert "waybill = waybill.cli:main" in entry_points
    assert "[waybill.projections]" in entry_points


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_a_typed_portion_of_the_namespace(room: str) -> None:
    files = set(sources(room))
    assert Path("waybill", room, "py.typed") in files
    assert Path("waybill", room, "__init__.py") in files
    assert Path("waybill", "__init__.py") not in files
    assert {path.parts[:2] for path in files} == {("waybill", room)}


def test_the_namespace_is_open_to_other_packages() -> None:
    assert waybill.__file__ is None
    assert {Path(folder).parent.name for folder in waybill.__path__} >= set(ROOMS)


def modules() -> dict[str, Path]:
    """Every module of every room, by its dotted name."""
    paths = [(room, path) for room in ROOMS for path in sources(room) if path.suffix == ".py"]
    return {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): REPOSITORY / room / path
        for room, path in paths
    }


def imports_of(path: Path) -> Iterator[tuple[str, str]]:
    """What a module imports of Waybill, within functions and for types too: from where, and which name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("waybill."):
            yield from ((node.module or "", alias.name) for alias in node.names)


def shelf(module: str) -> str:
    """What stands directly in a room and holds this module: a package, or the module itself."""
    return ".".join(module.split(".")[:3])


def face_of(package: str) -> set[str]:
    """What others may import of it: what a package imports, of a module what has no underscore."""
    path = modules()[package]
    if path.name == "__init__.py":
        return {imported for _, imported in imports_of(path)}
    return {name for name in vars(importlib.import_module(package)) if not name.startswith("_")}


def test_a_package_is_imported_by_its_face() -> None:
    known = modules()
    behind = [
        f"{name}: {source}.{imported}"
        for name, path in known.items()
        for source, imported in imports_of(path)
        # Commands, demo and stack of the last room have no users but its own application.
        if shelf(source) not in {shelf(name), "waybill.cli"} and not source.startswith("waybill.cli.")
        if shelf(f"{source}.{imported}") not in known or source.count(".") == 2
        if source != shelf(source) or imported not in face_of(source)
    ]
    assert behind == []


def test_no_package_offers_a_name_that_one_of_its_modules_has() -> None:
    """Which of the two one would get would hang on what was imported before."""
    known = modules()
    packages = [name for name, path in known.items() if path.name == "__init__.py"]
    both = [name for package in packages for name in face_of(package) if f"{package}.{name}" in known]
    assert both == []


@pytest.mark.parametrize("room", ["facets", "transport"])
def test_a_pipeline_loads_no_library_that_it_does_not_use(room: str, tmp_path: Path) -> None:
    loaded = python(f"import sys, waybill.{room}; print(*sys.modules)", tmp_path).split()
    foreign = {"pyarrow", "pyspark", "requests", "rich", "typer", "yaml", "pandas", "numpy", "duckdb"}
    assert f"waybill.{room}" in loaded
    assert foreign & set(loaded) == set()


def test_a_command_loads_no_library_that_it_does_not_use(tmp_path: Path) -> None:
    loaded = python("import sys, waybill.cli.app; print(*sys.modules)", tmp_path).split()
    foreign = {"pyarrow", "pyspark", "requests", "openlineage", "pandas", "numpy", "duckdb", "granian"}
    assert "waybill.cli.commands.doctor" in loaded
    assert foreign & set(loaded) == set()


def test_no_room_makes_an_array_while_it_loads_since_arrow_then_loads_pandas(tmp_path: Path) -> None:
    loaded = python("import sys, waybill.exporter, waybill.facets.columns; print(*sys.modules)", tmp_path)
    assert "pyarrow" in loaded.split()
    assert "pandas" not in loaded.split()


def test_a_pyspark_program_loads_what_a_rebuild_needs_only_for_one(tmp_path: Path) -> None:
    loaded = python("import sys, waybill.spark; print(*sys.modules)", tmp_path).split()
    assert {"pyarrow", "pyspark", "pandas", "numpy"} & set(loaded) == set()
    program = "import sys\nfrom waybill.spark import rebuild_on_spark\nprint(*sys.modules)"
    loaded = python(program, tmp_path).split()
    assert "pyarrow" in loaded
    assert "pyspark" not in loaded


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_is_public_by_accident(room: str, tmp_path: Path) -> None:
    code = (
        f"import types, waybill.{room} as room\n"
        "for name, value in vars(room).items():\n"
        "    own = isinstance(value, types.ModuleType) and value.__name__.startswith(room.__name__)\n"
        "    python = name.startswith('_') or name in {'annotations', 'TYPE_CHECKING'}\n"
        "    if not own and not python: print(name)"
    )
    reached = set(python(code, tmp_path).split())
    module = importlib.import_module(f"waybill.{room}")
    assert len(module.__all__) == len(set(module.__all__))
    assert reached <= set(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_used_by_the_typed_api_tests(room: str) -> None:
    words = set(re.findall(r"\w+", (REPOSITORY / "tests" / "typing" / "api.py").read_text(encoding="utf-8")))
    assert set(importlib.import_module(f"waybill.{room}").__all__) - words == set()


def public_errors() -> list[type[WaybillError]]:
    """Every error of Waybill that any module of any room defines."""
    for room in ROOMS:
        package = importlib.import_module(f"waybill.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found, todo = [], [WaybillError]
    while todo:
        error = todo.pop()
        found.append(error)
        todo.extend(error.__subclasses__())
    return sorted(set(found), key=lambda error: error.__qualname__)


def test_every_error_survives_pickling() -> None:
    errors = public_errors()
    assert len(errors) > 1
    for error in errors:
        parameters = list(inspect.signature(error.__init__).parameters.values())[1:]
        before = error(*(one.name for one in parameters if one.kind is not one.VAR_KEYWORD))
        after = pickle.loads(pickle.dumps(before))
        assert type(after) is error
        assert (str(after), after.args, vars(after)) == (str(before), before.args, vars(before))


def required() -> set[str]:
    """The name of each package that the project asks for, whatever for."""
    wanted = list(PROJECT["build-system"]["requires"]) + PROJECT["project"]["dependencies"]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        wanted += extra
    for group in PROJECT["dependency-groups"].values():
        wanted += [one for one in group if isinstance(one, str)]
    return {re.split(r"[^A-Za-z0-9_.-]", text)[0].lower() for text in wanted} - {PROJECT["project"]["name"]}


def test_every_dependency_has_its_reason_and_every_reason_its_dependency() -> None:
    text = (REPOSITORY / "docs" / "dependencies.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert sorted(explained) == sorted(required())


def test_no_file_knows_a_machine_or_a_registry() -> None:
    git = shutil.which("git")
    if git is None or not (REPOSITORY / ".git").exists():
        pytest.skip("needs git and a clone: which files are the project's is asked of git")
    command = [git, "ls-files", "-z"]
    listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    tracked = [REPOSITORY / name for name in listed.split("\0") if name]
    found = [
        f"{path.relative_to(REPOSITORY)}: {match[0]}"
        for path in tracked
        if path.is_file() and path.name != "uv.lock"
        # Maven Central's public address is where users fetch JARs from unless they name a mirror.
        for match in FOREIGN.finditer(
            path.read_text(encoding="utf-8", errors="replace").replace(f'"{MAVEN_CENTRAL}"', "")
        )
    ]
    assert found == []
