"""The graph of jobs and datasets that Marquez draws for the flows that files pass through."""

from .begun_times import BegunTimes as BegunTimes
from .datasets import DATASET_PREFIX as DATASET_PREFIX
from .file_events import (
    FileEvent as FileEvent,
    Flow as Flow,
    file_event_of as file_event_of,
    full_name as full_name,
)
from .job_graph import (
    JOURNEY_PREFIX as JOURNEY_PREFIX,
    Job as Job,
    JobGraph as JobGraph,
    Outcome as Outcome,
    outcome_of as outcome_of,
    outcome_of_record as outcome_of_record,
    row_key as row_key,
)
from .presenting import present as present
from .run_events import (
    as_start as as_start,
    counts as counts,
    run_event as run_event,
    start_of as start_of,
    window_of as window_of,
)
from .windows import CAUSE_CHARS_MAX as CAUSE_CHARS_MAX, WINDOW_MS as WINDOW_MS
