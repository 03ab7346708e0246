//! Batches that were read in part.
//!
//! A batch may have tens of thousands of messages, of which a read, a poll or a tail takes a few
//! hundred at a time. Each of them would read and check the whole batch again. So a cursor that
//! ends within a long batch leaves it here, unpacked, for the cursor that begins there.

use super::folder::Folder;
use super::segments::walk::FoundBatch;
use crate::record::kafka::Opened;
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Minimum bytes of memory of a batch that is kept: a smaller one is quickly read again.
const MEMORY_MIN: usize = 32 << 10;
/// Maximum bytes of memory of all kept batches; a single larger one is kept, too.
const MEMORY_MAX: usize = 32 << 20;

/// A batch, and where it is.
#[derive(Debug)]
struct HalfRead {
    folder: Arc<Folder>,
    /// Base of its segment.
    segment: u64,
    found: FoundBatch,
    /// Whether its checksum was verified.
    is_checked: bool,
    opened: Opened,
}

/// What the cursors of a store have left, the newest last.
#[derive(Debug, Default)]
pub(super) struct HalfReads {
    batches: Mutex<VecDeque<HalfRead>>,
    #[cfg(test)]
    taken: std::sync::atomic::AtomicU64,
}

/// The batch that a cursor wants.
pub(super) struct Wanted<'a> {
    pub(super) folder: &'a Arc<Folder>,
    /// Base of its segment.
    pub(super) segment: u64,
    /// The batch by its header as just read, because the file may have been replaced.
    pub(super) found: &'a FoundBatch,
    /// The first offset wanted.
    pub(super) at: u64,
    pub(super) is_checked: bool,
    /// Whether its messages may be read in place.
    pub(super) may_be_lent: bool,
}

impl HalfReads {
    /// Keeps a batch if it is worth the memory. Does not wait for the lock: a cursor may end in a
    /// forked child, where nobody would unlock it.
    pub(super) fn keep(
        &self,
        folder: &Arc<Folder>,
        segment: u64,
        (opened, found): (Opened, FoundBatch),
        is_checked: bool,
    ) {
        if opened.memory() < MEMORY_MIN || opened.next_offset().is_none() {
            return;
        }
        let Some(mut batches) = self.batches.try_lock() else {
            return;
        };
        batches.push_back(HalfRead {
            folder: Arc::clone(folder),
            segment,
            found,
            is_checked,
            opened,
        });
        let mut memory: usize = batches.iter().map(|it| it.opened.memory()).sum();
        while memory > MEMORY_MAX && batches.len() > 1 {
            let oldest = batches.pop_front();
            memory -= oldest.map_or(0, |it| it.opened.memory());
        }
    }

    /// Takes the batch, if one was left at the first offset wanted. Others belong to other readers.
    pub(super) fn take(&self, wanted: &Wanted<'_>) -> Option<Opened> {
        let mut batches = self.batches.try_lock()?;
        let number = batches.iter().position(|it| it.is(wanted))?;
        #[cfg(test)]
        self.taken
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        batches.remove(number).map(|it| it.opened)
    }

    /// Frees their memory.
    pub(super) fn clear(&self) {
        self.batches.lock().clear();
    }

    /// How many batches cursors have continued with.
    #[cfg(test)]
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        let batches = self.batches.lock();
        batches.iter().map(|it| it.opened.memory()).sum()
    }
}

impl HalfRead {
    fn is(&self, wanted: &Wanted<'_>) -> bool {
        let FoundBatch { position, header } = wanted.found;
        Arc::ptr_eq(&self.folder, wanted.folder)
            && self.segment == wanted.segment
            && self.found.position == *position
            && self.found.header == *header
            && (self.is_checked || !wanted.is_checked)
            && (self.opened.lent().is_none() || wanted.may_be_lent)
            && self.opened.next_offset() == Some(wanted.at)
    }
}
