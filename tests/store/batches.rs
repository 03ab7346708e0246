//! Batches whose rows are independent, and atomic batches.

use crate::bed::{Bed, body, to_queue};
use forebay::Appended;
use forebay::{Atomicity, Draft, Durability, Error, Result};

fn send_batch(bed: &Bed, drafts: &[Draft<'_>], atomicity: Atomicity) -> Result<Appended> {
    let producer = bed.store.producer("orders", None)?;
    let drafts = drafts.iter().map(|draft| Ok(*draft));
    producer.send_batch(drafts, atomicity, Durability::Default)
}

fn both(mut test: impl FnMut(Atomicity)) {
    test(Atomicity::Rows);
    test(Atomicity::Whole);
}

suite! {
    fn a_batch_gives_each_row_its_place_in_order(bed) {
        both(|atomicity| {
            let mut bed = bed.another(|_| ());
            bed.fill("orders", 1, 2);
            let drafts: Vec<Draft<'_>> = [1, 2, 1, 1, 2].map(|queue| to_queue(queue, b"x")).into();
            let sent = send_batch(&bed, &drafts, atomicity).unwrap();
            let places = sent.rows.iter().map(|place| (place.queue, place.offset));
            assert_eq!(places.collect::<Vec<_>>(), [(1, 2), (2, 0), (1, 3), (1, 4), (2, 1)]);
            assert!(sent.rows.is_sorted_by(|a, b| a.position < b.position));
            assert!(sent.end > sent.rows[4].position);
            bed.reopen();
            for place in sent.rows {
                let message = bed.store.get("orders", place.queue, place.offset as i64).unwrap();
                assert_eq!(message.record().position() as u64, place.position);
                assert_eq!(message.record().store_timestamp(), sent.store_timestamp);
            }
            assert_eq!(bed.send("orders", &to_queue(1, b"x")).place.offset, 5);
        });
    }

    fn rows_with_a_key_go_to_its_queue_and_the_others_all_to_one_queue(bed) {
        let keyed = Draft { keys: &["k1"], ..body(b"x") };
        let plain = body(b"y");
        let sent = send_batch(bed, &[keyed, plain, plain, keyed, plain], Atomicity::Rows).unwrap();
        let queues: Vec<u32> = sent.rows.iter().map(|place| place.queue).collect();
        assert_eq!((queues[0], queues[3]), (3366 % 4, 3366 % 4));
        assert_eq!((queues[1], queues[2]), (queues[4], queues[4]));
        let next = send_batch(bed, &[plain], Atomicity::Rows).unwrap();
        assert_ne!(next.rows[0].queue, queues[1]);
    }

    fn an_empty_batch_appends_nothing(bed) {
        both(|atomicity| {
            let sent = send_batch(bed, &[], atomicity).unwrap();
            assert!(sent.rows.is_empty());
        });
        assert_eq!(bed.store.stats().unwrap().messages_sent, 0);
    }

    fn a_batch_far_larger_than_a_file_and_a_chunk_is_complete(bed) {
        let large = [5; 10 << 10];
        let count = (6 << 20) / large.len();
        both(|atomicity| {
            let mut bed = bed.another(|_| ());
            let drafts: Vec<Draft<'_>> = (0..count).map(|_| to_queue(0, &large)).collect();
            let sent = send_batch(&bed, &drafts, atomicity).unwrap();
            assert_eq!(sent.rows.len(), count);
            assert_eq!(bed.send("orders", &to_queue(0, b"behind")).place.offset, count as u64);
            bed.reopen();
            let bodies = bed.bodies("orders", 0);
            assert_eq!(bodies.len(), count + 1);
            assert!(bodies[..count].iter().all(|body| *body == large));
            assert_eq!(bodies[count], b"behind");
        });
    }

    fn a_rejected_row_is_numbered_and_nothing_of_its_chunk_is_stored(bed) {
        both(|atomicity| {
            let drafts = [body(b"x"), body(b"x"), Draft { keys: &["a b"], ..body(b"x") }];
            let error = send_batch(bed, &drafts, atomicity).unwrap_err();
            let Error::Row { row: 2, source } = error else { panic!("{error}") };
            assert!(matches!(*source, Error::InvalidOption { .. }));
            let error = send_batch(bed, &[to_queue(9, b"x")], atomicity).unwrap_err();
            let Error::Row { row: 0, source } = error else { panic!("{error}") };
            assert!(matches!(*source, Error::UnknownQueue { .. }));
        });
        assert_eq!(bed.store.stats().unwrap().messages_sent, 0);
        assert_eq!(bed.send("orders", &to_queue(0, b"x")).place.offset, 0);
    }

    fn a_row_that_cannot_be_drafted_is_numbered_too(bed) {
        let producer = bed.store.producer("orders", Some(0)).unwrap();
        let failed = Err(Error::Closed { path: None });
        let drafts = [Ok(body(b"x")), failed, Ok(body(b"y"))].into_iter();
        let sent = producer.send_batch(drafts, Atomicity::Rows, Durability::Default);
        assert!(matches!(sent, Err(Error::Row { row: 1, .. })));
        assert_eq!(bed.bodies("orders", 0), [[0u8; 0]; 0]);
    }

    fn the_chunks_before_a_rejected_row_are_stored_unless_the_batch_is_atomic(bed) {
        let large = [5; 10 << 10];
        let mut drafts = vec![to_queue(0, &large); (5 << 20) / large.len()];
        drafts.push(Draft { tags: Some(""), ..to_queue(0, b"x") });
        let refused = drafts.len() - 1;

        let error = send_batch(bed, &drafts, Atomicity::Whole).unwrap_err();
        assert!(matches!(error, Error::Row { row, .. } if row == refused), "{error}");
        assert_eq!(bed.bodies("orders", 0).len(), 0);

        let error = send_batch(bed, &drafts, Atomicity::Rows).unwrap_err();
        assert!(matches!(error, Error::Row { row, .. } if row == refused), "{error}");
        let chunk = (4 << 20) / large.len();
        let there = bed.bodies("orders", 0).len();
        assert!((chunk - 10..=chunk).contains(&there), "{there}");
    }

    fn an_atomic_batch_above_its_limit_is_rejected_and_stores_nothing(bed) {
        let large = [5; 16 << 10];
        let drafts = vec![to_queue(0, &large); (64 << 20) / large.len() + 1];
        let error = send_batch(bed, &drafts, Atomicity::Whole).unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit, .. } if limit == 64 << 20), "{error}");
        assert_eq!(bed.bodies("orders", 0).len(), 0);
        assert_eq!(bed.store.stats().unwrap().messages_sent, 0);
    }

    fn a_batch_that_asks_for_durability_is_durable(bed) {
        let producer = bed.store.producer("orders", None).unwrap();
        both(|atomicity| {
            let drafts = (0..100).map(|_| Ok(body(&[3; 2000])));
            let sent = producer.send_batch(drafts, atomicity, Durability::Flushed).unwrap();
            assert!(sent.durable);
            assert!(bed.store.engine().unwrap().durable_position() >= sent.end);
        });
    }

    fn keys_of_a_batch_are_indexed_row_by_row(bed) {
        both(|atomicity| {
            let bed = bed.another(|_| ());
            let keys: Vec<String> = (0..300).map(|number| format!("key-{number}")).collect();
            let keys: Vec<[&str; 2]> = keys.iter().map(|key| [&**key, "all"]).collect();
            let drafts: Vec<Draft<'_>> = keys
                .iter()
                .map(|keys| Draft { keys, ..to_queue(0, keys[0].as_bytes()) })
                .collect();
            send_batch(&bed, &drafts, atomicity).unwrap();
            for [key, _] in &keys {
                let found = bed.store.query("orders", key, i64::MIN, i64::MAX, 10).unwrap();
                assert_eq!(found.len(), 1);
                assert_eq!(&*found[0].body().unwrap(), key.as_bytes());
            }
            let all = bed.store.query("orders", "all", i64::MIN, i64::MAX, 1000).unwrap();
            assert_eq!(all.len(), 300);
        });
    }
}
