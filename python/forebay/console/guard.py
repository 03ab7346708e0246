"""The checks of every request, and the headers of every answer.

A page of another site must not reach the console through the browser of its user. Therefore the
host is checked, which stops names that are made to resolve to this machine; the token is taken
from a header alone, which no form, image or link of another site can set; and no answer may be
framed, sniffed or run as a script.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LOOPBACK", "POLICY", "Guard", "host_name"]

#: Names of this machine that no other machine can have.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
#: Everything comes from this server; scripts can make no markup of strings.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def host_name(header: str) -> str | None:
    """Return the name in a Host header, without its port; None if it is no such header."""
    name, port = header.lower(), ""
    if name.startswith("["):
        name, bracket, port = name[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:]
    elif ":" in name:
        name, _, port = name.partition(":")
    if port and not (port.isascii() and port.isdecimal()):
        return None
    return name or None


class Guard:
    """Refuses requests that fail a check, and sets the headers of all answers.

    Parameters
    ----------
    app
        The application that answers the other requests.
    token
        The token that the header ``Authorization: Bearer`` must have.
    hosts
        Names in the Host header that are accepted. ``*`` accepts all addresses in numbers, which
        no resolver can be made to return for a name.
    public
        Paths that need no token.
    """

    def __init__(
        self, app: ASGIApp, token: str, hosts: Iterable[str], public: Iterable[str]
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._public = frozenset(public)
        self._hosts = frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        app = self._refusal(scope) or self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not self._accepts(name):
            shown = "the Host header does not name this console: see --host and --allow-host\n"
            return PlainTextResponse(shown, status_code=421)
        origin = headers.get("origin")
        is_foreign = origin is not None and origin.partition("://")[2].lower() != hosts[0].lower()
        writes = scope["method"] not in ("GET", "HEAD")
        site = headers.get("sec-fetch-site", "none")
        if is_foreign or (writes and site not in ("none", "same-origin")):
            return PlainTextResponse("the request comes from another site\n", status_code=403)
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        if path in self._public:
            return None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.encode(), self._token):
            return None
        refused = {"www-authenticate": "Bearer"}
        return PlainTextResponse("the token is missing or wrong\n", 401, refused)

    def _accepts(self, name: str) -> bool:
        if name in self._hosts:
            return True
        if "*" not in self._hosts:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
