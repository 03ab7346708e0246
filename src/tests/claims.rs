//! Producers that own queues.

use super::consumer::Bed;
use crate::engine::{Atomicity, Durability};
use crate::{Draft, Error, Producer};
use std::fs;

fn own(bed: &Bed, name: &str) -> Producer {
    bed.store.owning_producer("orders", name).unwrap()
}

fn queue(producer: &Producer) -> u32 {
    producer.owned().unwrap().1
}

/// Sends a message; returns its queue.
fn send(producer: &Producer, queue: Option<u32>) -> crate::Result<u32> {
    let draft = Draft {
        keys: &["a-key-that-would-choose-another"],
        queue,
        ..Draft::default()
    };
    let sent = producer.send(&draft, 0, Durability::Default)?;
    Ok(sent.place.queue)
}

#[test]
fn each_name_has_a_queue_of_its_own_and_the_newest_producer_of_a_name_has_it() {
    super::consumer::on_each(|bed| {
        bed.store.create_topic("orders", 3).unwrap();
        let (one, two) = (own(&bed, "one"), own(&bed, "two"));
        assert_eq!((queue(&one), queue(&two)), (0, 1));
        assert_eq!(send(&one, None).unwrap(), 0);
        assert_eq!(send(&two, Some(1)).unwrap(), 1);
        let error = send(&two, Some(0)).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
        let again = own(&bed, "one");
        assert_eq!(send(&again, None).unwrap(), 0);
        let lost = send(&one, None).unwrap_err();
        assert!(matches!(lost, Error::Replaced { queue: 0, .. }), "{lost}");
        let lost = one.send_batch(
            [Ok(Draft::default())].into_iter(),
            Atomicity::Rows,
            Durability::Default,
        );
        assert!(matches!(lost, Err(Error::Row { .. })), "{lost:?}");
        // A producer that is lost frees nothing when it goes.
        drop(one);
        assert_eq!(queue(&own(&bed, "three")), 2);
        assert_eq!(send(&again, None).unwrap(), 0);
    });
}

#[test]
fn a_queue_that_is_given_up_goes_to_another_name_once_no_queue_is_new() {
    super::consumer::on_each(|bed| {
        bed.store.create_topic("orders", 2).unwrap();
        let one = own(&bed, "one");
        bed.clock.advance(1);
        let two = own(&bed, "two");
        let full = bed.store.owning_producer("orders", "three").err().unwrap();
        assert!(full.to_string().contains("one, two"), "{full}");
        one.give_up();
        assert!(matches!(send(&one, None), Err(Error::Replaced { .. })));
        drop(two);
        let three = own(&bed, "three");
        assert_eq!(
            queue(&three),
            0,
            "the owner that began first is the first to be replaced"
        );
        assert_eq!(queue(&own(&bed, "two")), 1);
        bed.store.create_topic("orders", 3).unwrap();
        assert_eq!(
            queue(&own(&bed, "one")),
            2,
            "a new queue comes before one that was owned"
        );
    });
}

#[test]
fn a_name_has_its_queue_after_a_restart_too() {
    let mut bed = Bed::new("store");
    bed.store.create_topic("orders", 4).unwrap();
    drop((own(&bed, "one"), own(&bed, "two")));
    bed.reopen();
    assert_eq!(queue(&own(&bed, "two")), 1);
    assert_eq!(queue(&own(&bed, "three")), 2);
    let table = bed.path.join("forebay.producers");
    fs::write(&table, "{\"orders\":7}").unwrap();
    bed.reopen();
    let error = bed.store.owning_producer("orders", "two").err().unwrap();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(fs::read(&table).unwrap(), b"{\"orders\":7}");
    for name in ["", "a\nb", &"x".repeat(256)] {
        let error = bed.store.owning_producer("orders", name).err().unwrap();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    }
}
