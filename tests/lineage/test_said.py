"""What an event says stays in every answer, whatever analyzers find beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from keeping import answers_of, dataset, install_analyzer, keep_filed, planned, ran, said_of

from waybill.cli.commands.lineage import lines_of
from waybill.lineage.drawing import boxes_of_graph, openlineage_of
from waybill.lineage.graph import Graph, OfAround, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from waybill.lineage import Lineage
    from waybill.transport import Settings

STORE = "postgres://db:5432"
RUN = "01a1fd6a-9e75-7d78-870f-00000000000{}"


def table(name: str, *columns: str, **facets: Any) -> dict[str, Any]:  # noqa: ANN401 - see `dataset`
    types = dict.fromkeys(columns, "int") if columns else None
    return dataset(f"shop.public.{name}", STORE, types=types, **facets)


def by_text(
    job: str, sql: str, reads: Sequence[Any], writes: Sequence[Any], kind: str = "COMPLETE", *, run: str = ""
) -> dict[str, Any]:
    return ran(f"etl/{job}", reads, writes, kind=kind, run=run or RUN.format(1), sql=sql, dialect="postgres")


def keep(settings: Settings, *told: Mapping[str, object]) -> Lineage:
    """Store events, and have the analyzers read them."""
    lineage = keep_filed(settings, told)
    assert lineage.analyzers().waiting == 0
    return lineage


def short(name: str) -> str:
    return name.rpartition("/")[2].removeprefix("shop.public.")


def whole(name: str) -> str:
    return name if "/" in name else f"shop.public.{name}"


def upstream(lineage: Lineage, name: str) -> dict[str, bool]:
    """What is upstream, by its short name, and whether that is certain."""
    return {short(shown(one.node)): one.is_certain for one in lineage.upstream(whole(name))}


def reached(lineage: Lineage, name: str) -> dict[str, bool]:
    """What a change reaches, which is what is downstream."""
    found = {short(shown(one.node)): one.is_certain for one in lineage.impact(whole(name)).nodes}
    assert found == {short(shown(one.node)): one.is_certain for one in lineage.downstream(whole(name))}
    return found


HIDING = {
    "a function": "INSERT INTO public.out SELECT o.id, public.rate_of(o.day) FROM public.orders o",
    "a table function": "INSERT INTO public.out SELECT * FROM public.orders o, public.rates_of(o.id)",
    "a synonym": "INSERT INTO public.out SELECT o.id FROM public.orders o JOIN public.kurse k ON true",
    "no table at all": "INSERT INTO public.out SELECT * FROM public.make_all()",
}


@pytest.mark.parametrize("sql", HIDING.values(), ids=HIDING)
def test_an_input_that_a_text_does_not_name_stays_in_every_view_and_is_a_maybe(
    settings: Settings, sql: str
) -> None:
    inputs = [table("orders", "id", "day"), table("rates", "day", "rate")]
    output = table("out", "id", "rate")
    lineage = keep(
        settings,
        by_text("load", sql, inputs, [output]),
        by_text("on", "", [output], [table("report")], run=RUN.format(2)),
    )
    found = upstream(lineage, "out")
    assert found["rates"] is False
    assert found["orders"] is ("public.orders" in sql)
    assert reached(lineage, "rates") == {"load": True, "out": False, "on": False, "report": False}
    answers = [row[3] for row in lineage.impact("shop.public.rates").rows()]
    assert answers == ["yes", "maybe", "maybe", "maybe"]
    of_job = lineage.dependencies("etl/load")
    assert {short(shown(one.node)) for one in of_job.upstream.nodes} >= {"orders", "rates"}
    assert all(one.is_certain for one in (*of_job.upstream.nodes, *of_job.downstream.nodes))
    of_out = lineage.dependencies("shop.public.out", up=2, down=0)
    assert any(line.endswith("shop.public.rates  maybe") for line in lines_of(of_out, "out", (2, 0)))
    boxes, _ = boxes_of_graph(Graph.of(of_out))
    assert [box.words[1:] for box in boxes if box.words[0].endswith("rates")] == [["maybe"]]
    near = lineage.dependencies("shop.public.out")
    (job,) = [one.node for one in near.upstream.nodes]
    with answers_of(settings.home) as opened:
        drawn = opened.answer(OfAround(near, (f"{job.number:x}",)))
    assert {short(shown(node)) for node in drawn.distances} >= {"orders", "rates"}
    doubtful = {name for name, is_certain in found.items() if not is_certain}
    assert {short(shown(node)) for node in drawn.doubtful} == doubtful


def test_a_text_decides_among_the_inputs_that_it_names(settings: Settings) -> None:
    text = "INSERT INTO public.x SELECT id FROM public.a; INSERT INTO public.y SELECT id FROM public.b"
    outputs = [table("x", "id"), table("y", "id")]
    inputs = [table(name, "id") for name in "abc"]
    lineage = keep(settings, by_text("both", text, inputs, outputs))
    assert upstream(lineage, "x") == {"both": True, "a": True, "c": False}
    assert upstream(lineage, "y") == {"both": True, "b": True, "c": False}
    assert reached(lineage, "a") == {"both": True, "x": True}
    assert reached(lineage, "c") == {"both": True, "x": False, "y": False}


def test_the_text_of_one_event_takes_nothing_from_another_event_of_the_job(settings: Settings) -> None:
    """START has the text, COMPLETE the datasets, and another run of the job reads something else."""
    text = "INSERT INTO public.x SELECT id FROM public.a"
    hiding = "INSERT INTO public.y SELECT id FROM public.hide()"
    lineage = keep(
        settings,
        by_text("load", text, [], [], "START"),
        by_text("load", "", [table("a"), table("b")], [table("x")]),
        by_text("load", hiding, [table("a")], [table("y")], run="2"),
    )
    assert upstream(lineage, "x").keys() == {"load", "a", "b"}
    assert upstream(lineage, "y") == {"load": True, "a": False}, "another run read b"


def test_a_column_of_an_input_that_a_text_does_not_name_may_reach_the_job(settings: Settings) -> None:
    text = "INSERT INTO public.out SELECT o.id, public.rate_of(o.day) AS rate FROM public.orders o"
    inputs = [table("orders", "id", "day", "note"), table("rates", "day", "rate")]
    lineage = keep(settings, by_text("load", text, inputs, [table("out", "id", "rate")]))
    of_rate = [(shown(one.node), one.is_certain) for one in lineage.impact("shop.public.rates.rate").nodes]
    assert of_rate == [("etl/load", False)]
    origins = lineage.origins("shop.public.out.rate")
    assert [short(end.name) for end in origins.ends] == ["orders"]
    assert [short(one.name) for one in origins.maybe] == ["rates"]
    of_note = lineage.impact("shop.public.orders.note").nodes
    assert of_note == (), "the text names its table, and not the column"


GUESSED = """
class Eager:
    name, covers, confidence = "eager", "all, and better than events", 1.0

    def analyze(self, event, catalog):
        store = "postgres://db:5432"
        used = {"namespace": store, "name": "shop.public.a", "field": "k"}
        lineage = {"inputs": [{**used, "type": "DATASET"}]}
        columns = {"fields": {"id": {"inputFields": [used]}}}
        named = [{"namespace": store, "name": "shop.public.a"}]
        facets = {"lineage": lineage, "columnLineage": columns}
        return {"inputs": named, "outputs": [{**one, "facets": facets} for one in event.get("outputs", [])]}
"""


def test_a_plug_in_takes_nothing_away_however_sure_it_is(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_analyzer(GUESSED, tmp_path, monkeypatch)
    output = table("out", "id", derived={"id": [("shop.public.b", "id")]})
    lineage = keep(settings, by_text("load", "", [table("a"), table("b"), table("c")], [output]))
    assert upstream(lineage, "out") == {"load": True, "a": True, "b": True, "c": False}
    steps = lineage.origins("shop.public.out.id").steps
    assert {shown(step.source).rpartition(".")[0][-1] for step in steps} == {"a", "b"}


def test_what_was_inferred_takes_nothing_from_what_an_event_says(settings: Settings) -> None:
    told = {"inputs": [{"namespace": STORE, "name": "shop.public.a", "type": "DATASET"}]}
    writes = [table("x", lineage=told), table("y", lineage={"inputs": []})]
    inferred = by_text("load", "", [table("a")], writes)
    inferred["job"]["facets"] = {"waybill_inferred": {"reason": "runs in a query log: 1"}}
    said = by_text("load", "", [table("b")], [table("x"), table("y")], run=RUN.format(2))
    lineage = keep(settings, inferred, said)
    assert upstream(lineage, "x") == {"load": True, "a": True, "b": False}
    assert upstream(lineage, "y") == {"load": True, "b": False}


def test_the_facet_of_an_event_narrows_and_an_exposure_comes_from_its_model_alone(settings: Settings) -> None:
    board = {"exposures": [{"name": "week", "type": "dashboard"}]}
    only_a = {"inputs": [{"namespace": STORE, "name": "shop.public.a", "type": "DATASET"}]}
    outputs = [table("x", lineage=only_a), table("y", dbt_exposures=board)]
    lineage = keep(settings, by_text("model", "", [table("a"), table("b")], outputs))
    assert upstream(lineage, "x") == {"model": True, "a": True}
    exposed = {shown(one.node): one.is_certain for one in lineage.upstream("dashboard/week", 2)}
    assert exposed == {"etl/model": True, f"{STORE}/shop.public.y": True}


def of_columns(how: str, source: str) -> dict[str, Any]:
    used = {"namespace": "lake", "name": source, "field": "k"}
    indirect = {**used, "transformations": [{"type": "INDIRECT", "subtype": "FILTER"}]}
    told: dict[str, dict[str, Any]] = {
        "direct": {"columnLineage": {"fields": {"c": {"inputFields": [used]}}}},
        "indirect": {"columnLineage": {"fields": {"c": {"inputFields": [indirect]}}}},
        "dataset": {"columnLineage": {"fields": {"c": {"inputFields": []}}, "dataset": [indirect]}},
        "lineage": {"lineage": {"fields": {"c": {"inputs": [{**used, "type": "DATASET"}]}}}},
    }
    return told[how]


def test_what_the_columns_come_from_the_dataset_comes_from(settings: Settings) -> None:
    hows = ("direct", "indirect", "dataset", "lineage")

    def told(how: str, by: str) -> dict[str, Any]:
        return dataset(f"{by}_{how}", **of_columns(how, f"raw_{by}_{how}"))

    lineage = keep(
        settings,
        *(ran(f"etl/ran_{how}", [], [told(how, "run")]) for how in hows),
        *(planned(f"etl/planned_{how}", [], [told(how, "job")]) for how in hows),
        *(said_of(told(how, "event")) for how in hows),
        *(ran(f"etl/on_{how}", [f"lake/event_{how}"], [f"lake/end_{how}"]) for how in hows),
    )
    for how in hows:
        on = [f"etl/on_{how}", f"lake/end_{how}"]
        for by, between, after in (
            ("run", [f"etl/ran_{how}"], []),
            ("job", [f"etl/planned_{how}"], []),
            ("event", [], on),
        ):
            name, source = f"lake/{by}_{how}", f"lake/raw_{by}_{how}"
            assert [shown(one.node) for one in lineage.upstream(name)] == [*between, source]
            down = [shown(one.node) for one in lineage.downstream(source)]
            assert down == [*between, name, *after]
            assert [shown(one.node) for one in lineage.impact(source).nodes] == down
            assert [shown(end.dataset) for end in lineage.origins(f"{name}.c").ends] == [source]
        (edge,) = lineage.dependencies(f"lake/event_{how}", up=1, down=0).upstream.edges
        assert (str(edge.kind), edge.job) == ("feed", None)
    assert lineage.unused_datasets() == ()


def test_a_dataset_that_an_event_alone_says_to_come_from_another_is_below_it(settings: Settings) -> None:
    comes_from = {"inputs": [{"namespace": "lake", "name": "raw", "type": "DATASET"}]}
    lineage = keep(settings, said_of("lake/copy", lineage=comes_from))
    assert [shown(one.node) for one in lineage.upstream("lake/copy")] == ["lake/raw"]
    assert [shown(one.node) for one in lineage.impact("lake/raw").nodes] == ["lake/copy"]
    assert lineage.unused_datasets() == ()
    assert lineage.unused_datasets(written=True)[0].node.name == "copy"
    assert len(lineage.graph().edges) == 1
    lines = openlineage_of(Graph.of(lineage.dependencies("lake/copy")), "2026-01-31T13:00:00Z")
    (facets,) = [one["dataset"]["facets"] for one in map(json.loads, lines) if "facets" in one["dataset"]]
    assert facets["lineage"]["inputs"] == comes_from["inputs"]


def test_runs_are_compared_by_all_that_they_read(settings: Settings) -> None:
    told = [
        ran("etl/load", [], [dataset("out", **of_columns("direct", source))], run=RUN.format(number))
        for number, source in ((1, "raw"), (2, "other"))
    ]
    found = keep(settings, *told).diff(RUN.format(1), RUN.format(2)).differences
    assert [(one.what, one.of, one.first, one.second) for one in found] == [
        ("input", "lake/other", None, "lake/other"),
        ("input", "lake/raw", "lake/raw", None),
    ]


def test_a_file_goes_on_through_a_job_whose_text_does_not_name_it(settings: Settings) -> None:
    text = "INSERT INTO public.out SELECT * FROM public.make_all()"
    lineage = keep(
        settings,
        by_text("load", "", [table("raw")], [table("rates")]),
        by_text("sum", text, [table("rates")], [table("out")], run=RUN.format(2)),
    )
    onward = lineage.trace(RUN.format(1)).onward
    found = [(short(shown(one.node)), one.is_certain) for one in onward.beyond.nodes]
    assert found == [("sum", True), ("out", False)]
