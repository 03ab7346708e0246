"""Serving the console by uvicorn until Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import signal
import socket
import sys
import webbrowser
from collections.abc import Iterable
from types import FrameType

import uvicorn

from forebay._forebay import Store
from forebay.console.app import Console
from forebay.output import plain

__all__ = ["Server", "listen", "serve"]

#: Connections at a time; more are refused.
_CONNECTIONS = 128


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket: clients that connect before the server runs wait for it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host}: {error.strerror}") from error
    except UnicodeError as error:
        reason = "a part of the name is empty, too long, or not a name"
        raise OSError(errno.EINVAL, f"cannot listen on {host}: {reason}") from error
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_CONNECTIONS)
    except OSError as error:
        bound.close()
        where = host if error.errno == errno.EADDRNOTAVAIL else f"port {port}"
        raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from error
    return bound


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(bound: socket.socket) -> str:
    """Return host and port for an address; for all addresses of this machine, a loopback one."""
    name, port = bound.getsockname()[:2]
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


class Server(uvicorn.Server):
    """A server that ends the streams of open pages before it waits for its requests."""

    def __init__(self, console: Console) -> None:
        config = uvicorn.Config(
            console,
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=5,
        )
        super().__init__(config)
        self._console = console
        self._loop: asyncio.AbstractEventLoop | None = None
        self._interrupted = False

    def run_until_signal(self, bound: socket.socket) -> None:
        """Serve in the main thread until a signal, and raise `KeyboardInterrupt` after Ctrl-C."""
        # asyncio's own handler would cancel tasks that have hardly begun, which prints warnings.
        before = signal.signal(signal.SIGINT, self.handle_exit)
        try:
            self.run(sockets=[bound])
        finally:
            signal.signal(signal.SIGINT, before)
        if self._interrupted:
            raise KeyboardInterrupt

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End because of a signal, which may interrupt the event loop anywhere."""
        super().handle_exit(sig, frame)
        self._interrupted |= sig == signal.SIGINT
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._console.close)


def serve(
    store: Store, host: str, port: int, *, names: Iterable[str], write: bool, browse: bool
) -> None:
    """Print the address of the console and serve it until Ctrl-C."""
    with listen(host, port) as bound:
        hosts = {host, *names} | (set() if is_loopback(host) else {"*"})
        console = Console(store, write=write, hosts=hosts)
        url = f"http://{_shown(bound)}/#token={console.token}"
        print(f"console of {plain(store.path)}: {url}", flush=True)
        if not is_loopback(host):
            print("other machines can connect; nothing is encrypted", file=sys.stderr, flush=True)
        if browse:
            webbrowser.open(url)
        Server(console).run_until_signal(bound)
