//! Where the files of stages and commits are.
//!
//! A commit log has a folder for each query. Kafka refuses folders that it does not know in its log
//! directory, but ignores files; so in a partition log the names of the files say the query:
//!
//! ```text
//!   commit log      forebay.stages/<query>/<name>
//!   partition log   forebay.stages.<query>.<name>
//! ```
//!
//! Drivers and the writer wake each other through two words of the state page. A partition log has
//! no state page. Its words are in a page of their own, `forebay.intake`, which exists once rows
//! were staged, and which nobody syncs: only changes while processes run have a meaning.

use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, Kind};
use crate::engine::directory::names::{INTAKE, LOCK, STAGES};
use crate::engine::directory::page::StatePage;
use crate::engine::partition_log::segments::names as partition_log;
use crate::error::{Error, Result};
use crate::plant::{Bug, planted};
use crate::record::check_topic;
use crate::record::common::check::TOPIC_LEN_MAX;
use crate::region::Access;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The files of all stages and commits of a store.
#[derive(Clone, Debug)]
pub struct StagePlace {
    root: PathBuf,
    is_flat: bool,
}

/// The files of one query.
#[derive(Clone, Debug)]
pub struct QueryPlace {
    /// The query.
    pub query: String,
    /// The folder of the files.
    pub folder: PathBuf,
    /// What precedes their names, if the folder has other files too.
    prefix: String,
}

impl StagePlace {
    /// Of the store at `root`, which need not exist if it will be a commit log.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn of(disk: &dyn Disk, root: &Path) -> Result<StagePlace> {
        Ok(StagePlace {
            root: root.to_owned(),
            is_flat: disk.stat(&root.join(partition_log::FOREBAY))?.is_some(),
        })
    }

    /// Of the commit log at `root`.
    pub fn nested(root: &Path) -> StagePlace {
        StagePlace {
            root: root.to_owned(),
            is_flat: false,
        }
    }

    /// Of the partition log at `root`.
    pub fn flat(root: &Path) -> StagePlace {
        StagePlace {
            root: root.to_owned(),
            is_flat: true,
        }
    }

    /// The directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the store is a partition log.
    pub fn is_flat(&self) -> bool {
        self.is_flat
    }

    /// Checks the topic of a row.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTopic`].
    pub fn check_topic(&self, topic: &str) -> Result<()> {
        if !self.is_flat {
            return check_topic(topic);
        }
        partition_log::check_users_topic(topic)?;
        match topic.len() > TOPIC_LEN_MAX {
            true => Err(Error::InvalidTopic {
                topic: topic.to_owned(),
                reason: format!(
                    "the name is {} bytes, limit {TOPIC_LEN_MAX} for rows that are staged",
                    topic.len()
                ),
            }),
            false => Ok(()),
        }
    }

    /// The file whose byte 0 the writer of the store locks.
    pub fn lock(&self) -> PathBuf {
        let name = if self.is_flat {
            partition_log::LOCK
        } else {
            LOCK
        };
        self.root.join(name)
    }

    /// The page with the words; `None` if it does not exist, or the store.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn page(&self, disk: &dyn Disk, access: Access) -> Result<Option<StatePage>> {
        let page = match self.is_flat {
            true => StatePage::open_words(disk, &self.root.join(INTAKE), access),
            false => StatePage::open(disk, &self.root, access),
        };
        match page {
            Err(error) if error.is_not_found() => Ok(None),
            page => page,
        }
    }

    /// Whether rows were ever staged.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn is_used(&self, disk: &dyn Disk) -> Result<bool> {
        let (name, kind) = match self.is_flat {
            true => (INTAKE, Kind::File),
            false => (STAGES, Kind::Directory),
        };
        let found = disk.stat(&self.root.join(name))?;
        Ok(found.is_some_and(|entry| entry.kind == kind))
    }

    /// The files of a query.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for an invalid name.
    pub fn query(&self, query: &str) -> Result<QueryPlace> {
        if !is_query(query) {
            let reason = "must be 1 to 64 of the characters a-z, A-Z, 0-9, _ and -";
            return Err(Error::option("query", format!("{query:?}"), reason));
        }
        Ok(self.at(query))
    }

    fn at(&self, query: &str) -> QueryPlace {
        let (folder, prefix) = match self.is_flat {
            true => (self.root.clone(), format!("{STAGES}.{query}.")),
            false => (self.root.join(STAGES).join(query), String::new()),
        };
        QueryPlace {
            query: query.to_owned(),
            folder,
            prefix,
        }
    }

    /// Creates what the files of a query need, if it does not exist. Links are not followed.
    ///
    /// # Errors
    ///
    /// Those of [`StagePlace::query`]; [`Error::Unsupported`] if something else has its name;
    /// errors of the disk.
    pub fn make(&self, disk: &dyn Disk, query: &str) -> Result<QueryPlace> {
        let place = self.query(query)?;
        if self.is_flat {
            self.make_page(disk, &place)?;
            return Ok(place);
        }
        let top = self.root.join(STAGES);
        for path in [&top, &place.folder] {
            disk.create_directory(path)?;
            let found = disk.stat(path)?;
            if found.is_some_and(|entry| entry.kind != Kind::Directory) {
                let what = format!("{} is not a directory", path.display());
                return Err(Error::Unsupported { what });
            }
        }
        Ok(place)
    }

    fn make_page(&self, disk: &dyn Disk, place: &QueryPlace) -> Result<()> {
        let path = self.root.join(INTAKE);
        if self.page(disk, Access::Read)?.is_some() {
            return Ok(());
        }
        if planted(Bug::ReplacePage) {
            unlink(disk, &path)?;
        }
        // The sweep knows this name as that of a temporary file.
        let temporary = place.path(&format!("stage-{}.tmp", unique()));
        disk.write_at(&temporary, 0, &StatePage::empty())?;
        match disk.rename_new(&temporary, &path) {
            Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => {
                unlink(disk, &temporary)?;
            }
            renamed => return renamed,
        }
        // Another task was first, or a power loss has left the name and not the bytes. No file takes
        // the place of one that the writer may have mapped.
        match self.page(disk, Access::Read)? {
            Some(_) => Ok(()),
            None => StatePage::complete_words(disk, &path),
        }
    }

    /// The queries that have files. Links are not followed.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn queries(&self, disk: &dyn Disk) -> Result<Vec<QueryPlace>> {
        if !self.is_used(disk)? {
            return Ok(Vec::new());
        }
        let (folder, kind) = match self.is_flat {
            true => (self.root.clone(), Kind::File),
            false => (self.root.join(STAGES), Kind::Directory),
        };
        let entries = disk.list(&folder)?.into_iter();
        let names = entries.filter(|entry| entry.kind == kind);
        let query = |name: String| match self.is_flat {
            true => query_of(&name).map(str::to_owned),
            false => Some(name),
        };
        let queries = names.filter_map(|entry| query(entry.name?));
        let queries: BTreeSet<String> = queries.filter(|query| is_query(query)).collect();
        Ok(queries.iter().map(|query| self.at(query)).collect())
    }
}

impl QueryPlace {
    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}{name}", self.prefix))
    }

    /// Whether the folder is that of the store.
    pub fn is_flat(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// Creates the folder again, which the sweep has removed.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn make_again(&self, disk: &dyn Disk) -> Result<()> {
        match self.is_flat() {
            true => Ok(()),
            false => disk.create_directory(&self.folder),
        }
    }

    /// The names of its files; none if the folder does not exist.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn list(&self, disk: &dyn Disk) -> Result<Vec<String>> {
        let entries = match disk.list(&self.folder) {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            found => found?,
        };
        let files = entries.into_iter().filter(|it| it.kind == Kind::File);
        let names = files.filter_map(|entry| {
            let name = entry.name?;
            Some(name.strip_prefix(&*self.prefix)?.to_owned())
        });
        Ok(names.collect())
    }

    /// Removes the folder, if it has no files and is not that of the store.
    pub fn remove(&self, disk: &dyn Disk) {
        if !self.is_flat() {
            // This fails if a task has just created a file in it, as it should.
            let _ = disk.remove_directory(&self.folder);
        }
    }
}

/// The query in the name of a file of a partition log.
fn query_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(STAGES)?.strip_prefix('.')?;
    rest.split_once('.').map(|(query, _)| query)
}

/// Whether a name is valid for a query. It is used as a directory and as a key.
pub fn is_query(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(known)
}

/// Unlinks a file, if it exists.
pub fn unlink(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.unlink(path) {
        Err(error) if error.is_not_found() => Ok(()),
        done => done,
    }
}

/// A name that no other process generates.
pub fn unique() -> String {
    use std::hash::{BuildHasher, RandomState};
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    // The keys of the hash are random numbers from the operating system.
    let part = |number: u64| {
        let seen = (number, count, std::process::id(), RealClock.now_ms());
        RandomState::new().hash_one(seen)
    };
    format!("{:016x}{:016x}", part(0), part(1))
}
