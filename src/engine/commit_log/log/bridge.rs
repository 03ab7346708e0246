//! Bridges: records that fill a hole in the log, so that every reader of the log gets past it.
//!
//! A hole is filled by one record that ends where the next one begins; a long hole by several. The
//! records are marked as rolled back: they are in the log, but in no queue and no index, for
//! RocketMQ as for Forebay. So no queue gets a message that nobody sent, and a second repair can
//! fill holes before or after those of the first.
//!
//! ```text
//! topic    rmq_sys_forebay_repair, or as much of it as there is room for
//! flag     0x42726467, sysFlag 0xC (rolled back)
//! body     zeros
//! ```
//!
//! Queue entries of messages that were in the hole point to its first record, with a special tag
//! code. RocketMQ's filler entry cannot be used instead: RocketMQ would skip the rest of the first
//! log file, and cut off a queue whose last entry is a filler.
//!
//! If a hole reaches the end of the file, the last bytes become the BLANK that closes a file.

use super::blank::blank;
use crate::error::Result;
use crate::num::index;
use crate::record::rocketmq::layout::{BLANK_LEN, CRC_LEN, RECORD_LEN_MIN, sys_flag};
use crate::record::rocketmq::{Batch, Record};
use crate::record::{Draft, HostBytes, RecordStyle};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

/// Topic of the records, cut to fit.
const TOPIC: &str = "rmq_sys_forebay_repair";
/// The user's flag of the records: "Brdg".
const FLAG: i32 = 0x4272_6467;
/// Maximum length of a record. RocketMQ allocates the length of a record when it walks the log.
const PIECE_MAX: u64 = 4 << 20;
/// Bytes left for the last record, so that it is not too short.
const PIECE_REST: u64 = 4096;
/// Length of the first record of a long hole. RocketMQ returns it for each lost message.
const FIRST_LEN: u64 = 4096;

/// Whether a record fills a hole.
#[inline]
pub fn is_bridge(record: &Record<'_>) -> bool {
    record.flag() == FLAG
        && record.sys_flag() & sys_flag::TRANSACTION == sys_flag::ROLLBACK
        && TOPIC.as_bytes().starts_with(record.topic())
}

/// The first record to fill a hole of a file; `None` if there is no room for one.
pub fn first(hole: &Range<u64>, file: &Range<u64>) -> Option<Range<u64>> {
    let filler = if hole.end == file.end { BLANK_LEN } else { 0 };
    let len = (hole.end - hole.start).saturating_sub(filler as u64);
    let first = if len > 2 * FIRST_LEN { FIRST_LEN } else { len };
    (len > RECORD_LEN_MIN as u64).then(|| hole.start..hole.start + first)
}

/// Whether a hole of a file can be filled: it has room for the shortest record, or for the BLANK
/// that closes the file.
pub fn can_fill(hole: &Range<u64>, file: &Range<u64>) -> bool {
    // A file must begin with a record: RocketMQ reads the magic and the store time there.
    let ends = hole.end == file.end && hole.start > file.start;
    first(hole, file).is_some() || ends && hole.end - hole.start >= BLANK_LEN as u64
}

/// Passes what fills `hole`, a part of the file at `file`, to `put`, as positions and bytes.
/// `first` is the first record; if `None`, the hole becomes the BLANK that closes the file.
///
/// # Errors
///
/// Those of `put`, and of the encoding, which cannot fail if [`can_fill`] holds.
pub fn fill(
    hole: &Range<u64>,
    file: &Range<u64>,
    first: Option<Range<u64>>,
    store_ms: i64,
    put: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut at, mut end) = (hole.start, hole.end);
    if end == file.end {
        end = match first {
            Some(_) => end - BLANK_LEN as u64,
            None => at,
        };
        put(end, &blank(file.end - end))?;
    }
    if let Some(first) = first {
        record(at, first.end - at, store_ms, put)?;
        at = first.end;
    }
    while at < end {
        let len = match end - at {
            left if left > PIECE_MAX => PIECE_MAX - PIECE_REST,
            left => left,
        };
        record(at, len, store_ms, put)?;
        at += len;
    }
    Ok(())
}

/// Encodes a record of exactly `len` bytes.
fn record(
    position: u64,
    len: u64,
    store_ms: i64,
    put: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let room = index(len) - RECORD_LEN_MIN;
    // A record too short for a checksum can only replace one that had none.
    let checksum = room > CRC_LEN;
    let room = if checksum { room - CRC_LEN } else { room };
    let topic = TOPIC.get(..room).unwrap_or(TOPIC);
    let body = vec![0; room - topic.len()];
    let style = RecordStyle {
        host: HostBytes::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
        checksum,
        max_message_size: index(PIECE_MAX),
    };
    let draft = Draft {
        body: &body,
        flag: FLAG,
        ..Draft::default()
    };
    let mut batch = Batch::new(style);
    batch.push(topic, 0, &draft, store_ms)?;
    batch.roll_back();
    let Some(row) = batch.rows().first().copied() else {
        return Ok(());
    };
    put(position, batch.seal(row, 0, position, store_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that fills a hole, in order of position.
    fn filled(hole: Range<u64>, file: Range<u64>) -> Vec<(u64, Vec<u8>)> {
        let mut pieces = Vec::new();
        let mut put = |at, bytes: &[u8]| {
            pieces.push((at, bytes.to_vec()));
            Ok(())
        };
        fill(&hole, &file, first(&hole, &file), 77, &mut put).unwrap();
        pieces.sort();
        pieces
    }

    #[test]
    fn a_hole_of_any_length_is_filled_to_the_byte() {
        let lens = (92..400).chain([4096, PIECE_MAX - 1, PIECE_MAX, PIECE_MAX + 1, 3 * PIECE_MAX]);
        for len in lens {
            let (hole, file) = (1000..1000 + len, 0..1 << 30);
            assert!(can_fill(&hole, &file));
            let mut at = 1000;
            for (position, bytes) in filled(hole.clone(), file) {
                assert_eq!(position, at);
                let record = Record::parse(&bytes).unwrap();
                record.check(position).unwrap();
                record.check_body().unwrap();
                assert!(is_bridge(&record) && !record.is_queued());
                assert_eq!(record.stated_crc().is_some(), bytes.len() > 111, "{len}");
                assert_eq!(record.store_timestamp(), 77);
                at += bytes.len() as u64;
            }
            assert_eq!(at, hole.end);
            let first = first(&hole, &(0..1 << 30)).unwrap();
            assert!(first.end - first.start <= len.min(2 * FIRST_LEN));
        }
        for len in 1..92 {
            assert!(!can_fill(&(1000..1000 + len), &(0..1 << 30)), "{len}");
        }
    }

    #[test]
    fn the_end_of_a_file_becomes_a_filler() {
        for len in [8, 9, 91, 99] {
            let pieces = filled(5000 - len..5000, 0..5000);
            assert_eq!(pieces, [(5000 - len, blank(len).to_vec())]);
        }
        let pieces = filled(4900..5000, 0..5000);
        assert_eq!(pieces[0].1.len(), 92);
        assert_eq!(pieces[1], (4992, blank(8).to_vec()));
        assert!(!can_fill(&(4993..5000), &(0..5000)));
        let pieces = filled(5000..10_000, 5000..10_000);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].1.len(), 4992);
        assert_eq!(pieces[1], (9992, blank(8).to_vec()));
    }
}
