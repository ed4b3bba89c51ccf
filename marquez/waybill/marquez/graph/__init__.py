"""The graph of jobs and datasets that Marquez draws of the flows that files pass."""

from __future__ import annotations

from waybill.marquez.graph.file_event import FileEvent, Flow, Node, file_event_of
from waybill.marquez.graph.job_graph import JOURNEY_PREFIX, Job, JobGraph, path_of, paths_of_records, row_key

__all__ = [
    "JOURNEY_PREFIX",
    "FileEvent",
    "Flow",
    "Job",
    "JobGraph",
    "Node",
    "file_event_of",
    "path_of",
    "paths_of_records",
    "row_key",
]
