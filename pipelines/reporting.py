"""The events of a package's run: what its manifest says, and how its attempts went."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import PRODUCER
from waybill.facets.causes import mask_secrets
from waybill.facets.context import Around, JobRun
from waybill.facets.json_events import RUN_EVENT_SCHEMA, instant, new_run_id, standard_facet
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.config.backends import without_users
from waybill.transport.errors import FingerprintError
from waybill.transport.fingerprints import fingerprint_of

from .manifest import FILE

if TYPE_CHECKING:
    from .manifest import DatasetSpec, Package

_GIT_TIMEOUT_S: Final = 5
_STATISTICS: Final = {
    "input": ("1-0-0", "InputStatisticsInputDatasetFacet"),
    "output": ("1-0-2", "OutputStatisticsOutputDatasetFacet"),
}
_TRACE_TAG: Final = "trace_id"
_SPAN_TAG: Final = "span_id"


_Stamp = tuple[int, int, int]


class RunReport:
    """Makes the events of one run of a package.

    Args:
        package: the package.
        arguments: those of this run, behind the manifest's own.
        environment: the variables that the program gets.
        around: the run that started this one.
        trace: the trace and the span that it is part of.
        nominal_ms: the time that it is for, in epoch milliseconds.
        fingerprint_max_bytes: see the setting of that name.
    """

    def __init__(
        self,
        package: Package,
        arguments: Iterable[str] = (),
        *,
        environment: Mapping[str, str],
        around: Around | None = None,
        trace: tuple[str, str] | None = None,
        nominal_ms: int | None = None,
        fingerprint_max_bytes: int,
    ) -> None:
        metadata, runtime = package.manifest.metadata, package.manifest.runtime
        self._specs: Final = {"input": package.manifest.inputs, "output": package.manifest.outputs}
        self.package: Final = package
        self.command: Final = [*runtime.arguments, *arguments]
        self.run: Final = JobRun(metadata.namespace, metadata.name, new_run_id(SYSTEM_CLOCK.now_ms()))
        self.below: Final = Around(self.run, around.root if around else self.run)
        """What the program is told of the runs above its own."""
        self._fingerprint_max_bytes = fingerprint_max_bytes
        self._job = {"namespace": self.run.namespace, "name": self.run.job, "facets": self._job_facets()}
        self._run_facets = self._facets_of_run(environment, around, trace, nominal_ms)
        self._last_ms = 0
        files = [package.dataset_of(spec) for specs in self._specs.values() for spec in specs]
        self._begun = {name: _stamp_of(Path(name)) for namespace, name in files if namespace == FILE}

    def event(self, kind: str, failure: str = "", *, is_end: bool = False) -> bytes:
        """An event of the run, now.

        Args:
            kind: its type, such as ``START``.
            failure: why an attempt ended so.
            is_end: whether the program has ended: then, the files that it has read unchanged and those that
                it has changed are told with their size and content.
        """
        facets = dict(self._run_facets)
        if failure:
            said = {"message": mask_secrets(failure), "programmingLanguage": "UNKNOWN"}
            facets["errorMessage"] = standard_facet("1-0-1", "ErrorMessageRunFacet", **said)
        datasets = {
            f"{side}s": [self._dataset(spec, side, is_end=is_end) for spec in specs]
            for side, specs in self._specs.items()
        }
        return self._encode(kind, {"facets": facets}, self._job, datasets)

    def heartbeat(self) -> bytes:
        """An event that the run goes on, which says nothing else."""
        return self._encode("RUNNING", {}, {key: self._job[key] for key in ("namespace", "name")}, {})

    def _encode(
        self, kind: str, run: Mapping[str, object], job: Mapping[str, object], datasets: Mapping[str, object]
    ) -> bytes:
        """An event, later than the one before."""
        self._last_ms = max(SYSTEM_CLOCK.now_ms(), self._last_ms + 1)
        return msgspec.json.encode(
            {
                "eventType": kind,
                "eventTime": instant(self._last_ms),
                "producer": PRODUCER,
                "schemaURL": RUN_EVENT_SCHEMA,
                "run": {"runId": self.run.run, **run},
                "job": job,
                **datasets,
            }
        )

    def _job_facets(self) -> dict[str, object]:
        manifest, metadata = self.package.manifest, self.package.manifest.metadata
        job_type = {"processingType": "BATCH", "integration": "WAYBILL", "jobType": "PACKAGE"}
        source = {"language": "sh", "sourceCode": mask_secrets(shlex.join(self.command))}
        labels = {**metadata.labels, "tier": manifest.tier, "version": metadata.version}
        if manifest.schedule is not None:
            labels["schedule"] = manifest.schedule.cron
        facets: dict[str, object] = {
            "jobType": standard_facet("2-0-4", "JobTypeJobFacet", **job_type),
            "sourceCode": standard_facet("1-0-1", "SourceCodeJobFacet", **source),
            "tags": _tags("TagsJobFacet", labels),
        }
        if metadata.description:
            says = {"description": metadata.description}
            facets["documentation"] = standard_facet("1-1-0", "DocumentationJobFacet", **says)
        if metadata.owner:
            facets["ownership"] = standard_facet("1-0-1", "OwnershipJobFacet", owners=_owners(metadata.owner))
        if (place := _find_source(self.package.path)) is not None:
            facets["sourceCodeLocation"] = standard_facet("1-1-0", "SourceCodeLocationJobFacet", **place)
        return facets

    def _facets_of_run(
        self,
        environment: Mapping[str, str],
        around: Around | None,
        trace: tuple[str, str] | None,
        nominal_ms: int | None,
    ) -> dict[str, object]:
        engine = {"name": "waybill run", "version": version("waybill-lineage")}
        facets: dict[str, object] = {
            "processing_engine": standard_facet("1-1-1", "ProcessingEngineRunFacet", **engine)
        }
        if around is not None:
            facets["parent"] = standard_facet("1-2-0", "ParentRunFacet", **around.members())
        if nominal_ms is not None:
            facets["nominalTime"] = standard_facet(
                "1-0-1", "NominalTimeRunFacet", nominalStartTime=instant(nominal_ms)
            )
        if trace is not None:
            tags = {_TRACE_TAG: trace[0], _SPAN_TAG: trace[1]}
            facets["tags"] = _tags("TagsRunFacet", tags, source="opentelemetry")
        reported = [name for name in self.package.manifest.runtime.reported_env if name in environment]
        if reported:
            variables = [{"name": name, "value": mask_secrets(environment[name])} for name in reported]
            facets["environmentVariables"] = standard_facet(
                "1-0-0", "EnvironmentVariablesRunFacet", environmentVariables=variables
            )
        if arguments := self.command[1:]:
            parameters = [
                {"key": f"argument.{number}", "value": mask_secrets(value)}
                for number, value in enumerate(arguments, 1)
            ]
            facets["executionParameters"] = standard_facet(
                "1-0-0", "ExecutionParametersRunFacet", parameters=parameters
            )
        return facets

    def _dataset(self, spec: DatasetSpec, side: str, *, is_end: bool) -> dict[str, object]:
        namespace, name = self.package.dataset_of(spec)
        facets: dict[str, object] = {}
        if spec.description:
            facets["documentation"] = standard_facet(
                "1-1-0", "DocumentationDatasetFacet", description=spec.description
            )
        if spec.schema:
            fields = [msgspec.to_builtins(column) for column in spec.schema]
            facets["schema"] = standard_facet("1-2-0", "SchemaDatasetFacet", fields=fields)
        secret, owner = spec.classification, self.package.manifest.metadata.owner
        told = {"pii": "true" if secret.pii else "", "sensitivity": secret.sensitivity, "type": spec.type}
        if side == "output":
            told["tier"] = self.package.manifest.tier
            if owner:
                facets["ownership"] = standard_facet("1-0-1", "OwnershipDatasetFacet", owners=_owners(owner))
        if any(told.values()):
            facets["tags"] = _tags("TagsDatasetFacet", told)
        facets["dataSource"] = standard_facet(
            "1-0-1", "DatasourceDatasetFacet", name=without_users(namespace), uri=without_users(namespace)
        )
        dataset: dict[str, object] = {"namespace": namespace, "name": name, "facets": facets}
        if is_end and namespace == FILE and (found := self._find_content(Path(name), side)) is not None:
            content, size_bytes = found
            facets["version"] = standard_facet("1-0-1", "DatasetVersionDatasetFacet", datasetVersion=content)
            count = standard_facet(*_STATISTICS[side], size=size_bytes, fileCount=1)
            dataset[f"{side}Facets"] = {f"{side}Statistics": count}
        return dataset

    def _find_content(self, path: Path, side: str) -> tuple[str, int] | None:
        """The fingerprint and the size of a file; None if they are not those of what was read or written."""
        is_same = self._begun[str(path)] == _stamp_of(path)
        try:
            # One that changed is not known to be as it was read; one that did not was written before.
            if is_same is not (side == "input") or not path.is_file():
                return None
            found = fingerprint_of(path, max_bytes=self._fingerprint_max_bytes)
        except (OSError, FingerprintError):
            return None
        return str(found), found.input_bytes


def _stamp_of(path: Path) -> _Stamp | None:
    """A value that changes with a file; None: there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _owners(owner: str) -> list[dict[str, str]]:
    return [{"name": owner, "type": "OWNER"}]


def _tags(facet: str, tags: Mapping[str, str], *, source: str = "manifest") -> dict[str, object]:
    told = [{"key": key, "value": value, "source": source} for key, value in tags.items() if value]
    return standard_facet("1-0-0", facet, tags=told)


def _find_source(path: Path) -> dict[str, str] | None:
    """Where the manifest is in its repository, as the facet `sourceCodeLocation` has it; None: in none."""
    asked = ["rev-parse", "--show-prefix", "HEAD", "--abbrev-ref", "HEAD"]
    try:
        prefix, commit, branch = _git(path.parent, *asked).split("\n")
        remote = without_users(_git(path.parent, "config", "--get", "remote.origin.url"), "")
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    place = {"type": "git", "url": remote, "repoUrl": remote, "path": f"{prefix}{path.name}"}
    return {**place, "version": commit} | ({} if branch == "HEAD" else {"branch": branch})


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", os.fspath(folder), *arguments],  # noqa: S607 - the user's own
        check=True,
        capture_output=True,
        text=True,
        timeout=_GIT_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.rstrip("\n")
