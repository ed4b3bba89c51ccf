"""Any sequence of calls on tracked files, compared with the records that a model of the rules predicts."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, multiple, rule

from waybill.facets import RunEvent, decode_event, fold
from waybill.facets.causes import telling
from waybill.facets.schema_files import read_facet_schemas
from waybill.transport import (
    AdmissionError,
    Journal,
    Kind,
    Settings,
    TrackedFile,
    Tracker,
    TrackerStateError,
    admit_event,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = json.loads(read_facet_schemas()["WaybillDeltaFileRunFacet-1-0-0"])
# The other half of the schema's allOf is OpenLineage's own RunFacet, referenced by URL.
FACET = jsonschema.Draft202012Validator(
    SCHEMA["$defs"]["WaybillDeltaFileRunFacet"]["allOf"][1],
    format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
)
NAMES = st.text(min_size=1, max_size=8)
EVENT_TYPES = {
    **dict.fromkeys(("COMPLETE", "FILTERED", "SPLIT"), "COMPLETE"),
    "CANCELLED": "ABORT",
    "ERROR": "FAIL",
}
"""What OpenLineage is told of an end."""
STOPS = (ValueError("bad"), KeyboardInterrupt(), GeneratorExit(), SystemExit(1))


@dataclass
class ModelPath:
    """The model of one path."""

    real: TrackedFile
    identity: tuple[str, str | None, str, str]
    """The expected did, parent's did, data source and file name."""
    annotations: dict[str, str]
    transforms: list[str] = field(default_factory=list)
    opener: ModelPath | None = None
    ended: bool = False
    failed: bool = False
    """It ended by `filter`, `error`, `cancel` or `split`: it cannot be joined."""
    egressed: bool = False
    branched: bool = False

    @property
    def open(self) -> bool:
        return not (self.ended or self.egressed)

    @property
    def joinable(self) -> bool:
        return not self.failed

    @property
    def going_on(self) -> bool:
        return not self.ended


def kept(text: str) -> str:
    """Text that every backend accepts."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


class TrackedFiles(RuleBasedStateMachine):
    """Calls the Tracker in any order; forbidden calls must be refused and leave no trace."""

    paths: Bundle[ModelPath] = Bundle("paths")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        given = {"home": self.folder, "system_name": "tests", "runner": "none", "provenance_enabled": True}
        self.tracker = Tracker(settings=Settings.load(given, env={}, cwd=self.folder))
        self.journal = Journal(self.folder)
        self.foretold: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        self.joined: dict[str, tuple[str, ...]] = {}

    def teardown(self) -> None:
        try:
            self.check()
        finally:
            self.tracker.close()
            self.journal.close()
            shutil.rmtree(self.folder)

    def attempt(self, *, legal: bool, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the call returns
        if legal:
            return call()
        before = self.journal.last_seq()
        with pytest.raises(TrackerStateError):
            call()
        assert self.journal.last_seq() == before
        return None

    def foretell(self, path: ModelPath, state: str, sink: str | None = None, **cause: str) -> None:
        annotations = path.annotations | cause
        if not annotations.get("errorCause", "says why"):  # Words that say nothing are no reason.
            del annotations["errorCause"]
        record = (*path.identity, tuple(path.transforms), sink, state, annotations or None)
        self.foretold[path.identity[0]].append(record)

    # -- what a program says ---------------------------------------------------------------------------------

    @rule(
        target=paths,
        filename=st.text(max_size=8),
        source=NAMES,
        known=st.dictionaries(NAMES, NAMES, max_size=2),
    )
    def file(self, filename: str, source: str, known: dict[str, str]) -> ModelPath:
        real = self.tracker.file(filename, data_source=source, annotations=known)
        annotations = {kept(key): kept(value) for key, value in known.items()}
        return ModelPath(real, (real.did, None, kept(source), kept(filename)), annotations)

    @rule(path=paths, key=NAMES, value=st.text() | st.integers() | st.booleans())
    def annotate(self, path: ModelPath, key: str, value: object) -> None:
        self.attempt(legal=path.open, call=lambda: path.real.annotate({key: value}))
        if path.open:
            text = str(value)
            path.annotations[kept(key)] = text.lower() if isinstance(value, bool) else kept(text)

    @rule(path=paths, name=NAMES, fails=st.booleans())
    def transform(self, path: ModelPath, name: str, *, fails: bool) -> None:
        """A transform whose failure is caught stays on the path, too."""

        def call() -> None:
            with contextlib.suppress(OSError), path.real.transform(name):
                if fails:
                    raise OSError

        self.attempt(legal=path.open, call=call)
        if path.open:
            path.transforms.append(kept(name))

    @rule(target=paths, path=paths)
    def branch(self, path: ModelPath) -> ModelPath | MultipleResults[ModelPath]:
        real = self.attempt(legal=path.going_on, call=path.real.branch)
        if real is None:
            return multiple()
        path.branched = True
        return ModelPath(real, path.identity, dict(path.annotations), list(path.transforms), opener=path)

    @rule(path=paths, sink=NAMES)
    def egress(self, path: ModelPath, sink: str) -> None:
        self.attempt(legal=path.going_on, call=lambda: path.real.egress(sink))
        if path.going_on:
            self.foretell(path, "COMPLETE", kept(sink))
            path.egressed = True

    @rule(path=paths, reason=st.text())
    def filter(self, path: ModelPath, reason: str) -> None:
        self.attempt(legal=path.open, call=lambda: path.real.filter(reason))
        if path.open:
            self.foretell(path, "FILTERED", filteredCause=kept(reason))
            path.ended = path.failed = True

    @rule(path=paths, cause=st.text())
    def error(self, path: ModelPath, cause: str) -> None:
        self.attempt(legal=path.going_on, call=lambda: path.real.error(cause))
        if path.going_on:
            self.foretell(path, "ERROR", errorCause=telling(kept(cause)))
            path.ended = path.failed = True

    @rule(path=paths)
    def cancel(self, path: ModelPath) -> None:
        self.attempt(legal=path.going_on, call=path.real.cancel)
        if path.going_on:
            self.foretell(path, "CANCELLED")
            path.ended = path.failed = True

    @rule(target=paths, path=paths, names=st.lists(st.text(max_size=8), min_size=1, max_size=3))
    def split(self, path: ModelPath, names: list[str]) -> MultipleResults[ModelPath]:
        children = self.attempt(legal=path.open, call=lambda: path.real.split(names))
        if children is None:
            return multiple()
        self.foretell(path, "SPLIT")
        path.ended = path.failed = True
        did, _, source, _ = path.identity
        return multiple(
            *(
                ModelPath(child, (child.did, did, source, kept(name)), dict(path.annotations))
                for child, name in zip(children, names, strict=True)
            )
        )

    @rule(target=paths, given=st.lists(paths, max_size=4), name=st.text(max_size=8), source=NAMES)
    def join(self, given: list[ModelPath], name: str, source: str) -> ModelPath | MultipleResults[ModelPath]:
        each = list({path.identity[0]: path for path in given}.values())
        if len(each) < len(given) or not given:
            before = self.journal.last_seq()
            # The first fault found is the one that is reported.
            with pytest.raises((AdmissionError, TrackerStateError)):
                self.tracker.join([path.real for path in given], name, data_source=source)
            assert self.journal.last_seq() == before
            return multiple()
        real = self.attempt(
            legal=all(path.joinable for path in each),
            call=lambda: self.tracker.join([path.real for path in each], name, data_source=source),
        )
        if real is None:
            return multiple()
        for path in each:
            if path.open:
                self.foretell(path, "COMPLETE")
            path.ended = True
        dids = tuple(path.identity[0] for path in each)
        self.joined[real.did] = dids
        assert real.parent_dids == dids
        return ModelPath(real, (real.did, dids[0], kept(source), kept(name)), {})

    @rule(path=paths)
    def leave(self, path: ModelPath) -> None:
        def call() -> None:
            with path.real:
                pass

        self.attempt(legal=path.going_on, call=call)
        if path.open and not path.branched:
            self.foretell(path, "COMPLETE")
        path.ended = True

    @rule(path=paths, raised=st.sampled_from(STOPS), levels=st.integers(1, 4))
    def raise_out(self, path: ModelPath, raised: BaseException, levels: int) -> None:
        """An exception leaves a path's block, and then those of the paths that it branched from."""
        raised = type(raised)(*raised.args)
        told = False
        leaving: ModelPath | None = path
        while leaving is not None and levels:
            if leaving.ended:
                # A block cannot be entered again; leaving it after an end records nothing.
                leaving.real.__exit__(type(raised), raised, None)
            else:
                with pytest.raises(type(raised)), leaving.real:
                    raise raised
                leaving.failed = not told
                if not told and isinstance(raised, (KeyboardInterrupt, GeneratorExit)):
                    self.foretell(leaving, "CANCELLED")
                elif not told:
                    self.foretell(leaving, "ERROR", errorCause=telling(f"{type(raised).__name__}: {raised}"))
                leaving.ended = True
            told = True
            leaving, levels = leaving.opener, levels - 1

    # -- what came of it -------------------------------------------------------------------------------------

    def check(self) -> None:
        bodies = [
            entry.body for entry in self.journal.read(0, limit=100_000) if entry.kind is Kind.OPENLINEAGE
        ]
        for body in bodies:
            admit_event(body)
            event = json.loads(body)
            run = event["run"]
            FACET.validate(facet := run["facets"]["waybill_deltaFile"])
            assert event["eventType"] == EVENT_TYPES.get(facet.get("finalState"), event["eventType"])
            upstream = run["facets"].get("jobDependencies", {}).get("upstream", ())
            assert tuple(one["run"]["runId"] for one in upstream) == self.joined.get(run["runId"], ())
        events = [one for one in map(decode_event, bodies) if isinstance(one, RunEvent)]
        found: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        last_ms: dict[str, int] = {}
        for r in fold(events, system_name="not stamped"):
            assert r.system_name == "tests"
            assert r.created <= r.completed
            assert last_ms.get(r.did, 0) < r.completed
            last_ms[r.did] = r.completed
            identity = (r.did, r.parent_did, r.data_source, r.filename)
            found[r.did].append((*identity, r.transforms, r.data_sink, str(r.final_state), r.annotations))
        assert found == self.foretold


TrackedFiles.TestCase.settings = settings(
    max_examples=12, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
test_any_sequence_of_calls_gives_exactly_the_records_of_the_rules = TrackedFiles.TestCase
