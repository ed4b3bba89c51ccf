"""A backend over HTTP: one POST for each event, and one GET to see whether it answers."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import ssl
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec
import requests
from requests.auth import AuthBase

from waybill.facets.context import LINEAGE_PATH
from waybill.transport.clock import SYSTEM_CLOCK

from .answers import WEB_PAGE, Answer, Correction, Verdict, explain, judge, marquez_settings, one_line

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
COMPRESS_FROM_BYTES: Final = 16 * 1024

_PROBED: Final = "/api/v1/namespaces?limit=1"
_ANSWER_MAX_BYTES: Final = 8 * 1024
_UNREADABLE: Final = frozenset({400, 415})


class _Bearer(AuthBase):
    """The API key as OpenLineage clients send it; an `AuthBase`, so that no user in the URL replaces it."""

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        # http.client writes text as Latin-1; this way the wire has UTF-8, and a key may be in any script.
        request.headers["Authorization"] = f"Bearer {self._api_key}".encode().decode("latin-1")
        return request


class Target(Protocol):
    """Where a delivery's events go."""

    shown_url: str
    """What to call it, without secrets."""
    to_correct: tuple[Correction, Correction]
    """The settings of its address and its key."""

    def deliver(self, body: bytes) -> Answer:
        """Send one event; whatever comes of it is an answer."""

    def renewed(self) -> bool:
        """Look for a key that was not refused yet and use it from now on; returns whether there is one."""
        return False

    def close(self) -> None:
        """Close its connections, if it has any."""


class Backend:
    """An OpenLineage backend. Any number of threads may use it; connections are kept open between events.

    Args:
        url: where its API is, with or without the path of the lineage endpoint.
        connect_timeout_s: how long the backend has to take a connection.
        answer_timeout_s: how long it may be silent before and within its answer.
        read_key: reads the key that the settings' files have now; None: only the given key is used.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        path: str = LINEAGE_PATH,
        to_correct: tuple[Correction, Correction] | None = None,
        read_key: Callable[[], str | None] | None = None,
    ) -> None:
        self.to_correct = to_correct or marquez_settings()
        self.shown_url = shown(url)
        self._base_url = base_url(url, path)
        self._url = self._base_url + path
        self._given_key = self._api_key = api_key
        self._read_key = read_key
        self._refused: set[str | None] = set()
        self._timeouts_s = (connect_timeout_s, answer_timeout_s)
        self._compresses = True
        self._session = open_session(url, None)

    def deliver(self, body: bytes) -> Answer:
        """Send one event; whatever the backend or the network does is an answer."""
        compressed = self._compresses and len(body) >= COMPRESS_FROM_BYTES
        answer = self._post(body, compressed=compressed)
        if compressed and answer.status in _UNREADABLE:
            # Marquez reads gzip; another backend may not, which must not be taken for the event's fault.
            answer = self._post(body, compressed=False)
            self._compresses = answer.verdict is not Verdict.DELIVERED
        return answer

    def request(self, method: str, path: str) -> Answer:
        """Send a request of Marquez's own API, without a body; whatever comes of it is an answer."""
        return self._send(method, self._base_url + path, None, {})

    def renewed(self) -> bool:
        """Use the key of the settings' files if it was not refused yet, and otherwise the given one.

        The given one may be older: a pipeline that runs for days starts runners with the key that it read
        at its start.
        """
        key = self._read_key() if self._read_key is not None else None
        is_new = key is not None and key not in self._refused
        self._api_key = key if is_new else self._given_key
        return is_new

    def close(self) -> None:
        """Close the idle connections."""
        self._session.close()

    def _post(self, body: bytes, *, compressed: bool) -> Answer:
        headers = {"Content-Type": "application/json"}
        if compressed:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        api_key = self._api_key
        answer = self._send("POST", self._url, body, headers)
        if answer.verdict is Verdict.DENIED:
            self._refused.add(api_key)
        elif answer.verdict is Verdict.DELIVERED:
            self._refused.clear()
        return answer

    def _send(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        started_s, api_key = SYSTEM_CLOCK.monotonic_s(), self._api_key
        try:
            with self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                auth=_Bearer(api_key) if api_key else None,
                timeout=self._timeouts_s,
                stream=True,
                allow_redirects=False,
            ) as response:
                words = _words(response, started_s + sum(self._timeouts_s))
        except (requests.RequestException, ValueError) as error:
            return _failure_of(error, self._timeouts_s, SYSTEM_CLOCK.monotonic_s() - started_s)
        elapsed_s = SYSTEM_CLOCK.monotonic_s() - started_s
        said = words.replace(api_key, "********") if api_key else words
        return _answer_of(response, said, elapsed_s, with_key=bool(api_key))


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a Marquez answers.

    Attributes:
        url: the address without secrets.
        status: the HTTP status; None if there was no response.
        latency_ms: how long it took to answer, or not to.
        problem: what is wrong and what to do, in one sentence; None if Marquez's API answers and accepts the
            key.
    """

    url: str
    status: int | None
    latency_ms: float
    problem: str | None = None


def probe(
    url: str, api_key: str | None = None, timeout_s: float = 3.0, *, home: Path | None = None
) -> ProbeResult:
    """Ask a Marquez whether it answers, within `timeout_s` each to connect and to answer; changes nothing.

    A home whose address this is may be named, so that what to correct is said as a command.
    """
    to_correct = marquez_settings(home)
    backend = Backend(
        url, api_key, connect_timeout_s=timeout_s, answer_timeout_s=timeout_s, to_correct=to_correct
    )
    with contextlib.closing(backend):
        answer = backend.request("GET", _PROBED)
    problem = None
    if answer.status != HTTPStatus.OK:
        problem = explain(answer, backend.shown_url, to_correct=to_correct)
    elif '"namespaces"' not in answer.words:
        problem = (
            f"{backend.shown_url} answers, but not as Marquez's API does, which is on port 5000 by default, "
            f"and the page on 3000; correct {to_correct[0].said()}"
        )
    latency_ms = answer.elapsed_s * 1000
    return ProbeResult(url=backend.shown_url, status=answer.status, latency_ms=latency_ms, problem=problem)


def base_url(url: str, endpoint: str = LINEAGE_PATH) -> str:
    """A backend's address without the path of its lineage endpoint, of which it may have only a part."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    known = endpoint
    while known and not path.endswith(known):
        known = known.rpartition("/")[0]
    return urlunsplit((parts.scheme, parts.netloc, path.removesuffix(known).rstrip("/"), "", ""))


def open_session(url: str, api_key: str | None) -> requests.Session:
    """Connections that are kept open between requests, with the environment's proxies and certificates."""
    session = requests.Session()
    # They are looked up once and not for every event, and without ``~/.netrc``, whose passwords nobody meant
    # for this backend.
    environment = session.merge_environment_settings(url, {}, None, None, None)
    session.proxies, session.verify = environment["proxies"], environment["verify"]
    session.trust_env = False
    if api_key:
        session.auth = _Bearer(api_key)
    session.headers["User-Agent"] = "waybill"
    return session


def shown(url: str) -> str:
    """An address without user and password."""
    parts = urlsplit(base_url(url))
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _words(response: Response, deadline_s: float) -> str:
    """The beginning of an answer's body; it may break off, because the status says what matters."""
    content = bytearray()
    with contextlib.suppress(requests.RequestException):
        # Byte by byte: a larger chunk would wait until it is full, however slowly the backend sends.
        for byte in response.iter_content(1):
            content += byte
            if len(content) >= _ANSWER_MAX_BYTES or SYSTEM_CLOCK.monotonic_s() > deadline_s:
                break
    return content.decode("utf-8", "replace")


def _answer_of(response: Response, words: str, elapsed_s: float, *, with_key: bool) -> Answer:
    """The meaning of a response; `words` is the part of its body that may be shown."""
    status = response.status_code
    verdict = judge(status, words)
    retry_after_s = _retry_after_s(response.headers.get("Retry-After", ""))
    if status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after_s > 0:
        verdict = Verdict.AWAY
    if verdict is Verdict.DELIVERED and "html" in response.headers.get("Content-Type", ""):
        # A portal or a page that answers anything with 200: the event would be lost there.
        verdict, words = Verdict.BARRED, WEB_PAGE
    return Answer(
        verdict=verdict,
        status=status,
        words=one_line(words),
        retry_after_s=retry_after_s,
        elapsed_s=elapsed_s,
        with_key=with_key,
    )


def _failure_of(
    error: requests.RequestException | ValueError, timeouts_s: tuple[float, float], elapsed_s: float
) -> Answer:
    """The meaning of a failed connection: nobody is there, the peer is not trusted, or it broke off."""
    connect_timeout_s, answer_timeout_s = timeouts_s
    causes = list(_causes(error))
    if isinstance(error, requests.ConnectTimeout):
        verdict, words = Verdict.AWAY, f"no connection within {connect_timeout_s:g} s"
    elif isinstance(error, requests.Timeout):
        verdict, words = Verdict.UNWELL, f"no answer within {answer_timeout_s:g} s"
    elif isinstance(error, requests.exceptions.SSLError):
        said = _last_words(causes, ssl.SSLError)
        verdict, words = Verdict.BARRED, f"{said}; correct the certificate, or REQUESTS_CA_BUNDLE"
    elif isinstance(error, ValueError):
        # Its text would show the key.
        verdict, words = Verdict.BARRED, "its address or key cannot be sent; correct them"
    elif broken := [cause for cause in causes if isinstance(cause, _BROKEN_OFF)]:
        verdict, words = Verdict.UNWELL, f"the connection broke off ({_last_words(broken, Exception)})"
    else:
        verdict, words = Verdict.AWAY, _last_words(causes, OSError)
    return Answer(verdict=verdict, words=one_line(words), elapsed_s=elapsed_s)


_BROKEN_OFF: Final = (
    TimeoutError,
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
    http.client.HTTPException,
)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _last_words(causes: Sequence[BaseException], kind: type[Exception]) -> str:
    """What the innermost cause of a kind says, in the operating system's words if it has any."""
    cause = [cause for cause in causes if isinstance(cause, kind)][-1]
    return str(getattr(cause, "strerror", None) or cause)


def _retry_after_s(value: str) -> float:
    """The header as seconds or a date (RFC 9110, section 10.2.3); 0 for anything else."""
    if value.isdecimal():
        return float(value)
    with contextlib.suppress(ValueError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - SYSTEM_CLOCK.now_ms() / 1_000)
    return 0.0
