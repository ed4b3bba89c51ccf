"""The manifest of a package: how its program is run, and which datasets it reads and writes.

It is a file ``dk.yaml`` or ``waybill-package.yaml`` in the package's folder.
"""

from __future__ import annotations

import difflib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from waybill.transport.config.strict_yaml import StrictLoader
from waybill.transport.decoding import in_plain_words
from waybill.transport.errors import NotFoundError, WaybillError, reason_of
from waybill.transport.tracker.datasets import Dataset, dataset_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST_NAMES: Final = ("dk.yaml", "waybill-package.yaml")
FILE: Final = "file"
"""The namespace of datasets that are files of this machine."""

_BYTES_MAX: Final = 2**20
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PART: Final = re.compile(r"(\d+)([smhd])")
_PLACE: Final = re.compile(r"\[(\d+)\]|\.([^.\[\]`]+)")
_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
_Duration = Annotated[str, msgspec.Meta(pattern=r"^(\d+[smhd] ?)+$")]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Metadata(_Part, frozen=True):
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
    labels: dict[str, str] = {}


class Runtime(_Part, frozen=True):
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
    env: dict[_Text, str] = {}
    reported_env: tuple[_Text, ...] = ()
    timeout: _Duration | Literal[""] = ""
    retries: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    grace: _Duration = "10s"

    @property
    def arguments(self) -> list[str]:
        """The program and its arguments."""
        return shlex.split(self.command) if isinstance(self.command, str) else [*self.command]


class Binding(_Part, frozen=True):
    """The dataset that an input or output is, in OpenLineage's terms."""

    namespace: _Text
    dataset: _Text


class Classification(_Part, frozen=True):
    """How confidential a dataset is."""

    pii: bool = False
    sensitivity: str = ""


class Column(_Part, frozen=True):
    """A column of a dataset."""

    name: _Text
    type: str = ""
    description: str = ""


class DatasetSpec(_Part, frozen=True):
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


class Schedule(_Part, frozen=True):
    """When a package is run, in the form of cron."""

    cron: _Text


class ExpectedEdge(_Part, frozen=True):
    """An edge that runs are expected to show: the names of an input, or of its column, and of an output."""

    source: _Text
    target: _Text


class Objective(_Part, frozen=True):
    """What is promised of a package's outputs.

    Attributes:
        freshness: how old they are at most.
        completeness: which part of what is known of them is told, from 0 to 1.
    """

    freshness: _Duration | Literal[""] = ""
    completeness: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class Manifest(_Part, frozen=True):
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


class ManifestError(WaybillError):
    """A manifest cannot be used.

    Args:
        path: of the manifest.
        line: of what is wrong, from 1; 0: it is the whole file.
        field: its place, such as ``inputs.0.name``; empty: the whole.
        what: the problem and what to do about it.
    """

    def __init__(self, path: str, line: int, field: str, what: str) -> None:
        super().__init__(path, line, field, what)
        self.path = path
        self.line = line
        self.field = field
        self.what = what

    def __str__(self) -> str:
        place = ":".join([self.path, *([str(self.line)] if self.line else [])])
        return f"{place}: {self.field}: {self.what}" if self.field else f"{place}: {self.what}"


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


def read_package(place: Path) -> Package:
    """Read the manifest of a package.

    Args:
        place: its folder, or the manifest.

    Raises:
        NotFoundError: there is no manifest.
        ManifestError: it cannot be read, or is none.
    """
    path = find_manifest(place)
    try:
        content = path.read_bytes()
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(str(path), 0, "", f"it cannot be read: {reason_of(error)}") from None
    if len(content) > _BYTES_MAX:
        raise ManifestError(str(path), 0, "", "it is larger than 1 MB, so it is no manifest")
    value, lines = _parse(path, text)
    try:
        manifest = msgspec.convert(value, Manifest)
    except msgspec.ValidationError as error:
        raise _said(path, error, lines) from None
    _check(path, manifest, lines)
    return Package(path, manifest, lines)


def manifest_schema() -> dict[str, Any]:
    """The JSON Schema of manifests."""
    schema = msgspec.json.schema(Manifest)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def duration_s(text: str) -> float:
    """A duration such as ``1h 30m`` in seconds; 0 of an empty text."""
    return float(sum(int(number) * _UNITS_S[unit] for number, unit in _PART.findall(text)))


def _parse(path: Path, text: str) -> tuple[Any, dict[str, int]]:
    import yaml

    try:
        loader = StrictLoader(text)
        node = loader.get_single_node()
        value = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        what = f"it is not valid YAML: {problem or error}; quote special characters"
        raise ManifestError(str(path), mark.line + 1 if mark else 0, "", what) from None
    return value, dict(_lines_of(node, ""))


def _lines_of(node: Any, place: str) -> Iterator[tuple[str, int]]:  # noqa: ANN401 - yaml has no types
    """The line of each value below a node of YAML; of a value in a mapping, that of its key."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = f"{place}.{key.value}".lstrip(".")
            yield below, key.start_mark.line + 1
            yield from _lines_of(value, below)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            below = f"{place}.{number}".lstrip(".")
            yield below, value.start_mark.line + 1
            yield from _lines_of(value, below)


def _said(path: Path, error: msgspec.ValidationError, lines: dict[str, int]) -> ManifestError:
    """What is wrong with a manifest, with its line."""
    text = str(error)
    what, _, where = text.rpartition(" - at `$")
    parts = [item or key for item, key in _PLACE.findall(where.rstrip("`"))] if what else []
    place = ".".join(parts)
    if unknown := _UNKNOWN.search(text):
        name, near = unknown[1], difflib.get_close_matches(unknown[1], _fields_at(parts), n=1)
        place = f"{place}.{name}".lstrip(".")
        hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(_fields_at(parts))}"
        return ManifestError(str(path), lines.get(place, 0), place, f"there is no such field; {hint}")
    line = next((lines[".".join(parts[:end])] for end in range(len(parts), 0, -1)
                 if ".".join(parts[:end]) in lines), 1)  # fmt: skip
    plain = in_plain_words(msgspec.ValidationError(what or text))
    if "matching regex" in plain:
        plain = "give a duration such as 90s, 30m or 1h 30m"
    return ManifestError(str(path), line, place, plain)


def _fields_at(parts: list[str]) -> list[str]:
    """The fields that there are at a place of a manifest."""
    kind: Any = Manifest
    for part in parts:
        if not part.isdigit():
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            kind = _struct_in(fields[part])
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _struct_in(kind: Any) -> Any:  # noqa: ANN401 - any type goes in
    """The class of manifests' parts that a type holds."""
    from typing import get_args

    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for one in get_args(kind) if (found := _struct_in(one))), None)


def _check(path: Path, manifest: Manifest, lines: dict[str, int]) -> None:
    """Raise a `ManifestError` if parts of a manifest do not fit together."""
    names: dict[str, str] = {}
    for side, specs in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        for number, spec in enumerate(specs):
            place = f"{side}.{number}.name"
            if spec.name in names:
                what = f"{spec.name!r} is the name of {names[spec.name]}, too; give each its own"
                raise ManifestError(str(path), lines.get(place, 0), place, what)
            names[spec.name] = f"{side}.{number}"
    for number, edge in enumerate(manifest.expected):
        for end, specs in (("source", manifest.inputs), ("target", manifest.outputs)):
            known = [spec.name for spec in specs]
            name = getattr(edge, end)
            if not any(name == one or name.startswith(f"{one}.") for one in known):
                place = f"expected.{number}.{end}"
                side = "input" if end == "source" else "output"
                what = f"there is no {side} {name!r}; give one of {', '.join(known) or 'none'}"
                raise ManifestError(str(path), lines.get(place, 0), place, what)
    try:
        arguments = manifest.runtime.arguments
    except ValueError as error:
        place = "runtime.command"
        raise ManifestError(str(path), lines.get(place, 0), place, f"{error}; close the quotes") from None
    if not arguments:
        place = "runtime.command"
        raise ManifestError(str(path), lines.get(place, 0), place, "it is empty; give a program")
