//! Any bytes give a record or a flaw, and any draft gives a record that can be read back.

use super::{hex, message, seal, style};
use crate::record::Draft;
use crate::record::PropertyKind;
use crate::record::id::position_of_id;
use crate::record::rocketmq::layout::{CRC_LEN, MAGIC_V1, MAGIC_V2, Record};
use crate::record::rocketmq::properties::{self, Known};
use proptest::prelude::*;
use std::borrow::Cow;

/// Reads every field.
fn read_all(bytes: &[u8]) {
    let Ok(record) = Record::parse(bytes) else {
        return;
    };
    let _ = record.check(record.position() as u64);
    let _ = (record.born_host(), record.store_host(), record.is_queued());
    let _ = (
        record.reconsume_times(),
        record.prepared_transaction_offset(),
    );
    let _ = Known::read(record.raw_properties()).index_keys().count();
    let _ = properties::tags_code(Some(record.topic()));
    let sum = record.layout().body_at as usize + record.stored_body().len();
    assert!(sum + record.topic().len() + record.raw_properties().len() < bytes.len());
    let message = message(bytes);
    let _ = (
        message.topic(),
        message.keys(),
        message.tags(),
        message.body(),
    );
    let _ = message.properties(PropertyKind::User);
    let _ = message.properties(PropertyKind::System);
    assert_eq!(
        position_of_id(&message.id()).unwrap(),
        record.position() as u64
    );
}

fn good_record() -> Vec<u8> {
    let draft = Draft {
        body: b"a body of some length",
        keys: &["k1", "k2"],
        tags: Some("tagA"),
        properties: &[("region", "eu"), ("colour", "blue")],
        ..Draft::default()
    };
    seal(
        "orders",
        3,
        &draft,
        &style("10.1.2.3:10911", true),
        (17, 4711, 9),
    )
}

proptest! {
    #![proptest_config(crate::seeds::proptest_config())]

    #[test]
    fn any_bytes_give_a_record_or_a_flaw(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes);
    }

    #[test]
    fn any_bytes_after_a_magic_and_a_length_give_a_record_or_a_flaw(
        mut bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 91..300),
        version_2: bool,
    ) {
        let len = (bytes.len() as u32).to_be_bytes();
        let magic = if version_2 { MAGIC_V2 } else { MAGIC_V1 };
        bytes[..4].copy_from_slice(&len);
        bytes[4..8].copy_from_slice(&magic.to_be_bytes());
        read_all(&bytes);
    }

    #[test]
    fn a_good_record_with_any_bytes_changed_gives_a_record_or_a_flaw(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = good_record();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read_all(&bytes);
    }

    #[test]
    fn any_draft_gives_a_record_that_reads_back(
        body in prop::collection::vec(any::<u8>(), 0..2000),
        keys in prop::collection::vec("[!-~]{1,8}|[\u{e0}-\u{1ff}]{1,3}", 0..4),
        tags in prop::option::of("[a-z]{1,5}"),
        user in prop::collection::vec(("u[a-z]{0,5}", "[^\u{1}\u{2}]{1,9}"), 0..4),
        topic in "[a-zA-Z0-9%|_-]{1,127}",
        queue in 0..65_536u32,
        place in (0..i64::MAX as u64, 0..i64::MAX as u64, any::<i64>()),
        numbers in (any::<i32>(), any::<i32>(), any::<i64>()),
        checksum: bool,
        v6: bool,
    ) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let user: Vec<(&str, &str)> = user.iter().map(|(n, v)| (&**n, &**v)).collect();
        let (flag, reconsume_times, born) = numbers;
        // Up to the end of the year 9999.
        let born = born % 253_402_300_800_000;
        let born = born.max(-62_135_596_800_000);
        let draft = Draft {
            body: &body,
            keys: &keys,
            tags: tags.as_deref(),
            properties: &user,
            born_timestamp: Some(born),
            flag,
            reconsume_times,
            ..Draft::default()
        };
        let host = if v6 { "[fe80::1]:65535" } else { "1.2.3.4:65535" };
        let bytes = seal(&topic, queue, &draft, &style(host, checksum), place);
        let record = Record::parse(&bytes).unwrap();
        let (queue_offset, position, store_timestamp) = place;
        record.check(position).unwrap();
        prop_assert_eq!(record.topic(), topic.as_bytes());
        prop_assert_eq!(record.queue_id(), queue as i32);
        prop_assert_eq!(record.queue_offset() as u64, queue_offset);
        prop_assert_eq!(record.store_timestamp(), store_timestamp);
        prop_assert_eq!(record.born_timestamp(), born);
        prop_assert_eq!(record.flag(), flag);
        prop_assert_eq!(record.reconsume_times(), reconsume_times);
        prop_assert_eq!(record.store_host(), host.parse().unwrap());
        prop_assert_eq!(record.stated_crc().is_some(), checksum);
        let message = message(&bytes);
        prop_assert_eq!(&*message.body().unwrap(), &body);
        prop_assert_eq!(message.keys(), keys);
        let found = message.tags().map(Cow::into_owned);
        prop_assert_eq!(found, tags);
        let found = message.properties(PropertyKind::User);
        let user = user.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        prop_assert_eq!(found, user.collect());
    }
}

#[test]
fn every_single_flipped_bit_that_the_checksum_covers_is_noticed() {
    let good = good_record();
    Record::parse(&good).unwrap().check(4711).unwrap();
    for bit in 0..8 * (good.len() - CRC_LEN) {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let noticed = Record::parse(&bytes).and_then(|record| record.check(4711));
        assert!(noticed.is_err(), "bit {bit}");
    }
}

#[test]
fn every_single_flipped_bit_of_a_body_without_record_checksum_is_noticed() {
    let draft = Draft {
        body: &hex("00ff10"),
        ..Draft::default()
    };
    let good = seal("T", 0, &draft, &style("1.2.3.4:5", false), (0, 0, 0));
    for bit in 8 * 88..8 * 91 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(
            Record::parse(&bytes).unwrap().check(0).is_err(),
            "bit {bit}"
        );
    }
}
