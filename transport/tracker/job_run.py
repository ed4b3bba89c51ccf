"""A run of a job that a Python program tells of itself, beside the files that it tracks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from waybill.facets import PRODUCER
from waybill.facets.json_events import instant, new_run_id

from ..clock import SYSTEM_CLOCK
from .file_run import error_of, job_type_of, parent_of

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.facet_v2 import RunFacet

    from waybill.facets.context import Around

    from .datasets import Dataset
    from .file_run import Failure

_Named = TypeVar("_Named")

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
        self.run_id: Final = new_run_id(SYSTEM_CLOCK.now_ms())
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
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import (
            input_statistics_input_dataset as of_input,
            output_statistics_output_dataset as of_output,
        )

        count_input = of_input.InputStatisticsInputDatasetFacet
        count_output = of_output.OutputStatisticsOutputDatasetFacet
        self._last_ms = max(SYSTEM_CLOCK.now_ms(), self._last_ms + 1)
        event = RunEvent(
            eventTime=instant(self._last_ms),
            eventType=RunState(event_type),
            run=Run(self.run_id, self._run_facets(failure, tags or {})),
            job=Job(*self._job, {"jobType": job_type_of(self._kind)}),
            inputs=_named(InputDataset, "input", count_input, inputs or {}),
            outputs=_named(OutputDataset, "output", count_output, outputs or {}),
            producer=PRODUCER,
        )
        self._emit(event)

    def _run_facets(self, failure: Failure | None, tags: Mapping[str, object]) -> dict[str, RunFacet]:
        from openlineage.client.facet_v2 import tags_run

        facets: dict[str, RunFacet] = {}
        if self._above is not None:
            facets["parent"] = parent_of(self._above)
        if failure is not None:
            facets["errorMessage"] = error_of(failure)
        if tags:
            told = [tags_run.TagsRunFacetFields(key, str(value), "waybill") for key, value in tags.items()]
            facets["tags"] = tags_run.TagsRunFacet(tags=told, producer=PRODUCER)
        return facets


def _named(kind: Callable[..., _Named], side: str, count: Callable[..., object], uses: Uses) -> list[_Named]:
    """The datasets of one side, each with the facet of its number of rows, if that is known."""
    counts = [
        {} if rows is None else {f"{side}Statistics": count(rowCount=rows, producer=PRODUCER)}
        for rows in uses.values()
    ]
    return [kind(*dataset, **{f"{side}Facets": one}) for dataset, one in zip(uses, counts, strict=True)]
