//! Which part of the code may import which: floors, each of which may use only those below it.
//!
//! Imports are followed through re-exports to the file that has the name, so `crate::Store` counts
//! as an import of `store.rs`; the files that re-export it on the way must not be above either.
//! Paths in code count like those of `use`, and tests inside `src/` like other code.
//!
//! No folders and no files import each other in a circle. A module may use the modules inside it
//! and be used by them.

#[cfg(test)]
mod planted;

use crate::imports::{Path, Tree, module_of};
use crate::{ALLOWED, Finding, Source};
use std::collections::{BTreeMap, BTreeSet};

/// The floors from the ground up. A part is a file or folder without ending; the longest matching
/// name decides. Parts of one floor do not import each other.
const FLOORS: &[&[&str]] = &[
    // Rust.
    &["src/plant"],
    &[
        "src/num",
        "src/sync",
        "src/damage",
        "src/seeds",
        "src/interrupt",
    ],
    &["src/region/guard"],
    &["src/region"],
    &["src/error"],
    &["src/disk"],
    &["src/clock", "src/cleanup"],
    &["src/machine", "src/options", "src/warning"],
    &["src/meter", "src/table"],
    &["src/mapped", "src/record/common"],
    &["src/record/rocketmq", "src/record/kafka"],
    &["src/record"],
    &["src/engine"],
    &[
        "src/engine/commit_log/queues",
        "src/engine/commit_log/index",
        "src/engine/memory",
        "src/engine/partition_log",
    ],
    &["src/engine/commit_log/log", "src/engine/commit_log/tables"],
    &["src/engine/commit_log/dispatch"],
    &["src/engine/commit_log/parts"],
    &["src/engine/commit_log/read", "src/engine/commit_log/roll"],
    &[
        "src/engine/commit_log/recovery",
        "src/engine/commit_log/verify",
    ],
    &[
        "src/engine/commit_log/retention",
        "src/engine/commit_log/offline",
    ],
    &[
        "src/engine/commit_log/services",
        "src/engine/commit_log/repair",
    ],
    &["src/engine/commit_log/share"],
    &["src/engine/commit_log"],
    &["src/bound", "src/ticket", "src/handle", "src/claims"],
    &["src/producer"],
    &["src/arrow"],
    &["src/consumer", "src/stages"],
    &["src/store"],
    &["src/scan"],
    &["src/archive", "src/convert", "src/notices", "src/tail"],
    &["src/lib"],
    &["src/sim"],
    &["src/tests"],
    &["src/internals", "src/python"],
    // Python.
    &["python/forebay/_forebay"],
    &["python/forebay"],
    &["python/forebay/archive"],
    &["python/forebay/spark"],
    &["python/forebay/spark/jobs"],
    &["python/forebay/spark/__init__"],
    &[
        "python/forebay/demo_spark",
        "python/pyspark_forebay",
        "python/pytest_forebay",
    ],
    &["python/forebay/demo"],
    &["python/forebay/cli"],
    &["python/forebay_command"],
    &["python/forebay/__main__"],
];

/// Parts that only some folders may import, with these folders. The form of a record is known to
/// the engine that keeps it; all others read and write records through `src/record`.
const KEPT: &[(&str, &[&str])] = &[
    (
        "src/record/rocketmq",
        &["src/record", "src/engine/commit_log", "src/tests"],
    ),
    (
        "src/record/kafka",
        &["src/record", "src/engine/partition_log", "src/internals"],
    ),
];

/// All findings in the imports between `sources`, by the floors of the project.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    check_floors(sources, FLOORS, KEPT)
}

/// Files whose imports may run up are excluded from the search for circles.
fn is_excused(source: &Source) -> bool {
    let mut allowed = ALLOWED.iter();
    allowed.any(|(rule, path, _)| *rule == "layers" && *path == source.path)
}

fn check_floors(sources: &[Source], floors: &[&[&str]], kept: &[(&str, &[&str])]) -> Vec<Finding> {
    let tree = Tree::new(sources);
    let mut findings = Vec::new();
    let (mut folders, mut files) = (Arrows::new(), Arrows::new());
    for (source, module) in &tree.files {
        let Some((floor, part)) = part_of(&source.path, floors) else {
            findings.push(source.finding("layers", 1, "is on no floor"));
            continue;
        };
        for import in tree.imports(source, module) {
            let passed = tree.passed(&import.path);
            let Some(target) = passed.last().copied() else {
                continue;
            };
            if !is_excused(source) {
                let (from, to) = (tree.folder(&source.path), tree.folder(target));
                folders.entry(from).or_default().insert(to);
                if !are_nested(module, module_of(target)) {
                    let from = source.path.clone();
                    files.entry(from).or_default().insert(target.to_owned());
                }
            }
            for file in &passed {
                if let Some((above, other)) = part_of(file, floors)
                    && other != part
                    // A part may re-export names from below to parts on its own floor.
                    && (above > floor || above == floor && *file == target)
                {
                    let what = format!("{part} imports {other}, which is not below it");
                    findings.push(source.finding("layers", import.line, what));
                }
            }
            let is_kept_from = |(part, users): &&(&str, &[&str])| {
                let mut users = users.iter();
                is_in(target, part) && !users.any(|user| is_in(&source.path, user))
            };
            if let Some((part, _)) = kept.iter().find(is_kept_from) {
                let what = format!("{part} is for the engine that keeps such records");
                findings.push(source.finding("kept", import.line, what));
            }
            if part == "src/python" && tree.is_module_of_the_crate(&import.path) {
                let what = format!("{} is not re-exported", import.path.join("::"));
                findings.push(source.finding("re-exports", import.line, what));
            }
        }
    }
    findings.extend(circles("folders", &folders));
    findings.extend(circles("files", &files));
    findings
}

/// Whether one module is inside the other.
fn are_nested(module: &Path, other: Option<Path>) -> bool {
    other.is_some_and(|other| module.starts_with(&other) || other.starts_with(module))
}

/// Whether a file is in a part, which is a file or folder without ending.
fn is_in(path: &str, part: &str) -> bool {
    path.strip_prefix(part)
        .is_some_and(|rest| rest.starts_with(['/', '.']))
}

/// Floor and name of the part that a file belongs to.
fn part_of<'a>(path: &str, floors: &[&'a [&'a str]]) -> Option<(usize, &'a str)> {
    let numbered = floors.iter().enumerate();
    let parts = numbered.flat_map(|(floor, parts)| parts.iter().map(move |part| (floor, *part)));
    parts
        .filter(|(_, part)| is_in(path, part))
        .max_by_key(|(_, part)| part.len())
}

/// Which files or folders each one imports.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// One finding for each set of files or folders that import each other in a circle.
fn circles(kind: &str, arrows: &Arrows) -> Vec<Finding> {
    let reached = |start: &str| {
        let mut pending = vec![start];
        let mut seen = BTreeSet::new();
        while let Some(place) = pending.pop() {
            for next in arrows.get(place).into_iter().flatten() {
                if seen.insert(next.as_str()) {
                    pending.push(next);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<&str>> = arrows
        .keys()
        .map(|place| (place.as_str(), reached(place)))
        .collect();
    let mut known = BTreeSet::new();
    let mut findings = Vec::new();
    for (place, targets) in &all {
        let is_with = |other: &&&str| all.get(**other).is_some_and(|it| it.contains(place));
        let circle: Vec<&str> = targets.iter().filter(is_with).copied().collect();
        if circle.len() > 1 && circle.iter().all(|it| known.insert(*it)) {
            findings.push(Finding {
                rule: "circle",
                path: (*place).to_owned(),
                line: 1,
                what: format!("these {kind} import each other: {}", circle.join(", ")),
            });
        }
    }
    findings
}
