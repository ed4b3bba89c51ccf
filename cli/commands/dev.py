"""`waybill dev`: start and stop the local stack with Docker Compose, and report its problems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urljoin

import msgspec

from waybill.transport import NotFoundError, WaybillError
from waybill.transport.counting import counted, duration_text

from .. import console
from ..arguments import Csv, JsonArray, JsonObject, argument, flag, valued
from ..commanding import Group
from ..findings import Diagnosis, Level, broken, report

app: Final = Group(help="Run Marquez with its web page, a collector, Prometheus and Grafana in Docker.")

_TIMEOUT_S: Final = 3.0
_OK: Final = 200
_SAMPLE: Final = re.compile(r'waybill_projection_(behind|age_seconds)\{projection="([^"]*)"\} (\S+)')


class Service(NamedTuple):
    """One service of the stack that listens on this machine.

    Attributes:
        name: its name in the compose file.
        variable: the environment variable that sets its port.
        port: the port without that variable.
        path: the path at which it answers 200 while it is healthy.
    """

    name: str
    says: str
    variable: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://localhost:{os.environ.get(self.variable) or self.port}"


COLLECTOR: Final = Service("collector", "Waybill's collector", "WAYBILL_PORT", 8090, "/health/ready")
MARQUEZ: Final = Service("marquez", "Marquez's API", "MARQUEZ_PORT", 5000, "/api/v1/namespaces?limit=1")
PAGE: Final = Service("page", "Marquez's page", "MARQUEZ_PAGE_PORT", 3000, "/healthcheck")
PROMETHEUS: Final = Service("prometheus", "Prometheus", "PROMETHEUS_PORT", 9090, "/-/ready")
ALERTMANAGER: Final = Service("alertmanager", "Alertmanager", "ALERTMANAGER_PORT", 9093, "/-/ready")
GRAFANA: Final = Service("grafana", "Grafana", "GRAFANA_PORT", 3001, "/api/health")

SERVICES: Final = (COLLECTOR, MARQUEZ, PAGE, PROMETHEUS, ALERTMANAGER, GRAFANA)


class Answer(NamedTuple):
    """A URL's answer: its status and body, or None and the reason why there is no answer."""

    status: int | None
    text: str

    @property
    def is_well(self) -> bool:
        """Whether the status is 200."""
        return self.status == _OK

    @property
    def says(self) -> str:
        """The problem in a few words."""
        return self.text if self.status is None else f"it answers {self.status}"


def ask(url: str, api_key: str | None = None) -> Answer:
    """Get a URL, ignoring any proxy that the environment names."""
    import requests

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with requests.Session() as session:
        session.trust_env = False
        try:
            answer = session.get(url, headers=headers, timeout=_TIMEOUT_S, allow_redirects=False)
        except requests.Timeout:
            return Answer(None, f"no answer within {_TIMEOUT_S:.0f} s")
        except requests.RequestException:
            return Answer(None, "nothing answers there")
        return Answer(answer.status_code, answer.text)


class Waiting(NamedTuple):
    """The entries that wait for one projection of a collector: their number, and the age of the oldest."""

    entries: int
    age_s: float


def waiting_by_projection(metrics: str) -> Mapping[str, Waiting]:
    """The waiting entries of each projection, read from a collector's `/metrics`."""
    found: dict[str, dict[str, float]] = {}
    for what, name, value in _SAMPLE.findall(metrics):
        found.setdefault(name, {})[what] = float(value)
    return {
        name: Waiting(int(figures.get("behind", 0)), figures.get("age_seconds", 0.0))
        for name, figures in sorted(found.items())
    }


_FILE: Final = "docker-compose.yml"
_CHECKOUT: Final = Path(__file__).parents[4]  # a wheel has no such file: its image is built from the sources
_COLUMNS: Final = ("service", "url", "what")
_HELP: Final = f"Waybill's {_FILE}. [default: in this folder, in a parent, or in the checkout]"
_File = Annotated[Path | None, valued("FILE", _HELP, "--file", show_default=False)]
_Services = Annotated[list[str] | None, argument("SERVICE", "Only these.")]
_Volumes = Annotated[bool, flag("--volumes", "Also delete the journal and Marquez's data.")]
_Follow = Annotated[bool, flag("--follow", "Show new lines until Ctrl-C.", "-f")]
_Lines = Annotated[int, valued("LINES", "How many lines to show of each service.", min=0)]


@app.command("up")
def up(
    services: _Services = None, *, file: _File = None, as_json: JsonArray = False, as_csv: Csv = False
) -> None:
    """Start the stack, and wait until every service is healthy.

    Builds the collector's image first, from the sources beside the file.

    Examples:
      waybill dev up
      MARQUEZ_PORT=5050 waybill dev up database marquez page
    """
    _compose(file, "up", "--detach", "--build", "--wait", *(services or ()), stdout=sys.stderr)
    running = [(one.name, one.url, one.says) for one in SERVICES if not services or one.name in services]
    if as_json:
        console.json([dict(zip(_COLUMNS, service, strict=True)) for service in running])
    else:
        console.table(_COLUMNS, running, as_csv=as_csv)


@app.command("status")
def status(*, file: _File = None, as_json: JsonArray = False) -> None:
    """Report what is not running, and what waits in the collector.

    Asks Docker, each service at its port (MARQUEZ_PORT and the like, if they are set), and OPENLINEAGE_URL.
    `waybill doctor` checks the settings and the home. Exit code 1 if something is broken.

    Examples:
      waybill dev status --json | jq '.[] | select(.level != "ok")'
    """
    report([*look_at_services(file), *look_at_collector()], as_json=as_json)


@app.command("down")
def down(*, file: _File = None, volumes: _Volumes = False, as_json: JsonObject = False) -> None:
    """Stop the stack. Its data stays for the next start.

    Examples:
      waybill dev down
    """
    _compose(file, "down", *(["--volumes"] if volumes else []), stdout=sys.stderr)
    if as_json:
        console.json({"running": [], "volumes_deleted": volumes})


@app.command("logs")
def logs(
    services: _Services = None, *, file: _File = None, follow: _Follow = False, tail: _Lines = 100
) -> None:
    """Show the services' logs.

    Examples:
      waybill dev logs marquez --tail 20
    """
    _compose(file, "logs", "--tail", str(tail), *(["--follow"] if follow else []), *(services or ()))


def _compose(file: Path | None, *arguments: str, **streams: Any) -> str:  # noqa: ANN401 - those of `run`
    """Run a command of Docker Compose, which prints its own errors; return what it wrote into a pipe."""
    command = ["docker", "compose", "--file", str(_compose_file(file)), *arguments]
    if shutil.which("docker") is None:
        raise WaybillError("docker is not installed; install Docker with its compose plug-in")
    done = subprocess.run(command, check=False, text=True, **streams)
    if done.returncode:
        raise WaybillError(f"docker compose {arguments[0]} failed; `waybill dev logs` may say why")
    return done.stdout or ""


def _compose_file(given: Path | None) -> Path:
    for folder in (Path.cwd(), *Path.cwd().parents, _CHECKOUT):
        file = given or folder / _FILE
        if file.is_file() and (given or "name: waybill" in file.read_text(errors="replace").splitlines()):
            return file
    raise NotFoundError(
        f"{given or _FILE} is not there; give the path of Waybill's {_FILE}, from its sources"
    )


def look_at_services(file: Path | None) -> Iterator[Diagnosis]:
    """Whether each service answers; of one that does not, the state of its container."""
    states: dict[str, str] = {}
    try:
        listed = _compose(file, "ps", "--all", "--format", "json", stdout=subprocess.PIPE)
        states = {one["Service"]: one["Status"] for one in map(msgspec.json.decode, listed.splitlines())}
    except WaybillError as error:
        yield msgspec.structs.replace(broken("docker", error), level=Level.NOTE)
    for service in SERVICES:
        answer = ask(service.url + service.path)
        if answer.is_well:
            yield Diagnosis(service.name, Level.OK, f"{service.says} answers at {service.url}")
            continue
        says, state = f"{service.says} at {service.url}: {answer.says}", states.get(service.name)
        fix = f"waybill dev up; or set {service.variable}, if it has another port"
        if state is not None:
            says, fix = f"{says}; its container: {state}", f"waybill dev logs {service.name}"
        yield Diagnosis(service.name, Level.BROKEN, says, fix)


def look_at_collector() -> Iterator[Diagnosis]:
    """What waits in the collector, what holds it up, and whether OPENLINEAGE_URL leads to a collector."""
    metrics = ask(f"{COLLECTOR.url}/metrics", os.environ.get("OPENLINEAGE_API_KEY"))
    if metrics.status in {401, 403}:
        fix = "set OPENLINEAGE_API_KEY to a key with the role read"
        yield Diagnosis("waiting", Level.NOTE, "the collector shows what waits only to holders of a key", fix)
    waiting = waiting_by_projection(metrics.text if metrics.is_well else "")
    problems = msgspec.json.decode(ask(COLLECTOR.url + COLLECTOR.path).text)["problems"] if waiting else {}
    for name, (entries, age_s) in waiting.items():
        waits = f"{counted(entries, 'entry', 'entries')} waiting, the oldest for {duration_text(age_s)}"
        finding = Diagnosis(f"collector: {name}", Level.NOTE if entries else Level.OK, waits)
        yield broken(finding.check, f"{waits}: {problems[name]}") if name in problems else finding
    if url := os.environ.get("OPENLINEAGE_URL"):
        lost = broken("OPENLINEAGE_URL", f"{url} is no collector; set it to {COLLECTOR.url}")
        is_collector = ask(urljoin(url, "/health/live")).is_well
        yield Diagnosis(lost.check, Level.OK, f"{url} is a collector") if is_collector else lost
