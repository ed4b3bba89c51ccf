"""Counting the datasets of an index: which are covered, fresh, complete and accurate, by tier.

SQLite does it, in tables in memory beside the index, so that no dataset becomes an object of Python. Only a
dataset with several names is put together here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.transport.counting import duration_text

from ..graph import (
    AHEAD_US,
    HOUR_US,
    EdgeKind,
    Node,
    Nodes,
    Question,
    as_json,
    list_ends,
    rules_of,
    settle_dataset,
)
from .objectives import TIERS, Field, LevelsFile, Sli

if TYPE_CHECKING:
    from ..graph import Ask
    from .declared import Declared

BREACHES_MAX: Final = 100
"""So many datasets in breach are named."""
SHARE: Final = 0.95
"""A level in seconds is what this share of all keeps to: the 95th percentile."""

_LATELY_HOURS: Final = 30 * 24

_CREATE: Final = """
CREATE TABLE main.sli_job (number INTEGER PRIMARY KEY, last_us INTEGER);
CREATE TABLE main.sli_use (number INTEGER PRIMARY KEY, wrote_us INTEGER, read_us INTEGER, reads INTEGER);
CREATE TABLE main.sli_said (
    number INTEGER PRIMARY KEY, said_owner TEXT, said_schema TEXT, said_description TEXT, said_tags TEXT,
    said_state TEXT
);
CREATE TABLE main.sli_name (
    number INTEGER PRIMARY KEY, one INTEGER, namespace TEXT, name TEXT, is_seen INTEGER DEFAULT 0, tier TEXT,
    owner TEXT, freshness_s REAL, completeness REAL
);
CREATE TABLE main.sli_known (number INTEGER PRIMARY KEY);
CREATE TABLE main.sli_dataset (
    one INTEGER PRIMARY KEY, namespace TEXT, name TEXT, text TEXT, tier TEXT, owner TEXT, is_seen INTEGER,
    is_known INTEGER, told_us INTEGER, reads INTEGER, has_origin INTEGER, is_complete INTEGER, goal_s REAL,
    promises_fields INTEGER, has_fields REAL, needs_fields REAL
);
"""
_DROP: Final = "".join(
    f"DROP TABLE IF EXISTS main.sli_{table};" for table in ("job", "use", "said", "name", "known", "dataset")
)
_SAME: Final = "SELECT DISTINCT source, target FROM all_edge WHERE kind = 'same' ORDER BY 1, 2"
_PUT_SEEN: Final = """
INSERT OR IGNORE INTO main.sli_name (number, namespace, name, is_seen)
SELECT number, namespace, name, 1 FROM all_node WHERE kind = 'dataset'
"""
_NAMES: Final = "SELECT namespace || char(0) || name, number FROM main.sli_name"
_PUT_NAMES: Final = """
INSERT OR IGNORE INTO main.sli_name (number, namespace, name)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)
"""
_PUT_KNOWN: Final = "INSERT OR IGNORE INTO main.sli_known SELECT value FROM json_each(?)"
_PUT_PROMISED: Final = """
INSERT INTO main.sli_name (number, tier, owner, freshness_s, completeness)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?) WHERE true
ON CONFLICT DO UPDATE SET tier = ifnull(tier, excluded.tier), owner = ifnull(owner, excluded.owner),
freshness_s = ifnull(freshness_s, excluded.freshness_s),
completeness = ifnull(completeness, excluded.completeness)
"""
_PUT_ONE: Final = """
INSERT INTO main.sli_name (number, one) SELECT value ->> 0, value ->> 1 FROM json_each(?) WHERE true
ON CONFLICT DO UPDATE SET one = excluded.one
"""
_PUT_JOBS: Final = "INSERT INTO main.sli_job SELECT job, max(last_us) FROM all_job_run GROUP BY job"
# An edge has the hour in which it was told last. If the job's last run was told then, that is when. An event
# of a dataset alone, which has no job, has said what its columns come from.
_PUT_USES: Final = """
INSERT INTO main.sli_use
SELECT dataset, max(told_us) FILTER (WHERE kind = 'write'), max(told_us) FILTER (WHERE kind = 'read'),
    count(DISTINCT job) FILTER (WHERE kind = 'read' AND last_hour >= ?2)
FROM (
    SELECT kind, last_hour, dataset, job, CASE WHEN last_us / 3600000000 = last_hour THEN last_us
        ELSE min((last_hour + 1) * 3600000000, ?1) END AS told_us
    FROM (
        SELECT kind, last_hour, source AS dataset, target AS job FROM all_edge WHERE kind = 'read'
        UNION ALL SELECT kind, last_hour, target, source FROM all_edge WHERE kind = 'write'
        UNION ALL SELECT 'read', last_hour, source, job FROM all_edge WHERE kind = 'feed' AND job = 0
        UNION ALL SELECT 'write', last_hour, dataset, job FROM all_belief WHERE job = 0
    ) LEFT JOIN main.sli_job ON number = job
) GROUP BY dataset
"""
_SAID: Final = {
    "ownership": "value ->> '$.owners[0].name'",
    "schema": "",
    "documentation": "nullif(value ->> '$.description', '')",
    "tags": """iif(json_array_length(value, '$.tags') > 0, ifnull((
        SELECT tag.value ->> 'value' FROM json_each(property.value, '$.tags') AS tag
        WHERE tag.value ->> 'key' = 'tier' AND tag.value ->> 'field' IS NULL LIMIT 1
    ), ''), NULL)""",
    "lifecycleStateChange": "upper(value ->> '$.lifecycleStateChange')",
}
"""By facet, what its JSON says, in the order of the columns of `sli_said`: NULL if it says nothing."""
_PROPERTY: Final = f"""
SELECT node, key, last_us, CASE WHEN key = 'schema' THEN iif(instr(value, '"name"'), 1, NULL)
    WHEN json_valid(value) THEN CASE key
    {" ".join(f"WHEN '{key}' THEN {value}" for key, value in _SAID.items() if value)} END END AS value
FROM {{}}.property WHERE key IN {tuple(_SAID)}
"""  # noqa: S608 - texts of our own
_PUT_SAID: Final = f"""
INSERT INTO main.sli_said
SELECT node, {", ".join(f"max(value) FILTER (WHERE key = '{key}')" for key in _SAID)}
FROM (
    SELECT node, key, value, max(last_us)
    FROM ({_PROPERTY.format("disk")} UNION ALL {_PROPERTY.format("main")}) GROUP BY node, key
) GROUP BY node
"""  # noqa: S608 - texts of our own
_TEXT: Final = """
CASE WHEN substr(name, 1, 1) <> '/' THEN namespace || '/' || name
WHEN instr(namespace, '://') THEN namespace || name
WHEN instr(namespace, ':') THEN namespace || '/' || name
ELSE namespace || ':' || name END
"""
"""A dataset as `dataset_text` names it."""
_HAS: Final = {
    Field.OWNER: "ifnull(said_owner, owner) IS NOT NULL",
    Field.SCHEMA: "said_schema IS NOT NULL",
    Field.CHECKSUM: f"""{_TEXT} IN (
        SELECT value FROM facts WHERE kind = 'input'
        AND did IN (SELECT did FROM facts WHERE kind = 'fingerprint')
    )""",  # noqa: S608 - texts of our own
    Field.DESCRIPTION: "said_description IS NOT NULL",
    Field.TAGS: "said_tags IS NOT NULL",
    Field.VERSION: "number IN (SELECT source FROM all_edge WHERE kind = 'version')",
}
"""By field, whether a name of a dataset has it."""
_MERGED: Final = {
    **dict.fromkeys(("namespace", "name"), "max({0}) FILTER (WHERE number = one)"),
    **dict.fromkeys(("tier", "freshness_s"), "min({0})"),
    "reads": "sum({0})",
    **dict.fromkeys(("is_seen", "is_known", "owner", "completeness", "wrote_us", "read_us"), "max({0})"),
    **dict.fromkeys(("said_owner", "said_tags", "said_state"), "max({0})"),
}
"""What is told of a dataset, by each of its names, and what that is of all of them."""
_PUT_DATASETS: Final = f"""
WITH told AS NOT MATERIALIZED (
    SELECT *, number IN main.sli_known AS is_known, {{has}}
    FROM main.sli_name LEFT JOIN main.sli_use USING (number) LEFT JOIN main.sli_said USING (number)
)
INSERT INTO main.sli_dataset
SELECT number, namespace, name, text, now_tier, ifnull(said_owner, owner), is_seen, is_known,
    ifnull(wrote_us, read_us), reads, wrote_us IS NOT NULL OR {{external}},
    is_seen AND {{fields}} >= {{required}} * ifnull(completeness, 1),
    ifnull(freshness_s, CASE now_tier {{goals}} END), completeness IS NOT NULL,
    {{fields}} * 1.0 / {{required}}, ifnull(completeness, 1)
FROM (
    SELECT *, CASE {{tiers}} WHEN said_tags IN {TIERS} THEN said_tags
        ELSE ifnull(tier, 'important') END AS now_tier
    FROM (
        SELECT *, {_TEXT} AS text FROM (
            SELECT number, {", ".join(_MERGED)}, {{columns}} FROM told WHERE one IS NULL
            UNION ALL
            SELECT one, {", ".join(how.format(column) for column, how in _MERGED.items())}, {{merged}}
            FROM told WHERE one IS NOT NULL GROUP BY one
        ) WHERE said_state IS NOT 'DROP'
    )
)
"""  # noqa: S608 - texts of our own
_AGE_S: Final = f"iif(told_us - ?1 BETWEEN 0 AND {AHEAD_US}, 0, ?1 - told_us) / 1e6"
"""The age of a dataset; a clock may be ahead a little, and what is negative is never fresh."""
_COUNT: Final = f"""
SELECT tier, count(*) FILTER (WHERE is_known AND told_us), sum(is_known),
    count(*) FILTER (WHERE {_AGE_S} BETWEEN 0 AND goal_s), count(*) FILTER (WHERE told_us + goal_s),
    sum(is_complete), sum(is_seen), sum(reads) FILTER (WHERE has_origin), sum(reads), count(told_us)
FROM main.sli_dataset GROUP BY tier
"""  # noqa: S608 - texts of our own
_AGES: Final = f"""
SELECT {_AGE_S} AS age_s, goal_s FROM main.sli_dataset
WHERE tier = ?2 AND told_us AND (goal_s OR NOT ?3) ORDER BY age_s / ifnull(goal_s, 1) LIMIT 1 OFFSET ?4
"""  # noqa: S608 - texts of our own
"""The age of the dataset at a place in the order of how late they are, by what is promised of each."""
_BAD: Final = {
    Sli.COVERAGE: ("is_known AND told_us IS NULL AND tier IN ({})", "NULL", "NULL"),
    Sli.FRESHNESS: (f"goal_s AND {_AGE_S} NOT BETWEEN 0 AND goal_s", _AGE_S, "goal_s"),
    Sli.COMPLETENESS: (
        "is_seen AND NOT is_complete AND (promises_fields OR tier IN ({}))", "has_fields", "needs_fields"
    ),
    Sli.MISSING_PROVENANCE: ("reads AND NOT has_origin AND tier IN ({})", "NULL", "NULL"),
}  # fmt: skip
"""By level, when a dataset is in breach, if something is promised of some tiers; its value and objective."""
_IN_BREACH: Final = """
SELECT sli, tier, ifnull(owner, ''), namespace, name, value, objective, count(*) OVER () FROM ({})
ORDER BY CASE tier WHEN 'critical' THEN 1 WHEN 'important' THEN 2 ELSE 3 END, place, text LIMIT ?2
"""
_AHEAD: Final = f"""
SELECT dataset.tier, count(DISTINCT dataset.one) FROM (
    SELECT wrote.target AS number, received_us FROM all_ahead JOIN all_node AS job USING (namespace, name)
    LEFT JOIN all_edge AS part ON part.source = job.number AND part.kind = 'contain'
    JOIN all_edge AS wrote ON wrote.source IN (job.number, part.target) AND wrote.kind = 'write'
    JOIN main.sli_job ON sli_job.number = wrote.source WHERE job.kind = 'job' AND last_us <= received_us
    UNION ALL SELECT number, (received_us / {HOUR_US} + 1) * {HOUR_US}
    FROM all_ahead JOIN all_node AS node USING (namespace, name) WHERE node.kind = 'dataset'
)
JOIN main.sli_name USING (number)
JOIN main.sli_dataset AS dataset ON dataset.one = ifnull(sli_name.one, number)
WHERE told_us <= received_us GROUP BY 1
"""  # noqa: S608 - texts of our own
"""By tier, the datasets of which an event was told last whose sender's clock was ahead."""
_TIERS: Final = """
SELECT number, dataset.tier FROM json_each(?) JOIN main.sli_name ON number = value
JOIN main.sli_dataset AS dataset ON dataset.one = ifnull(sli_name.one, number)
"""
_ANALYZED: Final = """
SELECT dataset.tier, sum(is_seen_otherwise), count(*) FROM (
    SELECT DISTINCT source, kind, target,
        CASE kind WHEN 'read' THEN source WHEN 'write' THEN target ELSE scope END AS end,
        EXISTS (
            SELECT 1 FROM all_edge AS other WHERE other.source = found.source AND other.kind = found.kind
            AND other.target = found.target AND other.analyzer <> ?1
        ) AS is_seen_otherwise
    FROM all_edge AS found WHERE analyzer = ?1 AND kind IN ('read', 'write', 'derive')
)
JOIN main.sli_name ON number = end
JOIN main.sli_dataset AS dataset ON dataset.one = ifnull(sli_name.one, number) GROUP BY 1
"""

Counted = tuple[float, float]
"""How many are good, and how many there are."""


class Breach(msgspec.Struct, frozen=True):
    """A dataset that misses what is promised of its tier, or in its package's manifest.

    Attributes:
        sli: the level.
        tier: of the dataset.
        owner: its first owner; empty: none is known.
        namespace: of the dataset.
        dataset: its name.
        value: its own, in the level's unit; None: of the level, one dataset has none.
        objective: what is promised of it, in the same unit.
    """

    sli: Sli
    tier: str
    owner: str
    namespace: str
    dataset: str
    value: float | None = None
    objective: float | None = None

    @property
    def missed(self) -> str:
        """What it misses, as people read it; empty if nothing is promised of it alone."""
        if self.value is None or self.objective is None:
            return ""
        if self.sli is Sli.FRESHNESS:
            return f"{duration_text(self.value)} old, more than {duration_text(self.objective)}"
        return f"{self.value:.0%} of the required fields, less than {self.objective:.0%}"


class DatasetCounts(NamedTuple):
    """What was counted of the datasets.

    Attributes:
        counts: by level and tier, how many are good, and how many there are.
        ages_s: by tier, the age of the dataset than which 95 % are no later, and what is promised of it, in
            seconds; None: nothing is promised of any.
        ahead: by tier, how many datasets were told of last by a sender whose clock was ahead.
        breaches: datasets in breach, the critical ones first, at most `BREACHES_MAX`.
        in_breach: how often datasets are in breach.
    """

    counts: dict[tuple[Sli, str], Counted]
    ages_s: dict[str, tuple[float, float | None]]
    ahead: dict[str, int]
    breaches: tuple[Breach, ...]
    in_breach: int


class OfLevels(Question[DatasetCounts], frozen=True):
    """The levels of the datasets of an index.

    Attributes:
        file: what is promised.
        declared: what there should be.
        now_ms: as of when, in epoch milliseconds.
    """

    file: LevelsFile
    declared: Declared
    now_ms: int

    def find(self, ask: Ask) -> DatasetCounts:
        """Find the answer."""
        ask(_DROP, ())
        try:
            return _Counting(ask, self).count()
        finally:
            ask(_DROP, ())


class _Counting:
    def __init__(self, ask: Ask, asked: OfLevels) -> None:
        self._ask = ask
        self._file, self._declared = asked.file, asked.declared
        self._now_us = asked.now_ms * 1_000
        self._rules = rules_of(ask)

    def count(self) -> DatasetCounts:
        ask = self._ask
        ask(_CREATE, ())
        flows = [tuple(map(self._end_of, flow)) for flow in self._declared.flows]
        self._put_names(end[1] for flow in flows for end in flow)
        self._put_uses()
        self._put_datasets()
        counts: dict[tuple[Sli, str], Counted] = {}
        ages_s: dict[str, tuple[float, float | None]] = {}
        for tier, *numbers, told in ask(_COUNT, (self._now_us,)):
            promised = numbers[3]
            for age in ask(_AGES, (self._now_us, tier, promised, place_of(promised or told))):
                ages_s[tier] = age
            pairs = zip(_BAD, numbers[::2], numbers[1::2], strict=True)
            counts |= {(sli, tier): (good or 0, total or 0) for sli, good, total in pairs}
        for tier, seen, expected in self._count_flows(flows):
            good, total = counts.get((Sli.ACCURACY, tier), (0, 0))
            counts[Sli.ACCURACY, tier] = (good + seen, total + expected)
        breaches = ask(_IN_BREACH.format(" UNION ALL ".join(self._bad())), (self._now_us, BREACHES_MAX))
        return DatasetCounts(
            counts,
            ages_s,
            dict(ask(_AHEAD, ())),
            tuple(Breach(Sli(sli), *rest) for sli, *rest, _ in breaches),
            breaches[0][-1] if breaches else 0,
        )

    def _put_names(self, ends: Iterable[Node]) -> None:
        """Put all names of datasets: of the index, of the inventory, and where expected edges end."""
        ask, declared = self._ask, self._declared.datasets
        ask(_PUT_SEEN, ())
        seen: dict[str, int] = dict(ask(_NAMES, ())) if declared else {}
        named, known, promised = list(ends), list[int](), list[tuple[object, ...]]()
        for one in declared:
            number = seen.get(f"{one.namespace}\0{one.name}")
            if number is None:  # rules for names take longer
                named.append(settle_dataset(one.namespace, one.name, self._rules))
                number = named[-1].number
            known.append(number)
            if any(promises := (one.tier, one.owner, one.freshness_s, one.completeness)):
                promised.append((number, *promises))
        ask(_PUT_NAMES, (as_json((one.number, one.namespace, one.name) for one in named),))
        ask(_PUT_KNOWN, (as_json(sorted(known)),))
        ask(_PUT_PROMISED, (as_json(promised),))
        ask(_PUT_ONE, (as_json(_groups(ask(_SAME, ())).items()),))

    def _put_uses(self) -> None:
        """Put when jobs wrote and read the datasets, or events said what these come from."""
        self._ask(_PUT_JOBS, ())
        self._ask(_PUT_USES, (self._now_us, self._now_us // HOUR_US - _LATELY_HOURS))
        self._ask(_PUT_SAID, ())

    def _put_datasets(self) -> None:
        promised, required = self._file.objectives, {one: f"has_{one}" for one in self._file.required}
        ages_s = ((tier, promised.of(Sli.FRESHNESS, tier)) for tier in TIERS)
        statement = _PUT_DATASETS.format(
            has=", ".join(f"{_HAS[one]} AS {column}" for one, column in required.items()),
            columns=", ".join(required.values()),
            merged=", ".join(f"max({column})" for column in required.values()),
            fields=f"({' + '.join(required.values())})",
            required=len(required),
            external=" OR ".join("text GLOB ?" for _ in self._file.external) or "0",
            goals="".join(f" WHEN '{tier}' THEN {goal_s or 'NULL'}" for tier, goal_s in ages_s),
            tiers="".join(" WHEN text GLOB ? THEN ?" for _ in self._file.tiers),
        )
        patterns = [text for rule in self._file.tiers for text in (rule.datasets, rule.tier)]
        self._ask(statement, (*self._file.external, *patterns))

    def _bad(self) -> Iterator[str]:
        for place, (sli, (condition, *told)) in enumerate(_BAD.items()):
            tiers = [tier for tier in TIERS if self._file.objectives.of(sli, tier) is not None]
            where = condition.format(", ".join(f"'{tier}'" for tier in tiers))
            names = "{} AS value, {} AS objective".format(*told)
            yield f"SELECT {place} AS place, '{sli}' AS sli, *, {names} FROM main.sli_dataset WHERE {where}"  # noqa: S608

    def _count_flows(self, flows: list[tuple[_End, ...]]) -> Iterator[tuple[str, int, int]]:
        """By tier, how many expected edges are seen, and how many there are."""
        tiers: dict[int, str] = dict(
            self._ask(_TIERS, (as_json({target.number for _, (_, target) in flows}),))
        )
        nodes = Nodes(self._ask)
        nodes.take(node for flow in flows for end in flow for node in end)
        seen = self._seen(nodes, flows)
        for (source, _), (target, dataset) in flows:
            if (tier := tiers.get(dataset.number)) is not None:
                yield tier, (nodes.one[source.number], nodes.one[target.number]) in seen, 1
        if self._file.expected.analyzer is not None:
            yield from self._ask(_ANALYZED, (self._file.expected.analyzer,))

    def _seen(self, nodes: Nodes, flows: list[tuple[_End, ...]]) -> set[tuple[int, int]]:
        """What the graph has between the ends of expected edges, by a job or between columns."""
        one = nodes.one
        names = nodes.of(one[target.number] for _, (target, _) in flows)
        wrote = list_ends(self._ask, "target", names, EdgeKind.WRITE)
        read = defaultdict[int, set[int]](set)
        for dataset, job in list_ends(self._ask, "target", {job for job, _ in wrote}, EdgeKind.READ):
            read[job].add(one.get(dataset, dataset))
        seen = {(source, one[target]) for job, target in wrote for source in read[job]}
        sources = nodes.of(one[source.number] for (source, _), _ in flows)
        for kind in (EdgeKind.DERIVE, EdgeKind.INFLUENCE, EdgeKind.FEED):
            ends = list_ends(self._ask, "source", sources, kind)
            nodes.settle(target for _, target in ends)
            for source, target in ends:
                seen |= {(one[source], one[target]), (one[source], nodes.dataset_of(target))}
        return seen

    def _end_of(self, end: tuple[str, str, str]) -> _End:
        """A dataset or column at the end of an expected edge, and the dataset itself."""
        dataset = settle_dataset(*end[:2], self._rules)
        return (dataset.with_column(end[2]) if end[2] else dataset), dataset


_End = tuple[Node, Node]


def place_of(count: int) -> int:
    """The place of the 95th percentile of some values in their order, from 0."""
    return (count * 95 + 99) // 100 - 1


def _groups(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """By name of a dataset with several, the one that stands for all of them."""
    one: dict[int, int] = {}

    def first_of(number: int) -> int:
        while (above := one.setdefault(number, number)) != number:
            one[number] = number = one[above]
        return number

    for source, target in pairs:
        one[first_of(target)] = first_of(source)
    return {number: first_of(number) for number in [*one]}
