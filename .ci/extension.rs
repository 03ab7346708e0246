//! The extension of the tests: the library, which was compiled with its bindings for Python.

pub use library::*;
