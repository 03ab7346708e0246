//! Repair: damaged bytes are saved beside their file, and the file is written again without them.
//!
//! ```text
//!   inspect --> tables --> segments without their damaged batches --> indexes --> inspect
//! ```
//!
//! The messages of a damaged batch exist nowhere else. So their offsets become a gap, as compaction
//! leaves them, and the segment can be compacted, archived and converted again. Only complete
//! segments are written again: the last one of a queue is completed first.
//!
//! Each step is complete by itself. After a crash the next repair finds what is left.

use super::segments::names::{self, LOG_START};
use super::segments::segment::Segment;
use super::verify::{Inspection, inspect};
use super::write::ends::Ends;
use super::write::files::{
    self, EPOCHS, FIRST_DIRTY, HIGH_WATERMARK, MARKER, METADATA, RECOVERY_POINT,
};
use super::write::indexes::{OFFSETS, TIMES};
use super::write::parts::{One, Parts};
use super::write::restore::restore;
use super::write::tables;
use super::{PartitionLog, remove_damage};
use crate::engine::directory::kept_options;
use crate::engine::service::durability::Durable;
use crate::engine::{Damage, DamageKind, Engine, Repair, RepairStep};
use crate::error::Result;
use crate::options::EngineKind;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Checks the store, and mends what can be mended. `progress` receives the bytes checked and the
/// total; if it returns false, nothing is changed. Durable on return.
pub(super) fn repair(
    engine: &PartitionLog,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Repair> {
    let writer = engine.writer()?;
    let parts = &*writer.parts;
    // Writes all indexes, so that unwritten ones are not taken for damage.
    parts.full_pass()?;
    for (_, _, ends) in parts.all_ends()? {
        // An earlier repair may have died before its index was durable under its name.
        engine.disk().sync_directory(&ends.folder)?;
    }
    let mut inspection = inspect(engine, progress)?;
    let mut repair = Repair::default();
    if !inspection.is_complete {
        return Ok(repair);
    }
    repair.steps = std::mem::take(&mut *writer.mended.lock());
    let mut work = Work {
        engine,
        parts,
        all: parts.all_ends()?,
        steps: &mut repair.steps,
    };
    let done = work.run(&mut inspection);
    done.inspect_err(|error| {
        if error.ends_writing() {
            parts.fail(error);
        }
    })?;
    repair.left = inspection.found.damage;
    if !repair.steps.is_empty() {
        forget(engine);
        repair.left = engine.verify(&mut |_, _| true)?.damage;
    }
    Ok(repair)
}

/// Removes the reported damage that the next verification would find again.
fn forget(engine: &PartitionLog) {
    use DamageKind::{Checkpoint, ForeignTable, Index, Log, Options, Table};
    engine.shared.report.retain(|damage| match damage.kind {
        Log | Index | Options | Checkpoint | ForeignTable => false,
        Table => !is_named(&damage.path, MARKER) && !is_named(&damage.path, METADATA),
        _ => true,
    });
}

fn is_named(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|it| it == name)
}

/// What a repair works with.
struct Work<'a> {
    engine: &'a PartitionLog,
    parts: &'a Parts,
    all: Vec<One>,
    steps: &'a mut Vec<RepairStep>,
}

impl Work<'_> {
    fn run(&mut self, inspection: &mut Inspection) -> Result<()> {
        let damage = &inspection.found.damage;
        for damage in damage {
            self.mend_table(damage)?;
        }
        let of_kind = |kind| damage.iter().filter(move |it| it.kind == kind);
        let logs: BTreeSet<&Path> = of_kind(DamageKind::Log).map(|it| &*it.path).collect();
        let indexes: BTreeSet<&Path> = of_kind(DamageKind::Index).map(|it| &*it.path).collect();
        self.complete_segments(logs.iter().chain(&indexes))?;
        for log in &logs {
            self.rewrite(log)?;
        }
        // The replacement of a segment has its own indexes.
        let is_left = |index: &&&Path| !logs.contains(&*index.with_extension("log"));
        for index in indexes.iter().filter(is_left) {
            self.mend_index(index)?;
        }
        let unindexed = inspection.unindexed.iter();
        for segment in unindexed.filter(|it| !logs.contains(&*it.path)) {
            self.add_indexes(segment)?;
        }
        Ok(())
    }

    fn add(&mut self, damage: &Damage, what: &str, saved: Option<std::path::PathBuf>) {
        self.steps.push(RepairStep::of_file(damage, what, saved));
    }

    /// The partition that a file belongs to.
    fn one_of(&self, path: &Path) -> Option<One> {
        let folder = path.parent();
        let mut all = self.all.iter();
        all.find(|one| Some(&*one.2.folder) == folder).cloned()
    }

    /// Saves a damaged table, and writes it again.
    fn mend_table(&mut self, damage: &Damage) -> Result<()> {
        let (disk, root) = (self.engine.disk(), &self.parts.root);
        let path = &damage.path;
        let name = path.file_name().and_then(|name| name.to_str());
        let tables = [
            kept_options::FILE_NAME,
            MARKER,
            RECOVERY_POINT,
            HIGH_WATERMARK,
            FIRST_DIRTY,
            LOG_START,
            EPOCHS,
            METADATA,
        ];
        let Some(name) = name.filter(|name| tables.contains(name)) else {
            return Ok(());
        };
        let saved = tables::save(disk, path)?;
        let what = match name {
            kept_options::FILE_NAME => {
                kept_options::mend(disk, root, EngineKind::PartitionLog)?;
                kept_options::MENDED
            }
            MARKER => {
                files::save_seed(disk, root, self.parts.clock.now_ns())?;
                "rewritten with another seed, from which ids of topics are made"
            }
            RECOVERY_POINT => {
                self.parts.pass_again()?;
                "rewritten with the ends of the queues"
            }
            HIGH_WATERMARK => {
                let ends = self.parts.next_offsets(true);
                let lines: Vec<_> = ends.iter().map(|(of, at)| (&*of.0, of.1, *at)).collect();
                files::save_checkpoint(disk, root, HIGH_WATERMARK, &lines)?;
                "rewritten with the ends of the queues"
            }
            FIRST_DIRTY => {
                if let Some(compactor) = &self.engine.compactor {
                    compactor.save_again(self.parts)?;
                }
                "rewritten: what it does not state is compacted again"
            }
            LOG_START => {
                if let Some(retention) = &self.engine.retention {
                    retention.save_again(self.parts)?;
                }
                "rewritten with the first offsets in the tables of epochs; a queue whose table \
                 states none begins with its first log file, so messages that were deleted from \
                 that file may be back"
            }
            EPOCHS => match self.one_of(path) {
                Some((_, _, ends)) => {
                    tables::mend_epochs(disk, &ends)?;
                    "rewritten from the batches"
                }
                None => return Ok(()),
            },
            _ => match self.one_of(path) {
                Some((topic, _, ends)) => {
                    tables::mend_metadata(disk, &ends.folder, &topic, self.parts.seed)?
                }
                None => return Ok(()),
            },
        };
        self.add(damage, what, saved);
        Ok(())
    }

    /// Completes the last segments of partitions if one of these files belongs to them. On return
    /// everything is durable, and the recovery points cover it.
    fn complete_segments<'a>(&self, files: impl Iterator<Item = &'a &'a Path>) -> Result<()> {
        let mut rolled = Vec::new();
        let mut any = false;
        for path in files {
            any = true;
            if let Some((_, _, ends)) = self.one_of(path)
                && base_of(path) == Some(ends.end().base)
            {
                rolled.push(ends);
            }
        }
        if !rolled.is_empty() {
            self.parts.roll_some(&rolled)?;
        }
        if any {
            // A pending sync must not need a segment that is replaced.
            self.parts.flush_completed()?;
            self.parts.full_pass()?;
        }
        Ok(())
    }

    /// Writes a segment again without what is damaged in it.
    fn rewrite(&mut self, log: &Path) -> Result<()> {
        let (Some((topic, queue, ends)), Some(compactor)) =
            (self.one_of(log), &self.engine.compactor)
        else {
            return Ok(());
        };
        let of = (&*topic, queue);
        let steps = compactor.pause(self.parts, (&topic, queue), || {
            let _changing = ends.change();
            match segment_of(&ends, log) {
                Some((segment, next)) => {
                    remove_damage::rewrite(self.parts, of, &ends, &segment, next)
                }
                None => Ok(Vec::new()),
            }
        })?;
        self.steps.extend(steps);
        Ok(())
    }

    /// Saves a damaged index, and builds it again from its segment.
    fn mend_index(&mut self, index: &Path) -> Result<()> {
        let Some((_, _, ends)) = self.one_of(index) else {
            return Ok(());
        };
        let Some(base) = base_of(index) else {
            return Ok(());
        };
        let disk = self.engine.disk();
        let _changing = ends.change();
        let Some((segment, _)) = segment_of(&ends, &ends.path_of(base)) else {
            return Ok(());
        };
        let len = disk.stat(index)?.map_or(0, |entry| entry.len);
        let saved = tables::save(disk, index)?;
        restore(disk, &segment, &self.parts.rules)?;
        let damage = Damage::new(DamageKind::Index, index, 0..len, "");
        self.add(&damage, "rebuilt from the log", saved);
        Ok(())
    }

    /// Builds the indexes of a segment that lacks some of them.
    fn add_indexes(&mut self, segment: &Segment) -> Result<()> {
        let Some((_, _, ends)) = self.one_of(&segment.path) else {
            return Ok(());
        };
        let _changing = ends.change();
        let Some((segment, _)) = segment_of(&ends, &segment.path) else {
            return Ok(());
        };
        restore(self.engine.disk(), &segment, &self.parts.rules)?;
        for ending in [OFFSETS, TIMES] {
            let path = names::beside(&segment.path, ending);
            let damage = Damage::new(DamageKind::Index, path, 0..0, "");
            self.add(&damage, "rebuilt from the log: entries were missing", None);
        }
        Ok(())
    }
}

/// The base in the name of a segment's file.
fn base_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    names::base_of(name.split_once('.')?.0)
}

/// A complete segment that is durable, by its log file, and the base of the next one. None if an
/// earlier one is being replaced.
fn segment_of(ends: &Ends, log: &Path) -> Option<(Arc<Segment>, u64)> {
    let mut past = ends.past().segments.into_iter();
    past.find(|(segment, _)| *segment.path == *log)
}
