//! Keys between the log and the index: one file per range, in log order.
//!
//! ```text
//! at  width  field
//! 0   u32    hash of topic and key
//! 4   u64    position of the record
//! 12  i64    its store time (ms)
//! ```
//!
//! All numbers are big-endian; a key takes 20 bytes. The index file of a key depends on the number
//! of keys in all earlier ranges. These files make one pass over the log sufficient.

use super::Quarry;
use crate::disk::Disk;
use crate::engine::commit_log::index::file::IndexFile;
use crate::engine::directory::names;
use crate::error::{Error, Result};
use crate::mapped::queue::file_name;
use crate::record::rocketmq::layout::{be_u32, be_u64};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a key.
const KEY_LEN: usize = 4 + 8 + 8;
/// Keys read or written at a time.
const CHUNK_KEYS: usize = 1 << 15;

/// The keys of one index file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexKeys {
    /// Name of the file as a number: local time of its first key, in milliseconds.
    pub name: u64,
    /// Number of its first key among all keys.
    pub first: u64,
    /// Number of keys.
    pub count: u64,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct StagedKey {
    hash: u32,
    position: u64,
    pub time: i64,
}

/// Path of the keys of the range that begins at `start`.
fn path_of(target: &Path, start: u64) -> PathBuf {
    target.join("keys").join(file_name(start))
}

/// The file of a range while it is written.
pub struct StagedKeys<'a> {
    disk: &'a Arc<dyn Disk>,
    path: PathBuf,
    temporary: PathBuf,
    buffer: Vec<u8>,
    stored: u64,
}

impl<'a> StagedKeys<'a> {
    pub fn create(
        disk: &'a Arc<dyn Disk>,
        target: &Path,
        start: u64,
        token: &str,
    ) -> Result<StagedKeys<'a>> {
        let path = path_of(target, start);
        let directory = target.join("keys");
        disk.create_directory(&directory)?;
        Ok(StagedKeys {
            disk,
            temporary: directory.join(format!("{start}.{token}.tmp")),
            path,
            buffer: Vec::new(),
            stored: 0,
        })
    }

    pub fn push(&mut self, hash: u32, position: u64, time: i64) -> Result<()> {
        self.buffer.extend(hash.to_be_bytes());
        self.buffer.extend(position.to_be_bytes());
        self.buffer.extend(time.to_be_bytes());
        match self.buffer.len() >= KEY_LEN * CHUNK_KEYS {
            true => self.store(),
            false => Ok(()),
        }
    }

    fn store(&mut self) -> Result<()> {
        self.disk
            .write_at(&self.temporary, self.stored, &self.buffer)?;
        self.stored += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Gives the file its final name and returns the number of keys.
    pub fn finish(mut self) -> Result<u64> {
        self.store()?;
        self.disk.rename(&self.temporary, &self.path)?;
        Ok(self.stored / KEY_LEN as u64)
    }
}

/// Passes keys `first..first + count` of all ranges to `visit`. `staged`: start and number of keys
/// of each range, in order.
pub fn each_key(
    disk: &Arc<dyn Disk>,
    target: &Path,
    staged: &[(u64, u64)],
    (first, count): (u64, u64),
    visit: &mut dyn FnMut(StagedKey) -> Result<()>,
) -> Result<()> {
    let (mut skip, mut left) = (first, count);
    let mut buffer = vec![0; KEY_LEN * CHUNK_KEYS];
    for (start, keys) in staged {
        if skip >= *keys {
            skip -= keys;
            continue;
        }
        let path = path_of(target, *start);
        let mut at = skip;
        let until = (skip + left).min(*keys);
        left -= until - at;
        skip = 0;
        while at < until {
            let wanted = usize::try_from(until - at)
                .unwrap_or(CHUNK_KEYS)
                .min(CHUNK_KEYS);
            let part = buffer.get_mut(..wanted * KEY_LEN).unwrap_or_default();
            let read = disk.read_at(&path, at * KEY_LEN as u64, part)?;
            if read < part.len() {
                let reason = format!("expected {} bytes of keys, read {read}", part.len());
                return Err(Error::corrupt(&path, at * KEY_LEN as u64, reason));
            }
            for bytes in part.chunks_exact(KEY_LEN) {
                visit(StagedKey {
                    hash: be_u32(bytes, 0),
                    position: be_u64(bytes, 4),
                    time: be_u64(bytes, 12).cast_signed(),
                })?;
            }
            at += wanted as u64;
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
}

impl Quarry {
    /// Builds one index file from the staged keys of the ranges.
    pub fn index(
        &self,
        target: &Path,
        staged: &[(u64, u64)],
        plan: &IndexKeys,
        token: &str,
    ) -> Result<()> {
        let directory = target.join(names::INDEX);
        self.disk.create_directory(&directory)?;
        let temporary = directory.join(format!("{}.{token}.tmp", plan.name));
        let mut before = None;
        if let Some(last) = plan.first.checked_sub(1) {
            each_key(&self.disk, target, staged, (last, 1), &mut |key| {
                before = Some((key.time, key.position));
                Ok(())
            })?;
        }
        let sizes = (self.geometry.index_slots, self.geometry.index_entries);
        let path = temporary.clone();
        let file = IndexFile::create(&self.disk, path, plan.name, sizes, before)?;
        let keys = (plan.first, plan.count);
        each_key(&self.disk, target, staged, keys, &mut |key| {
            file.put(key.hash, key.position, key.time)
        })?;
        file.flush()?;
        let path = directory.join(format!("{:017}", plan.name));
        self.disk.rename(&temporary, &path)?;
        self.disk.sync_directory(&directory)
    }
}
