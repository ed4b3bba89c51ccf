"""The OpenAPI description of the collector, as JSON values.

The structs of the parameters and the types of the answers say most of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import msgspec

from waybill.facets.context import LINEAGE_PATH
from waybill.facets.record import SentRecord
from waybill.facets.schema_files import read_facet_schemas
from waybill.lineage.graph import QUESTIONS
from waybill.marquez.links import DUPLICATES_PATH, OPEN_PATH, RECORDS_PATH
from waybill.transport import FlushReport
from waybill.transport.journal import FileContent

from .endpoints import BATCH_PATH, MEDIA, PROVENANCE_PATH, SUMMARY_PATH, TRACE_PATH, BatchResult
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
_TEXT: Final = {"type": "string"}
_OBJECT: Final = {"type": "object"}


class _Operation(NamedTuple):
    """What a path does.

    Attributes:
        summary: the same in a few words.
        answer: the type of its answer; a schema where no type says it.
        params: the structs of its parameters.
        refused: the statuses of its problems.
        media: the media type of its answer.
        method: its method.
        status: the status of its answer.
        body: the type or the schema of the body that it takes.
        name: the schema of the name at the end of its path.
        more: further media types of its answer.
        kept: whether its answer acknowledges entries.
        otherwise: another status with an answer of the same type, and when that comes.
    """

    summary: str
    answer: Any = _TEXT
    params: tuple[type[msgspec.Struct], ...] = ()
    refused: tuple[HTTPStatus, ...] = _ASKING_REFUSED
    media: str = JSON
    method: str = "get"
    status: HTTPStatus = HTTPStatus.OK
    body: Any = None
    name: Mapping[str, Any] | None = None
    more: tuple[str, ...] = ()
    kept: bool = False
    otherwise: tuple[HTTPStatus, str] | None = None


def description() -> _Json:
    """The description, as JSON values (OpenAPI 3.1)."""
    operations = _operations()
    types = [one for each in operations.values() for one in (each.answer, each.body)]
    types = [one for one in types if one is not None and not isinstance(one, Mapping)]
    schemas, components = msgspec.json.schema_components(
        [*types, ProblemDetails], ref_template="#/components/schemas/{name}"
    )
    for schema in components.values():
        schema["description"] = schema.get("description", "").partition("\n\n")[0]
    by_type = {repr(kind): schema for kind, schema in zip(types, schemas, strict=False)}
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
            path: {operation.method: _described(path, operation, by_type)}
            for path, operation in operations.items()
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {**components, "Event": _EVENT},
            "responses": {
                "Problem": {
                    "description": "The problem, and what to do about it (RFC 9457).",
                    "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
                }
            },
        },
    }


def _operations() -> dict[str, _Operation]:
    """What each path does."""
    from waybill.exporter.query import Stats, Sum
    from waybill.lineage import ToldJourney
    from waybill.lineage.answers import ReceiptStatus

    from .endpoints import (
        DeltaFiRecord,
        DeltaFiStats,
        DeltaFiSum,
        Readiness,
        Taken,
        ToldOpenFile,
        ToldRecord,
        Where,
    )
    from .endpoints.query_params import Filters, Page, Partial, Summary, Sums, Trace
    from .page import LevelsOverTime

    accepted = HTTPStatus.ACCEPTED
    events = {"type": "array", "items": _EVENT_REF}
    number = {"type": "string", "pattern": "^[0-9a-z]{1,12}$"}
    return {
        LINEAGE_PATH: _taking("Store one event", _EVENT_REF, None, HTTPStatus.CREATED),
        BATCH_PATH: _taking("Store several events, each independently", events, BatchResult, HTTPStatus.OK),
        PROVENANCE_PATH: _taking(
            "Store several records, each independently", list[SentRecord], Taken, accepted
        ),
        f"{PROVENANCE_PATH}/query": _Operation(
            "List records, newest first, in DeltaFi's format", list[DeltaFiRecord] | None, (Filters, Page)
        ),
        f"{PROVENANCE_PATH}/stats": _Operation(
            "Count records by kind, in DeltaFi's format", DeltaFiStats | list[DeltaFiSum], (Filters, Sums)
        ),
        f"{PROVENANCE_PATH}/flush": _Operation(
            "Flush: run every projection over all entries now",
            FlushReport,
            refused=(*_REFUSED, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
            method="post",
            body=_OBJECT,  # only its media type matters, without a key
        ),
        RECORDS_PATH: _Operation("List records, newest first", list[ToldRecord], (Filters, Page)),
        f"{RECORDS_PATH}/stats": _Operation("Count records by kind", Stats | list[Sum], (Filters, Sums)),
        OPEN_PATH: _Operation(
            "List the files that have begun and not ended", list[ToldOpenFile], (Filters, Partial)
        ),
        DUPLICATES_PATH: _Operation(
            "List the files that have the same content as another one, by content", list[list[FileContent]]
        ),
        **{one.path: _Operation(one.summary, one.answer, (one,)) for one in QUESTIONS},
        SUMMARY_PATH: _Operation(
            "List all records of the files that a summary in Marquez stands for, each a line of JSON",
            params=(Summary,),
            media=NDJSON,
            name=number,
            more=("text/plain",),  # a browser shows this, but would save the other
        ),
        TRACE_PATH: _Operation(
            "Show the journey of a file: all files that it came from, and all that came from it",
            ToldJourney,
            (Trace,),
            (*_ASKING_REFUSED, HTTPStatus.GONE),
            name={"type": "string", "minLength": 1},
            more=tuple(MEDIA.values())[1:],
        ),
        "/slis": _Operation(
            "Show the service levels of lineage, as they were recorded last",
            LevelsOverTime,
            refused=(*_REFUSED, HTTPStatus.SERVICE_UNAVAILABLE),
        ),
        "/health/live": _Operation("Check that the collector is alive", _OBJECT, refused=()),
        "/health/ready": _Operation(
            "Check that events sent now can be stored",
            Readiness,
            refused=(),
            otherwise=(HTTPStatus.SERVICE_UNAVAILABLE, "It cannot."),
        ),
        "/metrics": _Operation("Metrics for Prometheus", refused=_REFUSED, media="text/plain"),
        "/where": _Operation(
            "Show the state of an entry",
            ReceiptStatus,
            (Where,),
            (HTTPStatus.BAD_REQUEST, *_REFUSED, HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE),
        ),
        "/openapi.json": _Operation("This description", _OBJECT, refused=()),
        "/docs": _Operation("This description as a web page", refused=(), media="text/html"),
        SCHEMA_PATH: _Operation(
            "The JSON Schema of one of Waybill's facets, by its name or by a `_schemaURL`",
            _OBJECT,
            refused=(HTTPStatus.NOT_FOUND,),
            media=SCHEMA_JSON,
            name={"type": "string", "enum": list(read_facet_schemas())},
        ),
    }


def _taking(summary: str, body: object, answer: object, status: HTTPStatus) -> _Operation:
    return _Operation(
        summary, answer, refused=_BODY_REFUSED, method="post", status=status, body=body, kept=True
    )


def _described(path: str, operation: _Operation, by_type: Mapping[str, _Json]) -> _Json:
    def schema_of(one: object) -> Mapping[str, Any]:
        return by_type[repr(one)] if not isinstance(one, Mapping) else one

    answer: _Json = {"description": operation.summary}
    if operation.kept:
        receipt = {
            "description": "Journal and sequence number; absent if nothing was stored.",
            "schema": _TEXT,
        }
        answer = {"description": "The event is durable.", "headers": {"Waybill-Receipt": receipt}}
    if operation.answer is not None:
        answer["content"] = {operation.media: {"schema": schema_of(operation.answer)}}
        answer["content"] |= {media: {"schema": _TEXT} for media in operation.more}
    responses: _Json = {str(operation.status.value): answer, **_problems(operation.refused)}
    if operation.otherwise is not None:
        status, when = operation.otherwise
        responses[str(status.value)] = answer | {"description": when}
    said: _Json = {"summary": operation.summary, "responses": responses}
    if operation.method == "get":
        said["parameters"] = list(_parameters(path, operation))
    if operation.body is not None:
        is_needed = operation.body is not _OBJECT
        said["requestBody"] = {
            "required": is_needed,
            "content": {JSON: {"schema": schema_of(operation.body)}},
        }
    return said


def _parameters(path: str, operation: _Operation) -> Iterator[_Json]:
    if operation.name is not None:
        name = path.partition("{")[2].rstrip("}")
        yield {"name": name, "in": "path", "required": True, "schema": operation.name}
    for kind in operation.params:
        _, components = msgspec.json.schema_components([kind])
        fields = components[kind.__name__]
        for name, schema in fields["properties"].items():
            if schema.get("default") in {"", None}:
                schema.pop("default", None)
            if "$ref" in (items := schema.get("items", {})):
                schema["items"] = {
                    "type": "string",
                    "enum": components[items["$ref"].rpartition("/")[2]]["enum"],
                }
            required = name in fields.get("required", ())
            yield {"name": name, "in": "query", "required": required, "schema": schema}


def _problems(statuses: Iterable[HTTPStatus]) -> _Json:
    # A server that only this machine can reach refuses other host names with 403, whoever the client is.
    problem = {"$ref": "#/components/responses/Problem"}
    return {str(status.value): problem for status in sorted({*statuses, HTTPStatus.FORBIDDEN})}


_NAMED: Final = {"type": "object", "required": ["namespace", "name"]}
_EVENT_REF: Final = {"$ref": "#/components/schemas/Event"}
_EVENT: Final = {
    "type": "object",
    "description": "A RunEvent, JobEvent or DatasetEvent of OpenLineage 2-0-2.",
    "required": ["eventTime", "producer"],
    "properties": {
        "eventTime": {"type": "string", "format": "date-time"},
        "job": _NAMED,
        "dataset": _NAMED,
    },
}
