"""Tells owners, and those downstream of their datasets, that a service level is missed, or met again.

The file of objectives says how (`on_alert`): by a command, or a webhook. A breach is told once, and its end
once: the journal remembers what was told. What could not be told is told the next time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from waybill.facets.event import dataset_text
from waybill.lineage.graph import OfImpact
from waybill.transport.errors import NotFoundError, WaybillError, reason_of

if TYPE_CHECKING:
    from waybill.lineage.answers import GraphAnswers
    from waybill.lineage.levels import Level, Levels, OnAlert, Plan
    from waybill.transport import Journal

log = logging.getLogger("waybill.collector")

_OWNER: Final = "alerts"
_TOLD: Final = "told"
_CONSUMERS_MAX: Final = 100
"""So many consumers of a dataset are named, the nearest."""
_REASON_CHARS_MAX: Final = 500


class AlertError(WaybillError):
    """An alert could not be told."""


class Consumer(msgspec.Struct, frozen=True):
    """A dataset or a job downstream that has an owner."""

    kind: str
    namespace: str
    name: str
    owners: tuple[str, ...]


class AlertedDataset(msgspec.Struct, frozen=True):
    """A dataset that misses what is promised of it, or does no more.

    Attributes:
        namespace: as OpenLineage has it.
        name: unique there.
        owner: its first owner; empty: none is known.
        since_ms: when the breach was seen first, in epoch milliseconds.
        value: its own then, in the unit of the level; None: of the level, one dataset has none.
        objective: what it missed.
        consumers: those downstream that have an owner, the nearest first, at most 100.
    """

    namespace: str
    name: str
    owner: str
    since_ms: int
    value: float | None
    objective: float | None
    consumers: tuple[Consumer, ...]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """What the command gets on stdin, and the webhook as its body.

    Attributes:
        status: `breached`: the level is missed from now on; `over`: it is met again.
        sli: the level.
        tier: whose datasets it is about; empty of a level that is not about datasets.
        value: of the level, in its unit; None: it is unknown.
        objective: what is promised.
        unit: `ratio`, `seconds` or `count`.
        at_ms: when it was measured, in epoch milliseconds.
        datasets: those that are meant.
        owners: all whom it concerns: the owners of the datasets and of those downstream.
    """

    status: Literal["breached", "over"]
    sli: str
    tier: str
    value: float | None
    objective: float | None
    unit: str
    at_ms: int
    datasets: tuple[AlertedDataset, ...]
    owners: tuple[str, ...]


class _Key(NamedTuple):
    """What is told once: a level and, of one that is about datasets, a dataset."""

    sli: str
    tier: str
    namespace: str
    dataset: str


class _Breach(NamedTuple):
    owner: str
    since_ms: int
    value: float | None = None
    objective: float | None = None


_Told = dict[_Key, _Breach]


def tell_alerts(journal: Journal, answers: GraphAnswers, plan: Plan, levels: Levels) -> None:
    """Tell what has begun and what is over since the last time; failures are logged.

    Args:
        journal: the home's, which remembers what was told.
        answers: finds those downstream.
        plan: says how to tell; without `on_alert`, nothing is told or remembered.
        levels: as they were measured now.

    Raises:
        JournalError: what was told cannot be read or written.
    """
    on_alert = plan.file.on_alert
    if on_alert is None:
        return
    told = _read_told(journal)
    begun, over = _changes(levels, told)
    changes: list[tuple[Literal["breached", "over"], _Told]] = [("breached", begun), ("over", over)]
    for status, changed in changes:
        for level, some in _by_level(levels, changed):
            try:
                send(_alert(status, level, levels.measured_ms, some, answers), on_alert, plan.folder)
            except AlertError as error:
                log.warning("%s of %s is not told yet; trying again later: %s", status, level.sli, error)
                continue
            rest = {key: one for key, one in told.items() if key not in some}
            told = rest if status == "over" else {**rest, **some}
            journal.commit(_OWNER, put={_TOLD: msgspec.json.encode(list(told.items()))})


def send(alert: Alert, on_alert: OnAlert, folder: Path) -> None:
    """Hand an alert to the command or the webhook.

    Args:
        alert: what to tell.
        on_alert: how.
        folder: where the command runs.

    Raises:
        AlertError: it failed, or took too long.
    """
    body, timeout_s = msgspec.json.encode(alert), on_alert.timeout_s
    if on_alert.webhook is not None:
        _post(on_alert.webhook, body, timeout_s)
    else:
        _run(on_alert.command, body, folder, timeout_s)


def _run(command: tuple[str, ...], body: bytes, folder: Path, timeout_s: float) -> None:
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise AlertError(f"{command[0]} cannot be run: {reason_of(error)}") from None
    try:
        _, said = process.communicate(body, timeout_s)
    except subprocess.TimeoutExpired:
        raise AlertError(f"{command[0]} took longer than {timeout_s:g} s, and was ended") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        reason = said.decode(errors="replace").strip()[-_REASON_CHARS_MAX:]
        raise AlertError(f"{command[0]} ended with {process.returncode}: {reason}")


def _post(url: str, body: bytes, timeout_s: float) -> None:
    import requests

    headers = {"Content-Type": "application/json"}
    with requests.Session() as session:
        session.trust_env = False
        try:
            answer = session.post(url, body, headers=headers, timeout=timeout_s, allow_redirects=False)
        except requests.RequestException as error:
            raise AlertError(f"{url} does not answer: {error}") from None
    if not answer.ok or answer.is_redirect:
        raise AlertError(f"{url} answered {answer.status_code}")


def _changes(levels: Levels, told: _Told) -> tuple[_Told, _Told]:
    """What has begun, and what is over; within a maintenance window, neither."""
    breached = {
        _Key(one.sli, one.tier, one.namespace, one.dataset): _Breach(
            one.owner, levels.measured_ms, one.value, one.objective
        )
        for one in levels.breaches
    }
    named = {(key.sli, key.tier) for key in breached}
    for level in levels.missed:
        if (level.sli, level.tier) not in named:
            breached[_Key(level.sli, level.tier, "", "")] = _Breach("", levels.measured_ms)
    known = {(one.sli.value, one.tier) for one in levels.levels if not one.unknown}

    def is_held(key: _Key) -> bool:
        return levels.is_held(key.sli, key.namespace, key.dataset)

    def may_be_over(key: _Key) -> bool:
        is_listed = not (key.dataset and levels.breaches_left_out)  # it may be one of those
        return key not in breached and is_listed and (key.sli, key.tier) in known and not is_held(key)

    begun = {key: one for key, one in breached.items() if key not in told and not is_held(key)}
    return begun, {key: one for key, one in told.items() if may_be_over(key)}


def _by_level(levels: Levels, changed: _Told) -> Iterator[tuple[Level, _Told]]:
    """What changed, by level."""
    for level in levels.levels:
        some = {key: one for key, one in changed.items() if (key.sli, key.tier) == (level.sli, level.tier)}
        if some:
            yield level, some


def _alert(
    status: Literal["breached", "over"],
    level: Level,
    at_ms: int,
    changed: _Told,
    answers: GraphAnswers,
) -> Alert:
    datasets = tuple(
        AlertedDataset(key.namespace, key.dataset, *one, _consumers(answers, key))
        for key, one in changed.items()
        if key.dataset
    )
    owners = {one.owner for one in datasets if one.owner}
    owners.update(owner for one in datasets for consumer in one.consumers for owner in consumer.owners)
    return Alert(
        status=status,
        sli=level.sli,
        tier=level.tier,
        value=level.value,
        objective=level.objective,
        unit=level.unit,
        at_ms=at_ms,
        datasets=datasets,
        owners=tuple(sorted(owners)),
    )


def _consumers(answers: GraphAnswers, key: _Key) -> tuple[Consumer, ...]:
    try:
        reached = answers.answer(OfImpact(dataset_text(key.namespace, key.dataset))).nodes
    except NotFoundError:
        return ()  # nothing has told of it: that is the breach
    owned = [one for one in reached if one.owners][:_CONSUMERS_MAX]
    return tuple(Consumer(one.node.kind, one.node.namespace, one.node.name, one.owners) for one in owned)


def _read_told(journal: Journal) -> _Told:
    row = journal.state_get(_OWNER, _TOLD)
    return {} if row is None else dict(_DECODER.decode(row))


_DECODER: Final = msgspec.json.Decoder(list[tuple[_Key, _Breach]])
