//! The directory of a conversion that is not finished, and what must not change when it is resumed.

use super::{ConvertSpec, Converted};
use crate::disk::{Disk, read_small, replace};
use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Ends the name of the directory.
const SUFFIX: &str = ".converting";
const STATE: &str = "state.json";
const STORE: &str = "store";
/// Member of the state: the names of the topics.
const MAP: &str = "map";
/// Longest state that is read.
const STATE_LEN_MAX: u64 = 64 << 20;

/// Where a conversion writes.
#[derive(Debug)]
pub struct Place {
    target: PathBuf,
    work: PathBuf,
}

/// What must not change when a conversion is resumed.
#[derive(Debug)]
pub struct State(Value);

impl State {
    /// The state of a conversion.
    pub fn new(source: &Path, spec: &ConvertSpec) -> State {
        let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        State(json!({
            "version": 1,
            "source": source.to_string_lossy(),
            "engine": spec.engine.word(),
            "renumber": spec.renumber,
            "isolation": spec.isolation.word(),
            "topics": spec.topics,
            "names": spec.names,
        }))
    }

    /// The first setting in which another state differs.
    fn difference(&self, other: &Value) -> Option<&str> {
        let all = self.0.as_object().into_iter().flatten();
        let mut different = all.filter(|(name, value)| other.get(name) != Some(value));
        different.next().map(|(name, _)| name.as_str())
    }
}

/// Names of topics in source and target.
pub type Topics = Vec<(String, String)>;

fn topics_in(state: &Value) -> Option<Topics> {
    serde_json::from_value(state.get(MAP)?.clone()).ok()
}

impl Place {
    /// The place of a conversion to `target`.
    ///
    /// # Errors
    ///
    /// [`Error::NotAStore`] if the path has no name.
    pub fn of(target: &Path) -> Result<Place> {
        let Some(name) = target.file_name() else {
            return Err(Error::NotAStore {
                path: target.to_owned(),
                reason: "the path does not end in a name".to_owned(),
            });
        };
        let mut name = name.to_os_string();
        name.push(SUFFIX);
        Ok(Place {
            target: target.to_owned(),
            work: target.with_file_name(name),
        })
    }

    /// The directory of the target until it is complete.
    pub fn store(&self) -> PathBuf {
        self.work.join(STORE)
    }

    fn state(&self) -> PathBuf {
        self.work.join(STATE)
    }

    /// Cleans up after a conversion that was killed when its target was in place, and returns its
    /// result; `None` if the target is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if another store, file or directory is there.
    pub fn finished(&self, disk: &dyn Disk) -> Result<Option<Converted>> {
        if disk.stat(&self.target)?.is_none() {
            return Ok(None);
        }
        if disk.stat(&self.work)?.is_none() || disk.stat(&self.store())?.is_some() {
            return Err(Error::Exists {
                path: self.target.clone(),
            });
        }
        let state = read_small(disk, &self.state(), STATE_LEN_MAX)?;
        self.clean_up(disk)?;
        let state = state.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let topics = state.as_ref().and_then(topics_in);
        Ok(Some(Converted {
            topics: topics.unwrap_or_default(),
            resumed: true,
            complete: true,
            ..Converted::default()
        }))
    }

    /// The topics of this conversion if it has begun before.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if an unfinished conversion has other settings.
    pub fn begun(&self, disk: &dyn Disk, state: &State) -> Result<Option<Topics>> {
        let Some(found) = read_small(disk, &self.state(), STATE_LEN_MAX)? else {
            return match disk.stat(&self.store())? {
                Some(_) => Err(self.other("it does not say what is converted")),
                None => Ok(None),
            };
        };
        let found: Value = serde_json::from_slice(&found).unwrap_or_default();
        match (state.difference(&found), topics_in(&found)) {
            (None, Some(topics)) => Ok(Some(topics)),
            (None, None) => Err(self.other("its topics cannot be read")),
            (Some(first), _) => Err(self.other(&format!("its value of {first} differs"))),
        }
    }

    /// Creates the directory.
    pub fn begin(&self, disk: &dyn Disk, state: &State, topics: &Topics) -> Result<()> {
        if disk.stat(&self.work)?.is_none() {
            disk.create_directory(&self.work)?;
        }
        let mut state = state.0.clone();
        if let Some(members) = state.as_object_mut() {
            members.insert(MAP.to_owned(), json!(topics));
        }
        let text = serde_json::to_vec_pretty(&state).unwrap_or_default();
        replace(disk, &self.state(), &text)
    }

    fn other(&self, why: &str) -> Error {
        let reason = format!(
            "{} holds another unfinished conversion: {why}; delete it to start again",
            self.work.display()
        );
        Error::option("target", self.target.display(), reason)
    }

    /// Moves the complete target to its place. All of it must be durable.
    pub fn finish(&self, disk: &dyn Disk) -> Result<()> {
        disk.rename_new(&self.store(), &self.target)?;
        disk.sync_directory(&self.work)?;
        disk.sync_directory(parent(&self.target))?;
        self.clean_up(disk)
    }

    fn clean_up(&self, disk: &dyn Disk) -> Result<()> {
        if disk.stat(&self.state())?.is_some() {
            disk.unlink(&self.state())?;
        }
        disk.remove_directory(&self.work)?;
        disk.sync_directory(parent(&self.target))
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
