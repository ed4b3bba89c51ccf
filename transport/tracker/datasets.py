"""The dataset that a sink writes, under the name that OpenLineage gives it, and the dataset's columns.

Names follow https://openlineage.io/spec/naming, as Spark's listener writes them: `/data/lake` is `/data/lake`
in the namespace `file`, and `s3a://bucket/lake` is `lake` in the namespace `s3://bucket`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from ..errors import AdmissionError

FIELDS_MAX: Final = 1_000
SCHEMA_MAX_BYTES: Final = 16 * 1024
"""Each event of the sink carries the schema."""

_BUCKETS: Final = {"s3a": "s3", "s3n": "s3"} | {one: one for one in ("s3", "gs", "abfss", "wasbs")}
"""The schemes of object stores whose keys have no leading slash."""


class _ArrowSchema(Protocol):
    """The used part of a ``pyarrow.Schema``."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def types(self) -> Sequence[object]: ...


class _SparkType(Protocol):
    def jsonValue(self) -> object: ...  # noqa: N802 - Spark's name
    def simpleString(self) -> str: ...  # noqa: N802 - Spark's name


class _SparkField(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def dataType(self) -> _SparkType: ...  # noqa: N802 - Spark's name


class _SparkSchema(Protocol):
    """The used part of a ``pyspark.sql.types.StructType``."""

    @property
    def fields(self) -> Sequence[_SparkField]: ...


DatasetName = tuple[str, str] | str | os.PathLike[str]
"""A dataset's namespace and name; or its path or URI, which gives both."""

DatasetSchema = Mapping[str, str] | _ArrowSchema | _SparkSchema
"""The types of columns by their names; or a ``pyarrow.Schema``, or Spark's ``StructType``."""


class Dataset(NamedTuple):
    """A dataset as OpenLineage names it."""

    namespace: str
    name: str


def dataset_of(given: DatasetName) -> Dataset:
    """The dataset that is meant.

    Raises:
        AdmissionError: the namespace or the name is missing.
    """
    dataset = Dataset("", "")
    if isinstance(given, tuple):
        dataset = Dataset(*given) if len(given) == len(Dataset._fields) else dataset
    elif isinstance(given, str | bytes | os.PathLike):
        text = os.fsdecode(given)
        dataset = _of_uri(text) if "://" in text or text.startswith("file:/") else _of_path(text)
    if not (dataset.namespace and dataset.name):
        raise AdmissionError("dataset", f"is {given!r}", "give a path, a URI, or a namespace and a name")
    return dataset


def _of_path(path: str) -> Dataset:
    # As Spark does, and unlike Path.resolve, without following links.
    return Dataset("file", os.path.abspath(path) if path else "")  # noqa: PTH100


def _of_uri(uri: str) -> Dataset:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return _of_path(unquote(parts.path))
    path = parts.path.rstrip("/")
    bucket = _BUCKETS.get(parts.scheme)
    if bucket is not None:
        return Dataset(f"{bucket}://{parts.netloc}" if parts.netloc else "", path.lstrip("/") or "/")
    return Dataset(f"{parts.scheme}://{parts.netloc}", path or "/")


def columns_of(schema: DatasetSchema) -> list[tuple[str, str]]:
    """The names and types of the columns.

    Raises:
        AdmissionError: they are more than an event may carry.
    """
    if isinstance(schema, Mapping):
        columns = [(str(name), str(kind)) for name, kind in schema.items()]
    elif hasattr(schema, "fields"):
        columns = [(one.name, _spark_type(one.dataType)) for one in schema.fields]
    else:
        columns = list(zip(schema.names, map(str, schema.types), strict=True))
    way_out = "give only the columns that matter"
    if len(columns) > FIELDS_MAX:
        raise AdmissionError("schema", f"has {len(columns):,} columns, more than {FIELDS_MAX:,}", way_out)
    size_bytes = len(msgspec.json.encode(columns))
    if size_bytes > SCHEMA_MAX_BYTES:
        what = f"has {size_bytes:,} bytes, more than {SCHEMA_MAX_BYTES:,}"
        raise AdmissionError("schema", what, way_out)
    return columns


def _spark_type(kind: _SparkType) -> str:
    """A type as Spark's listener writes it: ``long``, where Spark SQL says ``bigint``."""
    name = kind.jsonValue()
    return name if isinstance(name, str) else kind.simpleString()
