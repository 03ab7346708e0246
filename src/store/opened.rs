//! Opening: an engine that keeps files, and the services above it.

use crate::engine::commit_log::CommitLog;
use crate::engine::partition_log::PartitionLog;
use crate::engine::service::hold::Hold;
use crate::error::Result;
use crate::handle::Service;
use crate::machine::{Drive, Machine};
use crate::options::{Mode, Options};
use crate::stages::hold::{Markers, Starter};
use crate::stages::intake::Intake;
use crate::stages::place::StagePlace;
use crate::stages::words::Words;
use crate::stages::writer::Writer;
use std::path::Path;
use std::sync::Arc;

/// An open engine, and the intake above it.
pub(crate) struct Opened<E = CommitLog> {
    /// The engine.
    pub(crate) engine: Arc<E>,
    /// Takes up commits, if the store is writable.
    pub(crate) intake: Option<Arc<Intake>>,
}

/// What retention asks: the stages, and `hold`.
fn holds(markers: &Arc<Markers>, hold: Option<Arc<dyn Hold>>) -> Vec<Arc<dyn Hold>> {
    let markers: Arc<dyn Hold> = Arc::<Markers>::clone(markers);
    std::iter::once(markers).chain(hold).collect()
}

impl Opened {
    /// Opens the commit log at `root`, and starts what runs above its engine. Retention asks `hold`
    /// besides the stages.
    pub(crate) fn open_with(
        machine: &Machine,
        root: &Path,
        options: &Options,
        hold: Option<Arc<dyn Hold>>,
    ) -> Result<Opened> {
        let markers = Arc::new(Markers::default());
        let holds = holds(&markers, hold);
        let engine = Arc::new(CommitLog::open(machine, root, options, holds)?);
        if options.mode == Mode::Read {
            return Ok(Opened {
                engine,
                intake: None,
            });
        }
        let intake = Arc::new(Intake::new(Writer::new(
            Arc::<CommitLog>::clone(&engine),
            StagePlace::nested(root),
            (machine, Words::of(engine.page())),
            engine.options(),
            engine.record_len_max(),
        )));
        markers.set(&intake);
        if machine.drive == Drive::Threads {
            // Of the processes that share a store, the one that leads takes commits up.
            if engine.joint().is_none_or(|joint| joint.leads()) {
                intake.start();
            }
            engine.set_watch(Arc::new(Starter(Arc::downgrade(&intake))));
        }
        let intake = Some(intake);
        Ok(Opened { engine, intake })
    }
}

impl Opened<PartitionLog> {
    /// Opens the partition log at `root`; otherwise as [`Opened::open_with`].
    pub(crate) fn open_partition_log(
        machine: &Machine,
        root: &Path,
        options: &Options,
        hold: Option<Arc<dyn Hold>>,
    ) -> Result<Opened<PartitionLog>> {
        let markers = Arc::new(Markers::default());
        let holds = holds(&markers, hold);
        let engine = Arc::new(PartitionLog::open_with(machine, root, options, holds)?);
        if options.mode == Mode::Read {
            return Ok(Opened {
                engine,
                intake: None,
            });
        }
        // Keys are found by scanning, and the engine limits the length of a record.
        let options = Options {
            index: Some(false),
            unique_ids: Some(false),
            ..engine.options().clone()
        };
        let intake = Arc::new(Intake::new(Writer::new(
            Arc::<PartitionLog>::clone(&engine),
            StagePlace::flat(root),
            (machine, Words::default()),
            &options,
            u64::MAX,
        )));
        markers.set(&intake);
        if machine.drive == Drive::Threads {
            intake.start();
            engine.set_watch(Arc::new(Starter(Arc::downgrade(&intake))));
        }
        let intake = Some(intake);
        Ok(Opened { engine, intake })
    }
}

impl<E> Opened<E> {
    /// The services that must end before the engine closes.
    pub(crate) fn services(&self) -> Vec<Arc<dyn Service>> {
        let intake = self.intake.iter();
        let services = intake.map(|it| Arc::<Intake>::clone(it) as Arc<dyn Service>);
        services.collect()
    }
}

/// The engine together with the store's intake, for tests and simulators that step.
#[cfg(test)]
mod stepped {
    use super::{Machine, Opened, Options, PartitionLog, Path, Result};
    use crate::engine::Engine;
    use crate::record::Contents;
    use crate::stages::marker;
    use std::ops::Deref;

    impl<E> Deref for Opened<E> {
        type Target = E;

        fn deref(&self) -> &E {
            &self.engine
        }
    }

    impl Opened {
        /// [`Opened::open_with`], without consumers.
        pub(crate) fn open(machine: &Machine, root: &Path, options: &Options) -> Result<Opened> {
            Opened::open_with(machine, root, options, None)
        }
    }

    impl Opened<PartitionLog> {
        /// [`Opened::open_partition_log`], without consumers.
        pub(crate) fn open_flat(
            machine: &Machine,
            root: &Path,
            options: &Options,
        ) -> Result<Opened<PartitionLog>> {
            Opened::open_partition_log(machine, root, options, None)
        }
    }

    impl<E: Engine> Opened<E> {
        /// [`crate::Store::take_commits`].
        pub(crate) fn take_commits(&self) -> Result<()> {
            self.intake.as_ref().map_or(Ok(()), |intake| intake.step())
        }

        /// [`crate::Store::holds_commit`].
        pub(crate) fn holds_commit(
            &self,
            batch: (&str, u64),
            contents: Contents,
            skips: bool,
        ) -> Result<bool> {
            marker::holds(&*self.engine, batch, contents, skips)
        }
    }
}
