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
  it away. So is the address of its button LOCATION (sourceCodeLocation), of jobs only.
- A job is drawn in the state of the run whose event arrived last; a JobEvent removes it. A job whose run has
  a parent is drawn in the state of the parent's job. Its page and the list show the run with the latest event
  time instead.
- A run of a parent that is not known is invented, as a run of the parent's job, with the child's state. If
  the run is known as one of another job, each event of the child gives its state to another invented run.
- A run has started at the time of the last event that is no end (START, RUNNING or OTHER), and ended at that
  of its last end, whatever came before.
- Job tags are set by their own requests, and not by the facet. They belong to a job by its simple name, which
  is the name in its last event. So the job of a run with a parent can get none, and shows none.
- A dataset has the columns that the run named that was COMPLETE last, with a schema on each of its events. If
  an event of the run named it without one, Marquez shows the columns of that event or of the other, by
  chance; here it shows none.
- A dataset's own name and those in its symlinks facet stand for it, unless they already stand for another
  one: whichever was named first. The other's name is then never taken for it.
- Lineage goes from job to job over datasets that they share, in both directions.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
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
    location: str | None = None
    run: str | None = None
    """Of which run the state is drawn; None: grey."""
    simple_name: str = ""
    """The name in its last event."""
    tags: list[str] = field(default_factory=list)

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
        """Take in what an event says of the job itself."""
        if version != self.version:
            self.version, self.facets = version, {}
        self.facets |= job.get("facets") or {}
        self.description = description_of(job)
        self.location = ((job.get("facets") or {}).get("sourceCodeLocation") or {}).get("url")

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
class Run:
    """The known times of a run, as text."""

    job: Name
    changed: str
    started: str | None = None
    ended: str | None = None

    @property
    def duration_ms(self) -> int | None:
        """How long it took; None while that is not known."""
        if self.started is None or self.ended is None:
            return None
        first, last = (datetime.fromisoformat(one) for one in (self.started, self.ended))
        return round((last - first).total_seconds() * 1000)


@dataclass
class Graph:
    """All jobs and datasets."""

    jobs: dict[Name, Job] = field(default_factory=dict)
    datasets: dict[Name, str | None] = field(default_factory=dict)
    """By name, what it is for."""
    names: dict[Name, Name] = field(default_factory=dict)
    """By each name of a dataset, the one that it is shown with."""
    columns: dict[Name, list[dict[str, Any]]] = field(default_factory=dict)
    columns_of_run: dict[tuple[str, Name], list[dict[str, Any]]] = field(default_factory=dict)
    job_of_run: dict[str, Name] = field(default_factory=dict)
    named_by_run: dict[str, dict[str, set[Name]]] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    facets_of_run: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By run id, what its page shows: of each name the last one."""

    def take(self, event: dict[str, Any], kind: str) -> list[str]:
        """Draw what a stored event says; returns the runs that get its state."""
        if kind == "DatasetEvent":
            self.datasets[self.dataset_of(event["dataset"])] = description_of(event["dataset"])
            return []
        named = {side: {self.dataset_of(dataset) for dataset in event.get(side) or []} for side in SIDES}
        for dataset in [one for side in SIDES for one in event.get(side) or []]:
            self.datasets[self.dataset_of(dataset)] = description_of(dataset)
        if kind == "JobEvent":
            job = self.jobs.setdefault(name_of(event["job"]), Job())
            job.link(named)
            job.describe(event["job"], tuple(frozenset(named[side]) for side in SIDES))
            job.run, job.simple_name = None, event["job"]["name"]
            return []
        run_id = event["run"]["runId"]
        name, invented = self.name_of_job(event)
        self.job_of_run[run_id] = name
        job = self.jobs.setdefault(name, Job())
        self.facets_of_run.setdefault(run_id, {}).update(event["run"].get("facets") or {})
        of_run = self.named_by_run.setdefault(run_id, {side: set() for side in SIDES})
        for side in SIDES:
            of_run[side] |= named[side]
            if not named[side]:
                job.hide(side)
        if str(event.get("eventType")).upper() in ENDS:
            job.link(of_run)
        self.note_columns(run_id, event, of_run["outputs"])
        job.describe(event["job"], tuple(frozenset(of_run[side]) for side in SIDES))
        parent = (event["run"].get("facets") or {}).get("parent")
        short = event["job"]["name"]
        if parent is None:
            job.run, job.simple_name = run_id, short
        else:
            of_parent = self.jobs.get((event["job"]["namespace"], name[1].rpartition(".")[0]))
            job.run = of_parent.run if of_parent is not None else None
            job.simple_name = short.removeprefix(name[1].removesuffix(short))
        changed = [*invented, run_id]
        for one in changed:
            self.note_times(one, name if one == run_id else self.job_of_run[one], event)
        return changed

    def note_columns(self, run_id: str, event: dict[str, Any], outputs: set[Name]) -> None:
        """Note the columns of what a run writes; the datasets have them once it is complete."""
        for dataset in event.get("outputs") or []:
            columns = ((dataset.get("facets") or {}).get("schema") or {}).get("fields") or []
            written = run_id, self.dataset_of(dataset)
            self.columns_of_run[written] = min(columns, self.columns_of_run.get(written, columns), key=len)
        if str(event.get("eventType")).upper() == "COMPLETE":
            self.columns |= {one: self.columns_of_run[run_id, one] for one in outputs}

    def dataset_of(self, dataset: dict[str, Any]) -> Name:
        """The name that a dataset is shown with; it takes those of its names that are free."""
        shown = self.names.setdefault(name_of(dataset), name_of(dataset))
        symlinks = (dataset.get("facets") or {}).get("symlinks") or {}
        for one in symlinks.get("identifiers") or []:
            self.names.setdefault(name_of(one), shown)
        return shown

    def note_times(self, run_id: str, job: Name, event: dict[str, Any]) -> None:
        """Note when a run has changed, and whether it started or ended."""
        moment = event["eventTime"]
        run = self.runs.setdefault(run_id, Run(job, moment))
        run.changed = moment
        if str(event.get("eventType")).upper() in ENDS:
            run.ended = moment
        else:
            run.started = moment

    def runs_of(self, job: Name) -> list[str]:
        """The runs of a job as they are listed: the one that started last comes first, then those without."""
        return sorted(
            (one for one, run in self.runs.items() if run.job == job),
            key=lambda one: -instant_s(self.runs[one].started),
        )

    def latest_run(self, job: Name) -> str | None:
        """The run that a job's page shows: the one with the latest event time."""
        return max(self.runs_of(job), key=lambda one: instant_s(self.runs[one].changed), default=None)

    def tag(self, job: Name, tag: str, *, is_set: bool) -> int:
        """Set or remove a tag; returns the status of the response."""
        found = self.jobs.get(job)
        if found is None:
            return 404
        if found.simple_name != job[1]:
            return 500 if is_set else 200
        if is_set and tag not in found.tags:
            found.tags.append(tag)
        elif not is_set and tag in found.tags:
            found.tags.remove(tag)
        return 200

    def name_of_job(self, event: dict[str, Any]) -> tuple[Name, list[str]]:
        """What the job of a run event is called, and the parent's run if that is invented."""
        namespace, name = name_of(event["job"])
        parent = ((event["run"].get("facets") or {}).get("parent")) or None
        if parent is None:
            return (namespace, name), []
        parents = parent["job"]["name"]
        if parents == name:
            parents = parents.rpartition(".")[0] if "." in parents else parents
        run_id = parent["run"]["runId"]
        full = namespace, f"{parents}.{name.removeprefix(parents + '.')}"
        known = self.job_of_run.get(run_id)
        if known == (parent["job"]["namespace"], parents):
            return full, []
        self.jobs.setdefault((namespace, parents), Job(simple_name=parents)).description = None
        if known is not None:
            run_id = str(uuid.uuid3(uuid.NAMESPACE_URL, f"{parent['job']['namespace']}.{parents}.{run_id}"))
        self.job_of_run[run_id] = namespace, parents
        return full, [run_id]

    def lineage(self, node_id: str, depth: int) -> list[dict[str, Any]] | None:
        """The nodes that `GET /api/v1/lineage` answers; None for a node that is not there."""
        kind, _, rest = node_id.partition(":")
        namespace, _, name = rest.partition(":")
        origin = (namespace, name) if kind == "job" else self.names.get((namespace, name), (namespace, name))
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
            nodes.append(node("job", job, inputs, outputs) | {"latestRun": self.jobs[job].run})
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


def instant_s(text: str | None) -> float:
    """Seconds since 1970, for a time that is there."""
    return datetime.fromisoformat(text).timestamp() if text is not None else float("-inf")


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
