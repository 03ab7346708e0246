//! Repair: what can be mended is the file of saved options. Damaged batches stay as they are, since
//! nothing else has their messages, and readers pass over them.

use super::PartitionLog;
use crate::engine::directory::{kept_options, salvage};
use crate::engine::{Damage, DamageKind, Engine, Repair, RepairStep};
use crate::error::Result;
use crate::options::EngineKind;

/// Checks the store, and mends what can be mended. `progress` receives the bytes checked and the
/// total; if it returns false, nothing is changed. Durable on return.
pub(super) fn repair(
    engine: &PartitionLog,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Repair> {
    let mut goes_on = true;
    let found = engine.verify(&mut |done, all| {
        goes_on = progress(done, all);
        goes_on
    })?;
    let mut repair = Repair::default();
    if !goes_on {
        return Ok(repair);
    }
    for damage in found.damage {
        match damage.kind {
            DamageKind::Options => repair.steps.push(mend_options(engine, damage)?),
            _ => repair.left.push(damage),
        }
    }
    if !repair.steps.is_empty() {
        let report = &engine.shared.report;
        report.retain(|damage| damage.kind != DamageKind::Options);
    }
    Ok(repair)
}

fn mend_options(engine: &PartitionLog, damage: Damage) -> Result<RepairStep> {
    let disk = engine.disk();
    let from = (&*damage.path, 0..damage.length);
    // Not in a directory of its own: a broker takes each directory here for a partition.
    let name = format!("{}.damaged", kept_options::FILE_NAME);
    let saved = salvage::save(disk, from, (&engine.root, &name))?;
    kept_options::mend(disk, &engine.root, EngineKind::PartitionLog)?;
    Ok(RepairStep {
        path: damage.path,
        position: 0,
        length: damage.length,
        what: kept_options::MENDED.to_owned(),
        saved,
        lost: Vec::new(),
    })
}
