//! The length of functions, in Rust and in Python.

use crate::lex::{is_word, word_positions};
use crate::{Finding, Source};

const LINES_MAX: usize = 70;

/// The functions of `source` that are too long. `code` is the source without comments and literals.
pub fn check(source: &Source, code: &str) -> Vec<Finding> {
    let functions = if source.is_rust() {
        rust(code)
    } else {
        python(code)
    };
    let long = functions.into_iter().filter(|it| it.lines > LINES_MAX);
    long.map(|Function { name, line, lines }| {
        let what = format!("`{name}` has {lines} lines, limit {LINES_MAX}");
        source.finding("function", line, what)
    })
    .collect()
}

struct Function {
    name: String,
    /// Line of its `fn` or `def`.
    line: usize,
    lines: usize,
}

/// The functions of a Rust source, each from the line of its `fn` to its closing brace.
fn rust(code: &str) -> Vec<Function> {
    let chars: Vec<char> = code.chars().collect();
    let mut functions = Vec::new();
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
        functions.push(Function {
            name,
            line: line_of(start),
            lines: line_of(end) - line_of(start) + 1,
        });
    }
    functions
}

/// Index of the brace that closes the body; `None` for a declaration that ends in `;`.
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

/// The functions of a Python source, each from the line of its `def`, without its docstring, since
/// in Rust the doc comment is also outside the function.
fn python(code: &str) -> Vec<Function> {
    let lines: Vec<&str> = code.lines().collect();
    // Whether a line begins inside brackets: its indentation then means nothing.
    let mut depth = 0;
    let continues: Vec<bool> = lines
        .iter()
        .map(|line| {
            let continues = depth > 0;
            for symbol in line.chars() {
                match symbol {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth -= 1,
                    _ => {}
                }
            }
            continues
        })
        .collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let Some(rest) = text.trim_start_matches("async ").strip_prefix("def ") else {
            continue;
        };
        let body = (start + 1..lines.len()).find(|&at| !continues[at]);
        let body = body.unwrap_or(lines.len());
        let docstring = lines[body..].iter().take_while(|it| it.trim().is_empty());
        let first = body + docstring.count();
        let is_after = |at: &usize| {
            !continues[*at] && !lines[*at].trim().is_empty() && indent(lines[*at]) <= indent(line)
        };
        let after = (first..lines.len()).find(is_after).unwrap_or(lines.len());
        let blank = lines[first..after].iter().rev();
        let blank = blank.take_while(|it| it.trim().is_empty()).count();
        functions.push(Function {
            name: rest.chars().take_while(|it| is_word(*it)).collect(),
            line: start + 1,
            lines: body - start + (after - first).saturating_sub(blank),
        });
    }
    functions
}
