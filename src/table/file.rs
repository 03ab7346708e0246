//! The file of a table: read, with its backup, and replaced.

use super::{Reason, json};
use crate::disk::{Disk, Kind, read_small, replace, replace_keeping};
use crate::error::{Error, Op, Result};
use std::path::{Path, PathBuf};

/// Maximum length of a table that is read, in bytes.
pub const TABLE_LEN_MAX: u64 = 256 << 20;

/// The result of reading a table.
#[derive(Debug)]
pub enum Loaded<T> {
    /// No file.
    Nothing,
    /// A file that holds no table.
    Damaged(PathBuf, Reason),
    /// The table.
    Table(T),
}

impl<T> Loaded<T> {
    /// The table; `None` if the file is missing or damaged. For caches, which are optional.
    pub fn sound(self) -> Option<T> {
        match self {
            Loaded::Table(table) => Some(table),
            Loaded::Nothing | Loaded::Damaged(..) => None,
        }
    }

    /// The table; `None` if there is no file.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the path is not a regular file, [`Error::Corrupt`] if the file
    /// holds no table.
    pub fn table(self) -> Result<Option<T>> {
        match self {
            Loaded::Nothing => Ok(None),
            Loaded::Table(table) => Ok(Some(table)),
            Loaded::Damaged(path, Reason::NotAFile) => {
                let what = format!("{} is {}", path.display(), Reason::NotAFile);
                Err(Error::Unsupported { what })
            }
            Loaded::Damaged(path, reason) => Err(Error::corrupt(&path, 0, reason.to_string())),
        }
    }
}

/// Reads the table at `path`, of at most `len_max` bytes, with `parse`.
///
/// # Errors
///
/// [`Error::Io`]. The contents of the file never cause an error.
pub fn load<T>(
    disk: &dyn Disk,
    path: &Path,
    len_max: u64,
    parse: impl Fn(&[u8]) -> Result<T, Reason>,
) -> Result<Loaded<T>> {
    let damaged = |reason| Ok(Loaded::Damaged(path.to_owned(), reason));
    let Some(there) = disk.stat(path)? else {
        return Ok(Loaded::Nothing);
    };
    if there.kind != Kind::File {
        return damaged(Reason::NotAFile);
    }
    if there.len > len_max {
        let what = format!("{} bytes, limit {len_max}", there.len);
        return damaged(Reason::TooMuch(what));
    }
    let text = read_small(disk, path, len_max)?;
    match text.map(|text| parse(&text)) {
        None => Ok(Loaded::Nothing),
        Some(Ok(table)) => Ok(Loaded::Table(table)),
        Some(Err(reason)) => damaged(reason),
    }
}

/// [`load`], from the backup if the file is missing or cannot be parsed, as RocketMQ does. Without
/// a backup, returns the result for the file itself.
///
/// # Errors
///
/// [`Error::Io`].
pub fn load_with_backup<T>(
    disk: &dyn Disk,
    path: &Path,
    parse: impl Fn(&[u8]) -> Result<T, Reason>,
) -> Result<Loaded<T>> {
    let own = load(disk, path, TABLE_LEN_MAX, &parse)?;
    if !matches!(
        own,
        Loaded::Nothing | Loaded::Damaged(_, Reason::Unreadable(_))
    ) {
        return Ok(own);
    }
    match load(disk, &backup_of(path), TABLE_LEN_MAX, &parse)? {
        Loaded::Nothing => Ok(own),
        other => Ok(other),
    }
}

/// Replaces the table at `path` durably, and creates its directory if missing. The previous table
/// becomes the backup if it is JSON; otherwise it would replace a readable backup.
///
/// # Errors
///
/// [`Error::Io`]; the file then holds the previous table or this one.
pub fn replace_with_backup(disk: &dyn Disk, path: &Path, text: &[u8]) -> Result<()> {
    let io = |error: Error| error.during(Op::Write, path);
    let directory = path.parent().unwrap_or(Path::new("."));
    disk.create_directory(directory).map_err(io)?;
    let before = read_small(disk, path, TABLE_LEN_MAX).map_err(io)?;
    match before.filter(|before| json::is_json(before)) {
        Some(before) => {
            replace(disk, &backup_of(path), &before).map_err(io)?;
            replace(disk, path, text)
        }
        None => replace(disk, path, text),
    }
}

/// [`replace_with_backup`], if the previous table is durable and readable: its file is renamed to
/// be the backup instead of being copied. After a crash, or for a moment, only the backup may
/// exist.
///
/// # Errors
///
/// As [`replace_with_backup`].
pub fn replace_known(disk: &dyn Disk, path: &Path, text: &[u8]) -> Result<()> {
    replace_keeping(disk, path, text, Some(&backup_of(path)))
}

fn backup_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".bak");
    path.with_file_name(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::{Call, HookedDisk, RealDisk};
    use std::{fs, io};

    fn load_number(path: &Path) -> Loaded<u64> {
        let parse = |text: &[u8]| serde_json::from_slice(text).map_err(Reason::unreadable);
        load_with_backup(&RealDisk, path, parse).unwrap()
    }

    #[test]
    fn the_backup_is_read_where_the_table_is_missing_empty_or_no_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.json");
        assert!(matches!(load_number(&path), Loaded::Nothing));
        fs::write(&path, "x").unwrap();
        assert!(matches!(
            load_number(&path),
            Loaded::Damaged(own, Reason::Unreadable(_)) if own == path
        ));
        fs::write(folder.path().join("table.json.bak"), "7").unwrap();
        for text in ["", "x", "8 9"] {
            fs::write(&path, text).unwrap();
            assert_eq!(load_number(&path).table().unwrap(), Some(7));
        }
        fs::write(&path, "8").unwrap();
        assert_eq!(load_number(&path).table().unwrap(), Some(8));
        fs::remove_file(&path).unwrap();
        assert_eq!(load_number(&path).table().unwrap(), Some(7));
    }

    /// A failed sync must not be retried. Replacing a table once reported a failed sync as a failed
    /// write, which may be retried on a full disk.
    #[test]
    fn a_failed_sync_of_a_replaced_table_is_reported_as_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.json");
        for failing in [Call::Write, Call::Fsync] {
            let disk = HookedDisk::shared(move |call, _| match call == failing {
                true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                false => Ok(()),
            });
            let error = replace_with_backup(&*disk, &path, b"{}").unwrap_err();
            let is_sync = failing == Call::Fsync;
            assert_eq!(error.is_of_sync(), is_sync, "{error}");
            assert_eq!(error.ends_writing(), is_sync, "{error}");
            assert!(error.is_out_of_room(), "{error}");
        }
    }

    #[test]
    fn what_is_no_table_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.json");
        let error = |path: &Path| {
            let loaded = load(&RealDisk, path, 3, json::object).unwrap();
            loaded.table().unwrap_err().to_string()
        };
        fs::write(&path, "1234").unwrap();
        let long = error(&path);
        assert!(long.ends_with("the table has 4 bytes, limit 3"), "{long}");
        fs::write(&path, "{0").unwrap();
        let cut = error(&path);
        assert!(cut.contains("not a table: "), "{cut}");
        let no_file = error(folder.path());
        assert!(no_file.ends_with("is not a regular file"), "{no_file}");
    }

    #[test]
    fn the_table_before_stays_as_the_backup_unless_it_is_no_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config/table.json");
        let backup = path.with_file_name("table.json.bak");
        let put = |text: &str| replace_with_backup(&RealDisk, &path, text.as_bytes()).unwrap();
        put("{}");
        assert!(!backup.exists());
        put(r#"{"a":1}"#);
        assert_eq!(fs::read_to_string(&backup).unwrap(), "{}");
        fs::write(&path, "{0:1}").unwrap();
        put("{}");
        assert_eq!(fs::read_to_string(&backup).unwrap(), "{0:1}");
        fs::write(&path, "torn").unwrap();
        put(r#"{"b":1}"#);
        assert_eq!(fs::read_to_string(&backup).unwrap(), "{0:1}");
        assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"b":1}"#);
    }
}
