"""The alerts, judged by Prometheus's and Alertmanager's own programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from programs import MONITORING, ROOT, Server, path_of, said_by
from waiting import wait_until

RULES = MONITORING / "rules.yml"
ALERTMANAGER = MONITORING / "alertmanager.yml"
TRIED = Path(__file__).parent / "alerts.yml"
OF_LEVELS = {"tier", "owner"}
"""What the metrics of service levels carry themselves."""


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = sorted({rule["alert"] for rule in rules()})


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(rules())} rules found" in said_by("promtool", "check", "rules", RULES)


def test_each_rule_fires_for_its_reason_only() -> None:
    assert "SUCCESS" in said_by("promtool", "test", "rules", TRIED)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_seen_to_fire_and_to_stay_silent(alert: str) -> None:
    tests = yaml.safe_load(TRIED.read_text(encoding="utf-8"))["tests"]
    tried = [one for test in tests for one in test["alert_rule_test"] if one["alertname"] == alert]
    assert {bool(one.get("exp_alerts")) for one in tried} == {True, False}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_alert_has_a_section_in_the_runbook_and_says_whom_it_concerns(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    assert f"\n### {rule['alert']}\n" in text
    assert anchor == rule["alert"].lower()
    assert rule["labels"]["severity"] in {"page", "ticket", "none"}
    assert rule["labels"]["cause"]
    from_metrics = OF_LEVELS if "waybill_sli_" in rule["expr"] else set()
    assert {"tier", "owner"} <= rule["labels"].keys() | from_metrics


def test_the_runbook_has_a_section_for_nothing_else() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == ALERTS


def test_amtool_accepts_the_configuration() -> None:
    assert "SUCCESS" in said_by("amtool", "check-config", ALERTMANAGER)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_reaches_who_its_severity_says(rule: dict[str, Any]) -> None:
    labels = [f"{name}={value}" for name, value in {"alertname": rule["alert"], **rule["labels"]}.items()]
    expected = "owner" if "escalate" in rule["labels"] else rule["labels"]["severity"]
    expected = {"none": "nobody"}.get(expected, expected)
    said_by(
        "amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}",
        f"--verify.receivers={expected}", *labels,
    )  # fmt: skip


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path_of("prometheus-alertmanager")
    folder = tmp_path_factory.mktemp("alertmanager")
    given = (f"--config.file={ALERTMANAGER}", f"--storage.path={folder}", "--cluster.listen-address=")
    server = Server("prometheus-alertmanager", *given)
    yield server
    server.stop()


def alert(alertname: str, /, **labels: str) -> dict[str, Any]:
    rule = next(rule for rule in rules() if rule["alert"] == alertname)
    return {"labels": {**labels, **rule["labels"], "alertname": alertname}}


def test_a_cause_silences_what_follows_from_it_and_its_alerts_are_one_message(alertmanager: Server) -> None:
    lake = {"namespace": "lake", "owner": "ada", "tier": "critical", "sli": "freshness"}
    alerts = [
        alert("CollectorDown"),
        alert("UnauthorisedAccess", status="401"),
        alert("DeliveryLags", name="marquez"),
        alert("MissingLineage", dataset="orders", **lake),
        alert("MissingLineage", dataset="items", **lake),
        alert("MissingLineage", dataset="people", **lake | {"namespace": "pond"}),
    ]
    alertmanager.post("/api/v2/alerts", alerts)

    def silent() -> set[str]:
        told = alertmanager.get("/api/v2/alerts")
        return {one["labels"]["alertname"] for one in told if one["status"]["inhibitedBy"]}

    # The group of the source has to be evaluated first.
    wait_until(lambda: silent() == {"DeliveryLags", "MissingLineage"}, 90)
    groups = alertmanager.get("/api/v2/alerts/groups")
    together = {
        json.dumps([group["labels"].get(name) for name in ("cause", "namespace", "owner")]): sorted(
            one["labels"]["dataset"] for one in group["alerts"]
        )
        for group in groups
        if group["labels"]["cause"] == "lineage"
    }
    assert together == {
        '["lineage", "lake", "ada"]': ["items", "orders"],
        '["lineage", "pond", "ada"]': ["people"],
    }
