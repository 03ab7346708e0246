//! Where the files of stages and commits are.
//!
//! A commit log has a folder for each query. Kafka refuses folders that it does not know in its log
//! directory, but ignores files; so in a partition log the names of the files include the query:
//!
//! ```text
//!   commit log      forebay.stages/<query>/<name>
//!   partition log   forebay.stages.<query>.<name>
//! ```
//!
//! [`Layout`] covers the differences: [`nested`] is that of a commit log, [`flat`] that of a
//! partition log.
//!
//! Drivers and the writer wake each other through two words of the state page. A partition log has
//! no state page. Its words are in a page of their own, `forebay.intake`, which exists once rows
//! were staged. It is never synced, because its words matter only to running processes.

mod flat;
mod nested;

use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, Entry, Kind};
use crate::engine::directory::page::StatePage;
use crate::engine::directory::writer::pid_of_writer;
use crate::engine::partition_log::segments::names as partition_log;
use crate::error::{Error, Result};
use crate::options::EngineKind;
use crate::region::Access;
use flat::Flat;
use nested::Nested;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How one kind of store names the files of stages.
trait Layout: std::fmt::Debug + Send + Sync {
    /// The engine of the store.
    fn engine(&self) -> EngineKind;

    /// As [`StagePlace::check_topic`].
    fn check_topic(&self, topic: &str) -> Result<()>;

    /// Name of the file whose byte 0 the writer locks.
    fn lock(&self) -> &'static str;

    /// As [`StagePlace::rest`].
    fn rest(&self) -> Duration;

    /// Opens the page with the words; an error or `None` if it does not exist.
    fn page(&self, disk: &dyn Disk, root: &Path, access: Access) -> Result<Option<StatePage>>;

    /// Creates the page, unless the store already has one.
    fn make_page(&self, disk: &dyn Disk, stages: &StagePlace, place: &QueryPlace) -> Result<()>;

    /// Name and kind of the file or folder that exists once rows were staged.
    fn sign(&self) -> (&'static str, Kind);

    /// The files of a query.
    fn place(&self, root: &Path, query: &str) -> QueryPlace;

    /// The folder with what belongs to all queries.
    fn folder(&self, root: &Path) -> PathBuf;

    /// The query to which something in that folder belongs.
    fn query_of<'a>(&self, entry: &'a Entry) -> Option<&'a str>;
}

/// The files of all stages and commits of a store.
#[derive(Clone, Debug)]
pub struct StagePlace {
    root: PathBuf,
    layout: &'static dyn Layout,
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
    /// The folder of all queries, if each has a folder.
    top: Option<PathBuf>,
}

impl StagePlace {
    /// Of the store at `root`, which need not exist if it will be a commit log.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn of(disk: &dyn Disk, root: &Path) -> Result<StagePlace> {
        Ok(match disk.stat(&root.join(partition_log::FOREBAY))? {
            Some(_) => StagePlace::flat(root),
            None => StagePlace::nested(root),
        })
    }

    /// Of the commit log at `root`.
    pub fn nested(root: &Path) -> StagePlace {
        StagePlace {
            root: root.to_owned(),
            layout: &Nested,
        }
    }

    /// Of the partition log at `root`.
    pub fn flat(root: &Path) -> StagePlace {
        StagePlace {
            root: root.to_owned(),
            layout: &Flat,
        }
    }

    /// The directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The engine of the store.
    pub fn engine(&self) -> EngineKind {
        self.layout.engine()
    }

    /// How long the writer sleeps if nothing wakes it.
    pub fn rest(&self) -> Duration {
        self.layout.rest()
    }

    /// Checks the topic of a row.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTopic`].
    pub fn check_topic(&self, topic: &str) -> Result<()> {
        self.layout.check_topic(topic)
    }

    /// The file whose byte 0 the writer of the store locks.
    pub fn lock(&self) -> PathBuf {
        self.root.join(self.layout.lock())
    }

    /// The process that writes the store, if it is known.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn pid_of_writer(&self, disk: &dyn Disk) -> Result<Option<u32>> {
        pid_of_writer(disk, &self.root, self.layout.lock())
    }

    /// The page with the words; `None` if the page or the store does not exist.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn page(&self, disk: &dyn Disk, access: Access) -> Result<Option<StatePage>> {
        match self.layout.page(disk, &self.root, access) {
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
        let (name, kind) = self.layout.sign();
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
            let rule = "be 1 to 64 of the characters a-z, A-Z, 0-9, _ and -";
            return Err(Error::must("query", format!("{query:?}"), rule));
        }
        Ok(self.layout.place(&self.root, query))
    }

    /// Creates what the files of a query need, if it does not exist. Links are not followed.
    ///
    /// # Errors
    ///
    /// Those of [`StagePlace::query`]; [`Error::Unsupported`] if something else has its name;
    /// errors of the disk.
    pub fn make(&self, disk: &dyn Disk, query: &str) -> Result<QueryPlace> {
        let place = self.query(query)?;
        for path in place.folders() {
            disk.create_directory(path)?;
            let found = disk.stat(path)?;
            if found.is_some_and(|entry| entry.kind != Kind::Directory) {
                let what = format!("{} is not a directory", path.display());
                return Err(Error::Unsupported { what });
            }
        }
        self.layout.make_page(disk, self, &place)?;
        Ok(place)
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
        let entries = disk.list(&self.layout.folder(&self.root))?;
        let queries = entries.iter().filter_map(|it| self.layout.query_of(it));
        let queries: BTreeSet<&str> = queries.filter(|query| is_query(query)).collect();
        let places = queries.into_iter();
        Ok(places.map(|it| self.layout.place(&self.root, it)).collect())
    }
}

impl QueryPlace {
    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}{name}", self.prefix))
    }

    /// The folder of all queries; `None` if that is the folder of the store.
    pub fn top(&self) -> Option<&Path> {
        self.top.as_deref()
    }

    /// The folders that are for stages alone, the last one for those of this query.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        let top = self.top();
        top.into_iter().chain(top.map(|_| &*self.folder))
    }

    /// Creates the folder again after the sweep has removed it.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn make_again(&self, disk: &dyn Disk) -> Result<()> {
        let folder = self.folders().last();
        folder.map_or(Ok(()), |folder| disk.create_directory(folder))
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
        if let Some(folder) = self.folders().last() {
            // This fails, as it should, if a task has just created a file in it.
            let _ = disk.remove_directory(folder);
        }
    }
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
