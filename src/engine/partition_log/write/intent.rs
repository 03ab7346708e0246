//! Atomic batches of several partitions, or of several batches of one.
//!
//! Each partition ends by itself after a crash, so a file says first what will be appended to all
//! of them:
//!
//! ```text
//!   the atomic batch before this one is durable --> append lock: places are ready
//!   --> forebay.intent, durable: first and next offset in each partition --> rows
//!   --> ... --> all rows are durable --> the file goes
//! ```
//!
//! ```text
//! {"version":1,"partitions":[["orders",0,4711,4713],["orders",1,12,13]],"crc32":1514271918}
//! ```
//!
//! The checksum covers the array, without spaces.
//!
//! After a crash each partition is first recovered by itself. If one of them ends before its rows
//! do, neither the rows nor what follows them was acknowledged as durable, and all partitions named
//! end where the rows begin. Before that, the recovery points go back, durably, so that after
//! another crash the next opening decides the same.
//!
//! If something follows the rows in one of the partitions, or if all bytes of the rows were
//! [`stored`], all rows had been appended. Then rows that are not whole are treated as
//! [`holes`](super::holes) that batches follow: damage is kept and reported, and costs the other
//! partitions nothing. The recovery points move past the rows before the intent goes: otherwise
//! damage at the end of a partition would count as a torn tail.
//!
//! Saving an intent makes the folders of its partitions durable, so no crash removes one of them.
//! If a folder is missing and the other partitions have all their rows, its rows count as appended.
//! Its recovery point moves past them too, and it is reported as [`gone`](super::gone).

use super::files::{self, RECOVERY_POINT};
use super::opening::{Known, Opening};
use super::stored;
use crate::disk::{Disk, read_small, replace};
use crate::engine::partition_log::segments::names::{self, INTENT};
use crate::engine::{Damage, DamageKind};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::table::json;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest intent that is read.
const LEN_MAX: u64 = 64 << 20;

/// Offsets by topic and partition.
pub type Table = HashMap<(String, u32), u64>;

/// The offsets that an atomic batch has in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub queue: u32,
    /// Its offsets.
    pub offsets: Range<u64>,
}

/// Saves what is about to be appended. Without shares, withdraws the intent of a batch that was not
/// appended. Durable on return.
pub fn save(disk: &dyn Disk, root: &Path, shares: &[Share]) -> Result<()> {
    let one = |it: &Share| json!([&*it.topic, it.queue, it.offsets.start, it.offsets.end]);
    let shares: Value = shares.iter().map(one).collect();
    let sum = sum_of(&shares);
    let text = json!({"version": 1, "partitions": shares, "crc32": sum}).to_string();
    replace(disk, &root.join(INTENT), text.as_bytes())
}

/// The checksum of shares. A wrong offset in them would take acknowledged messages away.
fn sum_of(shares: &Value) -> u32 {
    crc32fast::hash(shares.to_string().as_bytes())
}

/// Removes the intent, if there is one. Durable once another file of the directory is.
pub fn remove(disk: &dyn Disk, root: &Path) -> Result<()> {
    match disk.unlink(&root.join(INTENT)) {
        Err(error) if error.is_not_found() => Ok(()),
        done => done,
    }
}

/// The shares of an intent; `None` if the bytes are not an intent.
fn parse(bytes: &[u8]) -> Option<Vec<Share>> {
    let value = json::parse(bytes)?;
    if value.get("version")?.as_u64()? != 1 {
        return None;
    }
    let share = |value: &Value| {
        let [topic, queue, start, end] = value.as_array()?.first_chunk::<4>()?;
        let offsets = start.as_u64()?..end.as_u64()?;
        Some(Share {
            topic: topic.as_str()?.into(),
            queue: u32::try_from(queue.as_u64()?).ok()?,
            offsets: Some(offsets).filter(|it| !it.is_empty())?,
        })
    };
    let shares = value.get("partitions")?;
    // Earlier versions wrote none.
    if let Some(sum) = value.get("crc32")
        && sum.as_u64() != Some(sum_of(shares).into())
    {
        return None;
    }
    let shares = shares.as_array()?.iter().map(share);
    let shares = shares.collect::<Option<Vec<Share>>>()?;
    // Each name costs a recovery, so a partition may be named only once.
    let names: HashSet<_> = shares.iter().map(|it| (&it.topic, it.queue)).collect();
    let is_one_each = names.len() == shares.len();
    is_one_each.then_some(shares)
}

/// The offsets of the last atomic batch in each partition; none if no intent exists.
///
/// # Errors
///
/// Those of reading.
pub fn read(disk: &dyn Disk, root: &Path) -> Result<Vec<Share>> {
    let bytes = read_small(disk, &root.join(INTENT), LEN_MAX)?;
    Ok(bytes.and_then(|bytes| parse(&bytes)).unwrap_or_default())
}

/// Where the last atomic batch begins in each partition, for a reader: until the intent is removed,
/// recovery may take the batch away.
///
/// # Errors
///
/// Those of reading.
pub fn begins(disk: &dyn Disk, root: &Path) -> Result<Table> {
    let shares = read(disk, root)?;
    let begin = |share: Share| ((share.topic.to_string(), share.queue), share.offsets.start);
    Ok(shares.into_iter().map(begin).collect())
}

/// After a crash, keeps the last atomic batch if it is whole, otherwise removes all of it; then
/// removes its intent. Moves `points` with the ends of the partitions. Returns the bytes that were
/// cut off.
///
/// # Errors
///
/// Those of recovery, and of the disk.
pub fn complete(
    opening: &Opening<'_>,
    root: &Path,
    points: &mut Table,
    starts: &Table,
) -> Result<u64> {
    let disk = &**opening.disk;
    let path = root.join(INTENT);
    let Some(bytes) = read_small(disk, &path, LEN_MAX)? else {
        return Ok(0);
    };
    let mut truncated = 0;
    if !opening.is_clean && !planted(Bug::ForgetIntent) {
        match parse(&bytes) {
            Some(shares) => truncated = decide(opening, root, &shares, (points, starts))?,
            None => {
                let reason = "damaged, or of another version: the last atomic batch may be \
                              incomplete";
                let bytes = 0..bytes.len() as u64;
                opening
                    .report
                    .add(Damage::new(DamageKind::Table, path, bytes, reason));
            }
        }
    }
    remove(disk, root)?;
    Ok(truncated)
}

/// The folder of a partition; `None` if there is none.
fn folder(disk: &dyn Disk, root: &Path, share: &Share) -> Result<Option<PathBuf>> {
    // A name that could lead elsewhere was never written by `save`.
    if names::check_topic(&share.topic).is_err() {
        return Ok(None);
    }
    let folder = root.join(format!("{}-{}", share.topic, share.queue));
    Ok(disk.stat(&folder)?.map(|_| folder))
}

/// Whether something was appended after these rows to one of their partitions.
fn is_followed(opening: &Opening<'_>, root: &Path, shares: &[Share]) -> Result<bool> {
    for share in shares {
        if let Some(folder) = folder(&**opening.disk, root, share)?
            && opening.has_from(&folder, share.offsets.end)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether all bytes of these rows were stored, in the partitions that have a folder.
fn are_stored(opening: &Opening<'_>, root: &Path, shares: &[Share]) -> Result<bool> {
    let disk = &**opening.disk;
    for share in shares {
        if let Some(folder) = folder(disk, root, share)?
            && !stored::are_stored(disk, &folder, &share.offsets)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Saves recovery points. Does nothing if they are not known: after another crash, the next opening
/// must not know them either. Durable on return.
fn save_points(opening: &Opening<'_>, root: &Path, points: &Table) -> Result<()> {
    if !opening.are_points_known {
        return Ok(());
    }
    let lines = points.iter().map(|(key, at)| (&*key.0, key.1, *at));
    let lines: Vec<files::Line<'_>> = lines.collect();
    files::save_checkpoint(&**opening.disk, root, RECOVERY_POINT, &lines)
}

fn decide(
    opening: &Opening<'_>,
    root: &Path,
    shares: &[Share],
    (points, starts): (&mut Table, &Table),
) -> Result<u64> {
    let disk = &**opening.disk;
    let of = |table: &Table, key: &(String, u32)| table.get(key).copied().unwrap_or_default();
    let (mut there, mut is_whole, mut truncated) = (Vec::new(), true, 0);
    let (mut is_any, mut is_gone, mut is_damaged) = (false, false, false);
    // In both cases all rows had been appended.
    let is_followed = is_followed(opening, root, shares)? || are_stored(opening, root, shares)?;
    for share in shares {
        let key = (share.topic.to_string(), share.queue);
        let Some(folder) = folder(disk, root, share)? else {
            is_gone = true;
            continue;
        };
        is_any = true;
        let known = Known {
            point: of(points, &key),
            start: of(starts, &key),
            limit: u64::MAX,
            followed: if is_followed { share.offsets.end } else { 0 },
            doubted: if is_followed {
                u64::MAX
            } else {
                share.offsets.start
            },
        };
        let found = opening.open(folder.clone(), known)?;
        truncated += found.truncated;
        is_whole &= found.end.offset >= share.offsets.end;
        is_damaged |= is_followed && !found.continues;
        if found.end.offset > share.offsets.start {
            there.push((key, folder, share.offsets.start));
        }
    }
    if is_whole && (is_damaged || is_gone && is_any) {
        let named = |it: &&Share| names::check_topic(&it.topic).is_ok();
        for share in shares.iter().filter(named) {
            let key = (share.topic.to_string(), share.queue);
            let point = points.entry(key).or_default();
            *point = share.offsets.end.max(*point);
        }
        save_points(opening, root, points)?;
    }
    if is_whole || there.is_empty() {
        return Ok(truncated);
    }
    for (key, _, start) in &there {
        if let Some(point) = points.get_mut(key) {
            *point = (*start).min(*point);
        }
    }
    save_points(opening, root, points)?;
    for (key, folder, limit) in there {
        let known = Known {
            point: limit,
            start: of(starts, &key),
            limit,
            followed: 0,
            doubted: limit,
        };
        truncated += opening.open(folder, known)?.truncated;
        // All that is left of it is durable.
        points.insert(key, limit);
    }
    Ok(truncated)
}
