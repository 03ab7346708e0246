//! A process that shares a store: its locks in the file that a writer locks, and the append lock.
//!
//! ```text
//! byte 0          shared by all of them; exclusively of one writer alone
//! bytes 1 to 250  slots: each process holds its own as long as it lives
//! byte 251        gate: held while a process joins or leaves
//! byte 252        leader: held by the process that runs the services
//! ```

mod append_lock;
mod gate;
pub mod groups;
pub mod leading;
mod meeting;

pub use append_lock::Held;
pub use meeting::Meeting;

use crate::disk::{ByteLock, ByteLocks, Disk};
use crate::engine::directory::agreed::Agreed;
use crate::engine::directory::group_table::{GroupTable, Peers};
use crate::engine::directory::page::{StatePage, Word};
use crate::engine::directory::writer;
use crate::engine::service::shared_lock::{LockWord, SLOTS};
use crate::engine::service::turns::Turns;
use crate::error::{At, Error, Op, Result};
use crate::region::Access;
use gate::enter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const ALL: u32 = 0;
const GATE: u32 = SLOTS + 1;
/// The byte of the process that runs the services.
pub const LEADER: u32 = SLOTS + 2;

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
    /// [`Error::Locked`] if one writer alone has the store; [`Error::Unsupported`] if all slots are
    /// taken, and on systems and file systems where processes cannot share a store.
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

    fn set(&self, byte: u32, lock: ByteLock) -> Result<bool> {
        self.locks.set(byte, lock).at(Op::Lock, &self.path)
    }

    /// Tries to become the leader.
    ///
    /// # Errors
    ///
    /// Those of the system call.
    pub fn try_lead(&self) -> Result<bool> {
        self.set(LEADER, ByteLock::Exclusive)
    }

    /// Stops being the leader, and notifies the processes that wait for one.
    pub fn stop_leading(&self) {
        let _ = self.set(LEADER, ByteLock::Released);
        self.page.notify(Word::News);
    }

    /// Releases all locks. The process must not use the store any more.
    pub fn leave(&self) {
        let _ = self.locks.release();
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

/// The error for a store that one writer alone has opened.
fn locked(disk: &dyn Disk, root: &Path, meeting: Meeting) -> Result<Error> {
    Ok(Error::Locked {
        path: root.to_owned(),
        pid: writer::pid_of_writer(disk, root, meeting.lock)?,
        shareable: true,
    })
}
