"""Redaction of events before they are kept, through every interface."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from waybill.facets import RunEvent as RecordedEvent, decode_event, fold
from waybill.transport import AdmissionError, Journal, Settings, SettingsError, Tracker
from waybill.transport.admission import Redaction, parse_rules

EVENT: dict[str, Any] = {
    "eventTime": "2026-01-31T12:00:00.000Z",
    "eventType": "FAIL",
    "producer": "https://example.org/tests",
    "run": {
        "runId": "01a1fd6a-9e75-7d78-870f-24897efac4a4",
        "facets": {
            "errorMessage": {"message": "no", "programmingLanguage": "Java", "stackTrace": "at secret"},
            "spark_properties": {"properties": {"spark.master": "local", "spark.my.password": "secret"}},
            "environment-properties": {"environment-properties": {"HOME": "/secret", "PORT": 7}},
        },
    },
    "job": {"namespace": "n", "name": "j", "facets": {"sql": {"query": "SELECT secret", "dialect": "x"}}},
    "inputs": [
        {"namespace": "n", "name": name, "facets": {"symlinks": {"identifiers": [{"name": "secret"}, {}]}}}
        for name in ("a", "b")
    ],
    "outputs": [{"namespace": "n", "name": "c", "outputFacets": {"stats": {"secret": 1, "rowCount": 5}}}],
}


def at(value: Any, *keys: Any) -> Any:  # noqa: ANN401 - any JSON value
    for key in keys:
        value = value[key]
    return value


def redacted(*rules: str, body: bytes | None = None) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads(Redaction(parse_rules(rules)).admit(body or json.dumps(EVENT).encode()))


def presented() -> bytes:
    """An event as another home sent it to Marquez."""
    parent = {"run": {"runId": "p"}, "job": {"namespace": "n", "name": "secret"}}
    facets = {"waybill_presented": {"jobName": "j", "parent": parent}}
    return json.dumps(
        EVENT | {"run": {"runId": "r", "facets": facets}, "job": {"namespace": "n", "name": "secret.j"}}
    ).encode()


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("run.facets.parent", {}),
        (
            "run.facets.parent.job.name=mask",
            {"parent": {"run": {"runId": "p"}, "job": {"namespace": "n", "name": "[redacted]"}}},
        ),
    ],
)
def test_a_rule_on_the_parent_reaches_that_of_an_event_changed_for_marquez(
    rule: str, left: dict[str, Any]
) -> None:
    kept = redacted(rule, body=presented())
    assert at(kept, "run", "facets") == left
    assert at(kept, "job", "name") == "j"


def test_an_event_changed_for_marquez_is_kept_as_it_is_if_no_rule_finds_its_parent() -> None:
    body = presented()
    assert Redaction(parse_rules(["run.facets.parent.secret", "job.facets.sql"])).admit(body) == body
    with pytest.raises(ValueError, match="must have"):
        parse_rules(["run.facets.waybill_presented.jobName"])


def test_a_masked_text_is_masked_in_every_facet_that_repeats_it_and_no_name_or_time_is() -> None:
    value = "s3cret one"
    facets = {
        "spark_properties": {"properties": {"spark.my.password": value, "spark.short": "abc"}},
        "errorMessage": {
            "message": f"bad login ('{value}'), s3cret ones, abc",
            "programmingLanguage": "JAVA",
        },
        "nominalTime": {"nominalStartTime": "2026-01-31T00:00:00Z"},
    }
    named = {"namespace": "n", "name": value, "facets": {"symlinks": {"identifiers": [{"name": value}]}}}
    url = {"dataSource": {"name": "a", "uri": "https://h/?q=s3cret%20one"}}
    body = EVENT | {
        "run": EVENT["run"] | {"facets": facets},
        "job": EVENT["job"] | {"facets": {"sql": {"query": f"SELECT '{value}'"}}},
        "inputs": [named, {"namespace": "n", "name": "b", "facets": url}],
    }
    kept = redacted("run.facets.spark_properties.properties=mask", body=json.dumps(body).encode())
    told = kept["run"]["facets"]
    assert told["errorMessage"]["message"] == "bad login ('[redacted]'), s3cret ones, abc"
    assert told["nominalTime"] == facets["nominalTime"]
    assert kept["job"]["facets"]["sql"]["query"] == "SELECT '[redacted]'"
    assert kept["inputs"][0] == named
    assert kept["inputs"][1]["facets"]["dataSource"]["uri"] == "https://h/?q=[redacted]"


@pytest.mark.parametrize(
    ("rule", "reasons"),
    [
        ("run.facets.errorMessage", (None, "SECRET")),
        ("run.facets.errorMessage=mask", ("[redacted]", "SECRET")),
        ("run.facets.errorMessage.stackTrace", ("ValueError: SECRET", "SECRET")),
        ("run.facets.waybill_deltaFile.annotations", ("ValueError: SECRET", None)),
        ("run.facets.waybill_deltaFile.annotations.filteredCause", ("ValueError: SECRET", None)),
    ],
)
def test_the_reason_that_a_tracked_file_failed_or_was_filtered_is_of_what_is_left(
    rule: str, reasons: tuple[str | None, str | None], home: Path
) -> None:
    settings = Settings.load({"home": str(home), "runner": "none", "redact": rule}, env={}, cwd=home.parent)
    with Tracker(settings=settings) as tracker:
        tracker.file("f", data_source="in").error(ValueError("SECRET"))
        tracker.file("g", data_source="in").filter("SECRET")
    bodies = [entry.body for entry in Journal(home).read(0)]
    assert any(b"SECRET" in body for body in bodies) == ("SECRET" in str(reasons))
    events = [one for body in bodies if isinstance(one := decode_event(body), RecordedEvent)]
    failed, filtered = sorted(fold(events, system_name="tests"), key=lambda record: record.filename)
    assert (failed.annotations or {}).get("errorCause") == reasons[0]
    assert (filtered.annotations or {}).get("filteredCause") == reasons[1]


@pytest.mark.parametrize(
    ("rule", "place", "left"),
    [
        ("job.facets.sql", ("job", "facets"), {}),
        ("job.facets.sql.query=mask", ("job", "facets", "sql"), {"query": "[redacted]", "dialect": "x"}),
        (
            "run.facets.spark_properties.properties.*password*",
            ("run", "facets", "spark_properties", "properties"),
            {"spark.master": "local"},
        ),
        (
            "run.facets.environment-properties=mask",
            ("run", "facets", "environment-properties"),
            {"environment-properties": {"HOME": "[redacted]", "PORT": None}},
        ),
        (
            "inputs.facets.symlinks.identifiers.name",
            ("inputs", 1, "facets", "symlinks", "identifiers"),
            [{}, {}],
        ),
        ("outputs.outputFacets.*.secret", ("outputs", 0, "outputFacets", "stats"), {"rowCount": 5}),
    ],
)
def test_a_rule_takes_out_its_path_and_nothing_else(
    rule: str, place: tuple[object, ...], left: object
) -> None:
    found, whole = redacted(rule), json.loads(json.dumps(EVENT))
    assert at(found, *place) == left
    root = place[0]
    assert {key: value for key, value in found.items() if key != root} == {
        key: value for key, value in whole.items() if key != root
    }


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        (
            ("*PassWord*", "*password*", "spark.my.PASSWORD"),
            ("spark.my.password", "spark.my.Password", "SPARK.MY.PASSWORD"),
        ),
        (("*schlüssel*", "*Token", "*token"), ("SCHLÜSSEL.To\u212aen",)),
    ],
)
def test_a_name_is_meant_in_any_case(rules: tuple[str, ...], names: tuple[str, ...]) -> None:
    for rule, name in product(rules, names):
        body = json.dumps(EVENT, ensure_ascii=False).replace("spark.my.password", name).encode()
        found = redacted(f"run.facets.Spark_Properties.properties.{rule}", body=body)
        assert found["run"]["facets"]["spark_properties"]["properties"] == {"spark.master": "local"}


PROPERTIES = yaml.safe_load((Path(__file__).parent / "secret_properties.yaml").read_text(encoding="utf-8"))
"""Names of properties that contain secrets, by system."""

SECRETS = (
    *("*secret*", "*pass*", "*token*", "*credential*"),
    *("*access*key*", "*account.key.*", "*key", "*keyfile*"),
)
"""The rules that docs/collector.md proposes."""


@pytest.mark.parametrize("names", PROPERTIES.values(), ids=PROPERTIES)
def test_the_rules_that_are_proposed_cover_the_properties_that_systems_have(names: list[str]) -> None:
    secret, harmless = (
        "hunter2",
        {"spark.master": "local[2]", "type": "postgres", "hive.exec.parallel": "true"},
    )
    held = harmless | dict.fromkeys(names, secret)
    facets = {
        "spark_properties": {"properties": held},
        "environment-properties": {"environment-properties": held},
    }
    body = json.dumps({**EVENT, "run": {"runId": "r", "facets": facets}}).encode()
    rules = [f"run.facets.*properties.*properties.{name}" for name in SECRETS]
    kept = Redaction(parse_rules(rules)).admit(body)
    assert secret.encode() not in kept
    assert json.loads(kept)["run"]["facets"]["spark_properties"]["properties"] == harmless


def test_keys_are_masked_where_a_rule_asks_for_it() -> None:
    held = {"alice": {"card": "4711"}, "bob": [{"pin": 7}, "x"]}
    body = json.dumps(
        {**EVENT, "run": {"runId": "r", "facets": {"Mine": {"held": held, "left": "a"}}}}
    ).encode()
    masked = redacted("run.facets.mine.held=mask-keys", body=body)["run"]["facets"]["Mine"]
    assert masked == {
        "held": {
            "[redacted] 1": {"[redacted] 1": "[redacted]"},
            "[redacted] 2": [{"[redacted] 1": None}, "[redacted]"],
        },
        "left": "a",
    }
    plain = redacted("run.facets.mine.held=mask", body=body)["run"]["facets"]["Mine"]["held"]
    assert plain == {"alice": {"card": "[redacted]"}, "bob": [{"pin": None}, "[redacted]"]}


@pytest.mark.parametrize(
    ("once", "twice"),
    [
        (b'"stackTrace"', b'"st\\u0061ckTrace": "secret too", "stackTrace"'),
        (b'"errorMessage": {', b'"errorMessage": {"stackTrace": "secret too"}, "errorMessage": {'),
    ],
)
@pytest.mark.parametrize("is_last", [True, False])
def test_a_facet_of_others_may_be_there_twice_and_hides_nothing(
    once: bytes,
    twice: bytes,
    is_last: bool,  # noqa: FBT001 - of a table
) -> None:
    event = copy.deepcopy(EVENT)
    if not is_last:
        del event["run"]["facets"]["errorMessage"]["stackTrace"]
        event["run"]["facets"]["errorMessage"]["message"] = "m"
        once, twice = b'"errorMessage": {', b'"errorMessage": {"stackTrace": "secret too"}, "errorMessage": {'
    body = json.dumps(event).encode().replace(once, twice, 1)
    assert Redaction().admit(body) == body
    kept = Redaction(["run.facets.errorMessage.stackTrace"]).admit(body)
    assert b"secret too" not in kept
    assert b"tackTrace" not in kept


def test_a_key_that_is_given_twice_is_refused() -> None:
    hidden = b'"run": {"facets": {"errorMessage": {"message": "secret"}},'
    body = json.dumps(EVENT).encode().replace(b'"run": {', hidden, 1)
    with pytest.raises(AdmissionError, match=r"an object has the key '.*' twice"):
        Redaction(["run.facets.errorMessage"]).admit(body)


KEYS = st.sampled_from(["zq", "b", "zq.b", "b.c", "c", ""])
"""`EVENT` has `zq` nowhere, so that a body without such a key need not be decoded at all."""
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


Keys = tuple[str, ...]


def leaves(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, object]]:  # noqa: ANN401 - any JSON value
    """Every scalar and empty container, by the keys that lead to it."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*keys, key))
    elif isinstance(value, list) and value:
        for inner in value:
            yield from leaves(inner, keys)
    else:
        yield keys, value


@given(
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.sampled_from(["zq", "zq.b", "zq.b.c", "b.c"]),
    st.sampled_from(["\\u007a", "z"]),
)
def test_whatever_the_facets_a_rule_takes_its_path_and_leaves_the_rest(
    facets: dict[str, object], path: str, letter: str
) -> None:
    def is_meant(keys: Keys) -> bool:
        inside = keys[2:]
        return any(".".join(inside[:end]) == path for end in range(1, len(inside) + 1))

    event = {**EVENT, "run": {"runId": "r", "facets": facets}}
    body = json.dumps(event).replace('"z', f'"{letter}').encode()
    dropped = list(leaves(json.loads(Redaction([f"run.facets.{path}"]).admit(body))))
    masked = list(leaves(json.loads(Redaction([f"run.facets.{path}=mask"]).admit(body))))
    assert not any(keys[:2] == ("run", "facets") and is_meant(keys) for keys, _ in dropped)
    for keys, value in masked:
        if keys[:2] == ("run", "facets") and is_meant(keys):
            assert value in (None, "[redacted]", {}, [])
    for keys, value in leaves(event):
        if not (keys[:2] == ("run", "facets") and is_meant(keys)):
            assert (keys, value) in dropped
            assert (keys, value) in masked


def test_an_event_that_no_rule_is_about_is_kept_to_the_byte() -> None:
    body = json.dumps({**EVENT, "run": {"runId": "r"}}, indent=3).encode()
    assert Redaction(["run.facets.errorMessage.stackTrace"]).admit(body) == body
    for odd in ("\\n", "ü"):  # only a full search finds it
        body = json.dumps({**EVENT, "producer": f"a:{odd}"}, indent=3, ensure_ascii=False).encode()
        assert Redaction(["run.facets.mine"]).admit(body) == body


@pytest.mark.parametrize("number", ["1e400", "1" * 5_000])
def test_a_number_that_nobody_can_read_is_a_refusal(number: str) -> None:
    body = json.dumps(EVENT).replace('"rowCount": 5', f'"rowCount": {number}').encode()
    assert Redaction(["run.facets.mine"]).admit(body) == body
    with pytest.raises(AdmissionError, match="64 bits"):
        Redaction(["job.facets.sql"]).admit(body)
    with pytest.raises(AdmissionError, match="NUL"):
        Redaction().admit(body.replace(b"SELECT", b"\\u0000"))


def test_what_was_refused_is_redacted_or_kept_without_its_bytes() -> None:
    redaction = Redaction(["run.facets.errorMessage"])
    assert redaction.refused(b'{"run": {"facets": {"errorMessage": 7}}}') == b'{"run":{"facets":{}}}'
    assert redaction.refused(b'{"run": {"facets": {"errorMessage": 7') == b""
    assert redaction.refused(b"{") == b"{"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("run.runId", "not a valid rule"),
        ("run.facets", "not a valid rule"),
        ("run.facets.", "not a valid rule"),
        ("run.facets.a..b", "not a valid rule"),
        ("run.facets.a=drop", "not a valid rule"),
        ("run.facets.a=mask-key", "not a valid rule"),
        ("run.facets.parent.job=mask-keys", "must have"),
        ("run.facets.a b", "not a valid rule"),
        ("run.facets.errorMessage.message", "errorMessage.message=mask"),
        ("run.facets.*.message", "must have"),
        ("run.facets.parent.run", "must have"),
        ("run.facets.waybill_deltaFile.completed=mask", "must have"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_the_settings(rule: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="redact") as caught:
        Settings.load({"redact": rule}, env={}, cwd=tmp_path)
    assert words in str(caught.value)
