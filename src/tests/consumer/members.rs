//! Messages and queues that a consumer gets while its group changes.

use super::{Bed, bodies, on_each, open_as, poll, receipts};
use crate::{Consumer, ConsumerOptions, Error, Filter, Mode, Options, Order, Store};

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

fn join(store: &Store, tags: &[&str], order: Order) -> crate::Result<Consumer> {
    let options = ConsumerOptions {
        order,
        filter: Filter {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..Filter::default()
        },
        ..ConsumerOptions::default()
    };
    store.consumer(&["orders"], "billing", options)
}

/// A message that the owner of its queue did not want counted as settled, and never came to the
/// consumer that wanted it.
fn check_wanted(one: &Store, other: &Store) {
    let first = join(one, &["paid", "open"], Order::None).unwrap();
    let second = join(other, &["open", "paid", "open"], Order::None).unwrap();
    let refused = |store: &Store, tags: &[&str], order: Order| match join(store, tags, order) {
        Err(Error::InvalidOption { name, value, .. }) => (name, value),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the consumers want different messages"),
    };
    let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    for store in [one, other] {
        let paid = refused(store, &["paid"], Order::None);
        assert_eq!(paid, named("tags", "\"paid\""));
        let all = refused(store, &[], Order::None);
        assert_eq!(all, named("tags", "None"));
        let ordered = refused(store, &["paid", "open"], Order::Queue);
        assert_eq!(ordered, named("order", "\"queue\""));
    }
    // They share no queue of another topic, and one may follow another.
    let options = ConsumerOptions::default();
    let third = other.consumer(&["bills"], "billing", options).unwrap();
    first.close().unwrap();
    assert_eq!(refused(one, &[], Order::None).0, "tags");
    second.close().unwrap();
    join(one, &["paid"], Order::Queue).unwrap();
    third.close().unwrap();
}

#[test]
fn consumers_that_read_a_topic_at_the_same_time_want_the_same_messages() {
    on_each(|bed| check_wanted(&bed.store, &bed.store));
    let bed = Bed::new("store");
    let path = bed.path.with_file_name("shared");
    let share = || {
        let options = Options {
            mode: Mode::Share,
            ..Options::default()
        };
        open_as(&path, &bed.clock, options)
    };
    let (one, other) = (share(), share());
    check_wanted(&one, &one);
    check_wanted(&one, &other);
    other.close().unwrap();
    one.close().unwrap();
}
