"""The manifest of a package: how its program is run, and which datasets it reads and writes.

It is a file ``dk.yaml`` or ``waybill-package.yaml`` in the package's folder.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from waybill.transport.errors import NotFoundError
from waybill.transport.tracker.datasets import Dataset, dataset_of

from .yaml_files import Duration, YamlFileError, YamlPart, read_yaml

MANIFEST_NAMES: Final = ("dk.yaml", "waybill-package.yaml")
FILE: Final = "file"
"""The namespace of datasets that are files of this machine."""

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]


class Metadata(YamlPart, frozen=True):
    """What a package is.

    Attributes:
        name: of the package, and of its job.
        namespace: of its job.
        version: of the package.
        owner: who answers for it, such as a team.
        description: what it does.
        labels: further facts, which become tags of the job.
    """

    name: _Text
    namespace: _Text = "default"
    version: str = ""
    owner: str = ""
    description: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Runtime(YamlPart, frozen=True):
    """How a package's program is run.

    Attributes:
        command: the program and its arguments; a text is split as a shell does, and no shell runs it.
        env: variables that it gets beside those of its caller.
        reported_env: the variables whose values events tell.
        timeout: after which an attempt is stopped, such as ``1h 30m``; empty: never.
        retries: how often a failed program is run again.
        grace: how long a program that is stopped may take to end.
    """

    command: Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)] | _Text
    env: dict[_Text, str] = msgspec.field(default_factory=dict)
    reported_env: tuple[_Text, ...] = ()
    timeout: Duration | Literal[""] = ""
    retries: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    grace: Duration = "10s"

    @property
    def arguments(self) -> list[str]:
        """The program and its arguments."""
        return shlex.split(self.command) if isinstance(self.command, str) else [*self.command]


class Binding(YamlPart, frozen=True):
    """The dataset that an input or output is, in OpenLineage's terms."""

    namespace: _Text
    dataset: _Text


class Classification(YamlPart, frozen=True):
    """How confidential a dataset is."""

    pii: bool = False
    sensitivity: str = ""


class Column(YamlPart, frozen=True):
    """A column of a dataset."""

    name: _Text
    type: str = ""
    description: str = ""


class DatasetSpec(YamlPart, frozen=True):
    """A dataset that a package reads or writes.

    Attributes:
        name: its name in the package.
        type: what it is, such as ``kafka-topic``.
        binding: which dataset it is: its namespace and name, or its path or URI; a path begins at the folder.
        description: what is in it.
        classification: how confidential it is.
        schema: its columns.
    """

    name: _Text
    binding: Binding | _Text
    type: str = ""
    description: str = ""
    classification: Classification = Classification()
    schema: tuple[Column, ...] = ()


class Schedule(YamlPart, frozen=True):
    """When a package is run, in the form of cron."""

    cron: _Text


class ExpectedEdge(YamlPart, frozen=True):
    """An edge that runs are expected to show: the names of an input, or of its column, and of an output."""

    source: _Text
    target: _Text


class Objective(YamlPart, frozen=True):
    """What is promised of a package's outputs.

    Attributes:
        freshness: how old they are at most.
        completeness: which part of what is known of them is told, from 0 to 1.
    """

    freshness: Duration | Literal[""] = ""
    completeness: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class Manifest(YamlPart, frozen=True):
    """A package's manifest.

    Attributes:
        metadata: what it is.
        runtime: how it is run.
        inputs: what it reads.
        outputs: what it writes.
        schedule: when it is run.
        tier: how much depends on it.
        expected: the edges that its runs are expected to show.
        objective: what is promised of its outputs.
    """

    metadata: Metadata
    runtime: Runtime
    inputs: tuple[DatasetSpec, ...] = ()
    outputs: tuple[DatasetSpec, ...] = ()
    schedule: Schedule | None = None
    tier: Literal["critical", "important", "optional"] = "important"
    expected: tuple[ExpectedEdge, ...] = ()
    objective: Objective = Objective()


class Package(msgspec.Struct, frozen=True):
    """A package: its manifest, and where that is.

    Attributes:
        path: the manifest's absolute path.
        lines: by the place of each value, such as ``inputs.0.name``, its line from 1.
    """

    path: Path
    manifest: Manifest
    lines: dict[str, int]

    @property
    def folder(self) -> Path:
        """The folder in which its program runs."""
        return self.path.parent

    def dataset_of(self, spec: DatasetSpec) -> Dataset:
        """The dataset that an input or output is; the name of a local file is its absolute path."""
        binding = spec.binding
        if isinstance(binding, str):
            return dataset_of(binding if ":/" in binding else self.folder / binding)
        if binding.namespace == FILE:
            return dataset_of(self.folder / binding.dataset)
        return Dataset(binding.namespace, binding.dataset)


def find_manifest(place: Path) -> Path:
    """The manifest in a folder, or the file itself.

    Raises:
        NotFoundError: there is none.
    """
    if place.is_file():
        return place.absolute()
    found = [place / name for name in MANIFEST_NAMES if (place / name).is_file()]
    if len(found) == 1:
        return found[0].absolute()
    if found:
        raise NotFoundError(f"{place} has both {' and '.join(MANIFEST_NAMES)}; keep one of them")
    raise NotFoundError(
        f"there is no manifest {' or '.join(MANIFEST_NAMES)} in {place}; `waybill package init {place}` "
        "writes one"
    )


def read_package(place: Path, *, by_group: bool | None = None) -> Package:
    """Read the manifest of a package.

    Args:
        place: its folder, or the manifest.
        by_group: as of `read_yaml`.

    Raises:
        NotFoundError: there is no manifest.
        YamlFileError: it cannot be read, or is none.
    """
    path = find_manifest(place)
    manifest, lines = read_yaml(path, Manifest, by_group=by_group)
    _check(path, manifest, lines)
    return Package(path, manifest, lines)


def manifest_schema() -> dict[str, Any]:
    """The JSON Schema of manifests."""
    schema = msgspec.json.schema(Manifest)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _check(path: Path, manifest: Manifest, lines: dict[str, int]) -> None:
    """Raise a `YamlFileError` if parts of a manifest do not fit together."""
    names: dict[str, str] = {}
    for side, specs in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        for number, spec in enumerate(specs):
            place = f"{side}.{number}.name"
            if spec.name in names:
                what = f"{spec.name!r} is the name of {names[spec.name]}, too; give each its own"
                raise YamlFileError(str(path), lines.get(place, 0), place, what)
            names[spec.name] = f"{side}.{number}"
    for number, edge in enumerate(manifest.expected):
        for end, specs in (("source", manifest.inputs), ("target", manifest.outputs)):
            known = [spec.name for spec in specs]
            name = getattr(edge, end)
            if not any(name == one or name.startswith(f"{one}.") for one in known):
                place = f"expected.{number}.{end}"
                side = "input" if end == "source" else "output"
                what = f"there is no {side} {name!r}; give one of {', '.join(known) or 'none'}"
                raise YamlFileError(str(path), lines.get(place, 0), place, what)
    try:
        arguments = manifest.runtime.arguments
    except ValueError as error:
        place = "runtime.command"
        raise YamlFileError(str(path), lines.get(place, 0), place, f"{error}; close the quotes") from None
    if not arguments:
        place = "runtime.command"
        raise YamlFileError(str(path), lines.get(place, 0), place, "it is empty; give a program")
