//! Actions of a story in the middle of calls of the disk: they stand for other threads and
//! processes.

use crate::disk::Synced;
use crate::sync::Mutex;

/// An action.
pub type Act = Box<dyn FnMut() + Send>;

/// The actions of a disk.
#[derive(Default)]
pub struct Meanwhile {
    range: Mutex<Option<Act>>,
    names: Mutex<Option<Act>>,
    /// With the number of calls before it.
    call: Mutex<Option<(u64, Act)>>,
}

/// An action, and whether it is repeated.
pub struct Taken {
    act: Act,
    is_of_names: bool,
}

impl Meanwhile {
    /// Sets an action to run in the middle of the next sync of a range, or of all files.
    pub fn during_sync(&self, act: Act) {
        *self.range.lock() = Some(act);
    }

    /// Sets an action to run after each sync of names from here on.
    pub fn during_names(&self, act: Act) {
        *self.names.lock() = Some(act);
    }

    /// Sets an action to run once, after this many calls and before the next one.
    pub fn after_calls(&self, calls: u64, act: Act) {
        *self.call.lock() = Some((calls, act));
    }

    /// Runs the action for the call that begins.
    pub fn begin_call(&self) {
        let due = {
            let mut call = self.call.lock();
            match &mut *call {
                Some((left, _)) if *left > 0 => {
                    *left -= 1;
                    None
                }
                _ => call.take(),
            }
        };
        if let Some((_, mut act)) = due {
            act();
        }
    }

    /// Drops the actions, which may hold an engine that holds this disk.
    pub fn forget(&self) {
        let unheard = (
            self.range.lock().take(),
            self.names.lock().take(),
            self.call.lock().take(),
        );
        drop(unheard);
    }

    /// The action for a sync that begins.
    pub fn take(&self, what: &Synced<'_>) -> Option<Taken> {
        let (found, is_of_names) = match what {
            Synced::Range { .. } | Synced::Volume(_) => (self.range.lock().take(), false),
            Synced::Directory(_) => (self.names.lock().take(), true),
            _ => (None, false),
        };
        found.map(|act| Taken { act, is_of_names })
    }

    /// Runs an action.
    pub fn act(&self, taken: Taken) {
        let Taken {
            mut act,
            is_of_names,
        } = taken;
        act();
        if is_of_names {
            self.names.lock().get_or_insert(act);
        }
    }
}
