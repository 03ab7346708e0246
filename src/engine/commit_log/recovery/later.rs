//! Queues of a store that was closed properly: each is opened when it is first used.
//!
//! The last full pass of a clean close saves the offsets of all queues, at the end of the log. If
//! the log still ends with the record with which it was closed, nothing was added to the queues,
//! and no queue is needed to open the store. Each is checked against the log on its first use, as
//! an opening checks it:
//!
//! ```text
//!   read the files --> are all entries there, and do the corners of each file lead home?
//!       yes --> cut what follows the end                                         --> open
//!       no  --> check all other queues --> walk the log and put what they lack   --> all open
//! ```
//!
//! So a queue that was damaged while the store was closed gets the same entries and reports as from
//! an opening that checks all queues. Its next offset does not depend on the check: only the saved
//! one is right, because the messages with the last offsets may be deleted.
//!
//! Invariant: entries at or after the saved offset come from dispatch alone, which opens the queue
//! before it puts the first. Until then the files of a queue hold nothing but what the close left.

use super::begin::Begin;
use super::find::Found;
use super::geometry;
use super::load::{
    Loaded, has_sound_corners, index, is_as_known, keep_offsets_of_empty, load_queue, queues,
};
use super::losses::{name_losses, report_holes};
use super::place::{Placer, Scene};
use super::rebuild::{Walked, count_queues, cut_queue, keep_next_offset, restart_empty_queue};
use super::reindex::{complete_index, plan_index};
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::walk::{Belief, Trust, walk, walk_range};
use crate::engine::commit_log::queues::queue::{ConsumeQueue, list_topics};
use crate::engine::commit_log::queues::{Opener, Queues};
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::directory::page::Mark;
use crate::engine::report::Report;
use crate::engine::{Recovery, Topic, Topics};
use crate::error::Result;
use crate::options::Mode;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::Known;
use crate::region::Access;
use crate::sync::Mutex;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Returns what a walk would return, without the walk, if the store was closed properly and its log
/// has not changed since. Otherwise returns `None` and changes nothing.
///
/// # Errors
///
/// As [`walk`](super::rebuild::walk).
pub fn walk_later(found: &Found, begin: &Begin) -> Result<Option<Walked>> {
    let Some(inventory) = begin
        .inventory
        .as_ref()
        .filter(|it| may_wait(found, begin, it))
    else {
        return Ok(None);
    };
    let len = found.geometry.log_file_len;
    let log = Arc::new(Log::of_files(found.disk(), &found.root, &found.files, len)?);
    let Some((last, last_store_ms)) = last_record(found, &log, begin)? else {
        return Ok(None);
    };
    let Some(queues) = closed_queues(found, inventory)? else {
        return Ok(None);
    };
    let loaded = Loaded {
        log,
        queues: Arc::new(queues),
        stale: Vec::new(),
        index: index(found),
    };
    let (min, end) = (found.min_position(), begin.from);
    let plan = plan_index(found, loaded.index.as_ref(), begin, end)?;
    if let Some(index) = &loaded.index {
        index.retire_below(min)?;
    }
    let reindexed = complete_index(found, &loaded, begin, &plan, end)?;
    count_queues(found, &loaded.queues);
    Ok(Some(Walked {
        queues: loaded.queues,
        index: loaded.index,
        unindexed: reindexed.unindexed,
        end,
        closed_at: Some(end),
        untouched_since_close: true,
        durable: end,
        last_store_ms,
        last: Some(last),
        later: Some(end),
        ends_unshown: false,
        recovery: Recovery {
            clean: true,
            walked_from: end,
            end,
            records_checked: reindexed.records_checked,
            index_entries_rebuilt: reindexed.entries_put,
            ..Recovery::default()
        },
    }))
}

/// Whether the queues can be read later if the log still ends where it was closed. Neither a reader
/// nor a process that shares the store holds a lock that keeps the files unchanged.
fn may_wait(found: &Found, begin: &Begin, inventory: &Inventory) -> bool {
    found.access == Access::ReadWrite
        && found.options.mode != Mode::Share
        && begin.clean
        && begin.marked
        && inventory.position == begin.from
        && found.state.get(Mark::Minimum) == found.min_position()
}

/// Position and store time of the last record, if the log ends where it was closed.
fn last_record(found: &Found, log: &Arc<Log>, begin: &Begin) -> Result<Option<(u64, i64)>> {
    let log_range = found.min_position()..begin.from;
    let Some(last) = found
        .state
        .last_record()
        .filter(|it| log_range.contains(it))
    else {
        return Ok(None);
    };
    let walked = walk(log, last, begin.belief(), &mut |_, _, _| Ok(()))?;
    let is_last = walked.last == Some(last) && walked.records == 1;
    let is_end = walked.end == begin.from && walked.holes.is_empty();
    Ok((is_last && is_end).then_some((last, walked.last_store_ms)))
}

/// The queues of the inventory, all closed; `None` if other topics have a directory.
fn closed_queues(found: &Found, inventory: &Inventory) -> Result<Option<Queues>> {
    if geometry::has_foreign_queues(&**found.disk(), &found.root)? {
        return Ok(None);
    }
    let queues = queues(found);
    let mut names: HashSet<&str, foldhash::fast::RandomState> = HashSet::default();
    for (name, id, min, next) in &inventory.queues {
        let (topic, _) = found.topics.get_or_add(name, id + 1);
        queues.add_closed(&topic, *id, *min..*next);
        names.insert(name);
    }
    let listed = list_topics(&**found.disk(), &queues.store.directory)?;
    let is_known = listed.iter().all(|name| names.contains(name.as_str()));
    Ok(is_known.then_some(queues))
}

/// Opens the queues of a store that was closed properly.
#[derive(Debug)]
pub struct Later {
    topics: Arc<Topics>,
    log: Arc<Log>,
    report: Arc<Report>,
    /// The log's positions when the store was opened.
    opened: Range<u64>,
    /// Held while queues are opened.
    opening: Mutex<()>,
}

/// A queue whose files were read, and its offsets when the store was closed.
struct Read {
    topic: Arc<Topic>,
    queue: Arc<ConsumeQueue>,
    known: Range<u64>,
    /// Whether its entries are all there.
    is_sound: bool,
}

impl Opener for Later {
    fn open(&self, queues: &Queues, topic: &Topic, id: u32) -> Result<Arc<ConsumeQueue>> {
        let _alone = self.opening.lock();
        if let Some(opened) = queues.opened(topic, id) {
            return Ok(opened);
        }
        let Some(topic) = self.topics.by_id(topic.id) else {
            unreachable!("topics are never removed")
        };
        let known = queues.closed_offsets(&topic, id).unwrap_or(0..0);
        let read = self.read(queues, &topic, id, known)?;
        let queue = Arc::clone(&read.queue);
        match read.is_sound {
            true => self.add(queues, &read)?,
            false => self.open_all(queues, read)?,
        }
        Ok(queue)
    }
}

impl Later {
    /// Opens the queues of a store whose log had these positions when it was opened.
    pub fn new(
        topics: &Arc<Topics>,
        log: &Arc<Log>,
        report: &Arc<Report>,
        opened: Range<u64>,
    ) -> Later {
        Later {
            topics: Arc::clone(topics),
            log: Arc::clone(log),
            report: Arc::clone(report),
            opened,
            opening: Mutex::default(),
        }
    }

    /// Reads the files of a queue and checks them against the log.
    fn read(
        &self,
        queues: &Queues,
        topic: &Arc<Topic>,
        id: u32,
        known: Range<u64>,
    ) -> Result<Read> {
        let counted = Some((self.opened.end, known.end));
        let (queue, is_stale) = load_queue(&queues.store, topic, id, &self.log, counted)?;
        keep_offsets_of_empty(&queue, &known)?;
        let is_sound = is_as_known(&queue, &known, self.opened.start)?
            && has_sound_corners(&queue, topic, &self.log)?;
        if is_stale {
            queue.truncate(queue.max())?;
        }
        queues.limit_maps();
        Ok(Read {
            topic: Arc::clone(topic),
            queue,
            known,
            is_sound,
        })
    }

    /// Opens all queues. `first` and others that lack entries get them from the log.
    fn open_all(&self, queues: &Queues, first: Read) -> Result<()> {
        let of = |read: &Read| (read.topic.id, read.queue.id);
        let mut unsound = vec![first];
        let first = unsound.first().map(of);
        for (topic, id, known) in queues.closed(&self.topics) {
            if first != Some((topic.id, id)) {
                let read = self.read(queues, &topic, id, known)?;
                match read.is_sound {
                    true => self.add(queues, &read)?,
                    false => unsound.push(read),
                }
            }
        }
        self.rebuild(queues, &unsound)?;
        unsound.iter().for_each(|read| self.show(queues, read));
        Ok(())
    }

    /// Adds a queue whose entries are all there.
    fn add(&self, queues: &Queues, read: &Read) -> Result<()> {
        self.cut(read)?;
        self.show(queues, read);
        Ok(())
    }

    /// Removes entries after the end of a queue and before its beginning.
    fn cut(&self, read: &Read) -> Result<()> {
        let Read {
            topic,
            queue,
            known,
            ..
        } = read;
        let counted = Some((self.opened.end, known.end));
        let positions = self.log.min_position()..self.opened.end;
        cut_queue(queue, topic, &self.log, (counted, known.start), positions)?;
        restart_empty_queue(queue, known.end)
    }

    /// Adds a queue to the table. What was changed in its files becomes durable with the next full
    /// pass.
    fn show(&self, queues: &Queues, read: &Read) {
        if read.queue.is_behind() {
            let min = self.log.min_position();
            self.log.state.set(Mark::FullPass, min);
        }
        queues.add(&read.topic, Arc::clone(&read.queue));
    }

    /// Walks the log and puts what its queues lack: those that are open, and `unsound` ones.
    /// Reports what is lost.
    fn rebuild(&self, queues: &Queues, unsound: &[Read]) -> Result<()> {
        let (min, end) = (self.log.min_position(), self.opened.end);
        let of = |read: &Read| (Arc::clone(&read.topic), Arc::clone(&read.queue));
        let mut all = queues.all_opened(&self.topics);
        all.extend(unsound.iter().map(of));
        // Not `queues`, which asks for queues to be opened.
        let rebuilt = Arc::new(Queues::new(Arc::clone(&queues.store)));
        for (topic, queue) in &all {
            rebuilt.add(topic, Arc::clone(queue));
        }
        let scene = Scene {
            topics: Arc::clone(&self.topics),
            queues: rebuilt,
            log: Arc::clone(&self.log),
            report: Arc::clone(&self.report),
            min,
        };
        let mut placer = Placer::new(scene, min);
        let mut visit = |record: &Record<'_>, position: u64, holes: u64| -> Result<()> {
            let known = Known::read(record.raw_properties());
            placer.place(record, &known, position, holes)
        };
        let belief = Belief {
            trust: Trust::Everywhere,
            checksums_from: u64::MAX,
        };
        let walked = walk_range(&self.log, min..end, belief, &mut visit)?;
        let placed = placer.finish()?;
        self.report.rebuilt(placed.rebuilt);
        let mut gaps = placed.gaps;
        for read in unsound {
            self.cut(read)?;
            let (queue, topic, known) = (&read.queue, &read.topic, &read.known);
            gaps.extend(keep_next_offset(queue, topic, known, end)?);
        }
        let lost = name_losses(queues, &all, &walked.holes, &gaps)?;
        report_holes(
            &self.report,
            &self.log,
            walked.holes.iter().enumerate(),
            lost,
        );
        Ok(())
    }
}
