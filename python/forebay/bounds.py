"""Where a read begins or ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

__all__ = ["Bound"]

#: ``"earliest"``, ``"latest"``, a time, or offsets by queue.
Bound: TypeAlias = str | datetime | Mapping[int, int]
