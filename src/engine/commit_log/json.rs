//! JSON as RocketMQ writes it: the names of an object may be numbers without quotes, which no JSON
//! parser takes. Both forms are read.

use serde_json::Value;

/// The value of a text; `None` where it is no JSON in either form.
pub fn parse(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(&with_quotes(text)).ok()
}

/// The text with quotes around every key that is a number: a number that a colon follows.
fn with_quotes(text: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(text.len() + text.len() / 4);
    let mut rest = text;
    while let Some(byte) = rest.first() {
        let len = match byte {
            b'"' => string_len(rest),
            b'0'..=b'9' | b'-' => {
                let digits = rest.iter().skip(1).take_while(|b| b.is_ascii_digit());
                1 + digits.count()
            }
            _ => 1,
        };
        let (token, behind) = rest.split_at(len);
        let is_number = byte.is_ascii_digit() || *byte == b'-';
        if is_number && behind.trim_ascii_start().first() == Some(&b':') {
            quoted.push(b'"');
            quoted.extend(token);
            quoted.push(b'"');
        } else {
            quoted.extend(token);
        }
        rest = behind;
    }
    quoted
}

/// Bytes of the string that the text begins with, quotes and all.
fn string_len(text: &[u8]) -> usize {
    let mut escaped = false;
    for (at, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_numbers_are_read_with_and_without_quotes() {
        let text = br#"{"a 1:\"2:":{0:5,-1 : 7,"2":-1},"list":[1,2.5e3],"n":12}"#;
        let value = parse(text).unwrap();
        let queues = &value["a 1:\"2:"];
        assert_eq!((&queues["0"], &queues["-1"]), (&5.into(), &7.into()));
        assert_eq!(queues["2"], -1);
        assert_eq!(value["list"][1], 2500.0);
        assert_eq!(value["n"], 12);
    }

    #[test]
    fn no_text_makes_the_quoting_fail() {
        for text in ["", "\"", "\"\\", "{0", "-", "{\"a\\\":1:2", "1:1:1"] {
            let quoted = with_quotes(text.as_bytes());
            assert!(quoted.len() >= text.len(), "{text}");
        }
    }

    #[test]
    fn names_that_are_bare_numbers_are_json_here() {
        for text in [
            r#"{"offsetTable":{"orders@billing":{0:17,1:3}}}"#,
            "{\"offsetTable\":{\n\t1: 5,\n\t18 :6}}",
            r#"{"a": ["}{\"", 1, {2:"3,4:"}]}"#,
            "{}",
        ] {
            assert!(parse(text.as_bytes()).is_some(), "{text}");
        }
        for text in [
            "",
            "{",
            r#"{"a":{0:17,1:3}"#,
            "{0 17}",
            "\0\0\0",
            r#"{"a:1}"#,
        ] {
            assert!(parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
