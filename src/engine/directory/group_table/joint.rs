//! What processes that share a store have in common, for the consumers above the engine.

use super::GroupTable;
use crate::engine::directory::page::{StatePage, Word};
use crate::error::Result;
use std::sync::Arc;
use std::time::Duration;

/// This process among those that share a store.
pub trait Joint: Send + Sync {
    /// The table of groups, which is created if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`GroupTable::open`] and [`GroupTable::create`]; [`crate::Error::Closed`].
    fn table(&self) -> Result<Arc<GroupTable>>;

    /// The table of groups; `None` if no process has needed it yet.
    ///
    /// # Errors
    ///
    /// Those of [`GroupTable::open`]; [`crate::Error::Closed`].
    fn found_table(&self) -> Result<Option<Arc<GroupTable>>>;

    /// Whether this process runs the services of the store.
    fn leads(&self) -> bool;

    /// Calls `call` each time this process begins to run the services. May be set once.
    fn on_lead(&self, call: Box<dyn Fn() + Send + Sync>);

    /// End of what all processes have published.
    fn published(&self) -> u64;

    /// Wakes all that wait for messages, in all processes.
    fn notify(&self);

    /// The word that the service of the consumers sleeps on.
    fn work(&self) -> Work;
}

/// A word on which the service of the consumers sleeps until a process has work for it.
#[derive(Clone, Debug)]
pub struct Work(Arc<StatePage>);

impl Work {
    /// The word of a state page.
    pub fn of(page: &Arc<StatePage>) -> Work {
        Work(Arc::clone(page))
    }

    /// Its value, to sleep on it later.
    pub fn seen(&self) -> u32 {
        self.0.read_word(Word::Groups)
    }

    /// Sleeps until there is work, at most for `timeout`. Returns at once if there was some since
    /// the word was `seen`.
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        self.0.sleep_on(Word::Groups, seen, timeout);
    }

    /// Wakes the service, in whatever process it runs.
    pub fn notify(&self) {
        self.0.notify(Word::Groups);
    }
}
