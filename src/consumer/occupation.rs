//! The groups of a shared store: which consumer of which process owns which queue.
//!
//! ```text
//!   join, leave   a process, for a consumer of its own
//!   evict         any process, for one that is dead or hangs (`peers`)
//!   share         after each of these: owners and heirs are set, evenly
//!   hand_over     the owner's process, when the owner has settled what it holds
//! ```
//!
//! All of these change the table under its lock, and fail at once while another process has it. A
//! caller that holds no lock of this process repeats them ([`Patience`]). A process that dies
//! inside leaves a table in which each queue still has one owner at most; the next process that
//! takes the lock mends the rest.

use super::group_index::{Index, Occupied, PRODUCERS, QueueRows, key};
use super::patience::{self, Patience, Threads};
use super::sharing::share;
use super::wanted::Wanted;
use crate::engine::directory::group_table::{
    GroupTable, GroupTopic, Held, Member, Row, check_offset,
};
use crate::engine::service::fence::{self, Fence};
use crate::error::{Error, Result};
use crate::plant::{Point, pass};
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The table, and what this process has read of it.
#[derive(Debug)]
pub(super) struct Occupation {
    table: Arc<GroupTable>,
    /// Held by the thread of this process that changes the table, which never waits for another
    /// process meanwhile.
    turn: Mutex<()>,
    index: Mutex<Index>,
    /// Consumers of this process that have left and are still listed.
    left: Mutex<BTreeSet<u64>>,
    /// Rows and epochs of queues that producers of this process have given up and still own.
    given_up: Mutex<Vec<(u32, u16)>>,
}

/// The lock of the table.
pub(super) struct Locked<'a> {
    table: &'a GroupTable,
    index: MutexGuard<'a, Index>,
    held: Held<'a>,
    _turn: MutexGuard<'a, ()>,
}

/// A queue that a group begins to consume, and where.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) topic: Box<str>,
    pub(super) queue: u32,
    pub(super) committed: u64,
}

impl Occupation {
    pub(super) fn new(table: Arc<GroupTable>) -> Occupation {
        Occupation {
            table,
            turn: Mutex::default(),
            index: Mutex::default(),
            left: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    pub(super) fn table(&self) -> &Arc<GroupTable> {
        &self.table
    }

    /// Takes the lock of those that change the table, unless another process holds it. The caller
    /// may hold locks of its own, so this does not wait: see [`Patience`].
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] at once, for which [`patience::is_locked`] is true; [`Error::Closed`],
    /// [`Error::Io`].
    pub(super) fn lock(&self) -> Result<Locked<'_>> {
        self.lock_beside(Threads::Await)
    }

    fn lock_beside(&self, threads: Threads) -> Result<Locked<'_>> {
        let turn = threads.lock(&self.turn)?;
        let Some(held) = self.table.try_lock()? else {
            return Err(patience::locked());
        };
        let index = threads.lock(&self.index)?;
        if index.ended {
            return Err(Error::Closed { path: None });
        }
        let mut locked = Locked {
            table: &self.table,
            index,
            held,
            _turn: turn,
        };
        locked.index.read_on(&self.table)?;
        if locked.held.dirty {
            locked.mend()?;
            locked.held.clean();
        }
        for (row, epoch) in std::mem::take(&mut *self.given_up.lock()) {
            locked.release(row, epoch);
        }
        Ok(locked)
    }

    /// Calls `attempt` until the table is not locked by another process; see [`Patience`]. The
    /// caller holds no lock.
    pub(super) fn patiently<T>(&self, attempt: impl FnMut() -> Result<T>) -> Result<T> {
        Patience::default().repeat(&self.table, attempt)
    }

    /// The row of a queue; `None` if the group has not begun it.
    pub(super) fn find(&self, group: &str, topic: &str, queue: u32) -> Result<Option<u32>> {
        let mut index = self.index.lock();
        index.read_on(&self.table)?;
        let entry = index.topics.get(&key(group, topic));
        Ok(entry.and_then(|entry| index.queues.get(&(*entry, queue)).copied()))
    }

    /// Whether a group has begun any queue of a topic.
    pub(super) fn knows(&self, group: &str, topic: &str) -> Result<bool> {
        let mut index = self.index.lock();
        index.read_on(&self.table)?;
        let entry = index.topics.get(&key(group, topic));
        Ok(entry.is_some_and(|entry| index.queues_of(*entry).next().is_some()))
    }

    /// Number of consumers of a group, in all processes.
    pub(super) fn consumers(&self, group: &str) -> usize {
        self.index.lock().readers(&self.table, group).len()
    }

    /// All queues of all groups.
    pub(super) fn all(&self) -> Result<Vec<Occupied>> {
        let mut index = self.index.lock();
        index.read_on(&self.table)?;
        Ok(index.all())
    }

    /// All queues of all groups, by group and topic.
    pub(super) fn by_topic(&self) -> Result<Vec<(GroupTopic, QueueRows)>> {
        let mut index = self.index.lock();
        index.read_on(&self.table)?;
        Ok(index.by_topic())
    }

    /// Adds a consumer that reads `topics`, and queues that its group has not begun. Returns its
    /// number.
    ///
    /// # Errors
    ///
    /// As [`Occupation::lock`]; [`Error::InvalidOption`] if another consumer of a topic wants other
    /// messages.
    pub(super) fn join(
        &self,
        group: &str,
        topics: &BTreeSet<Box<str>>,
        begun: &[Begun],
        (session_ms, wanted): (u32, Option<&Wanted>),
        now: i64,
    ) -> Result<u64> {
        let mut locked = self.lock()?;
        if let Some(wanted) = wanted {
            locked.check_wanted(group, wanted, &self.left.lock())?;
        }
        let word = wanted.map_or(0, Wanted::word);
        let number = self.table.add_member(session_ms, word, now)?;
        let joined = locked.enroll(group, number, topics, begun);
        pass(Point::Enrolled);
        if joined.is_err() {
            locked.remove(number, now);
        }
        let shared = joined.and_then(|()| locked.share(group, now));
        locked.end();
        shared.map(|()| number)
    }

    /// Adds queues that a group has not begun.
    pub(super) fn begin(&self, group: &str, begun: &[Begun], now: i64) -> Result<()> {
        let mut locked = self.lock()?;
        locked.add(group, begun)?;
        locked.share(group, now)?;
        locked.end();
        Ok(())
    }

    /// Notes that a consumer of this process has left. [`Occupation::remove_left`] removes it.
    pub(super) fn note_left(&self, number: u64) {
        self.left.lock().insert(number);
    }

    /// Gives up the queue of a producer with `epoch`: at once, or with the next change by this
    /// process if another process or thread changes the table. The peers retry within 100 ms.
    pub(super) fn give_up(&self, row: u32, epoch: u16) {
        self.given_up.lock().push((row, epoch));
        if let Ok(locked) = self.lock_beside(Threads::Avoid) {
            locked.end();
        }
    }

    /// Removes the consumers of this process that have left, if they still are listed, and gives up
    /// the queues of producers.
    ///
    /// # Errors
    ///
    /// As [`Occupation::lock`]; a later call then does it.
    pub(super) fn remove_left(&self, now: i64) -> Result<()> {
        if self.left.lock().is_empty() && self.given_up.lock().is_empty() {
            return Ok(());
        }
        let mut locked = self.lock()?;
        let left = std::mem::take(&mut *self.left.lock());
        let mut groups = BTreeSet::new();
        for number in left.into_iter().filter(|number| self.is_member(*number)) {
            groups.append(&mut locked.remove(number, now));
        }
        if !groups.is_empty() {
            locked.share_all(&groups, now)?;
            locked.end();
        }
        Ok(())
    }

    /// Removes the consumers of a process that is dead or hangs, or of this one. Returns how many
    /// there were.
    pub(super) fn evict(&self, slot: u32, now: i64) -> Result<usize> {
        let mut locked = self.lock()?;
        let gone: Vec<Member> = self.table.members().filter(|it| it.slot == slot).collect();
        let mut groups = BTreeSet::new();
        for member in &gone {
            groups.append(&mut locked.remove(member.number, now));
        }
        locked.share_all(&groups, now)?;
        if !gone.is_empty() {
            locked.end();
        }
        Ok(gone.len())
    }

    /// Removes the consumers of this process. It changes nothing afterwards.
    pub(super) fn end(&self, now: i64) -> Result<()> {
        let left = self.patiently(|| self.evict(self.table.own_slot(), now));
        let mut index = self.index.lock();
        if !index.ended {
            index.ended = true;
            self.table.clear_beat();
        }
        left.map(drop)
    }

    /// Whether a consumer is in its group.
    pub(super) fn is_member(&self, number: u64) -> bool {
        self.table.number_at(Member::place(number)) == Some(number)
    }

    /// Epoch and progress from which this process continues, if it owns the queue.
    pub(super) fn adopt(&self, row: u32, threads: Threads) -> Result<Option<(Fence, u64)>> {
        let row = self.table.row(row);
        let fence = fence::adopt(&row, || self.lock_beside(threads))?;
        self.table.check()?;
        Ok(fence.zip(row.owner()))
    }

    /// Gives a queue to its heir, if its owner still has `epoch` and there is an heir.
    pub(super) fn hand_over(
        &self,
        row: u32,
        epoch: u16,
        (now, threads): (i64, Threads),
    ) -> Result<()> {
        let locked = self.lock_beside(threads)?;
        let row = self.table.row(row);
        if let Some(heir) = row.heir().filter(|_| row.fence().epoch == epoch) {
            move_to(row, Some(heir), now);
            locked.end();
        }
        Ok(())
    }

    /// Makes a group continue at `offset`, whichever member owns the queue.
    pub(super) fn reset(&self, row: u32, offset: u64) -> Result<()> {
        check_offset(offset)?;
        let locked = self.lock()?;
        fence::reset(&self.table.row(row), offset);
        locked.end();
        self.table.check()
    }
}

/// Takes a queue from its owner, and gives it to another one.
fn move_to(row: Row<'_>, owner: Option<u64>, now: i64) {
    if row.has_owner() {
        fence::revoke(&row);
        pass(Point::Revoked);
    }
    row.set_owner(owner, now);
    row.set_heir(None);
}

impl Locked<'_> {
    /// Whether a living process owns a queue.
    pub(super) fn is_owned(&self, group: &str, topic: &str, queue: u32) -> bool {
        let index = &self.index;
        let entry = index.topics.get(&key(group, topic));
        let row = entry.and_then(|entry| index.queues.get(&(*entry, queue)));
        let owner = row.and_then(|row| self.table.row(*row).owner());
        let member = owner.and_then(|owner| self.table.member(Member::place(owner)));
        member.is_some_and(|it| self.lives(&it))
    }

    /// Whether the process of a consumer lives.
    fn lives(&self, member: &Member) -> bool {
        let beats = self.table.beat(member.slot).is_some();
        member.slot == self.table.own_slot() || beats && self.table.is_alive(member.slot)
    }

    /// Checks that the other consumers of a group that read its topics want the same messages of
    /// them. Those that have `left`, or whose process is dead, do not count.
    fn check_wanted(&self, group: &str, wanted: &Wanted, left: &BTreeSet<u64>) -> Result<()> {
        for topic in wanted.topics() {
            let Some(entry) = self.index.topics.get(&key(group, topic)) else {
                continue;
            };
            let others = self.table.members().filter(|it| {
                let reads = self.table.reads(*entry, Member::place(it.number));
                reads && !left.contains(&it.number) && self.lives(it)
            });
            for other in others {
                wanted.check(other.wanted, group, topic)?;
            }
        }
        Ok(())
    }

    /// The number of the consumer that owns the queues of this process's producers.
    pub(super) fn own_member(&mut self, session_ms: u32, now: i64) -> Result<u64> {
        let is_listed = |it: &u64| self.table.number_at(Member::place(*it)) == Some(*it);
        if let Some(number) = self.index.producer.filter(is_listed) {
            return Ok(number);
        }
        let number = self.table.add_member(session_ms, 0, now)?;
        self.index.producer = Some(number);
        Ok(number)
    }

    /// Gives a queue to a member of this process, even if another member owns it. Returns its row
    /// and epoch.
    pub(super) fn assign(
        &mut self,
        group: &str,
        topic: &str,
        queue: u32,
        (owner, now): (u64, i64),
    ) -> Result<(u32, u16)> {
        let begun = Begun {
            topic: topic.into(),
            queue,
            committed: 0,
        };
        self.add(group, &[begun])?;
        let entry = self.entry(group, topic)?;
        let row = self.index.queues.get(&(entry, queue)).copied();
        let row = row.ok_or_else(|| unreachable_entry(self.table))?;
        let place = self.table.row(row);
        fence::revoke(&place);
        place.set_owner(Some(owner), now);
        self.table.check()?;
        Ok((row, place.fence().epoch))
    }

    /// Takes a queue from its owner, if the owner still has `epoch`.
    pub(super) fn release(&self, row: u32, epoch: u16) {
        let row = self.table.row(row);
        if row.fence().epoch == epoch {
            move_to(row, None, row.since());
        }
    }

    /// Notifies all processes of a change.
    pub(super) fn end(self) {
        self.table.notify();
    }

    fn entry(&mut self, group: &str, topic: &str) -> Result<u32> {
        let key = key(group, topic);
        if let Some(entry) = self.index.topics.get(&key) {
            return Ok(*entry);
        }
        self.table.add_topic(group, topic)?;
        self.index.read_on(self.table)?;
        let entry = self.index.topics.get(&key).copied();
        entry.ok_or_else(|| unreachable_entry(self.table))
    }

    fn enroll(
        &mut self,
        group: &str,
        number: u64,
        topics: &BTreeSet<Box<str>>,
        begun: &[Begun],
    ) -> Result<()> {
        for topic in topics {
            let entry = self.entry(group, topic)?;
            self.table.set_reads(entry, Member::place(number), true);
        }
        self.add(group, begun)
    }

    /// Adds queues, except those that another process has added meanwhile.
    fn add(&mut self, group: &str, begun: &[Begun]) -> Result<()> {
        for new in begun {
            let entry = self.entry(group, &new.topic)?;
            if !self.index.queues.contains_key(&(entry, new.queue)) {
                self.table.add_queue(entry, new.queue, new.committed)?;
                self.index.read_on(self.table)?;
            }
        }
        Ok(())
    }

    /// Removes a consumer. Returns the groups of which it was a member.
    fn remove(&mut self, number: u64, now: i64) -> BTreeSet<Box<str>> {
        let place = Member::place(number);
        let mut groups = BTreeSet::new();
        for (key, entry) in &self.index.topics {
            if &*key.group == PRODUCERS {
                self.disown(*entry, number);
                continue;
            }
            if !self.table.reads(*entry, place) {
                continue;
            }
            groups.insert(key.group.clone());
            for row in self.index.queues_of(*entry) {
                let row = self.table.row(row);
                if row.heir() == Some(number) {
                    row.set_heir(None);
                }
                if row.owner() == Some(number) {
                    move_to(row, None, now);
                }
            }
            self.table.set_reads(*entry, place, false);
        }
        self.table.clear_member(place);
        groups
    }

    /// Removes a leaving consumer from the rows of the queues that its producers own, so that the
    /// next consumer at its place does not seem to own them. If the process lives on, its producers
    /// may send until another producer gets the queue.
    fn disown(&self, entry: u32, number: u64) {
        for row in self.index.queues_of(entry) {
            let row = self.table.row(row);
            if row.owner() == Some(number) {
                row.set_owner(None, row.since());
            }
        }
    }

    fn share_all(&self, groups: &BTreeSet<Box<str>>, now: i64) -> Result<()> {
        groups.iter().try_for_each(|group| self.share(group, now))
    }

    /// Shares the queues of a group out evenly among its consumers. A queue with an owner gets an
    /// heir instead, which becomes the owner when the present one has settled its messages.
    fn share(&self, group: &str, now: i64) -> Result<()> {
        let rows = self.index.rows_of(group);
        let members = self.index.readers(self.table, group);
        let claimed = |row: Row<'_>| row.heir().or(row.owner());
        let entries: BTreeSet<u32> = rows.iter().map(|(entry, _)| *entry).collect();
        let entries: Vec<u32> = entries.into_iter().collect();
        let mut current = Vec::with_capacity(rows.len());
        for (entry, row) in &rows {
            let (Ok(topic) | Err(topic)) = entries.binary_search(entry);
            current.push((claimed(self.table.row(*row)), topic));
        }
        let reads = |member: u64, topic: usize| {
            let entry = entries.get(topic);
            entry.is_some_and(|entry| self.table.reads(*entry, Member::place(member)))
        };
        let owners = share(&current, &members, reads);
        for ((_, row), new) in rows.iter().zip(owners) {
            let row = self.table.row(*row);
            match row.owner() {
                owner if owner == new => row.set_heir(None),
                Some(_) if new.is_some() => row.set_heir(new),
                _ => move_to(row, new, now),
            }
        }
        self.table.check()
    }

    /// Repairs the table after a process died while it changed it.
    fn mend(&mut self) -> Result<()> {
        let mut groups = BTreeSet::new();
        for (key, entry) in &self.index.topics {
            if &*key.group == PRODUCERS {
                continue;
            }
            groups.insert(key.group.clone());
            let is_reader = |number: u64| self.table.reads(*entry, Member::place(number));
            for row in self.index.queues_of(*entry) {
                let row = self.table.row(row);
                if row.heir().is_none_or(|heir| !is_reader(heir)) {
                    row.set_heir(None);
                }
                if row.has_owner() && row.owner().is_none_or(|owner| !is_reader(owner)) {
                    move_to(row, None, row.since());
                }
            }
        }
        self.share_all(&groups, 0)
    }
}

/// The error if an entry that was just added is missing: another process has overwritten the table.
fn unreachable_entry(table: &GroupTable) -> Error {
    Error::corrupt(
        table.path(),
        0,
        "changed by a process that has not locked it",
    )
}

#[cfg(test)]
impl Occupation {
    /// Whether no thread of this process changes the table.
    pub(super) fn turn_is_free(&self) -> bool {
        self.turn.try_lock().is_some()
    }
}
