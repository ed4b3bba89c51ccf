"""Kafka as a backend: brokers of librdkafka's own, which speak Kafka's protocol over TCP on this machine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from waybill.marquez import Delivery, open_deliveries
from waybill.marquez.backend import KafkaTarget, Verdict
from waybill.transport import Journal, Settings

if TYPE_CHECKING:
    from delivering import Site

Open = Callable[..., Delivery]
TOPIC = "lineage"


class Brokers(NamedTuple):
    """Brokers that live as long as the producer that has them."""

    owner: Producer
    addresses: str

    @property
    def endpoint(self) -> str:
        return f"kafka://{self.addresses}/{TOPIC}"

    def received(self, count: int) -> list[tuple[int | None, bytes | None, dict[str, object]]]:
        """Partition, key and event of each message, once there are so many."""
        consumer = Consumer({"bootstrap.servers": self.addresses, "group.id": "tests"})
        try:
            partitions = consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
            consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in partitions])
            messages = consumer.consume(count, timeout=60)
            messages += consumer.consume(1, timeout=0.5)
        finally:
            consumer.close()
        return [
            (message.partition(), message.key(), json.loads(message.value() or b"")) for message in messages
        ]


@pytest.fixture
def brokers() -> Brokers:
    owner = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 2})
    found = owner.list_topics(timeout=30).brokers.values()
    return Brokers(owner, ",".join(f"{broker.host}:{broker.port}" for broker in found))


@pytest.fixture
def open_kafka(journal: Journal, home: Path, tmp_path: Path) -> Iterator[Open]:
    opened: list[Delivery] = []

    def open_kafka(endpoint: str, **options: object) -> Delivery:
        one = {"backend": "kafka", "endpoint": endpoint, "options": options}
        settings = Settings.load({"home": home, "backends": [one]}, env={}, cwd=tmp_path)
        opened.extend(open_deliveries(journal, settings))
        return opened[-1]

    yield open_kafka
    for delivery in opened:
        delivery.close()


def test_each_event_is_a_message_and_each_run_in_order_in_one_partition(
    brokers: Brokers, open_kafka: Open, site: Site
) -> None:
    for number in range(5):
        for run in ("a", "b", "c"):
            site.keep(run, number)
    delivery = open_kafka(brokers.endpoint)
    while delivery.pending():
        assert delivery.step().problem is None
    received = brokers.received(15)
    assert len(received) == 15, "each of them, and none twice"
    by_key, partitions = defaultdict(list), defaultdict(set)
    for partition, key, event in received:
        by_key[key].append(event["number"])
        partitions[key].add(partition)
    assert by_key == {f"run {run}".encode(): [0, 1, 2, 3, 4] for run in ("a", "b", "c")}
    assert all(len(one) == 1 for one in partitions.values())
    assert site.journal.cursor("kafka") == 15


def test_brokers_that_are_away_are_an_outage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    target = KafkaTarget(f"kafka://{address}/{TOPIC}", delivery_timeout_s=1.0)
    answer = target.deliver(b"{}")
    assert answer.verdict is Verdict.AWAY
    assert answer.words
    target.close()


def test_a_message_too_large_for_the_brokers_is_refused_for_good(brokers: Brokers) -> None:
    target = KafkaTarget(brokers.endpoint, {"message.max.bytes": 2000})
    answer = target.deliver(b'{"run": {"runId": "r"}, "pad": "%s"}' % (b"x" * 5000))
    assert (answer.verdict, "too large" in answer.words) == (Verdict.REFUSED, True)
    assert target.deliver(b'{"run": {"runId": "r"}}').verdict is Verdict.DELIVERED
    target.close()


def test_an_option_that_kafka_does_not_know_is_said_with_where_to_correct_it(
    brokers: Brokers, open_kafka: Open, site: Site
) -> None:
    site.keep("run")
    delivery = open_kafka(brokers.endpoint, **{"no.such.option": "x"})
    problem = delivery.step().problem
    while problem is None:
        problem = delivery.step().problem
    assert "no.such.option" in problem
    assert problem.endswith("correct the options of kafka in backends")


def test_without_the_client_library_it_says_how_to_install_it(home: Path) -> None:
    code = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from waybill.marquez.backend.kafka import KafkaTarget\n"
        f"print(KafkaTarget('kafka://127.0.0.1:1/{TOPIC}').deliver(b'{{}}').words)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "Kafka needs the extra `kafka`: pip install 'confluent-kafka>=" in done.stdout
    assert not home.exists()
