//! What searches by time have found out about complete segments.

use super::segment::Segment;
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The greatest times of complete segments that searches have read to their ends, by base offset.
/// Kept because such a search reads most of a segment where many times are equal or decrease.
#[derive(Debug, Default)]
pub struct NewestTimes(Mutex<BTreeMap<u64, Known>>);

#[derive(Debug)]
struct Known {
    segment: Arc<Segment>,
    /// When its file was modified: a broker may have cut the segment and written others.
    modified_ms: Option<i64>,
    newest: i64,
}

impl NewestTimes {
    /// Whether all messages of a segment are known to be earlier than a time.
    pub fn is_before(&self, segment: &Segment, modified_ms: Option<i64>, time: i64) -> bool {
        let known = self.0.lock();
        let is_known = |known: &&Known| {
            *known.segment == *segment && known.modified_ms == modified_ms && known.newest < time
        };
        known.get(&segment.base).filter(is_known).is_some()
    }

    /// Notes the greatest time of a complete segment.
    pub fn add(
        &self,
        segments: &[Arc<Segment>],
        segment: &Arc<Segment>,
        modified_ms: Option<i64>,
        newest: i64,
    ) {
        let mut known = self.0.lock();
        if known.len() > segments.len() {
            let is_there = |base: &u64| segments.binary_search_by_key(base, |it| it.base).is_ok();
            known.retain(|base, _| is_there(base));
        }
        let segment = Arc::clone(segment);
        let new = Known {
            modified_ms,
            newest,
            segment,
        };
        known.insert(new.segment.base, new);
    }
}
