"""What wrappers of producers and consumers pass on to what they wrap."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from forebay import _forebay
    from forebay._forebay import Message
    from forebay.options import Duration, Start

__all__ = ["ConsumerWrapper", "ProducerWrapper"]

P = TypeVar("P", bound="_forebay.Producer | ProducerWrapper[Any]")
C = TypeVar("C", bound="_forebay.Consumer | ConsumerWrapper[Any]")
W = TypeVar("W", bound="_forebay.Producer | _forebay.Consumer | _Wrapper[Any]")


class _Wrapper(Generic[W]):
    """Closes what it wraps."""

    def __init__(self, plain: W) -> None:
        self._plain = plain

    def close(self) -> None:
        """Close what is wrapped, as its own `close` does."""
        self._plain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


class ProducerWrapper(_Wrapper[P]):
    """A producer that sends through another one."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._plain.topic

    @property
    def name(self) -> str | None:
        """The name of a producer that owns its queue; else None."""
        return self._plain.name


class ConsumerWrapper(_Wrapper[C]):
    """A consumer that gets its messages from another one, and settles them there."""

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._plain.group

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics, as a tuple."""
        return self._plain.topics

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """The queues that this consumer owns, as a sorted list of ``(topic, queue)``."""
        return self._plain.assignment

    def ack(self, messages: Message | Iterable[Message]) -> None:
        """Acknowledge messages."""
        self._plain.ack(messages)

    def nack(self, message: Message, delay_level: int | None = None) -> None:
        """Have a message delivered again later."""
        self._plain.nack(message, delay_level)

    def reject(self, message: Message, reason: str | None = None) -> None:
        """Send a message to the dead letters."""
        self._plain.reject(message, reason)

    def extend(self, message: Message, seconds: Duration) -> None:
        """Keep a message for longer before it is delivered again."""
        self._plain.extend(message, seconds)

    def seek(self, to: Start) -> None:
        """Continue elsewhere in the queues that this consumer owns."""
        self._plain.seek(to)

    def lag(self) -> dict[tuple[str, int], int]:
        """Count the messages of each queue that are not settled yet."""
        return self._plain.lag()

    def commit(self) -> None:
        """Store the progress of the group."""
        self._plain.commit()
