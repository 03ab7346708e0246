"""Hooks around sends and around the handling of messages, such as for tracing.

A hook is a callable. That of a send gets the topic and the properties of the message, and may add
some; that of a message gets the message. Either may return a context manager, which then surrounds
the send or the handling.

Examples
--------
>>> import contextlib
>>> import forebay.hooks
>>> def stamp(topic, properties):
...     properties["request"] = "r-17"
>>> @contextlib.contextmanager
... def log(message):
...     print("begin", message.properties["request"])
...     yield
...     print("end")
>>> with forebay.open(":memory:") as store:
...     orders = forebay.hooks.producer(store.producer("orders"), stamp)
...     _ = orders.send(b"apples")
...     with store.consumer("orders", group="billing") as consumer:
...         def handle(message):
...             print(message.body)
...             consumer.close()
...         forebay.hooks.consumer(consumer, log).run(handle)
begin r-17
b'apples'
end
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from forebay import _forebay
from forebay.columns import with_properties
from forebay.given import check, check_function, check_has_run, check_items
from forebay.selection import require
from forebay.wrapping import ConsumerWrapper, ProducerWrapper

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    import forebay
    from forebay._forebay import BatchResult, BatchTicket, Message, SendResult, Ticket
    from forebay.options import ArrowArray, ArrowStream, Duration

__all__ = ["ConsumeHook", "Consumer", "Producer", "SendHook", "consumer", "producer", "tracing"]

SendHook: TypeAlias = Callable[[str, dict[str, str]], "AbstractContextManager[Any] | None"]
"""Called before a send, with the topic and the properties to send."""
ConsumeHook: TypeAlias = Callable[["Message"], "AbstractContextManager[Any] | None"]
"""Called before a message is handled."""


def producer(producer: forebay.Producer | Producer, hook: SendHook) -> Producer:
    """Return a producer that calls a hook before each send.

    For a batch the hook is called once, and what it adds becomes a property of every message. If
    the hook raises, nothing is sent.
    """
    check("producer", producer, (_forebay.Producer, Producer), "a producer")
    check_function("hook", hook)
    return Producer(producer, hook)


def consumer(consumer: forebay.Consumer | Consumer, hook: ConsumeHook) -> Consumer:
    """Return a consumer that calls a hook before each message is handled.

    The hook surrounds the handler in `run`, and the body of the loop in iteration; `poll` calls no
    hook. If the hook raises, it is as if the handler had raised.
    """
    check("consumer", consumer, (_forebay.Consumer, Consumer), "a consumer")
    check_function("hook", hook)
    return Consumer(consumer, hook)


class Producer(ProducerWrapper["forebay.Producer | Producer"]):
    """Sends to one topic through a hook; made by `producer`.

    Its methods have the parameters, results and errors of `forebay.Producer`.
    """

    def __init__(self, plain: forebay.Producer | Producer, hook: SendHook) -> None:
        super().__init__(plain)
        self._hook = hook

    def __repr__(self) -> str:
        return f"<forebay.hooks.Producer of {self._plain!r} with {self._hook!r}>"

    def send(
        self, body: Any, *, properties: Mapping[str, str] | None = None, **fields: Any
    ) -> SendResult:
        """Send a message."""
        given = _own(properties)
        with _entered(self._hook(self.topic, given)):
            return self._plain.send(body, properties=given, **fields)

    def send_nowait(
        self, body: Any, *, properties: Mapping[str, str] | None = None, **fields: Any
    ) -> Ticket:
        """Send a message, and return a ticket. The hook surrounds the append alone."""
        given = _own(properties)
        with _entered(self._hook(self.topic, given)):
            return self._plain.send_nowait(body, properties=given, **fields)

    def send_batch(
        self, bodies: Iterable[Any], *, properties: Any = None, **fields: Any
    ) -> BatchResult:
        """Send messages."""
        added: dict[str, str] = {}
        with _entered(self._hook(self.topic, added)):
            merged = _merged(properties, added)
            return self._plain.send_batch(bodies, properties=merged, **fields)

    def send_batch_nowait(
        self, bodies: Iterable[Any], *, properties: Any = None, **fields: Any
    ) -> BatchTicket:
        """Send messages, and return a ticket. The hook surrounds the append alone."""
        added: dict[str, str] = {}
        with _entered(self._hook(self.topic, added)):
            merged = _merged(properties, added)
            return self._plain.send_batch_nowait(bodies, properties=merged, **fields)

    def send_arrow(self, data: ArrowStream | ArrowArray, **fields: Any) -> BatchResult:
        """Send the rows of a table. Properties that the hook adds are merged by pyarrow."""
        added: dict[str, str] = {}
        with _entered(self._hook(self.topic, added)):
            names = [*added, *added.values()]
            check_items("properties", names, str, "a mapping of str to str")
            merged = with_properties(data, added) if added else data
            return self._plain.send_arrow(merged, **fields)


class Consumer(ConsumerWrapper["forebay.Consumer | Consumer"]):
    """Handles messages within a hook; made by `consumer`.

    Its methods have the parameters, results and errors of `forebay.Consumer`.
    """

    def __init__(self, plain: forebay.Consumer | Consumer, hook: ConsumeHook) -> None:
        super().__init__(plain)
        self._hook = hook

    def __repr__(self) -> str:
        return f"<forebay.hooks.Consumer of {self._plain!r} with {self._hook!r}>"

    def poll(self, max_messages: int = 64, timeout: Duration | None = None) -> list[Message]:
        """Take messages, without a hook."""
        return self._plain.poll(max_messages, timeout)

    def __iter__(self) -> Iterator[Message]:
        for message in self._plain:
            with _entered(self._hook(message)):
                yield message

    @overload
    def run(
        self,
        handler: Callable[[Message], object],
        threads: int = 1,
        batch: Literal[1] = 1,
    ) -> None: ...

    @overload
    def run(
        self, handler: Callable[[list[Message]], object], threads: int = 1, *, batch: int
    ) -> None: ...

    @overload
    def run(self, handler: Callable[[list[Message]], object], threads: int, batch: int) -> None: ...

    def run(self, handler: Callable[[Any], object], threads: int = 1, batch: int = 1) -> None:
        """Call a handler with messages. The hooks of all messages of a batch surround it."""
        check_function("handler", handler)

        def handle(given: Any) -> None:
            with ExitStack() as stack:
                for message in [given] if batch == 1 else given:
                    stack.enter_context(_entered(self._hook(message)))
                check_has_run("handler", handler(given))

        self._plain.run(handle, threads, batch)


def tracing(tracer: Tracer | None = None) -> tuple[SendHook, ConsumeHook]:
    """Return hooks that carry the trace context of OpenTelemetry in properties of messages.

    A send is a span of kind ``PRODUCER``, and its context goes into the message by the propagator
    that is set globally: by default as ``traceparent`` and ``tracestate``. Handling a message is a
    span of kind ``CONSUMER`` whose parent is the send.

    Parameters
    ----------
    tracer
        Makes the spans; by default that of the global provider.

    Raises
    ------
    ImportError
        If OpenTelemetry's API is not installed.
    """
    trace = require("opentelemetry.trace", "metrics")
    propagate = require("opentelemetry.propagate", "metrics")
    kinds = (trace.Tracer, type(None))
    check("tracer", tracer, kinds, "a Tracer of OpenTelemetry, or None")
    made = trace.get_tracer("forebay") if tracer is None else tracer

    @contextmanager
    def span(name: str, kind: Any, context: Any, facts: dict[str, Any]) -> Iterator[None]:
        shared = {"messaging.system": "forebay", **facts}
        with made.start_as_current_span(name, context, kind=kind, attributes=shared):
            yield

    def on_send(topic: str, properties: dict[str, str]) -> AbstractContextManager[Any]:
        facts = {"messaging.operation.type": "send", "messaging.destination.name": topic}
        with ExitStack() as stack:
            # Entered here, since the properties must have the context of the span.
            stack.enter_context(span(f"send {topic}", trace.SpanKind.PRODUCER, None, facts))
            propagate.inject(properties)
            return stack.pop_all()

    def on_consume(message: Message) -> AbstractContextManager[None]:
        facts = {
            "messaging.operation.type": "process",
            "messaging.destination.name": message.topic,
            "messaging.destination.partition.id": str(message.queue),
            "messaging.message.id": message.message_id,
        }
        context = propagate.extract(message.properties)
        return span(f"process {message.topic}", trace.SpanKind.CONSUMER, context, facts)

    return on_send, on_consume


@contextmanager
def _entered(given: AbstractContextManager[Any] | None) -> Iterator[None]:
    """Enter what a hook returned; it sees an error but cannot suppress it."""
    if given is None:
        yield
        return
    raised: BaseException | None = None
    with given:
        try:
            yield
        except BaseException as error:
            raised = error
            raise
    if raised is not None:
        raise raised


def _own(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of the properties of a message, for a hook to add to."""
    check("properties", properties, (Mapping, type(None)), "a mapping of str to str, or None")
    return dict(properties or {})


def _merged(properties: Any, added: dict[str, str]) -> Any:
    """Add properties to those of a batch: none, the same for all, or some for each message."""
    if not added:
        return properties
    if properties is None or isinstance(properties, Mapping):
        return {**(properties or {}), **added}
    return [{**(one or {}), **added} for one in properties]
