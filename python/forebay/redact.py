"""What messages show of paths and URIs: never user, password or query."""

from __future__ import annotations

import re

#: A scheme, or what else has a colon in it before any slash: what follows may be a user.
_URI = re.compile("[^/]*:")


def redacted(text: str) -> str:
    """Return a text that is a path or a URI, or JSON with such, without what may be secret.

    A path of a file system is returned as it is. A text need not be well-formed: what cannot be
    told from a password is left out.
    """
    if text.lstrip()[:1] in ("{", "["):
        return '"'.join(map(_redacted, text.split('"')))
    return _redacted(text)


def _redacted(text: str) -> str:
    if _URI.match(text) is None:
        return text
    for separator in ("://", ":/"):
        scheme, found, rest = text.partition(separator)
        if found:
            break
    else:
        return text.rpartition("@")[2]
    place, *query = re.split("[?#]", rest, maxsplit=1)
    # A password may have such a character in it: then no part is known to be public.
    place = "..." if "@" in "".join(query) else place.rpartition("@")[2]
    return f"{scheme.rpartition('@')[2]}{separator}{place}"
