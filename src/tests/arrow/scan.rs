//! The rows of scans, their order and their columns.

use super::*;
use crate::{Bound, Error};
use arrow_array::types::TimestampMillisecondType;
use arrow_schema::{DataType, TimeUnit};
use std::collections::BTreeMap;

fn offsets(pairs: &[(u32, u64)]) -> Bound {
    Bound::Offsets(pairs.iter().copied().collect::<BTreeMap<_, _>>())
}

/// Topic `a` with bodies a0 to a4 in queues 0 and 1 in turn, and topic `b` between them.
fn two_topics() -> Store {
    let store = store();
    for (a, b) in [("a0", "b0"), ("a1", "b1"), ("a2", "b2"), ("a3", "b3")] {
        let queue = u32::from(a.as_bytes()[1] & 1);
        send_bodies(&store, "a", queue, &[a.as_bytes()]);
        send_bodies(&store, "b", 0, &[b.as_bytes()]);
    }
    store
}

fn as_text(batches: &[RecordBatch]) -> String {
    let words: Vec<_> = bodies(batches)
        .into_iter()
        .map(|body| String::from_utf8(body).unwrap())
        .collect();
    words.join(" ")
}

#[test]
fn default_columns_have_the_documented_types() {
    let store = store();
    let schema = Scan::new(&store, ScanSpec::default()).unwrap().schema();
    let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let expected = "topic queue offset position store_timestamp born_timestamp keys tags \
                    properties body";
    assert_eq!(names.join(" "), expected);
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    assert_eq!(schema.field(4).data_type(), &time);
    assert_eq!(schema.field(9).data_type(), &DataType::Binary);
    let nullable: Vec<_> = schema.fields().iter().filter(|f| f.is_nullable()).collect();
    assert_eq!(nullable.len(), 2, "only keys and tags are nullable");
    for column in Column::all() {
        assert_eq!(
            Column::parse(column.name(), Dialect::Arrow).unwrap(),
            column
        );
    }
    let error = Column::parse("partition", Dialect::Arrow)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("\"partition\"") && error.contains("store_timestamp"),
        "{error}"
    );
}

#[test]
fn every_column_holds_what_the_message_holds() {
    let store = store();
    let producer = store.producer("orders", Some(2)).unwrap();
    let draft = Draft {
        body: b"hello",
        keys: &["k1", "k2"],
        tags: Some("paid"),
        properties: &[("z", "1"), ("a", "x"), ("z", "2")],
        born_timestamp: Some(1_700_000_000_123),
        flag: -7,
        reconsume_times: 3,
        ..Draft::default()
    };
    send(&producer, &draft);
    send(&producer, &Draft::default());
    let columns = Some(Column::all().collect());
    let spec = ScanSpec {
        columns,
        topics: topic("orders"),
        ..ScanSpec::default()
    };
    let found = batches(&store, spec);
    let batch = &found[0];
    let message = store.get("orders", 2, 0).unwrap();
    let ids = batch["topic"].as_dictionary::<Int32Type>();
    assert_eq!(
        ids.values()
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect::<Vec<_>>(),
        ["orders"]
    );
    assert_eq!(ids.keys().values(), &[0, 0]);
    assert_eq!(queues(&found), [2, 2]);
    assert_eq!(longs(&found, "offset"), [0, 1]);
    assert_eq!(longs(&found, "position")[0], message.record().position());
    let born = batch["born_timestamp"].as_primitive::<TimestampMillisecondType>();
    assert_eq!(born.value(0), 1_700_000_000_123);
    let stored = batch["store_timestamp"].as_primitive::<TimestampMillisecondType>();
    assert_eq!(stored.value(0), message.record().store_timestamp());
    assert_eq!(texts(&found, "keys"), [Some("k1 k2".to_owned()), None]);
    assert_eq!(texts(&found, "tags"), [Some("paid".to_owned()), None]);
    assert_eq!(texts(&found, "message_id")[0], Some(message.id()));
    assert_eq!(bodies(&found), [&b"hello"[..], b""]);
    let number = |name: &str| batch[name].as_primitive::<Int32Type>().value(0);
    assert_eq!((number("flag"), number("reconsume_times")), (-7, 3));
    assert_eq!(number("sys_flag"), message.record().sys_flag() as i32);
    assert_eq!(number("size"), message.record().bytes().len() as i32);
    let map = batch["properties"].as_map();
    assert_eq!(
        map.value_offsets(),
        &[0, 2, 2],
        "the last of equal names, and no reserved ones"
    );
    let pairs = map
        .keys()
        .as_string::<i32>()
        .iter()
        .zip(map.values().as_string::<i32>());
    let pairs: Vec<_> = pairs.map(|(k, v)| (k.unwrap(), v.unwrap())).collect();
    assert_eq!(pairs, [("a", "x"), ("z", "2")]);
    let headers = batch["headers"].as_list::<i32>();
    assert_eq!(headers.value_offsets(), &[0, 3, 3]);
    let names = headers.values().as_struct()["key"]
        .as_string::<i32>()
        .clone();
    assert_eq!(names.iter().flatten().collect::<Vec<_>>(), ["z", "a", "z"]);
}

#[test]
fn a_scan_of_everything_is_in_log_order() {
    let store = two_topics();
    let found = batches(&store, ScanSpec::default());
    assert_eq!(as_text(&found), "a0 b0 a1 b1 a2 b2 a3 b3");
    let topics = found[0]["topic"].as_dictionary::<Int32Type>();
    assert_eq!(topics.keys().values(), &[0, 1, 0, 1, 0, 1, 0, 1]);
}

#[test]
fn named_topics_are_scanned_queue_by_queue_in_the_requested_order() {
    let store = two_topics();
    let topics = Some(vec!["b".to_owned(), "a".to_owned()]);
    let spec = ScanSpec {
        topics,
        ..ScanSpec::default()
    };
    assert_eq!(as_text(&batches(&store, spec)), "b0 b1 b2 b3 a0 a2 a1 a3");
    let spec = ScanSpec {
        topics: topic("a"),
        queues: Some(vec![1]),
        ..ScanSpec::default()
    };
    assert_eq!(as_text(&batches(&store, spec)), "a1 a3");
    // A queue that only some topics have is not an error if all topics are requested.
    let spec = ScanSpec {
        queues: Some(vec![1]),
        ..ScanSpec::default()
    };
    assert_eq!(as_text(&batches(&store, spec)), "a1 a3");
}

#[test]
fn bounds_are_half_open_and_the_end_is_clipped() {
    let store = store();
    send_bodies(&store, "a", 0, &[b"0", b"1", b"2", b"3", b"4"]);
    send_bodies(&store, "a", 1, &[b"x"]);
    let run = |start: Bound, end: Bound| {
        let spec = ScanSpec {
            topics: topic("a"),
            start,
            end,
            ..ScanSpec::default()
        };
        as_text(&batches(&store, spec))
    };
    assert_eq!(run(offsets(&[(0, 1)]), offsets(&[(0, 3), (1, 0)])), "1 2");
    assert_eq!(run(offsets(&[(0, 3)]), Bound::Latest), "3 4 x");
    assert_eq!(run(offsets(&[(0, 5), (1, 1)]), Bound::Latest), "");
    assert_eq!(
        run(Bound::Earliest, offsets(&[(0, 99), (1, 0)])),
        "0 1 2 3 4"
    );
    assert_eq!(run(offsets(&[(0, 4)]), offsets(&[(0, 2), (1, 0)])), "");
    assert_eq!(run(Bound::Latest, Bound::Latest), "");
    assert_eq!(run(Bound::Earliest, Bound::Earliest), "");
}

#[test]
fn time_bounds_follow_the_store_times() {
    let store = store();
    send_bodies(&store, "a", 0, &[b"0", b"1"]);
    let time = store.get("a", 0, 1).unwrap().record().store_timestamp();
    let run = |start, end| {
        let spec = ScanSpec {
            topics: topic("a"),
            start,
            end,
            ..ScanSpec::default()
        };
        as_text(&batches(&store, spec))
    };
    assert_eq!(run(Bound::Time(0), Bound::Time(time + 1)), "0 1");
    assert_eq!(run(Bound::Time(time + 1), Bound::Latest), "");
    assert_eq!(run(Bound::Earliest, Bound::Time(0)), "");
    // All topics with a time bound are scanned queue by queue, including unused ones.
    let spec = ScanSpec {
        start: Bound::Time(0),
        ..ScanSpec::default()
    };
    assert_eq!(as_text(&batches(&store, spec)), "0 1");
}

#[test]
fn missing_topics_queues_and_offsets_are_errors_when_the_stream_begins() {
    let store = two_topics();
    let run = |spec: ScanSpec| {
        let scan = Scan::new(&store, spec).unwrap();
        scan.stream().map(drop).unwrap_err()
    };
    let error = run(ScanSpec {
        topics: topic("nope"),
        ..ScanSpec::default()
    });
    assert!(matches!(error, Error::UnknownTopic { .. }), "{error}");
    let error = run(ScanSpec {
        topics: topic("a"),
        queues: Some(vec![99]),
        ..Default::default()
    });
    assert!(
        matches!(error, Error::UnknownQueue { queue: 99, .. }),
        "{error}"
    );
    let start = offsets(&[(0, 3)]);
    let error = run(ScanSpec {
        topics: topic("a"),
        start,
        ..ScanSpec::default()
    });
    let expected = "offset 3 of topic \"a\" queue 0 is out of range: \
                    the queue has messages 0 to 1, and 2 is its next offset";
    assert_eq!(error.to_string(), expected);
    let start = offsets(&[(0, u64::MAX)]);
    let error = run(ScanSpec {
        topics: topic("a"),
        start,
        ..ScanSpec::default()
    });
    assert!(
        matches!(
            error,
            Error::OffsetOutOfRange {
                offset: i64::MAX,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn an_invalid_specification_is_rejected_at_once() {
    let store = store();
    let wrong = [
        ScanSpec {
            batch_rows: 0,
            ..ScanSpec::default()
        },
        ScanSpec {
            batch_rows: (1 << 20) + 1,
            ..ScanSpec::default()
        },
        ScanSpec {
            batch_bytes: 0,
            ..ScanSpec::default()
        },
        ScanSpec {
            batch_bytes: (1 << 30) + 1,
            ..ScanSpec::default()
        },
        ScanSpec {
            topics: Some(Vec::new()),
            ..ScanSpec::default()
        },
        ScanSpec {
            queues: Some(vec![1, 2, 1]),
            ..ScanSpec::default()
        },
        ScanSpec {
            columns: Some(vec![Column::Body, Column::Body]),
            ..ScanSpec::default()
        },
        ScanSpec {
            key: Some(Vec::new()),
            ..ScanSpec::default()
        },
    ];
    for spec in wrong {
        let shown = format!("{spec:?}");
        let error = Scan::new(&store, spec).map(drop).unwrap_err();
        assert!(
            matches!(error, Error::InvalidOption { .. }),
            "{shown}: {error}"
        );
    }
    store.close().unwrap();
    let closed = Scan::new(&store, ScanSpec::default()).map(drop);
    assert!(matches!(closed, Err(Error::Closed { .. })));
}

#[test]
fn a_key_is_searched_only_within_the_bounds() {
    let store = store();
    for number in 0..100 {
        let (key, body) = (format!("k{}", number % 10), format!("{number}"));
        let draft = Draft {
            body: body.as_bytes(),
            keys: &[&key],
            queue: Some(1),
            ..Draft::default()
        };
        send(&producer(&store, "a"), &draft);
    }
    let spec = ScanSpec {
        topics: topic("a"),
        start: Bound::Offsets([(1, 17)].into()),
        end: Bound::Offsets([(1, 47)].into()),
        key: Some(b"k7".to_vec()),
        ..ScanSpec::default()
    };
    assert_eq!(as_text(&batches(&store, spec)), "17 27 37");
}

#[test]
fn tags_and_keys_select_on_every_path_through_the_store() {
    let store = store();
    for (queue, name) in [(1, "a"), (0, "b")] {
        for number in 0..3000 {
            let (key, tag) = (format!("k{}", number % 10), format!("t{}", number % 3));
            let body = format!("{name}{number}");
            let draft = Draft {
                body: body.as_bytes(),
                keys: &[&key, "all"],
                tags: Some(&tag),
                queue: Some(queue),
                ..Draft::default()
            };
            send(&producer(&store, name), &draft);
        }
    }
    let run = |topics: Option<Vec<String>>, start: Bound, key: Option<&str>, tags: &[&str]| {
        let key = key.map(|key| key.as_bytes().to_vec());
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        as_text(&batches(
            &store,
            ScanSpec {
                topics,
                start,
                key,
                tags,
                ..ScanSpec::default()
            },
        ))
    };
    let expected = |name: &str, pass: &dyn Fn(u32) -> bool| {
        let numbers = (0..3000).filter(|n| pass(*n));
        numbers
            .map(|n| format!("{name}{n}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let by_key = expected("a", &|n| n % 10 == 7);
    assert_eq!(
        run(topic("a"), Bound::Earliest, Some("k7"), &[]),
        by_key,
        "by the index"
    );
    assert_eq!(
        run(topic("a"), Bound::Time(0), Some("k7"), &[]),
        by_key,
        "within bounds"
    );
    let both = |n| n % 10 == 7 && n % 3 != 1;
    let tags = ["t0", "t2"];
    assert_eq!(
        run(topic("a"), Bound::Earliest, Some("k7"), &tags),
        expected("a", &both)
    );
    assert_eq!(
        run(topic("a"), Bound::Time(0), Some("k7"), &tags),
        expected("a", &both)
    );
    let log = [
        expected("a", &|n| n % 3 == 1),
        expected("b", &|n| n % 3 == 1),
    ]
    .join(" ");
    assert_eq!(run(None, Bound::Earliest, None, &["t1"]), log, "by the log");
    assert_eq!(run(None, Bound::Earliest, Some("no such key"), &[]), "");
    assert_eq!(run(topic("b"), Bound::Earliest, None, &["no such tag"]), "");
}

#[test]
fn each_stream_is_a_snapshot_of_the_current_store() {
    let store = two_topics();
    let scan = |topics| {
        Scan::new(
            &store,
            ScanSpec {
                topics,
                ..ScanSpec::default()
            },
        )
        .unwrap()
    };
    for topics in [None, topic("b")] {
        let scan = scan(topics);
        let rows = |stream: Stream| stream.map(|b| b.unwrap().num_rows()).sum::<usize>();
        let before = rows(scan.stream().unwrap());
        let running = scan.stream().unwrap();
        send_bodies(&store, "b", 0, &[b"late"]);
        assert_eq!(
            rows(running),
            before,
            "a stream does not see later messages"
        );
        assert_eq!(rows(scan.stream().unwrap()), before + 1);
    }
}

#[test]
fn batches_have_at_most_the_requested_rows() {
    let store = store();
    let long: Vec<&[u8]> = vec![b"some body"; 5000];
    send_bodies(&store, "a", 0, &long);
    for batch_rows in [1usize, 7, 1023, 1024, 1025, 4999, 5000, 5001] {
        let columns = Some(vec![Column::Offset, Column::Body]);
        let spec = ScanSpec {
            topics: topic("a"),
            columns,
            batch_rows,
            ..ScanSpec::default()
        };
        let found = batches(&store, spec);
        assert_eq!(longs(&found, "offset"), (0..5000).collect::<Vec<i64>>());
        let (last, whole) = found.split_last().unwrap();
        assert!(whole.iter().all(|batch| batch.num_rows() == batch_rows));
        assert!(last.num_rows() <= batch_rows);
    }
}

#[test]
fn without_columns_rows_are_counted_and_without_rows_there_is_a_schema() {
    let store = two_topics();
    let spec = ScanSpec {
        columns: Some(Vec::new()),
        batch_rows: 5,
        ..ScanSpec::default()
    };
    let rows: Vec<_> = batches(&store, spec)
        .iter()
        .map(RecordBatch::num_rows)
        .collect();
    assert_eq!(rows, [5, 3]);
    let spec = ScanSpec {
        start: Bound::Latest,
        ..ScanSpec::default()
    };
    let mut stream = stream(&store, spec);
    assert_eq!(stream.schema().fields().len(), 10);
    assert!(stream.next_batch().unwrap().is_none());
    assert!(stream.next_batch().unwrap().is_none());
}

#[test]
fn a_stream_outlives_the_store_and_does_not_keep_it_open() {
    let store = two_topics();
    let scan = Scan::new(
        &store,
        ScanSpec {
            topics: topic("b"),
            ..ScanSpec::default()
        },
    )
    .unwrap();
    let stream = scan.stream().unwrap();
    store.close().unwrap();
    assert!(matches!(scan.stream().map(drop), Err(Error::Closed { .. })));
    drop((store, scan));
    let read = std::thread::spawn(move || stream.map(Result::unwrap).collect::<Vec<_>>());
    assert_eq!(as_text(&read.join().unwrap()), "b0 b1 b2 b3");
}

#[test]
fn many_queues_are_scanned_chunk_by_chunk() {
    let store = store();
    store.create_topic("wide", 3000).unwrap();
    for queue in (0..3000).step_by(3) {
        send_bodies(&store, "wide", queue, &[b"one", b"two"]);
    }
    let found = batches(
        &store,
        ScanSpec {
            topics: topic("wide"),
            ..ScanSpec::default()
        },
    );
    assert_eq!(found.len(), 1);
    let expected: Vec<_> = (0..3000)
        .step_by(3)
        .flat_map(|queue| [queue, queue])
        .collect();
    assert_eq!(queues(&found), expected);
}

#[test]
fn a_scan_whose_filter_passes_nothing_is_interrupted_on_its_way() {
    let store = store();
    send_bodies(&store, "a", 0, &vec![b"".as_slice(); 150_000]);
    let specs = [topic("a"), None].map(|topics| ScanSpec {
        topics,
        tags: vec!["none".to_owned()],
        ..ScanSpec::default()
    });
    for spec in specs {
        let scanned = stream(&store, spec.clone()).next_batch().unwrap();
        assert!(scanned.is_none());
        let mut asked = 0;
        let on_second_call = Box::new(move || {
            asked += 1;
            asked == 2
        });
        let mut stream = stream(&store, spec).interruptible(on_second_call, store.path());
        assert!(matches!(stream.next_batch(), Err(Error::Io { .. })));
    }
}

#[test]
fn a_log_scan_skips_records_outside_queues_and_stops_at_its_end() {
    struct Replay(Vec<Message>);
    impl crate::engine::Cursor for Replay {
        fn next(&mut self, max: usize, rows: &mut crate::engine::Rows) -> crate::Result<()> {
            for message in self.0.drain(..max.min(self.0.len()).min(2)) {
                let (region, start) = message.place();
                rows.push(region, start, message.record().layout());
            }
            Ok(())
        }
        fn offset(&self) -> u64 {
            0
        }
    }
    let flagged = |offset: u64, flag: u32| {
        record(&Draft::default(), offset, |bytes| {
            bytes[36..40].copy_from_slice(&flag.to_be_bytes());
        })
    };
    let flags = [0, sys_flag::PREPARED, sys_flag::ROLLBACK, 8, 0, 0];
    let made = (0u64..)
        .zip(flags)
        .map(|(offset, flag)| flagged(offset, flag));
    let replay = Box::new(Replay(messages(0, &made.collect::<Vec<_>>())));
    let source = crate::arrow::source::Source::log(replay, 5000, crate::Filter::default());
    let shape = shape(&[Column::Offset], BodyType::Binary);
    let stream = Stream::new(source, shape, Default::default());
    let found: Vec<_> = stream.map(Result::unwrap).collect();
    assert_eq!(
        longs(&found, "offset"),
        [0, 3, 4],
        "message 5 is at position 5000"
    );
}

#[test]
fn text_that_is_not_utf8_is_replaced() {
    let draft = Draft {
        body: b"body",
        keys: &["KKKK"],
        tags: Some("GGGG"),
        properties: &[("name", "VVVV")],
        ..Draft::default()
    };
    let spoil = |bytes: &mut Vec<u8>| {
        for mark in [&b"KKKK"[..], b"GGGG", b"VVVV"] {
            let at = bytes.windows(4).position(|window| window == mark).unwrap();
            bytes[at + 1] = 0xFF;
        }
        let at = bytes
            .windows(4)
            .position(|window| window == b"name")
            .unwrap();
        bytes[at] = 0xC3;
    };
    let made = messages(0, &[record(&draft, 0, spoil)]);
    let columns = [
        Column::Keys,
        Column::Tags,
        Column::Properties,
        Column::Headers,
    ];
    let source = crate::arrow::source::Source::found(made);
    let mut stream = Stream::new(
        source,
        shape(&columns, BodyType::Binary),
        Default::default(),
    );
    let batch = stream.next_batch().unwrap().unwrap();
    check(&batch);
    let found = [batch];
    assert_eq!(texts(&found, "keys"), [Some("K\u{FFFD}KK".to_owned())]);
    assert_eq!(texts(&found, "tags"), [Some("G\u{FFFD}GG".to_owned())]);
    let map = found[0]["properties"].as_map();
    assert_eq!(map.keys().as_string::<i32>().value(0), "\u{FFFD}ame");
    assert_eq!(map.values().as_string::<i32>().value(0), "V\u{FFFD}VV");
    let header = found[0]["headers"].as_list::<i32>().value(0);
    let value = header.as_struct()["value"]
        .as_binary::<i32>()
        .value(0)
        .to_vec();
    assert_eq!(value, b"V\xFFVV", "bytes stay bytes");
}
