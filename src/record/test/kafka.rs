//! A record in Kafka's form, in memory.

use crate::record::common::Labels;
use crate::record::kafka::entry::Headers;
use crate::record::kafka::{Entry, HEAD_LEN, Header, Home, Layout, Record, record};
use crate::record::{Message, PropertyKind, Row};
use proptest::prelude::*;

/// The header of an empty batch of format 2.
const HEADER: [u8; HEAD_LEN] = {
    let mut bytes = [0; HEAD_LEN];
    bytes[11] = 49;
    bytes[16] = 2;
    bytes
};

/// A record in memory, with its layout.
fn held(key: Option<&[u8]>, value: Option<&[u8]>, headers: Headers<'_>) -> (Vec<u8>, Layout) {
    let header = Header::parse(&HEADER).unwrap();
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
    let mut bytes = Vec::new();
    let layout = record::write(&mut bytes, &home, &header, &entry).unwrap();
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
    assert_eq!(Layout::parse(&bytes), Ok(layout));
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
        let row = Row::from(Record::with_layout(&bytes, layout).unwrap());
        assert_eq!(row.key_bytes().as_deref(), part);
        assert_eq!(row.is_null(), part.is_none());
        assert_eq!(row.stored_body(), b"");
    }
}

proptest! {
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
