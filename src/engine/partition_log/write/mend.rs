//! Removes what is left in a shared partition log of a process that died with the append lock, or
//! of a failed append that its process could not remove. The next holder of the lock does what an
//! opening would do: it keeps whole batches, and cuts off the rest.
//!
//! ```text
//!   maps of segments are void --> for each partition: batches after the published end that are
//!   whole --> is the last atomic batch whole in all partitions? if not, it goes
//!   --> cut, durably --> publish
//! ```
//!
//! A crash between any two of these leaves the lock dirty, so the next holder begins again.

use super::ends::{End, Ends};
use super::intent::{self, Share};
use super::parts::Parts;
use super::shared::Shared;
use super::tail::Tail;
use crate::disk::Disk;
use crate::engine::directory::member::Held;
use crate::engine::partition_log::segments::names::{self, State};
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::engine::service::shared_lock::Taken;
use crate::error::{Error, Result};
use crate::plant::{Bug, Point, pass, planted};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Positions are lower.
const POSITION_MAX: u64 = 1 << 62;
/// Bytes that are read at once.
const CHUNK: u64 = 1 << 20;

/// A partition, and what was found after its published end.
struct Found {
    ends: Arc<Ends>,
    published: End,
    /// Bases and lengths of the segments from the last published one on, as far as their batches
    /// are whole.
    segments: Vec<(u64, u64)>,
    /// The offset after these batches.
    next: u64,
    /// Bases of segments that follow.
    strays: Vec<u64>,
    /// Whether something else follows, in these segments or in others.
    is_strewn: bool,
}

impl Parts {
    /// Takes the append lock of all processes, and removes what a dead holder has left. The caller
    /// holds the append lock of this process.
    pub(super) fn hold<'a>(
        &self,
        shared: &'a Shared,
        tail: &mut Tail,
        timeout: Duration,
    ) -> Result<Held<'a>> {
        let (held, taken) = shared.member.hold(timeout)?;
        shared.check(&self.health)?;
        let published = shared.published();
        if published < self.seen().max(shared.durable()) || published > POSITION_MAX {
            let error = shared.corrupt_mark(published);
            // This process has relied on marks that contradict each other, so it stops writing.
            self.health.fail(&error, || {});
            return Err(error);
        }
        tail.resume_at(published);
        if taken == Taken::Dirty || shared.table.is_unclean() {
            let mended = self.mend(shared, tail);
            mended.inspect_err(|error| self.fail_of(error))?;
            shared.table.set_unclean(false);
            held.clean();
        }
        Ok(held)
    }

    /// Publishes what is whole after the published ends, and cuts off the rest.
    #[cold]
    fn mend(&self, shared: &Shared, tail: &mut Tail) -> Result<()> {
        self.load()?;
        shared.table.next_cut();
        let all: Vec<_> = {
            let all = self.all.lock();
            all.iter()
                .map(|(key, ends)| (key.clone(), Arc::clone(ends)))
                .collect()
        };
        let mut found = BTreeMap::new();
        for (key, ends) in all {
            found.insert(key, find(&*self.disk, &ends, u64::MAX)?);
        }
        let shares = intent::read(&*self.disk, &self.root)?;
        let is_whole = shares.iter().all(|share| reaches(&found, share));
        if !is_whole && !planted(Bug::ForgetIntent) {
            for share in &shares {
                let key = (Arc::clone(&share.topic), share.queue);
                let Some(it) = found.get_mut(&key) else {
                    continue;
                };
                if it.published.offset > share.offsets.start {
                    let reason = "a part of an atomic batch is missing";
                    let path = it.ends.path_of(it.published.base);
                    return Err(Error::corrupt(path, it.published.len, reason));
                }
                *it = find(&*self.disk, &it.ends, share.offsets.start)?;
                // Another process may have cut it off, and died before the sync.
                it.is_strewn |= !planted(Bug::TrustCut);
            }
        }
        let mut end = tail.end() + 1;
        for it in found.values() {
            end += self.cut(it)?;
        }
        pass(Point::Erased);
        if !is_whole {
            // After the cuts: until they are durable, the intent says what to cut.
            intent::save(&*self.disk, &self.root, &[])?;
        } else if !shares.is_empty() {
            shared.table.set_whole(end);
        }
        for it in found.values() {
            if let Some((base, len)) = it.segments.last().copied()
                && it.next > it.published.offset
            {
                let offset = it.next;
                it.ends.publish(End { base, len, offset });
            }
        }
        self.publish_shared(shared, end);
        tail.resume_at(end);
        shared.check(&self.health)
    }

    /// Cuts off what follows the whole batches of a partition. Durable on return. Returns the bytes
    /// of whole batches after the published end.
    fn cut(&self, found: &Found) -> Result<u64> {
        let disk = &*self.disk;
        let added: u64 = found.segments.iter().map(|(_, len)| *len).sum();
        let added = added.saturating_sub(found.published.len);
        if !found.is_strewn || planted(Bug::KeepUnpublished) {
            return Ok(added);
        }
        for base in found.strays.iter().rev() {
            let log = found.ends.path_of(*base);
            for ending in names::ENDINGS {
                let path = names::beside(&log, ending);
                if disk.stat(&path)?.is_some() {
                    disk.unlink(&path)?;
                }
            }
        }
        for (base, len) in &found.segments {
            let path = found.ends.path_of(*base);
            disk.set_len(&path, *len)?;
            pass(Point::Erased);
            disk.sync_file(&path)?;
        }
        disk.sync_directory(&found.ends.folder)?;
        Ok(added)
    }
}

/// Whether a partition has its whole share of an atomic batch.
fn reaches(found: &BTreeMap<(Arc<str>, u32), Found>, share: &Share) -> bool {
    let of = found.get(&(Arc::clone(&share.topic), share.queue));
    of.is_some_and(|it| it.next >= share.offsets.end)
}

/// Finds the batches after the published end that are whole and begin before `limit`.
fn find(disk: &dyn Disk, ends: &Arc<Ends>, limit: u64) -> Result<Found> {
    let Some(place) = ends.published_place()? else {
        unreachable!("only shared partitions are mended")
    };
    let published = place.end;
    let mut found = Found {
        ends: Arc::clone(ends),
        published,
        segments: Vec::new(),
        next: published.offset,
        strays: Vec::new(),
        is_strewn: false,
    };
    let files = names::log_files(disk, &ends.folder)?;
    let begins = |file: &names::LogFile| file.base == published.base && place.continues;
    let is_meant = |file: &&names::LogFile| {
        // A partition without messages may have no segment.
        let is_later = file.base > published.base || published.len == 0;
        file.state == State::Used && file.base >= published.base && (is_later || place.continues)
    };
    for file in files.iter().filter(is_meant) {
        if found.is_strewn || (!begins(file) && file.base != found.next) {
            found.is_strewn = true;
            found.strays.push(file.base);
            continue;
        }
        let from = if begins(file) { published.len } else { 0 };
        let (len, next) = walk(disk, ends, file, from, (found.next, limit))?;
        if len == 0 && !begins(file) {
            found.is_strewn = true;
            found.strays.push(file.base);
            continue;
        }
        found.segments.push((file.base, len));
        found.next = next;
        found.is_strewn = has_bytes(disk, ends, file, len..file.len)?;
    }
    Ok(found)
}

/// The end of the whole batches in a segment from a position on, and the offset after them.
fn walk(
    disk: &dyn Disk,
    ends: &Ends,
    file: &names::LogFile,
    from: u64,
    (mut next, limit): (u64, u64),
) -> Result<(u64, u64)> {
    let segment = Arc::new(Segment {
        base: file.base,
        path: ends.path_of(file.base),
        len: file.len,
    });
    let mut len = from;
    let mut walk = Walk::new(Reader::open(disk, &segment)?, from);
    while let Step::Batch(found) = walk.next(disk)? {
        let header = &found.header;
        let follows = header.first_offset() == next && next < limit && found.position == len;
        let is_whole = walk.reader.is_whole(found.position, header)?;
        if !follows || !(is_whole || planted(Bug::NoChecksum)) {
            break;
        }
        next = header.last_offset() + 1;
        len = walk.position;
    }
    Ok((len, next))
}

/// Whether a file has a byte in the range that is not zero.
fn has_bytes(
    disk: &dyn Disk,
    ends: &Ends,
    file: &names::LogFile,
    range: Range<u64>,
) -> Result<bool> {
    let path = ends.path_of(file.base);
    let mut buffer = Vec::new();
    let mut at = range.start;
    while at < range.end
        && let Some(data) = disk.next_data(&path, at)?
        && data.start < range.end
    {
        at = data.start.max(at);
        let end = data.end.min(range.end).min(at + CHUNK);
        buffer.resize(usize::try_from(end - at).unwrap_or(0), 0);
        let have = disk.read_at(&path, at, &mut buffer)?;
        if buffer.iter().take(have).any(|byte| *byte != 0) {
            return Ok(true);
        }
        at = end;
    }
    Ok(false)
}
