"""YAML files of a known form, of which a mistake is said with its file, line and field."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from waybill.transport.config import find_doubt
from waybill.transport.config.strict_yaml import StrictLoader
from waybill.transport.decoding import in_plain_words
from waybill.transport.errors import WaybillError, reason_of

_BYTES_MAX: Final = 2**20
_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PART: Final = re.compile(r"(\d+)(ms|[smhd])")
_PLACE: Final = re.compile(r"\[(\d+)\]|\.([^.\[\]`]+)")
_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")

_Form = TypeVar("_Form", bound=msgspec.Struct)
Duration = Annotated[
    str, msgspec.Meta(pattern=r"^((\d{1,12}ms|\d{1,9}s|\d{1,7}m|\d{1,5}h|\d{1,4}d) ?){1,5}$")
]
"""A duration such as ``1h 30m`` or ``500ms``, which clocks can count."""


class YamlPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of such a file."""


class YamlFileError(WaybillError):
    """A manifest, or another YAML file of a known form, cannot be used.

    Args:
        path: of the file.
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


def read_yaml(path: Path, form: type[_Form], *, by_group: bool | None = None) -> tuple[_Form, dict[str, int]]:
    """Read a file; returns its value and, by the place of each value, such as ``inputs.0.name``, its line.

    Args:
        path: the file.
        form: its form.
        by_group: whether its group may write it, of a file that is believed; None: it is only looked at.

    Raises:
        YamlFileError: it cannot be read, does not have the form, or others could have written it.
    """
    try:
        if by_group is not None and (doubt := find_doubt(path, by_group=by_group)):
            raise YamlFileError(str(path), 0, "", f"it {doubt}")
        content = path.read_bytes()
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise YamlFileError(str(path), 0, "", f"it cannot be read: {reason_of(error)}") from None
    if len(content) > _BYTES_MAX:
        raise YamlFileError(str(path), 0, "", "it is larger than 1 MB, so it is no such file")
    value, lines = _parse(path, text)
    try:
        return msgspec.convert(value, form), lines
    except msgspec.ValidationError as error:
        raise _said(path, error, lines, form) from None


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
        raise YamlFileError(str(path), mark.line + 1 if mark else 0, "", what) from None
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


def _said(
    path: Path, error: msgspec.ValidationError, lines: dict[str, int], form: type[msgspec.Struct]
) -> YamlFileError:
    """What is wrong with a file, with its line."""
    text = str(error)
    what, _, where = text.rpartition(" - at `$")
    parts = [item or key for item, key in _PLACE.findall(where.rstrip("`"))] if what else []
    place = ".".join(parts)
    if unknown := _UNKNOWN.search(text):
        name, near = unknown[1], difflib.get_close_matches(unknown[1], _fields_at(form, parts), n=1)
        place = f"{place}.{name}".lstrip(".")
        hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(_fields_at(form, parts))}"
        return YamlFileError(str(path), lines.get(place, 0), place, f"there is no such field; {hint}")
    line = next((lines[".".join(parts[:end])] for end in range(len(parts), 0, -1)
                 if ".".join(parts[:end]) in lines), 1)  # fmt: skip
    plain = in_plain_words(msgspec.ValidationError(what or text))
    if "matching regex" in plain:
        plain = "give a duration such as 90s, 30m or 1h 30m, of at most 9999d"
    return YamlFileError(str(path), line, place, plain)


def _fields_at(form: type[msgspec.Struct], parts: list[str]) -> list[str]:
    """The fields that there are at a place of a file."""
    kind: Any = form
    for part in parts:
        if not part.isdigit():
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            kind = _struct_in(fields[part])
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _struct_in(kind: Any) -> Any:  # noqa: ANN401 - any type goes in
    """The class of a file's parts that a type holds."""
    from typing import get_args

    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for one in get_args(kind) if (found := _struct_in(one))), None)
