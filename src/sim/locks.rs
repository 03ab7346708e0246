//! Locks of bytes of a file, held by the processes of a story, and the death of such a process.
//!
//! A process that dies in the middle of a call halts there. Its locks are released at once. Its
//! thread unwinds only after the machine has stopped, so that unwinding has no effect.

use super::sites;
use crate::disk::{ByteLock, ByteLocks, SimulatedLocks};
use crate::plant;
use crate::sync::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A locked byte, the file description that holds it, and its process.
#[derive(Debug)]
struct Lock {
    byte: u32,
    kind: ByteLock,
    owner: u64,
    process: u64,
}

/// All locks of the processes of a machine. They meet in one file.
#[derive(Debug, Default)]
pub struct Locks {
    held: Mutex<(u64, Vec<Lock>)>,
}

impl Locks {
    /// The file, as a process opens it.
    pub fn open(self: &Arc<Locks>, process: u64) -> ByteLocks {
        let owner = {
            let mut held = self.held.lock();
            held.0 += 1;
            held.0
        };
        let locks = Arc::clone(self);
        ByteLocks::simulated(Box::new(Opened {
            locks,
            owner,
            process,
        }))
    }

    /// Releases the locks of a process that has died.
    pub fn release_of(&self, process: u64) {
        self.held.lock().1.retain(|it| it.process != process);
    }
}

#[derive(Debug)]
struct Opened {
    locks: Arc<Locks>,
    owner: u64,
    process: u64,
}

impl SimulatedLocks for Opened {
    fn set(&self, byte: u32, kind: ByteLock) -> bool {
        let mut held = self.locks.held.lock();
        let others = held.1.iter().filter(|it| it.owner != self.owner);
        let mut others = others.filter(|it| it.byte == byte);
        let conflicts = |it: &Lock| match kind {
            ByteLock::Exclusive => true,
            ByteLock::Shared => it.kind == ByteLock::Exclusive,
            ByteLock::Released => false,
        };
        if others.any(conflicts) {
            return false;
        }
        let is_own = |it: &Lock| it.owner == self.owner && it.byte == byte;
        held.1.retain(|it| !is_own(it));
        if kind != ByteLock::Released {
            let (owner, process) = (self.owner, self.process);
            held.1.push(Lock {
                byte,
                kind,
                owner,
                process,
            });
        }
        true
    }

    fn is_taken(&self, byte: u32) -> bool {
        let held = self.locks.held.lock();
        let mut others = held.1.iter().filter(|it| it.owner != self.owner);
        others.any(|it| it.byte == byte)
    }

    fn release(&self) {
        let mut held = self.locks.held.lock();
        held.1.retain(|it| it.owner != self.owner);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.release();
    }
}

/// The outcome of a process that may die.
enum Told<T> {
    /// It has halted.
    Died,
    /// It has done its work without dying.
    Done(T),
}

/// A process that has died. Its thread ends when this is dropped, after the machine has stopped.
pub struct Dead {
    thread: Option<JoinHandle<()>>,
    _goes_on: Sender<()>,
}

impl Drop for Dead {
    fn drop(&mut self) {
        let (closed, _) = channel();
        self._goes_on = closed;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Halts a process.
pub struct Halt {
    told: Box<dyn Fn() + Send>,
    goes_on: Receiver<()>,
}

impl Halt {
    /// Halts the process until the machine has stopped. Then its thread ends.
    pub fn here(self) {
        (self.told)();
        let _ = self.goes_on.recv();
        // A dead process makes no further call, which might wait for others. No message is printed.
        std::panic::resume_unwind(Box::new("the process has died"));
    }
}

/// Runs `work` in a process that dies where it calls [`Halt::here`]. Returns the result of `work`,
/// or `None` if the process died, and the dead process. A panic of the process is a breach.
pub fn live_or_die<T: Send + 'static>(
    work: impl FnOnce(Halt) -> T + Send + 'static,
) -> Result<(Option<T>, Dead), String> {
    let (tell, told) = channel();
    let (goes_on, waits) = channel();
    let (bug, left_out) = (plant::current(), sites::left_out());
    let thread = std::thread::spawn(move || {
        plant::plant(bug);
        sites::leave_out(left_out.0.as_ref(), left_out.1);
        let dies = tell.clone();
        let halt = Halt {
            told: Box::new(move || drop(dies.send(Told::Died))),
            goes_on: waits,
        };
        let done = work(halt);
        let _ = tell.send(Told::Done(done));
    });
    let done = match told.recv() {
        Ok(Told::Done(done)) => Some(done),
        Ok(Told::Died) => None,
        Err(_) => return Err("a process panicked".to_owned()),
    };
    let dead = Dead {
        thread: Some(thread),
        _goes_on: goes_on,
    };
    Ok((done, dead))
}
