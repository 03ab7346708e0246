//! The parts of a store that a reader uses: those that it opened, or those beside a writer that
//! came later.
//!
//! A reader that finds a writer follows its marks from the beginning ([`follow`]). One that finds
//! none reads what recovery made of the files, and checks the state page before each answer. Once a
//! writer has begun an epoch there, the reader opens the store a second time, as beside a running
//! writer, and answers from those parts. Topics keep their numbers, and positions and offsets keep
//! their meaning. Later writers use the same page and the same files, so joining once is enough.
//!
//! [`follow`]: super::read::follow

use super::parts::Parts;
use super::recovery::assemble::Opened;
use super::recovery::open::join;
use crate::engine::directory::names;
use crate::engine::directory::page::{Mark, StatePage};
use crate::error::Result;
use crate::machine::Machine;
use crate::options::Options;
use crate::sync::Mutex;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often a directory without a state page is checked for one.
pub const CHECK: Duration = Duration::from_millis(100);

/// The parts of an open store.
pub struct Joined {
    opened: Arc<Parts>,
    /// The parts beside the writer that came later.
    followed: OnceLock<Arc<Parts>>,
    /// What it takes to join a writer; `None` if the store is written here or was opened beside a
    /// writer.
    awaited: Option<Awaited>,
}

/// A store that was opened for reading while nobody wrote it.
struct Awaited {
    machine: Machine,
    root: PathBuf,
    options: Options,
    /// The state page, and the epoch at which it was read.
    page: Option<(Arc<StatePage>, u64)>,
    /// When the directory was last checked for a page.
    checked_ms: AtomicI64,
    /// Held while a writer is joined; `true` once the store closes.
    closing: Mutex<bool>,
}

impl Deref for Joined {
    type Target = Arc<Parts>;

    #[inline]
    fn deref(&self) -> &Arc<Parts> {
        self.followed.get().unwrap_or(&self.opened)
    }
}

impl Joined {
    /// The parts of a store that was just opened on `machine` at `root`.
    pub fn new(machine: &Machine, root: &Path, opened: &Opened) -> Joined {
        let awaits = !opened.parts.is_written() && opened.parts.log.source.is_none();
        let awaited = awaits.then(|| Awaited {
            machine: machine.clone(),
            root: root.to_owned(),
            options: opened.options.clone(),
            page: opened.page.clone(),
            checked_ms: AtomicI64::new(0),
            closing: Mutex::new(false),
        });
        Joined {
            opened: Arc::clone(&opened.parts),
            followed: OnceLock::new(),
            awaited,
        }
    }

    /// Joins a writer if one has come. Cheap if none has.
    ///
    /// # Errors
    ///
    /// Those of opening; the next call tries again.
    #[inline]
    pub fn join(&self) -> Result<()> {
        match &self.awaited {
            None => Ok(()),
            Some(awaited) => self.join_writer(awaited),
        }
    }

    fn join_writer(&self, awaited: &Awaited) -> Result<()> {
        if let Some(followed) = self.followed.get() {
            // Files that the writer removes must not stay mapped here.
            let (minimum, log) = (followed.log.min_position(), &self.opened.log);
            if minimum > log.min_position() {
                log.state.set(Mark::Minimum, minimum);
                log.files.forget_below(minimum);
            }
            return Ok(());
        }
        if !awaited.has_come()? {
            return Ok(());
        }
        let closing = awaited.closing.lock();
        if *closing || self.followed.get().is_some() {
            return Ok(());
        }
        let (machine, root) = (&awaited.machine, &awaited.root);
        if let Some(parts) = join(machine, root, &awaited.options, &self.opened)? {
            let _ = self.followed.set(parts);
        }
        Ok(())
    }

    /// Stops joining writers, because the store closes.
    pub fn end(&self) {
        if let Some(awaited) = &self.awaited {
            *awaited.closing.lock() = true;
        }
    }

    /// The state page that a writer changes or will change; `None` in a directory without a page.
    pub fn page(&self) -> Option<&StatePage> {
        let awaited = self.awaited.as_ref().and_then(|it| it.page.as_ref());
        let page = self.log.source.as_ref().or(awaited.map(|(page, _)| page));
        page.map(|page| &**page)
    }
}

impl Awaited {
    fn has_come(&self) -> Result<bool> {
        if let Some((page, epoch)) = &self.page {
            let has = page.has_begun_since(*epoch);
            return page.check().map(|()| has);
        }
        let now = self.machine.clock.coarse_ms();
        let since = now.abs_diff(self.checked_ms.load(Ordering::Relaxed));
        if u128::from(since) < CHECK.as_millis() {
            return Ok(false);
        }
        self.checked_ms.store(now, Ordering::Relaxed);
        let path = self.root.join(names::STATE);
        let found = self.machine.disk.stat(&path)?;
        Ok(found.is_some())
    }
}
