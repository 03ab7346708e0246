"""The figures of a report: topics, queues, hours, keys and lag."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]


class TopicFigures(NamedTuple):
    """A topic.

    Attributes
    ----------
    topic
        Its name.
    queues
        Number of its queues.
    messages, bytes
        Its messages, and the bytes of their records in the log.
    first, last
        When the first and the last message were stored; None without messages.
    rate
        Messages per second from the first message to the last.
    peak_rate
        Messages per second in the hour with the most messages.
    """

    topic: str
    queues: int
    messages: int
    bytes: int
    first: datetime | None
    last: datetime | None
    rate: float
    peak_rate: float


class QueueFigures(NamedTuple):
    """A queue of a topic.

    Attributes
    ----------
    topic, queue
        Which queue it is.
    min_offset, max_offset
        Offset of its first message, and the next to be written.
    messages, bytes
        Its messages, and the bytes of their records in the log.
    rate
        Messages per second from the first message to the last.
    """

    topic: str
    queue: int
    min_offset: int
    max_offset: int
    messages: int
    bytes: int
    rate: float


class HourFigures(NamedTuple):
    """An hour of a topic, in store time.

    Attributes
    ----------
    topic
        The topic.
    hour
        When the hour begins.
    messages, bytes
        Its messages, and the bytes of their records in the log.
    rate
        Messages per second.
    """

    topic: str
    hour: datetime
    messages: int
    bytes: int
    rate: float


class KeyFigures(NamedTuple):
    """A key of a topic.

    Attributes
    ----------
    topic, key
        The topic and the key.
    messages, bytes
        Its messages, and the bytes of their records in the log.
    """

    topic: str
    key: str
    messages: int
    bytes: int


#: The offset of a group is beyond the end of its queue: the log was cut or replaced.
BEYOND_END = "offset beyond the queue's end"
#: A group has consumed from a topic that is not in the store.
NO_TOPIC = "no such topic"
#: A group has consumed from a queue that its topic does not have.
NO_QUEUE = "no such queue"


class LagFigures(NamedTuple):
    """The progress of a consumer group in a queue.

    Attributes
    ----------
    group, topic, queue
        Which group and queue.
    offset
        The next offset that the group consumes.
    max_offset
        The end of the queue; None if there is no such queue.
    lag
        Messages that the group has not consumed; None if there is no such queue.
    remark
        A problem: an offset beyond the queue's end, no such topic, or no such queue; else None.
    """

    group: str
    topic: str
    queue: int
    offset: int
    max_offset: int | None
    lag: int | None
    remark: str | None


@dataclass(frozen=True)
class Report:
    """The figures of a store at one moment.

    Attributes
    ----------
    path
        The store.
    taken
        When the report was made.
    topics, queues, hours, keys, lag
        The figures of each; the keys are those with the most messages.
    html
        Path of the page that was written; None if there is none.
    seconds
        How long it took.
    """

    path: str
    taken: datetime
    topics: tuple[TopicFigures, ...]
    queues: tuple[QueueFigures, ...]
    hours: tuple[HourFigures, ...]
    keys: tuple[KeyFigures, ...]
    lag: tuple[LagFigures, ...]
    html: str | None
    seconds: float

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(found.messages for found in self.topics)

    @property
    def bytes(self) -> int:
        """Bytes of their records in the log."""
        return sum(found.bytes for found in self.topics)

    def table(self, name: str) -> pyarrow.Table:
        """Return one of ``"topics"``, ``"queues"``, ``"hours"``, ``"keys"`` and ``"lag"``."""
        import pyarrow

        if name not in _TABLES:
            raise KeyError(f"no table {name!r}; the tables are {', '.join(_TABLES)}")
        kinds: dict[Any, Any] = {str: pyarrow.string(), int: pyarrow.int64()}
        kinds |= {kind | None: found for kind, found in kinds.items()} | {float: pyarrow.float64()}
        rows, kind = getattr(self, name), _TABLES[name]
        # All other types are times.
        types = {
            column: kinds.get(hint, pyarrow.timestamp("us", "UTC"))
            for column, hint in get_type_hints(kind).items()
        }
        columns = {
            column: pyarrow.array([getattr(row, column) for row in rows], types[column])
            for column in kind._fields
        }
        return pyarrow.table(columns)

    def _asdict(self) -> dict[str, Any]:
        def plain(value: Any) -> Any:
            return value.isoformat() if isinstance(value, datetime) else value

        facts: dict[str, Any] = {"path": self.path, "taken": plain(self.taken)}
        facts |= {"messages": self.messages, "bytes": self.bytes}
        for name in _TABLES:
            facts[name] = [
                {field: plain(value) for field, value in row._asdict().items()}
                for row in getattr(self, name)
            ]
        return facts | {"html": self.html, "seconds": self.seconds}


_TABLES: dict[str, Any] = {
    "topics": TopicFigures,
    "queues": QueueFigures,
    "hours": HourFigures,
    "keys": KeyFigures,
    "lag": LagFigures,
}
