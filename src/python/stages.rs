//! Staging and committing rows, for `forebay.spark`; not part of the public API.

use super::edge::Batches;
use super::meanings::EngineKind;
use super::pickle::plain;
use super::store::Store;
use crate::Mutex;
use crate::commit::Patience;
use crate::{
    Commit, CommitKind, CommitState, Conflict, Error, Published, RealDisk, Resolution, Stage,
    commit,
};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often a wait checks whether Ctrl-C was pressed.
const PAUSE: Duration = Duration::from_millis(50);

plain!(
    Contents,
    "Number and fingerprint of rows, independent of their order.

Attributes
----------
rows
    Their number.
sum
    The sum of their checksums, modulo 2^64.",
    {
        rows: u64,
        sum: u64,
    }
);

plain!(
    Staged,
    "The rows of one task: a private file beside the store.

Attributes
----------
name
    Its name.
contents
    Number and fingerprint of its rows.
slices
    Start and end of parts of the file, each of which is appended at once.",
    {
        name: String,
        contents: Contents,
        slices: Vec<(u64, u64)>,
    }
);

impl From<crate::Contents> for Contents {
    fn from(contents: crate::Contents) -> Contents {
        Contents {
            rows: contents.rows,
            sum: contents.sum,
        }
    }
}

impl From<Contents> for crate::Contents {
    fn from(Contents { rows, sum }: Contents) -> crate::Contents {
        crate::Contents { rows, sum }
    }
}

impl From<Stage> for Staged {
    fn from(stage: Stage) -> Staged {
        let slices = stage.slices.iter().map(|it| (it.start, it.end));
        Staged {
            contents: stage.contents.into(),
            slices: slices.collect(),
            name: stage.name,
        }
    }
}

impl From<Staged> for Stage {
    fn from(staged: Staged) -> Stage {
        let slices = staged.slices.into_iter();
        Stage {
            name: staged.name,
            contents: staged.contents.into(),
            slices: slices.map(|(start, end)| start..end).collect(),
        }
    }
}

/// Writes the rows of one task to a stage.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Stager {
    core: Mutex<Option<crate::Stager>>,
}

#[pymethods]
impl Stager {
    #[new]
    #[pyo3(signature = (path, query, topic=None))]
    fn new(py: Python<'_>, path: PathBuf, query: &str, topic: Option<&str>) -> PyResult<Stager> {
        let made = || crate::Stager::new(Arc::new(RealDisk), &path, query, topic);
        Ok(Stager {
            core: Mutex::new(Some(py.detach(made)?)),
        })
    }

    /// Add the rows of a record batch.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let reader = Batches::of(batch)?.reader();
        let write = || -> crate::Result<()> {
            let mut core = self.core.lock();
            let stager = core.as_mut().ok_or(Error::Closed { path: None })?;
            for batch in reader {
                let batch = batch.map_err(|error| {
                    Error::option("data", error, "the stream of batches failed")
                })?;
                stager.write(&batch)?;
            }
            Ok(())
        };
        Ok(py.detach(write)?)
    }

    /// Complete the stage, without making it durable; ``None`` if no row was written.
    fn finish(&self, py: Python<'_>) -> PyResult<Option<Staged>> {
        let finish = || {
            let core = self.core.lock().take();
            core.ok_or(Error::Closed { path: None })?.finish()
        };
        Ok(py.detach(finish)?.map(Staged::from))
    }

    /// Delete the stage, unless it is complete.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.core.lock().take()));
    }
}

/// Return the engine of the Forebay store at a path, ``None`` if there is no store; raise an error
/// if none can be created there, or if the topic of all rows is invalid.
#[pyfunction]
#[pyo3(signature = (path, topic=None))]
pub(crate) fn stage_target(
    py: Python<'_>,
    path: PathBuf,
    topic: Option<&str>,
) -> PyResult<Option<EngineKind>> {
    let found = py.detach(|| crate::check_target(&RealDisk, &path, topic))?;
    Ok(found.map(EngineKind))
}

/// Write the manifest of a commit. Return whether the writer will process this one, not an earlier
/// one of the same batch.
#[pyfunction]
#[pyo3(signature = (path, query, batch, kind, stages, conflict="fail"))]
pub(crate) fn publish_commit(
    py: Python<'_>,
    path: PathBuf,
    query: &str,
    batch: u64,
    kind: &str,
    stages: Vec<Staged>,
    conflict: &str,
) -> PyResult<bool> {
    let conflict = Conflict::of(conflict)
        .ok_or_else(|| Error::must("conflict", conflict, "be \"fail\", \"append\" or \"skip\""))?;
    let kind = CommitKind::of(kind)
        .ok_or_else(|| Error::must("kind", kind, "be \"stream\" or \"batch\""))?;
    let stages: Vec<Stage> = stages.into_iter().map(Stage::from).collect();
    let commit = Commit {
        query,
        batch,
        kind,
        conflict,
        stages: &stages,
    };
    let published = py.detach(|| commit::publish(&RealDisk, &path, &commit))?;
    Ok(published == Published::Own)
}

/// Decide what happens to a batch that is only partly in the log. Return whether the writer will
/// process this decision, not a pending commit of the batch.
#[pyfunction]
pub(crate) fn resolve_commit(
    py: Python<'_>,
    path: PathBuf,
    query: &str,
    batch: u64,
    resolution: &str,
) -> PyResult<bool> {
    let resolution = Resolution::of(resolution)
        .ok_or_else(|| Error::must("resolution", resolution, "be \"appended\" or \"again\""))?;
    let resolve = || commit::resolve(&RealDisk, &path, (query, batch), resolution);
    Ok(py.detach(resolve)? == Published::Own)
}

/// Append all pending commits, as the writer of the store.
#[pyfunction]
pub(crate) fn take_commits(store: &Bound<'_, Store>) -> PyResult<()> {
    let core = store.get().core();
    Ok(store.py().detach(|| core.take_commits())?)
}

/// Return number and fingerprint of the rows of all stages together.
#[pyfunction]
pub(crate) fn contents_of(stages: Vec<Staged>) -> Contents {
    let mut all = crate::Contents::default();
    for stage in stages {
        all.add(stage.contents.into());
    }
    all.into()
}

/// Return whether the durable log holds a whole batch with these contents.
#[pyfunction]
pub(crate) fn holds_commit(
    store: &Bound<'_, Store>,
    query: &str,
    batch: u64,
    contents: Contents,
    skips: bool,
) -> PyResult<bool> {
    let core = store.get().core();
    let holds = || core.holds_commit((query, batch), contents.into(), skips);
    Ok(store.py().detach(holds)?)
}

/// Return the body of a query's last marker in the log, a JSON object; ``None`` if there is none.
#[pyfunction]
pub(crate) fn last_marker(store: &Bound<'_, Store>, query: &str) -> PyResult<Option<String>> {
    let core = store.get().core();
    Ok(store.py().detach(|| core.last_marker(query))?)
}

/// The progress of a commit.
///
/// Attributes
/// ----------
/// state
///     ``"pending"``, ``"begun"``, ``"refused"`` or ``"gone"``.
/// reason
///     Why the commit was refused; None in other states.
/// appended
///     Whether a part of a refused commit is in the log.
/// held
///     Whether a process has the store open for writing.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct CommitProgress {
    state: &'static str,
    reason: Option<String>,
    appended: bool,
    held: bool,
}

/// Wait until a commit is processed, or no process writes the store, or no commit makes progress
/// for the length of the timeout.
#[pyfunction]
pub(crate) fn wait_for_commit(
    py: Python<'_>,
    path: PathBuf,
    query: &str,
    batch: u64,
    timeout: f64,
) -> PyResult<CommitProgress> {
    let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::ZERO);
    let mut patience = Patience::new(timeout);
    loop {
        let wait = || commit::wait(&RealDisk, &path, (query, batch), &mut patience, PAUSE);
        let (state, held) = py.detach(wait)?;
        let waits = matches!(state, CommitState::Pending | CommitState::Begun);
        if !waits || !held || patience.left().is_zero() {
            let (state, reason, appended) = match state {
                CommitState::Pending => ("pending", None, false),
                CommitState::Begun => ("begun", None, false),
                CommitState::Refused(it) => ("refused", Some(it.reason), it.appended),
                CommitState::Gone => ("gone", None, false),
            };
            return Ok(CommitProgress {
                state,
                reason,
                appended,
                held,
            });
        }
        py.check_signals()?;
    }
}

/// Return the id of the process that writes the store, if known.
#[pyfunction]
pub(crate) fn writer_of(py: Python<'_>, path: PathBuf) -> PyResult<Option<u32>> {
    Ok(py.detach(|| commit::writer(&RealDisk, &path))?)
}

/// Withdraw a commit and delete its stages; return false if it has begun or was processed.
#[pyfunction]
pub(crate) fn withdraw_commit(
    py: Python<'_>,
    path: PathBuf,
    query: &str,
    batch: u64,
) -> PyResult<bool> {
    Ok(py.detach(|| commit::withdraw(&RealDisk, &path, query, batch))?)
}

/// Delete stages, unless a manifest names them.
#[pyfunction]
pub(crate) fn discard_stages(
    py: Python<'_>,
    path: PathBuf,
    query: &str,
    names: Vec<String>,
) -> PyResult<()> {
    Ok(py.detach(|| commit::discard(&RealDisk, &path, query, &names))?)
}

/// Delete the directory of a query that will have no more commits.
#[pyfunction]
pub(crate) fn close_query(py: Python<'_>, path: PathBuf, query: &str) -> PyResult<()> {
    Ok(py.detach(|| commit::close(&RealDisk, &path, query))?)
}
