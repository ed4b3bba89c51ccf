"""Whether packages fit together: by the datasets that they read and write."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from .manifest import MANIFEST_NAMES, read_package
from .yaml_files import YamlFileError

if TYPE_CHECKING:
    from waybill.transport.tracker.datasets import Dataset

    from .manifest import DatasetSpec, Package

_SKIPPED: Final = frozenset({".git", ".venv", "node_modules", "__pycache__"})
_SCRIPTS: Final = frozenset({".py", ".sh", ".jar", ".js", ".pl", ".rb", ".R"})
_WORDS: Final = re.compile(r"[^a-z0-9]+")


class PackageFinding(msgspec.Struct, frozen=True, order=True):
    """Something that is wrong with a manifest, or between several.

    Attributes:
        path: the manifest.
        line: its line, from 1; 0: the whole.
        field: the place in it.
        what: the problem and what to do about it.
        is_error: whether it is surely wrong; else, it may be meant so.
    """

    path: str
    line: int
    field: str
    what: str
    is_error: bool = True


class BrokenUse(msgspec.Struct, frozen=True, order=True):
    """A change of a dataset that another package reads.

    Attributes:
        dataset: its namespace and name.
        change: what changed.
        reader: the manifest of the package that reads it.
    """

    dataset: tuple[str, str]
    change: str
    reader: str


class _Use(NamedTuple):
    package: Package
    place: str
    spec: DatasetSpec
    dataset: Dataset

    def finding(self, what: str, *, is_error: bool = True) -> PackageFinding:
        field = f"{self.place}.binding"
        return PackageFinding(str(self.package.path), self.package.lines.get(field, 0), field, what, is_error)

    @property
    def by(self) -> str:
        return f"{self.package.manifest.metadata.name} ({self.package.path})"


def list_packages(
    folder: Path, *, by_group: bool | None = None
) -> tuple[list[Package], list[PackageFinding]]:
    """The packages in a folder and those below it, and what is wrong with manifests that cannot be read.

    `by_group` is as of `read_yaml`.
    """
    packages, findings = [], []
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        found += [Path(place, name).absolute() for name in files if name in MANIFEST_NAMES]
    for path in sorted(found):
        try:
            packages.append(read_package(path, by_group=by_group))
        except YamlFileError as error:
            findings.append(PackageFinding(error.path, error.line, error.field, error.what))
    return packages, findings


def check_packages(packages: Iterable[Package]) -> list[PackageFinding]:
    """What is wrong between packages."""
    packages = list(packages)
    reads = [use for package in packages for use in _uses(package, "inputs")]
    writes = [use for package in packages for use in _uses(package, "outputs")]
    found = [*_repeated_names(packages), *_spelled_otherwise([*writes, *reads])]
    found += chain.from_iterable(map(_missing_program, packages))
    told = {(one.path, one.field) for one in found}
    written = {use.dataset for use in writes}
    found += [
        _unwritten(use, writes)
        for use in reads
        if use.dataset not in written and (str(use.package.path), f"{use.place}.binding") not in told
    ]
    for dataset, uses in _by_dataset(writes).items():
        for use in uses[1:]:
            what = f"{_shown(dataset)} is written by {uses[0].by}, too, which may be a mistake"
            found.append(use.finding(what, is_error=False))
    return sorted([*found, *_cycle(reads, writes)])


def _missing_program(package: Package) -> Iterator[PackageFinding]:
    """What is not there of a package's program: itself, or the script behind it, such as ``main.py``."""
    runtime, folder = package.manifest.runtime, package.path.parent
    program, *rest = runtime.arguments
    at = str(folder / program) if "/" in program else program
    missing = [] if which(at, path=runtime.env.get("PATH")) else [program]
    missing += [one for one in rest[:1] if Path(one).suffix in _SCRIPTS and not (folder / one).exists()]
    if missing:
        what = f"there is no {missing[0]}, which is to be run; write or install it, or correct the command"
        line = package.lines.get("runtime.command", 0)
        yield PackageFinding(str(package.path), line, "runtime.command", what)


def list_broken_uses(before: Iterable[Package], now: Iterable[Package]) -> list[BrokenUse]:
    """Which packages read what others wrote before and do not write any more, or write otherwise."""
    now = list(now)
    outputs = {use.dataset: use.spec for package in now for use in _uses(package, "outputs")}
    readers = _by_dataset([use for package in now for use in _uses(package, "inputs")])
    broken = []
    for package in before:
        for use in _uses(package, "outputs"):
            for reader in readers.get(use.dataset, ()):
                path = str(reader.package.path)
                changes = _changes(use.spec, outputs.get(use.dataset))
                broken += [
                    BrokenUse((use.dataset.namespace, use.dataset.name), change, path) for change in changes
                ]
    return sorted(set(broken))


def _uses(package: Package, side: str) -> list[_Use]:
    specs: tuple[DatasetSpec, ...] = getattr(package.manifest, side)
    return [
        _Use(package, f"{side}.{number}", spec, package.dataset_of(spec)) for number, spec in enumerate(specs)
    ]


def _by_dataset(uses: Iterable[_Use]) -> dict[Dataset, list[_Use]]:
    grouped: defaultdict[Dataset, list[_Use]] = defaultdict(list)
    for use in uses:
        grouped[use.dataset].append(use)
    return grouped


def _repeated_names(packages: Iterable[Package]) -> Iterator[PackageFinding]:
    first: dict[tuple[str, str], Package] = {}
    for package in packages:
        name = (package.manifest.metadata.namespace, package.manifest.metadata.name)
        other = first.setdefault(name, package)
        if other is not package:
            line = package.lines.get("metadata.name", 0)
            what = f"the package {'/'.join(name)} is at {other.path}, too; give each its own name"
            yield PackageFinding(str(package.path), line, "metadata.name", what)


def _spelled_otherwise(uses: Iterable[_Use]) -> Iterator[PackageFinding]:
    first: dict[tuple[str, ...], _Use] = {}
    for use in uses:
        words = tuple(_WORDS.sub(" ", part.casefold()).strip() for part in use.dataset)
        other = first.setdefault(words, use)
        if other.dataset != use.dataset:
            what = f"{_shown(use.dataset)} is {_shown(other.dataset)} in {other.by}; spell it in one way"
            yield use.finding(what)


def _unwritten(use: _Use, writes: Iterable[_Use]) -> PackageFinding:
    """An input that no package writes; the same name in another namespace is surely wrong."""
    for write in writes:
        if write.dataset.name == use.dataset.name:
            what = f"{write.by} writes {_shown(write.dataset)}; give both the same namespace"
            return use.finding(what)
    return use.finding(f"no package writes {_shown(use.dataset)}", is_error=False)


def _cycle(reads: Iterable[_Use], writes: Iterable[_Use]) -> Iterator[PackageFinding]:
    """The first circle of packages that each read what the one before writes."""
    writers = _by_dataset(writes)
    before: defaultdict[Path, dict[Path, _Use]] = defaultdict(dict)
    for use in reads:
        for write in writers.get(use.dataset, ()):
            if write.package.path != use.package.path:
                before[use.package.path].setdefault(write.package.path, use)
    try:
        TopologicalSorter({path: sorted(others) for path, others in sorted(before.items())}).prepare()
    except CycleError as error:
        circle: list[Path] = error.args[1][1:]
        first = circle.index(min(circle))
        way = [*circle[first:], *circle[: first + 1]]
        what = f"these packages read each other's outputs: {' → '.join(map(str, way))}"
        yield before[way[0]][way[-2]].finding(what)


def _changes(before: DatasetSpec, now: DatasetSpec | None) -> list[str]:
    if now is None:
        return ["it is not written any more"]
    types = {column.name: column.type for column in now.schema}
    changes = []
    for column in before.schema:
        if column.name not in types:
            changes.append(f"the column {column.name} is gone")
        elif types[column.name] != column.type:
            changes.append(f"the column {column.name} was {column.type}, and is {types[column.name]}")
    return changes


def _shown(dataset: Dataset) -> str:
    return f"{dataset.namespace} {dataset.name}"
