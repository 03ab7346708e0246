"""JSON objects that may come from anywhere."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["json_object"]


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object that a text contains.

    Raises
    ------
    ValueError
        If it is not JSON, not an object, or nested too deeply.
    """
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found
