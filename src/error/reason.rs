//! Why an argument is not allowed.

use std::fmt;

/// Why the value of an argument is not allowed. It decides the form of the error's text, which the
/// words themselves do not: they may come from a library or a producer of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The rule that the value breaks, such as `be at least 1`: it is displayed after "must".
    Must(String),
    /// What is wrong with the value.
    Is(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Must(rule) => write!(f, "must {rule}"),
            Reason::Is(flaw) => f.write_str(flaw),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;

    #[test]
    fn a_rule_and_a_flaw_are_told_in_forms_of_their_own() {
        let rule = Error::must("max_messages", 0, "be at least 1");
        assert_eq!(rule.to_string(), "max_messages must be at least 1, got 0");
        let flaw = Error::option("topic", "null", "no topic is given");
        assert_eq!(flaw.to_string(), "topic is null: no topic is given");
    }

    #[test]
    fn the_first_word_of_a_flaw_decides_nothing() {
        // The text of a producer of data.
        let flaw = Error::option("rows", "a stream", "must retry the export");
        assert_eq!(flaw.to_string(), "rows is a stream: must retry the export");
    }
}
