"""Options of stores whose files are so small that a short life fills several of them."""

from __future__ import annotations

from typing import Any

FILES: dict[str, Any] = {
    "commitlog_file_size": 64 << 10,
    "queue_file_entries": 64,
    "index_slots": 64,
    "index_entries": 256,
}
SMALL: dict[str, Any] = {**FILES, "default_queues": 2, "max_message_size": 16 << 10}
#: The same for a partition log; a batch fits a segment.
SMALL_LOG: dict[str, Any] = {
    "engine": "partitionlog",
    "segment_bytes": 128 << 10,
    "index_interval_bytes": 512,
    "default_queues": 2,
    "max_message_size": 16 << 10,
}
