"""Bodies of messages as text, JSON and bytes in hexadecimal, never more than a page shows."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

__all__ = ["PREVIEW", "SHOWN", "cut", "hex_lines", "preview", "shown", "text_of"]

#: Bytes of a body in a list of messages, and on the page of one message.
PREVIEW, SHOWN = 256, 64 << 10
#: Bytes that are shown in hexadecimal, which takes five times their room.
_HEX = 4 << 10
#: Objects and arrays within each other that are shown one value a line.
_DEPTH = 32
#: The tokens of JSON.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_BLANK = frozenset("\t\n\r")


def cut(text: str, length: int = 256) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= length else text[:length] + "..."


def text_of(body: memoryview, length: int) -> str | None:
    """Return the first `length` bytes as text; None if they are not text.

    Text is UTF-8 without control characters. A character that the limit cuts is left out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(bytes(body[:length]), final=len(body) <= length)
    except UnicodeDecodeError:
        return None
    controls = any((one < " " and one not in _BLANK) or one == "\x7f" for one in text)
    return None if controls else text


def preview(body: memoryview) -> dict[str, Any]:
    """Return the beginning of a body, for a list."""
    text = text_of(body, PREVIEW)
    size = len(body)
    if text is None:
        return {
            "form": "hex",
            "text": bytes(body[:32]).hex(" "),
            "size": size,
            "truncated": size > 32,
        }
    return {"form": "text", "text": text, "size": size, "truncated": size > PREVIEW}


def shown(body: memoryview) -> dict[str, Any]:
    """Return a body in every form that it has; a form that it does not have is None."""
    text = text_of(body, SHOWN)
    whole = len(body) <= SHOWN
    return {
        "size": len(body),
        "text": text,
        "json": _pretty(text) if whole and text is not None else None,
        "hex": hex_lines(body),
        "text_truncated": not whole,
        "hex_truncated": len(body) > _HEX,
    }


def _pretty(text: str) -> str | None:
    """Return JSON with one value a line; None if it is not an object or an array.

    Only white space changes: numbers, escapes and names that occur twice stay as they are.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    depth, last = 0, ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        depth -= token in "}]"
        is_empty = token in "}]" and last in "{["
        if last and not is_empty and (last in "{[," or token in "}]"):
            parts.append("\n" + "  " * depth)
        parts.append(": " if token == ":" else token)
        depth += token in "{["
        if depth > _DEPTH:
            return None
        last = token
    return "".join(parts)


def hex_lines(body: memoryview) -> str:
    """Return the first bytes, 16 a line, with their place before and their ASCII after them."""
    lines = []
    for at in range(0, min(len(body), _HEX), 16):
        part = bytes(body[at : min(at + 16, _HEX)])
        plain = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {plain}")
    return "\n".join(lines)
