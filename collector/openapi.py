"""The OpenAPI description of the collector, as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

import msgspec

from waybill.exporter.query import CONDITIONS, Condition, ConditionKind
from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.record import SentRecord
from waybill.facets.schema_files import read_facet_schemas
from waybill.lineage.graph import QUESTIONS, Question
from waybill.marquez.links import DUPLICATES_PATH, OPEN_PATH, RECORDS_PATH
from waybill.transport import FlushReport
from waybill.transport.config import MARQUEZ
from waybill.transport.journal import RECEIPT_PATTERN, FileContent

from .endpoints import BATCH_PATH, LINEAGE_PATH, MEDIA, PROVENANCE_PATH, SUMMARY_PATH, TRACE_PATH, BatchResult
from .http import JSON, NDJSON, PROBLEM_JSON, ProblemDetails

SCHEMA_JSON: Final = "application/schema+json"
SCHEMA_PATH: Final = "/schemas/{name}"

_KEY: Final[list[dict[str, list[str]]]] = [{"key": []}, {}]
_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_BODY_REFUSED: Final = (
    HTTPStatus.BAD_REQUEST,
    *_REFUSED,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_ASKING_REFUSED: Final = (
    HTTPStatus.BAD_REQUEST,
    *_REFUSED,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.SERVICE_UNAVAILABLE,
)

_Json = dict[str, Any]


def description() -> _Json:
    """The description, as JSON values (OpenAPI 3.1)."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Waybill collector",
            "version": version("waybill-lineage"),
            "description": "Accepts OpenLineage events and DeltaFi's records; every acknowledged one is "
            "durable.",
        },
        "security": _KEY,
        "paths": {
            LINEAGE_PATH: {"post": _taking("Store one event", _ref("Event"), "201", None)},
            BATCH_PATH: {
                "post": _taking(
                    "Store several events, each independently", _array("Event"), "200", _ref("BatchResult")
                )
            },
            PROVENANCE_PATH: {
                "post": _taking(
                    "Store several records, each independently", _array("SentRecord"), "202", _ref("Taken")
                )
            },
            f"{PROVENANCE_PATH}/query": _listing(
                ", in DeltaFi's format", _array("DeltaFiRecord") | {"type": ["array", "null"]}
            ),
            f"{PROVENANCE_PATH}/stats": _counting(", in DeltaFi's format", "DeltaFiStats", "DeltaFiSum"),
            f"{PROVENANCE_PATH}/flush": {"post": _flushing()},
            RECORDS_PATH: _listing("", _array("ProvenanceRecord")),
            f"{RECORDS_PATH}/stats": _counting("", "Stats", "Sum"),
            OPEN_PATH: {
                "get": _asking(
                    "List the files that have begun and not ended",
                    _array("OpenFile"),
                    _FILTERS,
                    _ASKING_REFUSED,
                )
            },
            DUPLICATES_PATH: {
                "get": _asking(
                    "List the files that have the same content as another one, by content",
                    {"type": "array", "items": _array("FileContent")},
                    [],
                    _ASKING_REFUSED,
                )
            },
            **{one.path: {"get": _questioned(one)} for one in QUESTIONS},
            SUMMARY_PATH: {"get": _summarized()},
            TRACE_PATH: {"get": _traced()},
            "/health/live": {"get": _asking("Check that the collector is alive", {"type": "object"}, [], ())},
            "/health/ready": {"get": _ready()},
            "/metrics": {"get": _asking("Metrics for Prometheus", _TEXT, [], _REFUSED, media="text/plain")},
            "/where": {
                "get": _asking(
                    "Show the state of an entry",
                    _ref("ReceiptStatus"),
                    [_parameter("receipt", {"type": "string", "pattern": RECEIPT_PATTERN}, required=True)],
                    (HTTPStatus.BAD_REQUEST, *_REFUSED, HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE),
                )
            },
            "/openapi.json": {"get": _asking("This description", {"type": "object"}, [], ())},
            "/docs": {"get": _asking("This description as a web page", _TEXT, [], (), media="text/html")},
            SCHEMA_PATH: {"get": _facet_schema()},
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {**_answers(), **_SCHEMAS},
            "responses": {
                "Problem": {
                    "description": "The problem, and what to do about it (RFC 9457).",
                    "content": {PROBLEM_JSON: {"schema": _ref("ProblemDetails")}},
                }
            },
        },
    }


def _answers() -> _Json:
    """The schemas of bodies, generated from their types."""
    from waybill.exporter.query import Stats, Sum
    from waybill.lineage import OpenFile, ToldJourney
    from waybill.lineage.answers import ReceiptStatus

    from .endpoints import DeltaFiRecord, DeltaFiStats, DeltaFiSum, Readiness, Taken

    types = (
        *(BatchResult, Taken, Stats, Sum, Readiness, ReceiptStatus, ProvenanceRecord, FlushReport),
        *(
            DeltaFiRecord,
            DeltaFiStats,
            DeltaFiSum,
            ToldJourney,
            OpenFile,
            FileContent,
            *(one.answer for one in QUESTIONS),
            SentRecord,
            ProblemDetails,
        ),
    )
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for schema in schemas.values():
        schema["description"] = schema.get("description", "").partition("\n\n")[0]
    return schemas


def _ref(name: str) -> _Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(name: str) -> _Json:
    return {"type": "array", "items": _ref(name)}


def _problems(statuses: Iterable[HTTPStatus]) -> _Json:
    # A server that only this machine can reach refuses other host names with 403, whoever the client is.
    problem = {"$ref": "#/components/responses/Problem"}
    return {str(status.value): problem for status in sorted({*statuses, HTTPStatus.FORBIDDEN})}


def _taking(summary: str, schema: _Json, status: str, answer: _Json | None) -> _Json:
    header = {"description": "Journal and sequence number; absent if nothing was stored.", "schema": _TEXT}
    kept: _Json = {"description": "The event is durable.", "headers": {"Waybill-Receipt": header}}
    if answer is not None:
        kept["content"] = {JSON: {"schema": answer}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {JSON: {"schema": schema}}},
        "responses": {status: kept, **_problems(_BODY_REFUSED)},
    }


def _asking(
    summary: str, schema: _Json, parameters: list[_Json], refused: Iterable[HTTPStatus], media: str = JSON
) -> _Json:
    return {
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": summary, "content": {media: {"schema": schema}}},
            **_problems(refused),
        },
    }


def _listing(how: str, schema: _Json) -> _Json:
    summary = f"List records, newest first{how}"
    return {"get": _asking(summary, schema, [*_FILTERS, *_PAGE], _ASKING_REFUSED)}


def _counting(how: str, stats: str, by_kind: str) -> _Json:
    schema = {"anyOf": [_ref(stats), _array(by_kind)]}
    return {"get": _asking(f"Count records by kind{how}", schema, [*_FILTERS, _by()], _ASKING_REFUSED)}


def _questioned(question: type[Question[Any]]) -> _Json:
    _, schemas = msgspec.json.schema_components([question])
    fields = schemas[question.__name__]
    parameters = [
        _parameter(name, schema, required=name in fields["required"])
        for name, schema in fields["properties"].items()
    ]
    return _asking(question.summary, _ref(question.answer.__name__), parameters, _ASKING_REFUSED)


def _summarized() -> _Json:
    summary = "List all records of the files that a summary in Marquez stands for, each a line of JSON"
    number = {"type": "string", "pattern": "^[0-9a-z]{1,12}$"}
    parameters = [
        {"name": "number", "in": "path", "required": True, "schema": number},
        _parameter("backend", {"type": "string", "default": MARQUEZ}),
    ]
    refused = _ASKING_REFUSED
    asking = _asking(summary, _TEXT, parameters, refused, media=NDJSON)
    # A browser shows this, but would save the other.
    asking["responses"]["200"]["content"]["text/plain"] = {"schema": _TEXT}
    return asking


def _traced() -> _Json:
    summary = "Show the journey of a file: all files that it came from, and all that came from it"
    parameters = [
        {"name": "did", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
        _parameter("up", _FLAG | {"description": "Follow the files that it came from; default: not `down`."}),
        _parameter("down", _FLAG | {"description": "Follow the files that came from it; default: not `up`."}),
        _parameter(
            "depth", {"type": "integer", "minimum": 0, "description": "So many generations each way."}
        ),
        _AS_OF,
        _parameter("format", {"type": "string", "enum": list(MEDIA), "description": "Default: as `Accept`."}),
        _parameter("unfold", _FLAG | {"description": "Draw each file of a wide split, up to 2,000."}),
        _parameter("partial", _FLAG | {"default": False}),
    ]
    refused = (*_ASKING_REFUSED, HTTPStatus.GONE)
    asking = _asking(summary, _ref("ToldJourney"), parameters, refused)
    asking["responses"]["200"]["content"] |= {media: {"schema": _TEXT} for media in list(MEDIA.values())[1:]}
    return asking


def _flushing() -> _Json:
    refused = (*_REFUSED, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    flushing = _asking("Flush: run every projection over all entries now", _ref("FlushReport"), [], refused)
    # Only its media type matters, without a key.
    return flushing | {"requestBody": {"required": False, "content": {JSON: {"schema": {"type": "object"}}}}}


def _ready() -> _Json:
    ready = _asking("Check that events sent now can be stored", _ref("Readiness"), [], ())
    ready["responses"]["503"] = {**ready["responses"]["200"], "description": "It cannot."}
    return ready


def _facet_schema() -> _Json:
    summary = "The JSON Schema of one of Waybill's facets, by its name or by a `_schemaURL`"
    name = {"type": "string", "enum": list(read_facet_schemas())}
    parameters: list[_Json] = [{"name": "name", "in": "path", "required": True, "schema": name}]
    return _asking(summary, {"type": "object"}, parameters, (HTTPStatus.NOT_FOUND,), media=SCHEMA_JSON)


def _parameter(name: str, schema: _Json, *, required: bool = False) -> _Json:
    return {"name": name, "in": "query", "required": required, "schema": schema}


def _by() -> _Json:
    """What to count by: several dimensions, with commas."""
    from waybill.exporter.query import Dimension

    dimensions = {"type": "array", "items": {"type": "string", "enum": list(Dimension)}, "minItems": 1}
    said = {"description": "Count by these, one or several with commas; default: by each of the first three."}
    return _parameter("by", dimensions | said) | {"style": "form", "explode": False}


def _some(schema: _Json) -> _Json:
    """Several values, each in a parameter of its own."""
    return {"type": "array", "items": schema, "maxItems": 20}


_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}
_EPOCH_MS: Final = {"type": "integer", "minimum": 0}
_VALUES: Final[dict[ConditionKind, _Json]] = {
    ConditionKind.TEXT: _TEXT,
    ConditionKind.TEXTS: _some(_TEXT),
    ConditionKind.STATES: _some({"type": "string", "enum": list(FinalState)}),
    ConditionKind.PAIRS: _some({"type": "string", "pattern": "^[^=]+="}),
    ConditionKind.INSTANT: _EPOCH_MS,
    ConditionKind.UNTIL: _EPOCH_MS,
    ConditionKind.IS_ABSENT: _FLAG,
}
_MORE: Final = {
    ConditionKind.PAIRS: "; `key=value`",
    ConditionKind.INSTANT: "; epoch milliseconds",
    ConditionKind.UNTIL: ", or at it; epoch milliseconds",
    ConditionKind.IS_ABSENT: "; with `false`, the others",
}


def _parameters_of(condition: Condition) -> Iterator[_Json]:
    """The parameters of a condition: its own, and DeltaFi's where they have other names."""
    said = f"{condition.help.removesuffix('.')}{_MORE.get(condition.kind, '')}."
    yield _parameter(condition.parameter, _VALUES[condition.kind] | {"description": said})
    for name, what in zip(condition.deltafi, ("key", "value"), strict=False):
        if name != condition.parameter:
            yield _parameter(name, _TEXT | {"description": f"The {what} of one `{condition.parameter}`."})


_AS_OF: Final = _parameter("as_of", _EPOCH_MS | {"description": "As known then; epoch milliseconds."})
_FILTERS: Final = [
    *(parameter for condition in CONDITIONS for parameter in _parameters_of(condition)),
    _parameter("partial", {"type": "boolean", "default": False}),
]
_PAGE: Final = [
    _parameter("limit", {"type": "integer", "minimum": 1, "default": 100}),
    _parameter("offset", {"type": "integer", "minimum": 0, "default": 0}),
    _parameter("order", {"type": "string", "enum": ["newest", "oldest"], "default": "newest"}),
    _parameter("after", _TEXT),
]
_NAMED: Final = {"type": "object", "required": ["namespace", "name"]}
_SCHEMAS: Final = {
    "Event": {
        "type": "object",
        "description": "A RunEvent, JobEvent or DatasetEvent of OpenLineage 2-0-2.",
        "required": ["eventTime", "producer"],
        "properties": {
            "eventTime": {"type": "string", "format": "date-time"},
            "job": _NAMED,
            "dataset": _NAMED,
        },
    },
}
