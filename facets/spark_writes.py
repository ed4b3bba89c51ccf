"""How the events of OpenLineage's Spark listener show a write, and how far to trust them.

The listener reports a failed write as complete, so a COMPLETE that nothing else confirms is marked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .event import PRODUCER, SEVERITY
from .standard import read_members, read_standard

if TYPE_CHECKING:
    from .event import OutputDataset, RunEvent

LISTENER: Final = "listener"
SOURCES: Final = frozenset({LISTENER, "session", "event log"})
"""Who can have seen how a run ended: the listener, the session's own watch, or Spark's event log."""

APPLICATION_ENDED: Final = "its application has ended"
"""Why a run is ended by inference that the listener left open, as it leaves all reads of RDDs and schemas."""

LISTENER_ONLY: Final = "listener only"
"""The annotation ``waybill.evidence`` of a record whose end only the listener has seen."""

_LISTENER_PRODUCER: Final = "/integration/spark"
_INSERT: Final = "execute_insert_into_hadoop_fs_relation_command"
"""A part of the job's name if Spark writes files: it runs a job and counts the files, or writes none."""

_CREATE: Final = re.compile(r"\b(?:execute_)?create_(?:data_source_)?table(?:_like)?(?:_command)?(?:\.|$)")
"""A part of the job's name if it creates a table without rows, unless there is one."""

_HIDE_OUTPUT: Final = ("execute_update_command", "execute_delete_command", "execute_merge_into_command")
"""The ends of the names of jobs that change a Delta table."""

_QUERIES: Final = ("in_memory_table_scan", "adaptive_spark_plan")
"""The ends of the names of queries. The listener says that a cached dataset that one reads is its output.

If a job with the second writes, the name of what it writes follows.
"""

_AROUND: Final = ("table_as_select", ".execute_insert_into_data_source_dir_command")
"""Parts of the names of jobs whose files another job of Spark's writes within them, in its own run."""

_LOG: Final = "/_delta_log"
"""The end of the name of a Delta table's log. The listener says that a stream that reads it writes it."""
_NO_WRITES: Final = frozenset({"DROP", "ALTER", "RENAME"})
_CHANGE: Final = "lifecycleStateChange"
_BATCH: Final = b'"BATCH"'
_JOBS: Final = frozenset({"SQL_JOB", "RDD_JOB"})
_STATISTICS: Final = b'"outputStatistics"'


def written(event: RunEvent) -> list[OutputDataset]:
    """The outputs that a run writes: no cached dataset or log that it reads, no table that it drops."""
    is_query = event.job.name.endswith(_QUERIES) and event.producer != PRODUCER
    outputs = (one for one in event.outputs or () if _counts_data(one) or not is_query)
    return [output for output in outputs if _is_written(output)]


def _is_written(output: OutputDataset) -> bool:
    if output.name.endswith(_LOG):
        return False
    if _CHANGE.encode() not in bytes(output.facets):
        return True
    change = read_standard(read_members(output.facets).get(_CHANGE, b"")).change
    return change is None or change.upper() not in _NO_WRITES


def may_hide_output(job_name: str) -> bool:
    """Whether a run of this job may have written although the listener names no output of it."""
    return job_name.endswith(_HIDE_OUTPUT)


def is_batch(event: RunEvent) -> bool:
    """Whether the run is one Spark query or command, which records only its writes.

    An application is not, nor is a step of a stream: the listener does not name the files that it writes.
    """
    if _BATCH not in bytes(event.job.facets):
        return False
    kind = event.job.job_type
    is_spark_batch = (kind.integration.upper(), kind.processingType.upper()) == ("SPARK", "BATCH")
    return is_spark_batch and kind.jobType in _JOBS


def shows_write(event: RunEvent) -> bool:
    """Whether an event shows that its run did write: it names a Spark job, or counts written data."""
    facets = event.run.facets
    has_job = facets is not None and bool(facets.spark_job_details)
    return has_job or any(map(_counts_data, event.outputs or ()))


def _counts_data(output: OutputDataset) -> bool:
    return _STATISTICS in bytes(output.output_facets)


def is_around_write(event: RunEvent) -> bool:
    """Whether the files that an event counts were written within its run, by another one that counts them."""
    is_around = any(part in event.job.name for part in _AROUND)
    return is_around and any(output.has_files for output in event.outputs or ())


def has_to_show(job_name: str, *, is_confirmed: bool) -> bool:
    """Whether a run of this job that has written shows this in one of its events, unless these are lost.

    Of a table that is created without rows, who confirms it is the only sign.
    """
    return _INSERT in job_name or (not is_confirmed and _CREATE.search(job_name) is not None)


def source_of(event: RunEvent) -> str | None:
    """Who has seen how the event's run ended, according to the event; None if only its sender has."""
    facets = event.run.facets
    if facets is not None and facets.evidence is not None:
        return facets.evidence.source if facets.evidence.source in SOURCES else None
    return LISTENER if event.eventType in SEVERITY and _LISTENER_PRODUCER in event.producer else None
