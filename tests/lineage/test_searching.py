"""Datasets and jobs are found by words, wherever their events are, against a naive model."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from keeping import dataset, index, keep, keep_filed, ran, settings_in

from waybill.exporter.query import InvalidQueryError
from waybill.lineage.graph import shown

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.lineage import Lineage
    from waybill.transport import Settings


def lake(name: str, **facets: Any) -> dict[str, Any]:  # noqa: ANN401 - see `dataset`
    return dataset(name, "s3://lake", **facets)


def wrote(minute: float, one: dict[str, Any]) -> dict[str, Any]:
    return ran("etl/daily_load", [], [one], minute)


def found(lineage: Lineage, text: str) -> list[str]:
    return [shown(one.node) for one in lineage.search(text).nodes]


ORDERS = lake(
    "daily/Orders-2026",
    schema={
        "fields": [
            {"name": "customer_id", "type": "bigint"},
            {"name": "who", "fields": [{"name": "Straße"}]},
        ]
    },
    tags={"tags": [{"key": "tier", "value": "gold", "source": "USER"}]},
    ownership={"owners": [{"name": "team:sales", "type": "MAINTAINER"}]},
    documentation={"description": "What everybody ordered, à la carte"},
    derived={"net": [], "gross": [("raw", "amount")]},
)


@pytest.mark.parametrize("filed", [0, None])
def test_each_word_is_the_beginning_of_one(settings: Settings, filed: int | None) -> None:
    night = {"description": "By night"}
    lineage = keep_filed(settings, [ran("etl/daily_load", [], [ORDERS], documentation=night)], filed)
    orders = "s3://lake/daily/Orders-2026"
    for text in (
        *(
            "orders",
            "ORD",
            "lake ord",
            "daily/orders",
            "orders-2026",
            "custom",
            "customer_id",
            "gross",
            "gold",
        ),
        *("tier:gold", "sales team", "everybody", "a la CARTE", "stra", "gold customer 2026"),
    ):
        assert orders in found(lineage, text), text
    for text in ("rders", "bigint", "user", "MAINTAINER", "gold silver", "fields", "description", "source"):
        assert found(lineage, text) == [], text
    assert found(lineage, "night") == ["etl/daily_load"]
    assert set(found(lineage, "daily")) == {orders, "etl/daily_load"}
    [one] = lineage.search("customer").nodes
    assert (one.columns, one.tags, one.owners) == (("customer_id",), ("tier:gold",), ("team:sales",))
    assert found(lineage, "amount") == ["s3://lake/raw"], "columns of datasets that only others name"


def test_a_name_counts_more_than_a_description_and_the_rest_is_counted(home: Path) -> None:
    told = [lake(f"of/{number}", documentation={"description": "about refunds"}) for number in range(30)]
    lineage = keep(home, [wrote(at, one) for at, one in enumerate([*told, lake("refunds")])])
    some = lineage.search("refunds", 5)
    assert (some.nodes[0].node.name, len(some.nodes), some.matches, some.is_all) == ("refunds", 5, 31, True)


def test_what_was_told_last_is_found_and_what_was_before_is_not(settings: Settings) -> None:
    def owned(minute: int, owner: str) -> dict[str, Any]:
        return wrote(minute, lake("orders", owners=[owner]))

    for minute, owner in ((1, "ada"), (2, "bob"), (3, "ada"), (0, "eve")):
        lineage = keep(settings.home, [owned(minute, owner)])
        last = owner if owner != "eve" else "ada"
        for _ in ("in memory", "in the index"):
            assert [one for one in ("ada", "bob", "eve") if found(lineage, one)] == [last]
            index(settings)
    keep(settings.home, [owned(4, "bob")])
    assert (found(lineage, "ada"), found(lineage, "bob")) == ([], ["s3://lake/orders"])


HOSTILE = (
    *('"', "'", "*", "^", "a AND", "NOT orders", "NEAR(", "name:orders", "{a b}", "a\0b", "-", "(", "%"),
    *('"orders', "x" * 1_000, "a " * 500, '" ' * 300, "orders OR nothing", "\u0301", "😀"),
)


def test_no_text_is_a_syntax_error(home: Path) -> None:
    lineage = keep(home, [wrote(0, lake("orders"))])
    for text in HOSTILE:
        assert found(lineage, text) == (["s3://lake/orders"] if text == '"orders' else []), text


def test_hostile_facets_are_no_harm(settings: Settings) -> None:
    told = [
        lake("a", schema="DEEP", tags={"tags": "none"}, ownership={"owners": [7]}),
        lake("b", documentation={"description": ["no text"]}, schema={"fields": {"name": 3}}),
        lake("c\0d", documentation={"description": "x\0y"}),
    ]
    bodies = [json.dumps(wrote(at, one)).encode() for at, one in enumerate(told)]
    deep = [
        bodies[0].replace(b'"DEEP"', b'{"fields":[' * levels + b"]}" * levels) for levels in (400, 495, 900)
    ]
    lineage = keep(settings.home, [*deep, *bodies])
    assert found(lineage, "lake b") == ["s3://lake/b"]
    index(settings)
    assert found(lineage, "lake b") == ["s3://lake/b"]
    with pytest.raises(InvalidQueryError, match="more than 1,000 characters"):
        lineage.search("a" * 1_001)


WORDS = st.sampled_from(["ab", "abc", "b", "bc", "c"])
TOLD = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), WORDS, st.sampled_from(["tags", "owners", "types"])),
    min_size=1,
    max_size=8,
)


@hypothesis_settings(max_examples=5)
@given(TOLD, st.lists(WORDS, min_size=1, max_size=2), st.integers(0, 8), st.integers(0, 8))
def test_found_is_what_the_model_finds(
    tmp_path_factory: pytest.TempPathFactory,
    told: list[tuple[int, int, str, str]],
    words: list[str],
    first: int,
    second: int,
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("searching"))
    home = settings.home
    bodies, current = [], {}
    for at, (number, minute, word, kind) in enumerate(told):
        facets: dict[str, dict[str, Any]] = {
            "tags": {"tags": {"tags": [{"key": word}]}},
            "owners": {"owners": [word]},
            "types": {"types": {word: "int"}},
        }
        bodies.append(wrote(minute * 10 + at, lake(f"d{number}", **facets[kind])))
        current[minute * 10 + at, number, kind] = word
    latest = {(number, kind): word for (_, number, kind), word in sorted(current.items())}
    for part in (bodies[:first], bodies[first : first + second]):
        keep(home, part)
        if part:
            index(settings)
    lineage = keep(home, bodies[first + second :])
    texts = {number: [f"s3 lake d{number}"] for number, *_ in told}
    for (number, _), word in latest.items():
        texts[number].append(word)
    wanted = {
        f"s3://lake/d{number}"
        for number, some in texts.items()
        if all(any(re.search(rf"\b{word}", text) for text in some) for word in words)
    }
    assert set(found(lineage, " ".join(words))) == wanted
