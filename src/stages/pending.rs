//! Commits on their way into the log: their manifests are read, begun, finished or refused.

use super::manifest::{Manifest, VERSION};
use super::name::Name;
use super::place::{QueryPlace, StagePlace, unlink};
use crate::disk::{Disk, read_small};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::table::json;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Maximum length of a manifest that is read.
const LEN_MAX: u64 = 64 << 20;

/// Why a commit can never be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, and what the user can do.
    pub reason: String,
    /// Whether a part of the batch is in the log.
    pub appended: bool,
}

/// A manifest that waits to be taken up or was begun.
#[derive(Debug)]
pub struct Pending {
    /// The files of its query.
    pub place: QueryPlace,
    /// Its current name.
    pub name: Name,
    /// Its contents; `None` if it is not a manifest of this version.
    pub manifest: Option<Manifest>,
    /// The version that it states; `None` if it is damaged.
    pub version: Option<u64>,
}

impl Pending {
    /// Number of the batch, from the name.
    pub fn batch(&self) -> u64 {
        match self.name {
            Name::Commit(batch) | Name::Taken(batch) | Name::Refused(batch) => batch,
            Name::Stage | Name::Temporary | Name::Other => 0,
        }
    }

    /// Whether it can no longer be withdrawn.
    pub fn is_begun(&self) -> bool {
        matches!(self.name, Name::Taken(_))
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.place.path(&self.name.text())
    }

    /// Why it cannot be read.
    pub fn flaw(&self) -> String {
        match self.version {
            Some(version) if version != VERSION => {
                format!("it has version {version}; this release reads version {VERSION}")
            }
            _ => "not a manifest: it is damaged, or was truncated by a power loss".to_owned(),
        }
    }

    /// Marks it as begun. After a power loss it may have its old name again. Returns false if it
    /// was withdrawn meanwhile, even if another commit of the batch has taken its name.
    pub fn begin(&mut self, disk: &dyn Disk) -> Result<bool> {
        let (from, name) = (self.path(), Name::Taken(self.batch()));
        match disk.rename(&from, &self.place.path(&name.text())) {
            Err(error) if error.is_not_found() => return Ok(false),
            renamed => renamed?,
        }
        self.name = name;
        let there = read(disk, &self.place, name)?;
        if there.is_none_or(|there| there.manifest != self.manifest) {
            self.take_back(disk)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Removes it and its stages, whose rows are in the durable log. Also removes the refusal of an
    /// earlier commit of the batch, which no longer matters.
    pub fn finish(&self, disk: &dyn Disk) -> Result<()> {
        unlink(disk, &self.place.path(&Name::Refused(self.batch()).text()))?;
        self.unlink_stages(disk)?;
        unlink(disk, &self.path())?;
        sync(disk, &self.place.folder)
    }

    /// Allows it to be withdrawn again, since none of it is in the log. Not durable on return:
    /// without the change it is just begun again, and a withdrawal makes the change durable. It
    /// stays begun if a later commit of the batch has the name.
    pub fn take_back(&mut self, disk: &dyn Disk) -> Result<()> {
        let (from, name) = (self.path(), Name::Commit(self.batch()));
        match disk.rename_new(&from, &self.place.path(&name.text())) {
            Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => return Ok(()),
            renamed => renamed?,
        }
        self.name = name;
        Ok(())
    }

    /// Records why it can never be appended, and durably removes it, with its stages if none of it
    /// is in the log.
    pub fn refuse(&self, disk: &dyn Disk, refusal: &Refusal) -> Result<()> {
        let refused = Name::Refused(self.batch()).text();
        let path = self.place.path(&refused);
        let id = self.manifest.as_ref().map(|manifest| manifest.id.as_str());
        let Refusal { reason, appended } = refusal;
        let text = json!({"reason": reason, "id": id, "appended": appended}).to_string();
        // Only for the waiting driver, so it need not survive a power loss.
        let temporary = self.place.path(&format!("{refused}.tmp"));
        unlink(disk, &temporary)?;
        disk.write_at(&temporary, 0, text.as_bytes())?;
        disk.rename(&temporary, &path)?;
        if planted(Bug::RefuseTorn) {
            return Ok(());
        }
        unlink(disk, &self.path())?;
        if !refusal.appended {
            self.unlink_stages(disk)?;
        }
        sync(disk, &self.place.folder)
    }

    fn unlink_stages(&self, disk: &dyn Disk) -> Result<()> {
        let mut stages = self.manifest.iter().flat_map(|manifest| &manifest.stages);
        stages.try_for_each(|stage| unlink(disk, &self.place.path(stage)))
    }
}

/// Makes the names in a directory durable.
#[cfg_attr(test, track_caller)]
pub fn sync(disk: &dyn Disk, directory: &Path) -> Result<()> {
    disk.sync_directory(directory)
}

/// Makes the names of a query's files durable, and those of the folders up to the store's, which
/// may be new too. The name of the store's folder became durable when the writer opened the store.
pub fn sync_up(disk: &dyn Disk, stages: &StagePlace, place: &QueryPlace) -> Result<()> {
    sync(disk, &place.folder)?;
    let Some(top) = place.top() else {
        return Ok(());
    };
    sync(disk, top)?;
    sync(disk, stages.root())
}

/// Why a commit was refused, if the file with the refusal exists.
pub fn refusal(disk: &dyn Disk, path: &Path) -> Result<Option<Refusal>> {
    let text = read_small(disk, path, LEN_MAX)?;
    Ok(text.map(|text| {
        let value = json::parse(&text).unwrap_or_default();
        let reason = value.get("reason").and_then(Value::as_str);
        let appended = value.get("appended").and_then(Value::as_bool);
        Refusal {
            reason: reason.unwrap_or("no reason is given").to_owned(),
            appended: appended.unwrap_or(false),
        }
    }))
}

/// The files of a query, with their meanings.
///
/// A manifest that is renamed during a listing may be missed under both names. So the directory is
/// listed until two consecutive listings have manifests of the same batches.
pub fn files(disk: &dyn Disk, place: &QueryPlace) -> Result<Vec<(String, Name)>> {
    let batches = |files: &[(String, Name)]| -> BTreeSet<u64> {
        let names = files.iter().map(|(_, name)| *name);
        let batch = |name| match name {
            Name::Commit(batch) | Name::Taken(batch) => Some(batch),
            _ => None,
        };
        names.filter_map(batch).collect()
    };
    let mut found = listed(disk, place)?;
    loop {
        let again = listed(disk, place)?;
        if batches(&again) == batches(&found) {
            return Ok(again);
        }
        found = again;
    }
}

fn listed(disk: &dyn Disk, place: &QueryPlace) -> Result<Vec<(String, Name)>> {
    let names = place.list(disk)?.into_iter();
    let named = names.map(|name| {
        let says = Name::of(&name);
        (name, says)
    });
    Ok(named.collect())
}

/// Reads a manifest; `None` if the file no longer exists.
pub fn read(disk: &dyn Disk, place: &QueryPlace, name: Name) -> Result<Option<Pending>> {
    let path = place.path(&name.text());
    let text = match read_small(disk, &path, LEN_MAX) {
        Err(error) if error.kind() == Some(ErrorKind::InvalidData) => Some(Vec::new()),
        Err(error) if error.is_not_found() => None,
        text => text?,
    };
    let mut pending = Pending {
        place: place.clone(),
        name,
        manifest: None,
        version: None,
    };
    let Some(text) = text else { return Ok(None) };
    let fits = |it: &Manifest| it.query == pending.place.query && it.batch == pending.batch();
    let value = json::parse(&text);
    let manifest = value.as_ref().and_then(Manifest::parse).filter(fits);
    pending.manifest = manifest;
    pending.version = value.and_then(|value| value.get("version")?.as_u64());
    Ok(Some(pending))
}

/// The pending and begun manifests of a query, in the order in which to take them up: begun ones
/// first, then by batch.
pub fn of_query(disk: &dyn Disk, place: &QueryPlace) -> Result<Vec<Pending>> {
    let mut found = Vec::new();
    for (_, name) in files(disk, place)? {
        if matches!(name, Name::Commit(_) | Name::Taken(_)) {
            found.extend(read(disk, place, name)?);
        }
    }
    found.sort_by_key(|it| (!it.is_begun(), it.batch()));
    Ok(found)
}
