"""Analyzers: each reads one event of a job and says what else it tells of datasets and columns.

Packages register theirs in the entry-point group ``waybill.analyzers``: a name and a class, or any callable
without arguments, that gives an `Analyzer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

import msgspec

from waybill.facets import INFERRED_FACET, PRODUCER
from waybill.facets.event import facet_schema_url
from waybill.transport.counting import counted

log = logging.getLogger("waybill.runner")

ANALYZERS_GROUP: Final = "waybill.analyzers"
CONFIDENCE: Final = "confidence"
UNREAD: Final = "unread"
WITHIN: Final = "within"
"""In a question, beside why a job is inferred: the database and schema of the tables that its text names."""

FILE: Final = "'"
"""The first part of a name in SQL that files have, and no table can; the second is their path or URI."""

COLUMN_LINEAGE: Final = "1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet"
LINEAGE_OF_DATASET: Final = "1-0-0/LineageFacet.json#/$defs/LineageDatasetFacet"
LINEAGE_OF_JOB: Final = "1-0-0/LineageFacet.json#/$defs/LineageJobFacet"
SQL: Final = "1-1-0/SQLJobFacet.json#/$defs/SQLJobFacet"
"""The schemas of OpenLineage's facets, for `facet_of`."""

Found = dict[str, Any]
"""An OpenLineage event as JSON has it."""
Catalog = Mapping[tuple[str, str], Mapping[str, str]]
"""The columns of datasets with their types, by namespace and name."""


class Analyzer(Protocol):
    """Reads what an event of a job says of datasets and columns beside its own inputs and outputs.

    Attributes:
        name: what answers call it.
        covers: what it reads, in one sentence.
        confidence: how sure it is, from 0 to 1; the facet of `inferred` may say less for one event.
        facets: the keys of the facets that it reads; an event without any of these tells it nothing. An
            analyzer without this attribute reads every event.
    """

    name: str
    covers: str
    confidence: float

    def analyze(self, event: Found, catalog: Catalog) -> Found | None:
        """Return a job event whose inputs, outputs and facets are what it found; None: nothing.

        Only the keys that it found need be there. The event itself must not be changed.
        """


class Finding(msgspec.Struct, frozen=True):
    """What one analyzer said of one event.

    Attributes:
        analyzer: its name.
        confidence: how sure it is, from 0 to 1.
        event: the job event that it found, as JSON; empty if there is a problem.
        problem: why it could not read the event; None if it could.
        cut: what was left out of that, since it is more than is kept; None if it is whole.
    """

    analyzer: str
    confidence: float
    event: bytes = b""
    problem: str | None = None
    cut: str | None = None


def facet_of(schema: str, **content: object) -> Found:
    """A facet of OpenLineage's."""
    url = f"https://openlineage.io/spec/facets/{schema}"
    return {"_producer": PRODUCER, "_schemaURL": url, **content}


def inferred(reason: str, confidence: float | None = None, unread: Iterable[str] = ()) -> Found:
    """The job facets that say how sure a finding is, why, and in sentences what was not read."""
    told = {"reason": reason, CONFIDENCE: confidence, UNREAD: [*unread]}
    known = {key: one for key, one in told.items() if one is not None and one != []}
    return {INFERRED_FACET: {"_producer": PRODUCER, "_schemaURL": _FACET_URL, **known}}


def unread_of(found: Found) -> list[str]:
    """What was not read of the text of a job that was found, in sentences."""
    return [*found["job"]["facets"].get(INFERRED_FACET, {}).get(UNREAD, ())]


def reason_of(found: Found) -> str:
    """Why a job event is inferred, as the analyzer that found it says; empty if it does not."""
    return str(found["job"]["facets"].get(INFERRED_FACET, {}).get("reason", ""))


def ask_about(job: str, sql: str, dialect: str | None, namespace: str, within: str = "") -> Found:
    """The event of a job of which only its SQL text is known.

    Args:
        job: its name.
        sql: the text.
        dialect: its dialect; None: none in particular.
        namespace: that of the tables and of the job.
        within: the database and schema of a table that the text names without them, with a dot between them.
    """
    facets = {"sql": {"query": sql, "dialect": dialect}, INFERRED_FACET: {"reason": "asked", WITHIN: within}}
    return {"job": {"namespace": namespace, "name": job, "facets": facets}}


def as_job_event(found: Found, time: str) -> Found:
    """A job event that may be sent, of what was found; its time is ISO 8601."""
    head = {"eventTime": time, "producer": PRODUCER, "schemaURL": _EVENT_URL}
    return {**head, "inputs": [], "outputs": [], **found}


def load_analyzers() -> tuple[list[Analyzer], dict[str, str]]:
    """Load every analyzer, the surest first; and by name, why others cannot be loaded."""
    loaded: list[Analyzer] = []
    problems: dict[str, str] = {}
    for point in sorted(entry_points(group=ANALYZERS_GROUP), key=lambda point: point.name):
        try:
            make: Callable[[], Analyzer] = point.load()
            analyzer = make()
            _ = (analyzer.name, analyzer.covers, float(analyzer.confidence), analyzer.analyze)
        except Exception as error:  # must not stop the others
            log.exception("analyzer %s cannot be loaded", point.name)
            problems[point.name] = f"{point.value} cannot be loaded: {error}"
        else:
            loaded.append(analyzer)
    return sorted(loaded, key=lambda one: -one.confidence), problems


def list_facets(analyzers: Iterable[Analyzer]) -> tuple[str, ...] | None:
    """The keys of the facets that some analyzers read; None: one of them reads every event."""
    told: set[str] = set()
    for one in analyzers:
        keys: tuple[str, ...] | None = getattr(one, "facets", None)
        if keys is None:
            return None
        told.update(keys)
    return tuple(sorted(told))


def analyze_event(event: Found, catalog: Catalog, analyzers: Iterable[Analyzer]) -> list[Finding]:
    """Have analyzers read an event; each also sees the column lineage that a surer one found."""
    findings: list[Finding] = []
    for analyzer in analyzers:
        confidence = float(analyzer.confidence)
        try:
            found = analyzer.analyze(event, catalog)
            if found is None:
                continue
            found = msgspec.json.decode(msgspec.json.encode(found))  # the analyzer may keep its own
            cut = _bound(found)
            facets = found.get("job", {}).get("facets", {})
            told = facets.get(INFERRED_FACET, {})
            sure = told.get(CONFIDENCE, confidence)
            if cut is not None:
                unread = [*told.get(UNREAD, ()), cut]
                facets = {**facets, **inferred(told.get("reason", ""), float(sure), unread)}
            named = {key: event["job"][key] for key in ("namespace", "name")}
            body = msgspec.json.encode({**found, "job": {**named, "facets": facets}})
            if len(body) > _FOUND_BYTES_MAX:
                problem = f"what it found has {len(body):,} bytes, more than {_FOUND_BYTES_MAX:,}"
                findings.append(Finding(analyzer.name, confidence, problem=problem))
                continue
            findings.append(Finding(analyzer.name, float(sure), body, cut=cut))
            event = _with_columns(event, found)
        except Exception as error:  # noqa: BLE001 - another's code, and texts of any kind
            reason = f"{type(error).__name__}: {str(error)[:_PROBLEM_CHARS_MAX]}"
            findings.append(Finding(analyzer.name, confidence, problem=reason))
    return findings


def datasets_of(event: Found, *keys: str) -> list[Found]:
    """The datasets of an event under `inputs` or `outputs` that have a name, each with its facets."""
    return [
        {**one, "facets": one.get("facets") or {}}
        for key in keys
        for one in event.get(key) or ()
        if isinstance(one.get("namespace"), str) and isinstance(one.get("name"), str)
    ]


def named_in(dataset: Found) -> Found:
    """The namespace and the name of a dataset, without what else is said of it."""
    return {"namespace": dataset["namespace"], "name": dataset["name"]}


def columns_of(dataset: Found, catalog: Catalog) -> Mapping[str, str]:
    """The columns of a dataset with their types: as its facet `schema` has them, else as the catalog does."""
    fields = (dataset["facets"].get("schema") or {}).get("fields") or ()
    told = {field["name"]: str(field.get("type") or "") for field in fields}
    return told or catalog.get((dataset["namespace"], dataset["name"]), {})


def _bound(found: Found) -> str | None:
    """Leave at most `_ORIGINS_MAX` origins of columns in what was found; returns what was left out.

    A column of which not all fit has none, so that no answer shows a part as the whole.
    """
    left, cut = _ORIGINS_MAX, 0
    for output in found.get("outputs") or ():
        fields = ((output.get("facets") or {}).get("columnLineage") or {}).get("fields") or {}
        for column, told in [*fields.items()]:
            if (count := len(told.get("inputFields") or ())) > left:
                cut += 1
                del fields[column]
            else:
                left -= count
    if not cut:
        return None
    said = f"what {counted(cut, 'column comes', 'columns come')} from is left out"
    return f"{said}, since there are more than {_ORIGINS_MAX:,} origins"


def _with_columns(event: Found, found: Found) -> Found:
    told = {
        (one["namespace"], one["name"]): one["facets"]["columnLineage"]
        for one in datasets_of(found, "outputs")
        if "columnLineage" in one["facets"]
    }
    outputs = [
        {**one, "facets": {"columnLineage": told.get((one["namespace"], one["name"])), **one["facets"]}}
        if (one["namespace"], one["name"]) in told
        else one
        for one in datasets_of(event, "outputs")
    ]
    return {**event, "outputs": outputs}


_EVENT_URL: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
_FACET_URL: Final = facet_schema_url("WaybillInferredJobFacet")
_PROBLEM_CHARS_MAX: Final = 500
_ORIGINS_MAX: Final = 10_000
"""So many origins of columns are kept of what an analyzer found in one event."""
_FOUND_BYTES_MAX: Final = 8 * 2**20
"""With more, nothing of it is kept."""
