"""Read the directory of a RocketMQ broker that is gone.

Neither the broker nor Java is needed: Forebay reads the files as they are. ``mode="r"`` does not
change a byte of the directory, so this is safe on the only copy.
"""

import json
import tarfile
import tempfile
from pathlib import Path

import forebay

ARCHIVE = Path(__file__).parent / "data" / "rocketmq-broker.tar.gz"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(ARCHIVE) as tar:
            tar.extractall(folder, filter="data")
        with forebay.open(Path(folder, "broker"), mode="r") as store:
            found = store.recovery
            print(f"closed cleanly: {found.clean}, records checked: {found.records_checked}")
            print(f"damaged places: {len(store.damage)}")

            for name, topic in sorted(store.topics.items()):
                messages = sum(queue.max_offset - queue.min_offset for queue in topic.queues)
                if messages:
                    print(f"  {messages:4} messages in {name}")

            # The message that a consumer refused until its retries were used up.
            (dead,) = store.tail("%DLQ%fx-group", start="earliest", follow=False)
            print(f"dead letter: {dead.body!r}, refused {dead.reconsume_times} times")

            # The message of one order, found by the key that its producer gave it.
            (order,) = store.query("fx-orders", key="order-13")
            print(f"order-13: {order.body!r}, tag {order.tags}, sent from {order.born_host}")

            # Write everything to a file that can be read without Forebay and RocketMQ.
            rows = Path(folder, "orders.jsonl")
            with rows.open("w") as out:
                for message in store.tail("fx-orders", start="earliest", follow=False):
                    row = {"key": message.key, "body": message.body.decode()}
                    out.write(json.dumps(row) + "\n")
            saved = len(rows.read_text().splitlines())
            print(f"saved {saved} orders")
            assert saved == 202


if __name__ == "__main__":
    main()
