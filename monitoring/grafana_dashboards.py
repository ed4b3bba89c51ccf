"""Makes Grafana's dashboards: `python monitoring/grafana_dashboards.py` writes `monitoring/grafana/*.json`.

Each names its data sources by variables, so that it fits a Grafana with others: `metrics` is a Prometheus
that reads `GET /metrics`, and `lineage` is an Infinity data source that asks the collector's HTTP interface.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from grafana_foundation_sdk.builders import (
    bargauge,
    common as common_builders,
    dashboard as dashboards,
    nodegraph,
    piechart,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER: Final = Path(__file__).parent / "grafana"

_PROMETHEUS: Final = "prometheus"
_INFINITY: Final = "yesoreyeram-infinity-datasource"
METRICS: Final = models.DataSourceRef(type_val=_PROMETHEUS, uid="${metrics}")
LINEAGE: Final = models.DataSourceRef(type_val=_INFINITY, uid="${lineage}")
_WIDE: Final = 24
_HIDDEN: Final = ("Time", "Value", "__name__", "instance", "job")
"""What a table of series of Prometheus does not show."""


Panel = Any
"""A builder of a panel: those of the several types have the same methods, and no common type."""
Variable = dashboards.TextBoxVariable | dashboards.QueryVariable


class Column(NamedTuple):
    """One column of an answer: where it is in a row, its name, and its type for Infinity."""

    selector: str
    name: str
    type: str = "string"


class Asked(Dataquery):
    """A question to the collector, as Infinity stores it.

    Args:
        path: below the collector's address.
        columns: what to take of each row.
        rows: where the rows are in the answer, as gjson has it; empty: the answer itself.
        params: the query parameters; one without a value sets no condition.
        edges: whether the rows are the edges of a graph, with the columns `source` and `target`.
    """

    def __init__(
        self,
        path: str,
        *columns: Column,
        rows: str = "",
        edges: bool = False,
        params: Mapping[str, str] | None = None,
    ) -> None:
        self.ref_id = "A"
        self._path, self._columns, self._rows = path, columns, rows
        self._edges, self._params = edges, params or {}

    def to_json(self) -> dict[str, object]:
        """The query as JSON."""
        params = [{"key": key, "value": value} for key, value in self._params.items()]
        identity = (
            [{"selector": "source + ' ' + target", "text": "id", "type": "string"}] if self._edges else []
        )
        return {
            "refId": self.ref_id,
            "datasource": LINEAGE.to_json(),
            "type": "json",
            "source": "url",
            "parser": "backend",
            "format": "node-graph-edges" if self._edges else "table",
            "url": self._path,
            "url_options": {"method": "GET", "params": params},
            "root_selector": self._rows,
            "columns": [
                {"selector": one.selector, "text": one.name, "type": one.type} for one in self._columns
            ],
            "computed_columns": identity,
        }


class _Built(Builder[Dataquery]):
    def __init__(self, query: Dataquery) -> None:
        self._query = query

    def build(self) -> Dataquery:
        return self._query


Queries = Asked | str | dict[str, str]
"""A question, an expression, or expressions by legend."""


def _with_queries(panel: Panel, queries: Queries, *, instant: bool) -> Panel:
    if isinstance(queries, Asked):
        return panel.datasource(LINEAGE).with_target(_Built(queries))
    panel.datasource(METRICS)
    given = {"": queries} if isinstance(queries, str) else queries
    for number, (legend, expression) in enumerate(given.items()):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
        panel.with_target(query.instant() if instant else query.range())
    return panel


def _panel(builder: Panel, title: str, says: str, width: int, height: int) -> Panel:
    return builder.title(title).description(says).span(width).height(height)


def figure(
    title: str, says: str, queries: Queries, unit: str = "short", *, red_from: float | None = None
) -> Panel:
    """One number; with `red_from`, it is red from there on."""
    panel = _panel(stat.Panel(), title, says, 4, 4).unit(unit).color_mode(common.BigValueColorMode.VALUE)
    panel.graph_mode(common.BigValueGraphMode.NONE)
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    steps = [models.Threshold(color="green")]
    steps += [] if red_from is None else [models.Threshold(value=red_from, color="red")]
    panel.thresholds(dashboards.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    return _with_queries(panel, queries, instant=True)


def lines(title: str, says: str, queries: Queries, unit: str = "short", width: int = 12) -> Panel:
    """Curves over time."""
    return _with_queries(_panel(timeseries.Panel(), title, says, width, 8).unit(unit), queries, instant=False)


def counts(title: str, says: str, asked: Asked, width: int = 8, *, pie: bool = False) -> Panel:
    """How many there are of each kind."""
    every = common_builders.ReduceDataOptions().values(True)  # noqa: FBT003 - the builder's own argument
    panel = _panel(piechart.Panel() if pie else bargauge.Panel(), title, says, width, 8).reduce_options(every)
    if not pie:
        panel.orientation(common.VizOrientation.HORIZONTAL)
    return _with_queries(panel, asked, instant=True)


def bars(title: str, says: str, queries: dict[str, str], unit: str, width: int = 12) -> Panel:
    """Series as bars, as they are now."""
    panel = _panel(bargauge.Panel(), title, says, width, 8).unit(unit)
    return _with_queries(panel.orientation(common.VizOrientation.HORIZONTAL), queries, instant=True)


def rows(title: str, says: str, asked: Asked, width: int = 12, height: int = 10) -> Panel:
    """A table of an answer."""
    return _with_queries(_panel(table.Panel(), title, says, width, height), asked, instant=True)


def series(title: str, says: str, queries: dict[str, str], width: int = 12) -> Panel:
    """A table of the labels of series; with several expressions, of their values by their labels."""
    panel = _panel(table.Panel(), title, says, width, 10).datasource(METRICS)
    for number, expression in enumerate(queries.values()):
        query = prometheus.Dataquery().expr(expression).instant().format(PromQueryFormat.TABLE)
        panel.with_target(query.ref_id(chr(ord("A") + number)))
    several = len(queries) > 1
    if several:
        panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    renamed = {f"Value #{chr(ord('A') + number)}": name for number, name in enumerate(queries)}
    options = {"excludeByName": dict.fromkeys(_HIDDEN, True), "renameByName": renamed if several else {}}
    return panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=options))


def graph(title: str, says: str, asked: Asked) -> Panel:
    """Edges as a graph."""
    return _with_queries(_panel(nodegraph.Panel(), title, says, _WIDE, 14), asked, instant=True)


def _dashboard(
    name: str, since: str, refresh: str, panels: list[Panel], *variables: Variable
) -> dashboards.Dashboard:
    """A dashboard, whose panels go from left to right, and from above to below."""
    made = (
        dashboards.Dashboard(f"Waybill: {name}").uid(f"waybill-{name.lower()}").tags(["waybill"]).readonly()
    )
    made.timezone("browser").time(since, "now").refresh(refresh).tooltip(models.DashboardCursorSync.CROSSHAIR)
    made.link(dashboards.DashboardLink("Waybill").type(models.DashboardLinkType.DASHBOARDS).tags(["waybill"]))
    for variable, kind, source in (("metrics", _PROMETHEUS, "Prometheus"), ("lineage", _INFINITY, "Waybill")):
        current = models.VariableOption(selected=True, text=source, value=source)
        hidden = models.VariableHide.HIDE_VARIABLE
        made.with_variable(dashboards.DatasourceVariable(variable).type(kind).current(current).hide(hidden))
    for one in variables:
        made.with_variable(one)
    for number, panel in enumerate(panels, 1):
        made.with_panel(panel.id(number))
    return made


def _choice(name: str, label: str, asked: Asked) -> dashboards.QueryVariable:
    """A variable whose values are an answer."""
    query: dict[str, object] = {
        "queryType": "infinity",
        "refId": "variable",
        "infinityQuery": asked.to_json(),
    }
    variable = dashboards.QueryVariable(name).label(label).datasource(LINEAGE).query(query)
    return variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)


_NAMES: Final = (Column("node.namespace", "namespace"), Column("node.name", "name"))
_COUNT: Final = Column("count", "records", "number")
_RUN: Final = (
    *(Column("job.namespace", "namespace"), Column("job.name", "job"), Column("run.state", "state")),
    *(
        Column("run.started_ms", "started", "timestamp_epoch"),
        Column("run.ended_ms", "ended", "timestamp_epoch"),
    ),
    *(Column("inputs.#.name", "reads"), Column("outputs.#.name", "writes"), Column("run.run", "run")),
)
_FILE: Final = tuple(
    Column(name, name, kind)
    for name, kind in (
        *(("completed", "timestamp"), ("final_state", "string"), ("filename", "string")),
        *(("data_source", "string"), ("transforms", "string"), ("data_sink", "string")),
        *(("system_name", "string"), ("did", "string"), ("parent_did", "string"), ("annotations", "string")),
    )
)
_PERIOD: Final = {"from": "${__from}", "to": "${__to}"}
_RECENT: Final = {"since": "${__from}", "limit": "100"}
_FILTERS: Final = {
    "did": "did",
    "parent_did": "parent did",
    "data_source": "data source",
    "data_sink": "data sink",
    "filename": "filename",
    "annotation_key": "annotation key",
    "annotation_value": "annotation value",
}
_OUTPUTS: Final = Asked(
    "/api/v1/runs", Column("name", "name"), rows="runs.#.outputs|@flatten", params={"limit": "1000"}
)


def provenance() -> dashboards.Dashboard:
    """The records, as DeltaFi's own dashboard shows them."""
    chosen = {name: f"${{{name}}}" for name in _FILTERS} | _PERIOD

    def by(dimension: str, field: str, kind: str = "string") -> Asked:
        return Asked(
            "/provenance/stats", Column(field, field, kind), _COUNT, params={"by": dimension, **chosen}
        )

    total = Asked("/provenance/stats", Column("total_records", "records", "number"), params=chosen)
    hours = _panel(timeseries.Panel(), "By hour", "Files by the hour in which they ended.", 20, 4)
    panels = [
        figure("Total", "Records of files that ended in this period.", total),
        _with_queries(
            hours.draw_style(common.GraphDrawStyle.BARS), by("hour", "hour", "timestamp"), instant=True
        ),
        counts("By final state", "How the files ended.", by("state", "final_state"), 6, pie=True),
        counts("By system", "Where they were processed.", by("system", "system_name"), 6),
        counts("By data source", "Where they came from.", by("source", "data_source"), 6),
        counts("By data sink", "Where they went.", by("sink", "data_sink"), 6),
        rows(
            "Recent records",
            "The newest 100.",
            Asked("/provenance/query", *_FILE, params={"limit": "100", **chosen}),
            _WIDE,
        ),
    ]
    fields = [
        dashboards.TextBoxVariable(name).label(label).default_value("") for name, label in _FILTERS.items()
    ]
    return _dashboard("Provenance", "now-24h", "1m", panels, *fields)


def executive() -> dashboards.Dashboard:
    """Whether lineage keeps what was promised."""
    stale = Asked(
        "/api/v1/datasets/stale", *_NAMES, Column("written_ms", "last written", "timestamp_epoch"),
        rows="datasets", params={"before": "${__from}"},
    )  # fmt: skip
    changes = Asked(
        "/api/v1/datasets/schema-changes",
        *(Column("changed_ms", "changed", "timestamp_epoch"), Column("dataset.namespace", "namespace")),
        *(Column("dataset.name", "name"), Column("added", "added"), Column("removed", "removed")),
        *(Column("retyped", "new type"), Column("reached", "reaches", "number"), Column("owners", "owners")),
        rows="changes",
        params={"since": "${__from}"},
    )
    covered = 'waybill_sli_value{sli="coverage"}'
    panels = [
        figure("Critical datasets with lineage", "Of all that the inventory names.",
               'waybill_sli_value{sli="coverage", tier="critical"}', "percentunit"),
        figure("Objectives met", "Of all that are promised.", "avg(waybill_sli_met)", "percentunit"),
        figure("Datasets in breach", "They miss an objective.",
               "(count(count by (namespace, dataset) (waybill_sli_breach)) or vector(0)) "
               "+ max(waybill_sli_breaches_left_out)", red_from=1),
        figure("Least error budget left", "Of 30 days; below 0, an objective is missed.",
               "min(waybill_sli_error_budget_left)", "percentunit"),
        figure("Complete", "Nodes with all required fields, at least, of any tier.",
               'min(waybill_sli_value{sli="completeness"})', "percentunit"),
        figure("Missing provenance", "Reads whose origin is unknown, at most, of any tier.",
               'max(waybill_sli_value{sli="missing_provenance"})', "percentunit"),
        lines("Coverage", "Datasets with lineage, by tier.", {"{{tier}}": covered}, "percentunit"),
        bars("Error budgets left", "What may still go wrong in the 30 days.",
             {"{{sli}} {{tier}}": "waybill_sli_error_budget_left"}, "percentunit"),
        series("Service levels", "Ratios, seconds, or a count: docs/service-levels.md defines each.",
               {"value": "waybill_sli_value", "objective": "waybill_sli_objective",
                "met": "waybill_sli_met"}),
        rows("Datasets without provenance", "Jobs wrote them, and none in this period: seven days, unless "
             "you choose another.", stale),
        series("Compliance gaps", "Datasets that lack an owner, a schema or another required field, lineage, "
               "or an edge that their contract promises.",
               {"": 'waybill_sli_breach{sli=~"coverage|completeness|accuracy"}'}),
        rows("Impact of recent changes", "Datasets whose columns changed, how many datasets and jobs that "
             "reaches, and whose these are.", changes),
    ]  # fmt: skip
    return _dashboard("Executive", "now-7d", "5m", panels)


def on_call() -> dashboards.Dashboard:
    """What is wrong now, and whom it hurts."""
    reached = Asked(
        "/api/v1/impact",
        *(Column("distance", "edges away", "number"), Column("node.kind", "kind"), *_NAMES),
        *(Column("owners", "owners"), Column("tier", "tier"), Column("last_run.state", "last run")),
        rows="nodes",
        params={"name": "${dataset}"},
    )
    failing = Asked("/api/v1/runs", *_RUN, rows="runs", params={"state": "ERROR", **_RECENT})
    lost = Asked("/provenance/query", *_FILE, params={"final_state": "ERROR", "limit": "100", **_PERIOD})
    missing = 'max_over_time(waybill_sli_breach{sli=~"coverage|freshness"}[1h])'
    failures = {
        "refused {{kind}}": "sum by (kind) (rate(waybill_rejected_total[5m]))",
        "answered 5xx": 'sum(rate(waybill_requests_total{status=~"5.."}[5m])) or vector(0)',
        "{{projection}} failed": "rate(waybill_delivery_failed_total[5m])",
        "no access {{status}}": "sum by (status) (rate(waybill_refused_access_total[5m]))",
    }
    firing = 'ALERTS{alertstate="firing"}'
    panels = [
        figure("Collector", "Whether the collector answers.", 'min(up{job="waybill"})'),
        figure("Pages", "Alerts that need somebody now.",
               f'count({firing[:-1]}, severity="page"}}) or vector(0)', red_from=1),
        figure("Tickets", "Alerts that need somebody tomorrow.",
               f'count({firing[:-1]}, severity="ticket"}}) or vector(0)'),
        figure("Problems", "As `waybill status` names them.", "sum(waybill_problem) or vector(0)",
               red_from=1),
        figure("Longest wait", "Age of the oldest entry that a projection has not processed.",
               "max(waybill_projection_age_seconds)", "s", red_from=600),
        figure("Refused in an hour", "Events and records: `waybill rejects list`.",
               "sum(increase(waybill_rejected_total[1h]))"),
        series("Alerts", "Each has a section in docs/runbook.md.", {"": firing}),
        series("Datasets missing lineage in the last hour", "They have an objective, and no lineage, or none "
               "that is new enough.", {"": missing}),
        lines("Ingestion failures", "What was refused or not kept, a second.", failures, "cps"),
        rows("Files that failed", "The newest 100 of this period.", lost, height=8),
        rows("Failing runs", "With the datasets of their jobs; the newest 100 of this period.", failing),
        rows("Impacted consumers", "What comes from the dataset chosen above, and whose it is.", reached),
    ]  # fmt: skip
    return _dashboard("On-call", "now-1h", "30s", panels, _choice("dataset", "dataset", _OUTPUTS))


def debug() -> dashboards.Dashboard:
    """Why something does not arrive."""
    edges = Asked(
        "/api/v1/lineage-graph",
        *(Column("source.name", "source"), Column("target.name", "target"), Column("kind", "mainstat")),
        rows="[upstream.edges,downstream.edges]|@flatten",
        edges=True,
        params={"name": "${dataset}", "up": "3", "down": "3"},
    )
    problems = (Column("events", "events", "number"), Column("problem", "problem"))
    uses = (Column("name", "analyzer"), Column("edges", "edges", "number"), Column("covers", "reads"))
    analyzers = "/api/v1/analyzers"
    waiting = Asked(analyzers, Column("waiting", "events", "number"))
    panels = [
        lines("Queue depth", "Entries that each projection has not processed.",
              {"{{projection}}": "waybill_projection_behind"}),
        lines("Lag", "Age of the oldest of them.", {"{{projection}}": "waybill_projection_age_seconds"}, "s"),
        figure("Waiting for analyzers", "Events whose SQL or plan is not read yet.", waiting),
        figure("Poison", "Entries that a projection cannot apply: `waybill poison list`.",
               "sum(waybill_poison_entries)", red_from=1),
        figure("Dead letters", "`waybill dead-letters list`.", "sum(waybill_dead_letters) or vector(0)",
               red_from=1),
        figure("Entries", "The newest of the journal.", "max(waybill_journal_last_seq)"),
        figure("Indexed", "Up to this entry.",
               'max(waybill_journal_last_seq) - max(waybill_projection_behind{projection="index"})'),
        figure("Refused", "Since the collector began: `waybill rejects list`.",
               "sum(waybill_rejected_total)"),
        rows("Parser failures", "What analyzers could not read, and in how many events.",
             Asked(analyzers, *problems, rows="problems")),
        rows("Analyzers", "Who told the edges of the graph.", Asked(analyzers, *uses, rows="analyzers")),
        rows("Recent runs", "The newest 100 of this period.",
             Asked("/api/v1/runs", *_RUN, rows="runs", params=_RECENT), _WIDE),
        graph("Graph of a dataset", "Three edges each way from the dataset chosen above.", edges),
    ]  # fmt: skip
    return _dashboard("Debug", "now-6h", "30s", panels, _choice("dataset", "dataset", _OUTPUTS))


def operations() -> dashboards.Dashboard:
    """How the collector does."""
    per_path = "sum by (path, le) (rate(waybill_request_seconds_bucket[1m]))"
    panels = [
        figure("Collector", "Whether the collector answers.", 'up{job="waybill"}'),
        figure("Accepted in 24 hours", "Events and records that were acknowledged.",
               "sum(increase(waybill_accepted_total[24h]))"),
        figure("Refused in 24 hours",
               "Refused events and records, which senders must correct: `waybill rejects list`.",
               "sum(increase(waybill_rejected_total[24h]))", red_from=1),
        figure("Problems", "Projections that are held up; `waybill status` says why.",
               "sum(waybill_problem) or vector(0)", red_from=1),
        figure("Journal", "The size of the journal's content.", "waybill_journal_bytes", "bytes"),
        figure("Journal's room", "How much of its largest size is used.",
               "waybill_journal_bytes / waybill_journal_max_bytes", "percentunit", red_from=0.8),
        lines("Accepted", "Events and records acknowledged per second, by kind.",
              {"{{kind}}": "sum by (kind) (rate(waybill_accepted_total[1m]))"}, "cps"),
        lines("Lag", "Age of the oldest entry in the backlog of a backend or the layout.",
              {"{{projection}}": "waybill_projection_age_seconds"}, "s"),
        lines("Waiting", "Entries in the backlog of a backend or the layout.",
              {"{{projection}}": "waybill_projection_behind"}),
        lines("Journal", "The size of the journal's content: it grows while a backend is down, and shrinks "
              "as entries are deleted.", {"size": "waybill_journal_bytes"}, "bytes"),
        lines("Delivered",
              "Events that each backend accepted per second, and those delivered as part of a summary.",
              {"{{projection}}": "rate(waybill_delivery_delivered_total[1m])",
               "{{projection}} in summaries": "rate(waybill_delivery_coalesced_total[1m])"}, "cps"),
        lines("Failed and refused", "Failed attempts, which are retried; events refused permanently; dead "
              "letters to handle.",
              {"{{projection}} failed a second": "rate(waybill_delivery_failed_total[1m])",
               "{{projection}} refused a second": "rate(waybill_delivery_refused_total[1m])",
               "{{projection}} dead letters": "waybill_dead_letters"}),
        lines("Requests", "Answers per second, by path and status.",
              {"{{path}} {{status}}": "sum by (path, status) (rate(waybill_requests_total[1m]))"}, "reqps"),
        lines("Latency", "How long requests take, by path: median and 99th percentile.",
              {"{{path}} half": f"histogram_quantile(0.5, {per_path})",
               "{{path}} 99 %": f"histogram_quantile(0.99, {per_path})"}, "s"),
        lines("Bytes accepted", "Uncompressed, by kind.",
              {"{{kind}}": "sum by (kind) (rate(waybill_accepted_bytes_total[1m]))"}, "Bps"),
        lines("Refused and repeated", "Refused: by kind. Repeated: entries that the journal already had.",
              {"refused {{kind}}": "sum by (kind) (rate(waybill_rejected_total[5m]))",
               "repeated": "sum(rate(waybill_repeated_total[5m]))"}, "cps"),
        lines("Access refused", "Requests without a valid key or role, by status.",
              {"{{status}}": "sum by (status) (rate(waybill_refused_access_total[5m]))"}, "reqps", _WIDE),
    ]  # fmt: skip
    return _dashboard("Operations", "now-1h", "10s", panels)


DASHBOARDS: Final = (provenance, executive, on_call, debug, operations)


def made() -> dict[str, str]:
    """By the name of its file, the JSON of each dashboard."""
    texts = {
        make.__name__: json.dumps(make().build(), cls=JSONEncoder, indent=1, sort_keys=True)
        for make in DASHBOARDS
    }
    return {f"{name.replace('_', '-')}.json": f"{text}\n" for name, text in texts.items()}


if __name__ == "__main__":
    for file, text in made().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
