"""The analyzer of SQL texts, as the job facet `sql` has them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from waybill.facets import INFERRED_FACET

from .analyzer import (
    COLUMN_LINEAGE,
    FILE,
    LINEAGE_OF_DATASET,
    WITHIN,
    Catalog,
    Found,
    columns_of,
    datasets_of,
    facet_of,
    inferred,
)

if TYPE_CHECKING:
    from .sql_scopes import Name, Origin, Relation

_Dataset = tuple[str, str]
NOT_KNOWN: Final = "not known"
"""How a column of the facet `columnLineage` is described whose origins nobody can say, or not all of them."""
_SURE: Final = 0.9
_ASSUMED: Final = 0.7
_PATH_FORMATS: Final = {
    "parquet",
    "orc",
    "json",
    "csv",
    "text",
    "avro",
    "delta",
    "iceberg",
    "binaryfile",
    "xml",
}
"""What stands before a path in Spark's SQL."""
_BUCKETS: Final = ("s3", "gs", "gcs", "abfss", "wasbs", "r2")
"""The schemes of object stores whose keys have no leading slash."""
_DIALECTS: Final = {
    "postgresql": "postgres", "pg": "postgres", "cockroachdb": "postgres", "greenplum": "postgres",
    "timescaledb": "postgres", "mssql": "tsql", "sqlserver": "tsql", "synapse": "tsql", "azuresql": "tsql",
    "sparksql": "spark", "pyspark": "spark", "glue": "spark", "awsathena": "athena", "gcp": "bigquery",
    "mariadb": "mysql", "aurora": "mysql", "plsql": "oracle", "prestodb": "presto", "prestosql": "trino",
    "starburst": "trino", "sqlite3": "sqlite", "generic": None, "ansi": None, "sql": None,
}  # fmt: skip
"""What others call a dialect or a database, and sqlglot's name."""


class SqlAnalyzer:
    """Reads the SQL text of a job."""

    name = "sql"
    covers = "the SQL text in the job facet `sql`: tables, columns, and how each column comes from others"
    confidence = _SURE
    facets = ("sql",)

    def analyze(self, event: Found, catalog: Catalog) -> Found | None:
        """Return the tables that the text reads and writes, with the facet `columnLineage`."""
        facet = (event["job"].get("facets") or {}).get("sql") or {}
        if not (text := facet.get("query")):
            return None
        from .reading_sql import read_sql

        tables = _Tables(event, catalog)
        dialect, notes = _dialect_of(facet.get("dialect"), event)
        reading = read_sql(text, dialect, tables.columns)
        if reading.unread and not reading.inputs and not reading.outputs:
            raise ValueError("; ".join(reading.unread))
        outputs, sources = dict(reading.outputs), dict(reading.sources)
        targets = datasets_of(event, "outputs")
        # The query is what the job's one output is made of; in Spark, a program may go on from there.
        is_whole = _integration(event) != "SPARK"
        if not outputs and reading.query is not None and len(targets) == 1 and is_whole:
            target = tables.give(targets[0])
            outputs, sources = {target: reading.query}, {target: reading.inputs}
        notes += [*reading.notes, *tables.unnamed(reading.inputs | outputs.keys())]
        sure = _ASSUMED if notes or reading.unread else _SURE
        told = {
            "inputs": [tables.named(name) for name in sorted(reading.inputs) if tables.find(name)],
            "outputs": [
                {**tables.named(name), "facets": tables.facets(name, relation, sources[name])}
                for name, relation in sorted(outputs.items())
                if tables.find(name) and not _has_engine_lineage(targets, tables.named(name))
            ],
        }
        if not told["inputs"] and not told["outputs"]:
            return None
        stars = [
            f"the columns that a star gives {name[-1]} are not known"
            for name, relation in sorted(outputs.items())
            if relation.other is not None
        ]
        reason = "; ".join(["read from its SQL text", *notes, *stars, *reading.unread])
        return {**told, "job": {"facets": inferred(reason, sure, reading.unread)}}


class _Tables:
    """Which datasets the names in a text are."""

    def __init__(self, event: Found, catalog: Catalog) -> None:
        job = event["job"]
        asked = (job.get("facets") or {}).get(INFERRED_FACET)
        self._is_planned = asked is not None or "://" in job["namespace"]
        self._within = [part for part in ((asked or {}).get(WITHIN) or "").split(".") if part]
        self._namespace = job["namespace"]
        self._columns = dict(catalog)
        self._found: dict[Name, _Dataset | None] = {}
        self._datasets: set[_Dataset] = set()
        named: list[tuple[str, _Dataset]] = []
        for one in datasets_of(event, "inputs", "outputs"):
            dataset = one["namespace"], one["name"]
            self._datasets.add(dataset)
            self._columns[dataset] = columns_of(one, self._columns)
            links = (one["facets"].get("symlinks") or {}).get("identifiers") or ()
            named += [(name, dataset) for name in (one["name"], *(link["name"] for link in links))]
        stores = {self._namespace, *(namespace for namespace, _ in self._datasets)}
        named += [(dataset[1], dataset) for dataset in catalog if dataset[0] in stores]
        self._whole: dict[Name, set[_Dataset]] = {}
        self._ends: dict[Name, set[_Dataset]] = {}
        for name, dataset in named:
            parts = tuple(name.casefold().split("."))
            self._whole.setdefault(parts, set()).add(dataset)
            for at in range(len(parts)):
                self._ends.setdefault(parts[at:], set()).add(dataset)

    def give(self, dataset: Found) -> Name:
        """A name for a dataset that the text does not name."""
        name = ("", dataset["namespace"], dataset["name"])
        self._found[name] = (dataset["namespace"], dataset["name"])
        return name

    def find(self, name: Name) -> _Dataset | None:
        """The dataset; None: it cannot be told which one it is."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: Name) -> _Dataset | None:
        if len(name) == len(("format", "path")) and (
            name[0] == FILE or (name[0].lower() in _PATH_FORMATS and "/" in name[1])
        ):
            return self._at_path(name[1])
        parts = tuple(part.casefold() for part in name)
        # Either may leave out the first parts of what the other says.
        tails = [self._whole.get(parts[at:]) for at in range(1, len(parts))]
        found = next((some for some in (self._whole.get(parts), self._ends.get(parts), *tails) if some), None)
        if found is not None:
            return next(iter(found)) if len(found) == 1 else None  # it has one
        return self._like_others(name)

    def _at_path(self, path: str) -> _Dataset:
        """The files that a text names by a path: as the event names them, else as OpenLineage does."""
        parts = urlsplit(path)
        is_here = parts.scheme in {"", "file"}
        own = parts.path.rstrip("/") or "/"
        own = own.lstrip("/") or "/" if parts.scheme in _BUCKETS else own
        place = ("file" if is_here else f"{parts.scheme}://{parts.netloc}"), own
        return next((one for one in sorted(self._datasets) if _plain(one) == _plain(place)), place)

    def _like_others(self, name: Name) -> _Dataset | None:
        """A dataset that the event does not name: in the same database as those that it names."""
        if not self._datasets:
            missing = self._within[: max(0, len(self._within) + 1 - len(name))]
            return (self._namespace, ".".join((*missing, *name))) if self._is_planned else None
        stores = {namespace for namespace, _ in self._datasets}
        prefixes = {tuple(one.split(".")[: -len(name)]) for _, one in self._datasets}
        if len(stores) > 1 or len(prefixes) > 1 or any("/" in one for _, one in self._datasets):
            return None
        (store,), (prefix,) = stores, prefixes
        return store, ".".join((*prefix, *name))

    def columns(self, name: Name) -> Mapping[str, str] | None:
        """The columns of a table with their types; None: they are not known."""
        dataset = self.find(name)
        return (self._columns.get(dataset) if dataset else None) or None

    def unnamed(self, names: Iterable[Name]) -> list[str]:
        """A note for each table that cannot be told."""
        return [
            f"no dataset is known for the table {'.'.join(name)}"
            for name in sorted(names)
            if self.find(name) is None
        ]

    def named(self, name: Name) -> Found:
        """The dataset of a table that can be told."""
        namespace, dataset = self.find(name) or ("", "")
        return {"namespace": namespace, "name": dataset}

    def facets(self, name: Name, relation: Relation, sources: Iterable[Name]) -> Found:
        """What it is told of a table that is written: where it and its columns come from."""
        facets: Found = {"columnLineage": self._lineage(name, relation)}
        if all(self.find(source) for source in sources):
            inputs = [{**self.named(source), "type": "DATASET"} for source in sorted(sources)]
            facets["lineage"] = facet_of(LINEAGE_OF_DATASET, inputs=inputs)
        return facets

    def _lineage(self, name: Name, relation: Relation) -> Found:
        """The facet `columnLineage` of a table that is written."""
        spelled = {column.casefold(): column for column in self.columns(name) or ()}
        fields = {
            spelled.get(column.casefold(), column): {
                "inputFields": self._fields(origins),
                **({"transformationDescription": NOT_KNOWN} if any(not one.table for one in origins) else {}),
            }
            for column, origins in relation.columns
            if column
        }
        rows = self._fields(relation.rows)
        return facet_of(COLUMN_LINEAGE, fields=fields, **({"dataset": rows} if rows else {}))

    def _fields(self, origins: Iterable[Origin]) -> list[Found]:
        fields: dict[tuple[Name, str], list[Found]] = {}
        for origin in sorted(origins):
            if origin.table and self.find(origin.table) is not None:
                kind = "DIRECT" if origin.is_direct else "INDIRECT"
                how = {"type": kind, "subtype": origin.subtype, "description": "", "masking": origin.masking}
                fields.setdefault((origin.table, origin.column), []).append(how)
        return [
            {**self.named(table), "field": column, "transformations": transformations}
            for (table, column), transformations in fields.items()
        ]


def _plain(dataset: _Dataset) -> _Dataset:
    """A path without what its writers spell in several ways."""
    return dataset[0].replace("s3a:", "s3:").replace("s3n:", "s3:"), dataset[1].strip("/")


def _integration(event: Found) -> str:
    job_type = (event["job"].get("facets") or {}).get("jobType") or {}
    return str(job_type.get("integration")).upper()


def known_dialect(word: str) -> str | None:
    """The name at sqlglot of a dialect that others call otherwise; None: it is none in particular.

    Raises:
        ValueError: nothing is called so.
    """
    from sqlglot.dialects.dialect import Dialects

    known = _DIALECTS | {one.value: one.value for one in Dialects if one.value}
    plain = re.sub(r"[\s_-]", "", word.lower())
    if plain not in known:
        near = difflib.get_close_matches(plain, known, 1)
        raise ValueError(f"the dialect {word!r} is not known{f'; did you mean {near[0]}?' if near else ''}")
    return known[plain]


def _dialect_of(said: object, event: Found) -> tuple[str | None, list[str]]:
    """The dialect of a text, and a note if what its facet says is not known."""
    stores = {one["namespace"].partition(":")[0] for one in datasets_of(event, "inputs", "outputs")}
    integration = "spark" if _integration(event) == "SPARK" else None
    notes = list[str]()
    for name in (said, integration, *sorted(stores), event["job"]["namespace"].partition(":")[0]):
        try:
            if name and (dialect := known_dialect(str(name))):
                return dialect, notes
        except ValueError as error:
            notes += [str(error)] if name is said else []
    return None, notes


def _has_engine_lineage(targets: Iterable[Found], output: Found) -> bool:
    """Whether the engine that ran the text has said how the columns of an output come about."""
    for one in targets:
        if one["namespace"] == output["namespace"] and one["name"] == output["name"]:
            fields = (one["facets"].get("columnLineage") or {}).get("fields") or {}
            used = [field for column in fields.values() for field in column.get("inputFields") or ()]
            return any(field.get("transformations") for field in used)
    return False
