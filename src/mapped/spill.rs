//! Memory for queue entries that are missing on a read-only disk: plain memory up to a limit, then
//! temporary files in another directory.

use crate::clock::{Clock, RealClock};
use crate::error::{At, Error, Op, Result};
use crate::region::{Access, Region};
use crate::sync::Mutex;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Plain memory in use before temporary files are created.
pub const MEMORY_MAX: usize = 64 << 20;
const MEMORY_BLOCK: usize = 1 << 20;
const FILE_BLOCK: usize = 64 << 20;

/// Allocates zeroed bytes that are accessed as words.
#[derive(Debug, Default)]
pub struct Spill {
    used: Mutex<Used>,
    /// Queue entries without a message, shared by many queues.
    pub fillers: Mutex<Option<(Arc<Region>, usize)>>,
}

#[derive(Debug, Default)]
struct Used {
    in_memory: usize,
    block: Option<Arc<Region>>,
    at: usize,
}

impl Spill {
    /// Whether a place in a region is that of the shared entries without a message.
    pub fn is_fillers(&self, region: &Arc<Region>, base: usize) -> bool {
        let fillers = self.fillers.lock();
        let is_it =
            |(shared, at): &(Arc<Region>, usize)| Arc::ptr_eq(shared, region) && *at == base;
        fillers.as_ref().is_some_and(is_it)
    }

    /// Allocates `len` zero bytes, a multiple of 4 below 1 MiB. Returns a region and their place in
    /// it.
    pub fn take(&self, len: usize) -> Result<(Arc<Region>, usize)> {
        let mut used = self.used.lock();
        match &used.block {
            Some(block) if used.at + len <= block.len() => {
                let found = (Arc::clone(block), used.at);
                used.at += len;
                Ok(found)
            }
            _ => {
                let block = Arc::new(new_block(used.in_memory)?);
                used.in_memory += block.len();
                used.block = Some(Arc::clone(&block));
                used.at = len;
                Ok((block, 0))
            }
        }
    }
}

fn new_block(in_memory: usize) -> Result<Region> {
    if in_memory + MEMORY_BLOCK <= MEMORY_MAX {
        let path = PathBuf::from("memory");
        return Region::anonymous(MEMORY_BLOCK, &path).at(Op::Map, &path);
    }
    let directory = std::env::temp_dir();
    let io = |error| Error::io(Op::UseTemporary, &directory, error);
    let file = temporary_file(&directory).map_err(io)?;
    crate::disk::reserve_open(&file, FILE_BLOCK as u64).map_err(io)?;
    Region::map(
        &file,
        Path::new("temporary file"),
        FILE_BLOCK,
        Access::ReadWrite,
    )
    .map_err(io)
}

/// An unlinked file, which is deleted when it is no longer mapped.
fn temporary_file(directory: &Path) -> std::io::Result<File> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = format!(
        ".forebay-{}-{:x}-{count}",
        std::process::id(),
        RealClock.now_ms()
    );
    let path = directory.join(name);
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let file = options.open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
