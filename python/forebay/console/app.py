"""The console as an ASGI application: its routes, and the threads in which the store is read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from forebay._forebay import Store
from forebay.console import facts, messages
from forebay.console.asked import Asked, json_of
from forebay.console.guard import LOOPBACK, Guard
from forebay.console.live import Live, take
from forebay.console.redrive import redrive
from forebay.errors import (
    BusyError,
    ForebayError,
    ForeignStoreError,
    ReadOnlyError,
    StoreClosedError,
    StoreLockedError,
)
from forebay.given import check, listed

__all__ = ["Console"]

_T = TypeVar("_T")
#: Threads that read the store. Pages that wait for one wait in the event loop.
_THREADS = 4
#: The page. It holds no data, so it needs no token.
_FILES = {"/": "index.html"} | {
    f"/{name}": name
    for name in (
        *("console.css", "icon.svg"),
        *("console.js", "elements.js", "pages.js", "requests.js", "values.js"),
    )
}
_KINDS = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
#: HTTP statuses of errors; the first match counts.
_STATUSES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((StoreLockedError, BusyError), 409),
    ((StoreClosedError,), 503),
    ((ReadOnlyError, ForeignStoreError), 403),
    ((LookupError,), 404),
    ((ValueError, TypeError), 400),
    ((ForebayError, OSError), 500),
)


class Console:
    """A web page over a store, as an ASGI application.

    The page loads nothing from elsewhere and needs a token, which it takes from the fragment of
    its address, ``#token=...``: browsers send that to nobody.

    Parameters
    ----------
    store
        The store. Its owner closes it, after the console.
    token
        What a request must carry in the header ``Authorization: Bearer``, at least 16 characters;
        by default a random one.
    write
        Whether dead letters may be redriven. A store that is open for reading is opened for
        writing meanwhile, which fails while another process writes.
    hosts
        Names by which the server is reached besides the loopback ones. ``"*"`` accepts all
        addresses in numbers.
    interval
        Seconds between two samples, which are only taken while a page is open.

    Attributes
    ----------
    token
        The token.

    Examples
    --------
    >>> import forebay.console
    >>> with forebay.open(":memory:") as store:
    ...     console = forebay.console.Console(store)
    ...     console.close()
    >>> len(console.token)
    43
    """

    def __init__(
        self,
        store: Store,
        *,
        token: str | None = None,
        write: bool = False,
        hosts: Iterable[str] = (),
        interval: float = 1.0,
    ) -> None:
        check("store", store, Store, "a store")
        check("token", token, (str, type(None)), "text, or None")
        check("write", write, bool, "True or False")
        names = listed("hosts", hosts, str, "a list of names")
        check("interval", interval, (int, float), "a number of seconds")
        if token is not None and (len(token) < 16 or not token.isascii() or " " in token):
            raise ValueError("token must have at least 16 ASCII characters, and no spaces")
        if not interval > 0:
            raise ValueError(f"interval must be above 0, got {interval}")
        self.token = secrets.token_urlsafe(32) if token is None else token
        self._store = store
        self._write = write
        self._threads = ThreadPoolExecutor(_THREADS, "forebay-console")
        self._redriving = asyncio.Lock()
        self._live = Live(lambda: self._in_thread(lambda: take(store)), interval)
        self._files = {
            path: resources.files(__package__).joinpath("static", name).read_bytes()
            for path, name in _FILES.items()
        }
        failed: Any = {Exception: _failed, HTTPException: _refused} | {
            kind: _failed for kinds, _ in _STATUSES for kind in kinds
        }
        app = Starlette(routes=self._routes(), exception_handlers=failed)
        app.router.redirect_slashes = False
        self._app = Guard(app, self.token, LOOPBACK | set(names), _FILES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """End the streams of all open pages. Call it in the event loop, before the server ends."""
        self._live.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def listeners(self) -> int:
        """The number of pages that are open."""
        return self._live.listeners

    def _routes(self) -> list[BaseRoute]:
        reads: dict[str, Callable[[Request], Any]] = {
            "overview": self._overview,
            "topics": self._topics,
            "topic": self._topic,
            "messages": self._messages,
            "message": self._message,
            "groups": self._groups,
            "letters": self._letters,
            "damage": self._damage,
        }
        routes: list[BaseRoute] = [Route(path, self._file) for path in _FILES]
        routes += [Route(f"/api/{name}", self._answers(read)) for name, read in reads.items()]
        routes.append(Route("/api/body", self._body))
        routes.append(Route("/api/events", self._events))
        routes.append(Route("/api/redrive", self._redrive, methods=["POST"]))
        return routes

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _answers(self, read: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Return an endpoint that calls `read` in a thread and answers with JSON."""

        async def endpoint(request: Request) -> Response:
            return await self._in_thread(lambda: _json(read(request)))

        return endpoint

    async def _file(self, request: Request) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"
        kind = _KINDS[_FILES[path].rpartition(".")[2]]
        return Response(self._files[path], media_type=kind, headers={"cache-control": "no-cache"})

    def _overview(self, request: Request) -> Any:
        Asked(request.query_params)
        return facts.overview(self._store, write=self._write)

    def _topics(self, request: Request) -> Any:
        asked = Asked(request.query_params, "part")
        return facts.topics(self._store, asked.maybe("part") or "", self._live.topic_rates())

    def _topic(self, request: Request) -> Any:
        asked = Asked(request.query_params, "topic")
        return facts.topic(self._store, asked.text("topic"), self._live.topic_rates())

    def _messages(self, request: Request) -> Any:
        names = ("queue", "order", "offset", "time", "key", "end", "places", "limit")
        asked = Asked(request.query_params, "topic", *names)
        topic, limit = asked.text("topic"), asked.limit(50, 200)
        key, time = asked.maybe("key"), asked.time("time")
        unused = ("end",) if key is None else ("queue", "order", "offset", "places")
        for name in unused:
            if asked.maybe(name) is not None:
                raise ValueError(f"{name} {'needs' if key is None else 'does not go with'} a key")
        if key is not None:
            end = asked.time("end")
            return messages.by_key(self._store, topic, key, begin=time, end=end, limit=limit)
        order = asked.maybe("order") or "newest"
        if order not in ("newest", "oldest"):
            raise ValueError("order must be newest or oldest")
        page = messages.Page(
            self._store,
            topic,
            queue=asked.maybe_number("queue"),
            newest=order == "newest",
            offset=asked.maybe_number("offset"),
            time=time,
            places=asked.places("places"),
        )
        return page.read(limit)

    def _message(self, request: Request) -> Any:
        asked = Asked(request.query_params, "topic", "queue", "offset", "id")
        name = asked.maybe("id")
        if name is not None:
            return messages.detail(self._store.message(name))
        place = asked.text("topic"), asked.number("queue"), asked.number("offset")
        return messages.detail(self._store.get(*place))

    def _groups(self, request: Request) -> Any:
        Asked(request.query_params)
        return facts.groups(self._store)

    def _letters(self, request: Request) -> Any:
        asked = Asked(request.query_params, "group", "limit")
        group, limit = asked.maybe("group"), asked.limit(100, 200)
        if group is None:
            return facts.letters(self._store)
        return facts.letters_of(self._store, group, limit)

    def _damage(self, request: Request) -> Any:
        Asked(request.query_params)
        return facts.damage(self._store)

    async def _body(self, request: Request) -> Response:
        asked = Asked(request.query_params, "topic", "queue", "offset")
        place = asked.text("topic"), asked.number("queue"), asked.number("offset")
        name, body = await self._in_thread(lambda: messages.body_of(self._store, *place))
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(body, media_type="application/octet-stream", headers=headers)

    async def _events(self, request: Request) -> Response:
        Asked(request.query_params)
        return _Events(self._live.events(), media_type="text/event-stream")

    async def _redrive(self, request: Request) -> Response:
        if not self._write:
            raise ReadOnlyError("the console only reads: start it with --write to redrive")
        asked = await json_of(request)
        if self._redriving.locked():
            raise BusyError("dead letters are being redriven: try again when that is done")
        async with self._redriving:
            return _json(await self._in_thread(lambda: redrive(self._store, asked)))


class _Events(StreamingResponse):
    """A stream that closes its source at its end, even if the page disconnects during a send."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        source = self.body_iterator
        assert isinstance(source, AsyncGenerator)
        async with contextlib.aclosing(source):
            await super().__call__(scope, receive, send)


def _json(value: Any, status: int = 200) -> Response:
    # As ASCII: a path may hold bytes that are not UTF-8.
    return Response(json.dumps(value), status, media_type="application/json")


async def _failed(_request: Request, error: Exception) -> Response:
    """Answer with the error, which the page shows in place of its content."""
    for kinds, status in _STATUSES:
        if isinstance(error, kinds):
            return _json({"error": str(error)}, status)
    return _json({"error": f"unexpected {type(error).__name__}: {error}"}, 500)


async def _refused(_request: Request, error: HTTPException) -> Response:
    return _json({"error": error.detail}, error.status_code)
