//! Which process runs the services: each one checks whether there is a leader, and becomes it if
//! there is none.

use super::core::{Core, Role};
use super::leader::Leader;
use crate::engine::commit_log::read::follow;
use crate::error::Result;
use crate::region::guard;
use std::time::{Duration, Instant};

/// Pause between two checks of a process that does not wait.
const WATCH: Duration = Duration::from_millis(100);
/// How often the leader does what the services of its parts do not.
const TEND: Duration = Duration::from_secs(1);

impl Core {
    /// Becomes the leader if there is none. Returns whether this process leads.
    ///
    /// # Errors
    ///
    /// Those of opening a store. The next call tries again.
    pub fn try_lead(&self) -> Result<bool> {
        let Some(mut role) = self.role.try_lock() else {
            return Ok(false);
        };
        match *role {
            Role::Leader(_) => return Ok(true),
            Role::Gone => return Ok(false),
            Role::Follower => {}
        }
        // After a failure only closing and opening the store helps, in all processes.
        if self.member.check(&self.health).is_err() || !self.member.try_lead()? {
            return Ok(false);
        }
        let led = self.lead().inspect_err(|_| self.member.stop_leading())?;
        led.tell(&self.parts);
        *role = Role::Leader(Box::new(led));
        drop(role);
        self.lead.begin();
        Ok(true)
    }

    fn lead(&self) -> Result<Leader> {
        // No thread of this process may hold the append lock meanwhile.
        let _tail = self.tail.lock();
        let holds = self.holds.clone();
        let mut options = self.options.clone();
        self.member.page.agreed()?.apply(&mut options);
        Leader::begin(&self.machine, &self.root, &options, &self.member, holds)
    }

    /// Checks from time to time whether there is a leader, until the store closes. As the leader,
    /// does what is due.
    pub(super) fn watch(&self) {
        let mut tended = Instant::now();
        while !self.shutdown.has_begun() {
            guard::renew();
            self.walk_ahead();
            // A process that does not read must not keep removed files mapped.
            let _ = follow::refresh_log(&self.parts);
            if tended.elapsed() >= TEND {
                tended = Instant::now();
                self.tend();
            }
            let pause = match self.try_lead() {
                Ok(_) => WATCH,
                // A later attempt may succeed, for example when there is room on the disk.
                Err(_) => 10 * WATCH,
            };
            self.shutdown.sleep(pause);
        }
    }

    /// Walks what others have published while this process sends little, so that its next send need
    /// not.
    fn walk_ahead(&self) {
        let mut tail = self.tail.lock();
        if self.is_behind(&tail) {
            let walked = self.catch_up(&mut tail);
            // The next append reports it.
            let _ = walked.inspect_err(|error| self.fail_of(error));
        }
    }
}
