//! The places in the source that make something durable, and a switch to leave one of them out.
//!
//! [`of_the_source`] finds them in the source, so that a place that no story reaches is noticed.
//! [`leave_out`] makes the simulated disk report success for one of them and store nothing.

use crate::disk::{Synced, site};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a sync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A range of a map.
    Range,
    /// A file.
    File,
    /// A file system.
    FileSystem,
    /// The names in a directory.
    Directory,
}

/// A place in the source that makes something durable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Path of its file, relative to `src`.
    pub file: String,
    /// Number of its line.
    pub line: u32,
    /// What it makes durable: a function that syncs for its callers may make several calls.
    pub what: What,
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} ({:?})", self.file, self.line, self.what)
    }
}

thread_local! {
    static LEFT_OUT: RefCell<Option<Site>> = const { RefCell::new(None) };
    static HASTY: Cell<bool> = const { Cell::new(false) };
    static MET: RefCell<BTreeSet<Site>> = const { RefCell::new(BTreeSet::new()) };
}

/// Makes this thread's disks leave out the syncs of one place, or of none. `hasty`: the power fails
/// soon after each.
pub fn leave_out(site: Option<&Site>, hasty: bool) {
    LEFT_OUT.set(site.cloned());
    HASTY.set(hasty);
}

/// What [`leave_out`] was last called with.
pub fn left_out() -> (Option<Site>, bool) {
    (LEFT_OUT.with_borrow(Option::clone), HASTY.get())
}

/// Places that this thread has reached since the last call.
pub fn take_met() -> BTreeSet<Site> {
    MET.take()
}

/// Whether the power should fail soon after a sync that was left out.
pub fn is_hasty() -> bool {
    HASTY.get()
}

/// Records a sync; returns whether to leave it out.
pub fn lies(what: &Synced<'_>) -> bool {
    let Some(location) = site() else {
        return false;
    };
    let site = Site {
        file: location.file().to_owned(),
        line: location.line(),
        what: match what {
            Synced::Range { .. } => What::Range,
            Synced::File(_) => What::File,
            Synced::FileSystem(_) | Synced::Volume(_) => What::FileSystem,
            Synced::Directory(_) => What::Directory,
        },
    };
    let lies = LEFT_OUT.with_borrow(|left_out| left_out.as_ref() == Some(&site));
    MET.with_borrow_mut(|met| met.insert(site));
    lies
}

/// The text of each sync call, and what it makes durable.
const CALLS: [(&str, &[What]); 12] = [
    (".sync_range(", &[What::Range]),
    (".sync_file(", &[What::File]),
    (".sync_file_system(", &[What::FileSystem]),
    (".sync_volume(", &[What::FileSystem]),
    (".sync_directory(", &[What::Directory]),
    // Functions that sync for their callers.
    ("replace(disk, ", &[What::File, What::Directory]),
    ("replace(&**disk, ", &[What::File, What::Directory]),
    ("replace_keeping(disk, ", &[What::File, What::Directory]),
    (".sync(&*", &[What::Range]),
    (" sync(disk, ", &[What::Directory]),
    ("file.flush(", &[What::Range]),
    ("last.flush(", &[What::Range]),
];

/// Calls that bypass the disk: code above the disk must not use them.
const PAST_THE_DISK: [&str; 4] = [".sync_all(", ".sync_data(", "region.sync(", "fsync("];

/// The places in production code. Each is named by its function and its number among the calls of
/// the same kind in functions of that name in the file, such as `create 1`.
pub fn of_the_source() -> BTreeMap<Site, String> {
    let mut sites = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for part in ["engine", "mapped", "stages", "table"] {
        gather(root, &Path::new("src").join(part), &mut sites);
    }
    sites
}

fn gather(root: &Path, directory: &Path, sites: &mut BTreeMap<Site, String>) {
    for entry in std::fs::read_dir(root.join(directory)).unwrap() {
        let entry = entry.unwrap();
        let path = directory.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            gather(root, &path, sites);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            of_file(path.to_str().unwrap(), &text, sites);
        }
    }
}

fn of_file(file: &str, text: &str, sites: &mut BTreeMap<Site, String>) {
    // A function that syncs for its callers is not a place itself.
    let mut passed_to = None;
    let (mut function, mut numbers) = (String::new(), BTreeMap::new());
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if line.starts_with("mod test") {
            break;
        }
        if code.starts_with("#[cfg_attr(test, track_caller)]") {
            passed_to = Some(indent);
        }
        if passed_to == Some(indent) && code == "}" {
            passed_to = None;
        }
        if let Some((_, name)) = code.split_once("fn ")
            && !code.starts_with("//")
        {
            let end = |c: char| !c.is_alphanumeric() && c != '_';
            function = name.split(end).next().unwrap_or_default().to_owned();
        }
        if passed_to.is_some() || code.starts_with("//") || code.contains("fn ") {
            continue;
        }
        let past = PAST_THE_DISK.iter().find(|call| code.contains(**call));
        assert!(past.is_none(), "{file}:{number} syncs without the disk");
        let calls = CALLS.iter().filter(|(call, _)| line.contains(call));
        for what in calls.flat_map(|(_, what)| *what) {
            let site = Site {
                file: file.to_owned(),
                line: number,
                what: *what,
            };
            let count = numbers.entry((function.clone(), *what)).or_insert(0);
            *count += 1;
            sites.insert(site, format!("{function} {count}"));
        }
    }
}
