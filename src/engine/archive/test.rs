//! Encoding and decoding tables, their contents, and invalid bytes.

use super::blocks::{Block, BlockTable, Run, SkippedRange};
use super::keys::{encode, key_hash};
use crate::error::Error;
use proptest::prelude::*;
use std::path::Path;

fn path() -> &'static Path {
    Path::new("archive/blocks/00000000000000000000")
}

fn table() -> BlockTable {
    let block = |position, length, runs| Block {
        position,
        length,
        checksum: 7,
        records: 2,
        times: (-1, i64::MAX),
        runs,
    };
    let run = |queue, first, end| Run {
        queue,
        records: 2,
        bytes: 200,
        first,
        end,
    };
    BlockTable {
        start: 4096,
        length: 300,
        topics: vec![b"orders".to_vec(), vec![0xFF]],
        queues: vec![(0, 0), (0, 3), (1, 0)],
        blocks: vec![block(4096, 100, 0..2), block(4196, 200, 2..4)],
        runs: vec![run(0, 0, 10), run(2, 5, 6), run(0, 12, 20), run(1, 0, 1)],
        holes: vec![SkippedRange {
            position: 4100,
            length: 9,
            reason: "zeros instead of a record".into(),
        }],
        slots: encode(vec![(5, 1)]).1,
    }
}

fn wanted(ranges: &[(&str, u32, std::ops::Range<u64>)]) -> super::Wanted {
    let mut wanted = super::Wanted::default();
    for (topic, queue, range) in ranges {
        let queues = wanted.entry(topic.as_bytes().to_vec()).or_default();
        queues.entry(*queue).or_default().push(range.clone());
    }
    wanted
}

#[test]
fn a_table_comes_back_as_it_was() {
    let bytes = table().encode();
    assert_eq!(BlockTable::decode(&bytes, path()).unwrap(), table());
}

#[test]
fn any_changed_or_missing_byte_of_a_table_is_noticed() {
    let bytes = table().encode();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(BlockTable::decode(&changed, path()).is_err(), "byte {at}");
        assert!(BlockTable::decode(&bytes[..at], path()).is_err(), "{at}");
    }
    let mut later = bytes;
    later[11] = 2;
    let refused = BlockTable::decode(&later, path());
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
}

#[test]
fn blocks_are_selected_by_the_offsets_that_they_hold() {
    let table = table();
    let select = |ranges: &[_]| table.select(&wanted(ranges));
    assert_eq!(select(&[("orders", 0, 0..100)]), [0, 1]);
    assert_eq!(select(&[("orders", 0, 10..12)]), [0; 0]);
    assert_eq!(select(&[("orders", 0, 19..20), ("orders", 3, 5..6)]), [1]);
    assert_eq!(select(&[("bills", 0, 0..100)]), [0; 0]);
    assert_eq!(
        table.weights(&wanted(&[("orders", 0, 0..1), ("orders", 3, 0..1)])),
        [200, 200]
    );
    assert_eq!(table.ends_before(0), []);
    let before = table.ends_before(1);
    assert_eq!(before[0], ("orders".to_owned(), 0, 10));
    assert_eq!(table.ends_before(2)[0], ("orders".to_owned(), 0, 20));
}

#[test]
fn a_key_leads_to_every_block_that_holds_it() {
    let key = |number: u32| format!("key-{number}").into_bytes();
    let pairs = (0..10_000_u32).map(|n| (key_hash(b"orders", &key(n)), n % 2));
    let twice = pairs
        .clone()
        .chain((0..100).map(|n| (key_hash(b"orders", &key(n)), 1)));
    let (row, slots) = encode(twice.collect());
    let table = BlockTable { slots, ..table() };
    let look = |number| {
        let range = table.key_range(b"orders", &key(number));
        let bytes = &row[range.start as usize..range.end as usize];
        assert!(bytes.len() < 3 * 8 * 1024);
        table.key_blocks(b"orders", &key(number), bytes, path())
    };
    assert_eq!(look(0).unwrap(), [0, 1]);
    assert_eq!(look(1).unwrap(), [1]);
    assert_eq!(look(9_998).unwrap(), [0]);
    assert!(!look(10_001).unwrap().contains(&2));
    let damaged = table.key_blocks(b"orders", &key(1), b"", path());
    assert!(matches!(damaged, Err(Error::Corrupt { .. })));
}

proptest! {
    #![proptest_config(crate::seeds::proptest_config())]

    #[test]
    fn no_bytes_make_the_decoder_panic(tail in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = table().encode();
        let at = tail.len().min(bytes.len() - 16);
        bytes[16..16 + at].copy_from_slice(&tail[..at]);
        let checksum = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_be_bytes());
        if let Ok(table) = BlockTable::decode(&bytes, path()) {
            let _ = (table.queue_ranges(), table.select(&wanted(&[("orders", 0, 0..9)])));
            let _ = (table.ends_before(1), table.key_range(b"orders", b"key"));
        }
    }
}
