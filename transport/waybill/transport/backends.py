"""The setting ``backends``: each place that events are delivered to.

A list, as YAML or JSON has it::

    backends:
      - backend: datahub
        endpoint: https://datahub.example.com:8080
        api_key: ...
      - backend: file
        endpoint: /var/log/lineage.jsonl

``marquez_url`` with ``marquez_api_key`` is the short form for the commonest one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec

MARQUEZ: Final = "marquez"
"""The name of the backend that ``marquez_url`` stands for."""

Detail = Literal["every", "summary", "auto"]
"""Whether each file has a run of its own at a backend; see the setting ``marquez_detail``."""
DETAILS: Final[tuple[Detail, ...]] = get_args(Detail)

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_TAKEN: Final = frozenset({"archive", "layout", "runner"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never listened at


class BackendSetting(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One place that events are delivered to.

    Attributes:
        backend: what is there: an OpenLineage backend over HTTP, or the runner's own output, or a file.
        name: what it is called in `waybill status`; no two have one name. Empty: that of its kind.
        endpoint: a URL, with or without the path of the lineage endpoint; a path for ``file``.
        api_key: sent as a bearer token.
        detail: as the setting ``marquez_detail``; None is ``auto`` for a Marquez, ``every`` for others.
    """

    backend: Literal["marquez", "datahub", "openmetadata", "custom", "console", "file"]
    name: str = ""
    endpoint: str = ""
    api_key: str | None = None
    detail: Detail | None = None


def parse_backends(value: object) -> tuple[BackendSetting, ...]:
    """Check a list of backends; a text is read as JSON.

    Raises:
        ValueError: it is none, or one of them cannot be; the message never holds a key.
    """
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ValueError(f"give a list as JSON has it ({error})") from None
    if isinstance(value, tuple):
        value = list(value)
    try:
        given = msgspec.convert(value, list[BackendSetting], from_attributes=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"give a list of backends, each with backend and endpoint ({error})") from None
    checked = tuple(_checked(one) for one in given)
    names = [one.name for one in checked]
    if len(set(names)) < len(names):
        raise ValueError("two backends have one name, give each a name of its own")
    return checked


def without_keys(backends: Iterable[BackendSetting]) -> list[dict[str, str]]:
    """Backends as JSON has them, fit to be kept and shown."""
    return [msgspec.to_builtins(msgspec.structs.replace(one, api_key=None)) for one in backends]


def with_keys(
    backends: Iterable[BackendSetting], others: Iterable[BackendSetting]
) -> tuple[BackendSetting, ...]:
    """Backends that have no key, with that of the same backend elsewhere."""
    keys = {(one.name, one.backend, one.endpoint): one.api_key for one in others}
    return tuple(
        one
        if one.api_key
        else msgspec.structs.replace(one, api_key=keys.get((one.name, one.backend, one.endpoint)))
        for one in backends
    )


def check_url(url: str) -> None:
    """Check where a backend is.

    Raises:
        ValueError: it is no URL that can be sent to.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("give an http or https URL, as http://localhost:5000")
    _ = parts.port  # raises ValueError for a port that cannot be


def is_waybill_itself(url: str, listen: str) -> bool:
    """Whether events sent to a URL would come back in by Waybill's own endpoint.

    Args:
        url: where a backend is.
        listen: ``host:port`` of the endpoint.
    """
    parts = urlsplit(url)
    own_host, _, own_port = listen.rpartition(":")
    own_host = own_host.strip("[]")
    if (parts.port or {"http": 80, "https": 443}[parts.scheme]) != int(own_port):
        return False
    host = parts.hostname or ""
    loops = own_host in _LOOPBACK | _ANY_ADDRESS
    return host == own_host or (loops and host in _LOOPBACK | _ANY_ADDRESS)


def environment_of(backends: Iterable[BackendSetting]) -> dict[str, str]:
    """What tells a runner of its own the keys, which are not kept in the home."""
    if not any(one.api_key for one in backends):
        return {}
    return {"WAYBILL_BACKENDS": msgspec.json.encode(list(backends)).decode()}


def _checked(one: BackendSetting) -> BackendSetting:
    name = one.name or one.backend
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise ValueError(f"{name!r} cannot be a backend's name, give a short one in small letters")
    if one.backend == "console":
        if one.endpoint:
            raise ValueError("the console has no endpoint, leave it out")
        return msgspec.structs.replace(one, name=name)
    if one.backend == "file":
        if not one.endpoint or "\0" in one.endpoint:
            raise ValueError("give the path of the file as its endpoint")
        endpoint = str(Path(one.endpoint).expanduser().absolute())
        return msgspec.structs.replace(one, name=name, endpoint=endpoint)
    try:
        check_url(one.endpoint)
    except ValueError as error:
        raise ValueError(f"the endpoint of {name} cannot be: {error}") from None
    return msgspec.structs.replace(one, name=name)
