"""Redaction of paths and URIs in messages: the user, password and query are never shown."""

from __future__ import annotations

import json
import re

#: A scheme, or anything else with a colon before the first slash: a user name may follow.
_URI = re.compile("[^/]*:")


def redacted(text: str) -> str:
    """Return a path, a URI or JSON that contains some, without anything that may be secret.

    A file system path is returned unchanged. The text need not be well-formed: anything that
    could be part of a password is left out.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return _redacted(text)
    try:
        shown = json.dumps(_strings(json.loads(text)), separators=(",", ":"))
    except (ValueError, RecursionError):
        # An escape may hide the delimiter before a secret.
        return "..." if "\\" in text else '"'.join(map(_redacted, text.split('"')))
    # Nothing in it can be secret: return it as it was given.
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
    # A password may contain "?" or "#"; then no part of the text is known to be public.
    place = "..." if "@" in "".join(query) else place.rpartition("@")[2]
    return f"{scheme.rpartition('@')[2]}{separator}{place}"
