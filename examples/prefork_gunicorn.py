"""Store every request of a web server that forks its workers: each of them sends to one store.

The application opens the store once, before gunicorn forks. A worker opens it again by itself when
it sends for the first time. In a project of your own, `gunicorn --preload --workers 4 service:app`
runs such an application; without `--preload` each worker opens the store when it imports it.
"""

import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import forebay

WORKERS = 4
CLIENTS = 8
REQUESTS = 25


def make_app(path: str) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application that answers when the event is in the log."""
    store = forebay.open(path, mode="share")
    events = store.producer("events")

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        result = events.send(body, tags=f"worker-{os.getpid()}")
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"%d %d" % (result.queue, result.offset)]

    return app


def serve(path: str) -> None:
    """Run the server until it is told to stop. It prints the port that it listens on."""
    from gunicorn.app.base import BaseApplication

    class Server(BaseApplication):  # type: ignore[misc]
        def load_config(self) -> None:
            self.cfg.set("bind", "127.0.0.1:0")
            self.cfg.set("workers", WORKERS)
            self.cfg.set("preload_app", True)
            self.cfg.set("loglevel", "warning")
            self.cfg.set("worker_tmp_dir", tempfile.gettempdir())
            self.cfg.set("when_ready", lambda server: print(port_of(server), flush=True))

        def load(self) -> Callable[..., Iterable[bytes]]:
            return make_app(path)

    Server().run()


def port_of(server: Any) -> int:
    """Return the port of a server that has begun to listen."""
    return int(server.LISTENERS[0].sock.getsockname()[1])


def post(port: int, client: int) -> None:
    """Send requests, each on a connection of its own, so that all workers get some."""
    for number in range(REQUESTS):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/", body=f"client {client} event {number}")
        assert connection.getresponse().status == 200
        connection.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "events")
        command = [sys.executable, "-W", "ignore", __file__, path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout
            port = int(server.stdout.readline())
            clients = [threading.Thread(target=post, args=(port, n)) for n in range(CLIENTS)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            server.send_signal(signal.SIGTERM)
        with forebay.open(path, mode="r") as store:
            messages = list(store.tail("events", start="earliest", follow=False))
        senders = {message.tags for message in messages}
        print(f"{len(senders)} workers stored {len(messages)} events")
        assert len({message.body for message in messages}) == CLIENTS * REQUESTS == len(messages)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1])
    else:
        main()
