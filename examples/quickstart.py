"""Open a store, send messages, read them, and find them by key.

Run it with ``python examples/quickstart.py``; it works in a temporary directory.
"""

import tempfile
from pathlib import Path

import forebay


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events")
        with forebay.open(path) as store:
            # Send one message. It can be read at once.
            result = store.send("orders", b"3 apples", key="42", tags="new")
            print(f"sent to queue {result.queue}, offset {result.offset}")

            # A producer binds the topic. The messages of a batch share one lock and one flush.
            orders = store.producer("orders")
            batch = orders.send_batch(
                [f"order {number}".encode() for number in range(1000)],
                keys=[str(number) for number in range(1000)],
                tags="bulk",
            )
            print(f"sent {batch.count} messages to {len(batch.ranges)} queues")

            # From here on, all these messages survive a power loss.
            store.flush()

        # Reading needs no writer and changes nothing on disk.
        with forebay.open(path, mode="r") as store:
            first = store.get("orders", result.queue, result.offset)
            print(f"{first.body!r} with key {first.key} and tag {first.tags}")

            found = store.query("orders", key="42")
            print(f"key 42, newest first: {[message.body for message in found]}")

            batch = store.read("orders", queue=0, offset=0, max_messages=3)
            print(f"{batch.status.name}: {len(batch)} messages, go on at {batch.next_offset}")

            newest = store.tail("orders", start="earliest", follow=False)
            total = sum(len(message.body) for message in newest)
            print(f"{total} bytes of bodies in all queues")
            assert [message.body for message in found] == [b"order 42", b"3 apples"]


if __name__ == "__main__":
    main()
