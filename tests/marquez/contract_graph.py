"""The graph of jobs and datasets as Marquez makes it of events; a part of the contract server.

What it does was read in Marquez's own code (OpenLineageDao, JobVersionDao, LineageDao, LineageService):

- A job's edges are those of its versions, and a version is a set of inputs and outputs. An edge that is not
  of the current version is not drawn.
- A JobEvent makes a version of what it names. It takes the place of earlier edges, but only on a side where
  it names something.
- A run event that names no inputs (outputs) hides all the job's inputs (outputs), whatever told of them.
- A terminal run event makes a version of all that the events of its run named; before that they draw nothing.
- The job of a run with a parent is named ``<parent's job>.<job>``.
- A job's facets are those of its version's events, the last of each name; another version starts without any.
  Its description is that of the last event, and so is a dataset's: an event that names it without one takes
  it away.
- Lineage goes from job to job over datasets that they share, in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Name = tuple[str, str]
ENDS = {"COMPLETE", "ABORT", "FAIL"}
SIDES = ("inputs", "outputs")


@dataclass
class Job:
    """A job's edges: by version and side, whether they are current."""

    edges: dict[tuple[object, str, Name], bool] = field(default_factory=dict)
    made_last: object = None
    version: object = None
    facets: dict[str, Any] = field(default_factory=dict)
    description: str | None = None

    def link(self, named: dict[str, set[Name]]) -> None:
        """Make a version of these datasets current."""
        self.made_last = version = tuple(frozenset(named[side]) for side in SIDES)
        for side in SIDES:
            for dataset in sorted(named[side]):
                self.hide(side, but=version)
                self.edges[version, side, dataset] = True

    def hide(self, side: str, but: object = None) -> None:
        """Let no edge of a side be current but those of one version."""
        for edge in self.edges:
            if edge[1] == side and edge[0] != but:
                self.edges[edge] = False

    def describe(self, job: dict[str, Any], version: object) -> None:
        """Take in what a JobEvent says of the job itself."""
        if version != self.version:
            self.version, self.facets = version, {}
        self.facets |= job.get("facets") or {}
        self.description = description_of(job)

    def listed(self, side: str) -> list[dict[str, str]]:
        """The datasets that the job itself is shown with: its last version's, drawn or not."""
        named = sorted(
            dataset for version, of, dataset in self.edges if (version, of) == (self.made_last, side)
        )
        return [{"namespace": namespace, "name": name} for namespace, name in named]

    def current(self, side: str) -> set[Name]:
        """The datasets that are drawn on a side."""
        return {dataset for (_, of, dataset), drawn in self.edges.items() if of == side and drawn}


@dataclass
class Graph:
    """All jobs and datasets."""

    jobs: dict[Name, Job] = field(default_factory=dict)
    datasets: dict[Name, str | None] = field(default_factory=dict)
    """By name, what it is for."""
    job_of_run: dict[str, Name] = field(default_factory=dict)
    named_by_run: dict[str, dict[str, set[Name]]] = field(default_factory=dict)
    facets_of_run: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By run id, what its page shows: of each name the last one."""

    def take(self, event: dict[str, Any], kind: str) -> None:
        """Draw what a stored event says."""
        if kind == "DatasetEvent":
            self.datasets[name_of(event["dataset"])] = description_of(event["dataset"])
            return
        named = {side: {name_of(dataset) for dataset in event.get(side) or []} for side in SIDES}
        for dataset in [one for side in SIDES for one in event.get(side) or []]:
            self.datasets[name_of(dataset)] = description_of(dataset)
        if kind == "JobEvent":
            job = self.jobs.setdefault(name_of(event["job"]), Job())
            job.link(named)
            job.describe(event["job"], tuple(frozenset(named[side]) for side in SIDES))
            return
        run_id = event["run"]["runId"]
        self.job_of_run[run_id] = name = self.name_of_job(event)
        job = self.jobs.setdefault(name, Job())
        self.facets_of_run.setdefault(run_id, {}).update(event["run"].get("facets") or {})
        of_run = self.named_by_run.setdefault(run_id, {side: set() for side in SIDES})
        for side in SIDES:
            of_run[side] |= named[side]
            if not named[side]:
                job.hide(side)
        if str(event.get("eventType")).upper() in ENDS:
            job.link(of_run)

    def name_of_job(self, event: dict[str, Any]) -> Name:
        """What the job of a run event is called."""
        namespace, name = name_of(event["job"])
        parent = ((event["run"].get("facets") or {}).get("parent")) or None
        if parent is None:
            return namespace, name
        parents = parent["job"]["name"]
        if parents == name:
            parents = parents.rpartition(".")[0] or parents
        known = self.job_of_run.get(parent["run"]["runId"])
        if known != (parent["job"]["namespace"], parents):
            self.jobs.setdefault((namespace, parents), Job())
        return namespace, f"{parents}.{name.removeprefix(parents + '.')}"

    def lineage(self, node_id: str, depth: int) -> list[dict[str, Any]] | None:
        """The nodes that `GET /api/v1/lineage` answers; None for a node that is not there."""
        kind, _, rest = node_id.partition(":")
        namespace, _, name = rest.partition(":")
        origin = (namespace, name)
        if kind == "job":
            start: Name | None = origin if origin in self.jobs else None
        elif origin in self.datasets:
            start = self.job_beside(origin)
            if start is None or origin not in self.around(self.reached(start, depth)):
                return [node("dataset", origin, [], [])]
        else:
            start = None
        if start is None:
            return None
        reached = self.reached(start, depth)
        nodes = []
        for job in reached:
            inputs = [edge("dataset", one, "job", job) for one in self.jobs[job].current("inputs")]
            outputs = [edge("job", job, "dataset", one) for one in self.jobs[job].current("outputs")]
            nodes.append(node("job", job, inputs, outputs))
        for dataset in self.around(reached):
            writers = [job for job in reached if dataset in self.jobs[job].current("outputs")]
            readers = [job for job in reached if dataset in self.jobs[job].current("inputs")]
            into = [edge("job", job, "dataset", dataset) for job in writers]
            out = [edge("dataset", dataset, "job", job) for job in readers]
            nodes.append(node("dataset", dataset, into, out))
        return sorted(nodes, key=lambda one: str(one["id"]))

    def reached(self, start: Name, depth: int) -> set[Name]:
        """The jobs that share datasets with a job, directly or over others."""
        reached, newest = {start}, {start}
        for _ in range(depth):
            datasets = self.around(newest)
            newest = {job for job in self.jobs if job not in reached and datasets & self.around({job})}
            reached |= newest
        return reached

    def around(self, jobs: set[Name]) -> set[Name]:
        """The datasets that jobs read or write."""
        return {dataset for job in jobs for side in SIDES for dataset in self.jobs[job].current(side)}

    def job_beside(self, dataset: Name) -> Name | None:
        """A job that wrote a dataset, or else read it, in whatever version."""
        for side in reversed(SIDES):
            for name, job in self.jobs.items():
                if any(edge[1:] == (side, dataset) for edge in job.edges):
                    return name
        return None


def name_of(named: dict[str, Any]) -> Name:
    """Namespace and name."""
    return named["namespace"], named["name"]


def description_of(named: dict[str, Any]) -> str | None:
    """What its documentation facet says."""
    documentation = (named.get("facets") or {}).get("documentation") or {}
    description: str | None = documentation.get("description")
    return description


def node(kind: str, name: Name, into: list[dict[str, str]], out: list[dict[str, str]]) -> dict[str, Any]:
    """One node of an answer."""
    data = {"id": {"namespace": name[0], "name": name[1]}, "namespace": name[0], "name": name[1]}
    return {
        "id": node_id(kind, name),
        "type": kind.upper(),
        "data": data,
        "inEdges": sorted(into, key=str),
        "outEdges": sorted(out, key=str),
    }


def edge(origin: str, origin_name: Name, destination: str, destination_name: Name) -> dict[str, str]:
    """One edge of an answer."""
    return {
        "origin": node_id(origin, origin_name),
        "destination": node_id(destination, destination_name),
    }


def node_id(kind: str, name: Name) -> str:
    """A node's id, as Marquez writes it."""
    return f"{kind}:{name[0]}:{name[1]}"
