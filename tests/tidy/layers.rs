//! Which part of the code may import which: floors, each of which may use only those below it.
//!
//! Imports are followed through re-exports to the file that has the name, so `crate::Store` counts
//! as an import of `store.rs`; the files that re-export it on the way must not be above either.
//! Paths in code count like those of `use`, and tests inside `src/` like other code.
//!
//! No folders and no files import each other in a circle. A module may use the modules inside it
//! and be used by them.

use crate::lex::{is_word, lex, python, word_positions};
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
                    // What is on the same floor may hand on what is below both.
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

/// A path of modules, such as `crate`, `disk`, `lock`.
type Path = Vec<String>;

struct Import {
    path: Path,
    /// What the importing file calls it.
    name: String,
    line: usize,
}

/// The modules of `src/` and `python/`, and the names that each imports.
struct Tree<'a> {
    files: Vec<(&'a Source, Path)>,
    modules: BTreeMap<Path, &'a str>,
    /// By module and name: where the name comes from.
    names: BTreeMap<Path, Path>,
}

impl<'a> Tree<'a> {
    fn new(sources: &'a [Source]) -> Self {
        let files: Vec<(&Source, Path)> = sources
            .iter()
            .filter_map(|source| Some((source, module_of(&source.path)?)))
            .collect();
        let modules = files
            .iter()
            .map(|(source, module)| (module.clone(), source.path.as_str()))
            .collect();
        let mut tree = Tree {
            files,
            modules,
            names: BTreeMap::new(),
        };
        let mut names = BTreeMap::new();
        for (source, module) in &tree.files {
            for import in tree.imports(source, module) {
                let mut name = module.clone();
                name.push(import.name);
                if name != import.path && !tree.modules.contains_key(&name) {
                    names.insert(name, import.path);
                }
            }
        }
        tree.names = names;
        tree
    }

    /// The files that a path leads through, if it is one of the project. The last one defines what
    /// the path names, and those before it re-export that.
    fn passed(&self, path: &[String]) -> Vec<&'a str> {
        let mut path = path.to_vec();
        let mut files = Vec::new();
        // Re-exports of re-exports end soon; a circle of them would not.
        for _ in 0..8 {
            let mut lens = (1..=path.len()).rev();
            let Some(len) = lens.find(|len| self.modules.contains_key(&path[..*len])) else {
                break;
            };
            files.extend(self.modules.get(&path[..len]).copied());
            let Some(source) = path.get(..=len).and_then(|name| self.names.get(name)) else {
                break;
            };
            path = [source, &path[len + 1..]].concat();
        }
        files
    }

    /// Whether the path goes through a module of `lib.rs` other than `python`.
    fn is_module_of_the_crate(&self, path: &[String]) -> bool {
        path.len() > 1 && path[1] != "python" && self.modules.contains_key(&path[..2])
    }

    /// The folder of a file. `x.rs` belongs to the folder `x` if there is one, a test to the folder
    /// that it tests. A file at the top, and the `__init__` of a Python package, is its own folder.
    fn folder(&self, path: &str) -> String {
        let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
        let stem = stem.split("/test").next().unwrap_or(stem);
        let inside = format!("{stem}/");
        let parent = stem.rsplit_once('/').map_or("", |(parent, _)| parent);
        let is_folder = self.modules.values().any(|it| it.starts_with(&inside));
        let is_top = matches!(parent, "src" | "python" | "python/forebay");
        if is_folder || is_top || stem.ends_with("/__init__") {
            stem.to_owned()
        } else {
            parent.to_owned()
        }
    }

    fn imports(&self, source: &Source, module: &Path) -> Vec<Import> {
        if source.is_rust() {
            self.rust_imports(&lex(&source.text).code, module)
        } else if source.has_extension(&["py"]) {
            python_imports(&python(&source.text))
        } else {
            // A stub names types of its users.
            Vec::new()
        }
    }

    fn rust_imports(&self, code: &str, module: &Path) -> Vec<Import> {
        let mut chars: Vec<char> = code.chars().collect();
        let mut found = Vec::new();
        for start in word_positions(&chars, "use") {
            let Some(end) = (start..chars.len()).find(|&at| chars[at] == ';') else {
                continue;
            };
            let text: String = chars[start + 3..end].iter().collect();
            found.extend(used(&text).into_iter().map(|it| (start, it)));
            chars[start..end]
                .iter_mut()
                .filter(|it| **it != '\n')
                .for_each(|it| *it = ' ');
        }
        let begins = |at: &usize| {
            let before = &chars[..*at];
            is_word(chars[*at])
                && before.last().is_none_or(|it| !is_word(*it))
                && !before.ends_with(&[':', ':'])
        };
        let paths = (0..chars.len()).filter(begins);
        let paths = paths.map(|at| (at, Used::of(inline_path(&chars[at..]))));
        // The single word of `pub(crate)` is not a path.
        found.extend(paths.filter(|(_, it)| it.path.len() > 1));
        let inner = inner_modules(&chars);
        let imports = found.into_iter().filter_map(|(at, used)| {
            let mut base = module.clone();
            let around = inner
                .iter()
                .filter(|(_, start, end)| (start..end).contains(&&at));
            base.extend(around.map(|(name, ..)| name.clone()));
            Some(Import {
                path: self.absolute(base, used.path)?,
                name: used.name,
                line: chars[..at].iter().filter(|it| **it == '\n').count() + 1,
            })
        });
        imports.collect()
    }

    /// The path from the root of the crate; `None` for a path into another crate.
    fn absolute(&self, mut base: Path, path: Path) -> Option<Path> {
        let mut rest = path.as_slice();
        if rest.first()? == "crate" {
            return Some(path);
        }
        let mut is_ours = false;
        while let Some(word @ ("super" | "self")) = rest.first().map(String::as_str) {
            if word == "super" {
                base.pop();
            }
            rest = &rest[1..];
            is_ours = true;
        }
        let full = [base.as_slice(), rest].concat();
        let child = full.get(..=base.len())?;
        (is_ours || self.modules.contains_key(child)).then_some(full)
    }
}

/// The module of a file; `None` for a file outside `src/` and `python/`.
fn module_of(path: &str) -> Option<Path> {
    let (stem, ending) = path.rsplit_once('.')?;
    let (root, rest) = stem.split_once('/')?;
    let mut module: Path = match (root, ending) {
        ("src", "rs") => vec!["crate".to_owned()],
        ("python", "py" | "pyi") => Vec::new(),
        _ => return None,
    };
    module.extend(rest.split('/').map(str::to_owned));
    if matches!(module.last()?.as_str(), "mod" | "lib" | "__init__") {
        module.pop();
    }
    Some(module)
}

/// A path in code, and what it is called there.
struct Used {
    path: Path,
    name: String,
}

impl Used {
    fn of(path: Path) -> Used {
        let name = path.last().cloned().unwrap_or_default();
        Used { path, name }
    }
}

/// The paths of a `use`, with its braces expanded and without globs.
fn used(text: &str) -> Vec<Used> {
    let text = text.trim();
    let Some(open) = text.find('{') else {
        let (path, name) = text.split_once(" as ").unwrap_or((text, ""));
        let words = path.split("::").map(|it| it.trim().to_owned());
        let words: Path = words
            .filter(|it| !matches!(it.as_str(), "" | "*"))
            .collect();
        let mut used = Used::of(words);
        if !name.is_empty() {
            used.name = name.trim().to_owned();
        }
        return match used.path.is_empty() {
            true => vec![],
            false => vec![used],
        };
    };
    let prefix = used(&text[..open]).pop().map_or(vec![], |it| it.path);
    // Only the last brace closes this one; inner ones may also end the text.
    let rest = &text[open + 1..];
    let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
    let mut depth = 0;
    let items = inside.split(|symbol: char| {
        match symbol {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        symbol == ',' && depth == 0
    });
    let paths = items.flat_map(used);
    paths
        .map(|mut it| {
            let is_self = it.name == "self";
            it.path.retain(|word| word != "self" || prefix.is_empty());
            it.path.splice(0..0, prefix.iter().cloned());
            match is_self {
                true => Used::of(it.path),
                false => it,
            }
        })
        .collect()
}

/// The words joined by `::` at the beginning of `chars`.
fn inline_path(chars: &[char]) -> Path {
    let mut path = Path::new();
    let mut rest = chars;
    loop {
        let len = rest.iter().take_while(|it| is_word(**it)).count();
        path.push(rest[..len].iter().collect());
        rest = &rest[len..];
        match rest {
            [':', ':', next, ..] if is_word(*next) => rest = &rest[2..],
            _ => return path,
        }
    }
}

/// Names and bounds of the modules inside a file.
fn inner_modules(chars: &[char]) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for start in word_positions(chars, "mod") {
        let after: String = chars[start + 3..].iter().take(100).collect();
        let name: String = after.trim().chars().take_while(|it| is_word(*it)).collect();
        let opens = after.find('{');
        if opens.is_none_or(|at| after[..at].trim() != name) {
            continue;
        }
        let mut depth = 0;
        let end = (start..chars.len()).find(|&at| {
            match chars[at] {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => return false,
            }
            depth == 0
        });
        found.push((name, start, end.unwrap_or(chars.len())));
    }
    found
}

fn python_imports(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    let mut lines = code.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut text = line.trim().to_owned();
        if !text.starts_with("import ") && !text.starts_with("from ") {
            continue;
        }
        while text.contains('(') && !text.contains(')') {
            let Some((_, more)) = lines.next() else { break };
            text.push_str(more);
        }
        let (base, names) = match text.strip_prefix("from ") {
            Some(rest) => rest.split_once(" import ").unwrap_or((rest, "")),
            None => ("", text.trim_start_matches("import ")),
        };
        for name in names.split(',') {
            let name = name.trim_matches(|it: char| it.is_whitespace() || "()".contains(it));
            let (name, own) = name.split_once(" as ").unwrap_or((name, ""));
            if name.is_empty() {
                continue;
            }
            let words = base.split('.').chain(name.split('.'));
            let words = words.filter(|it| !it.is_empty());
            let mut used = Used::of(words.map(str::to_owned).collect());
            if !own.is_empty() {
                used.name = own.trim().to_owned();
            }
            found.push(Import {
                path: used.path,
                name: used.name,
                line: number + 1,
            });
        }
    }
    found
}

#[cfg(test)]
mod planted {
    use super::*;

    const HOUSE: &[&[&str]] = &[
        &["src/disk", "src/region"],
        &["src/engine"],
        &["src/engine/memory"],
        &["src/lib"],
        &["src/python"],
        &["python/forebay/errors"],
        &["python/forebay"],
    ];

    const FEW: &[(&str, &[&str])] = &[("src/disk/lock", &["src/disk", "src/engine/memory"])];

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::new(path, text))
            .collect();
        let findings = check_floors(&sources, HOUSE, FEW);
        let lines = findings
            .iter()
            .map(|it| format!("{}:{} {}", it.path, it.line, it.rule));
        lines.collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn imports_from_below_are_allowed() {
        let files = [
            ("src/disk/mod.rs", "mod lock;\npub use lock::Lock;\n"),
            ("src/disk/lock.rs", "use super::*;\npub struct Lock;\n"),
            ("src/engine/mod.rs", "mod memory;\nuse crate::disk::Disk;\n"),
            (
                "src/engine/memory.rs",
                "use crate::{disk::Lock, engine::Cursor};\n",
            ),
            (
                "src/lib.rs",
                "mod disk;\nmod engine;\npub use engine::Cursor;\n",
            ),
            (
                "src/python/mod.rs",
                "use crate::Cursor;\nuse std::disk::x;\n",
            ),
            ("python/forebay/errors.py", "import os\n"),
            (
                "python/forebay/__init__.py",
                "from forebay.errors import E\n",
            ),
        ];
        assert_eq!(found(&files), NONE);
    }

    #[test]
    fn an_import_that_runs_up_is_found_however_it_is_written() {
        for import in [
            "use crate::engine::Cursor;",
            "use crate::{\n    engine::{Cursor, Row},\n};",
            "use crate::Cursor;",
            "pub(crate) use super::super::engine::Row as Line;",
            "fn f(cursor: &crate::engine::Cursor) {}",
            "#[cfg(test)]\nmod tests {\n    use super::super::super::engine::Cursor;\n}",
            "use super::Reexported;",
        ] {
            let lock = format!("{import}\n");
            let files = [
                ("src/disk/mod.rs", "pub use crate::engine::Reexported;\n"),
                ("src/disk/lock.rs", lock.as_str()),
                ("src/engine/mod.rs", "//! `Cursor` is not in crate::disk.\n"),
                ("src/lib.rs", "pub use engine::Cursor;\n"),
            ];
            let found = found(&files);
            let is_found = found.iter().any(|it| it.starts_with("src/disk/lock.rs:"));
            assert!(is_found, "{import}: {found:?}");
        }
        let python = [
            (
                "python/forebay/errors.py",
                "def f():\n    from forebay import (\n        x,\n    )\n",
            ),
            ("python/forebay/__init__.py", ""),
        ];
        assert_eq!(found(&python), ["python/forebay/errors.py:2 layers"]);
    }

    #[test]
    fn a_path_through_a_module_inside_or_a_re_export_above_is_found() {
        let lib = ("src/lib.rs", "pub use disk::Disk;\n");
        let disk = ("src/disk.rs", "pub struct Disk;\n");
        let memory = ("src/engine/memory.rs", "pub fn open() {}\n");
        for code in [
            "fn f(disk: crate::Disk) {}\n",
            "use crate::Disk as Below;\n",
            "fn f() { memory::open() }\n",
            "fn f() { self::memory::open() }\n",
        ] {
            let files = [lib, disk, memory, ("src/engine/mod.rs", code)];
            assert_eq!(found(&files), ["src/engine/mod.rs:1 layers"], "{code}");
        }
    }

    #[test]
    fn parts_of_one_floor_and_files_on_none_are_found() {
        let files = [
            ("src/disk/mod.rs", "use crate::region::Region;\n"),
            ("src/region.rs", "// use crate::disk::Disk;\n"),
            ("src/other.rs", ""),
        ];
        let expected = ["src/disk/mod.rs:1 layers", "src/other.rs:1 layers"];
        assert_eq!(found(&files), expected);
    }

    #[test]
    fn bindings_that_bypass_the_re_exports_are_found() {
        let files = [
            ("src/engine/mod.rs", ""),
            ("src/lib.rs", "mod engine;\npub use engine::Cursor;\n"),
            (
                "src/python/mod.rs",
                "use crate::Cursor;\nuse crate::engine::Row;\n",
            ),
        ];
        assert_eq!(found(&files), ["src/python/mod.rs:2 re-exports"]);
    }

    #[test]
    fn a_part_for_few_is_kept_from_others_also_through_a_re_export() {
        for import in ["crate::disk::lock::Lock", "crate::disk::Lock"] {
            let engine = format!("use crate::disk::Disk;\nuse {import};\n");
            let memory = format!("use {import};\n");
            let files = [
                ("src/disk/mod.rs", "mod lock;\npub use lock::Lock;\n"),
                ("src/disk/lock.rs", "pub struct Lock;\n"),
                ("src/engine/mod.rs", engine.as_str()),
                ("src/engine/memory.rs", memory.as_str()),
            ];
            assert_eq!(found(&files), ["src/engine/mod.rs:2 kept"], "{import}");
        }
    }

    #[test]
    fn circles_of_files_are_found_however_they_are_written() {
        let face = "mod header;\nmod pack;\npub use pack::Pack as Packed;\n";
        for import in [
            "use super::pack::Pack;",
            "use super::{pack::{self, Pack}};",
            "use super::Packed;",
            "use crate::disk::Packed as Other;",
            "fn f(pack: &super::pack::Pack) {}",
            "#[cfg(test)]\nmod tests {\n    use super::super::pack;\n}",
        ] {
            let mut files = [
                ("src/disk/mod.rs", face),
                ("src/disk/header.rs", import),
                ("src/disk/pack.rs", "use super::Disk;\nuse super::table;\n"),
                ("src/disk/table.rs", "use super::header::Header;\n"),
            ];
            let circle = ["src/disk/header.rs:1 circle"];
            assert_eq!(found(&files), circle, "{import}");
            files[3].1 = "use super::Header;\n";
            assert_eq!(found(&files), NONE, "{import}");
        }
        let python = [
            ("python/forebay/app.py", "from forebay import facts as f\n"),
            (
                "python/forebay/facts.py",
                "def f():\n    import forebay.app\n",
            ),
        ];
        let circles = [
            "python/forebay/app:1 circle",
            "python/forebay/app.py:1 circle",
        ];
        assert_eq!(found(&python), circles);
    }

    #[test]
    fn circles_of_folders_are_found() {
        let files = [
            ("src/engine/mod.rs", "use memory::cut::Cut;\n"),
            (
                "src/engine/log/mod.rs",
                "use crate::engine::queues::Queue;\n",
            ),
            ("src/engine/queues/mod.rs", "use super::index::Entry;\n"),
            ("src/engine/index.rs", ""),
            (
                "src/engine/index/test.rs",
                "use crate::engine::index::Entry;\n",
            ),
            (
                "src/engine/table/mod.rs",
                "use crate::engine::log::Walker;\n",
            ),
        ];
        assert_eq!(found(&files), NONE);
        let mut circular = files;
        circular[3].1 = "use crate::engine::table::Row;\n";
        let circles = ["src/engine/index:1 circle", "src/engine/index.rs:1 circle"];
        assert_eq!(found(&circular), circles);
    }
}
