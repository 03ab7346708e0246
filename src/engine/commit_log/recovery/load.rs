//! Loads the queues before the walk: which exist, and up to where their entries are valid.

use super::begin::Begin;
use super::find::Found;
use super::geometry;
use crate::engine::Topic;
use crate::engine::commit_log::index::Index;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::queues::Queues;
use crate::engine::commit_log::queues::queue::{
    ConsumeQueue, QueueEntry, QueueStore, list_queues, list_topics,
};
use crate::engine::commit_log::read::meant::{Meant, is_meant, leads_home};
use crate::engine::directory::names;
use crate::error::Result;
use crate::mapped::spill::Spill;
use crate::plant::{Bug, planted};
use crate::region::Access;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The log as it is on disk, and what was built from it.
pub struct Loaded {
    /// The log. All bytes are readable.
    pub log: Arc<Log>,
    /// The queues, each with its bounds.
    pub queues: Arc<Queues>,
    /// Queues whose files hold entries after their bounds.
    pub stale: Vec<Arc<ConsumeQueue>>,
    /// The index, if keys are indexed. Its files are not opened yet.
    pub index: Option<Arc<Index>>,
}

/// Opens the log and every queue that has a directory, and finds the bounds of the queues.
pub fn load(found: &Found, begin: &Begin) -> Result<Loaded> {
    let len = found.geometry.log_file_len;
    let log = Arc::new(Log::of_files(found.disk(), &found.root, &found.files, len)?);
    let queues = queues(found);
    let stale = load_queues(found, &queues, &log, begin)?;
    Ok(Loaded {
        log,
        queues: Arc::new(queues),
        stale,
        index: index(found),
    })
}

/// An empty table of queues.
pub fn queues(found: &Found) -> Queues {
    Queues::new(Arc::new(QueueStore {
        disk: Arc::clone(found.disk()),
        directory: found.root.join(names::QUEUES),
        file_entries: found.geometry.queue_file_entries,
        access: found.access,
        delays: found.options.delay_levels(),
        spill: Spill::default(),
        mapped: AtomicU64::new(0),
    }))
}

/// The index without its files, if keys are indexed.
pub fn index(found: &Found) -> Option<Arc<Index>> {
    let sizes = (found.geometry.index_slots, found.geometry.index_entries);
    let directory = found.root.join(names::INDEX);
    let index = || Index::new(found.disk(), directory, sizes, found.access);
    found.options.index().then(index).map(Arc::new)
}

/// Opens a queue, if it has files, and finds its bounds. Also returns whether its files hold
/// entries after the bounds. `counted` is a position and the next offset of the queue there, if
/// known.
pub fn load_queue(
    store: &Arc<QueueStore>,
    topic: &Topic,
    id: u32,
    log: &Log,
    counted: Option<(u64, u64)>,
) -> Result<(Arc<ConsumeQueue>, bool)> {
    let min = log.min_position();
    let queue = Arc::new(ConsumeQueue::open(store, &topic.name, id, min)?);
    let is_stale = find_bounds(&queue, topic, log, counted)?;
    Ok((queue, is_stale))
}

/// Opens every queue that has a directory and finds its bounds. Returns those whose files hold
/// entries after the bounds.
fn load_queues(
    found: &Found,
    queues: &Queues,
    log: &Arc<Log>,
    begin: &Begin,
) -> Result<Vec<Arc<ConsumeQueue>>> {
    let mut stale = Vec::new();
    let known = Counted::of(begin);
    let directory = &queues.store.directory;
    let topics = match geometry::has_foreign_queues(&**found.disk(), &found.root)? {
        true => Vec::new(),
        false => list_topics(&**found.disk(), directory)?,
    };
    for name in topics {
        for id in list_queues(&**found.disk(), &directory.join(&name))? {
            let (topic, _) = found.topics.get_or_add(&name, id + 1);
            let counted = known.next(&name, id);
            let (queue, is_stale) = load_queue(&queues.store, &topic, id, log, counted)?;
            if is_stale {
                stale.push(Arc::clone(&queue));
            }
            queues.add(&topic, queue);
            queues.limit_maps();
        }
    }
    for (name, id, min, next) in begin.inventory.iter().flat_map(|known| &known.queues) {
        let (topic, _) = found.topics.get_or_add(name, id + 1);
        let queue = queues.get_or_add(&topic, *id)?;
        keep_offsets_of_empty(&queue, &(*min..*next))?;
    }
    Ok(stale)
}

/// Restores the next offset of a queue without entries, if it had no messages when its offsets were
/// `known`.
pub fn keep_offsets_of_empty(queue: &ConsumeQueue, known: &Range<u64>) -> Result<()> {
    if known.is_empty() && queue.is_untouched()? {
        queue.load_bounds(known.end, known.end);
    }
    Ok(())
}

/// Whether every known queue is complete, judged by the corners of its files.
pub fn queues_are_complete(found: &Found, loaded: &Loaded, begin: &Begin) -> Result<bool> {
    if begin.from <= found.min_position() {
        return Ok(true);
    }
    let queues = loaded.queues.all(&found.topics)?;
    let min_position = loaded.log.min_position();
    match &begin.inventory {
        // Without an inventory, some queue must exist. If there are marks, Forebay wrote the store
        // but has not completed a full pass.
        None if begin.marked && !begin.clean => return Ok(false),
        None if queues.iter().all(|(_, queue)| queue.max() == 0) => return Ok(false),
        None => {}
        Some(inventory) => {
            for (name, id, min, next) in &inventory.queues {
                let topic = found.topics.get(name);
                let queue = topic.and_then(|topic| loaded.queues.opened(&topic, *id));
                let Some(queue) = queue else {
                    return Ok(false);
                };
                if !is_as_known(&queue, &(*min..*next), min_position)? {
                    return Ok(false);
                }
                loaded.queues.limit_maps();
            }
        }
    }
    for (topic, queue) in queues {
        if !has_sound_corners(&queue, &topic, &loaded.log)? {
            return Ok(false);
        }
        loaded.queues.limit_maps();
    }
    Ok(true)
}

/// Whether a queue has the entries that it had when its offsets were `known`, in a log that began
/// at `min_position` when it was opened.
pub fn is_as_known(queue: &ConsumeQueue, known: &Range<u64>, min_position: u64) -> Result<bool> {
    if queue.max() < known.end || !queue.covers(known.start) {
        return Ok(false);
    }
    // Entries that point below the log do not prove that their messages were deleted since, because
    // the entries may be damaged.
    queue.is_filled(known.start..queue.first_from(min_position)?)
}

/// Whether the first and last entries of each file of a queue point to their records, unless these
/// were deleted.
pub fn has_sound_corners(queue: &ConsumeQueue, topic: &Topic, log: &Arc<Log>) -> Result<bool> {
    let min_position = log.min_position();
    for number in queue.corners() {
        let is_sound = match queue.entry(number)? {
            None => false,
            Some(entry) => {
                entry.is_filler()
                    || entry.end() <= min_position
                    || leads_home(log, (topic, queue.id, number), entry)?
            }
        };
        if !is_sound {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Drops entries kept in memory, before the whole log is walked.
pub fn forget_overlays(found: &Found, loaded: &Loaded, begin: &Begin) -> Result<()> {
    if found.access == Access::Read {
        let known = Counted::of(begin);
        for (topic, queue) in loaded.queues.all(&found.topics)? {
            if queue.forget_overlay() {
                let counted = known.next(&topic.name, queue.id);
                find_bounds(&queue, &topic, &loaded.log, counted)?;
            }
        }
    }
    Ok(())
}

/// The bounds of each queue at one position of the log, from the inventory.
pub struct Counted<'a> {
    position: Option<u64>,
    bounds: HashMap<(&'a str, u32), (u64, u64)>,
}

impl Counted<'_> {
    /// The bounds from the inventory of `begin`.
    pub fn of(begin: &Begin) -> Counted<'_> {
        let queues = begin.inventory.iter().flat_map(|known| &known.queues);
        Counted {
            position: begin.inventory.as_ref().map(|known| known.position),
            bounds: queues
                .map(|(name, id, min, next)| ((name.as_str(), *id), (*min, *next)))
                .collect(),
        }
    }

    fn bounds(&self, topic: &str, queue: u32) -> (u64, u64) {
        let bounds = self.bounds.get(&(topic, queue));
        bounds.copied().unwrap_or_default()
    }

    /// First offset of the queue; 0 if unknown.
    pub fn first(&self, topic: &str, queue: u32) -> u64 {
        self.bounds(topic, queue).0
    }

    /// A position, and the next offset of the queue there; `None` if unknown.
    pub fn next(&self, topic: &str, queue: u32) -> Option<(u64, u64)> {
        Some((self.position?, self.bounds(topic, queue).1))
    }
}

/// Finds the bounds of a queue from its files: they end with the last entry that [`end_held`]
/// accepts. Returns whether the files hold entries after the bounds.
fn find_bounds(
    queue: &ConsumeQueue,
    topic: &Topic,
    log: &Log,
    counted: Option<(u64, u64)>,
) -> Result<bool> {
    let first = queue.first_on_disk().unwrap_or(0);
    let last = queue.last_on_disk()?;
    let max = end_held(queue, topic, log, counted, (first..last, u64::MAX))?;
    queue.load_bounds(first, max);
    Ok(max < last)
}

/// The number after the last entry of `numbers` that counts: a filler, or an entry that points to
/// its own record below `end` or to a deleted one. `counted` is a position and the next offset of
/// the queue there: an entry with that offset or a higher one does not count if it points below the
/// position, because a crash took its message. If no entry counts, the result is the first of
/// `numbers`.
pub fn end_held(
    queue: &ConsumeQueue,
    topic: &Topic,
    log: &Log,
    counted: Option<(u64, u64)>,
    (numbers, end): (Range<u64>, u64),
) -> Result<u64> {
    let trusts = end < u64::MAX && planted(Bug::TrustEntries);
    for number in numbers.clone().rev() {
        let taken = |entry: &QueueEntry| {
            let below = |at| !entry.is_filler() && entry.position < at;
            counted.is_some_and(|(position, next)| below(position) && number >= next)
        };
        let is_below_end = |entry: &QueueEntry| entry.is_filler() || entry.end() <= end;
        let entry = queue.entry(number)?;
        if let Some(entry) = entry.filter(|entry| is_below_end(entry) && !taken(entry))
            && (trusts || holds(log, (topic, queue.id, number), entry)?)
        {
            return Ok(number + 1);
        }
    }
    Ok(numbers.start)
}

/// Whether an entry proves that its offset was used: it points to a record with that offset or to a
/// deleted one, or it is a filler.
fn holds(log: &Log, meant: Meant<'_>, entry: QueueEntry) -> Result<bool> {
    if entry.is_filler() || entry.end() <= log.min_position() {
        return Ok(true);
    }
    let Some(message) = log.record_at(entry.position)?.record() else {
        return Ok(false);
    };
    let record = message.record().rocketmq();
    Ok(is_meant(&record, meant) && record.layout().total_len == entry.size)
}
