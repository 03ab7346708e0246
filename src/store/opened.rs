//! Opening: an engine that keeps files, and the services above it.

use crate::engine::Staging;
use crate::engine::commit_log::CommitLog;
use crate::engine::partition_log::PartitionLog;
use crate::engine::service::hold::Hold;
use crate::engine::service::watch::Watch;
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

/// An engine that keeps files, with what the services above it need.
pub(crate) trait Filed: Staging + Sized + 'static {
    /// Opens the store at `root`. Retention respects the `holds`.
    fn open(
        machine: &Machine,
        root: &Path,
        options: &Options,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<Self>;

    /// The store to which the intake appends.
    fn writer(engine: &Arc<Self>, machine: &Machine, root: &Path) -> Writer;

    /// Whether this process, among those that share the store, takes up commits.
    fn leads(&self) -> bool;

    /// Calls `watch` about once a second.
    fn watch_by(&self, watch: Arc<dyn Watch>);
}

impl Filed for CommitLog {
    fn open(
        machine: &Machine,
        root: &Path,
        options: &Options,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<CommitLog> {
        CommitLog::open(machine, root, options, holds)
    }

    fn writer(engine: &Arc<CommitLog>, machine: &Machine, root: &Path) -> Writer {
        Writer::new(
            Arc::<CommitLog>::clone(engine),
            StagePlace::nested(root),
            (machine, Words::of(engine.page())),
            engine.options(),
            engine.record_len_max(),
        )
    }

    fn leads(&self) -> bool {
        self.joint().is_none_or(|joint| joint.leads())
    }

    fn watch_by(&self, watch: Arc<dyn Watch>) {
        self.set_watch(watch);
    }
}

impl Filed for PartitionLog {
    fn open(
        machine: &Machine,
        root: &Path,
        options: &Options,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<PartitionLog> {
        PartitionLog::open_with(machine, root, options, holds)
    }

    fn writer(engine: &Arc<PartitionLog>, machine: &Machine, root: &Path) -> Writer {
        // Keys are found by scanning, and the engine limits the length of a record.
        let options = Options {
            index: Some(false),
            unique_ids: Some(false),
            ..engine.options().clone()
        };
        Writer::new(
            Arc::<PartitionLog>::clone(engine),
            StagePlace::flat(root),
            (machine, Words::default()),
            &options,
            u64::MAX,
        )
    }

    fn leads(&self) -> bool {
        self.joint().is_none_or(|joint| joint.leads())
    }

    fn watch_by(&self, watch: Arc<dyn Watch>) {
        self.set_watch(watch);
    }
}

impl<E: Filed> Opened<E> {
    /// Opens the store at `root`, and starts the services above its engine. Retention respects
    /// `hold`, and that of the stages.
    pub(crate) fn open_with(
        machine: &Machine,
        root: &Path,
        options: &Options,
        hold: Option<Arc<dyn Hold>>,
    ) -> Result<Opened<E>> {
        let markers = Arc::new(Markers::default());
        let stages: Arc<dyn Hold> = Arc::<Markers>::clone(&markers);
        let holds = std::iter::once(stages).chain(hold).collect();
        let engine = Arc::new(E::open(machine, root, options, holds)?);
        if options.mode == Mode::Read {
            return Ok(Opened {
                engine,
                intake: None,
            });
        }
        let intake = Arc::new(Intake::new(E::writer(&engine, machine, root)));
        markers.set(&intake);
        if machine.drive == Drive::Threads {
            if engine.leads() {
                intake.start();
            }
            engine.watch_by(Arc::new(Starter(Arc::downgrade(&intake))));
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
    use super::{Filed, Machine, Opened, Options, Path, Result};
    use crate::record::Contents;
    use crate::stages::marker;
    use std::ops::Deref;

    impl<E> Deref for Opened<E> {
        type Target = E;

        fn deref(&self) -> &E {
            &self.engine
        }
    }

    impl<E: Filed> Opened<E> {
        /// [`Opened::open_with`], without consumers.
        pub(crate) fn open(machine: &Machine, root: &Path, options: &Options) -> Result<Opened<E>> {
            Opened::open_with(machine, root, options, None)
        }

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
