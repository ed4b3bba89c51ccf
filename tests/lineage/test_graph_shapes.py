"""Shapes that a graph can have, in any order of its events: nothing hangs, and nothing is drawn twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from events import members
from hypothesis import given, settings as hypothesis_settings, strategies as st
from keeping import index, keep, keep_filed, settings_in

from waybill.lineage import Lineage
from waybill.lineage.graph import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from waybill.lineage.graph import Reach

INPUTS = 50_000
OF_DATASET = {
    "eventTime": "2026-01-31T12:30:00Z",
    "producer": "https://example.org/tests",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent",
}


def dataset(text: str, same: Iterable[str] = (), columns: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """A dataset with other names, and with columns, each with the one that it comes from."""

    def named(text: str) -> dict[str, str]:
        namespace, _, name = text.rpartition("/")
        return {"namespace": namespace, "name": name}

    fields: defaultdict[str, Any] = defaultdict(lambda: {"inputFields": []})
    for column, source in columns:
        name, _, field = source.partition(".")
        fields[column]["inputFields"].append({**named(name), "field": field})
    facets: dict[str, dict[str, Any]] = {
        "symlinks": {"identifiers": [named(other) for other in same]},
        "columnLineage": {"fields": fields},
    }
    return {**named(text), "facets": {key: facet for key, facet in facets.items() if any(facet.values())}}


def event(job: str, reads: Sequence[Any] = (), writes: Sequence[Any] = (), minute: int = 0) -> bytes:
    at = f"2026-01-31T12:{minute:02}:00Z"
    return json.dumps(
        members(f"{job}-{minute}", "COMPLETE", at, job=job, inputs=reads, outputs=writes)
    ).encode()


def reached(home: Path, name: str, *, down: bool) -> dict[str, int]:
    """By name, how many edges away a node is; each is there once, and each edge."""
    found = Lineage.open(home).dependencies(name, up=None, down=None)
    reach: Reach = found.downstream if down else found.upstream
    away = {shown(one.node): one.distance for one in reach.nodes}
    assert len(away) == len(reach.nodes)
    edges = [(edge.source, edge.kind, edge.target) for edge in reach.edges]
    assert len(set(edges)) == len(edges)
    return away


def test_a_column_that_is_renamed_and_back_is_reached_once(home: Path) -> None:
    keep(
        home,
        [
            event("j/there", ["d/people"], [dataset("d/staff", columns=[("id", "d/people.number")])]),
            event("j/rename", ["d/staff"], [dataset("d/staff", columns=[("key", "d/staff.id")])], 1),
            event("j/back", ["d/staff"], [dataset("d/staff", columns=[("id", "d/staff.key")])], 2),
            event("j/on", ["d/staff"], [dataset("d/badge", columns=[("id", "d/staff.id")])], 3),
        ],
    )
    assert reached(home, "d/people.number", down=True) == {"d/staff.id": 1, "d/badge.id": 2, "d/staff.key": 2}
    assert reached(home, "d/badge.id", down=False) == {
        "d/staff.id": 1,
        "d/people.number": 2,
        "d/staff.key": 2,
    }
    assert reached(home, "d/staff.key", down=True) == {"d/staff.id": 1, "d/badge.id": 2}


@pytest.mark.parametrize("order", range(6))
def test_a_dataset_in_three_namespaces_is_one_in_any_order(home: Path, order: int) -> None:
    """Each name names the next one, so that they are a circle."""
    names = ("file/orders", "hive/orders", "s3/orders")
    bodies = [
        event("j/load", [], [dataset(names[0], [names[1]], [("id", "in/raw.id")])]),
        event("j/check", [dataset(names[1], [names[2]])], ["d/report"], 1),
        event(
            "j/show",
            [dataset(names[2], [names[0]])],
            [dataset("d/page", columns=[("id", "s3/orders.id")])],
            2,
        ),
    ]
    keep(home, list(permutations(bodies))[order])
    for name in names:
        assert reached(home, name, down=False) == {"j/load": 1, "in/raw": 2}
        assert reached(home, name, down=True) == {"j/check": 1, "j/show": 1, "d/report": 2, "d/page": 2}
        assert set(reached(home, "d/page.id", down=False).values()) == {1, 2}
    assert reached(home, "in/raw.id", down=True).keys() >= {"d/page.id"}


class Said(NamedTuple):
    """One event: what a job reads and writes, by number, two names of one dataset, and two columns."""

    job: int
    reads: frozenset[int]
    writes: frozenset[int]
    same: frozenset[int]
    column: tuple[int, int] | None


NUMBERS = st.integers(0, 4)
SAID = st.lists(
    st.builds(
        Said,
        st.integers(0, 2),
        st.frozensets(NUMBERS, max_size=2),
        st.frozensets(NUMBERS, max_size=2),
        st.frozensets(NUMBERS, max_size=2),
        st.none() | st.tuples(NUMBERS, NUMBERS),
    ),
    min_size=1,
    max_size=6,
)


class Model:
    """The graph as sets: each dataset is the least number of those that are the same."""

    def __init__(self, said: Sequence[Said]) -> None:
        self.one = list(range(5))
        for _ in self.one:
            for pair in (sorted(each.same) for each in said if len(each.same) == 2):
                least = min(self.one[number] for number in pair)
                self.one = [
                    least if group in [self.one[number] for number in pair] else group for group in self.one
                ]
        self.flows = {
            edge
            for each in said
            for edge in (
                *((self.name(f"d/d{number}"), f"j/j{each.job}") for number in each.reads),
                *((f"j/j{each.job}", self.name(f"d/d{number}")) for number in each.writes),
            )
        }
        self.runs = [
            (
                f"j/j{each.job}",
                {self.name(f"d/d{one}") for one in each.reads},
                {self.name(f"d/d{one}") for one in each.writes},
            )
            for each in said
        ]
        columns = [each.column for each in said if each.column is not None]
        self.columns = {tuple(self.name(f"d/d{number}.x") for number in pair) for pair in columns}
        self.flows |= {(self.name(f"d/d{near}"), self.name(f"d/d{far}")) for near, far in columns}

    def name(self, text: str) -> str:
        """A name of a dataset or its column, by the name that stands for all."""
        return text if text.startswith("j/") else f"d/d{self.one[int(text[3])]}{text[4:]}"

    def reached(self, edges: Iterable[tuple[str, ...]], start: str, *, down: bool) -> dict[str, int]:
        """A breadth-first search, in which each dataset comes to a job of its own."""
        ends = [edge if down else edge[::-1] for edge in edges]
        away, frontier = {(start, ""): 0}, [(start, "")]
        for near, entry in frontier:
            for far in sorted({end for begin, end in ends if begin == near}):
                if entry and not self.is_way(*((entry, near, far) if down else (far, near, entry))):
                    continue
                place = (far, near if far.startswith("j/") else "")
                if place not in away:
                    away[place] = away[near, entry] + 1
                    frontier.append(place)
        nearest: dict[str, int] = {}
        for (name, _), distance in away.items():
            nearest.setdefault(name, distance)
        return {name: distance for name, distance in nearest.items() if distance}

    def is_way(self, source: str, job: str, target: str) -> bool:
        """Whether a run of a job may have read the one and written the other."""
        runs = [(reads, writes) for name, reads, writes in self.runs if name == job]
        pairs = {(read, written) for reads, writes in runs for read in reads for written in writes}
        is_known = source in {read for read, _ in pairs} and target in {written for _, written in pairs}
        return not is_known or (source, target) in pairs


@hypothesis_settings(max_examples=6)
@given(SAID, st.integers(0, 12), st.randoms(use_true_random=False))
def test_names_and_columns_are_the_model_s_in_any_order_and_wherever_events_are(
    tmp_path_factory: pytest.TempPathFactory, said: list[Said], filed: int, chance: random.Random
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("shapes"))
    home = settings.home
    bodies = []
    for minute, (job, reads, writes, same, column) in enumerate(said):
        inputs = [f"d/d{number}" for number in reads]
        outputs: list[Any] = [f"d/d{number}" for number in writes]
        bodies.append(event(f"j/j{job}", inputs, outputs, minute))
        facts = [dataset(f"d/d{one}", [f"d/d{other}"]) for one, other in combinations(sorted(same), 2)]
        if column is not None:
            facts.append(dataset(f"d/d{column[1]}", columns=[("x", f"d/d{column[0]}.x")]))
        bodies += [json.dumps({**OF_DATASET, "dataset": fact}).encode() for fact in facts]
    bodies *= 2
    chance.shuffle(bodies)
    keep_filed(settings, bodies, filed)
    model = Model(said)
    starts = {f"d/d{number}" for each in said for number in each.reads | each.writes}
    starts |= {f"d/d{number}.x" for each in said for number in each.column or ()}
    starts |= {f"j/j{each.job}" for each in said if each.reads or each.writes}
    answers = {}
    for start, down in ((start, down) for start in sorted(starts) for down in (True, False)):
        edges = model.columns if start.endswith(".x") else model.flows
        answers[start, down] = reached(home, start, down=down)
        found = {model.name(name): away for name, away in answers[start, down].items()}
        assert len(found) == len(answers[start, down])
        assert found == model.reached(edges, model.name(start), down=down)
    for path in home.glob("index.db*"):
        path.unlink()
    index(settings)
    assert answers == {(start, down): reached(home, start, down=down) for start, down in answers}


MEASURE = """
import sys, time
from pathlib import Path
from waybill.lineage import Lineage
found = Lineage.open(Path(sys.argv[1])).dependencies("etl/big", up=1, down=1)
# The peak that `getrusage` tells may be the parent's, from before this program was executed.
lines = Path("/proc/self/status").read_text().splitlines()
peak_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
print(len(found.upstream.nodes), len(found.upstream.edges), time.process_time(), peak_kib)
"""


@pytest.mark.exhaustive
def test_a_run_with_very_many_inputs_takes_bounded_time_and_memory(home: Path) -> None:
    reads = [{"namespace": "s3://lake", "name": f"in/{number}"} for number in range(INPUTS)]
    reads += [{"namespace": "s3://lake", "name": f"days/dt={number}"} for number in range(INPUTS // 10)]
    keep(home, [event("etl/big", reads, ["lake/out"])])
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(home)], capture_output=True, text=True, timeout=120, check=True
    )
    found, edges, cpu_s, memory_kib = map(float, done.stdout.split())
    assert (found, edges) == (INPUTS + 1, INPUTS + 1)
    assert cpu_s < 40
    assert memory_kib < 600 * 1024
