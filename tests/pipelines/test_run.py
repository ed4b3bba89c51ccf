"""`waybill run`: a program that knows nothing of Waybill is a run with a beginning and an end."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import wait_until

from waybill.lineage import Lineage
from waybill.lineage.graph import EdgeKind
from waybill.pipelines.child import FORWARDED, Child
from waybill.transport import BackendSetting, Journal, fingerprint_of
from waybill.transport.config import obey

if TYPE_CHECKING:
    from conftest import Events, RunPackage, WriteManifest

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def types_of(told: list[dict[str, Any]]) -> list[str]:
    return [event["eventType"] for event in told]


def backends_of(home: Path) -> tuple[BackendSetting, ...]:
    journal = Journal(home, to_read=True)
    try:
        return obey(journal).backends
    finally:
        journal.close()


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_program_is_one_run_with_what_its_manifest_says(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    package = write_manifest(
        "cp orders.csv totals.csv",
        metadata={
            "namespace": "sales",
            "owner": "data-team",
            "description": "Adds up.",
            "labels": {"a": "b"},
        },
        tier="critical",
        schedule={"cron": "0 2 * * *"},
        runtime={"env": {"SET": "there"}, "reported_env": ["MODE", "ABSENT", "SET"]},
        inputs=[
            {
                "name": "orders",
                "binding": "orders.csv",
                "type": "file",
                "description": "One line each.",
                "classification": {"pii": True, "sensitivity": "confidential"},
                "schema": [{"name": "id", "type": "long"}],
            }
        ],
        outputs=[{"name": "totals", "binding": {"namespace": "file", "dataset": "totals.csv"}}],
    )
    (package / "orders.csv").write_text("id\n1\n")
    done = run_package(
        package, "--nominal-time", "2026-01-31", "--", "--date", "x@y", MODE="night", SET="before"
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    start, end = events()
    assert types_of([start, end]) == ["START", "COMPLETE"]
    assert start["run"]["runId"] == end["run"]["runId"]
    job, run = end["job"], end["run"]["facets"]
    assert (job["namespace"], job["name"]) == ("sales", "nightly")
    assert job["facets"]["documentation"]["description"] == "Adds up."
    assert job["facets"]["ownership"]["owners"] == [{"name": "data-team", "type": "OWNER"}]
    tags = {tag["key"]: tag["value"] for tag in job["facets"]["tags"]["tags"]}
    assert tags == {"a": "b", "tier": "critical", "schedule": "0 2 * * *"}
    assert shlex.split(job["facets"]["sourceCode"]["sourceCode"])[-2:] == ["--date", "x@y"]
    assert run["nominalTime"]["nominalStartTime"] == "2026-01-31T00:00:00.000Z"
    variables = {one["name"]: one["value"] for one in run["environmentVariables"]["environmentVariables"]}
    assert variables == {"MODE": "night", "SET": "there"}, "what the manifest sets is told like the rest"
    assert [one["value"] for one in run["executionParameters"]["parameters"]][-2:] == ["--date", "x@y"]
    (read,), (written,) = end["inputs"], end["outputs"]
    assert (read["namespace"], read["name"]) == ("file", str(package / "orders.csv"))
    assert read["facets"]["schema"]["fields"] == [{"name": "id", "type": "long"}]
    assert {tag["key"] for tag in read["facets"]["tags"]["tags"]} == {"pii", "sensitivity", "type"}
    assert "version" not in start["inputs"][0]["facets"]
    content = str(fingerprint_of(package / "totals.csv"))
    assert [one["facets"]["version"]["datasetVersion"] for one in (read, written)] == [content, content]
    assert written["outputFacets"]["outputStatistics"]["size"] == len("id\n1\n")


def test_a_file_that_a_run_did_not_write_or_that_changed_under_it_has_no_version(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    package = write_manifest(
        "echo more >> grows; exit 1",
        inputs=[{"name": "grows", "binding": "grows"}, {"name": "stays", "binding": "stays"}],
        outputs=[{"name": "old", "binding": "old"}],
    )
    for name in ("grows", "stays", "old"):
        (package / name).write_text("yesterday's")
    assert run_package(package).returncode == 1
    end = events()[-1]
    told = {one["name"]: one["facets"].get("version") for one in (*end["inputs"], *end["outputs"])}
    assert [Path(name).name for name, version in told.items() if version] == ["stays"]


def test_a_program_that_fails_passes_on_its_exit_code_and_its_last_words(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    done = run_package(write_manifest("echo out; seq 1000 >&2; echo 'no such table' >&2; exit 3"))
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert done.stderr.splitlines()[-2:] == ["no such table", "waybill: exit code 3: no such table"]
    start, end = events()
    assert types_of([start, end]) == ["START", "FAIL"]
    message = end["run"]["facets"]["errorMessage"]["message"].splitlines()
    assert (message[0], message[-2:]) == ("exit code 3: no such table", ["1000", "no such table"])


def test_attempts_are_one_run(write_manifest: WriteManifest, run_package: RunPackage, events: Events) -> None:
    package = write_manifest("test -e seen || { touch seen; exit 4; }", runtime={"retries": 2})
    done = run_package(package)
    assert done.returncode == 0
    assert "attempt 1 of 3: exit code 4; it is run again" in done.stderr
    told = events()
    assert types_of(told) == ["START", "FAIL", "START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in told}) == 1
    assert run_package(write_manifest("exit 4", runtime={"retries": 1})).returncode == 4
    assert types_of(events()[4:]) == ["START", "FAIL"] * 2, "no attempt is left after the last"
    assert "attempt 2 of 2: exit code 4" in events()[-1]["run"]["facets"]["errorMessage"]["message"]


def test_a_signal_goes_on_to_the_program_and_the_run_is_aborted(
    write_manifest: WriteManifest, script: Path, home: Path, events: Events
) -> None:
    package = write_manifest("trap 'touch got; exit 9' TERM; touch up; sleep 60 & wait")
    command = [str(script), "run", str(package), "--home", str(home)]
    with subprocess.Popen(command, env={**os.environ, "WAYBILL_RUNNER": "none"}) as process:
        wait_until((package / "up").exists, 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 9
    assert (package / "got").exists()
    assert types_of(events()) == ["START", "ABORT"]
    message = events()[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message.startswith("it was stopped by SIGTERM")


@pytest.mark.parametrize("number", FORWARDED)
def test_each_signal_goes_on_to_the_program_as_it_is_also_while_that_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    begin = subprocess.Popen

    def begin_slowly(*arguments: Any, **more: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - Popen's own
        process = begin(*arguments, **more)
        wait_until((tmp_path / "up").exists, 30)
        signal.raise_signal(number)
        return process

    monkeypatch.setattr("waybill.pipelines.child.subprocess.Popen", begin_slowly)
    script = f"trap 'exit 9' {number.name[3:]}; touch up; sleep 60 & wait"
    with Child(["sh", "-c", script], folder=tmp_path, environment=os.environ, grace_s=30) as child:
        assert child.run(timeout_s=0, beat=lambda: None, beat_every_s=0).code == 9
    assert child.stopped == f"it was stopped by {number.name}"


def test_a_program_that_ignores_signals_is_killed_after_its_grace(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    package = write_manifest(
        "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done",
        runtime={"timeout": "1s", "grace": "100ms"},
    )
    done = run_package(package)
    assert done.returncode == 124
    assert done.stderr.splitlines()[-1].startswith("waybill: it took longer than 1 s")
    assert types_of(events()) == ["START", "ABORT"]
    assert not is_running(int((package / "pid").read_text()))


def test_nothing_that_a_program_started_is_left_running(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    daemon = "setsid sh -c 'echo $$ > daemon; trap \"\" TERM; while :; do sleep 0.05; done' >&2 &"
    package = write_manifest(
        f"{daemon} sleep 60 & echo $! > child; while ! test -s daemon; do sleep 0.02; done",
        runtime={"grace": "100ms"},
    )
    assert run_package(package).returncode == 0
    assert types_of(events()) == ["START", "COMPLETE"]
    for name in ("child", "daemon"):
        assert not is_running(int((package / name).read_text()))


def test_a_program_that_cannot_be_run_is_a_failed_run(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    for command, code, why in (
        ("no-such-program", 127, "No such file or directory"),
        ("/etc/passwd", 126, "Permission denied"),
    ):
        done = run_package(write_manifest(runtime={"command": [command]}))
        says = f"waybill: exit code {code}: {command} cannot be run: {why}\n"
        assert (done.returncode, done.stderr) == (code, says)
    assert types_of(events()) == ["START", "FAIL"] * 2


def test_a_run_tells_that_it_goes_on(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    assert run_package(write_manifest("sleep 0.5"), "--heartbeat", "0.05").returncode == 0
    told = types_of(events())
    assert (told[0], set(told[1:-1]), told[-1]) == ("START", {"RUNNING"}, "COMPLETE")
    assert len(told) >= 4


def test_the_program_learns_of_its_run_and_of_the_one_above(
    write_manifest: WriteManifest, script: Path, home: Path, run_package: RunPackage, events: Events
) -> None:
    inner = write_manifest("env -0 > env", name='in "n"\nl', folder="inner")
    outer = write_manifest(shlex.join([str(script), "run", str(inner)]), name="outer")
    traced = f"00-{TRACE}-{SPAN}-01"
    assert run_package(outer, TRACEPARENT=traced, SPARK_SUBMIT_OPTS="-Da=b").returncode == 0
    told = events()
    assert [(one["eventType"], one["job"]["name"]) for one in told] == [
        ("START", "outer"), ("START", 'in "n"\nl'), ("COMPLETE", 'in "n"\nl'), ("COMPLETE", "outer")
    ]  # fmt: skip
    above, parent = told[0]["run"]["runId"], told[1]["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["root"]["run"]["runId"]) == (above, above)
    assert (parent["job"], "parent" in told[0]["run"]["facets"]) == (
        {"namespace": "default", "name": "outer"}, False
    )  # fmt: skip
    tags = {tag["key"]: tag["value"] for tag in told[1]["run"]["facets"]["tags"]["tags"]}
    assert tags == {"trace_id": TRACE, "span_id": SPAN}
    assert [one.endpoint for one in backends_of(home)] == [], "the outer run is no backend of the inner"
    lines = (inner / "env").read_text().rstrip("\0").split("\0")
    given = dict(line.split("=", 1) for line in lines)
    run = told[1]["run"]["runId"]
    context = json.loads(given["OPENLINEAGE_CONTEXT"])["parent"]
    assert (context["run"]["runId"], context["root"]["run"]["runId"]) == (run, above)
    assert given["OPENLINEAGE_PARENT_ID"] == f'default/in "n"\nl/{run}'
    assert given["WAYBILL_HOME"] == str(home)
    assert given["OTEL_RESOURCE_ATTRIBUTES"].endswith(
        f"openlineage.run.id={run},openlineage.job.name=in%20%22n%22%0Al"
    )
    options = shlex.split(given["SPARK_SUBMIT_OPTS"])
    assert options[0] == "-Da=b"
    assert options[-6:-3] == [
        "-Dspark.openlineage.parentJobNamespace=default",
        '-Dspark.openlineage.parentJobName=in "n"\nl',
        f"-Dspark.openlineage.parentRunId={run}",
    ]


def test_clients_of_openlineage_and_trackers_within_are_below_the_run(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events, home: Path
) -> None:
    program = (
        "from openlineage.client import OpenLineageClient\n"
        "from openlineage.client.event_v2 import Job, Run, RunEvent, RunState\n"
        "from waybill import Tracker\n"
        "OpenLineageClient().emit(RunEvent(eventTime='2026-01-31T00:00:00Z', eventType=RunState.START,\n"
        "    run=Run('01000000-0000-7000-8000-000000000001'), job=Job('n', 'client'), producer='p'))\n"
        "with Tracker() as tracker, tracker.file('a.csv', data_source='in') as file:\n"
        "    [half, _] = file.split(['b', 'c'], data_source='halves')\n"
        "    half.egress('lake')\n"
    )
    package = write_manifest(runtime={"command": [sys.executable, "-c", program]})
    done = run_package(package, OPENLINEAGE_ENDPOINT="elsewhere")
    assert done.returncode == 0, done.stderr
    told = events()
    run = told[0]["run"]["runId"]
    by_job = {event["job"]["name"]: event["run"] for event in told}
    assert by_job["client"]["facets"]["parent"]["run"]["runId"] == run
    assert by_job["in"]["facets"]["parent"]["run"]["runId"] == run
    assert by_job["halves"]["facets"]["parent"]["run"]["runId"] == by_job["in"]["runId"]
    related = Lineage.open(home).dependencies("nightly").related
    assert {edge.target.name for edge in related if edge.kind is EdgeKind.START} == {"client", "in"}


def test_no_duration_is_longer_than_clocks_count(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    for heartbeat in ("1e19", "nan"):
        refused = run_package(write_manifest("echo ran"), "--heartbeat", heartbeat)
        assert (refused.returncode, refused.stdout) == (2, ""), heartbeat
        assert "Error: Invalid value for '--heartbeat': give " in refused.stderr
    longest = "9999d 99999h 9999999m 999999999s 999999999999ms"
    done = run_package(
        write_manifest("echo ran", runtime={"timeout": longest, "grace": longest}), "--heartbeat", "1e9"
    )
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert types_of(events()) == ["START", "COMPLETE"]


def test_a_program_ends_whatever_is_raised_while_it_runs(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    script = "sleep 600 & echo $! > inner; echo $$ > outer; wait"
    child = Child(["sh", "-c", script], folder=tmp_path, environment=os.environ, grace_s=1)
    with child, pytest.raises(RuntimeError, match="a bug"):
        child.run(timeout_s=0, beat=fail, beat_every_s=1)
    for name in ("outer", "inner"):
        assert not Path("/proc", (tmp_path / name).read_text().strip()).exists()


def test_the_rule_that_the_page_advises_hides_an_argument_in_every_facet(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    (rule,) = re.findall(r"`(run\.facets\.[\w.*]+=mask)`", page)
    program = "import sys; print('refused:', sys.argv[2:], file=sys.stderr); sys.exit(3)"
    package = write_manifest(runtime={"command": [sys.executable, "-c", program]})
    arguments = ["--", "--token", "hunter 2 x", "--password=swordfish", "a=b"]
    assert run_package(package, *arguments, WAYBILL_REDACT=rule).returncode == 3
    told = events()
    assert types_of(told) == ["START", "FAIL"]
    text = json.dumps(told)
    assert "hunter" not in text
    assert "swordfish" not in text
    facets = told[1]["run"]["facets"]
    assert facets["errorMessage"]["message"].count("[redacted]") >= 2
    assert "[redacted]" in told[0]["job"]["facets"]["sourceCode"]["sourceCode"]


def test_what_looks_like_a_secret_is_told_in_no_facet(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    address = "https://etl:swordfish@db.example/x?password=swordfish&sig=swordfish&X-Amz-Signature=swordfish"
    texts = [address, "etl:swordfish@db", "AWS_SECRET_ACCESS_KEY=swordfish"]
    package = write_manifest(
        shlex.join(["printf", "%s\\n", *texts]) + " >&2; exit 1", runtime={"reported_env": ["DATABASE"]}
    )
    assert run_package(package, "--", *texts, DATABASE=address).returncode == 1
    text = json.dumps(events())
    assert "swordfish" not in text
    assert "https://etl:[redacted]@db.example/x?password=[redacted]&sig=[redacted]" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_nobody_runs_what_another_user_wrote_and_a_checkout_of_a_group_is_its_users(
    write_manifest: WriteManifest, run_package: RunPackage
) -> None:
    package = write_manifest("echo ran")
    manifest = package / "dk.yaml"
    for place, mode in ((manifest, 0o664), (package, 0o2775)):
        os.chown(place, -1, 54_321)
        place.chmod(mode)
    assert run_package(package).stdout == "ran\n"
    os.chown(manifest, 12_345, -1)
    for more in ([], ["--dry-run"]):
        done = run_package(package, *more)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{manifest}: it does not count, since it belongs to another user" in done.stderr


def test_no_other_program_of_the_machine_tells_of_the_run(
    write_manifest: WriteManifest, run_package: RunPackage, events: Events
) -> None:
    program = (
        "import json, os, urllib.error, urllib.request as r\n"
        "from urllib.parse import urljoin, urlsplit\n"
        "own = os.environ['OPENLINEAGE_URL']\n"
        "event = {'eventTime': '2026-01-31T00:00:00Z', 'eventType': 'START', 'producer': 'p',\n"
        "    'run': {'runId': '01000000-0000-7000-8000-000000000001'}, 'job': {'namespace': 'n'}}\n"
        "def post(url, name):\n"
        "    event['job']['name'] = name\n"
        "    headers = {'Content-Type': 'application/json'}\n"
        "    try:\n"
        "        return r.urlopen(r.Request(url, json.dumps(event).encode(), headers)).status\n"
        "    except urllib.error.HTTPError as error:\n"
        "        return error.code\n"
        "stranger = f'http://{urlsplit(own).netloc}'\n"
        "print(post(f'{stranger}/api/v1/lineage', 'stranger'), post(urljoin(own, 'api/v1/lineage'), 'own'))\n"
        "assert not any(urlsplit(own).path[1:-1] in open(f'/proc/{one}/cmdline', errors='ignore').read()\n"
        "    for one in (os.getpid(), os.getppid()))\n"
    )
    done = run_package(write_manifest(runtime={"command": [sys.executable, "-c", program]}))
    assert (done.returncode, done.stdout) == (0, "404 201\n"), done.stderr
    assert {event["job"]["name"] for event in events()} == {"nightly", "own"}


def test_a_transport_that_the_user_chose_stays(
    write_manifest: WriteManifest, run_package: RunPackage
) -> None:
    package = write_manifest("echo $OPENLINEAGE_CONFIG $OPENLINEAGE_URL")
    assert run_package(package, OPENLINEAGE_CONFIG="/etc/ol.yml").stdout == "/etc/ol.yml\n"
    assert run_package(package).stdout.startswith("http://127.0.0.1:")
    set_by_a_client = {"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__URL": "http://127.0.0.1:1"}
    assert run_package(package, **set_by_a_client).stdout.startswith("http://127.0.0.1:")


def test_the_listener_of_spark_sends_to_the_run_unless_the_user_told_it_otherwise(
    write_manifest: WriteManifest, run_package: RunPackage
) -> None:
    ours, theirs = (
        "-Dspark.openlineage.transport.url=http://127.0.0.1:",
        "-Dspark.openlineage.transport.type=file",
    )

    def options_of(package: Path, **environment: str) -> list[str]:
        return shlex.split(run_package(package, **environment).stdout)

    def is_led(options: list[str]) -> bool:
        return "-Dspark.openlineage.transport.type=http" in options and any(ours in one for one in options)

    tells = 'printf %s "$SPARK_SUBMIT_OPTS"'
    assert is_led(options_of(write_manifest(tells)))
    assert not is_led(options_of(write_manifest(tells), OPENLINEAGE_CONFIG="/etc/ol.yml"))
    assert not is_led(options_of(write_manifest(tells), SPARK_SUBMIT_OPTS=theirs))
    of_package = options_of(write_manifest(tells, runtime={"env": {"SPARK_SUBMIT_OPTS": theirs}}))
    assert of_package[0] == theirs
    assert not is_led(of_package)
    (write_manifest(tells) / "openlineage.yml").write_text("transport: {type: console}")
    assert not is_led(options_of(write_manifest(tells)))


def test_a_name_that_the_listener_of_spark_would_take_for_a_list_reaches_it_as_a_context(
    write_manifest: WriteManifest, run_package: RunPackage
) -> None:
    package = write_manifest(
        'printf %s "$SPARK_SUBMIT_OPTS"; printf %s "$OPENLINEAGE_CONTEXT" > told', name="[a]"
    )
    options = shlex.split(run_package(package).stdout)
    assert options[-1] == f"-Dspark.openlineage.context={(package / 'told').read_text()}"
    assert not any("parentJobName" in option for option in options[:-1])


def test_events_that_cannot_be_kept_stop_no_program(
    write_manifest: WriteManifest, run_package: RunPackage
) -> None:
    package = write_manifest("touch ran; exit 5")
    done = run_package(package, WAYBILL_JOURNAL_MAX_BYTES="1MiB", WAYBILL_ADMIT_NAME_CHARS="3")
    assert (done.returncode, (package / "ran").exists()) == (5, True)
    assert "2 events of the run are not kept" in done.stderr


@pytest.mark.parametrize("where", ["environment", "configuration of dk", "both"])
def test_events_go_on_to_the_backend_that_the_environment_or_dk_names(
    where: str, write_manifest: WriteManifest, run_package: RunPackage, home: Path, tmp_path: Path
) -> None:
    given = {"HOME": str(tmp_path)}
    if where != "environment":
        (tmp_path / ".dk").mkdir()
        lines = ["lineage:", "  backend: marquez", "  endpoint: http://127.0.0.1:9/api/v1/lineage"]
        (tmp_path / ".dk" / "config.yaml").write_text("\n".join(lines))
    if where != "configuration of dk":
        given["OPENLINEAGE_URL"] = "http://127.0.0.1:8/api/v1/lineage"
    assert run_package(write_manifest(), **given).returncode == 0
    kind, port = ("marquez", 9) if where == "configuration of dk" else ("custom", 8)
    (backend,) = backends_of(home)
    assert (backend.backend, backend.endpoint) == (kind, f"http://127.0.0.1:{port}/api/v1/lineage")


def test_a_dry_run_prints_the_first_event_and_runs_nothing(
    write_manifest: WriteManifest, run_package: RunPackage, home: Path
) -> None:
    package = write_manifest("touch ran")
    done = run_package(package, "--dry-run")
    assert json.loads(done.stdout)["eventType"] == "START"
    assert not (package / "ran").exists()
    assert not home.exists()
