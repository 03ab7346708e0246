//! What records of every form share: [`draft`] is what a sender gives.

pub mod draft;

pub use draft::Draft;
