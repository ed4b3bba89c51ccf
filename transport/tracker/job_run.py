"""A run of a job that a Python program tells of itself, beside the files that it tracks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from waybill.facets import PRODUCER
from waybill.facets.json_events import instant, new_run_id

from .file_run import now_ms, parent_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
    from openlineage.client.facet_v2 import JobFacet, RunFacet

    from waybill.facets.context import Around

    from .datasets import Dataset
    from .file_run import Failure

Uses = Mapping["Dataset", int | None]
"""Datasets, and of how many rows each; None: that is not known."""


class ToldRun:
    """One run of a job.

    Args:
        emit: takes its events.
        namespace: of the job.
        name: of the job.
        kind: of the job, such as ``FUNCTION``.
        above: the run that it is a part of; None: the run around this program, if there is one.
    """

    def __init__(
        self,
        emit: Callable[[RunEvent], None],
        namespace: str,
        name: str,
        kind: str,
        above: Around | None = None,
    ) -> None:
        self.run_id: Final = new_run_id()
        self._emit: Final = emit
        self._job: Final = (namespace, name)
        self._kind: Final = kind
        self._above: Final = above
        self._last_ms = 0

    def tell(
        self,
        event_type: str,
        *,
        inputs: Uses | None = None,
        outputs: Uses | None = None,
        failure: Failure | None = None,
        tags: Mapping[str, object] | None = None,
    ) -> None:
        """Tell that it has begun, or how it ended.

        Raises:
            JournalError: the event could not be kept.
        """
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

        self._last_ms = max(now_ms(), self._last_ms + 1)
        event = RunEvent(
            eventTime=instant(self._last_ms),
            eventType=RunState(event_type),
            run=Run(self.run_id, self._run_facets(failure, tags or {})),
            job=Job(*self._job, {"jobType": self._job_type()}),
            inputs=_inputs(inputs or {}),
            outputs=_outputs(outputs or {}),
            producer=PRODUCER,
        )
        self._emit(event)

    def _job_type(self) -> JobFacet:
        from openlineage.client.facet_v2 import job_type_job

        return job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="WAYBILL", jobType=self._kind, producer=PRODUCER
        )

    def _run_facets(self, failure: Failure | None, tags: Mapping[str, object]) -> dict[str, RunFacet]:
        from openlineage.client.facet_v2 import error_message_run, tags_run

        facets: dict[str, RunFacet] = {}
        if self._above is not None:
            facets["parent"] = parent_of(self._above)
        if failure is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=failure.message,
                programmingLanguage="PYTHON",
                stackTrace=failure.stack_trace,
                producer=PRODUCER,
            )
        if tags:
            told = [tags_run.TagsRunFacetFields(key, str(value), "waybill") for key, value in tags.items()]
            facets["tags"] = tags_run.TagsRunFacet(tags=told, producer=PRODUCER)
        return facets


def _inputs(uses: Uses) -> list[InputDataset]:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    datasets = [InputDataset(*dataset) for dataset in uses]
    for dataset, rows in zip(datasets, uses.values(), strict=True):
        if rows is not None:
            count = statistics.InputStatisticsInputDatasetFacet(rowCount=rows, producer=PRODUCER)
            dataset.inputFacets = {"inputStatistics": count}
    return datasets


def _outputs(uses: Uses) -> list[OutputDataset]:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    datasets = [OutputDataset(*dataset) for dataset in uses]
    for dataset, rows in zip(datasets, uses.values(), strict=True):
        if rows is not None:
            count = statistics.OutputStatisticsOutputDatasetFacet(rowCount=rows, producer=PRODUCER)
            dataset.outputFacets = {"outputStatistics": count}
    return datasets
