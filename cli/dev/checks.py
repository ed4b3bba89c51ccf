"""The state of the stack: stopped services, wrong URLs, and entries that wait for delivery."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from waybill.transport import JournalError, NotFoundError, Settings

from ..commands.doctor import marquez_answers
from ..commands.status import status_of
from ..findings import Diagnosis, Level, broken
from ..services import COLLECTOR, MARQUEZ, SERVICES, Answer, Service, ask, waiting_by_projection
from .compose import Compose, StackError, compose_file, services_of

if TYPE_CHECKING:
    from .compose import Container

_KEY_WANTED: Final = frozenset({401, 403})
_OPENLINEAGE_URL: Final = "OPENLINEAGE_URL"


class _Readiness(msgspec.Struct):
    """A collector's answer at `/health/ready`."""

    ready: bool
    problems: dict[str, str]


def look(settings: Settings, file: Path | None) -> Iterator[Diagnosis]:
    """Check the stack of this file (None: search for it), and the settings and variables that refer to it."""
    containers: Mapping[str, Container] = {}
    try:
        found = compose_file(file)
        named = services_of(found)
        containers = Compose(found).containers()
    except (NotFoundError, StackError) as error:
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
            says = f"what answers at {service.url} is not a Waybill collector"
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
        fix = f"waybill dev up; or {service.variable}, if it has another port"
        return Diagnosis(service.name, Level.BROKEN, says, fix)
    fix = f"waybill dev logs {service.name}"
    return Diagnosis(service.name, Level.BROKEN, f"{says}; its container is {container.says}", fix)


def _problems(readiness: Answer) -> dict[str, str] | None:
    """A collector's problems, by the part that each affects; None if the answer is not a collector's."""
    try:
        return msgspec.json.decode(readiness.text, type=_Readiness).problems
    except msgspec.MsgspecError:
        return None


def _waiting(problems: Mapping[str, str]) -> Iterator[Diagnosis]:
    """The entries that wait in the collector for each projection, and the problems that hold them up."""
    metrics = ask(f"{COLLECTOR.url}/metrics", os.environ.get("OPENLINEAGE_API_KEY"))
    if metrics.status in _KEY_WANTED:
        fix = "set OPENLINEAGE_API_KEY to a key with the role read"
        yield Diagnosis("waiting", Level.NOTE, "the collector shows what waits only to holders of a key", fix)
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
    """Whether the URLs in this user's settings and environment lead to the right services."""
    if settings.marquez_url is not None:
        finding = marquez_answers(settings)
        where = settings.origins["marquez_url"]
        yield msgspec.structs.replace(finding, check="marquez_url", says=f"{finding.says} ({where})")
    url = os.environ.get(_OPENLINEAGE_URL)
    if not url:
        return
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    fix = f"set it to the collector's, {COLLECTOR.url}"
    if ask(f"{base}/health/live").is_well:
        yield Diagnosis(_OPENLINEAGE_URL, Level.OK, f"{base} is a collector")
    elif ask(base + MARQUEZ.path).is_well:
        says = f"{base} is a Marquez: events that clients send there while it is down are lost"
        yield Diagnosis(_OPENLINEAGE_URL, Level.NOTE, says, fix)
    else:
        yield Diagnosis(_OPENLINEAGE_URL, Level.BROKEN, f"{base} is not a Waybill collector", fix)


def _home(settings: Settings) -> Diagnosis:
    """The entries that wait in this user's own home, which programs with Waybill write to."""
    if not settings.home.is_dir():
        return Diagnosis("home", Level.OK, f"there is none at {settings.home} yet; `waybill init` makes one")
    try:
        found = status_of(settings)
    except JournalError as error:
        return broken("home", error)
    behind = {name: one.behind for name, one in found.projections.items() if one.behind}
    if found.problems:
        return broken("home", f"{found.home}: {found.problems[0].sentence}")
    if behind:
        counts = ", ".join(f"{count} for {name}" for name, count in behind.items())
        fix = "waybill flush --home " + found.home
        return Diagnosis("home", Level.NOTE, f"{found.home}: entries wait, {counts}", fix)
    return Diagnosis("home", Level.OK, f"{found.home}: nothing waits")
