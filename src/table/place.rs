//! Where the tables of consumers and delays are: RocketMQ's in its folder, or all of them beside
//! the partitions, since a Kafka broker refuses folders that it does not know.

use crate::disk::Disk;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folder of RocketMQ's tables.
const FOLDER: &str = "config";
/// Prefix of the names of RocketMQ's tables if there is no folder.
const PREFIX: &str = "forebay.";

/// The tables of a store.
#[derive(Clone, Debug)]
pub struct TablePlace {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    root: PathBuf,
    is_flat: bool,
}

impl TablePlace {
    /// In the store at `root`, RocketMQ's tables in the folder `config`.
    pub fn nested(disk: Arc<dyn Disk>, root: PathBuf) -> TablePlace {
        TablePlace {
            disk,
            root,
            is_flat: false,
        }
    }

    /// In the store at `root`, without a folder.
    pub fn flat(disk: Arc<dyn Disk>, root: PathBuf) -> TablePlace {
        TablePlace {
            disk,
            root,
            is_flat: true,
        }
    }

    /// The directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether no table is in a folder.
    pub fn is_flat(&self) -> bool {
        self.is_flat
    }

    /// Path of the table that RocketMQ gives this name.
    pub fn config(&self, name: &str) -> PathBuf {
        self.root.join(self.shown(name))
    }

    /// [`TablePlace::config`], below the directory of the store.
    pub fn shown(&self, name: &str) -> String {
        match self.is_flat {
            true => format!("{PREFIX}{name}"),
            false => format!("{FOLDER}/{name}"),
        }
    }

    /// Path of a table of Forebay's own.
    pub fn own(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}
