//! Opening a log directory.

use super::compact::compactor::Compactor;
use super::compact::rules::CompactRules;
use super::half_read::HalfReads;
use super::listening::Listening;
use super::promised::Promised;
use super::retention::service::Retention;
use super::segments::names;
use super::write::{Opened, Writer};
use super::{PartitionLog, Shared};
use crate::engine::service::hold::Hold;
use crate::engine::{Engine, Recovery, Topics};
use crate::error::{At, Op, Result};
use crate::machine::{Drive, Machine};
use crate::options::{Mode, Options};
use crate::sync::{Mutex, RwLock};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

impl PartitionLog {
    /// Opens the log directory at `root`, without holds on its retention.
    ///
    /// # Errors
    ///
    /// As [`PartitionLog::open_with`].
    #[cfg(test)]
    pub fn open(machine: &Machine, root: &Path, options: &Options) -> Result<PartitionLog> {
        PartitionLog::open_with(machine, root, options, Vec::new())
    }

    /// Opens the log directory at `root`. Retention keeps what the `holds` need.
    ///
    /// # Errors
    ///
    /// [`NotFound`], [`NotAStore`]; errors of reading; for a writer, those of [`Writer::open`] and
    /// [`Writer::join`].
    ///
    /// [`NotFound`]: crate::Error::NotFound
    /// [`NotAStore`]: crate::Error::NotAStore
    pub fn open_with(
        machine: &Machine,
        root: &Path,
        options: &Options,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<PartitionLog> {
        let began = Instant::now();
        let disk = Arc::clone(&machine.disk);
        if options.mode == Mode::Read {
            names::check_root(&*disk, root)?;
        }
        let mut engine = PartitionLog {
            root: root.to_owned(),
            shared: Arc::new(Shared {
                disk,
                clock: Arc::clone(&machine.clock),
                isolation: options.isolation.unwrap_or_default(),
                report: Arc::default(),
                half_reads: HalfReads::default(),
            }),
            topics: Topics::default(),
            partitions: RwLock::default(),
            gone: AtomicU64::new(0),
            starts: RwLock::default(),
            listed: Mutex::default(),
            options: options.clone(),
            closed: AtomicBool::new(false),
            news: Arc::default(),
            listening: Listening::default(),
            writer: None,
            compactor: None,
            retention: None,
        };
        let mut recovery = match options.mode {
            Mode::Read => {
                let promised = Promised::read(&engine)?;
                engine.update()?;
                let clean = engine.disk().stat(&root.join(names::CLEAN))?.is_some();
                let end = engine.check_all()?;
                engine.tell_missing(&promised)?;
                Recovery {
                    clean,
                    end,
                    ..Recovery::default()
                }
            }
            Mode::Append | Mode::Create | Mode::Share => {
                engine.open_for_writing(machine, options, holds)?
            }
        };
        recovery.elapsed = began.elapsed();
        engine.shared.report.opened(recovery);
        Ok(engine)
    }

    fn open_for_writing(
        &mut self,
        machine: &Machine,
        options: &Options,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<Recovery> {
        let with = (&self.topics, &*self.shared.report, &self.news);
        let (writer, opened, recovery) = match options.mode {
            Mode::Share => Writer::join(machine, &self.root, options, with)?,
            _ => Writer::open(machine, &self.root, options, with)?,
        };
        self.options = writer.options.clone();
        for Opened { topic, queue, ends } in opened {
            self.add(&topic, queue, ends);
        }
        let begun = self.begin_services((machine, options), holds, &writer);
        self.writer = Some(writer);
        let begun = begun.and_then(|()| self.tell_missing(&Promised::read(self)?));
        if let Err(error) = begun {
            // The threads that did start must not go on without the locks.
            let _ = self.close();
            return Err(error);
        }
        Ok(recovery)
    }

    /// Reports what is missing.
    fn tell_missing(&self, promised: &Promised) -> Result<()> {
        let missing = promised.missing(self)?.into_iter();
        missing.for_each(|it| it.tell(&self.shared.report));
        Ok(())
    }

    /// Starts what removes and compacts segments.
    fn begin_services(
        &mut self,
        (machine, options): (&Machine, &Options),
        holds: Vec<Arc<dyn Hold>>,
        writer: &Writer,
    ) -> Result<()> {
        let rules = CompactRules::new(&options.compaction);
        let warnings = &self.shared.report.warnings;
        let compactor = Arc::new(Compactor::new(rules, warnings));
        self.compactor = Some(Arc::clone(&compactor));
        let known_times = writer.known_times.clone();
        let retention = Arc::new(Retention::new(
            options,
            &self.shared.report,
            known_times,
            holds,
        )?);
        self.retention = Some(Arc::clone(&retention));
        if options.mode != Mode::Share {
            retention.complete(&writer.parts)?;
        }
        if machine.drive == Drive::Threads {
            let started = compactor.start(&writer.parts);
            let started = started.and_then(|()| retention.start(&writer.parts));
            started.at(Op::StartThreads, &self.root)?;
        }
        Ok(())
    }
}
