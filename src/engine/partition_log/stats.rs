//! Figures of an open log directory.

use super::PartitionLog;
use super::write::showing;
use crate::engine::service::durability::Durable;
use crate::engine::{Engine, Stats};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Reads the figures.
pub(super) fn stats(engine: &PartitionLog) -> Stats {
    if engine.writer.is_none() {
        look(engine);
    }
    let log_bytes = engine.all().iter().map(|it| it.folder.bytes()).sum();
    let recovery = engine.shared.report.recovery();
    let (messages_sent, bytes_sent) = engine.counters();
    let parts = engine.writer.as_ref().map(|writer| &writer.parts);
    Stats {
        messages_sent,
        bytes_sent,
        sends_failed: parts.map_or(0, |it| it.sends_failed.load(Ordering::Relaxed)),
        // For a reader these are the bytes of the log. They decrease with retention; its positions
        // do not.
        published: parts.map_or(log_bytes, |parts| parts.published()),
        dispatched: parts.map_or(log_bytes, |parts| parts.readable()),
        durable: parts.map_or(log_bytes, |parts| parts.durable()),
        damaged: engine.shared.report.damaged(),
        recovered_records: recovery.records_checked,
        truncated_bytes: recovery.truncated_bytes,
        log_bytes,
        disk_free: engine.disk().free_space(&engine.root).ok(),
        append_held: parts.map_or(Duration::ZERO, |parts| parts.tail.held_for()),
        flushes: parts.map_or_else(Default::default, |parts| parts.meter.read()),
        writer: match parts {
            Some(parts) if parts.is_on_duty() => None,
            _ => showing::shown(engine.disk(), &engine.root, engine.shared.clock.now_ns()),
        },
        ..Stats::default()
    }
}

/// Brings a reader up to date with the last segment of each partition. What cannot be read counts
/// as it was found before: reads will report the error.
fn look(engine: &PartitionLog) {
    let _ = engine.update();
    for partition in engine.all() {
        let _ = engine.view(&partition);
    }
}
