//! Prepares files and blocks before they are used: one thread, a queue of requests, a latch each.
//!
//! ```text
//!   appender --> [requests, in order] --> allocator: create, reserve, warm up --> latch -->
//!   appender
//! ```
//!
//! A request made early enough costs the appender nothing. Otherwise the appender waits at the
//! latch, or does the work itself if the allocator thread has stopped.

use super::MappedFile;
use crate::disk::Disk;
use crate::error::{At, Op, Result};
use crate::machine::{Drive, Machine};
use crate::region::{PAGE, Region};
use crate::sync::{Condvar, Mutex};
use crate::warning::{Warning, Warnings};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How files are prepared for use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// Store to each page of a created file before it is used. Reserves all blocks.
    pub warm_up: bool,
    /// Pages between two syncs while a file is warmed up; at least 1.
    pub warm_up_pages: u32,
    /// Lock the files being appended to in memory.
    pub lock: bool,
    /// Tell the kernel that reads are random.
    pub random_reads: bool,
}

/// When a requested file will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// As soon as the current file is full. It is locked in memory if that is configured.
    Next,
    /// After another prepared file; see [`Allocator::begin_coming`].
    Later,
}

/// A result to wait for, set once.
#[derive(Debug)]
pub struct Latch<T> {
    slot: Mutex<Option<Ready<T>>>,
    set: Condvar,
}

impl<T: Clone> Latch<T> {
    fn new() -> Arc<Latch<T>> {
        Arc::new(Latch {
            slot: Mutex::new(None),
            set: Condvar::new(),
        })
    }

    fn open(&self, result: Result<T>) {
        *self.slot.lock() = Some(result.map_or(Ready::Failed, Ready::Done));
        self.set.notify_all();
    }

    /// Whether the work has ended with an error.
    pub fn has_failed(&self) -> bool {
        matches!(*self.slot.lock(), Some(Ready::Failed))
    }

    /// Waits for the result; `None` after the timeout.
    pub fn wait(&self, timeout: Duration) -> Option<Ready<T>> {
        let is_to_come = |slot: &mut Option<Ready<T>>| slot.is_none();
        let slot = self.slot.lock();
        self.set.wait_while_for(slot, is_to_come, timeout).clone()
    }
}

/// The result of requested work. A caller that needs the error does the work itself.
#[derive(Clone, Debug)]
pub enum Ready<T> {
    /// The work is done.
    Done(T),
    /// The work failed.
    Failed,
}

impl<T> Ready<T> {
    /// What was made, if the work is done.
    pub fn done(self) -> Option<T> {
        match self {
            Ready::Done(value) => Some(value),
            Ready::Failed => None,
        }
    }
}

enum Request {
    Create {
        path: PathBuf,
        start: u64,
        len: u64,
        reserve: u64,
        needed: Use,
        latch: Arc<Latch<Arc<MappedFile>>>,
    },
    Reserve {
        file: Arc<MappedFile>,
        end: u64,
        latch: Arc<Latch<()>>,
    },
    Populate {
        file: Arc<MappedFile>,
        start: u64,
        len: u64,
    },
    Lock(Arc<MappedFile>),
    LockComing(Arc<Latch<Arc<MappedFile>>>),
    Unlock(Arc<MappedFile>),
}

/// Prepares files.
#[derive(Clone, Debug)]
pub struct Preparer {
    disk: Arc<dyn Disk>,
    preparation: Preparation,
    warnings: Arc<Warnings>,
    /// Whether the warning that files cannot be locked was given.
    warned: Arc<AtomicBool>,
}

/// The allocator: a thread that the first request starts.
#[derive(Debug)]
pub struct Allocator {
    drive: Drive,
    preparer: Preparer,
    worker: Mutex<Option<(Sender<Request>, JoinHandle<()>)>>,
}

impl Allocator {
    /// An allocator that has not started yet.
    pub fn new(machine: &Machine, preparation: Preparation, warnings: &Arc<Warnings>) -> Allocator {
        Allocator {
            drive: machine.drive,
            preparer: Preparer {
                disk: Arc::clone(&machine.disk),
                preparation,
                warnings: Arc::clone(warnings),
                warned: Arc::default(),
            },
            worker: Mutex::new(None),
        }
    }

    /// The preparer, for work in the caller's thread.
    pub fn preparer(&self) -> &Preparer {
        &self.preparer
    }

    /// Marks an existing file as being appended to: it is locked in memory if that is configured.
    pub fn begin(&self, file: &Arc<MappedFile>) {
        if self.preparer.preparation.lock {
            self.send(Request::Lock(Arc::clone(file)));
        }
    }

    /// [`Allocator::begin`] for a file that was requested earlier.
    pub fn begin_coming(&self, file: &Arc<Latch<Arc<MappedFile>>>) {
        if self.preparer.preparation.lock {
            self.send(Request::LockComing(Arc::clone(file)));
        }
    }

    /// Marks a file as no longer appended to: it is unlocked.
    pub fn end(&self, file: &Arc<MappedFile>) {
        if self.preparer.preparation.lock {
            self.send(Request::Unlock(Arc::clone(file)));
        }
    }

    /// Requests a file of `len` bytes with blocks for its first `reserve` bytes.
    pub fn create(
        &self,
        path: PathBuf,
        start: u64,
        len: u64,
        reserve: u64,
        needed: Use,
    ) -> Arc<Latch<Arc<MappedFile>>> {
        let latch = Latch::new();
        self.send(Request::Create {
            path,
            start,
            len,
            reserve,
            needed,
            latch: Arc::clone(&latch),
        });
        latch
    }

    /// Requests blocks for `file` below `end`.
    pub fn reserve(&self, file: &Arc<MappedFile>, end: u64) -> Arc<Latch<()>> {
        let latch = Latch::new();
        self.send(Request::Reserve {
            file: Arc::clone(file),
            end,
            latch: Arc::clone(&latch),
        });
        latch
    }

    /// Requests that pages be faulted in. A hint: nobody waits for it.
    pub fn populate(&self, file: &Arc<MappedFile>, start: u64, len: u64) {
        self.send(Request::Populate {
            file: Arc::clone(file),
            start,
            len,
        });
    }

    fn send(&self, request: Request) {
        if self.drive == Drive::Steps {
            return self.preparer.handle(request);
        }
        let mut worker = self.worker.lock();
        if worker.is_none() {
            let (sender, receiver) = unbounded();
            let preparer = self.preparer.clone();
            let run = move || preparer.run(&receiver);
            match std::thread::Builder::new()
                .name("forebay-allocate".to_owned())
                .spawn(run)
            {
                Ok(thread) => *worker = Some((sender, thread)),
                // The thread cannot be started: the caller's own thread does the work.
                Err(_) => return self.preparer.handle(request),
            }
        }
        if let Some((sender, _)) = &*worker
            && let Err(unsent) = sender.send(request)
        {
            self.preparer.handle(unsent.into_inner());
        }
    }

    /// Finishes all requests and ends the thread.
    pub fn stop(&self) {
        if let Some((sender, thread)) = self.worker.lock().take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

impl Preparer {
    fn run(&self, requests: &Receiver<Request>) {
        requests.iter().for_each(|request| self.handle(request));
    }

    fn handle(&self, request: Request) {
        match request {
            Request::Create {
                path,
                start,
                len,
                reserve,
                needed,
                latch,
            } => latch.open(self.create(path, start, len, reserve, needed)),
            Request::Reserve { file, end, latch } => latch.open(file.reserve(end)),
            Request::Populate { file, start, len } => file.populate(start, len),
            Request::Lock(file) => self.lock(&file),
            // Requests are handled in order, so this file was created or has failed.
            Request::LockComing(latch) => {
                if let Some(Ready::Done(file)) = latch.wait(Duration::ZERO) {
                    self.lock(&file);
                }
            }
            Request::Unlock(file) => {
                if let Some(region) = file.mapped() {
                    region.unlock();
                }
            }
        }
    }

    /// Creates and prepares a file in the caller's thread. On an error the file does not exist.
    pub fn create(
        &self,
        path: PathBuf,
        start: u64,
        len: u64,
        reserve: u64,
        needed: Use,
    ) -> Result<Arc<MappedFile>> {
        let reserve = match self.preparation.warm_up {
            true => len,
            false => reserve,
        };
        let file = MappedFile::create(&self.disk, path, start, len, reserve)?;
        let warm = || match self.preparation.warm_up {
            true => self.warm_up(&file),
            false => Ok(()),
        };
        warm().map_err(|error| {
            file.discard();
            error.undone(Op::Create, file.path())
        })?;
        if self.preparation.lock && needed == Use::Next {
            self.lock(&file);
        }
        if self.preparation.random_reads
            && let Some(region) = file.mapped()
        {
            region.advise_random();
        }
        Ok(Arc::new(file))
    }

    /// Touches all pages. Syncs after each step, so that dirty pages never pile up.
    fn warm_up(&self, file: &MappedFile) -> Result<()> {
        let region = file.region()?;
        let step = self.preparation.warm_up_pages.max(1) as usize * PAGE;
        for at in (0..region.len()).step_by(step) {
            if region.populate(at, step).is_err() {
                // Kernels before 5.14 do not have this advice.
                region.rewrite(at, step).at(Op::Store, file.path())?;
            }
            self.disk.sync_range(&region, at, step)?;
        }
        Ok(())
    }

    /// Locks a file in memory. A failure costs speed only, not safety, so it gives one warning.
    fn lock(&self, file: &MappedFile) {
        let lock = |region: Arc<Region>| {
            // The lock may have succeeded for a part.
            let locked = region.lock().inspect_err(|_| region.unlock());
            locked.at(Op::Lock, file.path())
        };
        if let Err(error) = file.region().and_then(lock)
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            let (path, reason) = (file.path().to_path_buf(), error.reason());
            self.warnings.add(Warning::Unlocked { path, reason });
        }
    }
}
