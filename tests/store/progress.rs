//! The needs of a reader that saves its position: the durable end of each queue, the number of
//! messages that fit into a number of bytes, and whether the log is still the same.

use crate::bed::{Kind, to_queue};
use crate::world::{Place, World, options, read, write};
use forebay::{Epoch, Epochs, Mode, Store};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

fn below(store: &Store, topic: &str, queue: u32, position: u64) -> Option<Range<u64>> {
    let found = store.topic(topic).unwrap();
    let engine = store.engine().unwrap();
    engine.bounds_below(&found, queue, position).unwrap()
}

/// The durable bounds of a queue.
fn durable(store: &Store, topic: &str, queue: u32) -> Range<u64> {
    let position = store.engine().unwrap().durable_position();
    below(store, topic, queue, position).unwrap()
}

suite! {
    fn bounds_below_a_position_hold_the_messages_that_lie_there(bed) {
        let mut sent = Vec::new();
        for number in 0..300u32 {
            let place = bed.send("orders", &to_queue(number * number % 3, b"body")).place;
            sent.push((place.position, place.queue, place.offset));
        }
        bed.reopen();
        let end = bed.store.engine().unwrap().readable_position();
        for (position, ..) in sent.iter().step_by(7).chain([&(end, 0, 0), &(u64::MAX, 0, 0)]) {
            for queue in 0..3 {
                let own = sent.iter().filter(|(at, q, _)| *q == queue && at < position);
                let expected = own.map(|(_, _, offset)| offset + 1).max().unwrap_or(0);
                assert_eq!(below(&bed.store, "orders", queue, *position), Some(0..expected));
            }
        }
        assert_eq!(below(&bed.store, "orders", 3, end), Some(0..0));
        assert_eq!(below(&bed.store, "orders", 4, end), None);
        // A record that crosses the position does not count.
        if bed.kind == Kind::CommitLog {
            let (position, queue, offset) = sent[70];
            assert_eq!(below(&bed.store, "orders", queue, position + 1), Some(0..offset));
        }
    }

    fn the_number_of_fitting_messages_depends_on_their_records(bed) {
        for number in 0..200 {
            bed.send("orders", &to_queue(0, &vec![7; number % 13 * 20]));
        }
        bed.reopen();
        let topic = bed.store.topic("orders").unwrap();
        let fit = |range, bytes| bed.store.engine().unwrap().fit(&topic, 0, range, bytes).unwrap();
        let sizes: Vec<u64> = (0..200)
            .map(|offset| bed.store.get("orders", 0, offset).unwrap().record().bytes().len() as u64)
            .collect();
        for start in [0, 1, 60, 70, 199] {
            for bytes in [0, 1, 150, 2_000, 9_000, 20_000, u64::MAX] {
                let (mut offset, mut taken) = (start, 0);
                while offset < 190 && taken + sizes[offset as usize] <= bytes {
                    taken += sizes[offset as usize];
                    offset += 1;
                }
                assert_eq!(fit(start..190.max(start), bytes), (offset, taken), "{start} {bytes}");
            }
        }
        assert_eq!(fit(200..300, u64::MAX).1, 0);
    }
}

/// A writer that flushes only on demand.
fn lazy(root: &Path) -> Store {
    let options = forebay::Options {
        flush_interval: Duration::from_secs(3600),
        queue_flush_interval: Duration::from_secs(3600),
        ..options(Mode::Append)
    };
    Store::open(root, options).unwrap()
}

#[test]
fn a_reader_beside_a_writer_knows_what_is_durable() {
    let (place, mut world) = (Place::new(), World::default());
    let store = lazy(&place.root());
    for _ in 0..100 {
        world.send_to(&store, "orders", 0);
    }
    store.flush().unwrap();
    let reader = read(&place.root());
    for round in 1..20u64 {
        assert_eq!(durable(&reader, "orders", 0), 0..100 * round);
        for _ in 0..100 {
            world.send_to(&store, "orders", 0);
        }
        // Dispatched, so that the reader sees the messages.
        assert_eq!(
            store.offset_at("orders", 0, i64::MAX).unwrap(),
            100 * round + 100
        );
        assert_eq!(
            reader.offset_at("orders", 0, i64::MAX).unwrap(),
            100 * round + 100
        );
        assert_eq!(durable(&reader, "orders", 0), 0..100 * round);
        store.flush().unwrap();
    }
}

/// A killed writer leaves messages in the page cache: they can be read, but a power failure loses
/// them.
#[test]
fn what_a_dead_writer_did_not_flush_is_readable_and_not_durable() {
    let (place, mut world) = (Place::new(), World::default());
    let store = lazy(&place.root());
    world.send(&store, 70);
    store.flush().unwrap();
    let flushed = store.engine().unwrap().durable_position();
    world.send(&store, 70);
    let kept: Vec<_> = (0..3)
        .map(|queue| durable(&store, "orders", queue))
        .collect();
    let dead = Place::copy_of(&place.root());
    let reader = read(&dead.root());
    world.check(&reader);
    assert_eq!(reader.engine().unwrap().durable_position(), flushed);
    for (queue, kept) in kept.into_iter().enumerate() {
        assert_eq!(durable(&reader, "orders", queue as u32), kept);
    }
    reader.close().unwrap();
    // The next writer makes them durable before it serves them.
    write(&dead.root()).close().unwrap();
    let reader = read(&dead.root());
    world.check(&reader);
    assert!(reader.engine().unwrap().durable_position() > flushed);
}

#[test]
fn each_opening_for_writing_is_recorded_with_the_end_of_the_log() {
    let (place, mut world) = (Place::fast(), World::default());
    assert_eq!(Epochs::of(&place.root()).unwrap(), None);
    let mut expected: Vec<Epoch> = Vec::new();
    for number in 1..=150 {
        let store = write(&place.root());
        let found = Epochs::of(&place.root()).unwrap().unwrap();
        assert_eq!(found.number, number);
        let newest = *found.known.last().unwrap();
        assert_eq!(
            (newest.number, newest.start),
            (number, store.recovery().end)
        );
        expected.push(newest);
        expected.drain(..expected.len().saturating_sub(128));
        assert_eq!(found.known, expected);
        if number % 10 == 0 {
            world.send(&store, 3);
        }
        store.close().unwrap();
        // Readers begin no epoch.
        read(&place.root()).close().unwrap();
    }
    let mut times: Vec<u64> = expected.iter().map(|epoch| epoch.began_ns).collect();
    times.dedup();
    assert_eq!(times.len(), 128);
    // A recreated store is distinguished from the one that it replaces.
    std::fs::remove_dir_all(place.root()).unwrap();
    write(&place.root()).close().unwrap();
    let other = Epochs::of(&place.root()).unwrap().unwrap();
    assert_eq!(other.number, 1);
    assert!(times.iter().all(|time| *time != other.known[0].began_ns));
}
