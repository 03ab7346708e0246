//! What the leader of the processes that share a partition log does for all of them: it flushes,
//! writes indexes and recovery points, and at the end writes what a clean stop leaves.
//!
//! The table says what is not durable, so a new leader needs nothing from the memory of the old
//! one. It writes again what is not durable, because the old one may have died after a failed sync
//! without reporting it.

use super::ends::{End, Ends, Place, Undone};
use super::files;
use super::intent;
use super::kept::rewrite;
use super::parts::{One, Parts};
use super::shared::{Role, Shared};
use super::table::Table;
use super::tail::Key;
use super::unsynced::{self, Unsynced};
use crate::engine::directory::member::leading::Follower;
use crate::engine::directory::page::Word;
use crate::engine::service::durability::Durable;
use crate::error::Result;
use crate::mapped::{Extent, MappedFile};
use crate::plant::{Bug, Point, pass, planted};
use crate::region::{Access, guard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Pause between two checks of a process that does not wait.
const WATCH: Duration = Duration::from_millis(100);
/// Longest sleep of the leader between two flushes. A process that dies before it notifies the
/// leader no longer waits for a flush.
const REST: Duration = Duration::from_secs(1);
/// How long a process waits for the append lock to take over.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

impl Parts {
    /// Whether this process runs the services: it has the store for itself, or leads those that
    /// share it.
    pub fn is_on_duty(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_none_or(|shared| shared.lead.is_held())
    }

    /// Adds the partitions of the shared table that this process does not know yet.
    ///
    /// # Errors
    ///
    /// Those of the table.
    pub fn load(&self) -> Result<()> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let mut all = self.all.lock();
        // The names in the table differ, so the known partitions are its first ones.
        let known = u32::try_from(all.len()).unwrap_or(u32::MAX);
        for number in known..shared.table.count() {
            let (topic, queue) = shared.table.name(number)?;
            let folder = self.root.join(format!("{topic}-{queue}"));
            let ends = Ends::shared(folder, self.rules.sync, &shared.table, number);
            if all.insert((topic, queue), Arc::new(ends)).is_some() {
                return Err(shared.table.corrupt_end(number));
            }
        }
        Ok(())
    }

    /// Whether the table has partitions that this process cannot append to yet.
    pub fn lacks(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|it| self.adopted.load(Ordering::Acquire) != it.table.count())
    }

    /// Whether this process can append to a partition.
    pub fn is_adopted(&self, key: Key) -> bool {
        self.tail.lock().has(key)
    }

    /// Adds partitions of a topic for all processes that share the store. The caller holds the
    /// append lock.
    ///
    /// # Errors
    ///
    /// Those of [`Table::add`].
    pub(super) fn add_shared(&self, table: &Table, topic: &str, queues: &[u32]) -> Result<()> {
        let new = |queue: &u32| {
            let begin = self.gone.begin_of(topic, *queue);
            let place = Place {
                end: End::without_segments(begin),
                continues: false,
            };
            (topic, *queue, begin, place)
        };
        let all: Vec<_> = queues.iter().map(new).collect();
        table.add(&all)?;
        queues.iter().for_each(|_| self.folders.add());
        Ok(())
    }

    /// Waits until the leader has flushed; flushes if this process leads.
    pub(super) fn flush_shared_to(&self, shared: &Shared, position: u64) -> Result<()> {
        let position = position.min(shared.published());
        shared.member.await_flush(position, &(self, shared))
    }

    /// Syncs what all processes have appended.
    fn sync_shared(&self, shared: &Shared, list: &mut Vec<Unsynced>) -> Result<()> {
        let durable = shared.durable();
        // Read before the table, which then has everything published below it.
        let end = shared.published();
        list.clear();
        for (_, _, ends) in self.undone_ends()? {
            if let Some(undone) = ends.undone(&*self.disk)? {
                if undone.from.len == 0 {
                    // The partition may be new, and the name of its folder not durable.
                    self.folders.add();
                }
                list.push(self.unsynced_of(&ends, undone));
            }
        }
        let began = Instant::now();
        if planted(Bug::ProgressAhead) {
            shared.set_durable(end);
        }
        let synced = unsynced::sync_each(&*self.disk, &self.root, &self.folders, list);
        self.meter
            .flushed(end.saturating_sub(durable), began.elapsed());
        pass(Point::Synced);
        if let Err(error) = synced {
            return Err(match error.ends_writing() {
                true => self.fail_appended(&error),
                false => error,
            });
        }
        shared.set_durable(end);
        if self.rules.sync {
            self.tell();
        }
        Ok(())
    }

    /// Topic, queue and ends of the partitions with bytes that are not durable.
    fn undone_ends(&self) -> Result<Vec<One>> {
        self.load()?;
        let all = self.all.lock();
        let mut undone = Vec::new();
        for ((topic, queue), ends) in &*all {
            if let Some((published, durable)) = ends.places()?
                && published.end != durable.end
            {
                undone.push((Arc::clone(topic), *queue, Arc::clone(ends)));
            }
        }
        Ok(undone)
    }

    fn unsynced_of(&self, ends: &Arc<Ends>, undone: Undone) -> Unsynced {
        let Undone { from, to, sealed } = undone;
        let path = ends.path_of(to.base);
        let extent = Extent::Part(to.len);
        let file = MappedFile::open(&self.disk, path, 0, to.len, Access::Read, extent);
        let is_new = from.len == 0;
        Unsynced {
            ends: Arc::clone(ends),
            end: to,
            sealed: sealed.iter().map(|it| (it.path.clone(), it.len)).collect(),
            last: Some((Arc::new(file), 0, to.len)),
            is_shared: true,
            begun: is_new || from.base != to.base,
            prepared: is_new,
        }
    }

    /// Becomes the leader, if there is none. Returns whether this process leads.
    ///
    /// # Errors
    ///
    /// Those of taking over. The next call tries again.
    pub fn try_lead(&self) -> Result<bool> {
        let Some(shared) = &self.shared else {
            return Ok(true);
        };
        let Some(mut role) = shared.role.try_lock() else {
            return Ok(false);
        };
        match *role {
            Role::Leader => return Ok(true),
            Role::Gone => return Ok(false),
            Role::Follower => {}
        }
        // After a failure, only closing and opening the store helps, in all processes.
        if shared.check(&self.health).is_err() || !shared.member.try_lead()? {
            return Ok(false);
        }
        // At once: the page still names a leader that has left or died.
        shared.page().take_over();
        let taken_over = self.take_over(shared);
        taken_over.inspect_err(|_| shared.member.stop_leading())?;
        *role = Role::Leader;
        drop(role);
        shared.lead.begin();
        Ok(true)
    }

    /// Writes again what is not durable.
    fn take_over(&self, shared: &Shared) -> Result<()> {
        let mut tail = self.tail.lock();
        let held = self.hold(shared, &mut tail, LOCK_TIMEOUT)?;
        held.lengthen();
        for (_, _, ends) in self.undone_ends()? {
            let Some(Undone { from, to, sealed }) = ends.undone(&*self.disk)? else {
                continue;
            };
            for segment in &sealed {
                let begin = if segment.base == from.base {
                    from.len
                } else {
                    0
                };
                rewrite(&*self.disk, &segment.path, begin..segment.len)?;
            }
            let begin = if to.base == from.base { from.len } else { 0 };
            rewrite(&*self.disk, &ends.path_of(to.base), begin..to.len)?;
            if from.len == 0 {
                files::rewrite_small(&*self.disk, &ends.folder)?;
            }
        }
        pass(Point::Recovered);
        drop(held);
        drop(tail);
        let mut passes = self.unsaved.lock();
        passes.indexing = Default::default();
        passes.passed = 0;
        Ok(())
    }

    /// Until the store closes, checks from time to time whether some process leads. If this one
    /// does, flushes for processes that wait for the disk.
    pub fn watch(&self) {
        let Some(shared) = &self.shared else { return };
        let page = shared.page();
        while !shared.shutdown.has_begun() {
            guard::renew();
            let led = self.try_lead();
            if !matches!(led, Ok(true)) {
                // A later attempt may succeed, for example when there is room on the disk.
                let turns = if led.is_ok() { 1 } else { 10 };
                shared.shutdown.sleep(turns * WATCH);
                continue;
            }
            let seen = page.read_word(Word::Wanted);
            if shared.shutdown.has_begun() {
                return;
            }
            let wanted = page.wanted().min(shared.published());
            if wanted <= shared.durable() {
                page.sleep_on(Word::Wanted, seen, REST);
            } else if self.flush_to(wanted).is_err() {
                // The error has ended writing, or the next attempt meets it again.
                page.sleep_on(Word::Wanted, seen, WATCH);
            }
        }
    }

    /// Writes what the index files of all partitions lack, and then their recovery points.
    pub(super) fn pass_shared(&self, shared: &Shared) -> Result<()> {
        self.sync_folders()?;
        let mut passes = self.unsaved.lock();
        let durable = shared.durable();
        if durable <= passes.passed {
            return Ok(());
        }
        let all = self.all_ends()?;
        // Taken first: the indexes of all segments below these ends are written next.
        let points = self.next_offsets(true);
        for (topic, queue, ends) in all {
            let with = (&*self.root, &self.rules);
            let name = (topic, queue);
            passes.indexing.follow(&*self.disk, with, &name, &ends)?;
        }
        self.forget_shared_intent(shared)?;
        self.save_points(&points)?;
        passes.passed = durable;
        Ok(())
    }

    /// Removes the intent of the last atomic batch once the batch is durable.
    fn forget_shared_intent(&self, shared: &Shared) -> Result<()> {
        if shared.table.whole() == 0 {
            return Ok(());
        }
        let mut tail = self.tail.lock();
        let _held = self.hold(shared, &mut tail, LOCK_TIMEOUT)?;
        if shared.table.whole() <= shared.durable() {
            intent::remove(&*self.disk, &self.root)?;
            shared.table.set_whole(0);
        }
        Ok(())
    }

    /// Writes what a clean stop leaves. No other process shares the store any more.
    ///
    /// # Errors
    ///
    /// The error that keeps messages from being durable, or that has ended writing.
    pub fn finish_shared(&self, shared: &Shared) -> Result<()> {
        shared.check(&self.health)?;
        {
            // Removes what a process that died with the lock has left.
            let mut tail = self.tail.lock();
            drop(self.hold(shared, &mut tail, LOCK_TIMEOUT)?);
        }
        self.flush_to(shared.published())?;
        let mut passes = self.unsaved.lock();
        let mut last = Vec::new();
        for (topic, queue, ends) in self.all_ends()? {
            let (with, name) = ((&*self.root, &self.rules), (topic, queue));
            let End { base, len, .. } = ends.end();
            let entry = self.disk.stat(&ends.path_of(base))?;
            // The file is longer only while the segment is appended to.
            if entry.is_some_and(|entry| entry.len > len) {
                passes.indexing.follow(&*self.disk, with, &name, &ends)?;
                last.push(passes.indexing.complete(&self.rules, &name, &ends));
            }
        }
        unsynced::complete(&*self.disk, &self.folders, &last)?;
        self.keep_producers()?;
        self.prepare_unused()?;
        intent::remove(&*self.disk, &self.root)?;
        let points = self.next_offsets(false);
        files::save_clean_stop(&*self.disk, &self.root, &self.lines_of(&points))
    }

    /// Ends the services of this process: another one takes them over, or the store closes.
    pub fn end_lead(&self, shared: &Shared) {
        shared.lead.end();
        let role = std::mem::replace(&mut *shared.role.lock(), Role::Gone);
        if role == Role::Leader {
            // Waits until no thread of this process flushes.
            drop(self.unsynced.lock());
            drop(self.unsaved.lock());
        }
    }
}

impl Follower for (&Parts, &Shared) {
    fn is_closing(&self) -> bool {
        self.0.health.is_closed()
    }

    fn is_ending(&self) -> bool {
        self.1.shutdown.has_begun()
    }

    fn check(&self) -> Result<()> {
        self.1.check(&self.0.health)
    }

    fn try_lead(&self) -> Result<bool> {
        self.0.try_lead()
    }

    fn try_flush(&self, position: u64) -> Option<Result<()>> {
        let (parts, shared) = self;
        if !shared.lead.is_held() {
            return None;
        }
        let mut list = parts.unsynced.lock();
        Some(match shared.durable() >= position {
            true => Ok(()),
            false => parts.sync_shared(shared, &mut list),
        })
    }
}
