"""The names of the jobs and datasets of the graph.

Marquez's page shows the first 16 characters of a job's name and the first 15 of a dataset's. So a name begins
with what tells a job from the others of its flow, and ends with the data source:

    validate · orders       the transform `validate` of the files of `orders`, and what they are after it
    (split) · orders        where files of `orders` are split
    (to lake) · orders      what goes from `orders` to the sink `lake` without a transform
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

_BETWEEN: Final = " · "


class Node(NamedTuple):
    """A job or a dataset of the graph."""

    namespace: str
    name: str


class Kind(StrEnum):
    """What a job does to files."""

    TRANSFORM = "TRANSFORM"
    SPLIT = "SPLIT"
    DIRECT = "DIRECT"


class Step(NamedTuple):
    """One job of a flow.

    Attributes:
        source: the data source of the files.
        flow: the transform, or the sink of a path without any; empty where files are split.
    """

    source: Node
    kind: Kind
    flow: str = ""

    @property
    def node(self) -> Node:
        """The job's namespace and name."""
        flow = self.flow.replace(_BETWEEN, _BETWEEN * 2)
        if self.kind is Kind.SPLIT:
            first = "(split)"
        elif self.kind is Kind.DIRECT:
            first = f"(to {flow})"
        else:
            first = f"({flow}" if flow.startswith("(") else flow
        return Node(self.source.namespace, f"{first}{_BETWEEN}{self.source.name}")

    @property
    def job_says(self) -> str:
        """A description of the job."""
        files = f"files of the data source {self.source.name}"
        if self.kind is Kind.SPLIT:
            return f"Splits {files} into others."
        if self.kind is Kind.DIRECT:
            return f"Brings {files} to {self.flow}."
        return f"The transform {self.flow} of {files}."

    @property
    def dataset_says(self) -> str:
        """A description of what comes out of the job, unless that is a sink or another data source."""
        return f"Files of the data source {self.source.name} that have passed {self.flow}."


def full_name(name: str, parent: str) -> str:
    """What Marquez calls the job `name` of a run whose parent is a run of the job `parent`."""
    if parent == name:
        parent = parent.rpartition(".")[0] if "." in parent else parent
    return f"{parent}.{name.removeprefix(f'{parent}.')}"


def source_says(source: Node) -> str:
    """A description of the files of a data source."""
    return f"Files of the data source {source.name}."


def sink_says(sink: Node) -> str:
    """A description of a data sink."""
    return f"The data sink {sink.name}."
