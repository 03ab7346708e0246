//! Opening: an engine that keeps files, and the services above it.

use crate::engine::commit_log::CommitLog;
use crate::engine::directory::home::Home;
use crate::engine::service::hold::Hold;
use crate::error::Result;
use crate::handle::Service;
use crate::machine::{Drive, Machine};
use crate::options::{Mode, Options};
use crate::stages::hold::{Markers, Starter};
use crate::stages::intake::Intake;
use std::path::Path;
use std::sync::Arc;

/// An open engine, and the intake above it.
pub(crate) struct Opened {
    /// The engine.
    pub(crate) engine: Arc<CommitLog>,
    /// Takes up commits, if the store is writable.
    pub(crate) intake: Option<Arc<Intake>>,
}

impl Opened {
    /// Opens the store at `root`, and starts what runs above its engine. Retention asks `hold`
    /// besides the stages.
    pub(crate) fn open_with(
        machine: &Machine,
        root: &Path,
        options: &Options,
        hold: Option<Arc<dyn Hold>>,
    ) -> Result<Opened> {
        let markers = Arc::new(Markers::default());
        let mut holds: Vec<Arc<dyn Hold>> = vec![Arc::<Markers>::clone(&markers)];
        holds.extend(hold);
        let engine = Arc::new(CommitLog::open(machine, root, options, holds)?);
        if options.mode == Mode::Read {
            return Ok(Opened {
                engine,
                intake: None,
            });
        }
        let home = Home {
            root: root.to_owned(),
            machine: machine.clone(),
            page: engine.page(),
        };
        let own = Arc::<CommitLog>::clone(&engine);
        let record_len_max = engine.record_len_max();
        let intake = Intake::new(own, home, engine.options(), record_len_max);
        let intake = Arc::new(intake);
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
    use super::{CommitLog, Machine, Opened, Options, Path, Result};
    use crate::record::Contents;
    use crate::stages::marker;
    use std::ops::Deref;

    impl Deref for Opened {
        type Target = CommitLog;

        fn deref(&self) -> &CommitLog {
            &self.engine
        }
    }

    impl Opened {
        /// [`Opened::open_with`], without consumers.
        pub(crate) fn open(machine: &Machine, root: &Path, options: &Options) -> Result<Opened> {
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
