"""Counting the datasets of an index: which are covered, fresh, complete and accurate, by tier.

SQLite does it, in tables in memory beside the index, so that no dataset becomes an object of Python. Only a
dataset with several names is put together here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ..graph import Node, NodeKind, Question, as_json, settle_dataset
from .objectives import TIERS, Field, LevelsFile, Sli

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..graph import Ask
    from .declared import Declared, ExpectedFlow

BREACHES_MAX: Final = 100
"""So many datasets in breach are named."""
SHARE: Final = 0.95
"""A level in seconds is what this share of all keeps to: the 95th percentile."""

_READ_LATELY_HOURS: Final = 30 * 24
_SCHEMAS: Final = ("disk", "main")

_TABLES: Final = ("goal", "name", "known", "dataset", "job", "used", "said", "level")
_CREATE: Final = """
CREATE TABLE main.sli_goal (sli TEXT, tier TEXT, goal REAL, PRIMARY KEY (sli, tier));
CREATE TABLE main.sli_name (number INTEGER PRIMARY KEY, one INTEGER);
CREATE TABLE main.sli_known (
    number INTEGER PRIMARY KEY, tier TEXT, owner TEXT, freshness_s REAL, completeness REAL
);
CREATE TABLE main.sli_dataset (number INTEGER PRIMARY KEY, namespace TEXT, name TEXT, is_seen INTEGER);
CREATE TABLE main.sli_job (number INTEGER PRIMARY KEY, last_us INTEGER);
CREATE TABLE main.sli_used (
    number INTEGER PRIMARY KEY, wrote_us INTEGER, read_us INTEGER, reads INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE main.sli_said (
    number INTEGER, key TEXT, value, last_us INTEGER, PRIMARY KEY (number, key)
) WITHOUT ROWID;
CREATE TABLE main.sli_level (
    one INTEGER PRIMARY KEY, namespace TEXT, name TEXT, text TEXT, tier TEXT, owner TEXT, is_known INTEGER,
    is_seen INTEGER, wrote_us INTEGER, told_us INTEGER, reads INTEGER, fields INTEGER, freshness_s REAL,
    completeness REAL, is_external INTEGER
);
"""
_DROP: Final = "".join(f"DROP TABLE IF EXISTS main.sli_{table};" for table in _TABLES)
_RULES: Final = "SELECT rule FROM disk.trimmer ORDER BY rowid"
_SAME: Final = "SELECT DISTINCT source, target FROM all_edge WHERE kind = 'same' ORDER BY 1, 2"

_PUT_GOALS: Final = "INSERT INTO main.sli_goal SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)"
_PUT_NAMES: Final = "INSERT INTO main.sli_name SELECT value ->> 0, value ->> 1 FROM json_each(?)"
_PUT_DECLARED: Final = """
INSERT OR IGNORE INTO main.sli_dataset SELECT value ->> 0, value ->> 1, value ->> 2, 0 FROM json_each(?)
"""
_PUT_KNOWN: Final = """
INSERT INTO main.sli_known
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?) WHERE true
ON CONFLICT DO UPDATE SET tier = ifnull(tier, excluded.tier), owner = ifnull(owner, excluded.owner),
freshness_s = min(ifnull(freshness_s, excluded.freshness_s), ifnull(excluded.freshness_s, freshness_s)),
completeness = max(ifnull(completeness, excluded.completeness), ifnull(excluded.completeness, completeness))
"""
_PUT_SEEN: Final = """
INSERT OR REPLACE INTO main.sli_dataset
SELECT number, namespace, name, 1 FROM {0}.node WHERE kind = 'dataset'
"""
_PUT_JOBS: Final = """
INSERT INTO main.sli_job SELECT job, max(last_us) FROM {0}.job_run WHERE true GROUP BY job
ON CONFLICT DO UPDATE SET last_us = max(last_us, excluded.last_us)
"""
# An edge has the hour in which it was told last. If the job's last run was told then, that is when.
_TOLD: Final = """
max(CASE WHEN last_us / 3600000000 = last_hour THEN last_us ELSE min((last_hour + 1) * 3600000000, ?1) END)
"""
_PUT_WRITTEN: Final = f"""
INSERT INTO main.sli_used (number, wrote_us)
SELECT target, {_TOLD} FROM {{0}}.edge LEFT JOIN main.sli_job ON number = source
WHERE kind = 'write' GROUP BY target
ON CONFLICT DO UPDATE SET wrote_us = max(ifnull(wrote_us, 0), excluded.wrote_us)
"""  # noqa: S608 - texts of our own
_PUT_READ: Final = f"""
INSERT INTO main.sli_used (number, read_us, reads)
SELECT source, {_TOLD}, count(DISTINCT target) FILTER (WHERE last_hour >= ?2 {{1}})
FROM {{0}}.edge AS told LEFT JOIN main.sli_job ON number = target
WHERE kind = 'read' GROUP BY source
ON CONFLICT DO UPDATE
SET read_us = max(ifnull(read_us, 0), excluded.read_us), reads = reads + excluded.reads
"""  # noqa: S608 - texts of our own
_NOT_ON_DISK: Final = """
AND NOT EXISTS (
    SELECT 1 FROM disk.edge AS known
    WHERE known.source = told.source AND known.kind = 'read' AND known.target = told.target
    AND known.last_hour >= ?2
)
"""
_PUT_DERIVED: Final = """
INSERT INTO main.sli_used (number, {2})
SELECT dataset.number, max(min((edge.last_hour + 1) * 3600000000, ?)) FROM {0}.edge
JOIN {0}.node AS part ON part.number = edge.{1}
JOIN {0}.node AS dataset
ON dataset.name = part.name AND dataset.namespace = part.namespace AND dataset.kind = 'dataset'
WHERE edge.job = 0 AND edge.kind IN ('derive', 'influence', 'feed') GROUP BY dataset.number
ON CONFLICT DO UPDATE SET {2} = max(ifnull({2}, 0), excluded.{2})
"""
_SAID: Final = """
CASE WHEN NOT json_valid(property.value) THEN NULL
WHEN property.key = 'ownership' THEN property.value ->> '$.owners[0].name'
WHEN property.key = 'schema' THEN nullif(json_array_length(property.value, '$.fields'), 0)
WHEN property.key = 'documentation' THEN nullif(property.value ->> '$.description', '')
WHEN property.key = 'lifecycleStateChange' THEN upper(property.value ->> '$.lifecycleStateChange')
WHEN json_array_length(property.value, '$.tags') > 0 THEN ifnull((
    SELECT tag.value ->> 'value' FROM json_each(property.value, '$.tags') AS tag
    WHERE tag.value ->> 'key' = 'tier' AND tag.value ->> 'field' IS NULL LIMIT 1
), '') END
"""
_PUT_SAID: Final = f"""
INSERT INTO main.sli_said
SELECT property.node, property.key, {_SAID}, max(property.last_us)
FROM main.sli_dataset CROSS JOIN {{0}}.property
ON property.node = number AND +property.key IN (SELECT value FROM json_each(?))
GROUP BY property.node, property.key
ON CONFLICT DO UPDATE SET value = excluded.value, last_us = excluded.last_us
WHERE excluded.last_us >= last_us
"""  # noqa: S608 - texts of our own
_PUT_VERSIONS: Final = """
INSERT OR IGNORE INTO main.sli_said
SELECT DISTINCT source, 'version', 1, 0 FROM {0}.edge WHERE kind = 'version'
"""
_TEXT: Final = """
CASE WHEN name NOT LIKE '/%' THEN namespace || '/' || name
WHEN instr(namespace, '://') THEN namespace || name
WHEN instr(namespace, ':') THEN namespace || '/' || name
ELSE namespace || ':' || name END
"""
"""A dataset as `dataset_text` names it."""
_PUT_CHECKSUMS: Final = f"""
INSERT OR IGNORE INTO main.sli_said
SELECT number, 'checksum', 1, 0 FROM main.sli_dataset WHERE {_TEXT} IN (
    SELECT value FROM facts WHERE kind = 'input'
    AND did IN (SELECT did FROM facts WHERE kind = 'fingerprint')
)
"""  # noqa: S608 - texts of our own

_FIELD_KEYS: Final = {
    Field.OWNER: "ownership",
    Field.SCHEMA: "schema",
    Field.DESCRIPTION: "documentation",
    Field.TAGS: "tags",
    Field.VERSION: "version",
    Field.CHECKSUM: "checksum",
}
_HAS: Final = "max({0}.value IS NOT NULL)"
_PUT_LEVELS: Final = """
INSERT INTO main.sli_level
SELECT one, namespace, name, text,
    CASE {tiers} WHEN said_tier IN ('critical', 'important', 'optional') THEN said_tier
    ELSE ifnull(known_tier, 'important') END,
    owner, is_known, is_seen, wrote_us, told_us, reads, fields, freshness_s, completeness, {external}
FROM (
    SELECT *, {text} AS text FROM (
        SELECT ifnull(sli_name.one, sli_dataset.number) AS one,
            max(CASE WHEN ifnull(one, sli_dataset.number) = sli_dataset.number THEN namespace END)
                AS namespace,
            max(CASE WHEN ifnull(one, sli_dataset.number) = sli_dataset.number THEN name END) AS name,
            max(tags.value) AS said_tier, max(sli_known.tier) AS known_tier,
            ifnull(max(ownership.value), max(sli_known.owner)) AS owner,
            max(sli_known.number IS NOT NULL) AS is_known, max(is_seen) AS is_seen,
            max(wrote_us) AS wrote_us, ifnull(max(wrote_us), max(read_us)) AS told_us,
            sum(ifnull(reads, 0)) AS reads, {fields} AS fields,
            min(freshness_s) AS freshness_s, max(completeness) AS completeness,
            max(dropped.value) AS change
        FROM main.sli_dataset
        LEFT JOIN main.sli_name USING (number)
        LEFT JOIN main.sli_known USING (number)
        LEFT JOIN main.sli_used USING (number)
        {said}
        GROUP BY 1
    ) WHERE change IS NOT 'DROP'
)
"""
_JOIN_SAID: Final = """
LEFT JOIN main.sli_said AS {0} ON {0}.number = sli_dataset.number AND {0}.key = '{1}'
"""

_OVERRIDDEN: Final = """
SELECT *, ifnull(freshness_s, (SELECT goal FROM main.sli_goal WHERE sli = 'freshness' AND tier = level.tier))
    AS goal_s, (?1 - told_us) / 1e6 AS age_s,
    is_seen AND fields >= ?2 * ifnull(completeness, 1) AS is_complete,
    wrote_us IS NOT NULL OR is_external AS has_origin
FROM main.sli_level AS level
"""
_COUNT: Final = f"""
SELECT tier, sum(is_known AND told_us IS NOT NULL), sum(is_known),
    count(*) FILTER (WHERE age_s <= goal_s), count(*) FILTER (WHERE age_s IS NOT NULL AND goal_s IS NOT NULL),
    sum(is_complete), sum(is_seen), sum(reads) FILTER (WHERE has_origin), sum(reads)
FROM ({_OVERRIDDEN}) GROUP BY tier
"""  # noqa: S608 - texts of our own
_AGES: Final = f"""
SELECT tier, age_s FROM (
    SELECT tier, age_s, row_number() OVER (PARTITION BY tier ORDER BY age_s) AS place,
        count(*) OVER (PARTITION BY tier) AS number
    FROM ({_OVERRIDDEN}) WHERE age_s IS NOT NULL
) WHERE place = (number * 95 + 99) / 100
"""  # noqa: S608 - texts of our own
_GOAL: Final = "tier IN (SELECT tier FROM main.sli_goal WHERE sli = '{}')"
_IN_BREACH: Final = f"""
WITH level AS MATERIALIZED ({_OVERRIDDEN})
SELECT sli, tier, ifnull(owner, ''), namespace, name, count(*) OVER () FROM (
    SELECT 1 AS place, 'coverage' AS sli, * FROM level
    WHERE is_known AND told_us IS NULL AND {_GOAL.format("coverage")}
    UNION ALL SELECT 2, 'freshness', * FROM level WHERE age_s > goal_s
    UNION ALL SELECT 3, 'completeness', * FROM level
    WHERE is_seen AND NOT is_complete AND (completeness IS NOT NULL OR {_GOAL.format("completeness")})
    UNION ALL SELECT 4, 'missing_provenance', * FROM level
    WHERE reads AND NOT has_origin AND {_GOAL.format("missing_provenance")}
) ORDER BY CASE tier WHEN 'critical' THEN 1 WHEN 'important' THEN 2 ELSE 3 END, place, text LIMIT ?3
"""  # noqa: S608 - texts of our own
_WIDEST: Final = "SELECT namespace, name FROM main.sli_level WHERE reads ORDER BY reads DESC, one LIMIT 1"

_NAMES_OF: Final = """(
    SELECT flow.value ->> {0}
    UNION SELECT number FROM main.sli_name
    WHERE one = (SELECT one FROM main.sli_name WHERE number = flow.value ->> {0})
)"""
_FLOWS: Final = f"""
SELECT tier, sum(
    EXISTS (
        SELECT 1 FROM all_edge AS wrote
        WHERE wrote.target IN {_NAMES_OF.format(1)} AND wrote.kind = 'write' AND EXISTS (
            SELECT 1 FROM all_edge AS read
            WHERE read.source IN {_NAMES_OF.format(0)} AND read.kind = 'read' AND read.target = wrote.source
        )
    ) OR EXISTS (
        SELECT 1 FROM all_edge AS made
        WHERE made.source IN {_NAMES_OF.format(0)} AND made.kind IN ('derive', 'influence', 'feed') AND (
            made.target IN {_NAMES_OF.format(1)}
            OR flow.value ->> 1 = flow.value ->> 2 AND made.scope IN {_NAMES_OF.format(2)}
        )
    )
), count(*)
FROM json_each(?) AS flow
JOIN main.sli_level ON sli_level.one
    = ifnull((SELECT one FROM main.sli_name WHERE number = flow.value ->> 2), flow.value ->> 2)
GROUP BY tier
"""  # noqa: S608 - texts of our own
_ANALYZED: Final = """
SELECT tier, sum(is_seen_otherwise), count(*) FROM (
    SELECT DISTINCT source, kind, target,
        CASE kind WHEN 'read' THEN source WHEN 'write' THEN target ELSE scope END AS dataset,
        EXISTS (
            SELECT 1 FROM all_edge AS other WHERE other.source = found.source AND other.kind = found.kind
            AND other.target = found.target AND other.analyzer <> ?1
        ) AS is_seen_otherwise
    FROM all_edge AS found WHERE analyzer = ?1 AND kind IN ('read', 'write', 'derive')
)
JOIN main.sli_level AS level
ON level.one = ifnull((SELECT one FROM main.sli_name WHERE number = dataset), dataset)
GROUP BY tier
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
        widest: the dataset that most jobs have read lately; None: no job has.
    """

    counts: dict[tuple[Sli, str], Counted]
    ages_s: dict[str, float]
    breaches: tuple[Breach, ...]
    in_breach: int
    widest: Node | None


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
        self._bound = (self._now_us, len(self._file.required))
        self._rules = tuple(rule for (rule,) in ask(_RULES, ()))

    def count(self) -> DatasetCounts:
        ask = self._ask
        ask(_CREATE, ())
        self._put_declared()
        self._put_told()
        self._put_levels()
        counts: dict[tuple[Sli, str], Counted] = {}
        for tier, *numbers in ask(_COUNT, self._bound):
            pairs = zip(numbers[::2], numbers[1::2], strict=True)
            counts |= {
                (sli, tier): (good or 0, total or 0)
                for sli, (good, total) in zip(_OF_DATASETS, pairs, strict=True)
            }
        counts |= self._count_edges()
        rows = ask(_IN_BREACH, (*self._bound, BREACHES_MAX))
        breaches = tuple(Breach(Sli(sli), *rest) for sli, *rest, _ in rows)
        widest = next((Node(NodeKind.DATASET, *row) for row in ask(_WIDEST, ())), None)
        return DatasetCounts(
            counts, dict(ask(_AGES, self._bound)), breaches, rows[0][-1] if rows else 0, widest
        )

    def _put_declared(self) -> None:
        """Put what is promised, what the inventory names, and where the expected edges end."""
        goals = [(sli, tier, goal) for sli in _OF_DATASETS for tier in TIERS
                 if (goal := self._file.objectives.of(sli, tier)) is not None]  # fmt: skip
        self._put(_PUT_GOALS, goals)
        known = [(self._settled(one.namespace, one.name), one) for one in self._declared.datasets]
        ends = {self._settled(*end[:2]) for flow in self._declared.flows for end in flow}
        named = [(node.number, node.namespace, node.name) for node in {*(node for node, _ in known), *ends}]
        self._put(_PUT_DECLARED, named)
        self._put(
            _PUT_KNOWN,
            ((node.number, one.tier, one.owner, one.freshness_s, one.completeness) for node, one in known),
        )

    def _put_told(self) -> None:
        """Put what the index has of the datasets."""
        self._put(_PUT_NAMES, _groups(self._ask(_SAME, ())).items())
        since_hour = self._now_us // 3_600_000_000 - _READ_LATELY_HOURS
        keys = {_FIELD_KEYS[one] for one in self._file.required} | {
            "ownership",
            "tags",
            "lifecycleStateChange",
        }
        for schema in _SCHEMAS:
            self._ask(_PUT_SEEN.format(schema), ())
            self._ask(_PUT_JOBS.format(schema), ())
        for schema in _SCHEMAS:
            self._ask(_PUT_WRITTEN.format(schema), (self._now_us,))
            beside = _NOT_ON_DISK if schema == "main" else ""
            self._ask(_PUT_READ.format(schema, beside), (self._now_us, since_hour))
            for end, column in (("source", "read_us"), ("target", "wrote_us")):
                self._ask(_PUT_DERIVED.format(schema, end, column), (self._now_us,))
            self._ask(_PUT_SAID.format(schema), (as_json(keys),))
            if Field.VERSION in self._file.required:
                self._ask(_PUT_VERSIONS.format(schema), ())
        if Field.CHECKSUM in self._file.required:
            self._ask(_PUT_CHECKSUMS, ())

    def _put_levels(self) -> None:
        keys = {_FIELD_KEYS[one] for one in self._file.required} | {"ownership", "tags"}
        said = "".join(_JOIN_SAID.format(key, key) for key in sorted(keys))
        said += _JOIN_SAID.format("dropped", "lifecycleStateChange")
        has = {Field.OWNER: "(max(ownership.value) IS NOT NULL OR max(sli_known.owner) IS NOT NULL)"}
        fields = " + ".join(
            has.get(one) or _HAS.format(_FIELD_KEYS[one]) for one in dict.fromkeys(self._file.required)
        )
        tiers = "".join(" WHEN text GLOB ? THEN ?" for _ in self._file.tiers)
        external = " OR ".join("text GLOB ?" for _ in self._file.external) or "0"
        statement = _PUT_LEVELS.format(tiers=tiers, external=external, text=_TEXT, fields=fields, said=said)
        bound = [text for rule in self._file.tiers for text in (rule.datasets, rule.tier)]
        self._ask(statement, (*bound, *self._file.external))

    def _count_edges(self) -> dict[tuple[Sli, str], Counted]:
        found: dict[tuple[Sli, str], Counted] = {}
        rows = self._ask(_FLOWS, (as_json(map(self._flow_of, self._declared.flows)),))
        if self._file.expected.analyzer is not None:
            rows += self._ask(_ANALYZED, (self._file.expected.analyzer,))
        for tier, seen, expected in rows:
            before = found.get((Sli.ACCURACY, tier), (0, 0))
            found[Sli.ACCURACY, tier] = (before[0] + seen, before[1] + expected)
        return found

    def _flow_of(self, flow: ExpectedFlow) -> tuple[int, int, int]:
        """Source and target of an expected edge, and the dataset that it goes to."""
        source, target = ((self._settled(*end[:2]), end[2]) for end in flow)
        ends = (dataset.with_column(column) if column else dataset for dataset, column in (source, target))
        first, last = (end.number for end in ends)
        return first, last, target[0].number

    def _settled(self, namespace: str, name: str) -> Node:
        return settle_dataset(namespace, name, self._rules)

    def _put(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._ask(statement, (as_json(rows),))


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


_OF_DATASETS: Final = (Sli.COVERAGE, Sli.FRESHNESS, Sli.COMPLETENESS, Sli.MISSING_PROVENANCE)
