//! A record in Kafka's form, in memory.

use super::{message, seal, style};
use crate::record::common::{Copied, Draft, Labels};
use crate::record::kafka::entry::Headers;
use crate::record::kafka::{Apart, Codec, Entry, Form, Home, Layout, Opened, Record};
use crate::record::{Message, PropertyKind, Row};
use proptest::prelude::*;

const FORM: Form = Form {
    batch_len_max: 1 << 20,
    value_len_max: 0,
    codec: Codec::None,
    append_time: false,
};

/// A record in memory, with its layout.
fn held(key: Option<&[u8]>, value: Option<&[u8]>, headers: Headers<'_>) -> (Vec<u8>, Apart) {
    let entry = Entry {
        offset: 3,
        timestamp: -1,
        key,
        value,
        headers,
    };
    let home = Home {
        topic: "a.topic",
        queue: 7,
        position: 1 << 40,
    };
    let layout = Apart::of(&home, false, &entry).unwrap();
    let mut bytes = vec![0; layout.total_len as usize];
    layout.write(&mut bytes, &home, &entry);
    (bytes, layout)
}

#[test]
fn a_record_in_memory_keeps_every_field() {
    let stored = [
        6, b'd', b'u', b'p', 2, 1, 6, b'd', b'u', b'p', 2, b'2', 0, 1,
    ];
    let headers = Headers {
        count: 3,
        bytes: &stored,
    };
    let (bytes, layout) = held(Some(&[0xFF, b' ']), Some(b"value"), headers);
    assert_eq!(Apart::parse(&bytes), Ok(layout));
    let message = Message::from_record(&bytes).unwrap().unwrap();
    let row = message.record();
    assert_eq!(row.bytes(), bytes);
    assert_eq!((row.topic(), row.queue_id()), (&b"a.topic"[..], 7));
    assert_eq!((row.queue_offset(), row.position()), (3, 1 << 40));
    assert_eq!((row.store_timestamp(), row.born_timestamp()), (-1, -1));
    assert_eq!(*message.body().unwrap(), *b"value");
    assert!(!message.is_null() && !row.has_append_time());
    assert_eq!(message.key_bytes().as_deref(), Some(&[0xFF, b' '][..]));
    assert_eq!(message.keys(), ["\u{FFFD} "]);
    assert_eq!(message.id(), "a.topic-7@3");
    let found = message.headers();
    let found: Vec<(&str, Option<&[u8]>)> = found.iter().map(|(n, v)| (&**n, *v)).collect();
    let expected = [("dup", Some(&[1][..])), ("dup", Some(b"2")), ("", None)];
    assert_eq!(found, expected);
    let user = message.properties(PropertyKind::User);
    assert_eq!(user, [("dup".to_owned(), "2".to_owned())].into());
    let mut labels = Labels::default();
    row.read_labels(&mut labels, true);
    assert_eq!(labels.key().as_deref(), Some(&[0xFF, b' '][..]));
    assert!(row.known().index_keys().eq([&[0xFF, b' '][..]]));
}

#[test]
fn null_and_empty_are_different() {
    for part in [None, Some(&b""[..])] {
        let (bytes, layout) = held(part, part, Headers::default());
        let row = Row::from(Record::with_layout(&bytes, Layout::Apart(layout)).unwrap());
        assert_eq!(row.key_bytes().as_deref(), part);
        assert_eq!(row.is_null(), part.is_none());
        assert_eq!(row.stored_body(), b"");
    }
}

proptest! {
    #![proptest_config(crate::seeds::proptest_config())]

    #[test]
    fn damaged_records_in_memory_are_refused_or_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let headers = Headers { count: 1, bytes: &[0, 1] };
        let (mut bytes, _) = held(Some(b"key"), Some(b"value"), headers);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(Ok(message)) = Message::from_record(&bytes) {
            let _ = (message.headers(), message.key_bytes(), message.body(), message.id());
        }
    }
}

/// A consumer once could not send back a message that no sender of Forebay's could have sent.
#[test]
fn a_copy_keeps_what_another_system_wrote() {
    let stored = b"\x18FOREBAY_TAGS\x08a||b\x00\x01\x10TIMED_AT\x02x\x06new\x02n";
    let headers = Headers {
        count: 4,
        bytes: stored,
    };
    let (bytes, layout) = held(None, None, headers);
    let row = Row::from(Record::with_layout(&bytes, Layout::Apart(layout)).unwrap());
    let mut batch = crate::record::Form::Kafka(FORM).batch();
    let copied = Copied {
        topic: "retry.billing",
        queue: 2,
        without: &["TIMED_AT"],
        with: &[("new", "m"), ("REAL_QID", "2")],
        reconsume_times: 3,
        clock_ms: 77,
    };
    batch.push_copy(&row, &copied).unwrap();
    batch.kafka_mut().unwrap().finish(0).unwrap();
    let part = &batch.kafka().unwrap().parts()[0];
    assert_eq!((part.queue(), part.count()), (2, 1));
    let mut opened = Opened::open(part.bytes().to_vec(), true).unwrap();
    let entry = opened.next().unwrap().unwrap();
    // The original had no time.
    assert_eq!((entry.key, entry.value, entry.timestamp), (None, None, 77));
    let own = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let found = entry.headers.iter().map(|(name, value)| (own(name), value));
    let found: Vec<(String, Option<&[u8]>)> = found.collect();
    let expected: [(&str, Option<&[u8]>); 5] = [
        ("", None),
        ("new", Some(b"m")),
        ("FOREBAY_REAL_QID", Some(b"2")),
        ("FOREBAY_TAGS", Some(b"a||b")),
        ("FOREBAY_RECONSUME_TIMES", Some(b"3")),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(found, expected);
}

#[test]
fn a_copy_in_kafkas_form_has_a_time_that_readers_can_represent() {
    let draft = Draft {
        body: b"x",
        ..Draft::default()
    };
    let mut stored = seal("t", 0, &draft, &style("127.0.0.1:9", false), (0, 0, 7));
    for (time, is_allowed) in [
        (253_402_300_799_999, true),
        (253_402_300_800_000, false),
        (i64::MIN, false),
    ] {
        // The time of birth, which only another system can have written.
        stored[40..48].copy_from_slice(&i64::to_be_bytes(time));
        let mut batch = crate::record::Form::Kafka(FORM).batch();
        let copied = Copied {
            topic: "t",
            queue: 0,
            without: &[],
            with: &[],
            reconsume_times: 0,
            clock_ms: 7,
        };
        let copy = batch.push_copy(&message(&stored).record(), &copied);
        assert_eq!(copy.is_ok(), is_allowed, "{time}: {copy:?}");
    }
}
