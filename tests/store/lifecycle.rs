//! Opening, verifying, closing, and what still works afterwards.

use crate::bed::{Bed, Kind, body, to_queue};
use forebay::Rows;
use forebay::{Check, Draft, EngineKind, Error, Filter, Mode, Options, Result, Store};

/// A change that makes valid options invalid.
type Change = fn(&mut Options);

fn is_closed<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Closed { .. }))
}

suite! {
    fn a_closed_store_rejects_everything_and_can_be_closed_again(bed) {
        let producer = bed.store.producer("orders", None).unwrap();
        let sharer = bed.store.clone();
        bed.fill("orders", 0, 3);
        assert!(!bed.store.is_closed());
        bed.store.close().unwrap();
        bed.store.close().unwrap();
        sharer.close().unwrap();
        assert!(bed.store.is_closed() && sharer.is_closed());

        let (store, all) = (&bed.store, Filter::default());
        assert!(is_closed(producer.send(&body(b"x"), 0, forebay::Durability::Default)));
        let batch = std::iter::once(Ok(body(b"x")));
        let (rows, default) = (forebay::Atomicity::Rows, forebay::Durability::Default);
        assert!(is_closed(producer.send_batch(batch, rows, default)));
        assert!(is_closed(store.producer("orders", None)));
        assert!(is_closed(store.create_topic("bills", 1)));
        assert!(is_closed(store.topic("orders")));
        assert!(is_closed(store.get("orders", 0, 0)));
        assert!(is_closed(store.read("orders", 0, 0, 32, None, &all)));
        assert!(is_closed(store.query("orders", "k", 0, 1, 1)));
        assert!(is_closed(store.offset_at("orders", 0, 0)));
        assert!(is_closed(store.message_at(0)));
        assert!(is_closed(store.flush()));
        assert!(is_closed(store.stats()));
        assert!(is_closed(store.verify(&mut |_, _| true)));
        assert!(is_closed(sharer.engine().map(|engine| engine.meanings().kind)));
    }

    fn all_of_many_queues_exist_after_a_reopen(bed) {
        if !bed.persists() {
            return;
        }
        for number in 0..200 {
            bed.fill(&format!("topic-{number}"), 0, 2);
        }
        bed.reopen();
        for number in 0..200 {
            let message = bed.store.get(&format!("topic-{number}"), 0, 1).unwrap();
            assert_eq!(&*message.body().unwrap(), b"1");
        }
        assert!(bed.store.recovery().clean);
        assert_eq!(bed.store.recovery().queue_entries_rebuilt, 0);
    }

    fn messages_and_rows_outlive_the_store(bed) {
        bed.fill("orders", 0, 100);
        let message = bed.store.get("orders", 0, 99).unwrap();
        let mut rows = Rows::default();
        {
            let engine = bed.store.engine().unwrap();
            let topic = bed.store.topic("orders").unwrap();
            let all = Filter::default();
            let mut cursor = engine.cursor(&topic, 0, 0..100, &all, Check::Full).unwrap();
            while rows.rows.len() < 100 {
                cursor.next(100, &mut rows).unwrap();
            }
        }
        bed.store.close().unwrap();
        let other = bed.another(|_| ());
        drop(std::mem::replace(bed, other));
        assert_eq!(&*message.body().unwrap(), b"99");
        for (number, row) in rows.rows.iter().enumerate() {
            let record = rows.record(row).unwrap();
            assert_eq!(record.stored_body(), number.to_string().as_bytes());
        }
    }

    fn a_cleanly_closed_store_opens_clean_and_complete(bed) {
        bed.fill("orders", 0, 200);
        bed.reopen();
        let recovery = bed.store.recovery();
        assert!(recovery.clean);
        assert_eq!((recovery.truncated_bytes, recovery.stale_checksums), (0, 0));
        assert_eq!(bed.store.damage(), []);
        assert_eq!(bed.bodies("orders", 0).len(), 200);
    }

    fn a_store_opened_and_closed_without_a_message_stays_empty(bed) {
        for _ in 0..3 {
            bed.reopen();
            let engine = bed.store.engine().unwrap();
            assert_eq!(engine.readable_position(), 0);
            assert!(engine.topics().is_empty());
        }
        assert_eq!(bed.send("orders", &to_queue(0, b"x")).place.position, 0);
    }

    fn verification_counts_all_and_finds_no_damage(bed) {
        for number in 0..300 {
            let key = format!("key-{number}");
            bed.send("orders", &Draft { keys: &[&key, "all"], ..body(b"x") });
        }
        bed.reopen();
        let mut seen = Vec::new();
        let report = bed.store.verify(&mut |done, total| {
            seen.push((done, total));
            true
        });
        let report = report.unwrap();
        assert_eq!((report.records, report.queue_entries, report.index_entries), (300, 300, 600));
        assert_eq!((report.stale_checksums, report.damage), (0, Vec::new()));
        assert!(seen.is_sorted() && seen.iter().all(|(done, total)| done <= total), "{seen:?}");
        let (done, total) = seen.last().unwrap();
        assert_eq!(done, total);
    }

    fn verification_stops_when_it_is_told_to(bed) {
        bed.fill("orders", 0, 3000);
        let mut calls = 0;
        bed.store.verify(&mut |_, _| {
            calls += 1;
            false
        }).unwrap();
        assert_eq!(calls, 1);
    }

    fn the_progress_callback_of_a_verification_may_send(bed) {
        bed.fill("orders", 0, 10);
        let report = bed.store.verify(&mut |_, _| {
            bed.send("orders", &to_queue(0, b"x"));
            true
        });
        assert!(report.unwrap().records >= 10);
        assert!(bed.bodies("orders", 0).len() > 10);
    }

    fn a_store_knows_its_engine_path_and_options(bed) {
        let kind = bed.store.engine().unwrap().meanings().kind;
        let expected = match bed.kind {
            Kind::Memory => EngineKind::Memory,
            Kind::CommitLog => EngineKind::CommitLog,
        };
        assert_eq!(kind, expected);
        assert_eq!(bed.store.options().default_queues(), 4);
        assert_eq!(bed.store.path().ends_with(":memory:"), bed.kind == Kind::Memory);
    }

    fn options_out_of_range_are_rejected_with_name_and_value(bed) {
        let changes: [(&str, Change); 8] = [
            ("commitlog_file_size", |options| options.commitlog_file_size = Some(4095)),
            ("commitlog_file_size", |options| options.commitlog_file_size = Some(2 << 30)),
            ("commitlog_file_size", |options| options.commitlog_file_size = Some(8193)),
            ("queue_file_entries", |options| options.queue_file_entries = Some(0)),
            ("index_slots", |options| options.index_slots = Some(0)),
            ("index_entries", |options| options.index_entries = Some(1)),
            ("default_queues", |options| options.default_queues = Some(0)),
            ("max_message_size", |options| options.max_message_size = Some(0)),
        ];
        for (expected, change) in changes {
            let mut options = bed.store.options().clone();
            change(&mut options);
            match Store::open(bed.store.path(), options) {
                Err(Error::InvalidOption { name, .. }) => assert_eq!(name, expected),
                Err(other) => panic!("{expected}: {other}"),
                Ok(_) => panic!("{expected} was accepted"),
            }
        }
    }
}

#[test]
fn a_memory_store_is_selected_by_its_path_or_its_engine() {
    let store = Store::open(":memory:", Options::default()).unwrap();
    assert_eq!(store.engine().unwrap().meanings().kind, EngineKind::Memory);
    let options = Options {
        engine: Some(EngineKind::Memory),
        ..Options::default()
    };
    let store = Store::open("no/such/folder", options).unwrap();
    assert_eq!(store.engine().unwrap().meanings().kind, EngineKind::Memory);
    assert!(!std::path::Path::new("no").exists());
}

#[test]
fn a_memory_store_cannot_be_opened_read_only() {
    let options = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let refused = Store::open(":memory:", options).err();
    assert!(matches!(refused, Some(Error::InvalidOption { .. })));
}

#[test]
fn two_memory_stores_share_nothing() {
    let (one, other) = (Bed::new(Kind::Memory), Bed::new(Kind::Memory));
    one.fill("orders", 0, 1);
    assert!(matches!(
        other.store.topic("orders"),
        Err(Error::UnknownTopic { .. })
    ));
}
