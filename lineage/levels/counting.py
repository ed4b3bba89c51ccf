"""Counting the datasets of an index: which are covered, fresh, complete and accurate, by tier.

SQLite does it, in tables in memory beside the index, so that no dataset becomes an object of Python. Only a
dataset with several names is put together here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ..graph import HOUR_US, EdgeKind, Node, Nodes, Question, as_json, list_ends, settle_dataset
from .objectives import TIERS, Field, LevelsFile, Sli

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..graph import Ask
    from .declared import Declared

BREACHES_MAX: Final = 100
"""So many datasets in breach are named."""
SHARE: Final = 0.95
"""A level in seconds is what this share of all keeps to: the 95th percentile."""

_SCHEMAS: Final = ("disk", "main")
_LATELY_HOURS: Final = 30 * 24

_CREATE: Final = """
CREATE TABLE main.sli_job (number INTEGER PRIMARY KEY, last_us INTEGER);
CREATE TABLE main.sli_name (
    number INTEGER PRIMARY KEY, one INTEGER, namespace TEXT, name TEXT, is_seen INTEGER DEFAULT 0,
    is_known INTEGER DEFAULT 0, tier TEXT, owner TEXT, freshness_s REAL, completeness REAL, wrote_us INTEGER,
    read_us INTEGER, reads INTEGER DEFAULT 0, said_ownership TEXT, said_schema TEXT, said_documentation TEXT,
    said_tags TEXT, "said_lifecycleStateChange" TEXT, said_version TEXT, said_checksum TEXT
);
CREATE TABLE main.sli_dataset (
    one INTEGER PRIMARY KEY, namespace TEXT, name TEXT, text TEXT, tier TEXT, owner TEXT, is_seen INTEGER,
    is_known INTEGER, told_us INTEGER, reads INTEGER, has_origin INTEGER, is_complete INTEGER, goal_s REAL,
    promises_fields INTEGER
);
"""
_DROP: Final = "".join(f"DROP TABLE IF EXISTS main.sli_{table};" for table in ("job", "name", "dataset"))
_SAME: Final = "SELECT DISTINCT source, target FROM all_edge WHERE kind = 'same' ORDER BY 1, 2"
_PUT_SEEN: Final = """
INSERT OR IGNORE INTO main.sli_name (number, namespace, name, is_seen)
SELECT number, namespace, name, 1 FROM {0}.node WHERE kind = 'dataset'
"""
_PUT_DECLARED: Final = """
INSERT INTO main.sli_name (
    number, namespace, name, is_known, tier, owner, freshness_s, completeness
)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
FROM json_each(?) WHERE true
ON CONFLICT DO UPDATE SET is_known = max(is_known, excluded.is_known),
tier = ifnull(tier, excluded.tier), owner = ifnull(owner, excluded.owner),
freshness_s = ifnull(freshness_s, excluded.freshness_s),
completeness = ifnull(completeness, excluded.completeness)
"""
_PUT_ONE: Final = """
INSERT INTO main.sli_name (number, one) SELECT value ->> 0, value ->> 1 FROM json_each(?) WHERE true
ON CONFLICT DO UPDATE SET one = excluded.one
"""
_PUT_DERIVED: Final = """
INSERT INTO main.sli_name (number, wrote_us)
SELECT dataset, min((max(last_hour) + 1) * 3600000000, ?) FROM {0}.belief WHERE job = 0 GROUP BY dataset
ON CONFLICT DO UPDATE SET wrote_us = max(ifnull(wrote_us, 0), excluded.wrote_us)
"""
"""An event of a dataset alone has said what its columns come from."""
_PUT_JOBS: Final = """
INSERT INTO main.sli_job SELECT job, max(last_us) FROM {0}.job_run WHERE true GROUP BY job
ON CONFLICT DO UPDATE SET last_us = max(last_us, excluded.last_us)
"""
# An edge has the hour in which it was told last. If the job's last run was told then, that is when.
_PUT_USES: Final = """
INSERT INTO main.sli_name (number, wrote_us, read_us, reads)
SELECT dataset, max(told_us) FILTER (WHERE kind = 'write'), max(told_us) FILTER (WHERE kind = 'read'),
    count(DISTINCT job) FILTER (WHERE kind = 'read' AND last_hour >= ?2 AND is_new)
FROM (
    SELECT kind, last_hour, dataset, job, is_new, CASE WHEN last_us / 3600000000 = last_hour THEN last_us
        ELSE min((last_hour + 1) * 3600000000, ?1) END AS told_us
    FROM (
        SELECT kind, last_hour, CASE kind WHEN 'read' THEN source ELSE target END AS dataset,
            CASE kind WHEN 'read' THEN target ELSE source END AS job, {1} AS is_new
        FROM {0}.edge AS told WHERE kind IN ('read', 'write')
    ) LEFT JOIN main.sli_job ON number = job
) GROUP BY dataset
ON CONFLICT DO UPDATE SET wrote_us = nullif(max(ifnull(wrote_us, 0), ifnull(excluded.wrote_us, 0)), 0),
read_us = nullif(max(ifnull(read_us, 0), ifnull(excluded.read_us, 0)), 0), reads = reads + excluded.reads
"""
_IS_NEW: Final = {
    "disk": "1",
    "main": """NOT EXISTS (
        SELECT 1 FROM disk.edge WHERE edge.source = told.source AND edge.kind = told.kind
        AND edge.target = told.target AND edge.last_hour >= ?2
    )""",
}
_LAST_SAID: Final = "SELECT node, {1} AS value, last_us FROM {0}.property WHERE key = '{2}'"
_PUT_SAID: Final = f"""
UPDATE main.sli_name SET "said_{{2}}" = said.value FROM (
    SELECT node, value, max(last_us) FROM (
        {_LAST_SAID.format("disk", "{1}", "{2}")} UNION ALL {_LAST_SAID.format("main", "{1}", "{2}")}
    ) GROUP BY node
) AS said WHERE said.node = number
"""  # noqa: S608 - texts of our own
_SAID: Final = {
    "ownership": "iif(json_valid(value), value ->> '$.owners[0].name', NULL)",
    "schema": "iif(instr(value, '\"name\"'), 1, NULL)",
    "documentation": "iif(json_valid(value), nullif(value ->> '$.description', ''), NULL)",
    "lifecycleStateChange": "iif(json_valid(value), upper(value ->> '$.lifecycleStateChange'), NULL)",
    "tags": """CASE WHEN json_valid(value) AND json_array_length(value, '$.tags') > 0 THEN ifnull((
        SELECT tag.value ->> 'value' FROM json_each(property.value, '$.tags') AS tag
        WHERE tag.value ->> 'key' = 'tier' AND tag.value ->> 'field' IS NULL LIMIT 1
    ), '') END""",
}
"""By facet, what its JSON says: NULL if it says nothing."""
_TEXT: Final = """
CASE WHEN name NOT LIKE '/%' THEN namespace || '/' || name
WHEN instr(namespace, '://') THEN namespace || name
WHEN instr(namespace, ':') THEN namespace || '/' || name
ELSE namespace || ':' || name END
"""
"""A dataset as `dataset_text` names it."""
_BY: Final = {"reads": "sum", "freshness_s": "min", "tier": "min"}
_PUT_VERSIONS: Final = """
UPDATE main.sli_name SET said_version = 1
WHERE number IN (SELECT source FROM all_edge WHERE kind = 'version')
"""
_PUT_CHECKSUMS: Final = f"""
UPDATE main.sli_name SET said_checksum = 1 WHERE {_TEXT} IN (
    SELECT value FROM facts WHERE kind = 'input' AND did IN (SELECT did FROM facts WHERE kind = 'fingerprint')
)
"""  # noqa: S608 - texts of our own
_COLUMNS: Final = {
    Field.OWNER: "ifnull(said_ownership, owner)",
    Field.SCHEMA: "said_schema",
    Field.CHECKSUM: "said_checksum",
    Field.DESCRIPTION: "said_documentation",
    Field.TAGS: "said_tags",
    Field.VERSION: "said_version",
}
_MERGED: Final = (
    *("is_seen", "is_known", "tier", "owner", "freshness_s", "completeness", "wrote_us", "read_us", "reads"),
    *(f'"said_{key}"' for key in (*_SAID, "version", "checksum")),
)
_MERGE: Final = f"""
INSERT INTO main.sli_name (number, {", ".join(_MERGED)})
SELECT one, {", ".join(f"{_BY.get(column, 'max')}({column})" for column in _MERGED)}
FROM main.sli_name WHERE one IS NOT NULL GROUP BY one
ON CONFLICT DO UPDATE SET {", ".join(f"{column} = excluded.{column}" for column in _MERGED)}
"""  # noqa: S608 - texts of our own
"""Of a dataset with several names, one row has all that is told of it."""
_PUT_DATASETS: Final = f"""
INSERT INTO main.sli_dataset
SELECT number, namespace, name, text, now_tier, ifnull(said_ownership, owner), is_seen, is_known,
    ifnull(wrote_us, read_us), reads, wrote_us IS NOT NULL OR {{external}},
    is_seen AND {{fields}} >= {{required}} * ifnull(completeness, 1),
    ifnull(freshness_s, CASE now_tier {{goals}} END), completeness IS NOT NULL
FROM (
    SELECT *, CASE {{tiers}} WHEN said_tags IN {TIERS} THEN said_tags
        ELSE ifnull(tier, 'important') END AS now_tier
    FROM (
        SELECT *, {_TEXT} AS text FROM main.sli_name
        WHERE (one IS NULL OR one = number) AND "said_lifecycleStateChange" IS NOT 'DROP'
    )
)
"""  # noqa: S608 - texts of our own
_COUNT: Final = """
SELECT tier, count(*) FILTER (WHERE is_known AND told_us), sum(is_known),
    count(*) FILTER (WHERE (?1 - told_us) / 1e6 <= goal_s), count(*) FILTER (WHERE told_us + goal_s),
    sum(is_complete), sum(is_seen), sum(reads) FILTER (WHERE has_origin), sum(reads), count(told_us)
FROM main.sli_dataset GROUP BY tier
"""
_TOLD: Final = """
SELECT told_us FROM main.sli_dataset WHERE tier = ? AND told_us ORDER BY told_us DESC LIMIT 1 OFFSET ?
"""
_BAD: Final = {
    Sli.COVERAGE: "is_known AND told_us IS NULL AND tier IN ({})",
    Sli.FRESHNESS: "(?1 - told_us) / 1e6 > goal_s",
    Sli.COMPLETENESS: "is_seen AND NOT is_complete AND (promises_fields OR tier IN ({}))",
    Sli.MISSING_PROVENANCE: "reads AND NOT has_origin AND tier IN ({})",
}
"""By level, when a dataset is in breach, if something is promised of some tiers."""
_IN_BREACH: Final = """
SELECT sli, tier, ifnull(owner, ''), namespace, name, count(*) OVER () FROM ({})
ORDER BY CASE tier WHEN 'critical' THEN 1 WHEN 'important' THEN 2 ELSE 3 END, place, text LIMIT ?2
"""
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
    """

    sli: Sli
    tier: str
    owner: str
    namespace: str
    dataset: str


class DatasetCounts(NamedTuple):
    """What was counted of the datasets.

    Attributes:
        counts: by level and tier, how many are good, and how many there are.
        ages_s: by tier, the age that 95 % of the datasets do not exceed, in seconds.
        breaches: datasets in breach, the critical ones first, at most `BREACHES_MAX`.
        in_breach: how often datasets are in breach.
    """

    counts: dict[tuple[Sli, str], Counted]
    ages_s: dict[str, float]
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
        self._rules = tuple(rule for (rule,) in ask("SELECT rule FROM disk.trimmer ORDER BY rowid", ()))

    def count(self) -> DatasetCounts:
        ask = self._ask
        ask(_CREATE, ())
        flows = [tuple(map(self._end_of, flow)) for flow in self._declared.flows]
        self._put_names(end[1] for flow in flows for end in flow)
        self._put_uses()
        self._put_said()
        self._put_datasets()
        counts: dict[tuple[Sli, str], Counted] = {}
        ages_s: dict[str, float] = {}
        for tier, *numbers, told in ask(_COUNT, (self._now_us,)):
            for (told_us,) in ask(_TOLD, (tier, place_of(told))):
                ages_s[tier] = (self._now_us - told_us) / 1e6
            pairs = zip(_BAD, numbers[::2], numbers[1::2], strict=True)
            counts |= {(sli, tier): (good or 0, total or 0) for sli, good, total in pairs}
        for tier, seen, expected in self._count_flows(flows):
            good, total = counts.get((Sli.ACCURACY, tier), (0, 0))
            counts[Sli.ACCURACY, tier] = (good + seen, total + expected)
        breaches = ask(_IN_BREACH.format(" UNION ALL ".join(self._bad())), (self._now_us, BREACHES_MAX))
        return DatasetCounts(
            counts,
            ages_s,
            tuple(Breach(Sli(sli), *rest) for sli, *rest, _ in breaches),
            breaches[0][-1] if breaches else 0,
        )

    def _put_names(self, ends: Iterable[Node]) -> None:
        """Put all names of datasets: of the index, of the inventory, and where expected edges end."""
        for schema in _SCHEMAS:
            self._ask(_PUT_SEEN.format(schema), ())
        rows: list[tuple[object, ...]] = [
            (one.number, one.namespace, one.name, 0, None, None, None, None) for one in ends
        ]
        for one in self._declared.datasets:
            node = settle_dataset(one.namespace, one.name, self._rules)
            promised = (one.tier, one.owner, one.freshness_s, one.completeness)
            rows.append((node.number, node.namespace, node.name, 1, *promised))
        self._ask(_PUT_DECLARED, (as_json(rows),))
        self._ask(_PUT_ONE, (as_json(_groups(self._ask(_SAME, ())).items()),))

    def _put_uses(self) -> None:
        """Put when jobs wrote and read the datasets, or events said what these come from."""
        since_hour = self._now_us // HOUR_US - _LATELY_HOURS
        for schema in _SCHEMAS:
            self._ask(_PUT_JOBS.format(schema), ())
        for schema in _SCHEMAS:
            self._ask(_PUT_USES.format(schema, _IS_NEW[schema]), (self._now_us, since_hour))
            self._ask(_PUT_DERIVED.format(schema), (self._now_us,))

    def _put_said(self) -> None:
        for key, value in _SAID.items():
            self._ask(_PUT_SAID.format("", value, key), ())
        if Field.VERSION in self._file.required:
            self._ask(_PUT_VERSIONS, ())
        if Field.CHECKSUM in self._file.required:
            self._ask(_PUT_CHECKSUMS, ())

    def _put_datasets(self) -> None:
        required, promised = {*self._file.required}, self._file.objectives
        ages_s = ((tier, promised.of(Sli.FRESHNESS, tier)) for tier in TIERS)
        statement = _PUT_DATASETS.format(
            external=" OR ".join("text GLOB ?" for _ in self._file.external) or "0",
            required=len(required),
            goals="".join(f" WHEN '{tier}' THEN {goal_s or 'NULL'}" for tier, goal_s in ages_s),
            tiers="".join(" WHEN text GLOB ? THEN ?" for _ in self._file.tiers),
            fields=f"({' + '.join(f'({_COLUMNS[one]} IS NOT NULL)' for one in sorted(required))})",
        )
        self._ask(_MERGE, ())
        patterns = [text for rule in self._file.tiers for text in (rule.datasets, rule.tier)]
        self._ask(statement, (*self._file.external, *patterns))

    def _bad(self) -> Iterator[str]:
        for place, (sli, condition) in enumerate(_BAD.items()):
            tiers = [tier for tier in TIERS if self._file.objectives.of(sli, tier) is not None]
            where = condition.format(", ".join(f"'{tier}'" for tier in tiers))
            yield f"SELECT {place} AS place, '{sli}' AS sli, * FROM main.sli_dataset WHERE {where}"  # noqa: S608

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
