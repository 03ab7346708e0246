//! Messages and queues that a consumer gets while its group changes.

use super::{bodies, on_each, poll, receipts};
use crate::{ConsumerOptions, Order};

/// A consumer joins again. Another thread asks for its queues after the group has its new number,
/// but before the consumer has it.
#[test]
fn a_consumer_that_joins_again_gets_its_queues_whatever_its_other_threads_ask_meanwhile() {
    on_each(|bed| {
        bed.send(0..4);
        let consumer = bed.consumer(ConsumerOptions::default());
        let own = consumer.swap_number(u64::MAX);
        assert_eq!(consumer.assignment().unwrap(), []);
        consumer.swap_number(own);
        assert_eq!(consumer.assignment().unwrap().len(), 4);
        assert_eq!(poll(&consumer).len(), 4);
    });
}

#[test]
fn a_refused_message_keeps_its_pause_when_its_queue_is_handed_over() {
    on_each(|bed| {
        bed.send(0..4);
        let options = || ConsumerOptions {
            order: Order::Queue,
            ..ConsumerOptions::default()
        };
        let one = bed.consumer(options());
        let got = poll(&one);
        for delivery in &got {
            one.nack(delivery, None).unwrap();
        }
        let other = bed.consumer(options());
        bed.pass(500);
        assert_eq!(bodies(&[poll(&one), poll(&other)].concat()), [0; 0]);
        bed.pass(500);
        let (mine, its) = (poll(&one), poll(&other));
        assert_eq!(bodies(&[&mine[..], &its].concat()), [0, 1, 2, 3]);
        assert_eq!(its.len(), 2, "two queues were handed over");
        one.ack(receipts(&mine)).unwrap();
        other.ack(receipts(&its)).unwrap();
    });
}
