"""The setting ``backends``: the places that events are delivered to, as a list in YAML or JSON.

``marquez_url`` with ``marquez_api_key`` is the short form for the most common one.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from waybill.facets.context import LINEAGE_PATH

from ..admission import repeated_in_text
from ..decoding import in_plain_words
from ..loopback import is_loopback

MARQUEZ: Final = "marquez"
"""The name of the backend that ``marquez_url`` stands for."""

Detail = Literal["every", "summary", "auto"]
"""Whether each file has a run of its own at a backend; see the setting ``marquez_detail``."""
DETAIL_BACKLOG: Final = 2_400
"""The number of events that Marquez takes in about a minute; see the setting ``detail_backlog``."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_KAFKA: Final = re.compile(r"kafka://([^\s/,@]+:\d+(?:,[^\s/,@]+:\d+)*)/([a-zA-Z0-9._-]{1,249})")
_USER: Final = re.compile(r"(?<=://)[^/?#\s]*@")
_TAKEN: Final = frozenset({"archive", "layout", "runner"})
OVER_HTTP: Final = frozenset({"marquez", "datahub", "openmetadata", "custom"})

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never listened at


_Kind = Literal["marquez", "datahub", "openmetadata", "custom", "console", "file", "kafka"]
_KINDS: Final = get_args(_Kind)


class BackendSetting(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One place that events are delivered to.

    Attributes:
        backend: its kind; ``console`` is the runner's own output.
        name: its unique name in `waybill status`; empty: the same as `backend`.
        endpoint: a URL, with or without the path of the lineage endpoint; a path for ``file``;
            ``kafka://broker:9092,broker:9092/topic``.
        api_key: sent as a bearer token.
        detail: like the setting ``marquez_detail``; None: ``auto`` for a Marquez, ``every`` for others.
        options: for the client library of ``kafka``, such as ``sasl.password``; all of them are secret.
    """

    backend: _Kind
    name: str = ""
    endpoint: str = ""
    api_key: str | None = None
    detail: Detail | None = None
    options: dict[str, str | int | float | bool] = {}


def parse_backends(value: object) -> tuple[BackendSetting, ...]:
    """Check a list of backends; text is read as JSON.

    Raises:
        ValueError: it is no such list, or a backend is invalid; the message never contains a key.
    """
    if isinstance(value, str):
        try:
            text, value = value.encode("utf-8", "surrogatepass"), msgspec.json.decode(value)
            if (repeated := repeated_in_text(text)) is not None:
                raise ValueError(f"give {repeated!r} once in each backend")
        except msgspec.DecodeError as error:
            raise ValueError(f"give a list in JSON; {in_plain_words(error)}") from None
        except UnicodeDecodeError:
            raise ValueError("give a list in JSON; it is not valid UTF-8") from None
    if isinstance(value, tuple):
        value = list(value)
    try:
        given = msgspec.convert(value, list[BackendSetting], from_attributes=True)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"give a list of backends, each with endpoint, and backend as one of {', '.join(_KINDS)}; "
            f"{in_plain_words(error)}"
        ) from None
    checked = tuple(_checked(one) for one in given)
    names = [one.name for one in checked]
    if len(set(names)) < len(names):
        raise ValueError("two backends have the same name; give each its own")
    return checked


def without_keys(backends: Iterable[BackendSetting]) -> list[dict[str, str]]:
    """Backends in their JSON form, without their secrets."""
    return [msgspec.to_builtins(msgspec.structs.replace(one, api_key=None, options={})) for one in backends]


def with_keys(
    backends: Iterable[BackendSetting], others: Iterable[BackendSetting]
) -> tuple[BackendSetting, ...]:
    """Backends, completed with the keys, options and users in URLs that `others` have for the same ones."""
    secrets = {(one.name, one.backend, freed_of_users(one.endpoint)): one for one in others}
    completed = []
    for one in backends:
        known = secrets.get((one.name, one.backend, freed_of_users(one.endpoint)), one)
        secret = {
            "api_key": one.api_key or known.api_key,
            "options": one.options or known.options,
            "endpoint": with_user(one.endpoint, known.endpoint),
        }
        completed.append(msgspec.structs.replace(one, **secret))
    return tuple(completed)


def with_user(url: str, other: str) -> str:
    """A URL, with the user and password of another one for the same place."""
    return other if freed_of_users(other) == url else url


def check_url(url: str) -> None:
    """Check the URL of a backend; one that nothing can be sent to raises a `ValueError`."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an impossible port, or half an IPv6 address
        valid = False
    if not valid:
        raise ValueError("give an http or https URL, such as http://localhost:5000")


def without_users(value: Any, mask: str = "****@") -> Any:  # noqa: ANN401 - any JSON value goes in and comes out
    """A value with the user and password of each URL masked, so that it may be shown."""
    if isinstance(value, dict):
        return {key: without_users(inner, mask) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_users(inner, mask) for inner in value]
    return _USER.sub(mask, value) if isinstance(value, str) else value


def freed_of_users(value: Any) -> Any:  # noqa: ANN401 - as above
    """A value without the user and password of each URL, so that it may be stored in the home."""
    return without_users(value, "")


def kafka_address(endpoint: str) -> tuple[str, str]:
    """The brokers of a Kafka, separated by commas, and the topic; raises a `ValueError` for anything else."""
    found = _KAFKA.fullmatch(endpoint)
    if found is None or found[2] in {".", ".."}:
        raise ValueError("give kafka://broker:9092/topic, with commas between several brokers")
    return found[1], found[2]


def is_waybill_itself(url: str, listen: str, public_url: str | None = None) -> bool:
    """Whether events sent to a URL would arrive at Waybill's own endpoint."""
    if public_url is not None and _place(url) == _place(public_url):
        return True
    host, port, _ = _place(url)
    own_host, _, own_port = listen.lower().rpartition(":")
    own_host = own_host.strip("[]")
    this_machine = {socket.gethostname().lower()} if own_host in _ANY_ADDRESS else set()
    is_here = all(one in this_machine | _ANY_ADDRESS or is_loopback(one) for one in (host, own_host))
    return port == int(own_port) and (host == own_host or is_here)


def _place(url: str) -> tuple[str, int, str]:
    """Host, port and path of a URL in one form; the path of the lineage endpoint is left out."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix(LINEAGE_PATH)
    return parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme], path


def _checked(one: BackendSetting) -> BackendSetting:
    name = one.name or one.backend
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise ValueError(f"{name!r} is not a valid name of a backend; give a short one in lowercase letters")
    if one.options and one.backend != "kafka":
        raise ValueError(f"only kafka has options; remove those of {name}")
    if one.api_key and one.backend == "kafka":
        raise ValueError("kafka has no api_key; give sasl.password and the like as options")
    endpoint = one.endpoint
    if one.backend == "console":
        if endpoint:
            raise ValueError("the console has no endpoint; remove it")
    elif one.backend == "file":
        if not endpoint or "\0" in endpoint:
            raise ValueError("give the path of the file as its endpoint")
        endpoint = str(Path(endpoint).expanduser().absolute())
    else:
        try:
            (kafka_address if one.backend == "kafka" else check_url)(endpoint)
        except ValueError as error:
            raise ValueError(f"the endpoint of {name} is invalid: {error}") from None
    return msgspec.structs.replace(one, name=name, endpoint=endpoint)
