//! The shape of the code, checked: limits, headers, where `unsafe` may stand, what no file may say.
//!
//! A check is a function from a source to findings, so the tests at the end can show that it
//! catches what it is there for. What must break a rule stands in [`ALLOWED`] with its reason; an
//! entry that excuses nothing is itself a failure, so the list does not outlive its reasons.

#![allow(
    clippy::indexing_slicing,
    reason = "a test may panic, and every index here is bounded"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// Exceptions: rule, file, reason.
const ALLOWED: &[(&str, &str, &str)] = &[];

/// The only files in which `unsafe` may stand.
const UNSAFE_FILES: &[&str] = &[
    "src/mapped/region.rs",         // the mappings themselves
    "src/mapped/guard.rs",          // loads and stores that survive a fault of the page
    "src/mapped/guard/routines.rs", // their instructions
    "src/mapped/guard/test.rs",     // calls a copy by its addresses
    "src/mapped/guard/plain.rs",    // the same where nothing is guarded
    "src/mapped/guard/handler.rs",  // the signal handler
    "src/disk/syscall.rs",          // system calls that std does not have
    "src/arrow/buffers.rs",         // Arrow's buffers over mapped memory
    "src/arrow/ffi.rs",             // the C structures of Arrow's interfaces
    "src/arrow/test/edge.rs",       // calls the callbacks as a consumer does
    "src/python/edge.rs",           // the buffer protocol and the capsules of Arrow
    "src/python/message.rs",        // the slot of the buffer protocol, unsafe by its signature
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
/// Folders that hold what tools made.
const SKIPPED: &[&str] = &["target", "__pycache__", "spark-warehouse", "metastore_db"];

const LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Marks of unfinished work, compared as written.
const UNFINISHED: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];
/// Words that tell the code's history instead of its reasons; only a changelog may.
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
/// Praise.
const PRAISE: &[&str] = &[
    "blazing",
    "blazingly",
    "elegant",
    "elegantly",
    "awesome",
    "amazing",
    "seamless",
    "seamlessly",
    "effortless",
    "effortlessly",
    "cutting-edge",
    "state-of-the-art",
    "world-class",
    "best-in-class",
    "lightning-fast",
    "beautiful",
    "beautifully",
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

/// Every finding in `source`, by all rules that apply to its kind.
fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(check_size(source));
    findings.extend(check_header(source));
    findings.extend(check_machine_paths(source));
    if source.is_rust() {
        let lexed = lex(&source.text);
        findings.extend(check_functions(source, &lexed.code));
        findings.extend(check_tokens(source, &lexed.code));
        findings.extend(check_dead_code(source, &lexed.comments));
        findings.extend(check_words(source, &lexed.comments));
    } else {
        findings.extend(check_words(source, &numbered(&source.text)));
    }
    findings
}

/// Lines a file, columns a line, ASCII. Prose is free in its columns and characters.
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

/// Paths of the machine that a file was written on. The needles are split: they are not for here.
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

/// The length of each function, from the line of its `fn` to its closing brace.
fn check_functions(source: &Source, code: &str) -> Vec<Finding> {
    let chars: Vec<char> = code.chars().collect();
    let mut findings = Vec::new();
    for start in word_positions(&chars, "fn") {
        let Some(name_at) = (start + 2..chars.len()).find(|&at| !chars[at].is_whitespace()) else {
            continue;
        };
        // `fn(u8) -> u8` is a type.
        if !is_word(chars[name_at]) && chars[name_at] != '$' {
            continue;
        }
        let Some(end) = function_end(&chars, name_at) else {
            continue;
        };
        let name: String = chars[name_at..]
            .iter()
            .take_while(|it| is_word(**it))
            .collect();
        let line_of = |at: usize| chars[..at].iter().filter(|it| **it == '\n').count() + 1;
        let lines = line_of(end) - line_of(start) + 1;
        if lines > FUNCTION_LINES_MAX {
            let what = format!("`{name}` has {lines} lines, limit {FUNCTION_LINES_MAX}");
            findings.push(source.finding("function", line_of(start), what));
        }
    }
    findings
}

/// Index of the brace that closes the body, or nothing where a `;` ends the declaration.
fn function_end(chars: &[char], start: usize) -> Option<usize> {
    let mut nesting = 0;
    let mut braces = 0;
    for (at, symbol) in chars.iter().enumerate().skip(start) {
        match symbol {
            '(' | '[' => nesting += 1,
            ')' | ']' => nesting -= 1,
            ';' if nesting == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' if braces == 1 => return Some(at),
            '}' => braces -= 1,
            _ => {}
        }
    }
    None
}

/// `unsafe` outside its files, and macros that stand for missing work.
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

/// Code in comments. Doc comments are left out: their examples are code.
fn check_dead_code(source: &Source, comments: &[(usize, String)]) -> Vec<Finding> {
    let dead = comments.iter().filter(|(_, text)| looks_like_code(text));
    dead.map(|(number, text)| source.finding("dead code", *number, text.trim()))
        .collect()
}

/// Whether a line of a plain comment reads as a statement, an item or a bracket.
///
/// Prose ends with `;` or begins with "if" and "use" too, so a mark of code must come with it.
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

/// Words that the style rules out, in `lines` of prose.
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
        let praise = PRAISE.iter().filter(|word| has_phrase(&lower, word));
        findings.extend(praise.map(|word| source.finding("praise", *number, *word)));
    }
    findings
}

fn has_phrase(text: &str, phrase: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    !word_positions(&chars, phrase).is_empty()
}

/// Where `word` stands with no letter, digit or underscore on either side.
fn word_positions(chars: &[char], word: &str) -> Vec<usize> {
    let word: Vec<char> = word.chars().collect();
    let ends_in_word = word.last().is_some_and(|it| is_word(*it));
    let stands_alone = |at: usize| {
        let before = at.checked_sub(1).map(|it| chars[it]);
        let after = chars.get(at + word.len());
        !(before.is_some_and(is_word) || ends_in_word && after.is_some_and(|it| is_word(*it)))
    };
    let windows = chars.windows(word.len()).enumerate();
    windows
        .filter(|(at, it)| **it == word[..] && stands_alone(*at))
        .map(|(at, _)| at)
        .collect()
}

fn is_word(symbol: char) -> bool {
    symbol.is_alphanumeric() || symbol == '_'
}

/// The lines of `text`, numbered from 1.
fn numbered(text: &str) -> Vec<(usize, String)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.to_owned()))
        .collect()
}

/// A Rust source taken apart.
struct Lexed {
    /// The source with comments and literals blanked, so that lines keep their numbers.
    code: String,
    /// Each line of each comment, with the marks that open it.
    comments: Vec<(usize, String)>,
}

/// Takes a source apart as far as the checks need it: comments, strings and characters.
fn lex(text: &str) -> Lexed {
    let chars: Vec<char> = text.chars().collect();
    let mut lexed = Lexed {
        code: String::with_capacity(text.len()),
        comments: Vec::new(),
    };
    let mut at = 0;
    let mut line = 1;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        let piece = &chars[at..end.unwrap_or(at + 1)];
        if end.is_none() {
            lexed.code.push(piece[0]);
        } else {
            lexed
                .code
                .extend(piece.iter().map(|it| if *it == '\n' { '\n' } else { ' ' }));
        }
        if end.is_some() && piece[0] == '/' {
            let comment: String = piece.iter().collect();
            // Each line of a block comment is judged like a line comment of its own.
            for (index, part) in comment.lines().enumerate() {
                let mark = if index == 0 { "" } else { "// " };
                lexed
                    .comments
                    .push((line + index, format!("{mark}{}", part.trim())));
            }
        }
        line += piece.iter().filter(|it| **it == '\n').count();
        at += piece.len();
    }
    lexed
}

/// One past the end of the comment or literal that begins at `at`, or nothing if none does.
fn literal_end(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied().unwrap_or(' ');
    let after_word = at > 0 && is_word(chars[at - 1]);
    match chars[at] {
        '/' if next == '/' => Some(find(chars, at, |rest| rest.starts_with(&['\n']))),
        '/' if next == '*' => Some(block_comment_end(chars, at)),
        '"' => Some(quoted_end(chars, at, '"')),
        // The `b` or `c` of `br"..."` has gone by as code.
        'r' if !after_word || matches!(chars[at - 1], 'b' | 'c') => raw_string_end(chars, at),
        // A lifetime has no closing quote two characters on.
        '\'' if next == '\\' || chars.get(at + 2) == Some(&'\'') => {
            Some(quoted_end(chars, at, '\''))
        }
        _ => None,
    }
}

/// The first index from `at` on whose rest `is_end`, or the length.
fn find(chars: &[char], at: usize, is_end: impl Fn(&[char]) -> bool) -> usize {
    (at..chars.len())
        .find(|&index| is_end(&chars[index..]))
        .unwrap_or(chars.len())
}

fn quoted_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn raw_string_end(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..]
        .iter()
        .take_while(|it| **it == '#')
        .count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', hashes));
    let end = find(chars, open + 1, |rest| rest.starts_with(&close));
    Some((end + close.len()).min(chars.len()))
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < chars.len() {
        let step = match &chars[at..] {
            ['/', '*', ..] => 1,
            ['*', '/', ..] => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            break;
        }
    }
    at.min(chars.len())
}

/// Every text of ours below the root of the project.
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
        // Archives and libraries are no text, and no rule is for them.
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
    let findings: Vec<Finding> = sources.iter().flat_map(check).collect();
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

#[cfg(test)]
mod planted {
    //! Each check is shown a violation and something close to it that is none.

    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&Source::new(path, text))
            .into_iter()
            .map(|it| it.rule)
            .collect()
    }

    fn rust(body: &str) -> Vec<&'static str> {
        rules("src/planted.rs", &format!("//! Planted.\n{body}\n"))
    }

    const CLEAN: [&str; 0] = [];

    #[test]
    fn long_files_and_lines_are_found() {
        assert_eq!(rust(&"\n".repeat(798)), CLEAN);
        assert_eq!(rust(&"\n".repeat(799)), ["lines"]);
        assert_eq!(rust(&format!("// {}", "x".repeat(97))), CLEAN);
        assert_eq!(rust(&format!("// {}", "x".repeat(98))), ["columns"]);
        let long_prose = "word ".repeat(40);
        assert_eq!(rules("docs/planted.md", &long_prose), CLEAN);
    }

    #[test]
    fn characters_outside_ascii_are_found_in_source_and_not_in_prose() {
        assert_eq!(rust("// gr\u{fc}n"), ["ascii"]);
        assert_eq!(
            rules("python/planted.py", "\"\"\"Gr\u{fc}n.\"\"\"\n"),
            ["ascii"]
        );
        assert_eq!(rules("docs/planted.md", "gr\u{fc}n"), CLEAN);
        assert_eq!(rust(r#"const GREEN: &str = "gr\u{fc}n";"#), CLEAN);
    }

    #[test]
    fn files_without_a_header_are_found() {
        assert_eq!(rules("src/planted.rs", "use std::fs;\n"), ["header"]);
        assert_eq!(rules("src/planted.rs", ""), ["header"]);
        assert_eq!(rules("python/planted.py", "import os\n"), ["header"]);
        assert_eq!(
            rules(
                "python/planted.py",
                "#!/usr/bin/env python3\n\"\"\"Planted.\"\"\"\n"
            ),
            CLEAN
        );
    }

    #[test]
    fn long_functions_are_found_whatever_their_strings_and_comments_hold() {
        let function = |lines: usize| {
            let filling = "    call('}', '\\'', \"}\\\"\", r#\"}\"#); /* } /* } */ */ // a }\n";
            format!(
                "fn long<'a>(x: [u8; 4]) {{\n{}}}",
                filling.repeat(lines - 2)
            )
        };
        assert_eq!(rust(&function(70)), CLEAN);
        assert_eq!(rust(&function(71)), ["function"]);
        let declaration = format!(
            "trait T {{\n    fn short(x: [u8; 4]);\n{}}}",
            "\n".repeat(90)
        );
        assert_eq!(rust(&declaration), CLEAN);
        assert_eq!(
            rust(&format!(
                "type F = fn(u8);\nstruct S {{\n{}}}",
                "\n".repeat(90)
            )),
            CLEAN
        );
    }

    #[test]
    fn unsafe_code_is_found_outside_its_files_only() {
        let text = "//! Planted.\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(rules("src/planted.rs", text), ["unsafe"]);
        assert_eq!(rules("src/mapped/region.rs", text), CLEAN);
        assert_eq!(
            rust("// It is unsafe to shrink a file.\n#![deny(unsafe_code)]"),
            CLEAN
        );
        assert_eq!(rust("const WORD: &str = \"unsafe\";"), CLEAN);
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(rust("fn f() {\n    todo!()\n}"), ["unfinished"]);
        assert_eq!(
            rust("fn f() {\n    unimplemented!(\"f\")\n}"),
            ["unfinished"]
        );
        assert_eq!(rust("// TODO: finish"), ["unfinished"]);
        assert_eq!(
            rules("python/planted.py", "\"\"\"Planted.\"\"\"\n# FIXME\n"),
            ["unfinished"]
        );
        assert_eq!(
            rust("// SCHEDULE_TOPIC_XXXX holds the delayed messages."),
            CLEAN
        );
    }

    #[test]
    fn code_in_comments_is_found_and_prose_is_not() {
        for dead in [
            "// let end = self.end();",
            "// self.flush();",
            "// if ready {",
            "// }",
            "// });",
            "// use std::fs;",
            "// #[inline]",
            "/* position += size; */",
            "/*\n   store.close();\n*/",
        ] {
            assert_eq!(rust(dead), ["dead code"], "{dead}");
        }
        for prose in [
            "// The mark moves first; a reader that sees it may read.",
            "// If the file is short, use the one before it;",
            "// See `flush()`, which waits.",
            "/// ```\n/// let store = open();\n/// ```",
            "let url = \"http://host/a;b\"; // one address",
            "// SAFETY: the region outlives `self`.",
        ] {
            assert_eq!(rust(prose), CLEAN, "{prose}");
        }
    }

    #[test]
    fn machine_paths_are_found_in_every_kind_of_file() {
        for path in ["docs/planted.md", "Makefile", ".ci/run"] {
            for folder in ["work", "root", "home"] {
                assert_eq!(
                    rules(path, &format!("cd /{folder}/here\n")),
                    ["machine path"]
                );
            }
        }
        assert_eq!(rules("docs/planted.md", "the workload of /tmp\n"), CLEAN);
    }

    #[test]
    fn history_and_praise_are_found_in_comments_and_prose() {
        assert_eq!(rust("// The reader now uses a map."), ["history"]);
        assert_eq!(rust("/// Previously a list."), ["history"]);
        assert_eq!(rules("docs/planted.md", "A blazing log.\n"), ["praise"]);
        assert_eq!(rules("CHANGELOG.md", "`open` now takes a path.\n"), CLEAN);
        assert_eq!(
            rust("// A new file is created when the last one is full."),
            CLEAN
        );
        assert_eq!(rust("const WORD: &str = \"elegant\";"), CLEAN);
    }
}
