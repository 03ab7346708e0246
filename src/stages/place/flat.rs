//! The files of stages in a partition log: beside the folders of the partitions.

use super::{Layout, QueryPlace, StagePlace, unique, unlink};
use crate::disk::{Disk, Entry, Kind};
use crate::engine::directory::names::{INTAKE, STAGES};
use crate::engine::directory::page::StatePage;
use crate::engine::partition_log::segments::names as partition_log;
use crate::error::Result;
use crate::options::EngineKind;
use crate::plant::{Bug, planted};
use crate::region::Access;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The layout of a partition log.
#[derive(Debug)]
pub struct Flat;

impl Layout for Flat {
    fn engine(&self) -> EngineKind {
        EngineKind::PartitionLog
    }

    fn check_topic(&self, topic: &str) -> Result<()> {
        partition_log::check_users_topic(topic)
    }

    fn lock(&self) -> &'static str {
        partition_log::LOCK
    }

    /// Short: somebody may have deleted the page through which others wake the writer.
    fn rest(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn page(&self, disk: &dyn Disk, root: &Path, access: Access) -> Result<Option<StatePage>> {
        StatePage::open_words(disk, &root.join(INTAKE), access)
    }

    fn make_page(&self, disk: &dyn Disk, stages: &StagePlace, place: &QueryPlace) -> Result<()> {
        let path = stages.root.join(INTAKE);
        if stages.page(disk, Access::Read)?.is_some() {
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
        // Another task was first, or a power loss has kept the name but not the bytes. The file is
        // not replaced, because the writer may have mapped it.
        match stages.page(disk, Access::Read)? {
            Some(_) => Ok(()),
            None => StatePage::complete_words(disk, &path),
        }
    }

    fn sign(&self) -> (&'static str, Kind) {
        (INTAKE, Kind::File)
    }

    fn place(&self, root: &Path, query: &str) -> QueryPlace {
        QueryPlace {
            query: query.to_owned(),
            folder: root.to_owned(),
            prefix: format!("{STAGES}.{query}."),
            top: None,
        }
    }

    fn folder(&self, root: &Path) -> PathBuf {
        root.to_owned()
    }

    fn query_of<'a>(&self, entry: &'a Entry) -> Option<&'a str> {
        let name = entry.name.as_deref();
        let name = name.filter(|_| entry.kind == Kind::File)?;
        let rest = name.strip_prefix(STAGES)?.strip_prefix('.')?;
        rest.split_once('.').map(|(query, _)| query)
    }
}
