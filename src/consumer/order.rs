//! What a group guarantees about the order of the messages in a queue.

/// What is guaranteed about the order of messages in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// A refused message goes to the retry topic; the messages after it are delivered.
    #[default]
    None,
    /// A refused message is delivered again before any message after it.
    Queue,
}
