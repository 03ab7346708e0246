"""Use a queue in tests without a broker: the memory engine behaves like a store on disk.

The code under test takes a store and does not see the difference. Nothing is written to disk, and
nothing has to be started or cleaned up.
"""

import forebay


def bill_orders(store: forebay.Store, queue: int, offset: int) -> int:
    """Bill the paid orders of a queue from an offset on; return the offset to continue from.

    This is the code under test: it runs on any store.
    """
    orders = store.read("orders", queue, offset, max_messages=100, tags="paid")
    for order in orders:
        bill = b"bill for " + order.body
        store.send("bills", bill, keys=order.keys, properties=order.properties)
    return orders.next_offset


def test_paid_orders_are_billed_once() -> None:
    with forebay.open(":memory:", default_queues=1) as store:
        store.send("orders", b"apples", key="1", tags="paid", properties={"region": "eu"})
        store.send("orders", b"pears", key="2", tags="open")

        offset = bill_orders(store, 0, 0)
        offset = bill_orders(store, 0, offset)

        bills = list(store.tail("bills", start="earliest", follow=False))
        assert [bill.body for bill in bills] == [b"bill for apples"]
        assert bills[0].properties == {"region": "eu"}
        assert offset == 2


def test_a_bill_is_found_by_the_key_of_its_order() -> None:
    with forebay.open(":memory:", default_queues=1) as store:
        store.send("orders", b"apples", key="1", tags="paid")
        bill_orders(store, 0, 0)
        (bill,) = store.query("bills", key="1")
        assert bill.body == b"bill for apples"


if __name__ == "__main__":
    # Under pytest this loop is not needed.
    for test in (test_paid_orders_are_billed_once, test_a_bill_is_found_by_the_key_of_its_order):
        test()
        print(f"passed {test.__name__}")
