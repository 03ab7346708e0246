//! What a pass knows of transactions: which data was aborted, and which markers are still needed.
//!
//! A marker is needed until the log has no data of its transaction. The log itself says how a
//! transaction ended; the transaction index does not have to exist.

use super::source::{Complete, Source, is_transactional_data};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::record::kafka::{Header, TransactionMarker};
use std::collections::{HashMap, HashSet, VecDeque};

/// The transactions of the batches that a pass reads, in order.
pub struct Transactions<'a> {
    complete: &'a Complete,
    /// Where markers are searched: the segment to open next, and the open one.
    next: usize,
    source: Option<Source>,
    /// Markers found so far, by producer: offset, and how the transaction ended.
    markers: HashMap<i64, VecDeque<(u64, TransactionMarker)>>,
    /// Producers with data since their last marker.
    with_data: HashSet<i64>,
    /// Offsets of the abort markers whose transaction had data.
    aborts: Vec<u64>,
}

impl<'a> Transactions<'a> {
    /// For batches of some of these segments. Markers are searched for in all of them.
    pub fn new(complete: &'a Complete) -> Transactions<'a> {
        Transactions {
            complete,
            next: 0,
            source: None,
            markers: HashMap::new(),
            with_data: HashSet::new(),
            aborts: Vec::new(),
        }
    }

    /// Takes a batch of data. Returns whether it was aborted.
    ///
    /// # Errors
    ///
    /// Errors of reading; [`Error::Corrupt`] if the segments do not say how its transaction ended.
    pub fn is_aborted(&mut self, disk: &dyn Disk, header: &Header) -> Result<bool> {
        if !is_transactional_data(header) {
            return Ok(false);
        }
        self.with_data.insert(header.producer_id);
        Ok(self.outcome(disk, header)? == TransactionMarker::Abort)
    }

    /// Takes a control batch. Returns whether it can be dropped.
    pub fn is_needless(&mut self, header: &Header, marker: Option<TransactionMarker>) -> bool {
        let Some(marker) = marker else {
            // A batch that lost its record in an earlier pass, or a record of another kind.
            return header.record_count == Some(0);
        };
        let had_data = self.with_data.remove(&header.producer_id);
        if had_data && marker == TransactionMarker::Abort {
            self.aborts.push(header.last_offset());
        }
        !had_data
    }

    /// Takes the offsets of the abort markers that are needed, in order.
    pub fn take_aborts(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.aborts)
    }

    fn outcome(&mut self, disk: &dyn Disk, header: &Header) -> Result<TransactionMarker> {
        // The pass may have replaced the segments before this batch.
        let own = self.complete.number_of(header.first_offset());
        self.next = self.next.max(own);
        loop {
            let markers = self.markers.entry(header.producer_id).or_default();
            while markers
                .front()
                .is_some_and(|(offset, _)| *offset < header.last_offset())
            {
                markers.pop_front();
            }
            if let Some((_, marker)) = markers.front() {
                return Ok(*marker);
            }
            if self.source.is_none() {
                self.source = self.complete.source(disk, self.next, 0)?;
                self.next += 1;
            }
            let Some(source) = &mut self.source else {
                return Err(unknown(self.complete, header));
            };
            match source.next(disk)? {
                None => self.source = None,
                Some(found) if found.header.is_control() => {
                    let mut opened = source.open_batch(&found, source.bytes(&found)?)?;
                    let marker = opened
                        .marker()
                        .map_err(|flaw| source.flawed(&found, flaw))?;
                    if let Some(marker) = marker {
                        let (producer, offset) =
                            (found.header.producer_id, found.header.last_offset());
                        let markers = self.markers.entry(producer).or_default();
                        markers.push_back((offset, marker));
                    }
                }
                Some(_) => {}
            }
        }
    }
}

fn unknown(complete: &Complete, header: &Header) -> Error {
    let path = complete.segments.last().map(|it| it.path.clone());
    Error::corrupt(
        path.unwrap_or_default(),
        0,
        format!(
            "no marker says how the transaction at offset {} ended",
            header.first_offset()
        ),
    )
}
