"""The arguments of a request. They come from anywhere: each is checked, and none is ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request

from forebay.jsons import json_object

__all__ = ["Asked", "json_of"]

#: Bytes of a request's body.
_BODY = 16 << 10
_MOST = (1 << 63) - 1


class Asked:
    """The query of a request, in which each name may occur once.

    Parameters
    ----------
    query
        The query.
    names
        Names that it may have.

    Raises
    ------
    ValueError
        If it has another name, or the same name twice.
    """

    def __init__(self, query: QueryParams, *names: str) -> None:
        for name in query:
            if name not in names:
                raise ValueError(f"there is no argument {name!r}")
            if len(query.getlist(name)) > 1:
                raise ValueError(f"the argument {name} is given more than once")
        # A field of a form that is left empty is not given.
        self._given = {name: value for name, value in query.items() if value}

    def text(self, name: str) -> str:
        """Return an argument that must be given."""
        found = self._given.get(name)
        if found is None:
            raise ValueError(f"the argument {name} is missing")
        return found

    def maybe(self, name: str) -> str | None:
        """Return an argument, or None."""
        return self._given.get(name)

    def number(self, name: str) -> int:
        """Return an integer from 0 to 2^63 - 1 that must be given."""
        return _number(name, self.text(name))

    def maybe_number(self, name: str) -> int | None:
        """Return an integer from 0 to 2^63 - 1, or None."""
        found = self._given.get(name)
        return None if found is None else _number(name, found)

    def limit(self, otherwise: int, most: int) -> int:
        """Return the argument ``limit``, from 1 to `most`."""
        found = self.maybe_number("limit")
        found = otherwise if found is None else found
        if not 1 <= found <= most:
            raise ValueError(f"limit must be from 1 to {most}, got {found}")
        return found

    def time(self, name: str) -> int | None:
        """Return a time in milliseconds since 1970, given so or as ISO 8601 with a zone."""
        found = self._given.get(name)
        if found is None or (found.isascii() and found.isdecimal()):
            return self.maybe_number(name)
        try:
            time = datetime.fromisoformat(found)
        except ValueError:
            raise ValueError(f"{name} must be a time such as 2026-03-01T12:00Z") from None
        if time.tzinfo is None:
            raise ValueError(f"{name} must have a zone, as 2026-03-01T12:00Z does")
        return max(round(time.timestamp() * 1000), 0)

    def places(self, name: str) -> dict[int, int]:
        """Return offsets by queue, given as ``0-17.1-20``."""
        found: dict[int, int] = {}
        for part in filter(None, self._given.get(name, "").split(".")):
            text, _, offset = part.partition("-")
            queue = _number(name, text)
            if queue in found:
                raise ValueError(f"{name} has queue {queue} more than once")
            found[queue] = _number(name, offset)
        return found


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > _MOST:
        raise ValueError(f"{name} must be an integer from 0 to 2^63 - 1")
    return int(text)


async def json_of(request: Request) -> dict[str, Any]:
    """Return the JSON object that a request carries.

    Raises
    ------
    ValueError
        If it is longer than 16 KiB, or not such an object.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ValueError("the request must be of the type application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _BODY:
            raise ValueError(f"the request is longer than {_BODY} bytes")
    return json_object(bytes(body))
