//! Names in a log directory: a folder `<topic>-<partition>` for each partition, and in it the files
//! of each segment, named by the segment's base offset in 20 digits.

use crate::disk::{Disk, Entry, Kind};
use crate::engine::Address;
use crate::engine::directory::names::{BROKER_LOCK, COMMIT_LOG, STATE};
use crate::error::{Error, Result};
use crate::plant::{Bug, planted};
use crate::record::check_is_users;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// File of a broker that names its cluster.
const META: &str = "meta.properties";
/// Maximum length of a topic's name.
const TOPIC_LEN_MAX: usize = 249;
/// Digits of a base offset in a name.
const BASE_DIGITS: usize = 20;

/// Offsets are lower, so that the next offset can always be stated.
pub const OFFSET_MAX: u64 = 1 << 62;

/// Table of the first offsets that retention or a user has raised.
pub const LOG_START: &str = "log-start-offset-checkpoint";
/// Maximum length of such a table.
pub const CHECKPOINT_LEN_MAX: u64 = 64 << 20;
/// Table of the offsets below which all messages are durable.
pub const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
/// Exists in a directory that Forebay writes.
pub const FOREBAY: &str = "forebay.partitionlog";
/// Says what an atomic batch is about to append to several partitions.
pub const INTENT: &str = "forebay.intent";
/// The file whose byte 0 a writer locks, as a broker locks all of it.
pub const LOCK: &str = BROKER_LOCK;
/// Exists if the broker was stopped cleanly.
pub const CLEAN: &str = ".kafka_cleanshutdown";

/// The files of a segment, the log file last.
pub const ENDINGS: [&str; 4] = [".index", ".timeindex", ".txnindex", ".log"];

/// The state of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In use.
    Used,
    /// A complete replacement of segments that are still to be removed.
    Swap,
    /// An incomplete replacement.
    Cleaned,
}

fn is_topic_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Checks the name of a topic: 1 to 249 bytes of `[a-zA-Z0-9._-]`, and not `.` or `..`.
///
/// # Errors
///
/// [`Error::InvalidTopic`] with the violated rule.
pub fn check_topic(topic: &str) -> Result<()> {
    let reason = if topic.is_empty() {
        "a topic must have a name".to_owned()
    } else if topic.len() > TOPIC_LEN_MAX {
        format!("the name is {} bytes, limit {TOPIC_LEN_MAX}", topic.len())
    } else if !topic.bytes().all(is_topic_byte) {
        "only the characters a-z, A-Z, 0-9, ., _ and - are allowed".to_owned()
    } else if matches!(topic, "." | "..") {
        "a folder cannot have this name".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::InvalidTopic {
        topic: topic.to_owned(),
        reason,
    })
}

/// As [`check_topic`], for a topic that users send to.
///
/// # Errors
///
/// [`Error::InvalidTopic`] with the violated rule.
pub fn check_users_topic(topic: &str) -> Result<()> {
    check_topic(topic)?;
    check_is_users(topic)
}

/// Topic and number of the partition in a folder of this name.
pub fn partition_of(name: &str) -> Option<(&str, u32)> {
    let (topic, number) = name.rsplit_once('-')?;
    let is_topic = check_topic(topic).is_ok();
    let partition: u32 = number.parse().ok()?;
    let is_plain = partition <= i32::MAX.cast_unsigned() && partition.to_string() == number;
    (is_topic && is_plain).then_some((topic, partition))
}

/// Topic, partition and offset in the id of a message.
///
/// # Errors
///
/// [`Error::InvalidOption`] if the text is not a message id.
pub fn address_of(id: &str) -> Result<Address<'_>> {
    let address = || {
        let (place, offset) = id.rsplit_once('@')?;
        let (topic, partition) = partition_of(place)?;
        Some(Address::Offset(topic, partition, offset.parse().ok()?))
    };
    let rule = "be topic-queue@offset";
    address().ok_or_else(|| Error::must("message id", format!("{id:?}"), rule))
}

/// Base offset and state of the segment with a log file of this name.
pub fn segment_of(name: &str) -> Option<(u64, State)> {
    let (digits, rest) = name.split_at_checked(BASE_DIGITS)?;
    let state = match rest {
        ".log" => State::Used,
        ".log.swap" => State::Swap,
        ".log.cleaned" => State::Cleaned,
        _ => return None,
    };
    Some((base_of(digits)?, state))
}

/// Whether a log file has the name of a segment in use. While a segment is being replaced, it does
/// not.
pub fn is_in_use(log: &Path) -> bool {
    let name = log.file_name().and_then(|name| name.to_str());
    matches!(name.and_then(segment_of), Some((_, State::Used)))
}

/// The base offset that the digits of a name state.
pub fn base_of(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let base = digits.parse().ok().filter(|base| *base < OFFSET_MAX);
    base.filter(|_| is_number && digits.len() == BASE_DIGITS)
}

/// The file beside a segment's log file with another ending, such as `.index`. Keeps the suffix.
pub fn beside(log: &Path, ending: &str) -> PathBuf {
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let (digits, rest) = name.split_at_checked(BASE_DIGITS).unwrap_or_default();
    let suffix = rest.strip_prefix(".log").unwrap_or_default();
    log.with_file_name(format!("{digits}{ending}{suffix}"))
}

/// The path of a log file with a suffix instead of the one that it has.
pub fn with_suffix(log: &Path, suffix: &str) -> PathBuf {
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.split_inclusive(".log").next().unwrap_or_default();
    log.with_file_name(format!("{plain}{suffix}"))
}

/// Whether a directory is plainly a partition log: it has no files of a commit log, and the folder
/// of a partition, a broker's own file or Forebay's mark.
///
/// # Errors
///
/// [`Error::NotAStore`] for the folder of one partition; errors of reading. A path at which there
/// is no directory is no error.
pub fn is_log_directory(disk: &dyn Disk, root: &Path) -> Result<bool> {
    let entries = match disk.list_some(root, &|_| false) {
        // Opening it reports what is wrong.
        Err(error) if is_absent(&error) => return Ok(false),
        Err(_) if planted(Bug::TakeErrorForAbsence) => return Ok(false),
        listed => listed?,
    };
    if has(&entries, COMMIT_LOG, Kind::Directory) || has(&entries, STATE, Kind::File) {
        return Ok(false);
    }
    if entries.iter().any(is_segment) {
        return Err(Error::NotAStore {
            path: root.to_owned(),
            reason: "it is the folder of one Kafka partition; open the folder above it".to_owned(),
        });
    }
    if has(&entries, META, Kind::File) || has(&entries, FOREBAY, Kind::File) {
        return Ok(true);
    }
    let mut unread = None;
    for entry in entries.iter().filter(|entry| is_partition(entry)) {
        let name = entry.name.as_deref().unwrap_or_default();
        match disk.list(&root.join(name)) {
            Ok(inside) if inside.iter().any(is_segment) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => unread = Some(error),
        }
    }
    unread.map_or(Ok(false), Err)
}

/// Whether an error says that there is no directory. Any other says nothing about its files.
fn is_absent(error: &Error) -> bool {
    let absent = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    error.kind().is_some_and(|kind| absent.contains(&kind))
}

/// Checks that the log directory may be read.
///
/// # Errors
///
/// [`Error::NotFound`], [`Error::NotAStore`]; errors of reading.
pub fn check_root(disk: &dyn Disk, root: &Path) -> Result<()> {
    let path = || root.to_owned();
    if disk.stat(root)?.is_none() {
        return Err(Error::NotFound { path: path() });
    }
    match is_log_directory(disk, root)? {
        true => Ok(()),
        false => Err(Error::NotAStore {
            path: path(),
            reason: "it has no folder of a Kafka partition, such as orders-0".to_owned(),
        }),
    }
}

fn has(entries: &[Entry], name: &str, kind: Kind) -> bool {
    let mut entries = entries.iter();
    entries.any(|entry| entry.name.as_deref() == Some(name) && entry.kind == kind)
}

fn is_segment(entry: &Entry) -> bool {
    let name = entry.name.as_deref().unwrap_or_default();
    entry.kind == Kind::File && segment_of(name).is_some()
}

fn is_partition(entry: &Entry) -> bool {
    let name = entry.name.as_deref().unwrap_or_default();
    entry.kind == Kind::Directory && partition_of(name).is_some()
}

/// The partitions in a log directory, in no particular order.
pub fn partitions(disk: &dyn Disk, root: &Path) -> Result<Vec<(String, u32)>> {
    let entries = disk.list_some(root, &|_| false)?;
    let named = entries.iter().filter(|entry| is_partition(entry));
    let parsed = named.filter_map(|entry| partition_of(entry.name.as_deref()?));
    Ok(parsed
        .map(|(topic, queue)| (topic.to_owned(), queue))
        .collect())
}

/// A log file in a partition's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFile {
    pub base: u64,
    pub state: State,
    pub len: u64,
}

/// The entries of a partition's folder; none if it is missing. Only log files and offset indexes
/// have their lengths.
pub fn entries(disk: &dyn Disk, folder: &Path) -> Result<Vec<Entry>> {
    let has_len = |name: &str| {
        let ending = name.get(BASE_DIGITS..).unwrap_or_default();
        ending.starts_with(".log") || ending.starts_with(".index")
    };
    match disk.list_some(folder, &has_len) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(_) if planted(Bug::TakeErrorForAbsence) => Ok(Vec::new()),
        found => found,
    }
}

/// The log files in a partition's folder, by base offset; none if the folder is missing.
pub fn log_files(disk: &dyn Disk, folder: &Path) -> Result<Vec<LogFile>> {
    Ok(log_files_of(&entries(disk, folder)?))
}

/// The log files among the entries of a partition's folder, by base offset.
pub fn log_files_of(entries: &[Entry]) -> Vec<LogFile> {
    let files = entries.iter().filter(|entry| entry.kind == Kind::File);
    let mut found: Vec<LogFile> = files
        .filter_map(|entry| {
            let (base, state) = segment_of(entry.name.as_deref()?)?;
            Some(LogFile {
                base,
                state,
                len: entry.len,
            })
        })
        .collect();
    found.sort_by_key(|file| file.base);
    found
}

/// Passes each entry of a checkpoint file to `visit`: topic, partition and offset.
///
/// # Errors
///
/// The reason as text, if the bytes are not a checkpoint. Some entries may have been visited.
pub fn each_start<'a>(
    bytes: &'a [u8],
    visit: &mut dyn FnMut(&'a str, u32, u64),
) -> Result<(), &'static str> {
    let text = str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let mut lines = text.lines();
    if lines.next() != Some("0") {
        return Err("its version is not 0");
    }
    let count = lines.next().and_then(|line| line.parse::<u64>().ok());
    let entry = |line: &'a str| {
        let mut fields = line.split_whitespace();
        let (topic, queue) = (fields.next()?, fields.next()?.parse().ok()?);
        let offset = fields.next()?.parse().ok()?;
        let offset = Some(offset).filter(|offset| *offset < OFFSET_MAX)?;
        fields.next().is_none().then_some((topic, queue, offset))
    };
    let mut found = 0;
    for line in lines {
        let (topic, queue, offset) =
            entry(line).ok_or("a line is not a topic, a partition and an offset")?;
        visit(topic, queue, offset);
        found += 1;
    }
    match count == Some(found) {
        true => Ok(()),
        false => Err("its number of lines is wrong"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;

    #[test]
    fn only_folders_of_live_partitions_are_partitions() {
        assert_eq!(partition_of("orders-0"), Some(("orders", 0)));
        assert_eq!(partition_of("a-b.c_d-12"), Some(("a-b.c_d", 12)));
        for other in [
            "orders",
            "orders-",
            "-0",
            "..-0",
            "orders-01",
            "orders-+1",
            "orders-2147483648",
            "or ders-0",
            "orders-0.0123456789abcdef0123456789abcdef-delete",
            "remote-log-index-cache",
        ] {
            assert_eq!(partition_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_segment_is_named_by_twenty_digits() {
        let name = |rest: &str| segment_of(&format!("00000000000000000325{rest}"));
        assert_eq!(name(".log"), Some((325, State::Used)));
        assert_eq!(name(".log.swap"), Some((325, State::Swap)));
        for other in [".index", ".log.deleted", ".snapshot", ""] {
            assert_eq!(name(other), None);
        }
        assert_eq!(segment_of("99999999999999999999.log"), None);
        assert_eq!(segment_of("0000000000000000000\u{e9}.log"), None);
        let beside = beside(Path::new("t-0/00000000000000000325.log.swap"), ".index");
        assert_eq!(beside, Path::new("t-0/00000000000000000325.index.swap"));
    }

    #[test]
    fn a_checkpoint_states_how_many_lines_it_has() {
        let mut found = Vec::new();
        let mut visit = |topic, queue, offset| found.push((topic, queue, offset));
        each_start(b"0\n2\na 0 5\nb-c 1 7\n", &mut visit).unwrap();
        assert_eq!(found, [("a", 0, 5), ("b-c", 1, 7)]);
        for wrong in [
            "",
            "1\n0\n",
            "0\n1\n",
            "0\n1\na 0 x\n",
            "0\n1\na 0 1 2\n",
            "0\nx\n",
        ] {
            let parsed = each_start(wrong.as_bytes(), &mut |_, _, _| ());
            assert!(parsed.is_err(), "{wrong:?}");
        }
    }
}
