//! The messages that a send stores, and the result that it returns.

use crate::bed::{body, to_queue};
use forebay::PropertyKind;
use forebay::{Draft, Durability, Error};

suite! {
    fn everything_that_was_sent_can_be_read(bed) {
        let draft = Draft {
            body: b"\0body\xff",
            keys: &["42", "a"],
            tags: Some("paid"),
            properties: &[("region", "eu"), ("colour", "deep blue")],
            queue: Some(2),
            born_timestamp: Some(-5),
            flag: i32::MIN,
            reconsume_times: 3,
            ..Draft::default()
        };
        let sent = bed.send("orders", &draft);
        bed.reopen();
        let message = bed.store.get("orders", 2, 0).unwrap();
        assert_eq!(&*message.body().unwrap(), b"\0body\xff");
        assert_eq!(message.topic(), "orders");
        assert_eq!(message.keys(), ["42", "a"]);
        assert_eq!(message.tags().as_deref(), Some("paid"));
        let user: Vec<_> = message.properties(PropertyKind::User).into_iter().collect();
        let expected = [("colour", "deep blue"), ("region", "eu")];
        assert_eq!(user, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert!(message.properties(PropertyKind::System).is_empty());
        let record = message.record();
        assert_eq!((record.queue_id(), record.queue_offset()), (2, 0));
        assert_eq!((record.born_timestamp(), record.flag()), (-5, i32::MIN));
        assert_eq!(record.reconsume_times(), 3);
        assert_eq!(record.store_timestamp(), sent.store_timestamp);
        assert_eq!(record.position() as u64, sent.place.position);
        assert_eq!(record.store_host(), "10.1.2.3:10911".parse().unwrap());
    }

    fn offsets_of_a_queue_count_from_zero_without_a_gap(bed) {
        for offset in 0..200 {
            for queue in [0, 3] {
                let sent = bed.send("orders", &to_queue(queue, b"x"));
                assert_eq!((sent.place.queue, sent.place.offset), (queue, offset));
            }
        }
        bed.reopen();
        let sent = bed.send("orders", &to_queue(3, b"x"));
        assert_eq!(sent.place.offset, 200);
    }

    fn positions_and_store_times_never_decrease(bed) {
        let mut last = bed.send("orders", &body(b"x"));
        for _ in 0..500 {
            let sent = bed.send("orders", &body(b"x"));
            assert!(sent.place.position > last.place.position);
            assert!(sent.store_timestamp >= last.store_timestamp);
            last = sent;
        }
        bed.reopen();
        let sent = bed.send("orders", &body(b"x"));
        assert!(sent.place.position > last.place.position);
        assert!(sent.store_timestamp >= last.store_timestamp);
    }

    fn a_message_is_found_by_its_position_and_by_its_id(bed) {
        for number in 0..50 {
            bed.send("bills", &body(b"other"));
            let text = format!("body {number}");
            let sent = bed.send("orders", &body(text.as_bytes()));
            let message = bed.store.message_at(sent.place.position).unwrap();
            assert_eq!(&*message.body().unwrap(), text.as_bytes());
            let id = message.id();
            assert_eq!(id.len(), 32);
            let again = bed.store.message_by_id(&id).unwrap();
            assert_eq!(again.record().bytes(), message.record().bytes());
            let lower = bed.store.message_by_id(&id.to_lowercase()).unwrap();
            assert_eq!(lower.record().bytes(), message.record().bytes());
        }
    }

    fn a_position_or_id_without_a_message_is_an_error(bed) {
        let sent = bed.send("orders", &body(b"x"));
        let end = bed.store.engine().unwrap().readable_position();
        assert!(end > sent.place.position);
        for position in [end, end + 1_000_000, u64::MAX] {
            assert!(bed.store.message_at(position).is_err(), "{position}");
        }
        for id in ["", "00", "7F00000100002A9F00000000000000", &"g".repeat(32)] {
            let error = bed.store.message_by_id(id).unwrap_err();
            assert!(matches!(error, Error::InvalidOption { .. }), "{id:?}: {error}");
        }
    }

    fn a_key_chooses_the_queue_and_keyless_messages_take_turns(bed) {
        let producer = bed.store.producer("orders", None).unwrap();
        let queue = |draft: &Draft<'_>| {
            let sent = producer.send(draft, 0, Durability::Default).unwrap();
            sent.place.queue
        };
        let mut turns: Vec<u32> = (0..8).map(|_| queue(&body(b"x"))).collect();
        assert_eq!(turns[..4], turns[4..]);
        turns.sort_unstable();
        assert_eq!(turns, [0, 0, 1, 1, 2, 2, 3, 3]);
        for _ in 0..3 {
            // Java's hash of "k1" is 3366.
            let keyed = Draft { keys: &["k1", "z"], ..body(b"x") };
            assert_eq!(queue(&keyed), 3366 % 4);
            let asked = Draft { queue: Some(1), ..keyed };
            assert_eq!(queue(&asked), 1);
        }
    }

    fn a_producer_bound_to_a_queue_sends_there_unless_the_message_says_otherwise(bed) {
        let producer = bed.store.producer("orders", Some(3)).unwrap();
        let queue = |draft: &Draft<'_>| {
            let sent = producer.send(draft, 0, Durability::Default).unwrap();
            sent.place.queue
        };
        assert_eq!(producer.topic(), "orders");
        assert_eq!(queue(&body(b"x")), 3);
        assert_eq!(queue(&Draft { keys: &["k1"], ..body(b"x") }), 3);
        assert_eq!(queue(&to_queue(0, b"x")), 0);
    }

    fn empty_bodies_and_bodies_up_to_the_limit_are_stored(bed) {
        let limit = bed.store.options().max_message_size();
        let large: Vec<u8> = (0..limit).map(|i| (i * 7) as u8).collect();
        for len in [0, 1, 12, 13, limit - 1, limit] {
            bed.send("orders", &to_queue(0, &large[..len]));
        }
        bed.reopen();
        let lens: Vec<usize> = bed.bodies("orders", 0).iter().map(Vec::len).collect();
        assert_eq!(lens, [0, 1, 12, 13, limit - 1, limit]);
        assert_eq!(bed.bodies("orders", 0)[5], large);
    }

    fn a_delayed_message_waits_in_the_queue_of_its_level(bed) {
        let producer = bed.store.producer("orders", None).unwrap();
        for level in 1..=18 {
            let draft = Draft { keys: &["k1"], tags: Some("t"), ..body(b"later") };
            let sent = producer.send(&draft, level, Durability::Default).unwrap();
            assert_eq!(sent.place.queue, u32::from(level) - 1);
        }
        bed.reopen();
        let waiting = bed.store.topic("SCHEDULE_TOPIC_XXXX").unwrap();
        let queues = bed.store.engine().unwrap().queues(&waiting);
        assert_eq!(queues, (0..18).collect::<Vec<u32>>());
        for level in 1..=18 {
            let message = bed.store.get("SCHEDULE_TOPIC_XXXX", level - 1, 0).unwrap();
            let system = message.properties(PropertyKind::System);
            assert_eq!(system["DELAY"], level.to_string());
            assert_eq!(system["REAL_TOPIC"], "orders");
            assert_eq!(system["REAL_QID"], (3366 % 4).to_string());
            assert_eq!(&*message.body().unwrap(), b"later");
            assert_eq!(message.tags().as_deref(), Some("t"));
        }
        assert_eq!(bed.bodies("orders", 2), [[0u8; 0]; 0]);
    }

    fn a_send_with_durability_returns_a_durable_place(bed) {
        let producer = bed.store.producer("orders", None).unwrap();
        let engine = bed.store.engine().unwrap();
        for _ in 0..3 {
            let sent = producer.send(&body(b"x"), 0, Durability::Flushed).unwrap();
            assert!(sent.durable);
            assert!(engine.durable_position() > sent.place.position);
        }
    }

    fn flush_makes_everything_durable_that_was_sent_before(bed) {
        for _ in 0..100 {
            bed.send("orders", &body(&[1; 2000]));
        }
        let engine = bed.store.engine().unwrap();
        let end = engine.readable_position();
        assert_eq!(bed.store.flush().unwrap(), end);
        assert_eq!(engine.durable_position(), end);
        assert_eq!(bed.store.flush().unwrap(), end);
    }

    fn a_store_with_synchronous_flush_returns_when_the_message_is_durable(bed) {
        let bed = bed.another(|options| options.flush = Some(forebay::Flush::Sync));
        let producer = bed.store.producer("orders", None).unwrap();
        let sent = producer.send(&body(b"x"), 0, Durability::Default).unwrap();
        assert!(sent.durable);
        assert!(bed.store.engine().unwrap().durable_position() > sent.place.position);
        producer.send(&body(b"y"), 0, Durability::Written).unwrap();
        let end = bed.store.flush().unwrap();
        assert_eq!(end, bed.store.engine().unwrap().readable_position());
    }

    fn a_store_on_an_ipv6_address_writes_it_into_ids_of_56_digits(bed) {
        let host = "[2001:db8::7]:10911".parse().unwrap();
        let mut bed = bed.another(|options| options.store_host = Some(host));
        let sent = bed.send("orders", &to_queue(0, b"x"));
        bed.reopen();
        let message = bed.store.get("orders", 0, 0).unwrap();
        assert_eq!(message.record().store_host(), host);
        assert_eq!(message.id().len(), 56);
        assert_eq!(message.record().position() as u64, sent.place.position);
        let found = bed.store.message_by_id(&message.id()).unwrap();
        assert_eq!(&*found.body().unwrap(), b"x");
    }

    fn a_store_without_record_checksums_reads_back_too(bed) {
        let mut bed = bed.another(|options| options.checksum = Some(false));
        bed.fill("orders", 0, 100);
        bed.reopen();
        assert_eq!(bed.bodies("orders", 0).len(), 100);
        let message = bed.store.get("orders", 0, 0).unwrap();
        assert_eq!(message.record().rocketmq().stated_crc(), None);
    }

    fn counters_count_what_was_sent(bed) {
        assert_eq!(bed.store.stats().unwrap().messages_sent, 0);
        bed.fill("orders", 0, 10);
        bed.store.flush().unwrap();
        let stats = bed.store.stats().unwrap();
        assert_eq!((stats.messages_sent, stats.sends_failed, stats.damaged), (10, 0, 0));
        assert!(stats.bytes_sent >= 10 * 91);
        let end = bed.store.engine().unwrap().readable_position();
        assert_eq!((stats.published, stats.durable, stats.min_position), (end, end, 0));
    }
}
