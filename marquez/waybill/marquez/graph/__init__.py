"""The graph of jobs and datasets that Marquez draws of the flows that files pass."""

from waybill.marquez.graph.event_facets import (
    FileEvent as FileEvent,
    Flow as Flow,
    Named as Named,
    Node as Node,
    file_event_of as file_event_of,
)
from waybill.marquez.graph.job_graph import (
    JOURNEY_PREFIX as JOURNEY_PREFIX,
    OPENLINEAGE_SPEC as OPENLINEAGE_SPEC,
    Job as Job,
    JobGraph as JobGraph,
    instant as instant,
    path_of as path_of,
    paths_of_records as paths_of_records,
    row_key as row_key,
    standard_facet as standard_facet,
)
