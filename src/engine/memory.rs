//! The memory engine.
