"""Where a read begins or ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

__all__ = ["Bound"]

#: ``"earliest"``, ``"latest"``, a time, or offsets by queue.
Bound: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[int, int]
