//! Opening: the handle of a store, and how a child of the process opens a shared store again.

use super::engine_options;
use super::opened::Opened;
use super::path::{check_path, is_partition_log};
use crate::claims::Claims;
use crate::consumer::{Anchor, Waiting};
use crate::engine::Engine;
use crate::engine::commit_log::CommitLog;
use crate::engine::directory::names;
use crate::engine::memory::Memory;
use crate::engine::partition_log::PartitionLog;
use crate::engine::service::hold::Hold;
use crate::error::{At, Error, Op, Result};
use crate::handle::{Again, Handle, Reopen};
use crate::machine::Machine;
use crate::meter::Meters;
use crate::options::{EngineKind, Mode, Options};
use crate::stages::intake::Intake;
use crate::table::TablePlace;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Opens an engine and the services above it, except consumers. Retention respects `hold`.
pub(super) fn open_handle(
    machine: &Machine,
    path: &Path,
    mut options: Options,
    hold: Arc<dyn Hold>,
) -> Result<(Handle, Option<Arc<Intake>>, Option<TablePlace>)> {
    let mut place = None;
    let mut services = Vec::new();
    let mut joint = None;
    let (engine, intake): (Arc<dyn Engine>, _) = if check_path(path, options.engine)? {
        let refused = match options.mode {
            Mode::Read => Some(("\"r\"", "a memory store has nothing to read")),
            Mode::Share => Some(("\"share\"", "a memory store belongs to one process")),
            Mode::Append | Mode::Create => None,
        };
        if let Some((mode, reason)) = refused {
            return Err(Error::option("mode", mode, reason));
        }
        engine_options::check(EngineKind::Memory, &options)?;
        let engine = Memory::open(Arc::clone(&machine.clock), &options)?;
        (Arc::from(engine), None)
    } else {
        // Absolute, so that it does not depend on the current directory of the process.
        let root = std::path::absolute(path).at(Op::Find, path)?;
        if options.guard_maps {
            crate::region::guard::install();
        }
        if is_partition_log(machine, &root, &options)? {
            engine_options::check(EngineKind::PartitionLog, &options)?;
            let opened = Opened::<PartitionLog>::open_with(machine, &root, &options, Some(hold))?;
            options = opened.engine.options().clone();
            // Keys are found by scanning.
            options.index = Some(false);
            services = opened.services();
            joint = opened.engine.joint();
            place = Some(TablePlace::flat(Arc::clone(&machine.disk), root));
            (opened.engine, opened.intake)
        } else {
            engine_options::check(EngineKind::CommitLog, &options)?;
            let opened = Opened::<CommitLog>::open_with(machine, &root, &options, Some(hold))?;
            options = opened.engine.options().clone();
            services = opened.services();
            joint = opened.engine.joint();
            place = Some(TablePlace::nested(Arc::clone(&machine.disk), root));
            (opened.engine, opened.intake)
        }
    };
    let meters = Meters::new(&engine.report().warnings, Arc::clone(&machine.clock));
    let meters = Arc::new(meters);
    engine.show_meters(&meters);
    let handle = Handle {
        meters,
        engine,
        joint,
        services,
        clock: Arc::clone(&machine.clock),
        path: path.to_path_buf(),
        options,
        closed: AtomicBool::new(false),
        generation: crate::disk::fork_generation(),
        delayed: OnceLock::new(),
        reopen: None,
        again: Default::default(),
    };
    Ok((handle, intake, place))
}

/// The claims of a store with its tables at this place.
pub(super) fn claims_at(place: Option<&TablePlace>) -> Claims {
    let own = |place: &TablePlace| (Arc::clone(&place.disk), place.own(names::PRODUCERS));
    Claims::new(place.map(own))
}

/// The services above the handle in a child of the process that opened a shared store.
pub(super) struct Above {
    pub(super) consumers: Arc<Anchor>,
    pub(super) intake: Option<Arc<Intake>>,
    pub(super) claims: Claims,
}

/// How children of this process open a shared store again.
pub(super) fn reopen(machine: &Machine, path: &Path, options: Options) -> Result<Option<Reopen>> {
    if options.mode != Mode::Share {
        return Ok(None);
    }
    let root = std::path::absolute(path).at(Op::Find, path)?;
    let machine = machine.clone();
    let open = move || {
        let waiting = Arc::new(Waiting::default());
        let hold = Arc::<Waiting>::clone(&waiting);
        let (handle, intake, place) = open_handle(&machine, &root, options.clone(), hold)?;
        let handle = Arc::new(handle);
        let claims = claims_at(place.as_ref());
        let consumers = Anchor::new(Arc::clone(&handle), place, machine.drive)?;
        waiting.set(&consumers);
        let above = Box::new(Above {
            consumers,
            intake,
            claims,
        });
        Ok(Again { above, handle })
    };
    Ok(Some(Box::new(open)))
}
