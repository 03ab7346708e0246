//! A simple lexer for the checks: comments, strings, characters, words.

/// Positions of `word` with no letter, digit or underscore on either side.
pub fn word_positions(chars: &[char], word: &str) -> Vec<usize> {
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

pub fn is_word(symbol: char) -> bool {
    symbol.is_alphanumeric() || symbol == '_'
}

/// The lines of `text`, numbered from 1.
pub fn numbered(text: &str) -> Vec<(usize, String)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.to_owned()))
        .collect()
}

/// A Rust source, split into code and comments.
pub struct Lexed {
    /// The source with comments and literals blanked, so that line numbers stay the same.
    pub code: String,
    /// Each line of each comment, with its comment marker.
    pub comments: Vec<(usize, String)>,
}

/// Splits a source into code and comments.
pub fn lex(text: &str) -> Lexed {
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
            // Each line of a block comment is checked like a line comment.
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

/// One past the end of the comment or literal that begins at `at`; `None` if none does.
fn literal_end(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied().unwrap_or(' ');
    let after_word = at > 0 && is_word(chars[at - 1]);
    match chars[at] {
        '/' if next == '/' => Some(find(chars, at, |rest| rest.starts_with(&['\n']))),
        '/' if next == '*' => Some(block_comment_end(chars, at)),
        '"' => Some(quoted_end(chars, at, '"')),
        // The `b` or `c` of `br"..."` was already read as code.
        'r' if !after_word || matches!(chars[at - 1], 'b' | 'c') => raw_string_end(chars, at),
        // A lifetime has no closing quote after one character.
        '\'' if next == '\\' || chars.get(at + 2) == Some(&'\'') => {
            Some(quoted_end(chars, at, '\''))
        }
        _ => None,
    }
}

/// The first index from `at` for which `is_end` holds for the rest, or the length.
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

/// A Python source with comments and literals blanked, so that line numbers stay the same.
pub fn python(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let quote = chars[at];
        let end = match quote {
            '#' => find(&chars, at, |rest| rest.starts_with(&['\n'])),
            '"' | '\'' if chars[at..].starts_with(&[quote; 3]) => long_end(&chars, at, quote),
            '"' | '\'' => quoted_end(&chars, at, quote),
            _ => {
                code.push(quote);
                at += 1;
                continue;
            }
        };
        let piece = &chars[at..end];
        code.extend(piece.iter().map(|it| if *it == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

fn long_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 3;
    while at < chars.len() && !chars[at..].starts_with(&[quote; 3]) {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 3).min(chars.len())
}
