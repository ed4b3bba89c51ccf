"""The graph of jobs and datasets that Marquez draws for the flows that files pass through."""

from .datasets import DATASET_PREFIX
from .file_events import FileEvent, Flow, file_event_of, full_name
from .job_graph import JOURNEY_PREFIX, Job, JobGraph, Outcome, outcome_of_record, row_key
from .presenting import present
from .run_events import as_start, counts, run_event, start_of, window_of
from .windows import CAUSE_CHARS_MAX, WINDOW_MS
