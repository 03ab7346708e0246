//! The services of a shared store, which one of its processes runs for all.
//!
//! The services work on their own parts, which recovery builds as if the last writer had died. So
//! taking over from a dead leader is an opening after a crash: the marks say where to begin, and
//! nothing depends on the memory of the dead process. No append goes through these parts; their end
//! of the log is the published end in the state page.

use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::parts::given::Given;
use crate::engine::commit_log::recovery::open::open;
use crate::engine::commit_log::services::Services;
use crate::engine::commit_log::tables::topics::TopicTable;
use crate::engine::directory::member::Member;
use crate::engine::directory::page::StatePage;
use crate::engine::service::hold::Hold;
use crate::engine::{Recovery, Topic};
use crate::error::{Error, Op, Result};
use crate::machine::{Drive, Machine};
use crate::options::Options;
use crate::plant::{Point, pass};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a process waits for the append lock to recover the store.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The running services.
pub struct Leader {
    /// What they work on.
    pub parts: Arc<Parts>,
    /// The services.
    pub services: Arc<Services>,
    /// What recovery found.
    pub recovery: Recovery,
    /// Readers of this process that dispatch while they wait.
    pub on_duty: u32,
    /// The number of the agreed options that the services use.
    agreed: u32,
}

impl std::fmt::Debug for Leader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leader").finish_non_exhaustive()
    }
}

impl Leader {
    /// Recovers the store while nobody can append, and starts the threads of the services, if there
    /// are any. The caller holds the byte of the leader, and no thread of this process holds the
    /// append lock.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if the append lock is not released; those of opening a store.
    pub fn begin(
        machine: &Machine,
        root: &Path,
        options: &Options,
        member: &Member,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<Leader> {
        let agreed = member.page.agreed_number();
        // Recovery erases what a dead holder has left.
        let (held, _) = member.hold(LOCK_TIMEOUT)?;
        held.lengthen();
        let opened = open(machine, root, options)?;
        held.clean();
        pass(Point::Recovered);
        // The previous leader may have died while its readers were on duty.
        member.page.set_on_duty(0);
        let (parts, options) = (opened.parts, opened.options);
        let services = Arc::new(Services::new(&options, &parts, machine.drive, holds)?);
        if machine.drive == Drive::Threads
            && let Err(error) = services.start(&parts)
        {
            services.stop(&parts);
            services.join();
            return Err(Error::io(Op::StartThreads, root, error));
        }
        Ok(Leader {
            parts,
            services,
            recovery: opened.recovery,
            on_duty: 0,
            agreed,
        })
    }

    /// Reports the damage that recovery has found among the parts that this process reads.
    pub fn tell(&self, read: &Parts) {
        for damage in self.parts.report.damage() {
            read.report.add(damage);
        }
    }

    /// Applies the options that the processes have agreed on since. `options`: those in effect when
    /// this process opened the store.
    pub fn renew(&mut self, page: &StatePage, options: &Options) {
        let number = page.agreed_number();
        // If the page holds no valid options, the services keep theirs.
        if number != self.agreed
            && let Ok(agreed) = page.agreed()
        {
            let mut options = options.clone();
            agreed.apply(&mut options);
            let _ = self.services.change(&options, &self.parts);
            self.agreed = number;
        }
    }

    fn stop(&self) {
        self.services.stop(&self.parts);
        self.services.join();
        self.parts.allocator.stop();
    }

    /// Ends the services; another process then takes over. `given`: the offsets that this process
    /// knows to be given.
    pub fn leave(&self, given: &Given) {
        self.stop();
        // This shortens the recovery of the next leader. A failure does no harm.
        let _ = self.keep(given).and_then(|()| self.parts.full_pass());
    }

    /// Ends the services and closes the store, which nobody shares any more. `given`: the offsets
    /// that this process knows to be given.
    ///
    /// # Errors
    ///
    /// The error that keeps messages from being durable.
    pub fn close(&self, last_store_ms: i64, given: &Given) -> Result<()> {
        self.stop();
        let parts = &self.parts;
        let closed = parts
            .health
            .check()
            .and_then(|()| self.load_topics())
            .and_then(|()| parts.log.join().map(drop))
            .and_then(|()| self.keep(given))
            .and_then(|()| parts.full_pass_for_close(last_store_ms));
        if closed.is_err() {
            parts.log.state.end_epoch(false);
        }
        closed
    }

    /// Puts these offsets into the queues of the services, which have topics of their own.
    fn keep(&self, given: &Given) -> Result<()> {
        let own = |(topic, queue, next): &(Arc<Topic>, u32, u64)| {
            let (topic, _) = self.parts.topics.get_or_add(&topic.name, queue + 1);
            (topic, *queue, *next)
        };
        self.parts.keep_offsets(&Given {
            end: given.end,
            next: given.next.iter().map(own).collect(),
        })
    }

    /// Loads the topics that other processes have saved.
    fn load_topics(&self) -> Result<()> {
        let parts = &self.parts;
        let mut table = parts.table.lock();
        *table = TopicTable::load(&*parts.disk, &parts.root, &parts.topics)?;
        Ok(())
    }
}
