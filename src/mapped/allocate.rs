//! Files and blocks ahead of use: one thread, an ordered queue of requests, a latch for each.
//!
//! ```text
//!   appender --> [requests, in order] --> allocator: create, reserve, warm up --> latch -->
//!   appender
//! ```
//!
//! A request that is made early enough costs the appender nothing; one that is not waits at the
//! latch, or does the work itself where the allocator has gone.

use super::{MappedFile, PAGE};
use crate::disk::Disk;
use crate::machine::{Drive, Machine};
use crate::num::index;
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How files are prepared for use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// Store to each page of a new file before it is used. Reserves all blocks.
    pub warm_up: bool,
    /// Pages between two syncs while a file is warmed up; at least 1.
    pub warm_up_pages: u32,
    /// Lock new files in memory.
    pub lock: bool,
    /// Tell the kernel that reads are not in order.
    pub random_reads: bool,
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

    /// Whether the result is there.
    pub fn is_open(&self) -> bool {
        self.slot.lock().is_some()
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
}

/// The allocator: a thread that is started by the first request.
#[derive(Debug)]
pub struct Allocator {
    machine: Machine,
    preparation: Preparation,
    worker: Mutex<Option<(Sender<Request>, JoinHandle<()>)>>,
}

impl Allocator {
    /// An allocator that has not started yet.
    pub fn new(machine: &Machine, preparation: Preparation) -> Allocator {
        Allocator {
            machine: machine.clone(),
            preparation,
            worker: Mutex::new(None),
        }
    }

    /// Asks for a file of `len` bytes with the blocks of its first `reserve` bytes.
    pub fn create(
        &self,
        path: PathBuf,
        start: u64,
        len: u64,
        reserve: u64,
    ) -> Arc<Latch<Arc<MappedFile>>> {
        let latch = Latch::new();
        self.send(Request::Create {
            path,
            start,
            len,
            reserve,
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
        let (disk, preparation) = (&self.machine.disk, self.preparation);
        if self.machine.drive == Drive::Steps {
            return handle(disk, preparation, request);
        }
        let mut worker = self.worker.lock();
        if worker.is_none() {
            let (sender, receiver) = unbounded();
            let disk = Arc::clone(disk);
            let run = move || run(&disk, preparation, &receiver);
            match std::thread::Builder::new()
                .name("forebay-allocate".to_owned())
                .spawn(run)
            {
                Ok(thread) => *worker = Some((sender, thread)),
                // No thread can be had: the caller's own thread does the work.
                Err(_) => return handle(&self.machine.disk, preparation, request),
            }
        }
        if let Some((sender, _)) = &*worker
            && let Err(unsent) = sender.send(request)
        {
            handle(disk, preparation, unsent.into_inner());
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

fn run(disk: &Arc<dyn Disk>, preparation: Preparation, requests: &Receiver<Request>) {
    for request in requests {
        handle(disk, preparation, request);
    }
}

fn handle(disk: &Arc<dyn Disk>, preparation: Preparation, request: Request) {
    match request {
        Request::Create {
            path,
            start,
            len,
            reserve,
            latch,
        } => {
            latch.open(create(disk, preparation, path, start, len, reserve));
        }
        Request::Reserve { file, end, latch } => latch.open(file.reserve(end)),
        Request::Populate { file, start, len } => {
            if let Ok(region) = file.region() {
                region.populate(index(start), index(len));
            }
        }
    }
}

/// Creates and prepares a file now.
pub fn create(
    disk: &Arc<dyn Disk>,
    preparation: Preparation,
    path: PathBuf,
    start: u64,
    len: u64,
    reserve: u64,
) -> io::Result<Arc<MappedFile>> {
    let reserve = if preparation.warm_up { len } else { reserve };
    let file = Arc::new(MappedFile::create(disk, path, start, len, reserve)?);
    let region = file.region()?;
    if preparation.warm_up {
        // So many at a time, each synced, so that dirty pages never pile up.
        let step = preparation.warm_up_pages.max(1) as usize * PAGE;
        for at in (0..region.len()).step_by(step) {
            region.populate(at, step);
            disk.sync_range(&region, at, step)?;
        }
    }
    if preparation.lock {
        region.lock()?;
    }
    if preparation.random_reads {
        region.advise_random();
    }
    Ok(file)
}
