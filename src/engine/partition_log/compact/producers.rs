//! The last batch of each producer, which a broker needs to continue its sequence.

use super::source::Source;
use crate::disk::Disk;
use crate::engine::partition_log::segments::segment::Segments;
use crate::error::Result;
use crate::record::kafka::{Header, rebuild};
use std::collections::HashMap;
use std::sync::Arc;

/// Producers without a message for this long are forgotten: `producer.id.expiration.ms`.
const EXPIRATION_MS: i64 = 24 * 3600 * 1000;

/// What the log says of a producer last.
#[derive(Clone, Copy, Debug)]
struct Last {
    epoch: i16,
    /// Last offset of its last batch of data in this epoch.
    data: Option<u64>,
    timestamp: i64,
}

/// The producers of a partition. They are looked for when the first batch of one is dropped: most
/// logs have none.
pub struct Producers {
    /// All segments, including the one that is written.
    segments: Segments,
    now_ms: i64,
    known: Option<HashMap<i64, Last>>,
}

impl Producers {
    /// The producers of a partition with these segments.
    pub fn new(segments: Segments, now_ms: i64) -> Producers {
        Producers {
            segments,
            now_ms,
            known: None,
        }
    }

    /// Whether a batch is the last of its producer: the last data, or else the marker that states
    /// its epoch.
    ///
    /// # Errors
    ///
    /// Errors of reading the log.
    pub fn is_last(&mut self, disk: &dyn Disk, header: &Header, batch: &[u8]) -> Result<bool> {
        if header.producer_id < 0 {
            return Ok(false);
        }
        let known = match &mut self.known {
            Some(known) => known,
            none => none.insert(find(disk, &self.segments)?),
        };
        let Some(last) = known.get(&header.producer_id) else {
            return Ok(false);
        };
        if self.now_ms.saturating_sub(last.timestamp) > EXPIRATION_MS {
            return Ok(false);
        }
        Ok(match last.data {
            Some(offset) => header.last_offset() == offset,
            None => header.is_control() && rebuild::producer_epoch(batch) == last.epoch,
        })
    }
}

fn find(disk: &dyn Disk, segments: &Segments) -> Result<HashMap<i64, Last>> {
    let mut known: HashMap<i64, Last> = HashMap::new();
    for segment in segments.iter() {
        let mut source = Source::open(disk, &Arc::clone(segment), u64::MAX, 0)?;
        while let Some(found) = source.next(disk)? {
            let header = &found.header;
            if header.producer_id < 0 {
                continue;
            }
            let epoch = rebuild::producer_epoch(&source.bytes(&found)?);
            let timestamp = header.max_timestamp;
            let before = known.get(&header.producer_id);
            let data = match header.is_control() {
                false => Some(header.last_offset()),
                true => before.filter(|it| it.epoch == epoch).and_then(|it| it.data),
            };
            let last = Last {
                epoch,
                data,
                timestamp,
            };
            known.insert(header.producer_id, last);
        }
    }
    Ok(known)
}
