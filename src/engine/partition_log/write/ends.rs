//! Where a partition begins and ends: what its writer tells readers and the thread that syncs.
//!
//! If processes share the store, the [`Table`] has these ends for all of them, and each process
//! catches up before it reads or appends.

pub use super::table::{End, Place};
use super::table::{Table, Which};
use crate::disk::Disk;
use crate::engine::partition_log::segments::names;
use crate::engine::partition_log::segments::segment::{Segment, Segments};
use crate::engine::partition_log::segments::snapshot;
use crate::error::Result;
use crate::sync::{Mutex, MutexGuard};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Where a partition begins and ends.
#[derive(Debug)]
pub struct Ends {
    /// The partition's folder.
    pub folder: PathBuf,
    /// Whether readers see durable messages only.
    sync: bool,
    /// Bytes that the last segment can take without another block, file or map.
    ready: AtomicU64,
    state: Mutex<State>,
    /// Held while complete segments are replaced or removed.
    changing: Mutex<()>,
    /// The bytes of the newest producer snapshot, once they are known.
    snapshot: OnceLock<Option<Arc<[u8]>>>,
    /// The entry of the partition, if processes share it.
    entry: Option<Entry>,
}

/// The entry of a partition in the table of the processes that share it.
#[derive(Debug)]
struct Entry {
    table: Arc<Table>,
    number: u32,
}

/// The right to replace and to remove complete segments.
#[derive(Debug)]
pub struct Changing<'a>(#[allow(dead_code)] MutexGuard<'a, ()>);

/// The complete segments of a partition, as far as they are durable.
#[derive(Debug)]
pub struct Past {
    /// In order, and the offset before which each ends.
    pub segments: Vec<(Arc<Segment>, u64)>,
    /// Bytes of all segments.
    pub len: u64,
    /// The first offset.
    pub start: u64,
}

/// What a sync of a shared partition has to do.
#[derive(Debug)]
pub struct Undone {
    /// The durable end.
    pub from: End,
    /// The published end.
    pub to: End,
    /// The complete segments from the durable end on.
    pub sealed: Vec<Arc<Segment>>,
}

#[derive(Debug)]
struct State {
    /// Segments that are complete, in order.
    sealed: Vec<Arc<Segment>>,
    start: u64,
    published: End,
    durable: End,
    /// How often segments were replaced or removed.
    replaced: u64,
    /// What readers were shown last.
    shown: Option<(End, Segments)>,
    /// The table's number of changes when the segments of a shared partition were listed; `None` if
    /// they must be listed again.
    listed: Option<u32>,
}

impl Ends {
    /// The ends of a partition that was just opened.
    pub fn new(
        folder: PathBuf,
        sync: bool,
        sealed: Vec<Segment>,
        (start, end): (u64, End),
    ) -> Ends {
        Ends {
            folder,
            sync,
            ready: AtomicU64::new(0),
            state: Mutex::new(State {
                sealed: sealed.into_iter().map(Arc::new).collect(),
                start,
                published: end,
                durable: end,
                replaced: 0,
                shown: None,
                listed: None,
            }),
            changing: Mutex::default(),
            snapshot: OnceLock::new(),
            entry: None,
        }
    }

    /// The ends of a partition that processes share, with this number in their table. Nothing is
    /// known before [`Ends::catch_up`].
    pub fn shared(folder: PathBuf, sync: bool, table: &Arc<Table>, number: u32) -> Ends {
        let entry = Entry {
            table: Arc::clone(table),
            number,
        };
        Ends {
            entry: Some(entry),
            ..Ends::new(folder, sync, Vec::new(), Default::default())
        }
    }

    /// Whether processes share the partition.
    pub fn is_shared(&self) -> bool {
        self.entry.is_some()
    }

    /// Notes the bytes of the newest producer snapshot; `None` if the partition has none.
    pub fn know_snapshot(&self, bytes: Option<Arc<[u8]>>) {
        let _ = self.snapshot.set(bytes);
    }

    /// The bytes of the newest producer snapshot. Appends do not change them.
    ///
    /// # Errors
    ///
    /// Those of reading it.
    pub fn snapshot(&self, disk: &dyn Disk) -> Result<Option<Arc<[u8]>>> {
        if let Some(known) = self.snapshot.get() {
            return Ok(known.clone());
        }
        // Not known yet, because another process has opened the partition.
        let offsets = snapshot::offsets(&names::entries(disk, &self.folder)?);
        let newest = snapshot::newest(disk, &self.folder, &offsets)?;
        let found = newest.map(|(_, producers)| snapshot::bytes_of(&producers).into());
        Ok(self.snapshot.get_or_init(|| found).clone())
    }

    /// Finds what other processes have published, made durable and removed. Returns the published
    /// end; `None` if processes do not share the partition.
    ///
    /// # Errors
    ///
    /// Those of the table and of listing the folder.
    pub fn catch_up(&self, disk: &dyn Disk) -> Result<Option<Place>> {
        let Some(Entry { table, number }) = &self.entry else {
            return Ok(None);
        };
        let mut state = self.state.lock();
        let durable = table.get(Which::Durable, *number)?.end;
        // Read before the folder is listed, so that the next call meets a later change.
        let changes = table.changes(*number);
        let place = table.get(Which::Published, *number)?;
        let published = place.end;
        let known = (state.published.base, state.published.offset);
        if (published.base, published.offset) < known || durable.offset > published.offset {
            return Err(table.corrupt_end(*number));
        }
        let first = table.start(*number).min(published.offset);
        if published.base != state.published.base || state.listed != Some(changes) {
            let is_sealed = |file: &names::LogFile| {
                file.state == names::State::Used && file.base < published.base
            };
            let files = names::log_files(disk, &self.folder)?.into_iter();
            let sealed = files.filter(is_sealed).map(|file| {
                Arc::new(Segment {
                    base: file.base,
                    path: self.path_of(file.base),
                    len: file.len,
                })
            });
            state.sealed = sealed.collect();
            state.replaced += u64::from(state.listed != Some(changes));
            state.listed = Some(changes);
            state.shown = None;
        }
        state.start = state.start.max(first);
        (state.published, state.durable) = (published, durable);
        Ok(Some(place))
    }

    /// Makes the next [`Ends::catch_up`] list the segments again.
    pub fn list_again(&self) {
        self.state.lock().listed = None;
    }

    /// The published end of a shared partition, as in the table.
    ///
    /// # Errors
    ///
    /// Those of the table.
    pub fn published_place(&self) -> Result<Option<Place>> {
        let entry = self.entry.as_ref();
        let get = |it: &Entry| it.table.get(Which::Published, it.number);
        entry.map(get).transpose()
    }

    /// The published and the durable end of a shared partition, as in the table.
    ///
    /// # Errors
    ///
    /// Those of the table.
    pub fn places(&self) -> Result<Option<(Place, Place)>> {
        let Some(Entry { table, number }) = &self.entry else {
            return Ok(None);
        };
        let durable = table.get(Which::Durable, *number)?;
        Ok(Some((table.get(Which::Published, *number)?, durable)))
    }

    /// Makes the processes that share the partition map segments again before they append.
    pub fn map_again(&self) {
        if let Some(Entry { table, .. }) = &self.entry {
            table.next_cut();
        }
    }

    /// Tells the processes that share the partition that segments were removed.
    pub fn tell_removed(&self) {
        if let Some(Entry { table, number }) = &self.entry {
            table.next_change(*number);
        }
    }

    /// About how many bytes can be appended at once.
    pub fn ready(&self) -> u64 {
        self.ready.load(Ordering::Relaxed)
    }

    /// Sets the number of [`Ends::ready`].
    pub fn set_ready(&self, len: u64) {
        self.ready.store(len, Ordering::Relaxed);
    }

    /// Waits for the right to replace or remove complete segments.
    pub fn change(&self) -> Changing<'_> {
        Changing(self.changing.lock())
    }

    /// As [`Ends::change`]; `None` if another thread has the right.
    pub fn try_change(&self) -> Option<Changing<'_>> {
        self.changing.try_lock().map(Changing)
    }

    /// The path of a segment's log file.
    pub fn path_of(&self, base: u64) -> PathBuf {
        self.folder.join(format!("{base:020}.log"))
    }

    /// Bytes of all segments.
    pub fn len(&self) -> u64 {
        let state = self.state.lock();
        let sealed: u64 = state.sealed.iter().map(|segment| segment.len).sum();
        sealed + state.published.len
    }

    /// The first offset.
    pub fn start(&self) -> u64 {
        self.state.lock().start
    }

    /// Raises the first offset.
    pub fn raise_start(&self, start: u64) {
        if let Some(Entry { table, number }) = &self.entry {
            table.raise_start(*number, start);
        }
        let mut state = self.state.lock();
        state.start = state.start.max(start);
    }

    /// The base of the first segment.
    pub fn first_base(&self) -> u64 {
        let state = self.state.lock();
        let first = state.sealed.first();
        first.map_or(state.published.base, |segment| segment.base)
    }

    /// The complete segments that are durable. Those after one that is being replaced are left out.
    pub fn past(&self) -> Past {
        let state = self.state.lock();
        let durable = state.durable.base;
        // A segment is added to `sealed` shortly before the next one is published.
        let last = state.published.base;
        let nexts = state.sealed.iter().skip(1).map(|it| it.base);
        let nexts = nexts.filter(|base| *base < last).chain([last]);
        let before = state.sealed.iter().filter(|it| it.base < last);
        let all = before.zip(nexts);
        let past =
            all.take_while(|(segment, next)| *next <= durable && names::is_in_use(&segment.path));
        let sealed: u64 = state.sealed.iter().map(|segment| segment.len).sum();
        Past {
            segments: past.map(|(it, next)| (Arc::clone(it), next)).collect(),
            len: sealed + state.published.len,
            start: state.start,
        }
    }

    /// The last segment, if it has messages and all of it is durable, and the next offset.
    pub fn last(&self) -> Option<(Segment, u64)> {
        let state = self.state.lock();
        let end = state.published;
        let is_durable = end.len > 0 && end == state.durable;
        is_durable.then(|| {
            let segment = Segment {
                base: end.base,
                path: self.path_of(end.base),
                len: end.len,
            };
            (segment, end.offset)
        })
    }

    /// Hides the complete, durable segments that end at or before the first offset from readers.
    /// The caller removes their files.
    pub fn retire(&self, _: &Changing<'_>) -> Vec<Arc<Segment>> {
        let past = self.past();
        let gone = past.segments.into_iter();
        let gone = gone.take_while(|(_, next)| *next <= past.start);
        let gone: Vec<_> = gone.map(|(segment, _)| segment).collect();
        if !gone.is_empty() {
            let mut state = self.state.lock();
            state.sealed.drain(..gone.len());
            state.replaced += 1;
            state.shown = None;
        }
        gone
    }

    /// The segments that readers may see, and the offset after the last message in them.
    pub fn seen(&self) -> (Segments, u64) {
        let mut state = self.state.lock();
        let end = match self.sync {
            true => state.durable,
            false => state.published,
        };
        if let Some((shown, segments)) = &state.shown
            && *shown == end
        {
            return (Arc::clone(segments), end.offset);
        }
        let before = state.sealed.iter().filter(|it| it.base < end.base);
        let mut segments: Vec<_> = before.cloned().collect();
        if end.len > 0 {
            segments.push(Arc::new(Segment {
                base: end.base,
                path: self.path_of(end.base),
                len: end.len,
            }));
        }
        let segments: Segments = segments.into();
        state.shown = Some((end, Arc::clone(&segments)));
        (segments, end.offset)
    }

    /// The next offset: of what is published, or of what is durable.
    pub fn next_offset(&self, durable: bool) -> u64 {
        let state = self.state.lock();
        match durable {
            true => state.durable.offset,
            false => state.published.offset,
        }
    }

    /// The durable next offset, including what other processes have flushed.
    pub fn durable_offset(&self) -> u64 {
        match self.places() {
            Ok(Some((_, durable))) => durable.end.offset,
            _ => self.next_offset(true),
        }
    }

    /// Moves the end of what is published.
    pub fn publish(&self, end: End) {
        match &self.entry {
            // This process catches up like the others.
            Some(Entry { table, number }) => {
                let place = Place {
                    end,
                    continues: true,
                };
                table.set(Which::Published, *number, place);
            }
            None => self.state.lock().published = end,
        }
    }

    /// Adds a segment that is complete.
    pub fn seal(&self, segment: Segment) {
        if self.is_shared() {
            return;
        }
        let mut state = self.state.lock();
        state.sealed.push(Arc::new(segment));
        state.shown = None;
    }

    /// The end of what is published.
    pub fn end(&self) -> End {
        self.state.lock().published
    }

    /// Whether there are any segments with messages.
    pub fn has_segments(&self) -> bool {
        let state = self.state.lock();
        state.published.len > 0 || !state.sealed.is_empty()
    }

    /// The complete segments, and the last one if there is one.
    pub fn all_segments(&self) -> (Vec<Arc<Segment>>, Option<Arc<Segment>>) {
        let state = self.state.lock();
        let end = state.published;
        let before = state.sealed.iter().filter(|it| it.base < end.base);
        let last = || {
            Arc::new(Segment {
                base: end.base,
                path: self.path_of(end.base),
                len: end.len,
            })
        };
        (before.cloned().collect(), (end.len > 0).then(last))
    }

    /// What a sync of a shared partition has to do: the durable end, the published one, and the
    /// complete segments from the durable one on. `None` if all of it is durable.
    ///
    /// # Errors
    ///
    /// As [`Ends::catch_up`].
    pub fn undone(&self, disk: &dyn Disk) -> Result<Option<Undone>> {
        self.catch_up(disk)?;
        let state = self.state.lock();
        let (from, to) = (state.durable, state.published);
        let between = |it: &&Arc<Segment>| (from.base..to.base).contains(&it.base);
        let sealed = state.sealed.iter().filter(between).cloned().collect();
        Ok((from != to).then_some(Undone { from, to, sealed }))
    }

    /// The complete segments, and the base of the one that follows.
    pub fn complete(&self) -> (Vec<Arc<Segment>>, u64) {
        let state = self.state.lock();
        let end = state.published.base;
        let before = state.sealed.iter().filter(|it| it.base < end);
        (before.cloned().collect(), end)
    }

    /// How often segments were replaced or removed.
    pub fn replaced(&self) -> u64 {
        self.state.lock().replaced
    }

    /// Replaces the complete segments whose bases are in the range by a segment with the first of
    /// these bases. Calls `rename` first, to prepare its file; readers see both changes at once.
    pub fn replace(
        &self,
        bases: Range<u64>,
        by: &Segment,
        rename: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        rename()?;
        state.replaced += 1;
        state.sealed.retain(|it| !bases.contains(&it.base));
        let after = state.sealed.partition_point(|it| it.base < by.base);
        state.sealed.insert(after, Arc::new(by.clone()));
        state.shown = None;
        Ok(())
    }

    /// Whether a sync has made messages of the segment with this base durable, and with them its
    /// name. The segment must be the last of the partition.
    pub fn is_durable(&self, base: u64) -> bool {
        let durable = self.state.lock().durable;
        durable.base == base && durable.len > 0
    }

    /// Moves the end of what is durable.
    pub fn set_durable(&self, end: End) {
        if let Some(Entry { table, number }) = &self.entry {
            let place = Place {
                end,
                continues: true,
            };
            table.set(Which::Durable, *number, place);
        }
        self.state.lock().durable = end;
    }
}
