//! The table of groups, through which the consumers of all processes share queues.

use super::Member;
use crate::disk::Disk;
use crate::engine::directory::group_table::joint::{Joint, Work};
use crate::engine::directory::group_table::{GroupTable, Peers};
use crate::engine::directory::page::{Mark, News};
use crate::engine::service::lead::Lead;
use crate::engine::service::shared_condition::SharedWord;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The table of groups, once this process has opened it.
pub struct Groups {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    member: Arc<Member>,
    lead: Arc<Lead>,
    state: Mutex<State>,
}

/// Whether this process has the table.
#[derive(Default)]
pub enum State {
    /// Not needed yet.
    #[default]
    Unopened,
    /// It is open.
    Open(Arc<GroupTable>),
    /// This process leaves the store.
    Ended,
}

impl Groups {
    /// Clears what a dead process with the slot of this one has left in the table: others must not
    /// take its consumers for those of this process.
    pub fn new(
        disk: &Arc<dyn Disk>,
        root: &Path,
        member: &Arc<Member>,
        lead: &Arc<Lead>,
    ) -> Groups {
        let groups = Groups {
            disk: Arc::clone(disk),
            root: root.to_owned(),
            member: Arc::clone(member),
            lead: Arc::clone(lead),
            state: Mutex::default(),
        };
        // If the table cannot be opened, the first consumer gets the error.
        if let Ok(Some(table)) = groups.open(false) {
            table.end_earlier();
        }
        groups
    }

    /// Prevents this process from opening the table, and waits for a thread that is opening it.
    pub fn end(&self) {
        // The lock is not kept: retention of this process may ask for the table until it ends.
        *self.state.lock() = State::Ended;
    }

    /// The table, which is created if there is none and the caller `needs` it.
    fn open(&self, needs: bool) -> Result<Option<Arc<GroupTable>>> {
        let mut state = self.state.lock();
        match &*state {
            State::Unopened => {}
            State::Open(table) => return Ok(Some(Arc::clone(table))),
            State::Ended => return Err(Error::Closed { path: None }),
        }
        let (disk, root) = (&self.disk, &self.root);
        let peers = || Arc::clone(&self.member) as Arc<dyn Peers>;
        let open = || GroupTable::open(disk, root, peers());
        let found = match open()? {
            None if needs => {
                let found = self.member.behind_gate(|| match open()? {
                    Some(table) => Ok(table),
                    None => GroupTable::create(disk, root, peers()),
                });
                Some(found?)
            }
            found => found,
        };
        let found = found.map(Arc::new);
        if let Some(table) = &found {
            *state = State::Open(Arc::clone(table));
        }
        Ok(found)
    }
}

impl Joint for Groups {
    fn table(&self) -> Result<Arc<GroupTable>> {
        let found = self.open(true)?;
        found.ok_or(Error::Closed { path: None })
    }

    fn found_table(&self) -> Result<Option<Arc<GroupTable>>> {
        self.open(false)
    }

    fn leads(&self) -> bool {
        self.lead.is_held()
    }

    fn on_lead(&self, call: Box<dyn Fn() + Send + Sync>) {
        self.lead.on_begin(call);
    }

    fn published(&self) -> u64 {
        self.member.page.get(Mark::Published)
    }

    fn notify(&self) {
        News(&self.member.page).notify();
    }

    fn work(&self) -> Work {
        Work::of(&self.member.page)
    }
}
