"""The OpenAPI description of the collector, made beside the routes that it describes."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from waybill.collector.lineage import BATCH_PATH, LINEAGE_PATH
from waybill.collector.problem import PROBLEM_JSON
from waybill.collector.provenance import PROVENANCE_PATH
from waybill.facets import FinalState

_PROBLEM: Final = {"$ref": "#/components/responses/Problem"}
_KEY: Final[list[dict[str, list[str]]]] = [{"key": []}, {}]


def description() -> dict[str, Any]:
    """The description, as JSON values (OpenAPI 3.1)."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Waybill collector",
            "version": version("waybill-lineage"),
            "description": "Takes OpenLineage events and DeltaFi's records; what is acknowledged is durable.",
        },
        "security": _KEY,
        "paths": {
            LINEAGE_PATH: {
                "post": _taking("Keep one event", _ref("Event"), {"201": "It is durable."}),
            },
            BATCH_PATH: {
                "post": _taking(
                    "Keep events, each for itself", _array("Event"), {"200": "How many were kept."}
                ),
            },
            PROVENANCE_PATH: {
                "post": _taking(
                    "Keep records, each for itself", _array("Record"), {"202": "The good ones are durable."}
                ),
            },
            f"{PROVENANCE_PATH}/query": {
                "get": _asking("Records, newest first", _array("ShownRecord"), [*_FILTERS, *_PAGE])
            },
            f"{PROVENANCE_PATH}/stats": {
                "get": _asking("How many records, of which kinds", {"type": "object"}, _FILTERS_OF_STATS)
            },
            f"{PROVENANCE_PATH}/flush": {
                "post": _asking("Put all through every projection, now", {"type": "object"}, [])
            },
            "/health/live": {"get": _asking("Is it alive", {"type": "object"}, [])},
            "/health/ready": {"get": _asking("Can it keep what is sent now", {"type": "object"}, [])},
            "/metrics": {
                "get": _asking("Figures for Prometheus", {"type": "string"}, [], media="text/plain")
            },
            "/where": {
                "get": _asking("What became of an entry", {"type": "object"}, [_parameter("receipt", _TEXT)])
            },
            "/openapi.json": {"get": _asking("This description", {"type": "object"}, [])},
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": _SCHEMAS,
            "responses": {
                "Problem": {
                    "description": "What is wrong and what to do (RFC 9457).",
                    "content": {PROBLEM_JSON: {"schema": _ref("Problem")}},
                }
            },
        },
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(name)}


def _taking(summary: str, schema: dict[str, Any], good: dict[str, str]) -> dict[str, Any]:
    header = {"Waybill-Receipt": {"description": "Node and sequence number.", "schema": {"type": "string"}}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            **{status: {"description": says, "headers": header} for status, says in good.items()},
            "default": _PROBLEM,
        },
    }


def _asking(
    summary: str, schema: dict[str, Any], parameters: list[dict[str, Any]], media: str = "application/json"
) -> dict[str, Any]:
    content = {media: {"schema": schema}}
    return {
        "summary": summary,
        "parameters": parameters,
        "responses": {"200": {"description": summary, "content": content}, "default": _PROBLEM},
    }


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


_TEXT: Final = {"type": "string"}
_INSTANT: Final = {"type": "integer", "minimum": 1, "description": "Epoch milliseconds."}
_FILTERS_OF_STATS: Final = [
    _parameter(name, _TEXT)
    for name in (
        "did",
        "parent_did",
        "data_source",
        "data_sink",
        "filename",
        "annotation_key",
        "annotation_value",
    )
]
_STATE: Final = {"type": "string", "enum": list(FinalState)}
_FILTERS: Final = [
    *_FILTERS_OF_STATS,
    _parameter("system_name", _TEXT),
    _parameter("final_state", _STATE),
    _parameter("from", {"type": "integer", "minimum": 0}),
    _parameter("to", {"type": "integer", "minimum": 0}),
]
_PAGE: Final = [
    _parameter("limit", {"type": "integer", "minimum": 1, "default": 100}),
    _parameter("offset", {"type": "integer", "minimum": 0, "default": 0}),
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
    "Record": {
        "type": "object",
        "required": ["did", "finalState", "created", "completed"],
        "properties": {
            "did": {"type": "string", "minLength": 1},
            "parentDid": {"type": ["string", "null"]},
            "systemName": {"type": ["string", "null"]},
            "dataSource": {"type": ["string", "null"]},
            "filename": {"type": ["string", "null"]},
            "transforms": {"type": ["array", "null"], "items": _TEXT},
            "dataSink": {"type": ["string", "null"]},
            "finalState": _STATE,
            "created": _INSTANT,
            "completed": _INSTANT,
            "annotations": {"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}},
        },
    },
    "ShownRecord": {
        "type": "object",
        "required": ["did", "system_name", "final_state", "created", "completed"],
        "properties": {"did": _TEXT, "final_state": _STATE, "created": _INSTANT, "completed": _INSTANT},
    },
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": _TEXT,
            "errors": {"type": "array", "items": _TEXT},
        },
    },
}
