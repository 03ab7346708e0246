//! Damaged regions of a store.

use super::pickle::{plain, value};
use crate::DamageKind;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use std::convert::Infallible;

plain!(
    Damage,
    "A damaged region of the store, and the messages lost with it.

Attributes
----------
path
    The file.
position
    First damaged byte: a position in the log if this is a log file, else a byte of the file.
length
    Number of unreadable bytes.
reason
    What is wrong.
lost
    Messages known to be lost, as (topic, queue, offset).
kind
    What is damaged: log, queue, index, topics, checkpoint, options, table or foreign table. If no
    file is damaged: retention or clock.",
    {
        /// The file.
        path: String,
        /// First damaged byte: a position in the log if this is a log file, else a byte of the
        /// file.
        position: u64,
        /// Number of unreadable bytes.
        length: u64,
        /// What is wrong.
        reason: String,
        /// Messages known to be lost, as (topic, queue, offset).
        lost: Vec<(String, u32, u64)>,
    },
    unlisted {
        /// What is damaged: log, queue, index, topics, checkpoint, options, table or foreign table.
        /// If no file is damaged: retention or clock.
        kind: DamageKind
    }
);

impl From<crate::Damage> for Damage {
    fn from(damage: crate::Damage) -> Damage {
        Damage {
            kind: damage.kind,
            path: damage.path.display().to_string(),
            position: damage.position,
            length: damage.length,
            reason: damage.reason,
            lost: damage.lost,
        }
    }
}

impl From<Damage> for crate::Damage {
    fn from(damage: Damage) -> crate::Damage {
        crate::Damage {
            kind: damage.kind,
            path: damage.path.into(),
            position: damage.position,
            length: damage.length,
            reason: damage.reason,
            lost: damage.lost,
        }
    }
}

impl<'py> IntoPyObject<'py> for DamageKind {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(PyString::new(py, self.name()))
    }
}

impl<'py> FromPyObject<'_, 'py> for DamageKind {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<DamageKind> {
        let name: String = object.extract()?;
        let kind = DamageKind::of_name(&name);
        kind.ok_or_else(|| PyValueError::new_err(format!("unknown kind of damage {name:?}")))
    }
}

/// Returns a pickled list of damaged regions.
pub(super) fn places(values: &Bound<'_, PyDict>, name: &str) -> PyResult<Vec<crate::Damage>> {
    let found: Vec<Damage> = value(values, name)?;
    Ok(found.into_iter().map(Into::into).collect())
}

/// Makes a Python list of damaged regions.
pub(super) fn damages(py: Python<'_>, found: Vec<crate::Damage>) -> PyResult<Bound<'_, PyList>> {
    PyList::new(py, found.into_iter().map(Damage::from))
}
