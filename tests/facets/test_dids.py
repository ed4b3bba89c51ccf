from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import pytest
from events import event
from hypothesis import given, strategies as st

from waybill.facets import AnnotationRule, canonical_did, decode_event, decode_records, fold, parents_of
from waybill.facets.arrow import from_table
from waybill.facets.columns import decode_table
from waybill.facets.event import RunEvent

Spell = Callable[[UUID], str]

SPELLINGS: list[Spell] = [
    str,
    lambda uuid: str(uuid).upper(),
    lambda uuid: uuid.hex,
    lambda uuid: "{" + str(uuid) + "}",
    lambda uuid: uuid.urn,
    lambda uuid: uuid.urn.upper(),
]
UUIDS = st.uuids()


def told(did: str, parent: str, kind: str, at_s: int, *, has_facet: bool) -> bytes:
    facets: dict[str, object] = {"parent": {"run": {"runId": parent}, "job": {"namespace": "n", "name": "p"}}}
    if has_facet:
        upstream = [{"run": {"runId": parent}, "job": {"namespace": "n", "name": "p"}}]
        facets["waybill_deltaFile"] = {"did": did, "parentDid": parent}
        facets["jobDependencies"] = {"upstream": upstream}
    else:
        facets["tags"] = {"tags": [{"key": "waybill_parent_did", "value": parent}]}
    return event(did, kind, f"2026-01-31T12:00:0{at_s}Z", job="n/j", facets=facets)


def read(body: bytes) -> RunEvent:
    event = decode_event(body)
    assert isinstance(event, RunEvent)
    return event


@given(UUIDS, st.sampled_from(SPELLINGS))
def test_every_spelling_of_a_uuid_has_one_canonical_form(uuid: UUID, spell: Spell) -> None:
    assert canonical_did(spell(uuid)) == str(uuid)


@pytest.mark.parametrize(
    "did",
    [
        "",
        "d1",
        "01A1FD6A",
        "01a1fd6a-9e75-7d78-870f-0000000000g1",
        "x" * 32,
        " 01a1fd6a9e757d78870f000000000001",
    ],
)
def test_an_id_that_is_no_uuid_stays_as_it_is(did: str) -> None:
    assert canonical_did(did) == did


@pytest.mark.parametrize("has_facet", [True, False])
@given(
    uuid=UUIDS,
    parent=UUIDS,
    spell=st.tuples(*[st.sampled_from(SPELLINGS)] * 4),
)
def test_a_run_whose_events_spell_its_ids_differently_has_the_records_of_one_run(
    *, uuid: UUID, parent: UUID, spell: tuple[Spell, ...], has_facet: bool
) -> None:
    def events(*spellings: Spell) -> list[RunEvent]:
        first, second, third, fourth = (
            spell(id_) for spell, id_ in zip(spellings, [uuid, uuid, parent, parent], strict=True)
        )
        bodies = [
            told(first, third, "START", 1, has_facet=has_facet),
            told(second, fourth, "COMPLETE", 2, has_facet=has_facet),
        ]
        return list(map(read, bodies))

    spelled = events(*spell)
    (record,) = fold(spelled, system_name="s")
    assert [record] == fold(events(str, str, str, str), system_name="s")
    assert (record.did, record.parent_did) == (str(uuid), str(parent))
    assert all(parents_of(each) == (str(parent),) for each in spelled)


@given(st.lists(st.tuples(UUIDS, st.sampled_from(SPELLINGS), st.booleans()), min_size=1, max_size=5))
def test_records_of_deltafi_have_canonical_ids_alone_and_as_columns(
    sent: list[tuple[UUID, Spell, bool]],
) -> None:
    body = json.dumps(
        [
            {
                "did": spell(uuid),
                "parentDid": spell(uuid) if has_parent else None,
                "finalState": "COMPLETE",
                "created": 1,
                "completed": 2,
            }
            for uuid, spell, has_parent in sent
        ]
    ).encode()
    records = decode_records(body, system_name="s")
    assert [(one.did, one.parent_did) for one in records] == [
        (str(uuid), str(uuid) if has_parent else None) for uuid, _, has_parent in sent
    ]

    def fail(at: int, error: Exception) -> None:
        raise AssertionError(at) from error

    table = decode_table([body], system_name="s", rule=AnnotationRule(), on_error=fail)
    assert from_table(table) == records
