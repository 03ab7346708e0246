//! Reads: every status that an undamaged store reaches, bounds, filters and single messages.

use crate::bed::{bodies_of, to_queue, with_key, with_tags};
use forebay::{Draft, Error, Filter, ReadBatch, ReadStatus};

/// Status, next, first and end offset.
fn facts(batch: &ReadBatch) -> (ReadStatus, u64, u64, u64) {
    let ReadBatch {
        next_offset,
        min_offset,
        max_offset,
        ..
    } = *batch;
    (batch.status, next_offset, min_offset, max_offset)
}

suite! {
    fn a_read_returns_its_status_and_the_next_offset(bed) {
        bed.fill("orders", 1, 5);
        bed.reopen();
        let read = |topic, queue, offset| {
            let batch = bed.read(topic, queue, offset);
            assert_eq!(batch.status == ReadStatus::Found, !batch.messages.is_empty());
            facts(&batch)
        };
        assert_eq!(read("orders", 1, 0), (ReadStatus::Found, 5, 0, 5));
        assert_eq!(read("orders", 1, 4), (ReadStatus::Found, 5, 0, 5));
        assert_eq!(read("orders", 1, -1), (ReadStatus::OffsetTooSmall, 0, 0, 5));
        assert_eq!(read("orders", 1, i64::MIN), (ReadStatus::OffsetTooSmall, 0, 0, 5));
        assert_eq!(read("orders", 1, 5), (ReadStatus::OffsetOverflowOne, 5, 0, 5));
        assert_eq!(read("orders", 1, 6), (ReadStatus::OffsetOverflowBadly, 5, 0, 5));
        assert_eq!(read("orders", 1, i64::MAX), (ReadStatus::OffsetOverflowBadly, 5, 0, 5));
        assert_eq!(read("orders", 2, 0), (ReadStatus::NoMessageInQueue, 0, 0, 0));
        assert_eq!(read("orders", 2, 7), (ReadStatus::NoMessageInQueue, 0, 0, 0));
        assert_eq!(read("orders", 4, 0), (ReadStatus::NoMatchedLogicQueue, 0, 0, 0));
        assert_eq!(read("orders", u32::MAX, 0), (ReadStatus::NoMatchedLogicQueue, 0, 0, 0));
        assert_eq!(read("bills", 0, 0), (ReadStatus::NoMatchedLogicQueue, 0, 0, 0));
    }

    fn messages_come_in_offset_order_across_files(bed) {
        bed.fill("orders", 0, 300);
        bed.fill("bills", 0, 10);
        bed.reopen();
        let expected: Vec<Vec<u8>> = (0..300).map(|n| n.to_string().into_bytes()).collect();
        assert_eq!(bed.bodies("orders", 0), expected);
        let all = Filter::default();
        let batch = bed.store.read("orders", 0, 0, 1000, None, &all).unwrap();
        assert_eq!(bodies_of(&batch), expected);
        assert_eq!(facts(&batch), (ReadStatus::Found, 300, 0, 300));
    }

    fn a_sent_message_can_be_read_at_once(bed) {
        for number in 0..300 {
            let sent = bed.send("orders", &to_queue(0, &[number as u8]));
            let batch = bed.read("orders", 0, sent.place.offset as i64);
            assert_eq!(bodies_of(&batch), [[number as u8]]);
        }
    }

    fn max_messages_bounds_a_read(bed) {
        bed.fill("orders", 0, 10);
        let all = Filter::default();
        let batch = bed.store.read("orders", 0, 2, 3, None, &all).unwrap();
        assert_eq!(bodies_of(&batch), [b"2", b"3", b"4"]);
        assert_eq!(batch.next_offset, 5);
        let none = bed.store.read("orders", 0, 2, 0, None, &all);
        assert!(matches!(none, Err(Error::InvalidOption { .. })));
    }

    fn max_bytes_bounds_a_read_but_never_below_one_message(bed) {
        for _ in 0..5 {
            bed.send("orders", &to_queue(0, &[7; 1000]));
        }
        let len = bed.store.get("orders", 0, 0).unwrap().record().bytes().len() as u64;
        let read = |bytes| {
            let all = Filter::default();
            let batch = bed.store.read("orders", 0, 0, 32, Some(bytes), &all).unwrap();
            assert_eq!(batch.status, ReadStatus::Found);
            (batch.messages.len(), batch.next_offset)
        };
        assert_eq!(read(0), (1, 1));
        assert_eq!(read(1), (1, 1));
        assert_eq!(read(2 * len - 1), (1, 1));
        assert_eq!(read(2 * len), (2, 2));
        assert_eq!(read(u64::MAX), (5, 5));
    }

    fn a_filter_passes_only_messages_with_one_of_its_tags(bed) {
        for (number, tags) in ["a", "b", "c", "b"].into_iter().enumerate() {
            let body = [number as u8];
            bed.send("orders", &Draft { tags: Some(tags), ..to_queue(0, &body) });
        }
        bed.send("orders", &to_queue(0, &[4]));
        bed.reopen();
        let read = |filter: &Filter| {
            let batch = bed.store.read("orders", 0, 0, 32, None, filter).unwrap();
            (batch.status, bodies_of(&batch).concat(), batch.next_offset)
        };
        assert_eq!(read(&with_tags(&["b"])), (ReadStatus::Found, vec![1, 3], 5));
        assert_eq!(read(&with_tags(&["c", "a"])), (ReadStatus::Found, vec![0, 2], 5));
        assert_eq!(read(&with_tags(&[])), (ReadStatus::Found, vec![0, 1, 2, 3, 4], 5));
        assert_eq!(read(&with_tags(&["d"])), (ReadStatus::NoMatchedMessage, vec![], 5));
    }

    fn tags_with_equal_hashes_are_told_apart(bed) {
        // "Aa" and "BB" have the same hash in Java, and a queue entry holds only the hash.
        bed.send("orders", &Draft { tags: Some("Aa"), ..to_queue(0, b"1") });
        bed.send("orders", &Draft { tags: Some("BB"), ..to_queue(0, b"2") });
        let read = |filter: &Filter| {
            let batch = bed.store.read("orders", 0, 0, 32, None, filter).unwrap();
            bodies_of(&batch).concat()
        };
        assert_eq!(read(&with_tags(&["Aa"])), b"1");
        assert_eq!(read(&with_tags(&["BB"])), b"2");
    }

    fn a_filter_by_key_compares_each_whole_key(bed) {
        for (keys, body) in [(&["k1", "k2"][..], b"1"), (&["k2"], b"2"), (&["k22"], b"3")] {
            bed.send("orders", &Draft { keys, ..to_queue(0, body) });
        }
        let read = |filter: &Filter| {
            let batch = bed.store.read("orders", 0, 0, 32, None, filter).unwrap();
            bodies_of(&batch).concat()
        };
        assert_eq!(read(&with_key("k2")), b"12");
        assert_eq!(read(&with_key("k1")), b"1");
        assert_eq!(read(&with_key("k")), b"");
        let both = Filter { tags: vec!["t".to_owned()], ..with_key("k2") };
        assert_eq!(read(&both), b"");
    }

    fn a_filtered_read_checks_800_messages_and_returns_the_next_offset(bed) {
        let producer = bed.store.producer("orders", Some(0)).unwrap();
        let drafts = (0..1000).map(|number| {
            let tags = if number == 900 { "rare" } else { "common" };
            Ok(Draft { tags: Some(tags), ..Draft::default() })
        });
        let atomicity = forebay::Atomicity::Rows;
        producer.send_batch(drafts, atomicity, forebay::Durability::Default).unwrap();
        let rare = with_tags(&["rare"]);
        let batch = bed.store.read("orders", 0, 0, 32, None, &rare).unwrap();
        assert_eq!(facts(&batch), (ReadStatus::NoMatchedMessage, 800, 0, 1000));
        let batch = bed.store.read("orders", 0, 800, 32, None, &rare).unwrap();
        assert_eq!(facts(&batch), (ReadStatus::Found, 1000, 0, 1000));
        assert_eq!(batch.messages[0].record().queue_offset(), 900);
        let batch = bed.store.read("orders", 0, 0, 950, None, &rare).unwrap();
        assert_eq!(facts(&batch), (ReadStatus::Found, 950, 0, 1000));
    }

    fn get_returns_the_message_or_says_what_does_not_exist(bed) {
        bed.fill("orders", 0, 3);
        bed.reopen();
        let message = bed.store.get("orders", 0, 2).unwrap();
        assert_eq!(&*message.body().unwrap(), b"2");
        for offset in [-1, 3, i64::MIN, i64::MAX] {
            let error = bed.store.get("orders", 0, offset).unwrap_err();
            let Error::OffsetOutOfRange { topic, queue, offset: asked, min, max } = error else {
                panic!("{offset}: {error}")
            };
            assert_eq!((&*topic, queue, asked, min, max), ("orders", 0, offset, 0, 3));
        }
        let error = bed.store.get("orders", 3, 0).unwrap_err();
        assert!(matches!(error, Error::OffsetOutOfRange { min: 0, max: 0, .. }), "{error}");
        let error = bed.store.get("orders", 4, 0).unwrap_err();
        assert!(matches!(error, Error::UnknownQueue { queue: 4, queues: 4, .. }), "{error}");
        let error = bed.store.get("bills", 0, 0).unwrap_err();
        assert!(matches!(error, Error::UnknownTopic { .. }), "{error}");
    }
}
