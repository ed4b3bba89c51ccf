"""What a home must come to: the events that were accepted, and what they mean, in a few rules of its own.

Nothing here reads or calls the code that folds, stores, indexes or delivers. A run has an id, a job, one
input and a few outputs; its events are named by one letter each:

- ``S`` and ``B`` begin it, ``B`` an hour later than ``S`` and after every end but ``G``: it was begun again;
- ``R`` tells that it runs;
- ``C`` completes it, ``F`` fails it, ``A`` aborts it, and ``G`` completes it after ``B``;
- ``I`` is an end that Waybill inferred, at the time that the world has seen.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

from seam.emissions import body_of

from waybill.facets import FinalState, ProvenanceRecord

START_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, when the world begins."""
HOUR_MS: Final = 3_600_000
OFFSETS_MS: Final = {
    "S": 0,
    "R": 1_000,
    "C": 4_000,
    "A": 5_000,
    "F": 6_000,
    "B": HOUR_MS,
    "G": HOUR_MS + 4_000,
}
TYPES: Final = {
    "S": "START",
    "B": "START",
    "R": "RUNNING",
    "C": "COMPLETE",
    "G": "COMPLETE",
    "F": "FAIL",
    "A": "ABORT",
    "I": "ABORT",
}
STATES: Final = {
    "COMPLETE": FinalState.COMPLETE,
    "FAIL": FinalState.ERROR,
    "ABORT": FinalState.CANCELLED,
}
SEVERITY: Final = ("FAIL", "ABORT", "COMPLETE")
ENDS: Final = "CGFAI"
STARTS: Final = "SB"
SYSTEMS: Final = ("edge", "core/7")
GONE: Final = "the program that ran it is gone"


class Run(NamedTuple):
    """A run by its number, which decides all about it."""

    number: int

    @property
    def id(self) -> str:
        return f"01940000-0000-7000-8000-{self.number:012d}"

    @property
    def is_file(self) -> bool:
        """Whether its events carry the facet of a file."""
        return self.number % 3 == 0

    @property
    def is_refused(self) -> bool:
        """Whether the backend refuses its events for good."""
        return self.number % 10 == 7

    @property
    def system(self) -> str:
        return SYSTEMS[self.number % 2]

    @property
    def job(self) -> str:
        return f"load-{self.number % 4}"

    @property
    def source(self) -> str:
        return f"inbox/{self.number % 5}.csv"

    @property
    def began_ms(self) -> int:
        return START_MS + self.number % 3 * HOUR_MS + self.number * 17

    def at_ms(self, letter: str) -> int:
        return self.began_ms + OFFSETS_MS[letter]

    def output(self, letter: str) -> str | None:
        """What an event says that it wrote: ends differ, so that a union can be seen."""
        return {"C": f"lake/{self.number % 3}", "G": f"lake/{self.number % 3}/again"}.get(letter)


def instant(at_ms: int) -> str:
    """An instant as events carry it."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def event(run: Run, letter: str) -> bytes:
    """The event; the same bytes each time."""
    body: dict[str, Any] = {
        "eventTime": instant(run.at_ms(letter)),
        "eventType": TYPES[letter],
        "producer": "https://example.org/simulation",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run.id},
        "job": {"namespace": run.system, "name": run.job},
    }
    if letter == "S":
        body["inputs"] = [{"namespace": "in", "name": run.source}]
    if output := run.output(letter):
        body["outputs"] = [{"namespace": "out", "name": output}]
    if run.is_file:
        facet = {
            "did": run.id,
            "systemName": run.system,
            "dataSource": "in",
            "filename": f"{run.number}.csv",
            "transforms": ["unpack"],
            "created": instant(run.began_ms),
            "_producer": "https://example.org/simulation",
            "_schemaURL": "https://example.org/simulation.json",
        }
        if letter in ENDS:
            state = STATES[TYPES[letter]]
            facet |= {"dataSink": "out", "finalState": state, "completed": instant(run.at_ms(letter))}
        body["run"]["facets"] = {"waybill_deltaFile": facet}
    return json.dumps(body).encode()


def told_record(number: int, variant: int) -> ProvenanceRecord:
    """A record as DeltaFi tells it; the variants of a number are one record, each with a part of it."""
    completed_ms = START_MS + number % 3 * HOUR_MS + number * 17
    return ProvenanceRecord(
        did=f"01950000-0000-7000-8000-{number:012d}",
        system_name=SYSTEMS[number % 2],
        data_source="in",
        filename=f"told-{number}.csv",
        transforms=("unpack", "check"),
        data_sink="out",
        final_state=FinalState.COMPLETE,
        created=completed_ms - 5 - variant,
        completed=completed_ms,
        annotations={f"part{variant}": "x", "last": str(variant)},
    )


def told_body(number: int, variant: int) -> bytes:
    """The entry that tells it."""
    return body_of(told_record(number, variant))


class End(NamedTuple):
    """An end that was accepted, or inferred."""

    is_inferred: bool
    letter: str
    at_ms: int

    @property
    def place(self) -> tuple[int, int]:
        return SEVERITY.index(TYPES[self.letter]), self.at_ms


@dataclass
class Life:
    """What was accepted of one run."""

    run: Run
    letters: set[str] = field(default_factory=set)
    inferred_ms: list[int] = field(default_factory=list)
    program: str | None = None
    """The program that reported on it last."""

    @property
    def since_ms(self) -> int:
        """When it was begun again; 0 if it was not."""
        return self.run.at_ms("B") if {"S", "B"} <= self.letters else 0

    @property
    def ends(self) -> list[End]:
        own = [
            End(is_inferred=False, letter=one, at_ms=self.run.at_ms(one))
            for one in self.letters
            if one in ENDS
        ]
        return own + [End(is_inferred=True, letter="I", at_ms=at_ms) for at_ms in self.inferred_ms]

    @property
    def is_open(self) -> bool:
        """Whether it has begun, and has not ended since it did last."""
        last_ms = max((end.at_ms for end in self.ends), default=-1)
        return bool(self.letters - set(ENDS)) and not 0 <= self.since_ms <= last_ms

    @property
    def end(self) -> End | None:
        """The end that counts: a stated one before an inferred one, of its last attempt, the worst."""
        ends = [end for end in self.ends if not end.is_inferred] or self.ends
        since = [end for end in ends if end.at_ms >= self.since_ms]
        if since:
            return min(since, key=lambda end: end.place)
        return max(ends, key=lambda end: end.at_ms, default=None)

    def records(self) -> list[ProvenanceRecord]:
        """The records that it comes to."""
        end = self.end
        if end is None:
            return []
        if self.run.is_file:
            ends = [end] if end.is_inferred else [one for one in self.ends if not one.is_inferred]
            return [self._file_record(one) for one in ends]
        run, outputs = self.run, {self.run.output(letter) for letter in self.letters} - {None}
        source = f"in/{run.source}" if "S" in self.letters else run.job
        created_ms = min([*map(run.at_ms, self.letters), *self.inferred_ms])
        return [
            ProvenanceRecord(
                did=run.id,
                system_name=run.system,
                data_source=source,
                filename=source.rpartition("/")[2],
                transforms=(run.job,),
                data_sink=None if output is None else f"out/{output}",
                final_state=STATES[TYPES[end.letter]],
                created=created_ms,
                completed=end.at_ms,
                annotations={"waybill.evidence": f"inferred: {GONE}"} if end.is_inferred else None,
            )
            for output in outputs or {None}
        ]

    def _file_record(self, end: End) -> ProvenanceRecord:
        run = self.run
        return ProvenanceRecord(
            did=run.id,
            system_name=run.system,
            data_source="in",
            filename=f"{run.number}.csv",
            transforms=("unpack",),
            data_sink=None if end.is_inferred else "out",
            final_state=STATES[TYPES[end.letter]],
            created=run.began_ms,
            completed=end.at_ms,
            annotations={"waybill.evidence": f"inferred: {GONE}"} if end.is_inferred else None,
        )


class Model:
    """All that was accepted."""

    def __init__(self) -> None:
        self.lives: dict[int, Life] = {}
        self.told: defaultdict[int, set[int]] = defaultdict(set)
        self.gone: set[str] = set()
        """The programs that have died."""

    def accept(self, run: Run, letter: str, program: str | None) -> None:
        """An event was accepted, maybe again after the journal has let go of it."""
        life = self.lives.setdefault(run.number, Life(run))
        life.letters.add(letter)
        life.program = program

    def infer(self, number: int, at_ms: int) -> None:
        """Waybill has ended a run."""
        life = self.lives[number]
        assert life.program in self.gone, f"{life} was ended, and its program is there"
        life.inferred_ms.append(at_ms)
        life.program = None

    def records(self) -> Counter[ProvenanceKey]:
        """Each record that there must be, once."""
        records = [record for life in self.lives.values() for record in life.records()]
        for number, variants in self.told.items():
            parts = [told_record(number, variant) for variant in sorted(variants)]
            notes = {key: value for part in parts for key, value in (part.annotations or {}).items()}
            fields = {name: getattr(parts[0], name) for name in parts[0].__struct_fields__}
            fields |= {
                "created": min(part.created for part in parts),
                "annotations": dict(sorted(notes.items())),
            }
            records.append(ProvenanceRecord(**fields))
        return Counter(map(comparable, records))

    def open_runs(self) -> set[str]:
        """The ids of the runs that have begun and not ended."""
        return {life.run.id for life in self.lives.values() if life.is_open}

    def edges(self) -> set[tuple[str, str]]:
        """What was told of what jobs read and write."""
        edges = set()
        for life in self.lives.values():
            run = life.run
            job = f"{run.system}/{run.job}"
            if "S" in life.letters:
                edges.add((f"in/{run.source}", job))
            edges |= {(job, f"out/{output}") for one in life.letters if (output := run.output(one))}
            if run.is_file:
                edges |= path_edges(run.system, "unpack", has_sink=bool(life.letters & set(ENDS)))
        return edges


def path_edges(system: str, *transforms: str, has_sink: bool) -> set[tuple[str, str]]:
    """What a file's path tells of its system: each transform reads what came before it."""
    places = [f"{system}/in", *(f"{system}/{one} · in" for one in transforms)]
    places += [f"{system}/out"] if has_sink else []
    return set(pairwise(places))


ProvenanceKey = tuple[Any, ...]


def comparable(record: ProvenanceRecord) -> ProvenanceKey:
    """A record as something that can be counted."""
    values = [getattr(record, name) for name in record.__struct_fields__]
    return tuple(tuple(sorted(value.items())) if isinstance(value, dict) else value for value in values)
