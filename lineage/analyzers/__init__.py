"""Analyzers: what an event says of datasets and columns beside its own inputs and outputs."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .analyzer import (
        ANALYZERS_GROUP,
        COLUMN_LINEAGE,
        LINEAGE_OF_DATASET,
        LINEAGE_OF_JOB,
        SQL,
        Analyzer,
        Catalog,
        Finding,
        Found,
        analyze_event,
        as_job_event,
        ask_about,
        facet_of,
        inferred,
        list_facets,
        load_analyzers,
        named_in,
        reason_of,
        unread_of,
    )
    from .builtin import AirflowAnalyzer, DbtAnalyzer, GenericAnalyzer
    from .query_logs import QueryLog, without_values
    from .sql import SqlAnalyzer, known_dialect
    from .worker import EVENT_BYTES_MAX, Result, Worker, analyze_all

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
