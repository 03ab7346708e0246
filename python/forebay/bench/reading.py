"""A reader beside a sender: ``python -m forebay.bench.reading STORE``.

It reads what is sent to all topics from now on, until its standard input ends, and then prints how
many messages it has read.
"""

from __future__ import annotations

import sys
import threading

import forebay

#: Messages of one call.
_MESSAGES = 1_000


def main() -> None:
    """Read until standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    read = 0
    with forebay.open(sys.argv[1], mode="r") as store:
        topics = [(topic.name, topic.queues[0].max_offset) for topic in store.topics.values()]
        print("ready", flush=True)
        while not ended.is_set():
            for place, (topic, offset) in enumerate(topics):
                batch = store.read(topic, 0, offset, max_messages=_MESSAGES)
                read += len(batch)
                topics[place] = (topic, batch.next_offset)
                if ended.is_set():
                    break
    print(read, flush=True)


if __name__ == "__main__":
    main()
