//! Figures of an open store.

use super::parts::Parts;
use super::read::view::durable_end;
use super::send::Sending;
use super::services::Services;
use crate::disk::{Disk, Holder};
use crate::engine::Stats;
use crate::engine::directory::member::LEADER;
use crate::engine::directory::names;
use crate::engine::directory::page::StatePage;
use crate::mapped::MappedFile;
use crate::meter::WriterStats;
use std::path::Path;
use std::sync::Arc;

/// Reads the figures of an open store.
pub fn stats(parts: &Parts, services: &Services, sending: &Sending) -> Stats {
    let recovery = parts.report.recovery();
    let log = &parts.log;
    let (messages_sent, bytes_sent) = parts.tail.counters();
    let on_disk = |file: &Arc<MappedFile>| file.wrote().max(file.reserved());
    Stats {
        messages_sent,
        bytes_sent,
        sends_failed: sending.failed(),
        busy: sending.busy(),
        published: log.published(),
        dispatched: parts.dispatcher.dispatched(),
        durable: durable_end(parts),
        min_position: log.min_position(),
        damaged: parts.report.damaged(),
        stale_checksums: recovery.stale_checksums + parts.report.stale_count(),
        retired_bytes_mapped: services.retention.mapped_bytes(),
        recovered_records: recovery.records_checked,
        truncated_bytes: recovery.truncated_bytes,
        log_bytes: log.files.all().iter().map(on_disk).sum(),
        disk_free: parts.disk.free_space(&parts.root).ok(),
        append_held: parts.tail.held_for(),
        flushes: parts.flushing.meter.read(),
        ..Stats::default()
    }
}

/// What the writer of the store at `root` shows of itself in this page at `now_ns`; `None` if no
/// process of Forebay writes the store, or it has shown nothing yet.
pub fn writer(page: &StatePage, disk: &dyn Disk, root: &Path, now_ns: u64) -> Option<WriterStats> {
    let shown = page.shown_writer(now_ns).filter(|_| page.is_written_to())?;
    // A process that was killed leaves its epoch and its process id in the page.
    let lock = root.join(names::LOCK);
    let lives = match page.is_of_many() {
        true => disk.is_byte_locked(&lock, LEADER).unwrap_or(false),
        false => matches!(disk.probe(&lock), Ok(Holder::Forebay)),
    };
    // Another writer may have taken its place meanwhile.
    (lives && page.pid() == Some(shown.pid)).then_some(shown)
}
