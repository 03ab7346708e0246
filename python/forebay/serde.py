"""Values instead of bytes: what producers send and consumers get is encoded and decoded.

`json` and `msgpack` use the fastest library that is installed; `pydantic` checks values against a
type. ``Serde(dumps, loads)`` makes one of any two functions. ``pip install 'forebay[serde]'``
installs orjson, msgpack and pydantic.

Examples
--------
>>> import forebay.serde
>>> as_json = forebay.serde.json()
>>> with forebay.open(":memory:") as store:
...     orders = as_json.producer(store.producer("orders"))
...     _ = orders.send({"fruit": "apple", "count": 3}, key="42")
...     with as_json.consumer(store.consumer("orders", group="billing")) as consumer:
...         for received in consumer.poll():
...             print(received.value["count"], received.message.key)
...             consumer.ack(received)
3 42
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json as _json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from forebay import _forebay, hooks
from forebay.columns import with_bodies
from forebay.errors import ForebayError
from forebay.given import check, check_callable, check_function, check_has_run
from forebay.selection import require
from forebay.wrapping import ConsumerWrapper, ProducerWrapper

if TYPE_CHECKING:
    from typing import Unpack

    import forebay
    from forebay._forebay import BatchResult, BatchTicket, Message, SendResult, Ticket
    from forebay.options import ArrowArray, ArrowStream, BatchFields, Duration, MessageFields

__all__ = [
    "Consumer",
    "DecodeError",
    "Producer",
    "Received",
    "Serde",
    "json",
    "msgpack",
    "pydantic",
]

T = TypeVar("T")

_logger = logging.getLogger("forebay")


class DecodeError(ForebayError, ValueError):
    """A body is not what the serde writes; the cause is the error of its library."""


class Serde(Generic[T]):
    """A form of values: how they become bytes, and bytes become values.

    Parameters
    ----------
    dumps
        Returns the bytes of a value.
    loads
        Returns the value of bytes; any exception means that they are not of this form.

    Examples
    --------
    >>> import forebay.serde
    >>> text = forebay.serde.Serde(str.encode, bytes.decode)
    >>> text.loads(text.dumps("apples"))
    'apples'
    """

    def __init__(self, dumps: Callable[[T], bytes], loads: Callable[[bytes], T]) -> None:
        check_callable("dumps", dumps)
        check_callable("loads", loads)
        self._dumps = dumps
        self._loads = loads

    def __repr__(self) -> str:
        return f"Serde({_name(self._dumps)}, {_name(self._loads)})"

    def dumps(self, value: T) -> bytes:
        """Return the bytes of a value; raises what the library raises."""
        return self._dumps(value)

    def loads(self, body: bytes | Message) -> T:
        """Return the value of bytes, or of a message's body.

        Raises
        ------
        DecodeError
            If they are not of this form. A `MemoryError` or `OSError` of the library is raised as
            it is.
        """
        data = body.body if isinstance(body, _forebay.Message) else body
        check("body", data, (bytes, bytearray, memoryview), "bytes or a Message")
        try:
            return self._loads(data)
        except (MemoryError, OSError):
            raise
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DecodeError(f"the body cannot be decoded: {reason}") from error

    def producer(self, producer: forebay.Producer | hooks.Producer) -> Producer[T]:
        """Return a producer that sends values; the one given may have a hook."""
        check("producer", producer, (_forebay.Producer, hooks.Producer), "a producer")
        return Producer(self, producer)

    def consumer(
        self, consumer: forebay.Consumer | hooks.Consumer, *, reject: bool = True
    ) -> Consumer[T]:
        """Return a consumer that gets values.

        Parameters
        ----------
        consumer
            The consumer to take messages from.
        reject
            Whether a message that cannot be decoded goes to the dead letters at once, with the
            reason; trying again would not help. With False `DecodeError` is raised, and the
            messages of that poll stay unsettled.
        """
        check("consumer", consumer, (_forebay.Consumer, hooks.Consumer), "a consumer")
        check("reject", reject, bool, "True or False")
        return Consumer(self, consumer, reject)


@dataclass(frozen=True)
class Received(Generic[T]):
    """A value, and the message that it came in, by which it is settled.

    Attributes
    ----------
    value
        What the body is decoded to.
    message
        The message.
    """

    value: T
    message: Message


class Producer(ProducerWrapper["forebay.Producer | hooks.Producer"], Generic[T]):
    """Sends values to one topic; made by `Serde.producer`."""

    def __init__(self, serde: Serde[T], plain: forebay.Producer | hooks.Producer) -> None:
        super().__init__(plain)
        self._serde = serde

    def __repr__(self) -> str:
        return f"<forebay.serde.Producer of {self._plain!r} by {self._serde!r}>"

    def send(
        self, value: T, *, flush: bool | None = None, **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Send a value, with the parameters of `forebay.Producer.send`."""
        return self._plain.send(self._serde.dumps(value), flush=flush, **fields)

    def send_nowait(self, value: T, **fields: Unpack[MessageFields]) -> Ticket:
        """Send a value, with the parameters of `forebay.Producer.send_nowait`."""
        return self._plain.send_nowait(self._serde.dumps(value), **fields)

    def send_batch(
        self, values: Iterable[T], *, flush: bool | None = None, **fields: Unpack[BatchFields]
    ) -> BatchResult:
        """Send values, with the parameters of `forebay.Producer.send_batch`."""
        check("values", values, Iterable, "a list of values")
        bodies = [self._serde.dumps(value) for value in values]
        return self._plain.send_batch(bodies, flush=flush, **fields)

    def send_batch_nowait(self, values: Iterable[T], **fields: Unpack[BatchFields]) -> BatchTicket:
        """Send values, with the parameters of `forebay.Producer.send_batch_nowait`."""
        check("values", values, Iterable, "a list of values")
        bodies = [self._serde.dumps(value) for value in values]
        return self._plain.send_batch_nowait(bodies, **fields)

    def send_arrow(
        self,
        data: ArrowStream | ArrowArray,
        *,
        atomic: bool = False,
        flush: bool | None = None,
    ) -> BatchResult:
        """Send the rows of a table, with the parameters of `forebay.Producer.send_arrow`.

        The column ``value`` (or ``body``) has values, of any type of Arrow: a struct is a dict, and
        null is None. pyarrow reads it.
        """
        rows = with_bodies(data, self._serde.dumps)
        return self._plain.send_arrow(rows, atomic=atomic, flush=flush)


class Consumer(ConsumerWrapper["forebay.Consumer | hooks.Consumer"], Generic[T]):
    """Gets values from a consumer; made by `Serde.consumer`.

    It settles messages, and values that it has returned.
    """

    def __init__(
        self, serde: Serde[T], plain: forebay.Consumer | hooks.Consumer, reject: bool
    ) -> None:
        super().__init__(plain)
        self._serde = serde
        self._rejects = reject

    def __repr__(self) -> str:
        return f"<forebay.serde.Consumer of {self._plain!r} by {self._serde!r}>"

    def poll(self, max_messages: int = 64, timeout: Duration | None = None) -> list[Received[T]]:
        """Take messages as `forebay.Consumer.poll` does.

        The list is empty if the time is over, or if no message could be decoded.
        """
        messages = self._plain.poll(max_messages, timeout)
        return [received for message in messages for received in self._decode(message)]

    def __iter__(self) -> Iterator[Received[T]]:
        for message in self._plain:
            yield from self._decode(message)

    def run(self, handler: Callable[[T, Message], object], threads: int = 1) -> None:
        """Call ``handler(value, message)`` as `forebay.Consumer.run` does."""
        check_function("handler", handler)

        def handle(message: Message) -> None:
            for received in self._decode(message):
                check_has_run("handler", handler(received.value, received.message))

        self._plain.run(handle, threads)

    def ack(self, messages: Message | Received[Any] | Iterable[Message | Received[Any]]) -> None:
        """Acknowledge messages."""
        if isinstance(messages, Iterable):
            super().ack(_message(one) for one in messages)
        else:
            super().ack(_message(messages))

    def nack(self, message: Message | Received[Any], delay_level: int | None = None) -> None:
        """Have a message delivered again later."""
        super().nack(_message(message), delay_level)

    def reject(self, message: Message | Received[Any], reason: str | None = None) -> None:
        """Send a message to the dead letters."""
        super().reject(_message(message), reason)

    def extend(self, message: Message | Received[Any], seconds: Duration) -> None:
        """Keep a message for longer before it is delivered again."""
        super().extend(_message(message), seconds)

    def _decode(self, message: Message) -> list[Received[T]]:
        """Return the message decoded; nothing if it was rejected."""
        try:
            return [Received(self._serde.loads(message), message)]
        except DecodeError as error:
            if not self._rejects:
                raise
            place = (message.topic, message.queue, message.offset)
            _logger.warning(
                "rejected the message of topic %s queue %d offset %d: %s", *place, error
            )
            self._plain.reject(message, reason=str(error))
            return []


def _message(given: Message | Received[Any]) -> Message:
    return given.message if isinstance(given, Received) else given


def _name(call: object) -> str:
    return getattr(call, "__qualname__", None) or repr(call)


def json() -> Serde[Any]:
    """Return a serde of JSON, without spaces, in UTF-8.

    It uses orjson or msgspec where installed, else `json`. All take dicts with str keys, lists,
    str, int of 64 bits, finite float, bool and None; the libraries take more, such as datetimes.
    A float that is not finite is a ValueError, since JSON has no such numbers.

    Examples
    --------
    >>> import forebay.serde
    >>> forebay.serde.json().dumps({"count": 3})
    b'{"count":3}'
    """
    try:
        import orjson
    except ImportError:
        pass
    else:
        return Serde(_finite(orjson.dumps), orjson.loads)
    try:
        import msgspec
    except ImportError:
        return Serde(_dumps_json, _loads_json)
    return Serde(_finite(msgspec.json.encode), msgspec.json.decode)


def _dumps_json(value: Any) -> bytes:
    text = _json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _finite(dumps: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return `dumps` of a library that writes null for a float that is not finite, as an error."""

    @functools.wraps(dumps)
    def checked(value: Any) -> bytes:
        body = dumps(value)
        if b"null" in body:
            _check_finite(value)
        return body

    return checked


def _check_finite(value: Any) -> None:
    """Raise `ValueError` if a float in `value` is not finite, in the words of `json`."""
    _json.dumps(value, allow_nan=False, skipkeys=True, default=_parts)


def _parts(value: Any) -> Any:
    """Return the parts of a value whose type `json` does not know."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(value)
    fields = getattr(type(value), "__struct_fields__", ())
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
    return [getattr(value, name, None) for name in fields]


def _loads_json(body: bytes) -> Any:
    # `json` would guess UTF-16, and accept surrogates.
    return _json.loads(body.decode())


def _has_lost(value: Any, written: Any) -> bool:
    """Return whether a float in `value` has been written as null."""
    if isinstance(value, dict):
        return any(_has_lost(one, written.get(name)) for name, one in value.items())
    if isinstance(value, list):
        return any(map(_has_lost, value, written))
    return isinstance(value, float) and written is None


def msgpack() -> Serde[Any]:
    """Return a serde of MessagePack, by msgspec or msgpack.

    Raises
    ------
    ImportError
        If neither is installed.

    Examples
    --------
    >>> import forebay.serde
    >>> as_msgpack = forebay.serde.msgpack()
    >>> as_msgpack.loads(as_msgpack.dumps([1, True]))
    [1, True]
    """
    try:
        import msgspec
    except ImportError:
        library = require("msgpack", "serde")
        return Serde(library.packb, library.unpackb)
    return Serde(msgspec.msgpack.encode, msgspec.msgpack.decode)


def pydantic(kind: type[T]) -> Serde[T]:
    """Return a serde of JSON that checks values against a type, by pydantic.

    Values are checked in both directions, and converted as pydantic does: ``"3"`` is sent as the
    int 3. A value of another type is not sent: `dumps` raises pydantic's error, a ValueError. A
    float that is not finite also raises ValueError, unless ``ser_json_inf_nan`` of its model's
    configuration has another form for it than null.

    Parameters
    ----------
    kind
        A model, or another type that pydantic's `TypeAdapter` takes.

    Raises
    ------
    ImportError
        If pydantic is not installed.
    TypeError
        If pydantic knows no form of `kind`.

    Examples
    --------
    >>> import forebay.serde
    >>> from pydantic import BaseModel
    >>> class Order(BaseModel):
    ...     count: int
    >>> orders = forebay.serde.pydantic(Order)
    >>> orders.loads(b'{"count": 3}')
    Order(count=3)
    """
    library = require("pydantic", "serde")
    try:
        adapter = library.TypeAdapter(kind)
    except library.PydanticUserError as error:
        raise TypeError(
            f"kind must be a model or a type that pydantic knows, got {kind!r}"
        ) from error

    def checked_json(value: T) -> bytes:
        # pydantic takes an instance of a model as valid. Its attributes may have been set to
        # invalid values since, and without `warnings="error"` pydantic would only warn of them.
        valid = adapter.validate_python(value)
        body = cast("bytes", adapter.dump_json(valid, by_alias=True, warnings="error"))
        if b"null" in body:
            plain = adapter.dump_python(valid, mode="json", by_alias=True)
            if _has_lost(plain, _json.loads(body)):
                raise ValueError("a float that is not finite cannot be written as JSON")
        return body

    return Serde(checked_json, adapter.validate_json)
