//! Bytes written by RocketMQ 5.3.3, read and written again.

use super::{hex, message, plain_crc, seal, style};
use crate::error::Error;
use crate::record::PropertyKind;
use crate::record::id::position_of_id;
use crate::record::rocketmq::Batch;
use crate::record::rocketmq::layout::{
    CRC_LEN, Freshness, Layout, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Record,
};
use crate::record::{Draft, Flaw};

/// Topic `T`, body 01 02 03, keys `k1 k2`, tag `tagA`.
const PLAIN: &str = "
    00000074 daa320a7 55bc801d 00000001 00000007 0000000000000000 0000000000000000 00000000
    0000018bcfe56800 7f000001 000004d2 000001a1fb2554e6 7f000002 00002a9f 00000000
    0000000000000000 00000003 010203 01 54
    0015 4b45595301 6b31206b32 02 5441475301 74616741 02";
/// Born at ::1, without body and properties.
const V6: &str = "
    00000068 daa320a7 00000000 00000001 00000007 0000000000000001 0000000000000074 00000010
    0000018bcfe56800 00000000000000000000000000000001 000004d2 000001a1fb25550d 7f000002
    00002a9f 00000000 0000000000000000 00000000 01 54 0000";
/// With the whole-record checksum.
const CHECKED: &str = "
    00000085 daa320a7 55bc801d 00000001 00000007 0000000000000000 0000000000000000 00000000
    0000018bcfe56800 7f000001 000004d2 000001a1fb2561f6 7f000002 00002a9f 00000000
    0000000000000000 00000003 010203 01 54
    0026 4b455953016b3102 544147530174616741 02 5f5f435243333223 01 30333330353736383930 02";

const BORN: i64 = 1_700_000_000_000;
/// The born host in the examples. A Forebay store writes its own address there.
const BORN_HOST: std::ops::Range<usize> = 48..56;

fn draft<'a>(keys: &'a [&'a str]) -> Draft<'a> {
    Draft {
        body: &[1, 2, 3],
        keys,
        tags: Some("tagA"),
        born_timestamp: Some(BORN),
        flag: 7,
        ..Draft::default()
    }
}

#[test]
fn every_field_of_the_plain_example_is_read() {
    let bytes = hex(PLAIN);
    let record = Record::parse(&bytes).unwrap();
    assert_eq!(record.bytes().len(), 116);
    assert_eq!(record.magic(), MAGIC_V1);
    assert_eq!(record.body_crc(), 0x55bc_801d);
    assert_eq!((record.queue_id(), record.flag()), (1, 7));
    assert_eq!((record.queue_offset(), record.position()), (0, 0));
    assert_eq!((record.sys_flag(), record.reconsume_times()), (0, 0));
    assert_eq!(record.born_timestamp(), BORN);
    assert_eq!(record.store_timestamp(), 0x1a1_fb25_54e6);
    assert_eq!(record.born_host(), "127.0.0.1:1234".parse().unwrap());
    assert_eq!(record.store_host(), "127.0.0.2:10911".parse().unwrap());
    assert_eq!(record.prepared_transaction_offset(), 0);
    assert_eq!(record.stored_body(), [1, 2, 3]);
    assert_eq!(record.topic(), b"T");
    assert_eq!(
        record.raw_properties(),
        b"KEYS\x01k1 k2\x02TAGS\x01tagA\x02"
    );
    assert_eq!(record.stated_crc(), None);
    assert_eq!(record.check(0), Ok(Freshness::Fresh));
    assert_eq!(record.check(8), Err(Flaw::Position(0)));
    assert!(record.is_queued());

    let message = message(&bytes);
    assert_eq!(message.keys(), ["k1", "k2"]);
    assert_eq!(message.tags().as_deref(), Some("tagA"));
    assert_eq!(message.id(), "7F00000200002A9F0000000000000000");
    assert!(message.properties(PropertyKind::User).is_empty());
    assert!(message.properties(PropertyKind::System).is_empty());
}

#[test]
fn a_record_with_an_ipv6_born_host_and_nothing_in_it_is_read() {
    let bytes = hex(V6);
    let record = Record::parse(&bytes).unwrap();
    assert_eq!(record.bytes().len(), 104);
    assert_eq!((record.queue_offset(), record.position()), (1, 116));
    assert_eq!(record.born_host(), "[::1]:1234".parse().unwrap());
    assert_eq!(record.store_host(), "127.0.0.2:10911".parse().unwrap());
    assert_eq!(record.store_timestamp(), 0x1a1_fb25_550d);
    assert_eq!((record.stored_body(), record.topic()), (&[][..], &b"T"[..]));
    assert_eq!(record.raw_properties(), b"");
    assert_eq!(record.check(116), Ok(Freshness::Fresh));
    let id = message(&bytes).id();
    assert_eq!(id, "7F00000200002A9F0000000000000074");
    assert_eq!(position_of_id(&id).unwrap(), 116);
}

#[test]
fn the_whole_record_checksum_is_read_with_its_lowest_digit_first() {
    let bytes = hex(CHECKED);
    let record = Record::parse(&bytes).unwrap();
    assert_eq!(record.stated_crc(), Some(986_750_330));
    assert_eq!(plain_crc(&bytes[..bytes.len() - CRC_LEN]), 986_750_330);
    assert_eq!(record.check(0), Ok(Freshness::Fresh));
    assert!(message(&bytes).properties(PropertyKind::System).is_empty());
}

#[test]
fn a_version_2_record_has_two_bytes_of_topic_length() {
    let topic = [b'%'; 131];
    let mut bytes = hex(PLAIN)[..91].to_vec();
    bytes[7] = 0xab;
    bytes.extend_from_slice(&[0x00, 0x83]);
    bytes.extend_from_slice(&topic);
    bytes.extend_from_slice(&[0, 0]);
    let len = (bytes.len() as u32).to_be_bytes();
    bytes[..4].copy_from_slice(&len);

    let record = Record::parse(&bytes).unwrap();
    assert_eq!(record.magic(), MAGIC_V2);
    assert_eq!(
        (record.topic(), record.stored_body()),
        (&topic[..], &[1, 2, 3][..])
    );
    assert_eq!(record.check(0), Ok(Freshness::Fresh));
}

#[test]
fn the_plain_example_is_written_byte_for_byte() {
    let style = style("127.0.0.2:10911", false);
    let place = (0, 0, 0x1a1_fb25_54e6);
    let mut bytes = seal("T", 1, &draft(&["k1", "k2"]), &style, place);
    let expected = hex(PLAIN);
    bytes[BORN_HOST].copy_from_slice(&expected[BORN_HOST]);
    assert_eq!(bytes, expected);
}

#[test]
fn the_checked_example_is_written_byte_for_byte() {
    // The example's checksum covers another born host. So two steps are compared: everything that
    // it covers, then the digits of a checksum from a second implementation.
    let style = style("127.0.0.2:10911", true);
    let place = (0, 0, 0x1a1_fb25_61f6);
    let mut bytes = seal("T", 1, &draft(&["k1"]), &style, place);
    let expected = hex(CHECKED);
    let covered = expected.len() - CRC_LEN;
    let crc = plain_crc(&bytes[..covered]);
    let digits: String = format!("{crc:010}").chars().rev().collect();
    assert_eq!(
        &bytes[covered..covered + 9],
        &expected[covered..covered + 9]
    );
    assert_eq!(&bytes[covered + 9..covered + 19], digits.as_bytes());
    assert_eq!(bytes.last(), Some(&0x02));
    bytes[BORN_HOST].copy_from_slice(&expected[BORN_HOST]);
    assert_eq!(bytes[..covered], expected[..covered]);
}

#[test]
fn a_store_with_an_ipv6_address_writes_both_hosts_long_and_says_so() {
    let style = style("[2001:db8::7]:10911", true);
    let bytes = seal("T", 1, &draft(&["k1"]), &style, (3, 700, 9));
    let record = Record::parse(&bytes).unwrap();
    assert_eq!(record.sys_flag(), 0x30);
    let host = "[2001:db8::7]:10911".parse().unwrap();
    assert_eq!((record.born_host(), record.store_host()), (host, host));
    assert_eq!((record.queue_offset(), record.store_timestamp()), (3, 9));
    assert_eq!(record.check(700), Ok(Freshness::Fresh));
    let id = message(&bytes).id();
    assert_eq!(id.len(), 56);
    assert_eq!(position_of_id(&id).unwrap(), 700);
}

#[test]
fn the_checksum_of_a_large_body_is_that_of_the_plain_way_at_every_place() {
    let body: Vec<u8> = (0..70_000u32).map(|i| i.wrapping_mul(i) as u8).collect();
    for len in [0, 1, 16_383, 16_384, 16_385, 70_000] {
        for host in ["10.1.2.3:4", "[2001:db8::7]:4"] {
            let draft = Draft {
                body: &body[..len],
                keys: &["k"],
                ..Draft::default()
            };
            let mut batch = Batch::new(style(host, true));
            batch.push("T", 0, &draft, 1).unwrap();
            let row = batch.rows()[0];
            for place in [0, 1, u64::from(u32::MAX), i64::MAX as u64] {
                let bytes = batch.seal(row, place, place, 7).to_vec();
                let record = Record::parse(&bytes).unwrap();
                let covered = &bytes[..bytes.len() - CRC_LEN];
                assert_eq!(
                    record.stated_crc(),
                    Some(plain_crc(covered)),
                    "{len} {host}"
                );
                assert_eq!(record.body_crc(), plain_crc_of_body(&body[..len]));
                assert_eq!(record.check(place), Ok(Freshness::Fresh));
            }
        }
    }
}

fn plain_crc_of_body(body: &[u8]) -> u32 {
    if body.is_empty() { 0 } else { plain_crc(body) }
}

#[test]
fn a_copied_checksum_is_stale_and_no_damage_unless_the_body_is_damaged() {
    // A broker that delivers a delayed message copies its properties, including the checksum, into
    // a record with another place and topic.
    let system = [("REAL_TOPIC", "T")];
    let draft = Draft {
        system_properties: &system,
        ..draft(&["k1"])
    };
    let style = style("127.0.0.2:10911", true);
    let mut bytes = seal("T", 1, &draft, &style, (0, 0, 5));
    bytes[28..36].copy_from_slice(&900u64.to_be_bytes());
    assert_eq!(
        Record::parse(&bytes).unwrap().check(900),
        Ok(Freshness::Stale)
    );
    bytes[88] ^= 1;
    let damaged = Record::parse(&bytes).unwrap().check(900);
    assert_eq!(damaged, Err(Flaw::RecordChecksum));
}

#[test]
fn what_is_no_record_is_told_apart() {
    let record = hex(PLAIN);
    assert_eq!(Layout::parse(&[0; 64]), Err(Flaw::Empty));
    assert_eq!(Layout::parse(&record[..7]), Err(Flaw::Length(7)));
    assert_eq!(Layout::parse(&record[..115]), Err(Flaw::Length(116)));
    let blank = hex("0000102c cbd43194 00000000");
    assert_eq!(Layout::parse(&blank), Err(Flaw::Magic(MAGIC_BLANK)));

    let changed = |at: usize, byte: u8| {
        let mut bytes = record.clone();
        bytes[at] = byte;
        Layout::parse(&bytes).unwrap_err()
    };
    assert_eq!(
        changed(0, 0x80),
        Flaw::Length(i64::from(0x8000_0074_u32 as i32))
    );
    assert_eq!(changed(3, 0x73), Flaw::Length(0x73));
    assert_eq!(changed(7, 0xa8), Flaw::Magic(0xdaa3_20a8));
    assert_eq!(changed(84, 0xff), Flaw::Field("body length"));
    assert_eq!(changed(91, 0x80), Flaw::Field("topic length"));
    assert_eq!(changed(91, 0x7f), Flaw::Field("topic length"));
    assert_eq!(changed(93, 0x80), Flaw::Length(116));
    assert_eq!(changed(94, 0x16), Flaw::Length(116));
}

#[test]
fn a_topic_longer_than_its_length_byte_is_refused_and_leaves_the_batch_as_it_was() {
    let style = style("127.0.0.2:10911", true);
    let mut batch = Batch::new(style);
    let draft = Draft::default();
    batch.push(&"t".repeat(127), 0, &draft, 0).unwrap();
    let before = batch.encoded_len();
    let refused = batch.push(&"t".repeat(128), 0, &draft, 0);
    assert!(matches!(refused, Err(Error::InvalidTopic { .. })));
    assert_eq!((batch.encoded_len(), batch.rows().len()), (before, 1));
    let row = batch.rows()[0];
    assert_eq!(
        Record::parse(batch.seal(row, 0, 0, 0))
            .unwrap()
            .topic()
            .len(),
        127
    );
}
