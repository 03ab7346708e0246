//! Computes the contents of a row from its record.

use super::encode::Batch;
use super::layout::{AT_BODY_CRC, AT_QUEUE_ID, CRC_LEN, FIXED_LEN_V4};
use crate::record::common::{Contents, Draft};

impl Batch {
    /// The contents of the last row, whose record begins at `start` and is not sealed yet.
    pub fn contents_from(&self, start: usize, draft: &Draft<'_>) -> Contents {
        of_row(self.bytes().get(start..).unwrap_or_default(), draft)
    }
}

/// The contents of one row, from its unsealed record and its draft.
fn of_row(record: &[u8], draft: &Draft<'_>) -> Contents {
    let word = |at: usize| {
        let bytes = record.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map_or(0, |bytes| u64::from(u32::from_be_bytes(*bytes)))
    };
    let covered = FIXED_LEN_V4 + draft.body.len()..record.len().saturating_sub(CRC_LEN);
    let words = u64::from(crc32fast::hash(record.get(covered).unwrap_or_default()));
    let body = word(AT_BODY_CRC) | words << 32;
    let place = word(AT_QUEUE_ID) | (draft.body.len() as u64) << 32;
    let time = draft.born_timestamp.map_or(u64::MAX, i64::cast_unsigned);
    let sum = [body, place, time]
        .into_iter()
        .fold(0, |sum, it| mix(sum ^ it));
    Contents { rows: 1, sum }
}

/// Spreads each bit over all 64, so that the sum of many rows depends on every bit of each. This is
/// the finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::error::Result;
    use crate::record::common::{HostBytes, RecordStyle};
    use std::net::{Ipv4Addr, SocketAddr};

    fn of(topic: &str, draft: &Draft<'_>, clock_ms: i64) -> Result<u64> {
        let style = RecordStyle {
            host: HostBytes::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            checksum: true,
            max_message_size: 1 << 20,
        };
        let mut batch = Batch::new(style);
        let queue = draft.queue.unwrap_or(u32::MAX);
        batch.push(topic, queue, draft, clock_ms)?;
        Ok(batch.contents_from(0, draft).sum)
    }

    #[test]
    fn each_column_of_a_row_counts_and_the_clock_does_not() -> Result<()> {
        let (body, other_body) = ([7; 300], [8; 300]);
        let row = Draft {
            body: &body,
            ..Draft::default()
        };
        let sum = of("t", &row, 1)?;
        assert_eq!(sum, of("t", &row, 2)?);
        let pairs = [("a", "b")];
        let others = [
            Draft {
                body: &other_body,
                ..row
            },
            Draft {
                body: &body[1..],
                ..row
            },
            Draft {
                keys: &["k"],
                ..row
            },
            Draft {
                tags: Some("k"),
                ..row
            },
            Draft {
                properties: &pairs,
                ..row
            },
            Draft {
                queue: Some(0),
                ..row
            },
            Draft {
                born_timestamp: Some(1),
                ..row
            },
        ];
        for other in &others {
            assert_ne!(sum, of("t", other, 1)?, "{other:?}");
        }
        assert_ne!(sum, of("u", &row, 1)?);
        Ok(())
    }
}
