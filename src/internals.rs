//! Internals for benches, fuzz targets and integration tests; not part of the API.

pub use crate::machine::Drive;
pub use crate::mapped::Extent;
pub use crate::record::common::check::OWN_TOPIC_PREFIX;
pub use crate::record::kafka;
pub use crate::region::{Access, Region};

/// `tests/models` compiles some sources a second time. Like [`error`] and [`machine`], this module
/// is a path at which they find their imports.
pub mod disk {
    pub use crate::disk::{Disk, Kind, RealDisk};
}

/// See [`disk`].
pub mod error {
    pub use crate::error::{Error, Op, Result};
}

/// See [`disk`].
pub mod machine {
    pub use crate::machine::Drive;
}
