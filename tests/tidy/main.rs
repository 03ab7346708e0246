//! Checks of the code's shape: size limits, headers, files that may use `unsafe`, forbidden words.
//!
//! A check is a function from a source to findings, so the tests at the end can show that it finds
//! violations. Exceptions are listed in [`ALLOWED`] with their reasons. An entry that excuses
//! nothing is itself a failure, so that the list stays current.

#![allow(
    clippy::indexing_slicing,
    reason = "a test may panic, and every index here is bounded"
)]

mod functions;
mod imports;
mod layers;
mod lex;
#[cfg(test)]
mod planted;

use lex::{is_word, lex, numbered, word_positions};
use std::fs;
use std::path::{Path, PathBuf};

/// Exceptions: rule, file, reason.
const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "lines",
        "python/forebay/_forebay.pyi",
        "a stub describes one module",
    ),
    (
        "layers",
        "src/region/guard/test.rs",
        "loads through a region",
    ),
];

/// The only files that may use `unsafe`.
const UNSAFE_FILES: &[&str] = &[
    "src/region/mod.rs",            // the mappings themselves
    "src/region/words.rs",          // words of them, and sleeping on one
    "src/region/reuse.rs",          // anonymous memory of tests, used again
    "src/region/guard/mod.rs",      // loads and stores that survive a fault of the page
    "src/region/guard/routines.rs", // their instructions
    "src/region/guard/test.rs",     // calls a copy by its addresses
    "src/region/guard/plain.rs",    // the same where nothing is guarded
    "src/region/guard/handler.rs",  // the signal handler
    "src/disk/syscall.rs",          // system calls that std does not have
    "src/disk/byte_lock.rs",        // those for locks of bytes
    "src/disk/process.rs",          // those for time, forks and addresses
    "src/sync/timed_mutex.rs",      // a trait of lock_api, unsafe by its signature
    "src/arrow/buffers.rs",         // Arrow's buffers over mapped memory
    "src/arrow/ffi.rs",             // the C structures of Arrow's interfaces
    "src/tests/arrow/edge.rs",      // calls the callbacks as a consumer does
    "src/python/edge.rs",           // the buffer protocol and the capsules of Arrow
    "src/python/message.rs",        // the slot of the buffer protocol, unsafe by its signature
];

/// The only files of the library that may have a lock for the whole process, or one that is
/// initialised on first use.
const LOCK_FILES: &[&str] = &[
    "src/python/once.rs", // initialises all of them when the module loads
    "src/plant.rs",       // for tests
];
/// Such locks: a child of a process that forks while a thread holds one waits for it forever.
const LOCKS: &[&str] = &[
    "Mutex",
    "RwLock",
    "Once",
    "OnceLock",
    "LazyLock",
    "PyOnceLock",
    "GILOnceCell",
];
/// Macros that hide such a lock.
const LOCK_MACROS: &[&str] = &[
    "intern",
    "import_exception",
    "create_exception",
    "lazy_static",
    "py_format",
];

const ROOTS: &[&str] = &[
    "src", "python", "tests", "benches", "examples", "docs", ".ci", ".github",
];
const TOP_LEVEL: &[&str] = &[
    "Cargo.toml",
    "pyproject.toml",
    "Makefile",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "clippy.toml",
    "rustfmt.toml",
    "zensical.toml",
];
/// Folders of generated files.
const SKIPPED: &[&str] = &["target", "__pycache__", "spark-warehouse", "metastore_db"];

const LINES_MAX: usize = 800;
const COLUMNS_MAX: usize = 100;

/// Marks of unfinished work, compared case-sensitively.
const UNFINISHED: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];
/// Words that tell the code's history instead of its reasons; only a changelog may use them.
const HISTORY: &[&str] = &[
    "previously",
    "formerly",
    "newly",
    "bugfix",
    "refactored",
    "used to be",
    "was fixed",
    "we now",
    "now uses",
    "now returns",
    "now supports",
    "now takes",
    "old implementation",
    "new implementation",
    "this issue",
    "next issue",
    "issue #",
];
struct Source {
    path: String,
    text: String,
}

#[derive(Debug, PartialEq)]
struct Finding {
    rule: &'static str,
    path: String,
    line: usize,
    what: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn has_extension(&self, extensions: &[&str]) -> bool {
        let extension = Path::new(&self.path).extension().and_then(|it| it.to_str());
        extension.is_some_and(|it| extensions.contains(&it))
    }

    fn is_rust(&self) -> bool {
        self.has_extension(&["rs"])
    }

    fn is_code(&self) -> bool {
        self.has_extension(&["rs", "py", "pyi", "java"])
    }

    fn is_prose(&self) -> bool {
        self.has_extension(&["md"])
    }

    fn finding(&self, rule: &'static str, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            rule,
            path: self.path.clone(),
            line,
            what: what.into(),
        }
    }
}

/// All findings in `source`, by the rules for its kind.
fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(check_size(source));
    findings.extend(check_header(source));
    findings.extend(check_machine_paths(source));
    if source.is_rust() {
        let lexed = lex(&source.text);
        findings.extend(functions::check(source, &lexed.code));
        findings.extend(check_tokens(source, &lexed.code));
        findings.extend(check_locks(source, &lexed.code));
        findings.extend(check_dead_code(source, &lexed.comments));
        findings.extend(check_words(source, &lexed.comments));
    } else {
        findings.extend(check_words(source, &numbered(&source.text)));
    }
    if source.has_extension(&["py"]) {
        findings.extend(functions::check(source, &lex::python(&source.text)));
    }
    findings
}

/// Lines per file, columns per line, ASCII. Prose may have any columns and characters.
fn check_size(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = source.text.lines().count();
    if source.is_code() && lines > LINES_MAX {
        findings.push(source.finding("lines", lines, format!("{lines} lines, limit {LINES_MAX}")));
    }
    for (number, line) in numbered(&source.text) {
        let columns = line.chars().count();
        if source.is_code() && columns > COLUMNS_MAX {
            let what = format!("{columns} columns, limit {COLUMNS_MAX}");
            findings.push(source.finding("columns", number, what));
        }
        if let Some(other) = line.chars().find(|it| !it.is_ascii())
            && !source.is_prose()
        {
            findings.push(source.finding("ascii", number, other.escape_unicode().to_string()));
        }
    }
    findings
}

/// Each Rust file begins with `//!`, each Python file with a docstring (after `#` lines).
fn check_header(source: &Source) -> Vec<Finding> {
    let first = if source.is_rust() {
        source.text.lines().next()
    } else {
        source
            .text
            .lines()
            .find(|line| !line.is_empty() && !line.starts_with('#'))
    };
    let first = first.unwrap_or("");
    let has_header = if source.is_rust() {
        first.starts_with("//! ")
    } else if source.has_extension(&["py"]) {
        first.starts_with("\"\"\"") || first.starts_with("r\"\"\"")
    } else {
        true
    };
    if has_header {
        Vec::new()
    } else {
        vec![source.finding("header", 1, "no header")]
    }
}

/// Paths of the author's machine. The needles are split so that they do not match here.
fn check_machine_paths(source: &Source) -> Vec<Finding> {
    let needles = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
    ];
    let mut findings = Vec::new();
    for (number, line) in numbered(&source.text) {
        for needle in needles.iter().filter(|needle| line.contains(**needle)) {
            findings.push(source.finding("machine path", number, *needle));
        }
    }
    findings
}

/// `unsafe` outside its files, and macros that mark missing work.
fn check_tokens(source: &Source, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in numbered(code) {
        let chars: Vec<char> = line.chars().collect();
        let has_unsafe = !word_positions(&chars, "unsafe").is_empty();
        if has_unsafe && !UNSAFE_FILES.contains(&source.path.as_str()) {
            findings.push(source.finding("unsafe", number, line.trim()));
        }
        for name in ["todo", "unimplemented", "dbg"] {
            let found = word_positions(&chars, name);
            if found
                .iter()
                .any(|at| chars.get(at + name.len()) == Some(&'!'))
            {
                findings.push(source.finding("unfinished", number, format!("{name}!")));
            }
        }
    }
    findings
}

/// Locks of the whole process outside their files.
fn check_locks(source: &Source, code: &str) -> Vec<Finding> {
    if !source.path.starts_with("src/") || LOCK_FILES.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut is_static = false;
    for (number, line) in numbered(code) {
        let chars: Vec<char> = line.chars().collect();
        let at = |word: &str| word_positions(&chars, word);
        let is_item = |at: &usize| at.checked_sub(1).is_none_or(|it| chars[it] == ' ');
        is_static |= at("static").iter().any(is_item);
        let declared: String = line.chars().take_while(|it| *it != '=').collect();
        let declared: Vec<char> = declared.chars().collect();
        let has_lock = LOCKS
            .iter()
            .any(|it| !word_positions(&declared, it).is_empty());
        let is_macro = |name: &&&str| {
            at(name)
                .iter()
                .any(|at| chars.get(at + name.len()) == Some(&'!'))
        };
        if (is_static && has_lock) || LOCK_MACROS.iter().any(|name| is_macro(&name)) {
            findings.push(source.finding("locks", number, line.trim()));
        }
        is_static &= !line.contains(['=', ';']);
    }
    findings
}

/// Code in comments. Doc comments are excluded: their examples are code.
fn check_dead_code(source: &Source, comments: &[(usize, String)]) -> Vec<Finding> {
    let dead = comments.iter().filter(|(_, text)| looks_like_code(text));
    dead.map(|(number, text)| source.finding("dead code", *number, text.trim()))
        .collect()
}

/// Whether a line of a plain comment looks like a statement, an item or a bracket.
///
/// Prose may also end with `;` or begin with "if" and "use", so another mark of code must be
/// present.
fn looks_like_code(comment: &str) -> bool {
    let Some(text) = comment.strip_prefix("//").or(comment.strip_prefix("/*")) else {
        return false;
    };
    if text.starts_with(['/', '!', '*']) {
        return false;
    }
    let text = text.trim_end_matches("*/").trim();
    let chars: Vec<char> = text.chars().collect();
    let has_call = chars
        .windows(2)
        .any(|it| (is_word(it[0]) || it[0] == '!') && it[1] == '(');
    let has_mark = has_call || text.contains("::") || text.contains(" = ") || text.contains("+= ");
    let keywords = [
        "let ", "fn ", "pub ", "use ", "impl ", "mod ", "struct ", "return ",
    ];
    let is_statement =
        text.ends_with(';') && (has_mark || keywords.iter().any(|word| text.starts_with(word)));
    let is_block = text.ends_with('{') && text.contains(' ');
    let is_closing = !text.is_empty() && text.chars().all(|it| "{}();,".contains(it));
    is_statement || is_block || is_closing || text.starts_with("#[")
}

/// Words that the style forbids, in `lines` of prose.
fn check_words(source: &Source, lines: &[(usize, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_changelog = source.path == "CHANGELOG.md";
    for (number, line) in lines {
        let lower = line.to_lowercase();
        let unfinished = UNFINISHED.iter().filter(|word| has_phrase(line, word));
        findings.extend(unfinished.map(|word| source.finding("unfinished", *number, *word)));
        let history = HISTORY
            .iter()
            .filter(|word| !is_changelog && has_phrase(&lower, word));
        findings.extend(history.map(|word| source.finding("history", *number, *word)));
    }
    findings
}

fn has_phrase(text: &str, phrase: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    !word_positions(&chars, phrase).is_empty()
}

/// All text files of the project.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pending: Vec<PathBuf> = ROOTS.iter().map(|it| root.join(it)).collect();
    let mut files: Vec<PathBuf> = TOP_LEVEL.iter().map(|it| root.join(it)).collect();
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if path.is_dir() && !SKIPPED.contains(&name.as_str()) && !name.starts_with('.') {
                pending.push(path);
            } else if path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = files.iter().filter_map(|path| {
        let relative = path.strip_prefix(root).ok()?.to_str()?;
        // Archives and libraries are not text, and no rule applies to them.
        Some(Source {
            path: relative.to_owned(),
            text: fs::read_to_string(path).ok()?,
        })
    });
    read.collect()
}

#[test]
fn the_project_is_tidy() {
    let sources = sources();
    assert!(
        sources.iter().any(|it| it.path == "src/lib.rs"),
        "the sources were not found"
    );
    let mut findings: Vec<Finding> = sources.iter().flat_map(check).collect();
    findings.extend(layers::check(&sources));
    let is_allowed = |finding: &Finding| {
        ALLOWED
            .iter()
            .any(|(rule, path, _)| *rule == finding.rule && *path == finding.path)
    };
    let unexcused: Vec<String> = findings
        .iter()
        .filter(|finding| !is_allowed(finding))
        .map(|it| format!("{}:{}: {}: {}", it.path, it.line, it.rule, it.what))
        .collect();
    assert!(
        unexcused.is_empty(),
        "{} findings:\n{}",
        unexcused.len(),
        unexcused.join("\n")
    );
    for (rule, path, reason) in ALLOWED {
        let excuses = findings
            .iter()
            .any(|it| it.rule == *rule && it.path == *path);
        assert!(
            excuses,
            "the exception for {rule} in {path} ({reason}) excuses nothing"
        );
    }
}
