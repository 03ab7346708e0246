//! The last batch of each producer, which a broker needs to continue its sequence.

use super::source::Source;
use crate::disk::Disk;
use crate::engine::partition_log::write::ends::Ends;
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

/// The producers of a partition. Most logs have none, so they are searched when the first batch of
/// one is dropped.
pub struct Producers<'a> {
    /// Has the current segments, some of which the pass itself has written.
    ends: &'a Ends,
    now_ms: i64,
    known: Option<HashMap<i64, Last>>,
}

impl Producers<'_> {
    /// The producers of a partition with these ends.
    pub fn new(ends: &Ends, now_ms: i64) -> Producers<'_> {
        Producers {
            ends,
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
            none => none.insert(find(disk, self.ends)?),
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

/// Reads all segments, including the one that is written.
fn find(disk: &dyn Disk, ends: &Ends) -> Result<HashMap<i64, Last>> {
    let (segments, _) = ends.seen();
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
