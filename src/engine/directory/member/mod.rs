//! A process that shares a store: its locks in the file that a writer locks, and the append lock.
//!
//! ```text
//! byte 0          shared by all of them; exclusively of one writer alone
//! bytes 1 to 250  slots: each process holds its own as long as it lives
//! byte 251        gate: held while a process joins or leaves
//! byte 252        leader: held by the process that runs the services
//! ```

pub mod groups;
pub mod leading;

use crate::disk::{ByteLock, ByteLocks, Disk};
use crate::engine::directory::agreed::Agreed;
use crate::engine::directory::group_table::{GroupTable, Peers};
use crate::engine::directory::names;
use crate::engine::directory::page::{StatePage, Word};
use crate::engine::directory::writer;
use crate::engine::service::shared_lock::{self, LockWord, SLOTS, Taken};
use crate::engine::service::turns::{TURN, Turns};
use crate::error::{At, Awaited, Error, Op, Result};
use crate::interrupt;
use crate::region::Access;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The files through which the processes of a store meet.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// The file whose bytes they lock.
    pub lock: &'static str,
    /// The page of marks.
    pub page: &'static str,
}

impl Meeting {
    /// Those of a store with a state page.
    pub const OF_STATE: Meeting = Meeting {
        lock: names::LOCK,
        page: names::STATE,
    };
    /// Those of a partition log.
    pub const OF_PARTITIONS: Meeting = Meeting {
        lock: names::BROKER_LOCK,
        page: names::SHARED,
    };

    /// Opens the page; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`StatePage::open`].
    pub fn open_page(
        self,
        disk: &dyn Disk,
        root: &Path,
        access: Access,
    ) -> Result<Option<StatePage>> {
        match self.page {
            names::STATE => StatePage::open(disk, root, access),
            name => StatePage::open_marks(disk, &root.join(name), access),
        }
    }

    fn create_page(self, disk: &dyn Disk, root: &Path) -> Result<StatePage> {
        match self.page {
            names::STATE => StatePage::create(disk, root),
            name => StatePage::create_marks(disk, &root.join(name)),
        }
    }
}

const ALL: u32 = 0;
const GATE: u32 = SLOTS + 1;
/// The byte of the process that runs the services.
pub const LEADER: u32 = SLOTS + 2;
/// A sender waits this long for a process that recovers the store.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses between two loads of the append lock in a process whose turn it is: it should find the
/// moment between two appends of another one.
const SPINS_OF_NEXT: u32 = 8;
/// Pause between attempts to lock a byte.
const RETRY: Duration = Duration::from_millis(2);
/// How long a process waits for others that join or leave. The last to leave closes the store.
const GATE_TIMEOUT: Duration = Duration::from_secs(30);

/// The locks of this process.
#[derive(Debug)]
pub struct Member {
    path: PathBuf,
    locks: ByteLocks,
    slot: u32,
    /// Its turns at the append lock.
    turns: Turns,
    /// The state page, whose marks all processes move.
    pub page: Arc<StatePage>,
}

impl Member {
    /// Takes a slot of the store at `root`, whose directory exists, and creates its state page if
    /// it has none. The first process that shares the store writes down what they agree on.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if one writer alone has the store, or all slots are taken;
    /// [`Error::Unsupported`] on file systems that processes cannot share.
    pub fn join(
        disk: &dyn Disk,
        root: &Path,
        meeting: Meeting,
        timeout: Duration,
        agreed: &Agreed,
    ) -> Result<Member> {
        let path = root.join(meeting.lock);
        let locks = disk.byte_locks(&path)?;
        if let Some(name) = locks.unshared_file_system().at(Op::Lock, &path)? {
            let what = format!("mode=\"share\" on {name}: {}", root.display());
            return Err(Error::Unsupported { what });
        }
        match enter(&locks, timeout) {
            Ok(true) => {}
            Ok(false) => return Err(locked(disk, root, meeting)?),
            Err(error) if is_unknown(&error) => {
                let what = format!(
                    "mode=\"share\" on a system without locks of open file descriptions \
                     (F_OFD_SETLK: {error}): {}",
                    root.display()
                );
                return Err(Error::Unsupported { what });
            }
            Err(error) => return Err(Error::io(Op::Lock, &path, error)),
        }
        locks.fill().at(Op::Lock, &path)?;
        let page = match meeting.open_page(disk, root, Access::ReadWrite)? {
            Some(page) => page,
            None => meeting.create_page(disk, root)?,
        };
        let mut member = Member {
            path,
            locks,
            slot: 0,
            turns: Turns::default(),
            page: Arc::new(page.shared()),
        };
        member.take_slot(root)?;
        member.release_of_dead();
        if member.is_alone()? {
            member.page.begin_sharing();
            member.page.agree(agreed);
            // The progress of earlier processes is in the table of offsets.
            GroupTable::remove(disk, root)?;
        }
        member.set(GATE, ByteLock::Released)?;
        Ok(member)
    }

    fn take_slot(&mut self, root: &Path) -> Result<()> {
        for slot in 1..=SLOTS {
            if self.set(slot, ByteLock::Exclusive)? {
                self.slot = slot;
                return Ok(());
            }
        }
        let what = format!("more than {SLOTS} processes that share {}", root.display());
        Err(Error::Unsupported { what })
    }

    /// Releases the append lock if a process with the slot of this one has died holding it: the
    /// others would wait for this process.
    fn release_of_dead(&self) {
        if shared_lock::holder(self) == self.slot {
            // The word still says that a holder died inside.
            drop(self.hold(Duration::ZERO));
        }
    }

    fn set(&self, byte: u32, lock: ByteLock) -> Result<bool> {
        self.locks.set(byte, lock).at(Op::Lock, &self.path)
    }

    /// Whether no other process shares the store. The caller holds the gate.
    fn is_alone(&self) -> Result<bool> {
        let alone = self.set(ALL, ByteLock::Exclusive)?;
        if alone {
            self.set(ALL, ByteLock::Shared)?;
        }
        Ok(alone)
    }

    /// Tries to become the leader.
    ///
    /// # Errors
    ///
    /// Those of the system call.
    pub fn try_lead(&self) -> Result<bool> {
        self.set(LEADER, ByteLock::Exclusive)
    }

    /// Gives up being the leader, and tells those that wait for one.
    pub fn stop_leading(&self) {
        let _ = self.set(LEADER, ByteLock::Released);
        self.page.notify(Word::News);
    }

    /// Shuts the gate, so that no other process joins or leaves. Returns whether this one is the
    /// last. The caller holds no lock: the wait can be interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if another process does not finish.
    pub fn is_last(&self) -> Result<bool> {
        self.shut_gate(interrupt::is_raised)?;
        self.is_alone()
    }

    /// Runs `work` while no other process joins, leaves or does the same. The threads of this
    /// process take turns.
    ///
    /// # Errors
    ///
    /// As [`Member::is_last`], and those of `work`.
    pub fn behind_gate<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.unless(|| false, work)
    }

    fn unless<T>(
        &self,
        is_interrupted: fn() -> bool,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.shut_gate(is_interrupted)?;
        let done = work();
        self.set(GATE, ByteLock::Released)?;
        done
    }

    /// Adds the options of this process to what all of them agree on. The caller holds no lock.
    ///
    /// # Errors
    ///
    /// Those of [`Agreed::joined`] and [`Member::behind_gate`].
    pub fn agree(&self, own: &Agreed) -> Result<()> {
        let agreed = self.page.agreed()?;
        if agreed.joined(own)? == agreed {
            return Ok(());
        }
        self.unless(interrupt::is_raised, || {
            self.page.agree(&self.page.agreed()?.joined(own)?);
            Ok(())
        })
    }

    fn shut_gate(&self, is_interrupted: fn() -> bool) -> Result<()> {
        let began = Instant::now();
        let is_late = || began.elapsed() >= GATE_TIMEOUT || is_interrupted();
        match shut(&self.locks, is_late).at(Op::Lock, &self.path)? {
            true => Ok(()),
            false => {
                let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                Err(Error::Busy {
                    what: Awaited::Gate,
                    waited_ms,
                })
            }
        }
    }

    /// Releases all locks. The process must not use the store any more.
    pub fn leave(&self) {
        let _ = self.locks.release();
    }

    /// Whether a process recovers the store.
    pub fn is_recovered(&self) -> bool {
        shared_lock::is_long(self)
    }

    /// Calls `take` with the time that it may wait for the append lock, at most `timeout`. If the
    /// caller can interrupt that, it waits a slice at a time, and holds no lock while the caller is
    /// asked. If a process recovers the store after another one has died, it waits for longer.
    ///
    /// # Errors
    ///
    /// Those of `take`.
    pub fn patiently<T>(
        &self,
        timeout: Duration,
        take: impl Fn(Duration) -> Result<T>,
    ) -> Result<T> {
        let mut epoch = self.page.epoch();
        let mut began = None;
        loop {
            let taken = in_slices(timeout, &take);
            if taken.is_ok() {
                return taken;
            }
            let began = *began.get_or_insert_with(Instant::now);
            let now = self.page.epoch();
            // A recovery begins an epoch.
            let recovered = epoch != now || self.is_recovered();
            if !matches!(taken, Err(Error::Busy { .. }))
                || !recovered
                || interrupt::is_raised()
                || began.elapsed() > RECOVERY_TIMEOUT
            {
                return taken;
            }
            epoch = now;
        }
    }

    /// If another process holds the append lock, and several want it all the time, sleeps for a
    /// turn, at most for `timeout`. Returns whether it did. No other thread of this process may
    /// hold the lock.
    #[inline]
    pub fn give_way(&self, timeout: Duration) -> bool {
        let holder = shared_lock::holder(self);
        holder != 0 && holder != self.slot && self.turns.is_over() && self.leave_turn(timeout)
    }

    #[cold]
    fn leave_turn(&self, timeout: Duration) -> bool {
        let before = shared_lock::taken(self);
        std::thread::sleep(TURN.min(timeout));
        self.turns
            .slept(shared_lock::taken(self).wrapping_sub(before));
        true
    }

    /// Takes the append lock. No other thread of this process may hold it.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a living process holds it for longer than `timeout`.
    #[inline]
    pub fn hold(&self, timeout: Duration) -> Result<(Held<'_>, Taken)> {
        let spins = match self.turns.is_next() {
            true => SPINS_OF_NEXT,
            false => Self::SPINS,
        };
        match shared_lock::acquire_with(self, self.slot, Some(timeout), spins) {
            Some(taken) => {
                self.turns.note(shared_lock::taken(self));
                Ok((Held(self), taken))
            }
            None => {
                let waited_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                Err(Error::Busy {
                    what: Awaited::Log,
                    waited_ms,
                })
            }
        }
    }
}

/// Calls `take` with the time that it may wait.
fn in_slices<T>(timeout: Duration, take: &impl Fn(Duration) -> Result<T>) -> Result<T> {
    if !interrupt::is_allowed() {
        return take(timeout);
    }
    let mut waited = Duration::ZERO;
    loop {
        let slice = interrupt::SLICE.min(timeout.saturating_sub(waited));
        let began = Instant::now();
        let taken = take(slice);
        let Err(Error::Busy { what, waited_ms }) = taken else {
            return taken;
        };
        waited += began.elapsed();
        // The call of the holder, a thread of this process, may have taken longer.
        let busy = waited.max(Duration::from_millis(waited_ms));
        if busy >= timeout || interrupt::is_raised() {
            let waited_ms = u64::try_from(busy.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Busy { what, waited_ms });
        }
    }
}

/// The append lock, held until it is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a Member);

impl Held<'_> {
    /// Notes that the lock will be held for as long as a recovery takes.
    pub fn lengthen(&self) {
        shared_lock::lengthen(self.0);
    }

    /// Notes that nothing is stored above the published end any more.
    pub fn clean(&self) {
        shared_lock::clean(self.0);
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if !shared_lock::release(self.0, self.0.slot) {
            self.0
                .page
                .set_failed("another process has overwritten the append lock");
        }
    }
}

impl LockWord for Member {
    const SPINS: u32 = 256;

    #[inline]
    fn load(&self) -> u64 {
        self.page.append_lock()
    }

    #[inline]
    fn exchange(&self, old: u64, new: u64) -> bool {
        self.page.exchange_append_lock(old, new)
    }

    fn sleep(&self, seen: u64, timeout: Duration) {
        self.page.sleep_on_append_lock(seen, timeout);
    }

    fn wake(&self) {
        self.page.wake_append_lock();
    }

    fn is_alive(&self, slot: u32) -> bool {
        // If the kernel does not say, the holder counts as alive: stealing its lock would be worse
        // than waiting for it.
        (1..=SLOTS).contains(&slot) && self.locks.is_taken(slot).unwrap_or(true)
    }
}

impl Peers for Member {
    fn slot(&self) -> u32 {
        self.slot
    }

    fn is_alive(&self, slot: u32) -> bool {
        LockWord::is_alive(self, slot)
    }
}

/// Whether the kernel does not know the call.
fn is_unknown(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
}

/// Shuts the gate and shares byte 0. While one writer alone has that byte, the gate stays open
/// between attempts: others that join wait for as long as they were told to, and not for this one.
fn enter(locks: &ByteLocks, timeout: Duration) -> std::io::Result<bool> {
    let (began, gate) = (Instant::now(), timeout.max(GATE_TIMEOUT));
    loop {
        if !shut(locks, || began.elapsed() >= gate || interrupt::is_raised())? {
            return Ok(false);
        }
        if locks.set(ALL, ByteLock::Shared)? {
            return Ok(true);
        }
        locks.set(GATE, ByteLock::Released)?;
        if began.elapsed() >= timeout {
            return Ok(false);
        }
        std::thread::sleep(RETRY);
    }
}

/// Tries to shut the gate until it succeeds or `is_late`.
fn shut(locks: &ByteLocks, is_late: impl Fn() -> bool) -> std::io::Result<bool> {
    loop {
        if locks.set(GATE, ByteLock::Exclusive)? {
            return Ok(true);
        }
        if is_late() {
            return Ok(false);
        }
        std::thread::sleep(RETRY);
    }
}

/// The error for a store that one writer alone has opened.
fn locked(disk: &dyn Disk, root: &Path, meeting: Meeting) -> Result<Error> {
    Ok(Error::Locked {
        path: root.to_owned(),
        pid: writer::pid_of_writer(disk, root, meeting.lock)?,
        shareable: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::options::Options;

    fn join(root: &Path) -> Member {
        let own = Agreed::of(&Options::default()).unwrap();
        let meeting = Meeting::OF_PARTITIONS;
        Member::join(&RealDisk, root, meeting, Duration::from_secs(5), &own).unwrap()
    }

    fn use_lock(member: &Member, times: usize) {
        for _ in 0..times {
            drop(member.hold(Duration::ZERO).unwrap());
        }
    }

    /// Two processes send all the time: after a turn, one of them leaves the lock to the other one.
    /// It does not if it finds the lock free, or sends now and then.
    #[test]
    fn a_process_that_has_had_its_turn_leaves_the_lock_to_a_rival() {
        let dir = tempfile::tempdir().unwrap();
        let (member, rival) = (join(dir.path()), join(dir.path()));
        let short = Duration::from_nanos(1);
        let meet = |uses| {
            use_lock(&member, uses);
            let _held = rival.hold(Duration::ZERO).unwrap();
            member.give_way(short)
        };
        assert!(!(0..100).any(|_| meet(1)));
        assert!((0..100).any(|_| meet(100)));
        use_lock(&member, 100);
        assert!(!member.give_way(short));
    }
}
