"""A Kafka topic as a backend, through Kafka's own client library."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from waybill.transport import MissingExtraError
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.config import kafka_address
from waybill.transport.journal import Kind, event_in

from ..subject import subject_of
from .answers import Answer, Correction, Verdict, one_line
from .client import Target

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

log = logging.getLogger("waybill.marquez")

DELIVERY_TIMEOUT_S: Final = 10.0
"""How long one try may take until all in-sync replicas have the event."""

_POLL_S: Final = 0.01
_GRACE_S: Final = 5.0
_EVENT_MAX_BYTES: Final = 1_000_000_000
"""The library's largest limit: the brokers decide what is too large."""

_REFUSED: Final = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD"})
_BARRED: Final = frozenset({
    "_AUTHENTICATION",
    "_SSL",
    "_UNKNOWN_TOPIC",
    "CLUSTER_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
    "UNKNOWN_TOPIC_OR_PART",
    "UNSUPPORTED_SASL_MECHANISM",
})  # fmt: skip
_AWAY: Final = frozenset({"_ALL_BROKERS_DOWN", "_MSG_TIMED_OUT", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT"})


class KafkaTarget(Target):
    """A topic that gets each event as a message, keyed by its run, so that a run stays in one partition.

    An event counts as delivered once all in-sync replicas have it. The options are those of the client
    library, ``sasl.password`` and the like.
    """

    def __init__(
        self,
        endpoint: str,
        options: Mapping[str, str | float | bool] | None = None,
        *,
        name: str = "kafka",
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
    ) -> None:
        self.shown_url = endpoint
        self.to_correct = (
            Correction(f"the endpoint of {name} in backends"),
            Correction(f"the options of {name} in backends"),
        )
        brokers, self._topic = kafka_address(endpoint)
        self._timeout_s = delivery_timeout_s
        self._config: Final = {
            "linger.ms": 0,
            "message.max.bytes": _EVENT_MAX_BYTES,
            **(options or {}),
            "bootstrap.servers": brokers,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": int(delivery_timeout_s * 1000),
            "error_cb": self._failed,
        }
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._last: KafkaError | None = None

    def deliver(self, body: bytes) -> Answer:
        """Send one event, and wait until the brokers have it or refuse it."""
        started_s = SYSTEM_CLOCK.monotonic_s()
        try:
            from confluent_kafka import KafkaException
        except ImportError:
            return Answer(verdict=Verdict.BARRED, words=str(MissingExtraError("Kafka", "kafka")))
        try:
            producer = self._open()
        except KafkaException as error:
            words = one_line(f"{error.args[0].str()}; correct {self.to_correct[1].said()}")
            return Answer(verdict=Verdict.BARRED, words=words)
        reports: list[KafkaError | None] = []
        key = subject_of(event_in(Kind.OPENLINEAGE, body), 0).key.encode()
        try:
            producer.produce(self._topic, body, key=key, on_delivery=lambda error, _: reports.append(error))
            while not reports and SYSTEM_CLOCK.monotonic_s() < started_s + self._timeout_s + _GRACE_S:
                producer.poll(_POLL_S)
        except KafkaException as error:
            reports.append(error.args[0])
        except BufferError as error:
            return Answer(verdict=Verdict.AWAY, words=one_line(str(error)))
        elapsed_s = SYSTEM_CLOCK.monotonic_s() - started_s
        if not reports:
            return Answer(verdict=Verdict.UNWELL, words="no confirmation in time", elapsed_s=elapsed_s)
        return self._judged(reports[0], elapsed_s)

    def close(self) -> None:
        """Drop the producer with its connections; the caller has waited for the response."""
        with self._lock:
            self._producer = None

    def _open(self) -> Producer:
        from confluent_kafka import Producer

        with self._lock:
            if self._producer is None:
                self._last = None
                self._producer = Producer(self._config, logger=log)
            return self._producer

    def _failed(self, error: KafkaError) -> None:
        """Remember the producer's own error: messages only report that they have timed out."""
        self._last = error

    def _judged(self, error: KafkaError | None, elapsed_s: float) -> Answer:
        if error is None:
            self._last = None
            return Answer(verdict=Verdict.DELIVERED, elapsed_s=elapsed_s)
        if error.fatal():
            self.close()
        cause = self._last if error.name() == "_MSG_TIMED_OUT" and self._last is not None else error
        name = cause.name()
        words = one_line(cause.str())
        if name in _REFUSED:
            return Answer(verdict=Verdict.REFUSED, words=words, elapsed_s=elapsed_s)
        if name in _BARRED:
            words = f"{words}; correct {self.to_correct[0].said()}, or {self.to_correct[1].said()}"
            return Answer(verdict=Verdict.BARRED, words=words, elapsed_s=elapsed_s)
        verdict = Verdict.AWAY if name in _AWAY else Verdict.UNWELL
        return Answer(verdict=verdict, words=words, elapsed_s=elapsed_s)
