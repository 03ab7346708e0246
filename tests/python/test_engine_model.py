"""The same random calls of the memory engine and of the others get the same answers.

What means something else in each engine is left out: positions, message ids, the queue of a
key, and the text that a format cannot hold. A clock that the test moves gives both stores the same
times.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from harness import PROOF
from hypothesis import Phase
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from machines import run, run_half_drawn

import forebay
import forebay.testing

TOPICS = ("orders", "bills")
QUEUES = 2
SMALL = {"commitlog": {"commitlog_file_size": 1 << 16}, "partitionlog": {"segment_bytes": 4096}}

topics = some.sampled_from(TOPICS)
queues = some.integers(0, QUEUES - 1)
offsets = some.integers(0, 40)
words = some.sampled_from(["a", "b", "\u00e9"])
messages = some.fixed_dictionaries(
    {
        "body": some.binary(max_size=600),
        "keys": some.lists(words, max_size=2),
        "tags": some.none() | words,
        "properties": some.dictionaries(words, some.sampled_from(["1", "x y"]), max_size=2),
    }
)


def shown(message: forebay.Message) -> tuple[object, ...]:
    return (
        *(message.topic, message.queue, message.offset, message.body, message.keys),
        *(message.tags, message.properties, message.headers, message.is_null),
        *(message.store_timestamp, message.born_timestamp, message.system_properties),
    )


class Machine(RuleBasedStateMachine):
    """A store of an engine, and one in memory."""

    engine = "partitionlog"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="forebay-model-"))
        self.clock = forebay.testing.Clock()

    @initialize()
    def open(self) -> None:
        self.model = forebay.testing.open(clock=self.clock, default_queues=QUEUES)
        self.open_store()

    def open_store(self) -> None:
        options: dict[str, Any] = SMALL[self.engine]
        self.store = forebay.testing.open(
            self.folder / "store",
            engine=self.engine,  # type: ignore[arg-type]
            clock=self.clock,
            default_queues=QUEUES,
            **options,
        )

    def both(self, call: Any) -> Any:
        """Return the answer of both stores, which must be the same."""
        answers = []
        for store in (self.store, self.model):
            try:
                answers.append(call(store))
            except forebay.ForebayError as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
        return answers[0]

    @rule(topic=topics, queue=queues, message=messages)
    def send(self, topic: str, queue: int, message: dict[str, Any]) -> None:
        def call(store: forebay.Store) -> object:
            sent = store.send(topic, queue=queue, **message)
            return sent.topic, sent.queue, sent.offset, sent.timestamp

        self.both(call)

    @rule(topic=topics, queue=queues, sent=some.lists(messages, min_size=1, max_size=5))
    def send_batch(self, topic: str, queue: int, sent: list[dict[str, Any]]) -> None:
        def call(store: forebay.Store) -> object:
            done = store.producer(topic, queue=queue).send_batch(
                [it["body"] for it in sent],
                keys=[it["keys"] for it in sent],
                tags=[it["tags"] for it in sent],
                properties=[it["properties"] for it in sent],
            )
            return done.count, done.ranges, done.timestamp

        self.both(call)

    @rule(seconds=some.sampled_from([0.001, 1, 3600]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(topic=topics, queue=queues, offset=offsets)
    def get(self, topic: str, queue: int, offset: int) -> None:
        self.both(lambda store: shown(store.get(topic, queue, offset)))

    @rule(
        topic=topics,
        queue=queues,
        offset=offsets,
        most=some.sampled_from([1, 3, 1000]),
        tags=some.none() | words,
    )
    def read(self, topic: str, queue: int, offset: int, most: int, tags: str | None) -> None:
        def call(store: forebay.Store) -> object:
            batch = store.read(topic, queue, offset, max_messages=most, tags=tags)
            bounds = batch.next_offset, batch.min_offset, batch.max_offset
            return batch.status, bounds, [shown(message) for message in batch]

        self.both(call)

    @rule(topic=topics, queue=queues, ago=some.integers(0, 7200))
    def offset_at(self, topic: str, queue: int, ago: int) -> None:
        time = self.clock._core.now_ms - 1000 * ago
        self.both(lambda store: store.offset_at(topic, queue, time))

    @rule(topic=topics, key=words)
    def query(self, topic: str, key: str) -> None:
        def call(store: forebay.Store) -> object:
            # The order of those of one time is that of the log, which queues do not share.
            return sorted(map(repr, map(shown, store.query(topic, key, max_messages=1000))))

        self.both(call)

    @rule(topic=topics, tags=some.none() | words)
    def scan(self, topic: str, tags: str | None) -> None:
        columns = ["queue", "offset", "store_timestamp", "tags", "properties", "body"]

        def call(store: forebay.Store) -> object:
            table = pa.table(store.scan(topic, columns=columns, tags=tags))
            return table.sort_by([("queue", "ascending"), ("offset", "ascending")]).to_pylist()

        self.both(call)

    @rule(topic=topics)
    def bounds(self, topic: str) -> None:
        def call(store: forebay.Store) -> object:
            found = store.topics.get(topic)
            queues = found.queues if found else []
            return [(it.id, it.min_offset, it.max_offset) for it in queues]

        self.both(call)

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.open_store()
        assert self.store.recovery.clean
        assert self.store.verify().ok

    def teardown(self) -> None:
        for name in ("store", "model"):
            if hasattr(self, name):
                getattr(self, name).close()
        shutil.rmtree(self.folder)


STEPS = 100 if PROOF else 40


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_an_engine_answers_as_the_memory_does(engine: str) -> None:
    machine = type("Chosen", (Machine,), {"engine": engine})
    run_half_drawn(machine, 1000 if PROOF else 50, STEPS)


def test_a_store_with_other_times_is_found() -> None:
    class Slow(Machine):
        def open_store(self) -> None:
            clock, self.clock = self.clock, forebay.testing.Clock()
            super().open_store()
            self.clock = clock

    with pytest.raises((AssertionError, ExceptionGroup)):
        run(Slow, 50, STEPS, phases=[Phase.generate])
