"""What the same call means in different engines: the table that the shared tests ask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Meanings:
    """The answers of one engine, where engines may differ."""

    #: What precedes the name of a group in the topics of its retries and dead letters.
    retry_prefix: str
    dead_prefix: str
    #: Longest name of a topic, and names with the characters that not all engines allow.
    topic_len_max: int
    topics: tuple[str, ...]
    #: Where a message with a delay level waits, and in which queue.
    delayed: tuple[str, int]
    #: Whether the log has one order for all queues, and a position says where a message is.
    one_log: bool
    #: Whether the first key is any bytes, and a property any text.
    any_bytes: bool
    #: What is wrong with None as a body.
    no_body: str
    #: Whether the store has files.
    files: bool

    def retries(self, group: str) -> str:
        """Return the topic of a group's messages to be retried."""
        return self.retry_prefix + group

    def dead_letters(self, group: str) -> str:
        """Return the topic of a group's dead letters."""
        return self.dead_prefix + group


_COMMIT_LOG = Meanings(
    retry_prefix="%RETRY%",
    dead_prefix="%DLQ%",
    topic_len_max=127,
    topics=("%RETRY%group", "a|b_C-9"),
    delayed=("SCHEDULE_TOPIC_XXXX", 2),
    one_log=True,
    any_bytes=False,
    no_body="NoneType",
    files=True,
)
_PARTITION_LOG = Meanings(
    retry_prefix="retry.",
    dead_prefix="dlq.",
    topic_len_max=249,
    topics=("a.b", "orders.eu_C-9"),
    delayed=("rmq_sys_forebay_delay", 0),
    one_log=False,
    any_bytes=True,
    no_body="tombstone, which must have a key",
    files=True,
)
_MEMORY = Meanings(**{**vars(_COMMIT_LOG), "files": False})

#: The engines, each with its meanings.
MEANINGS = {"memory": _MEMORY, "commitlog": _COMMIT_LOG, "partitionlog": _PARTITION_LOG}
