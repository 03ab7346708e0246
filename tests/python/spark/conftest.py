"""A Spark session for all tests, and a store with messages of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sparks import Events, send_one

import forebay

pytest.importorskip("pyspark")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Return a session with two cores in which the format is not registered."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").appName("forebay").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


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
