"""Analyzers: what an event says of datasets and columns beside its own inputs and outputs."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .analyzer import (
        ANALYZERS_GROUP as ANALYZERS_GROUP,
        LINEAGE_OF_JOB as LINEAGE_OF_JOB,
        SQL as SQL,
        Analyzer as Analyzer,
        Catalog as Catalog,
        Finding as Finding,
        Found as Found,
        analyze_event as analyze_event,
        as_job_event as as_job_event,
        ask_about as ask_about,
        facet_of as facet_of,
        inferred as inferred,
        list_facets as list_facets,
        load_analyzers as load_analyzers,
        reason_of as reason_of,
        unread_of as unread_of,
    )
    from .builtin import (
        AirflowAnalyzer as AirflowAnalyzer,
        DbtAnalyzer as DbtAnalyzer,
        GenericAnalyzer as GenericAnalyzer,
    )
    from .query_logs import QueryLog as QueryLog
    from .sql import SqlAnalyzer as SqlAnalyzer, known_dialect as known_dialect
    from .worker import (
        EVENT_BYTES_MAX as EVENT_BYTES_MAX,
        Result as Result,
        Worker as Worker,
        analyze_all as analyze_all,
    )

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
