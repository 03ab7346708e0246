//! Batches and messages, well formed and not.

use super::{batch, message, plain, read};
use crate::record::common::Flaw;
use crate::record::kafka::varint::Reader;
use crate::record::kafka::{Header, Opened, TransactionMarker};
use proptest::prelude::*;

/// The example of the format's description: three records, as Kafka wrote them.
const EXAMPLE: &str = "\
    0000000000000001 00000082 00000003 02 c4f2cfd5 0000 00000002 0000018bcfe56807 0000018bcfe56815 \
    ffffffffffffffff ffff ffffffff 00000003 \
    32 00 00 00 0a 6b65792d31 0c 6f7264393130 02 0a 7472616365 02 31 \
    44 00 0e 02 0a 6b65792d32 0c 6f7264393735 06 06 647570 02 01 06 647570 02 02 06 6e696c 01 \
    26 00 1c 04 0a 6b65792d33 0c 6f7264316430 02 00 00";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn the_example_of_the_description_is_read() {
    let found = read(&bytes(EXAMPLE), true).unwrap();
    let places: Vec<(u64, i64)> = found.iter().map(|it| (it.offset, it.timestamp)).collect();
    let base = 0x18b_cfe5_6807;
    assert_eq!(places, [(1, base), (2, base + 7), (3, base + 14)]);
    assert_eq!(found[0].key.as_deref(), Some(&b"key-1"[..]));
    assert_eq!(found[2].value.as_deref(), Some(&b"ord1d0"[..]));
    let header = |name: &[u8], value: Option<&[u8]>| (name.to_vec(), value.map(<[u8]>::to_vec));
    assert_eq!(found[0].headers, [header(b"trace", Some(b"1"))]);
    assert_eq!(
        found[1].headers,
        [
            header(b"dup", Some(&[1])),
            header(b"dup", Some(&[2])),
            header(b"nil", None),
        ]
    );
    assert_eq!(found[2].headers, [header(b"", Some(b""))]);
}

#[test]
fn an_empty_batch_has_no_records_and_its_last_offset() {
    let mut empty = batch(0, 0, b"");
    empty[23..27].copy_from_slice(&9i32.to_be_bytes());
    assert_eq!(read(&empty, false).unwrap(), []);
    assert_eq!(Header::parse(&empty).unwrap().last_offset(), 14);
}

#[test]
fn the_time_of_the_append_is_that_of_every_record() {
    // Length 7, attributes, time +1, offset +0, null key, null value, no headers.
    let record = [0x0C, 0, 2, 0, 1, 1, 0];
    assert_eq!(
        read(&batch(0, 1, &record), true).unwrap(),
        [plain(5, 1001, None, None)]
    );
    assert_eq!(
        read(&batch(8, 1, &record), true).unwrap(),
        [plain(5, 2000, None, None)]
    );
}

#[test]
fn records_that_contradict_their_batch_are_flaws() {
    let record = [0x0C, 0, 2, 0, 1, 1, 0];
    let flaw = |attributes, count, records: &[u8]| {
        read(&batch(attributes, count, records), true).unwrap_err()
    };
    assert_eq!(
        flaw(0, 1, &[record, record].concat()),
        Flaw::Field("number of records")
    );
    assert_eq!(flaw(0, 2, &record), Flaw::Field("length of a record"));
    assert_eq!(
        flaw(0, 2, &[record, record].concat()),
        Flaw::Field("offset of a record")
    );
    assert_eq!(flaw(0, -1, &record), Flaw::Field("number of records"));
    assert_eq!(
        flaw(0, i32::MAX, &record),
        Flaw::Field("length of a record")
    );
    for codec in 5..8 {
        assert_eq!(flaw(codec, 1, &record), Flaw::Field("codec"));
    }
    let beyond = [0x0C, 0, 2, 2, 1, 1, 0];
    assert_eq!(flaw(0, 1, &beyond), Flaw::Field("offset of a record"));
    for at in [0, 4, 5, 6] {
        let mut damaged = record;
        damaged[at] ^= 0x5A;
        assert!(matches!(flaw(0, 1, &damaged), Flaw::Field(_)), "byte {at}");
    }
}

#[test]
fn headers_of_batches_are_bounded() {
    let good = bytes(EXAMPLE);
    let with = |at: usize, change: &[u8]| {
        let mut header = good.clone();
        header[at..at + change.len()].copy_from_slice(change);
        Header::parse(&header).unwrap_err()
    };
    assert_eq!(Header::parse(&[0; 61]), Err(Flaw::Empty));
    assert_eq!(with(0, &[0xFF]), Flaw::Field("offset"));
    assert_eq!(with(8, &(-1i32).to_be_bytes()), Flaw::Length(-1));
    assert_eq!(with(8, &13i32.to_be_bytes()), Flaw::Length(13));
    assert_eq!(with(8, &48i32.to_be_bytes()), Flaw::Length(60));
    let longest = i64::from(i32::MAX) + 12;
    assert_eq!(with(8, &i32::MAX.to_be_bytes()), Flaw::Length(longest));
    assert_eq!(with(16, &[3]), Flaw::Magic(3));
    assert_eq!(with(23, &[0xFF]), Flaw::Field("last offset"));
    assert_eq!(with(0, &i64::MAX.to_be_bytes()), Flaw::Field("last offset"));
}

#[test]
fn a_wrapper_of_format_1_counts_from_its_last_message() {
    let inner = [message(0, 0, Some(7), b"a"), message(1, 0, Some(8), b"b")].concat();
    let packed = gzip(&inner);
    let own = read(&message(11, 1, Some(8), &packed), true).unwrap();
    let expected = [
        plain(10, 7, None, Some(b"a")),
        plain(11, 8, None, Some(b"b")),
    ];
    assert_eq!(own, expected);
    // Some producers left the wrapper's offset 0.
    let zero = read(&message(0, 1, Some(8), &packed), true).unwrap();
    assert_eq!((zero[0].offset, zero[1].offset), (0, 1));
    // All records have the time of the append.
    let stamped = read(&message(11, 9, Some(99), &packed), true).unwrap();
    assert_eq!((stamped[0].timestamp, stamped[1].timestamp), (99, 99));
    // An incomplete message at the end is ignored.
    let cut = gzip(&inner[..inner.len() - 1]);
    let cut = read(&message(11, 1, Some(8), &cut), true).unwrap();
    assert_eq!(cut, [plain(11, 7, None, Some(b"a"))]);
}

#[test]
fn a_wrapper_holds_plain_messages_of_its_own_format() {
    let wrap = |inner: &[u8]| message(5, 1, Some(8), &gzip(inner));
    let flaw = |inner: &[u8]| read(&wrap(inner), true).unwrap_err();
    assert_eq!(flaw(b""), Flaw::Field("wrapper without messages"));
    assert_eq!(flaw(&message(0, 0, None, b"a")), Flaw::Magic(0));
    assert_eq!(flaw(&wrap(b"")), Flaw::Field("wrapper in a wrapper"));
    let twice = message(3, 0, Some(1), b"a").repeat(2);
    assert_eq!(flaw(&twice), Flaw::Field("offset in a wrapper"));
    let high = message(6, 0, Some(1), b"a");
    assert_eq!(flaw(&high), Flaw::Field("offset in a wrapper"));
    let mut damaged = message(0, 0, Some(1), b"a");
    damaged[12] ^= 1;
    assert_eq!(flaw(&damaged), Flaw::BodyChecksum);
    let null = &mut message(5, 1, Some(8), b"");
    let at = null.len() - 4;
    null[at..].copy_from_slice(&(-1i32).to_be_bytes());
    assert_eq!(
        read(null, false),
        Err(Flaw::Field("wrapper without messages"))
    );
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_control_record_says_how_a_transaction_ends() {
    let control = |kind: u8| {
        let record = [0x20, 0, 0, 0, 8, 0, 0, 0, kind, 12, 0, 0, 0, 0, 0, 9, 0];
        let mut opened = Opened::open(batch(0x30, 1, &record), true).unwrap();
        assert!(opened.header().is_control() && opened.header().is_transactional());
        opened.marker().unwrap()
    };
    assert_eq!(control(0), Some(TransactionMarker::Abort));
    assert_eq!(control(1), Some(TransactionMarker::Commit));
    assert_eq!(control(2), None);
}

#[test]
fn numbers_of_variable_length_are_in_zigzag_form() {
    let short = |bytes: &[u8]| Reader::new(bytes).varint();
    assert_eq!(short(&[0]), Some(0));
    assert_eq!(short(&[1]), Some(-1));
    assert_eq!(short(&[0x80, 1]), Some(64));
    assert_eq!(short(&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F]), Some(i32::MIN));
    assert_eq!(short(&[0x80; 5]), None);
    assert_eq!(short(&[0x80]), None);
    let long = |bytes: &[u8]| Reader::new(bytes).varlong();
    let least = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1];
    assert_eq!(long(&least), Some(i64::MIN));
    assert_eq!(long(&[0x80; 10]), None);
}

proptest! {
    #![proptest_config(crate::seeds::proptest_config())]

    #[test]
    fn any_bytes_are_a_batch_or_a_flaw(mut bytes: Vec<u8>, magic in 0u8..3) {
        let _ = read(&bytes, false);
        let len = bytes.len();
        if len > 26 {
            bytes[..12].copy_from_slice(&[0; 12]);
            bytes[8..12].copy_from_slice(&(len as i32 - 12).to_be_bytes());
            bytes[16] = magic;
            let _ = read(&bytes, false);
        }
    }
}
