"""What a report says: figures of topics, queues, hours, keys and lag."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]


class TopicFigures(NamedTuple):
    """A topic. Bytes are those of the records in the log; a rate is of messages a second."""

    topic: str
    queues: int
    messages: int
    bytes: int
    first: datetime | None
    last: datetime | None
    #: From the first message to the last.
    rate: float
    #: In the hour with the most messages.
    peak_rate: float


class QueueFigures(NamedTuple):
    """A queue of a topic."""

    topic: str
    queue: int
    min_offset: int
    max_offset: int
    messages: int
    bytes: int
    rate: float


class HourFigures(NamedTuple):
    """An hour of a topic, by its begin and by store time."""

    topic: str
    hour: datetime
    messages: int
    bytes: int
    rate: float


class KeyFigures(NamedTuple):
    """A key of a topic."""

    topic: str
    key: str
    messages: int
    bytes: int


#: The offset of a group lies beyond the end of its queue: the log came back shorter, or is another.
BEYOND_END = "offset beyond the queue's end"
#: A group has consumed from a topic that is not in the store.
NO_TOPIC = "no such topic"
#: A group has consumed from a queue that its topic does not have.
NO_QUEUE = "no such queue"


class LagFigures(NamedTuple):
    """How far a group of consumers is in a queue."""

    group: str
    topic: str
    queue: int
    #: The next offset that the group consumes.
    offset: int
    #: The end of the queue; `None` where there is no such queue.
    max_offset: int | None
    #: Messages that the group has not consumed; `None` where there is no such queue.
    lag: int | None
    #: What is wrong: `BEYOND_END`, `NO_TOPIC` or `NO_QUEUE`; else `None`.
    remark: str | None


@dataclass(frozen=True)
class Report:
    """What is in a store."""

    path: str
    taken: datetime
    topics: tuple[TopicFigures, ...]
    queues: tuple[QueueFigures, ...]
    hours: tuple[HourFigures, ...]
    #: The keys with the most messages.
    keys: tuple[KeyFigures, ...]
    lag: tuple[LagFigures, ...]
    #: The page that was written.
    html: str | None
    seconds: float

    @property
    def messages(self) -> int:
        """How many messages there are."""
        return sum(found.messages for found in self.topics)

    @property
    def bytes(self) -> int:
        """How many bytes their records have in the log."""
        return sum(found.bytes for found in self.topics)

    def table(self, name: str) -> pyarrow.Table:
        """Return one of ``"topics"``, ``"queues"``, ``"hours"``, ``"keys"`` and ``"lag"``."""
        import pyarrow

        if name not in _TABLES:
            raise KeyError(f"{name!r} is no table; there are {', '.join(_TABLES)}")
        kinds: dict[Any, Any] = {str: pyarrow.string(), int: pyarrow.int64()}
        kinds |= {kind | None: found for kind, found in kinds.items()} | {float: pyarrow.float64()}
        rows, kind = getattr(self, name), _TABLES[name]
        # What is none of these is a time.
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
