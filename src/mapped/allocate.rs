//! Files and blocks ahead of use: one thread, an ordered queue of requests, a latch for each.
//!
//! ```text
//!   appender --> [requests, in order] --> allocator: create, reserve, warm up --> latch -->
//!   appender
//! ```
//!
//! A request that is made early enough costs the appender nothing; one that is not waits at the
//! latch, or does the work itself where the allocator has gone.

use super::MappedFile;
use crate::disk::Disk;
use crate::machine::{Drive, Machine};
use crate::num::index;
use crate::region::{PAGE, Region};
use crate::warning::{Warning, Warnings};
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How files are prepared for use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// Store to each page of a new file before it is used. Reserves all blocks.
    pub warm_up: bool,
    /// Pages between two syncs while a file is warmed up; at least 1.
    pub warm_up_pages: u32,
    /// Lock the files that are appended to in memory.
    pub lock: bool,
    /// Tell the kernel that reads are not in order.
    pub random_reads: bool,
}

/// When a file is used that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// When the one that is appended to is full: it is locked, where that is asked for.
    Next,
    /// After another file that is made ahead; see [`Allocator::begin_coming`].
    Later,
}

/// A result that is waited for: set once.
#[derive(Debug)]
pub struct Latch<T> {
    slot: Mutex<Option<io::Result<T>>>,
    set: Condvar,
}

impl<T: Clone> Latch<T> {
    fn new() -> Arc<Latch<T>> {
        Arc::new(Latch {
            slot: Mutex::new(None),
            set: Condvar::new(),
        })
    }

    fn open(&self, result: io::Result<T>) {
        *self.slot.lock() = Some(result);
        self.set.notify_all();
    }

    /// Whether the work has ended with an error.
    pub fn has_failed(&self) -> bool {
        self.slot.lock().as_ref().is_some_and(Result::is_err)
    }

    /// Waits for the result.
    ///
    /// # Errors
    ///
    /// What the work ended with, or `TimedOut`.
    pub fn wait(&self, timeout: Duration) -> io::Result<T> {
        let deadline = Instant::now() + timeout;
        let mut slot = self.slot.lock();
        while slot.is_none() {
            if self.set.wait_until(&mut slot, deadline).timed_out() && slot.is_none() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        match &*slot {
            Some(Ok(value)) => Ok(value.clone()),
            Some(Err(error)) => Err(copy_error(error)),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// An `io::Error` is not `Clone`; its code or its kind is what matters.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
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

/// What preparing a file takes.
#[derive(Clone, Debug)]
pub struct Preparer {
    disk: Arc<dyn Disk>,
    preparation: Preparation,
    warnings: Arc<Warnings>,
    /// Whether it was told that files cannot be locked.
    told: Arc<AtomicBool>,
}

/// The allocator: a thread that is started by the first request.
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
                told: Arc::default(),
            },
            worker: Mutex::new(None),
        }
    }

    /// Prepares files in the caller's thread.
    pub fn preparer(&self) -> &Preparer {
        &self.preparer
    }

    /// Says that a file that was there before is appended to: it is locked, where that is asked
    /// for.
    pub fn begin(&self, file: &Arc<MappedFile>) {
        if self.preparer.preparation.lock {
            self.send(Request::Lock(Arc::clone(file)));
        }
    }

    /// [`Allocator::begin`] of a file that was asked for earlier.
    pub fn begin_coming(&self, file: &Arc<Latch<Arc<MappedFile>>>) {
        if self.preparer.preparation.lock {
            self.send(Request::LockComing(Arc::clone(file)));
        }
    }

    /// Says that nothing more is appended to a file: it need not be locked any more.
    pub fn end(&self, file: &Arc<MappedFile>) {
        if self.preparer.preparation.lock {
            self.send(Request::Unlock(Arc::clone(file)));
        }
    }

    /// Asks for a file of `len` bytes with the blocks of its first `reserve` bytes.
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

    /// Asks for the blocks of `file` below `end`.
    pub fn reserve(&self, file: &Arc<MappedFile>, end: u64) -> Arc<Latch<()>> {
        let latch = Latch::new();
        self.send(Request::Reserve {
            file: Arc::clone(file),
            end,
            latch: Arc::clone(&latch),
        });
        latch
    }

    /// Asks for pages to be faulted in. A hint: nobody waits for it.
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
                // No thread can be had: the caller's own thread does the work.
                Err(_) => return self.preparer.handle(request),
            }
        }
        if let Some((sender, _)) = &*worker
            && let Err(unsent) = sender.send(request)
        {
            self.preparer.handle(unsent.into_inner());
        }
    }

    /// Does what was asked for and ends the thread.
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
            Request::Populate { file, start, len } => {
                if let Ok(region) = file.region() {
                    // A hint: failure costs only speed.
                    let _ = region.populate(index(start), index(len));
                }
            }
            Request::Lock(file) => self.lock(&file),
            // Requests are handled in order, so it was made, or could not be.
            Request::LockComing(latch) => {
                if let Ok(file) = latch.wait(Duration::ZERO) {
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

    /// Creates and prepares a file now. On an error it is not there.
    pub fn create(
        &self,
        path: PathBuf,
        start: u64,
        len: u64,
        reserve: u64,
        needed: Use,
    ) -> io::Result<Arc<MappedFile>> {
        let reserve = match self.preparation.warm_up {
            true => len,
            false => reserve,
        };
        let file = MappedFile::create(&self.disk, path, start, len, reserve)?;
        let warm = || match self.preparation.warm_up {
            true => self.warm_up(&file),
            false => Ok(()),
        };
        warm().inspect_err(|_| file.discard())?;
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

    /// Touches every page, so many at a time, each synced, so that dirty pages never pile up.
    fn warm_up(&self, file: &MappedFile) -> io::Result<()> {
        let region = file.region()?;
        let step = self.preparation.warm_up_pages.max(1) as usize * PAGE;
        for at in (0..region.len()).step_by(step) {
            if region.populate(at, step).is_err() {
                // A kernel before 5.14 does not know the question.
                region.rewrite(at, step)?;
            }
            self.disk.sync_range(&region, at, step)?;
        }
        Ok(())
    }

    /// Locks a file in memory, or warns once that it cannot be: messages are as safe as they were.
    fn lock(&self, file: &MappedFile) {
        let lock = |region: Arc<Region>| {
            // A part of it may be locked.
            region.lock().inspect_err(|_| region.unlock())
        };
        if let Err(error) = file.region().and_then(lock)
            && !self.told.swap(true, Ordering::Relaxed)
        {
            let (path, reason) = (file.path().to_path_buf(), error.to_string());
            self.warnings.add(Warning::Unlocked { path, reason });
        }
    }
}
