//! How a partition is opened, what is known of it before, and where damage in it is reported.

use super::rules::Rules;
use crate::disk::Disk;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::report::Report;
use crate::engine::{Damage, DamageKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// How a partition is opened.
#[derive(Clone, Copy)]
pub struct Opening<'a> {
    /// The disk.
    pub disk: &'a Arc<dyn Disk>,
    /// The rules.
    pub rules: &'a Rules,
    /// Where damage is reported.
    pub report: &'a Report,
    /// Whether the last writer stopped cleanly.
    pub is_clean: bool,
    /// Whether Forebay wrote the partition.
    pub is_own: bool,
    /// Whether the recovery points could be read.
    pub are_points_known: bool,
}

/// A partition as a checkpoint describes it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// All offsets below are durable.
    pub point: u64,
    /// The first offset.
    pub start: u64,
    /// What begins at this offset or later is cut off, if the last writer did not stop cleanly.
    pub limit: u64,
    /// All offsets below were appended: damage there is kept, even at the end.
    pub followed: u64,
    /// What is damaged from this offset on is cut off, unless something follows it: it belongs to
    /// an atomic batch of which a part may be missing.
    pub doubted: u64,
}

impl Opening<'_> {
    /// Reports that a partition ends before its durable end.
    pub(super) fn compare(&self, last: &Segment, next: u64, known: Known) {
        let durable = known.point.max(known.start);
        if next < durable {
            let reason =
                format!("the partition ends at offset {next}, but was durable up to {durable}");
            self.report(&last.path, last.len..last.len, reason);
        }
    }

    pub(super) fn report(&self, path: &Path, bytes: Range<u64>, reason: impl ToString) {
        let damage = Damage::new(DamageKind::Log, path, bytes, reason);
        self.report.add(damage);
    }
}
