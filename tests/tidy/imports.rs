//! The imports of each module of `src/` and `python/`, found in its text.

use crate::Source;
use crate::lex::{is_word, lex, python, word_positions};
use std::collections::BTreeMap;

/// A path of modules, such as `crate`, `disk`, `lock`.
pub type Path = Vec<String>;

pub struct Import {
    pub path: Path,
    /// The name in the importing file.
    pub name: String,
    pub line: usize,
}

/// The modules of `src/` and `python/`, and the names that each imports.
pub struct Tree<'a> {
    pub files: Vec<(&'a Source, Path)>,
    modules: BTreeMap<Path, &'a str>,
    /// By module and name: where the name comes from.
    names: BTreeMap<Path, Path>,
}

impl<'a> Tree<'a> {
    pub fn new(sources: &'a [Source]) -> Self {
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
    pub fn passed(&self, path: &[String]) -> Vec<&'a str> {
        let mut path = path.to_vec();
        let mut files = Vec::new();
        // Chains of re-exports are short, but a circle of them would not end.
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
    pub fn is_module_of_the_crate(&self, path: &[String]) -> bool {
        path.len() > 1 && path[1] != "python" && self.modules.contains_key(&path[..2])
    }

    /// The folder of a file. `x.rs` belongs to the folder `x` if there is one, a test to the folder
    /// that it tests. A file at the top, and the `__init__` of a Python package, is its own folder.
    pub fn folder(&self, path: &str) -> String {
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

    pub fn imports(&self, source: &Source, module: &Path) -> Vec<Import> {
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
pub fn module_of(path: &str) -> Option<Path> {
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

/// A path in code, and its local name.
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
