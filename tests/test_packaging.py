"""The promises of the package as a whole: what is in the wheel, what an import loads, what is public."""

from __future__ import annotations

import ast
import functools
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
from waybill.transport import Tracker, WaybillError

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = ("facets", "transport", "marquez", "exporter", "lineage", "collector", "spark", "cli")
FACE = ("__init__.py", "__main__.py", "py.typed")
FOREIGN = re.compile(
    r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/"
    r"|\b(?:pypi|pythonhosted|npmjs|maven|debian|crates)\.(?:org|io)\b|apache\.org/maven"
)


def sources(room: str) -> list[Path]:
    """The files of a portion, a room or the face of the package, relative to its folder."""
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


def test_the_wheel_holds_every_file_of_the_rooms_and_the_face_once_and_nothing_else(
    wheel: zipfile.ZipFile,
) -> None:
    expected = [path.as_posix() for portion in ("api", *ROOMS) for path in sources(portion)]
    found = [name for name in wheel.namelist() if ".dist-info/" not in name]
    assert sorted(found) == sorted(expected)


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


def test_the_face_of_the_package_is_one_module_that_stands_before_the_rooms() -> None:
    assert sorted(map(str, sources("api"))) == [f"waybill/{name}" for name in FACE]
    assert waybill.__file__ == str(REPOSITORY / "api" / "waybill" / "__init__.py")
    assert {Path(folder).parent.name for folder in waybill.__path__} >= {"api", *ROOMS}


def test_names_that_users_type_come_from_waybill_itself(tmp_path: Path) -> None:
    names = python("import waybill; print(*dir(waybill))", tmp_path).split()
    assert {"Tracker", "find", "flush", "__version__"} <= set(names)
    assert waybill.__version__ == PROJECT["project"]["version"]
    assert waybill.Tracker is Tracker
    assert [name for name in waybill.__all__ if not hasattr(waybill, name)] == []
    with pytest.raises(AttributeError, match="module 'waybill' has no attribute 'Traker'"):
        waybill.Traker  # type: ignore[attr-defined]  # noqa: B018


def test_every_name_of_the_face_is_used_by_the_typed_api_tests() -> None:
    text = (REPOSITORY / "tests" / "typing" / "api.py").read_text(encoding="utf-8")
    assert set(waybill.__all__) - set(re.findall(r"\bwaybill\.(\w+)", text)) == set()


def test_help_describes_the_package(tmp_path: Path) -> None:
    text = python("import waybill; help(waybill)", tmp_path)
    assert "from waybill import Tracker" in text
    assert "class Tracker" in text


def test_importing_waybill_loads_no_room(tmp_path: Path) -> None:
    loaded = python("import sys, waybill; print(*sys.modules)", tmp_path).split()
    assert [name for name in loaded if name.startswith("waybill.")] == []
    assert {"msgspec", "importlib.metadata"} & set(loaded) == set()


@pytest.mark.parametrize("first", [True, False], ids=["before Waybill", "after Waybill"])
def test_a_portion_of_another_package_stays_importable(tmp_path: Path, *, first: bool) -> None:
    portion = tmp_path / "other" / "waybill" / "plugin"
    portion.mkdir(parents=True)
    (portion / "__init__.py").write_text("from waybill import Tracker", encoding="utf-8")
    where = f"sys.path.insert({0 if first else 'len(sys.path)'}, {str(tmp_path / 'other')!r})"
    code = f"import sys; {where}; from waybill.plugin import Tracker; print(Tracker.__name__)"
    assert python(code, tmp_path) == "Tracker\n"


def test_a_wheel_that_is_only_on_the_path_will_do(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {wheel.filename!r}); from waybill import Tracker; print(Tracker)"
    without_metadata = (
        "import importlib.metadata as m; m.Distribution.discover = lambda **_: iter(()); import waybill;"
        "print(waybill.__file__, hasattr(waybill, '__version__'))"
    )
    printed = python(f"{code}; {without_metadata}", tmp_path).splitlines()
    assert printed == [str(Tracker), f"{wheel.filename}/waybill/__init__.py False"]


def test_python_m_waybill_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "waybill", "--version"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"waybill {waybill.__version__}\n"


@functools.cache
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


@functools.cache
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


def test_a_lazy_face_offers_what_its_types_say() -> None:
    lazy = {
        name: table
        for name, path in modules().items()
        if path.name == "__init__.py"
        if (table := vars(importlib.import_module(name)).get("_PACKAGES")) is not None
    }
    assert "waybill.exporter.query" in lazy
    for name, table in lazy.items():
        offered = {one for names in table.values() for one in names}
        assert offered | {"lazily"} == face_of(name)
        assert [one for one in offered if not hasattr(importlib.import_module(name), one)] == []


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
    program = "import sys\nfrom waybill.cli.reference import commands\ncommands()\nprint(*sys.modules)"
    loaded = python(program, tmp_path).split()
    foreign = {"pyarrow", "pyspark", "requests", "openlineage", "pandas", "numpy", "duckdb", "granian"}
    assert {"waybill.cli.commands.doctor", "waybill.exporter.health"} <= set(loaded)
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
    pinned = (REPOSITORY / "docs" / "requirements.txt").read_text(encoding="utf-8")
    wanted += [line for line in pinned.splitlines() if not line.startswith("#")]
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
