"""The state of the stack: what is not running, which URL is wrong, what waits to be delivered."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from waybill.cli.commands.doctor import marquez_answers
from waybill.cli.commands.status import status_of
from waybill.cli.dev.compose import Compose, StackError, compose_file, services_of
from waybill.cli.findings import Diagnosis, Level, broken
from waybill.cli.services import COLLECTOR, MARQUEZ, SERVICES, Answer, Service, ask, waiting_by_projection
from waybill.transport import JournalError, Settings

if TYPE_CHECKING:
    from waybill.cli.dev.compose import Container

_KEY_WANTED: Final = frozenset({401, 403})
_OPENLINEAGE_URL: Final = "OPENLINEAGE_URL"


class _Readiness(msgspec.Struct):
    """A collector's answer at `/health/ready`."""

    ready: bool
    problems: dict[str, str]


def look(settings: Settings, file: Path | None) -> Iterator[Diagnosis]:
    """Check the stack of this file (None: search for it), and what settings and environment say of it."""
    containers: Mapping[str, Container] = {}
    try:
        found = compose_file(file)
        named = services_of(found)
        containers = Compose(found).containers()
    except StackError as error:
        yield msgspec.structs.replace(broken("docker", error), level=Level.NOTE)
    else:
        running = sum(container.is_well for container in containers.values())
        level = Level.OK if running == len(named) else Level.NOTE
        says = f"{running} of {len(named)} services of {found} are well"
        yield Diagnosis("docker", level, says, None if level is Level.OK else "waybill dev up")
        for name in named:
            if name not in {service.name for service in SERVICES}:
                yield _unseen(name, containers.get(name))
    answers = {service: ask(service.url + service.path) for service in SERVICES}
    problems = _problems(answers[COLLECTOR])
    for service, answer in answers.items():
        if service is COLLECTOR and answer.status is not None and problems is None:
            says = f"what answers at {service.url} is no collector of Waybill"
            yield Diagnosis(service.name, Level.BROKEN, says, f"give its port with {service.variable}")
        else:
            yield _served(service, answer, containers.get(service.name))
    if problems is not None:
        yield from _waiting(problems)
    yield from _urls(settings)
    yield _home(settings)


def _unseen(name: str, container: Container | None) -> Diagnosis:
    """The finding about a service without a port on this machine."""
    if container is None:
        return Diagnosis(name, Level.BROKEN, "was not started", "waybill dev up")
    if container.is_well:
        return Diagnosis(name, Level.OK, f"is {container.says}")
    return Diagnosis(name, Level.BROKEN, f"is {container.says}", f"waybill dev logs {name}")


def _served(service: Service, answer: Answer, container: Container | None) -> Diagnosis:
    if answer.is_well:
        return Diagnosis(service.name, Level.OK, f"{service.says} answers at {service.url}")
    says = f"{service.says} at {service.url}: {answer.says}"
    if container is None:
        mend = f"waybill dev up; or {service.variable}, if it has another port"
        return Diagnosis(service.name, Level.BROKEN, says, mend)
    mend = f"waybill dev logs {service.name}"
    return Diagnosis(service.name, Level.BROKEN, f"{says}; its container is {container.says}", mend)


def _problems(readiness: Answer) -> dict[str, str] | None:
    """A collector's problems by what they concern; None if the answer is not a collector's."""
    try:
        return msgspec.json.decode(readiness.text, type=_Readiness).problems
    except msgspec.MsgspecError:
        return None


def _waiting(problems: Mapping[str, str]) -> Iterator[Diagnosis]:
    """What waits in the collector for each projection, and what holds it up."""
    metrics = ask(f"{COLLECTOR.url}/metrics", os.environ.get("OPENLINEAGE_API_KEY"))
    if metrics.status in _KEY_WANTED:
        mend = "set OPENLINEAGE_API_KEY to a key with the role read"
        yield Diagnosis(
            "waiting", Level.NOTE, "the collector says what waits only to those who have a key", mend
        )
    for name, (entries, age_s) in waiting_by_projection(metrics.text if metrics.is_well else "").items():
        check = f"collector: {name}"
        count = f"{entries} {'entry waits' if entries == 1 else 'entries wait'}, the oldest for {age_s:.0f} s"
        says = count if entries else "nothing waits"
        if name in problems:
            held_up = broken(check, problems[name])
            yield msgspec.structs.replace(held_up, says=f"{says}; {held_up.says}")
        else:
            yield Diagnosis(check, Level.NOTE if entries else Level.OK, says)


def _urls(settings: Settings) -> Iterator[Diagnosis]:
    """Whether the URLs in this user's settings and environment lead to what they should."""
    if settings.marquez_url is not None:
        finding = marquez_answers(settings)
        where = settings.origins["marquez_url"]
        yield msgspec.structs.replace(finding, check="marquez_url", says=f"{finding.says} ({where})")
    url = os.environ.get(_OPENLINEAGE_URL)
    if not url:
        return
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    mend = f"set it to the collector's, {COLLECTOR.url}"
    if ask(f"{base}/health/live").is_well:
        yield Diagnosis(_OPENLINEAGE_URL, Level.OK, f"{base} is a collector")
    elif ask(base + MARQUEZ.path).is_well:
        says = f"{base} is a Marquez: what clients send there while it is down is lost"
        yield Diagnosis(_OPENLINEAGE_URL, Level.NOTE, says, mend)
    else:
        yield Diagnosis(_OPENLINEAGE_URL, Level.BROKEN, f"{base} is no collector of Waybill", mend)


def _home(settings: Settings) -> Diagnosis:
    """What waits in this user's own home, which programs that use Waybill write to."""
    try:
        found = status_of(settings)
    except JournalError as error:
        return broken("home", error)
    behind = {name: one.behind for name, one in found.projections.items() if one.behind}
    problems = [f"{name} is held up: {one.problem}" for name, one in found.projections.items() if one.problem]
    if problems:
        return broken("home", f"{found.home}: {problems[0]}")
    if behind:
        counts = ", ".join(f"{count} for {name}" for name, count in behind.items())
        mend = "waybill flush --home " + found.home
        return Diagnosis("home", Level.NOTE, f"{found.home}: entries wait, {counts}", mend)
    return Diagnosis("home", Level.OK, f"{found.home}: nothing waits")
