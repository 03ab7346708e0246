//! Reading while another process writes: its marks are followed, and its new files are opened.
//!
//! A queue entry counts only if it points below the writer's dispatched mark to a record with its
//! topic, queue and offset.

use super::meant::is_meant;
use crate::disk::Kind;
use crate::engine::Topic;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::queues::queue::{
    ConsumeQueue, is_directory_name, list_queues, list_topics,
};
use crate::engine::commit_log::tables::topics::TopicTable;
use crate::engine::directory::page::Mark;
use crate::error::{Error, Result};
use crate::mapped::{Extent, MappedFile};
use crate::plant::{Bug, planted};
use crate::region::Access;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Takes over the writer's marks and opens log files that it has added. Cheap if nothing changed.
pub fn refresh_log(parts: &Parts) -> Result<()> {
    let log = &parts.log;
    let Some(source) = &log.source else {
        return Ok(());
    };
    let durable = source.get(Mark::Durable);
    source.check()?;
    log.state.set(Mark::Durable, durable);
    // The generation is read after the end: the writer raises it before it publishes what the new
    // files hold.
    let marks = || {
        (
            source.get(Mark::Minimum),
            source.get(Mark::Dispatched),
            source.generation(),
        )
    };
    let is_news = |(minimum, end, generation): (u64, u64, u32)| {
        minimum > log.min_position()
            || end > log.published()
            || generation != parts.following.generation.load(Ordering::Acquire)
    };
    if !is_news(marks()) {
        return source.check();
    }
    let _alone = parts.following.lock.lock();
    let (minimum, end, generation) = marks();
    source.check()?;
    if generation != parts.following.generation.load(Ordering::Acquire) {
        open_again(parts)?;
        parts.following.listed.forget();
        parts
            .following
            .generation
            .store(generation, Ordering::Release);
    }
    let has_grown = end > log.published();
    if has_grown {
        log.join_files(log.published(), end, Access::Read)?;
    }
    // Bytes below the minimum are not damage, so it is set before files are dropped.
    if minimum > log.min_position() {
        log.state.set(Mark::Minimum, minimum);
    }
    if has_grown {
        log.state.set(Mark::Dispatched, end);
        log.state.set(Mark::Published, end);
    }
    log.files.forget_below(minimum);
    Ok(())
}

/// Reopens all log files and the index, because the writer has replaced some. Holders of old maps
/// keep reading them.
fn open_again(parts: &Parts) -> Result<()> {
    let (files, published) = (&parts.log.files, parts.log.published());
    for file in files.all() {
        let wrote = published.saturating_sub(file.start()).min(file.len());
        let extent = Extent::Part(wrote);
        let (path, disk) = (file.path().to_path_buf(), &parts.disk);
        let again = MappedFile::open(disk, path, file.start(), file.len(), Access::Read, extent);
        files.replace(&Arc::new(again));
    }
    match &parts.index {
        Some(index) => index.load_again(published),
        None => Ok(()),
    }
}

/// [`refresh_log`], then finds topics, queues and index files that were added.
pub fn refresh(parts: &Parts) -> Result<()> {
    if parts.log.source.is_none() {
        return Ok(());
    }
    refresh_log(parts)?;
    if let Some(index) = &parts.index {
        index.retire_below(parts.log.min_position())?;
        index.join_new_files(parts.log.published())?;
    }
    list_all(parts)
}

/// [`refresh_log`], then finds topics and queues that were added. Cheap if the writer says that
/// there are none.
pub fn refresh_queues(parts: &Parts) -> Result<()> {
    refresh_log(parts)?;
    list_all(parts)
}

fn list_all(parts: &Parts) -> Result<()> {
    let Some(source) = &parts.log.source else {
        return Ok(());
    };
    let (listed, now_ms) = (&parts.following.listed, parts.clock.coarse_ms());
    if listed.is_current(source, now_ms) {
        return source.check();
    }
    let _alone = parts.following.lock.lock();
    listed.list(source, now_ms, || {
        let topics = list_topics(&*parts.disk, &parts.queues.store.directory)?;
        topics.iter().try_for_each(|name| join_queues(parts, name))
    })
}

/// [`refresh_log`], then finds queues that were added to a topic.
pub fn refresh_topic(parts: &Parts, name: &str) -> Result<()> {
    if parts.log.source.is_none() {
        return Ok(());
    }
    refresh_log(parts)?;
    let is_listed = |source| {
        let listed = &parts.following.listed;
        listed.is_current(source, parts.clock.coarse_ms())
    };
    if !is_directory_name(name) || parts.log.source.as_ref().is_some_and(|it| is_listed(it)) {
        return Ok(());
    }
    let directory = parts.queues.store.directory.join(name);
    match parts.disk.stat(&directory)? {
        None => Ok(()),
        Some(entry) if entry.kind == Kind::Directory => join_queues(parts, name),
        Some(_) => Err(Error::Unsupported {
            what: format!("{} is not a directory", directory.display()),
        }),
    }
}

/// Adds the queues of a topic that are not known yet.
fn join_queues(parts: &Parts, name: &str) -> Result<()> {
    let directory = parts.queues.store.directory.join(name);
    let found = list_queues(&*parts.disk, &directory)?;
    if !found.is_empty() && parts.topics.get(name).is_none() {
        // A queue has a folder once it has a message. The table has all queues of a topic that was
        // created by a call, or in a shared store.
        TopicTable::load(&*parts.disk, &parts.root, &parts.topics)?;
    }
    for id in found {
        let (topic, _) = parts.topics.get_or_add(name, id + 1);
        if parts.queues.get(&topic, id)?.is_none() {
            let min = parts.log.min_position();
            let queue = ConsumeQueue::open(&parts.queues.store, name, id, min)?;
            queue.set_bounds(queue.first_on_disk().unwrap_or(0), 0);
            parts.queues.add(&topic, Arc::new(queue));
        }
    }
    Ok(())
}

/// Raises the end of a queue past the entries that the writer has added.
pub fn extend(parts: &Parts, topic: &Topic, queue: &ConsumeQueue) -> Result<()> {
    if parts.log.source.is_none() {
        return Ok(());
    }
    refresh_log(parts)?;
    let _alone = parts.following.lock.lock();
    let (minimum, end) = (parts.log.min_position(), parts.log.published());
    let holds = |number: u64| -> Result<bool> {
        let entry = queue.entry(number)?.filter(|entry| entry.is_message(end));
        let Some(entry) = entry else { return Ok(false) };
        if entry.end() <= minimum {
            // Its record was deleted, but its offset stays used.
            return Ok(true);
        }
        let found = parts.log.record_at(entry.position)?.record();
        Ok(found.is_some_and(|message| {
            is_meant(&message.record().rocketmq(), (topic, queue.id, number))
        }))
    };
    queue.follow_min(minimum)?;
    let mut max = queue.max();
    let before = max;
    if max == 0 || queue.map_of(max)?.is_none() {
        queue.refresh_files()?;
    }
    loop {
        let first = queue.first_on_disk().unwrap_or(0);
        if max <= first {
            // This is the first search, or everything known was deleted: search backwards from the
            // last entry on disk.
            let known = first.max(queue.max());
            max = queue.last_on_disk()?.max(known);
            while max > known && !holds(max - 1)? {
                max -= 1;
            }
            queue.extend_to(max);
            queue.raise_min(minimum)?;
        }
        max = end_from(queue, max, &holds)?;
        // Files deleted meanwhile may have held everything known.
        if queue.first_on_disk().is_none_or(|first| first <= max) {
            break;
        }
    }
    queue.extend_to(max);
    if max > before && queue.min() == before {
        // Everything known before was deleted, and perhaps more.
        queue.raise_min(minimum)?;
    }
    Ok(())
}

/// The number after the last valid entry of the unbroken sequence that begins at `max`.
fn end_from(
    queue: &ConsumeQueue,
    mut max: u64,
    holds: &impl Fn(u64) -> Result<bool>,
) -> Result<u64> {
    loop {
        // The offsets of fillers are used even if no message follows: the last message of a queue
        // may be lost.
        let mut next = max;
        while queue.entry(next)?.is_some_and(|entry| entry.is_filler()) {
            next += 1;
        }
        if holds(next)? {
            // Entries are built in log order, so a valid entry proves all those before it, and only
            // a few of many entries need to be checked.
            let mut step = 1;
            max = next + 1;
            while holds(max + step)? {
                max += step + 1;
                step *= 2;
            }
            continue;
        }
        max = match planted(Bug::ForgetLost) {
            true => max,
            false => next,
        };
        if queue.map_of(next)?.is_some() {
            return Ok(max);
        }
        queue.refresh_files()?;
        if queue.map_of(next)?.is_none() {
            return Ok(max);
        }
    }
}
