//! Messages found by key, offsets found by time.

use crate::bed::{Bed, small_options, to_queue};
use forebay::{Draft, Durability, Error, Message, Options, Store};
use std::os::unix::fs::MetadataExt;

fn query(bed: &Bed, key: &str) -> Vec<Message> {
    bed.store
        .query("orders", key, i64::MIN, i64::MAX, 1000)
        .unwrap()
}

fn bodies(messages: &[Message]) -> Vec<u8> {
    let bodies = messages.iter().map(|m| m.body().unwrap().into_owned());
    bodies.collect::<Vec<_>>().concat()
}

suite! {
    fn a_key_finds_its_messages_in_all_queues_the_newest_first(bed) {
        for number in 0..6 {
            let key = if number % 2 == 0 { "even" } else { "odd" };
            let body = [b'0' + number];
            bed.send("orders", &Draft { keys: &[key, "all"], ..to_queue(number.into(), &body) });
            bed.send("bills", &Draft { keys: &["even"], ..to_queue(0, b"bill") });
            if number == 3 {
                bed.reopen();
                bed.store.create_topic("orders", 6).unwrap();
            }
        }
        bed.reopen();
        assert_eq!(bodies(&query(bed, "even")), b"420");
        assert_eq!(bodies(&query(bed, "odd")), b"531");
        assert_eq!(bodies(&query(bed, "all")), b"543210");
        assert_eq!(bodies(&query(bed, "even odd")), b"");
        assert_eq!(bodies(&query(bed, "eve")), b"");
        assert_eq!(bodies(&query(bed, "")), b"");
        let newest = bed.store.query("orders", "all", i64::MIN, i64::MAX, 2).unwrap();
        assert_eq!(bodies(&newest), b"54");
        let none = bed.store.query("orders", "all", i64::MIN, i64::MAX, 0).unwrap();
        assert_eq!(bodies(&none), b"");
        let error = bed.store.query("cheques", "all", 0, 1, 1).unwrap_err();
        assert!(matches!(error, Error::UnknownTopic { .. }), "{error}");
    }

    fn keys_with_equal_hashes_are_told_apart(bed) {
        bed.send("orders", &Draft { keys: &["Aa"], ..to_queue(0, b"1") });
        bed.send("orders", &Draft { keys: &["BB"], ..to_queue(0, b"2") });
        assert_eq!(bodies(&query(bed, "Aa")), b"1");
        assert_eq!(bodies(&query(bed, "BB")), b"2");
        assert_eq!(bodies(&query(bed, "AaBB")), b"");
    }

    fn a_message_that_names_a_key_twice_is_found_once(bed) {
        bed.send("orders", &Draft { keys: &["k", "k", "other", "k"], ..to_queue(0, b"1") });
        assert_eq!(bodies(&query(bed, "k")), b"1");
    }

    fn keys_are_found_again_among_many_and_across_index_files(bed) {
        for number in 0..500 {
            let (key, shared) = (format!("key-{number}"), format!("shared-{}", number % 7));
            bed.send("orders", &Draft { keys: &[&key, &shared], ..to_queue(0, key.as_bytes()) });
        }
        bed.reopen();
        for number in 0..500 {
            let key = format!("key-{number}");
            assert_eq!(bodies(&query(bed, &key)), key.as_bytes());
        }
        let offsets: Vec<i64> = query(bed, "shared-3")
            .iter()
            .map(|m| m.record().queue_offset())
            .collect();
        let expected: Vec<i64> = (0..500).rev().filter(|n| n % 7 == 3).collect();
        assert_eq!(offsets, expected);
    }

    fn a_key_outside_ascii_is_found(bed) {
        let key = "schl\u{fc}ssel-\u{1F600}";
        bed.send("orders", &Draft { keys: &[key], ..to_queue(0, b"1") });
        assert_eq!(query(bed, key)[0].keys(), [key]);
    }

    fn the_time_of_a_query_is_exact_at_both_ends(bed) {
        let draft = Draft { keys: &["k"], ..to_queue(0, b"x") };
        let times: Vec<i64> = (0..40)
            .map(|_| bed.send("orders", &draft).store_timestamp)
            .collect();
        let (first, last) = (times[0], times[39]);
        let count = |begin, end| {
            let found = bed.store.query("orders", "k", begin, end, 100).unwrap();
            found.len()
        };
        let between = |begin, end| {
            let inside = times.iter().filter(|time| (begin..=end).contains(*time));
            inside.count()
        };
        assert_eq!(count(first, last), 40);
        assert_eq!(count(i64::MIN, first - 1), 0);
        assert_eq!(count(last + 1, i64::MAX), 0);
        assert_eq!(count(last, first - 1), 0);
        for time in &times {
            assert_eq!(count(*time, *time), between(*time, *time));
            assert_eq!(count(first, *time), between(first, *time));
        }
    }

    fn a_unique_id_is_assigned_if_configured_and_found_like_a_key(bed) {
        let mut bed = bed.another(|options| options.unique_ids = Some(true));
        for number in 0..20 {
            bed.send("orders", &to_queue(0, &[number]));
        }
        bed.reopen();
        let mut seen = std::collections::HashSet::new();
        for number in 0..20u8 {
            let message = bed.store.get("orders", 0, number.into()).unwrap();
            let system = message.properties(forebay::PropertyKind::System);
            let id = &system["UNIQ_KEY"];
            assert_eq!(id.len(), 32);
            assert!(seen.insert(id.clone()));
            assert_eq!(bodies(&query(&bed, id)), [number]);
        }
    }

    fn the_offset_at_a_time_is_that_of_the_first_message_stored_then_or_later(bed) {
        let times: Vec<i64> = (0..300)
            .map(|_| bed.send("orders", &to_queue(1, &[1; 300])).store_timestamp)
            .collect();
        bed.reopen();
        let at = |time| bed.store.offset_at("orders", 1, time).unwrap();
        assert_eq!((at(i64::MIN), at(0), at(i64::MAX)), (0, 0, 300));
        let (first, last) = (times[0], times[299]);
        for time in first - 1..=last + 1 {
            let expected = times.iter().position(|stored| *stored >= time).unwrap_or(300);
            assert_eq!(at(time), expected as u64);
        }
        assert_eq!(bed.store.offset_at("orders", 0, first).unwrap(), 0);
        let error = bed.store.offset_at("orders", 9, first).unwrap_err();
        assert!(matches!(error, Error::UnknownQueue { queue: 9, .. }), "{error}");
    }
}

#[test]
fn a_few_keys_take_few_blocks_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = Options {
            index_slots: None,
            index_entries: None,
            ..small_options()
        };
        Store::open(dir.path(), options).unwrap()
    };
    let send = |store: &Store, key: &str| {
        let draft = Draft {
            keys: &[key],
            ..to_queue(0, b"x")
        };
        let producer = store.producer("orders", None).unwrap();
        producer.send(&draft, 0, Durability::Default).unwrap();
    };
    let found = |store: &Store, key: &str| {
        store
            .query("orders", key, i64::MIN, i64::MAX, 9)
            .unwrap()
            .len()
    };
    let taken = || {
        let file = std::fs::read_dir(dir.path().join("index"))
            .unwrap()
            .next()
            .unwrap();
        let facts = file.unwrap().metadata().unwrap();
        assert_eq!(facts.len(), 40 + 4 * 5_000_000 + 20 * 20_000_000);
        facts.blocks() * 512
    };
    let store = open();
    send(&store, "first");
    assert_eq!(found(&store, "first"), 1);
    assert!(taken() < 6 << 20, "{} bytes for one key", taken());
    store.close().unwrap();
    let store = open();
    assert!(taken() < 6 << 20, "{} bytes after opening again", taken());
    for number in 0..500 {
        send(&store, &number.to_string());
    }
    assert_eq!(found(&store, "first"), 1);
    assert!((0..500).all(|number| found(&store, &number.to_string()) == 1));
    assert_eq!(store.verify(&mut |_, _| true).unwrap().damage, []);
}
