"""What messages show of paths and URIs: never user, password or query."""

from __future__ import annotations

import json
import re

#: A scheme, or what else has a colon in it before any slash: what follows may be a user.
_URI = re.compile("[^/]*:")


def redacted(text: str) -> str:
    """Return a text that is a path or a URI, or JSON with such, without what may be secret.

    A path of a file system is returned as it is. A text need not be well-formed: what cannot be
    told from a password is left out.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return _redacted(text)
    try:
        shown = json.dumps(_strings(json.loads(text)), separators=(",", ":"))
    except (ValueError, RecursionError):
        # An escape may hide what a secret begins with.
        return "..." if "\\" in text else '"'.join(map(_redacted, text.split('"')))
    # As it was given, where nothing in it can be secret.
    return shown if any(mark in text for mark in "@?#\\") else text


def _strings(value: object) -> object:
    """Return a JSON value with every string in it redacted."""
    match value:
        case str():
            return _redacted(value)
        case list():
            return [_strings(it) for it in value]
        case dict():
            return {_redacted(name): _strings(it) for name, it in value.items()}
        case _:
            return value


def _redacted(text: str) -> str:
    if _URI.match(text) is None:
        return text
    for separator in ("://", ":/"):
        scheme, found, rest = text.partition(separator)
        if found:
            break
    else:
        return re.split("[?#]", text, maxsplit=1)[0].rpartition("@")[2]
    place, *query = re.split("[?#]", rest, maxsplit=1)
    # A password may have such a character in it: then no part is known to be public.
    place = "..." if "@" in "".join(query) else place.rpartition("@")[2]
    return f"{scheme.rpartition('@')[2]}{separator}{place}"
