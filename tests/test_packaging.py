"""The promises of the package as a whole: what is in the wheel, what an import loads, what is public."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pickle
import pkgutil
import py_compile
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import types
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import waybill
from waybill.spark.runtime.jars import MAVEN_CENTRAL
from waybill.transport import MissingExtraError, Tracker, WaybillError

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = ("facets", "transport", "marquez", "exporter", "lineage", "collector", "spark", "pipelines", "cli")
FACE = ("__init__.py", "__main__.py", "py.typed")
FOREIGN = re.compile(
    r"(?<![\w.>])/(?:work|root|home/\w+|Users/\w+)/"
    r"|\b(?:pypi|pythonhosted|npmjs|maven|debian|crates)\.(?:org|io)\b|apache\.org/maven"
    # Nobody has registered these for us, so anybody else may.
    r"|\bwaybill[\w-]*\.github\.io\b|\bgithub\.com/waybill|\bol:waybill\b"
)


def sources(room: str) -> list[Path]:
    """The files of a room, relative to the repository."""
    return [
        path.relative_to(REPOSITORY)
        for path in sorted((REPOSITORY / room).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]


def files_of_the_package() -> list[str]:
    """Where each source file stands in the package that users get."""
    rooms = [path for room in ROOMS for path in sources(room)]
    return sorted([*(f"waybill/{name}" for name in FACE), *(f"waybill/{path.as_posix()}" for path in rooms)])


def python(code: str, folder: Path) -> str:
    """What a fresh interpreter prints that runs this code in an empty folder."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def build(target: str, source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    done = subprocess.run(command, cwd=source, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(build("wheel", REPOSITORY, tmp_path_factory.mktemp("wheel"))) as wheel:
        yield wheel


def files_in(wheel: zipfile.ZipFile) -> list[str]:
    return sorted(name for name in wheel.namelist() if ".dist-info/" not in name)


def test_the_wheel_holds_every_file_of_the_rooms_and_the_face_once_and_nothing_else(
    wheel: zipfile.ZipFile,
) -> None:
    assert files_in(wheel) == files_of_the_package()


def test_the_source_distribution_holds_the_same_and_makes_the_same_wheel(tmp_path: Path) -> None:
    for folder in ("sdist", "wheel"):
        (tmp_path / folder).mkdir()
    built = build("sdist", REPOSITORY, tmp_path / "sdist")
    shutil.unpack_archive(built, tmp_path)
    with tarfile.open(built) as sdist:
        (root,) = {name.split("/")[0] for name in sdist.getnames()}
        names = [name.removeprefix(f"{root}/src/") for name in sdist.getnames() if "/src/" in name]
    assert sorted(names) == files_of_the_package()
    with zipfile.ZipFile(build("wheel", tmp_path / root, tmp_path / "wheel")) as wheel:
        assert files_in(wheel) == files_of_the_package()


def test_the_wheel_brings_licence_command_and_projections(wheel: zipfile.ZipFile) -> None:
    by_name = {name.split(".dist-info/")[-1]: name for name in wheel.namelist()}
    licence = (REPOSITORY / "LICENSE").read_bytes()
    assert wheel.read(by_name["licenses/LICENSE"]) == licence
    entry_points = wheel.read(by_name["entry_points.txt"]).decode()
    assert "waybill = waybill.cli:main" in entry_points
    assert "[waybill.projections]" in entry_points


def test_the_source_folder_holds_the_face_of_the_package_and_a_link_to_each_room_which_is_typed() -> None:
    folder = REPOSITORY / "src" / "waybill"
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {*FACE, *ROOMS}
    assert waybill.__file__ == str(folder / "__init__.py")
    for room in ROOMS:
        assert {Path(room, "py.typed"), Path(room, "__init__.py")} <= set(sources(room))
        assert (folder / room).readlink() == Path("..", "..", room)


def test_names_that_users_type_come_from_waybill_itself(tmp_path: Path) -> None:
    names = python("import waybill; print(*dir(waybill))", tmp_path).split()
    assert {"Tracker", "find", "flush", "__version__"} <= set(names)
    assert waybill.__version__ == PROJECT["project"]["version"]
    assert waybill.Tracker is Tracker
    assert [name for name in waybill.__all__ if not hasattr(waybill, name)] == []
    with pytest.raises(AttributeError, match="module 'waybill' has no attribute 'Traker'"):
        waybill.Traker  # type: ignore[attr-defined]  # noqa: B018


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
    paths = [path for room in ROOMS for path in sources(room) if path.suffix == ".py"]
    return {
        ".".join(["waybill", *path.with_suffix("").parts]).removesuffix(".__init__"): REPOSITORY / path
        for path in paths
    }


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """What a module consists of."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def test_next_has_a_default_or_a_reason_beside_it() -> None:
    # A StopIteration ends a generator in silence, and cannot be raised into a future, which waits for ever.
    bare = [
        f"{path}:{call.lineno}"
        for path in modules().values()
        for call in nodes_of(path)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "next"
        if len(call.args) < len(("iterator", "default"))
        if "#" not in path.read_text(encoding="utf-8").splitlines()[call.lineno - 1]
    ]
    assert bare == []


def imports_of(path: Path) -> Iterator[tuple[str, str]]:
    """What a module imports of Waybill, within functions and for types too: from where, and which name."""
    package = ["waybill", *path.relative_to(REPOSITORY).parts[:-1]]
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            within = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*within, *filter(None, [node.module])])
            if module.startswith("waybill."):
                yield from ((module, alias.name) for alias in node.names)


def test_an_import_is_relative_within_its_room_and_absolute_from_another() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in modules().values()
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom)
        if leaves_wrongly(node, path.relative_to(REPOSITORY))
    ]
    assert wrong == []


def leaves_wrongly(node: ast.ImportFrom, path: Path) -> bool:
    if node.level:
        return node.level >= len(path.parts)
    return (node.module or "").split(".")[:2] == ["waybill", path.parts[0]]


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
        # Commands and demo of the last room have no users but its own application.
        if shelf(source) not in {shelf(name), "waybill.cli"} and not source.startswith("waybill.cli.")
        if shelf(f"{source}.{imported}") not in known or source.count(".") == 2
        if source != shelf(source) or imported not in face_of(source)
    ]
    assert behind == []


def test_a_lazy_face_offers_what_its_types_say() -> None:
    packages = [importlib.import_module(name) for name, path in modules().items() if path.stem == "__init__"]
    lazy = [package for package in packages if "__getattr__" in vars(package) and hasattr(package, "__all__")]
    assert {"waybill.exporter.query", "waybill.facets"} <= {package.__name__ for package in lazy}
    for package in lazy:
        offered = set(package.__all__)
        assert offered | {"lazily"} <= face_of(package.__name__)
        assert [name for name in offered if not hasattr(package, name)] == []


def test_a_lazy_face_without_its_source_says_what_to_do(tmp_path: Path) -> None:
    package = tmp_path / "bare"
    package.mkdir()
    face = package / "__init__.py"
    face.write_text("from waybill.facets.lazy import lazily\n__getattr__ = lazily(__name__)\n")
    py_compile.compile(str(face), cfile=str(face.with_suffix(".pyc")), doraise=True)
    face.unlink()
    code = "import bare\ntry: bare.name\nexcept ImportError as error: print(error)"
    assert "the source of bare is missing; install Waybill" in python(code, tmp_path)


def test_no_package_offers_a_name_that_one_of_its_modules_has() -> None:
    """Which of the two one would get would hang on what was imported before."""
    known = modules()
    packages = [name for name, path in known.items() if path.name == "__init__.py"]
    both = [name for package in packages for name in face_of(package) if f"{package}.{name}" in known]
    assert both == []


ARRAYS = {"pyarrow", "pyspark", "pandas", "numpy", "duckdb"}
LIBRARIES = {*ARRAYS, "requests", "rich", "typer", "yaml"}
EMITS = """
import os
os.environ |= {"WAYBILL_RUNNER": "none", "WAYBILL_HOME": "home"}
from waybill import Tracker
with Tracker() as tracker, tracker.file("orders.csv", data_source="sftp-in") as file:
    file.egress("lake")
"""
COMMANDS = """
import typer
from waybill.cli.app import app
for command in typer.main.get_command(app).commands.values():
    command.loaded
"""


@pytest.mark.parametrize(
    ("program", "loads", "foreign"),
    [
        (
            "import waybill",
            {"waybill"},
            {f"waybill.{room}" for room in ROOMS} | {"msgspec", "importlib.metadata"},
        ),
        ("import waybill.facets", {"waybill.facets"}, LIBRARIES),
        ("import waybill.transport", {"waybill.transport"}, LIBRARIES),
        # OpenLineage's own client loads requests.
        pytest.param(EMITS, {"requests", "openlineage"}, ARRAYS, id="a pipeline that emits"),
        pytest.param(
            COMMANDS,
            {"waybill.cli.commands.doctor", "waybill.exporter.health"},
            ARRAYS | {"requests", "openlineage", "granian"},
            id="all commands",
        ),
        # Where a room makes an array while it loads, Arrow loads pandas.
        ("import waybill.exporter, waybill.facets.columns", {"pyarrow"}, {"pandas"}),
        ("from waybill.spark import fetch_listener", {"waybill.spark"}, ARRAYS | {"requests"}),
        ("from waybill.spark import rebuild_on_spark", {"pyarrow"}, {"pyspark"}),
    ],
)
def test_a_program_loads_no_library_that_it_does_not_use(
    program: str, loads: set[str], foreign: set[str], tmp_path: Path
) -> None:
    loaded = set(python(f"{program}\nimport sys\nprint(*sys.modules)", tmp_path).split())
    assert loads <= loaded
    assert foreign & loaded == set()


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_is_public_by_accident(room: str) -> None:
    module = importlib.import_module(f"waybill.{room}")
    reached = {
        name
        for name, value in vars(module).items()
        if not (isinstance(value, types.ModuleType) and value.__name__.startswith(module.__name__))
        if not name.startswith("_") and name not in {"annotations", "TYPE_CHECKING"}
    }
    assert reached <= set(module.__all__)
    assert len(module.__all__) == len(set(module.__all__))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


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


@pytest.mark.parametrize("extra", PROJECT["project"]["optional-dependencies"])
def test_an_error_about_an_extra_says_what_to_install(extra: str) -> None:
    what, _, command = str(MissingExtraError("It", extra)).partition(": ")
    assert what == f"It needs the extra `{extra}`"
    pip, install, *packages = shlex.split(command)
    assert (pip, install) == ("pip", "install")
    named = {name_of(package) for package in packages}
    given = {name_of(package) for package in PROJECT["project"]["optional-dependencies"][extra]}
    assert given - {PROJECT["project"]["name"]} <= named


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower()


def required() -> set[str]:
    """The name of each package that the project asks for, whatever for."""
    wanted = list(PROJECT["build-system"]["requires"]) + PROJECT["project"]["dependencies"]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        wanted += extra
    for group in PROJECT["dependency-groups"].values():
        wanted += [one for one in group if isinstance(one, str)]
    pinned = (REPOSITORY / "docs" / "requirements.txt").read_text(encoding="utf-8")
    wanted += [line for line in pinned.splitlines() if not line.startswith("#")]
    return {name_of(text) for text in wanted} - {PROJECT["project"]["name"]}


def test_every_dependency_has_its_reason_and_every_reason_its_dependency() -> None:
    text = (REPOSITORY / "docs" / "dependencies.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert sorted(explained) == sorted(required())


def test_no_file_knows_a_machine_or_a_registry_or_an_address_that_is_not_ours() -> None:
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
