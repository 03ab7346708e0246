"""A Spark session for all tests, and a store with every kind of message."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import forebay

pytest.importorskip("pyspark")

# Spark starts workers with the interpreter that these name, and binds to what that one resolves to.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

#: What every session of the tests is started with.
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "768m",
    # Jobs of the tests end before a compiler that optimises has paid for itself.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def run_program(code: str, *arguments: str, **place: Any) -> str:
    """Run code in a process of its own, which has to end well, and return what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, **place
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Return a session with two cores that has not been told of the format."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("forebay")
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@dataclass
class Sent:
    """A message as it was handed to `send`, and where it went."""

    topic: str
    queue: int
    offset: int
    position: int
    message_id: str
    timestamp: int
    body: bytes
    keys: list[str]
    tags: str | None
    properties: dict[str, str]
    born: int

    def kafka(self) -> dict[str, Any]:
        """Return the row of Spark's Kafka connector."""
        headers = [{"key": k, "value": v.encode()} for k, v in self.properties.items()]
        return {
            "key": self.keys[0].encode() if self.keys else None,
            "value": self.body,
            "topic": self.topic,
            "partition": self.queue,
            "offset": self.offset,
            "timestamp": at(self.timestamp),
            "timestampType": 1,
            "headers": headers or None,
        }

    def own(self) -> dict[str, Any]:
        """Return the row under Forebay's own names."""
        return {
            "topic": self.topic,
            "queue": self.queue,
            "offset": self.offset,
            "position": self.position,
            "store_timestamp": at(self.timestamp),
            "born_timestamp": at(self.born),
            "keys": " ".join(self.keys) or None,
            "tags": self.tags,
            "properties": sorted(self.properties.items()),
            "body": self.body,
            "message_id": self.message_id,
            "flag": 0,
            "sys_flag": 0,
            "reconsume_times": 0,
        }


def at(millis: int) -> datetime:
    """Return a time as Arrow gives it to Python."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=millis)


@dataclass
class Events:
    """A closed store and all that was sent to it."""

    path: str
    sent: list[Sent]

    def of(self, *topics: str) -> list[Sent]:
        """Return the messages of these topics, in the order of topics, queues and offsets."""
        found = [sent for sent in self.sent if sent.topic in topics]
        return sorted(found, key=lambda sent: (topics.index(sent.topic), sent.queue, sent.offset))


def send_one(store: forebay.Store, topic: str, number: int, queue: int | None) -> Sent:
    """Send a message whose parts all follow from its number."""
    body = b"" if number % 7 == 0 else b"body %d " % number * (number % 11 + 1)
    keys = [[], [f"k{number}"], [f"k{number}", "second"]][number // 3 % 3]
    tags = "paid" if number % 2 else None
    properties = {"n": str(number), "a": "\N{SNOWMAN}"} if number % 5 == 0 else {}
    born = 1_700_000_000_000 + number
    result = store.send(
        topic,
        body,
        keys=keys or None,
        tags=tags,
        properties=properties,
        queue=queue,
        timestamp=at(born),
    )
    place = (result.topic, result.queue, result.offset, result.position, result.message_id)
    return Sent(*place, result.timestamp, body, keys, tags, properties, born)


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """Return a store of four topics, one of them empty."""
    path = tmp_path_factory.mktemp("spark") / "events"
    sent = []
    with forebay.open(path, commitlog_file_size=1 << 20, default_queues=3) as store:
        store.create_topic("empty", queues=2)
        store.create_topic("one", queues=1)
        for number in range(240):
            topic = ("orders", "bills", "one")[number % 3]
            sent.append(send_one(store, topic, number, queue=None if topic == "orders" else 0))
    return Events(str(path), sent)


@pytest.fixture(scope="session")
def golden() -> Path:
    """Return the folder of the stores that RocketMQ wrote."""
    return Path(__file__).parents[2] / "golden" / "rocketmq"
