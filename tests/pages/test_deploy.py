"""What is deployed starts the collector as it is: its options, its settings, its addresses."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from calls import refused

from waybill.collector.openapi import description
from waybill.transport.config import SETTINGS

REPOSITORY = Path(__file__).parents[2]
UNITS = sorted((REPOSITORY / "deploy" / "systemd").iterdir())
PORT = 8090


def are_settings(names: list[str]) -> bool:
    return all(name.removeprefix("WAYBILL_").lower() in SETTINGS for name in names)


def test_the_pod_starts_what_answers_at_the_addresses_that_are_asked() -> None:
    text = (REPOSITORY / "deploy" / "kubernetes" / "waybill.yaml").read_text(encoding="utf-8")
    service, stateful, policy = yaml.safe_load_all(text)
    pod = stateful["spec"]["template"]
    (collector,) = pod["spec"]["containers"]
    assert refused(collector["args"]) == ""
    assert are_settings([one["name"] for one in collector["env"]])
    assert [one["containerPort"] for one in collector["ports"]] == [PORT]
    assert service["spec"]["ports"][0]["targetPort"] == collector["ports"][0]["name"]
    for probe in ("readinessProbe", "livenessProbe"):
        asked = collector[probe]["httpGet"]
        assert asked["path"] in description()["paths"]
        assert asked["port"] == collector["ports"][0]["name"]
    labels = pod["metadata"]["labels"].items()
    for chosen in (
        service["spec"]["selector"],
        stateful["spec"]["selector"]["matchLabels"],
        policy["spec"]["podSelector"]["matchLabels"],
    ):
        assert chosen.items() <= labels
    volumes = {one["name"] for one in pod["spec"]["volumes"]}
    volumes |= {one["metadata"]["name"] for one in stateful["spec"]["volumeClaimTemplates"]}
    assert {one["name"] for one in collector["volumeMounts"]} == volumes
    drain_s = int(collector["args"][collector["args"].index("--drain-timeout") + 1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > 30 + drain_s


def test_the_composed_collector_starts_with_options_that_there_are() -> None:
    stack: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))
    collector = stack["services"]["collector"]
    assert refused(collector["command"]) == ""
    assert are_settings(list(collector["environment"]))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_calls_what_there_is(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    for call in re.findall(r"^ExecStart=\S+/waybill (.*)$", text, re.MULTILINE):
        assert refused(shlex.split(call)) == ""
    assert are_settings(re.findall(r"^Environment=(\w+)=", text, re.MULTILINE))


def test_systemd_finds_no_fault_with_the_units(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze here to ask")
    for unit in UNITS:
        # It looks whether the program is there.
        text = unit.read_text(encoding="utf-8").replace("/opt/waybill/bin/waybill", sys.executable)
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    command = [program, "verify", *(str(tmp_path / unit.name) for unit in UNITS)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
