//! The files of stages in a commit log: a folder for each query.

use super::{Layout, QueryPlace, StagePlace};
use crate::disk::{Disk, Entry, Kind};
use crate::engine::directory::names::{LOCK, STAGES};
use crate::engine::directory::page::StatePage;
use crate::error::Result;
use crate::options::EngineKind;
use crate::region::Access;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The layout of a commit log.
#[derive(Debug)]
pub struct Nested;

impl Layout for Nested {
    fn engine(&self) -> EngineKind {
        EngineKind::CommitLog
    }

    fn check_topic(&self, topic: &str) -> Result<()> {
        crate::record::check_topic(topic)
    }

    fn lock(&self) -> &'static str {
        LOCK
    }

    fn rest(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn page(&self, disk: &dyn Disk, root: &Path, access: Access) -> Result<Option<StatePage>> {
        StatePage::open(disk, root, access)
    }

    fn make_page(&self, _: &dyn Disk, _: &StagePlace, _: &QueryPlace) -> Result<()> {
        Ok(())
    }

    fn sign(&self) -> (&'static str, Kind) {
        (STAGES, Kind::Directory)
    }

    fn place(&self, root: &Path, query: &str) -> QueryPlace {
        let top = root.join(STAGES);
        QueryPlace {
            query: query.to_owned(),
            folder: top.join(query),
            prefix: String::new(),
            top: Some(top),
        }
    }

    fn folder(&self, root: &Path) -> PathBuf {
        root.join(STAGES)
    }

    fn query_of<'a>(&self, entry: &'a Entry) -> Option<&'a str> {
        let name = entry.name.as_deref();
        name.filter(|_| entry.kind == Kind::Directory)
    }
}
