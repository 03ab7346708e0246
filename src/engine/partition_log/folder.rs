//! The folder of a partition: its segments, and where it begins and ends.
//!
//! A live broker appends, deletes, truncates and replaces segments, so the state is brought up to
//! date before each read. The end is found by walking the last segment from the last entry of its
//! index, and later from where the previous walk ended.

use super::segments::names::{self, LogFile, State as FileState};
use super::segments::reader::{Here, Reader};
use super::segments::segment::{Segment, Segments};
use super::segments::walk::{Step, Walk};
use super::segments::waypoints::Waypoints;
use super::segments::writers::Writers;
use super::write::ends::Ends;
use crate::clock::{Clock, RealClock};
use crate::disk::Disk;
use crate::error::Result;
use crate::record::kafka::{HEAD_LEN, Header};
use crate::sync::Mutex;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of a partition.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    writers: Arc<Writers>,
    /// Where the partition begins and ends, if this process writes it.
    pub(super) ends: Option<Arc<Ends>>,
    state: Mutex<State>,
    /// Where walks have found batches.
    pub(super) waypoints: Waypoints,
}

/// What a read of a partition begins with.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) segments: Segments,
    /// Offsets that can be read.
    pub(super) bounds: Range<u64>,
    /// Offset after the last batch. Transactions that are open may reach up to here.
    pub(super) end: u64,
    /// How often the end has moved back.
    pub(super) truncations: u64,
}

#[derive(Debug, Default)]
struct State {
    segments: Segments,
    /// First offset that a checkpoint allows.
    start: u64,
    /// Where the last walk over the last segment ended.
    end: Place,
    /// How often the end has moved back.
    truncations: u64,
    /// The end and the length of the last file, if no whole batch follows the end and nobody
    /// writes.
    barren: Option<(Place, u64)>,
    /// How often this process has replaced segments.
    replaced: u64,
    /// Bytes of all segments up to the end.
    bytes: u64,
    /// Like `bytes`, but never decreases. Grows whenever there is something new.
    seen: u64,
    /// When the folder was last modified before its segments were listed; `None` if a later change
    /// could have the same time.
    listed: Option<i64>,
}

/// Two changes within this time may get the same modification time from the file system.
pub(super) const TICK_MS: i64 = 1000;

/// A place in the last segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    base: u64,
    position: u64,
    offset: u64,
    /// Where the last batch before it begins.
    batch: Option<u64>,
}

impl Folder {
    /// A folder of which nothing is known yet.
    pub(super) fn new(path: PathBuf) -> Folder {
        Folder {
            writers: Arc::new(Writers::of(&path)),
            path,
            ends: None,
            state: Mutex::default(),
            waypoints: Waypoints::default(),
        }
    }

    /// The folder of a partition that this process writes.
    pub(super) fn written(ends: Arc<Ends>) -> Folder {
        Folder {
            ends: Some(Arc::clone(&ends)),
            ..Folder::new(ends.folder.clone())
        }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Updates the state and returns it. `start`: the first offset according to a checkpoint.
    pub(super) fn view(&self, disk: &dyn Disk, start: Option<u64>) -> Result<View> {
        let mut state = self.state.lock();
        if let Some(start) = start {
            state.start = start;
        }
        self.update(disk, &mut state)?;
        let end = state.end.offset;
        let first = state.segments.first().map_or(0, |segment| segment.base);
        let first = self.ends.as_ref().map_or(first, |ends| ends.start());
        let start = first.max(state.start).min(end);
        Ok(View {
            segments: Arc::clone(&state.segments),
            bounds: start..end,
            end,
            truncations: state.truncations,
        })
    }

    /// Lists the folder even if it seems unchanged. Returns the segments, and the offset after the
    /// last batch.
    pub(super) fn list_again(&self, disk: &dyn Disk) -> Result<(Segments, u64)> {
        let mut state = self.state.lock();
        state.listed = None;
        self.ends.iter().for_each(|ends| ends.list_again());
        self.update(disk, &mut state)?;
        Ok((Arc::clone(&state.segments), state.end.offset))
    }

    /// A walk that finds the batch with `offset` in a segment; `None` if the segment's file was
    /// replaced since it was listed. Begins where the index or an earlier walk knows a batch at or
    /// before that one.
    pub(super) fn walk(
        &self,
        disk: &dyn Disk,
        segment: &Arc<Segment>,
        offset: u64,
    ) -> Result<Option<Walk>> {
        let mut reader = Reader::open(disk, segment)?;
        if self.was_replaced(&reader) {
            return Ok(None);
        }
        let position = reader.seek(disk, offset)?;
        let mut walk;
        if let Some(waypoint) = self.waypoints.floor(segment.base, offset)
            && waypoint.position > position
            && let Here::Batch(header) = reader.here(waypoint.position)?
            && header.last_offset() == waypoint.last_offset
        {
            walk = Walk::at(reader, waypoint);
        } else {
            walk = Walk::new(reader, position);
        }
        walk.writers = self.writers();
        Ok(Some(walk))
    }

    /// The writers of the partition; `None` if this process writes it.
    pub(super) fn writers(&self) -> Option<Arc<Writers>> {
        self.ends.is_none().then(|| Arc::clone(&self.writers))
    }

    /// Whether the opened file is a replacement of the segment's file. The lengths also differ if
    /// the segment is being written or was just completed.
    fn was_replaced(&self, reader: &Reader) -> bool {
        let segment = &reader.segment;
        if reader.file_len == segment.len {
            return false;
        }
        let current = match &self.ends {
            Some(ends) => ends.seen().0,
            None => Arc::clone(&self.state.lock().segments),
        };
        let after = current.partition_point(|it| it.base <= segment.base);
        let found = after.checked_sub(1).and_then(|number| current.get(number));
        let is_last = after == current.len();
        found.is_none_or(|it| {
            let is_same = it.base == segment.base && it.path == segment.path;
            !is_same || !is_last && (self.ends.is_none() || it.len != segment.len)
        })
    }

    /// Bytes that [`Folder::view`] has found so far. Grows whenever there is something new.
    pub(super) fn seen(&self) -> u64 {
        self.state.lock().seen
    }

    /// Bytes of all segments: as the last [`Folder::view`] found them, or, if this process writes
    /// the partition, the current ones.
    pub(super) fn bytes(&self) -> u64 {
        match &self.ends {
            Some(ends) => ends.len(),
            None => self.state.lock().bytes,
        }
    }

    fn update(&self, disk: &dyn Disk, state: &mut State) -> Result<()> {
        if let Some(ends) = &self.ends {
            ends.catch_up(disk)?;
            let replaced = ends.replaced();
            if replaced != state.replaced {
                state.replaced = replaced;
                self.waypoints.forget();
            }
            (state.segments, state.end.offset) = ends.seen();
            return Ok(());
        }
        let segments = self.list(disk, state)?;
        // A partition may have many segments, and a reader may take one message at a time, so
        // unchanged segments are not visited again.
        let is_same = Arc::ptr_eq(&segments, &state.segments);
        let known = state.end;
        state.end = match segments.last() {
            None => Place::default(),
            Some(last) => {
                let searched = state.barren == Some((known, last.len));
                match find_end(disk, last, known, Some((&self.writers, searched))) {
                    // The broker has deleted or renamed it since it was listed.
                    Err(error) if error.is_not_found() => known,
                    Err(error) => return Err(error),
                    Ok((end, is_barren)) => {
                        state.barren = (searched || is_barren).then_some((end, last.len));
                        end
                    }
                }
            }
        };
        if state.end.offset < known.offset {
            state.truncations += 1;
        }
        let bytes = match is_same && known.base == state.end.base {
            true => state.bytes.saturating_sub(known.position) + state.end.position,
            false => bytes_of(disk, &segments, state.end, (&state.segments, known))?,
        };
        let grown = bytes.saturating_sub(state.bytes);
        state.bytes = bytes;
        state.seen += match state.end == known {
            true => grown,
            false => grown.max(1),
        };
        if !is_same && *state.segments != *segments {
            self.waypoints.follow(&state.segments, &segments);
            state.segments = segments;
        }
        Ok(())
    }

    /// The segments in use. A folder has several files for each segment, so it is listed only if it
    /// has changed. The last segment may grow without such a change.
    fn list(&self, disk: &dyn Disk, state: &mut State) -> Result<Segments> {
        let modified = self.modified(disk)?;
        if let (true, Some(last)) = (
            modified.is_some() && modified == state.listed,
            state.segments.last(),
        ) && let Some(file) = disk.stat(&last.path)?
        {
            if file.len == last.len {
                return Ok(Arc::clone(&state.segments));
            }
            let mut segments = state.segments.to_vec();
            segments.pop();
            segments.push(Arc::new(Segment {
                len: file.len,
                ..Segment::clone(last)
            }));
            return Ok(segments.into());
        }
        let past = RealClock.now_ms().saturating_sub(TICK_MS);
        state.listed = modified.filter(|time| *time < past);
        let mut files = names::log_files(disk, &self.path)?;
        if state.listed.is_none() || self.modified(disk)? != modified {
            state.listed = None;
            files = self.list_until_stable(disk, files)?;
        }
        match self.segments(disk, &files) {
            // The broker has renamed a replacement since it was listed.
            Err(error) if error.is_not_found() => {
                state.listed = None;
                let files = self.list_until_stable(disk, files)?;
                self.segments(disk, &files).map(Segments::from)
            }
            segments => segments.map(Segments::from),
        }
    }

    /// When the folder was last modified; `None` if that is not known.
    fn modified(&self, disk: &dyn Disk) -> Result<Option<i64>> {
        match disk.modified_ms(&self.path) {
            Err(error) if error.is_not_found() => Ok(None),
            modified => modified,
        }
    }

    /// Lists the folder until two lists have the same names: a list made during a rename may lack
    /// both the old and the new name.
    fn list_until_stable(&self, disk: &dyn Disk, mut files: Vec<LogFile>) -> Result<Vec<LogFile>> {
        const LISTS_MAX: u32 = 16;
        for _ in 0..LISTS_MAX {
            let before = std::mem::replace(&mut files, names::log_files(disk, &self.path)?);
            let names = |files: &[LogFile]| -> Vec<_> {
                files.iter().map(|file| (file.base, file.state)).collect()
            };
            if names(&before) == names(&files) {
                break;
            }
        }
        Ok(files)
    }

    /// The segments in these files of the folder. An interrupted replacement is completed in
    /// memory: the segments that it covers are left out.
    fn segments(&self, disk: &dyn Disk, files: &[LogFile]) -> Result<Vec<Arc<Segment>>> {
        let of = |state: FileState| files.iter().filter(move |file| file.state == state);
        let unfinished = of(FileState::Cleaned).map(|file| file.base).min();
        let swaps: Vec<&LogFile> = of(FileState::Swap)
            .filter(|file| unfinished.is_none_or(|base| file.base < base))
            .collect();
        let mut found: Vec<Arc<Segment>> = of(FileState::Used)
            .map(|file| self.segment(file, ""))
            .collect();
        if let (Some(first), Some(last)) = (swaps.first(), swaps.last()) {
            let last = self.segment(last, ".swap");
            let end = find_end(disk, &last, Place::default(), None)?.0.offset;
            // The last replacement may have no batches.
            let covered = first.base..end.max(last.base + 1);
            found.retain(|it| !covered.contains(&it.base));
            found.extend(swaps.iter().map(|file| self.segment(file, ".swap")));
            found.sort_by_key(|segment| segment.base);
        }
        Ok(found)
    }

    fn segment(&self, file: &LogFile, suffix: &str) -> Arc<Segment> {
        let name = format!("{:020}.log{suffix}", file.base);
        Arc::new(Segment {
            base: file.base,
            path: self.path.join(name),
            len: file.len,
        })
    }
}

/// Bytes of segments up to the end of the last one. Files may be longer: a writer reserves space in
/// the last segment, and cuts a completed one shortly after it has begun the next. `before`: the
/// segments and the end that were known before.
fn bytes_of(
    disk: &dyn Disk,
    segments: &[Arc<Segment>],
    end: Place,
    before: (&[Arc<Segment>], Place),
) -> Result<u64> {
    let Some((last, sealed)) = segments.split_last() else {
        return Ok(0);
    };
    let mut bytes: u64 = sealed.iter().map(|segment| segment.len).sum();
    let (known, place) = before;
    if let (Some(completed), Some(known)) = (sealed.last(), known.last())
        && completed == known
        && place.base == completed.base
    {
        match find_end(disk, completed, place, None) {
            Err(error) if error.is_not_found() => {}
            found => bytes = bytes - completed.len + found?.0.position,
        }
    }
    Ok(bytes
        + match end.base == last.base {
            true => end.position,
            false => last.len,
        })
}

/// The end of the last segment: after its last whole batch. Continues at `known` if that is still
/// the end of a batch of this segment, or of the file.
///
/// Damage is skipped if a whole batch follows it; otherwise the segment ends there. If nobody
/// writes the partition, the rest of the segment is searched for batches that the next writer will
/// keep. The flag beside `writers` is set if an earlier search after `known` found none. Also
/// returns whether the search was in vain.
fn find_end(
    disk: &dyn Disk,
    segment: &Arc<Segment>,
    known: Place,
    writers: Option<(&Arc<Writers>, bool)>,
) -> Result<(Place, bool)> {
    let is_known = known.base == segment.base && known.position > 0;
    if is_known && known.position == segment.len {
        return Ok((known, false));
    }
    let mut reader = Reader::open(disk, segment)?;
    if is_known && is_still_end(&reader, known)? {
        return Ok((known, false));
    }
    let start = match is_known && known.position <= reader.len {
        true => known,
        false => {
            let position = reader.seek_end(disk)?;
            Place {
                base: segment.base,
                position,
                offset: segment.base,
                batch: None,
            }
        }
    };
    let mut end = start;
    let mut walk = Walk::new(reader, start.position);
    walk.next_offset = start.offset;
    walk.writers = writers
        .filter(|(_, searched)| !searched)
        .map(|it| Arc::clone(it.0));
    loop {
        match walk.next(disk)? {
            Step::Batch(found) => {
                if walk.reader.is_whole(found.position, &found.header)? {
                    if found.position > end.position
                        && let Some((writers, _)) = writers
                        && writers.are_gone(disk)?
                        && !writers.will_keep(
                            disk,
                            segment,
                            end.position..found.position,
                            end.offset,
                        )?
                    {
                        return Ok((end, true));
                    }
                    end.batch = Some(found.position);
                    end.position = walk.position;
                    end.offset = found.header.last_offset() + 1;
                } else {
                    walk.lose(&found)?;
                }
            }
            Step::Damage(bytes, _) if is_known && bytes.start == start.position => {
                // The broker may have truncated the segment and written over it.
                if !still_begins(disk, segment, known)? {
                    let writers = writers.map(|(writers, _)| (writers, false));
                    return find_end(disk, segment, Place::default(), writers);
                }
            }
            Step::Damage(..) => {}
            Step::End => return Ok((end, walk.is_barren)),
        }
    }
}

/// Whether a segment still ends at a place: the batch before it is the same, and the zeros that its
/// writer has reserved follow. Reads a few bytes, since readers that wait ask again and again.
fn is_still_end(reader: &Reader, place: Place) -> Result<bool> {
    if place.position >= reader.len || place.batch.is_none() {
        return Ok(false);
    }
    let after = reader.bytes(place.position, HEAD_LEN)?;
    Ok(after.iter().all(|byte| *byte == 0) && has_last(reader, place)?)
}

/// Whether the batch before a place is the same.
fn has_last(reader: &Reader, place: Place) -> Result<bool> {
    let Some(begins) = place.batch else {
        return Ok(false);
    };
    let header = Header::parse(&reader.bytes(begins, HEAD_LEN)?);
    Ok(header.is_ok_and(|header| {
        begins + u64::from(header.len) == place.position && header.last_offset() + 1 == place.offset
    }))
}

/// Whether a batch ends at a place, as far as the index and the headers before it show.
fn still_begins(disk: &dyn Disk, segment: &Arc<Segment>, place: Place) -> Result<bool> {
    let mut reader = Reader::open(disk, segment)?;
    if has_last(&reader, place)? {
        return Ok(true);
    }
    let mut position = reader.seek(disk, place.offset.saturating_sub(1))?;
    while position < place.position {
        match reader.here(position)? {
            Here::Batch(header) => position += u64::from(header.len),
            _ => return Ok(false),
        }
    }
    Ok(position == place.position)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use std::fs::{File, create_dir};
    use std::time::{Duration, SystemTime};

    /// A reader that took one message at a time visited all segments for each.
    #[test]
    fn segments_that_are_the_same_are_not_visited_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("t-0");
        create_dir(&path).unwrap();
        for base in 0..5 {
            File::create(path.join(format!("{base:020}.log"))).unwrap();
        }
        // Just modified, it would be listed again.
        let past = SystemTime::now() - Duration::from_secs(3600);
        File::open(&path).unwrap().set_modified(past).unwrap();
        let folder = Folder::new(path.clone());
        let first = folder.view(&RealDisk, None).unwrap().segments;
        let mut state = folder.state.lock();
        let again = folder.list(&RealDisk, &mut state).unwrap();
        assert!(Arc::ptr_eq(&again, &first));
        let last = File::options()
            .write(true)
            .open(&first.last().unwrap().path);
        last.unwrap().set_len(100).unwrap();
        let grown = folder.list(&RealDisk, &mut state).unwrap();
        assert_eq!(grown.iter().map(|it| it.len).sum::<u64>(), 100);
        assert_eq!(grown.get(..4), first.get(..4));
    }
}
