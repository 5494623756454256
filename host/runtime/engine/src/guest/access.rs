//! What a call's plugin was granted beside files and processes: store, index, parts, tasks and
//! vectors.

use std::sync::Arc;
use std::time::Duration;

use toolhold_compiler::parts::Parts;
use toolhold_contract::{EmbeddingModel, Report, TaskBook, VectorDatabase};

use crate::Runtime;

/// What a call's plugin keeps between its calls, of one kind.
pub(crate) struct KeptAccess<D> {
    pub(crate) data: Arc<D>,
    /// Whether the call may not write.
    pub(crate) read_only: bool,
    pub(crate) report: Arc<Report>,
}

/// The database of a call's index.
pub(crate) struct VectorsAccess {
    pub(super) database: Arc<dyn VectorDatabase>,
    /// Whether it has failed in this call. It would take as long to fail again.
    pub(super) has_failed: bool,
    pub(super) report: Arc<Report>,
}

impl VectorsAccess {
    pub(crate) fn new(database: Arc<dyn VectorDatabase>, report: &Arc<Report>) -> Self {
        Self { database, has_failed: false, report: Arc::clone(report) }
    }
}

/// The parts of a call's plugin.
pub(crate) struct PartsAccess {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) parts: Arc<Parts>,
    /// Processor time that the call's parts may still use.
    pub(crate) left: Duration,
    /// Bytes of all answers of one function call.
    pub(crate) output: usize,
}

/// The tasks of a call's plugin.
pub(crate) struct ScheduleAccess {
    pub(crate) tasks: Arc<dyn TaskBook>,
    /// Whether the call only reads.
    pub(crate) read_only: bool,
}

/// Texts of one call.
pub(super) const MAX_TEXTS_OF_CALL: usize = 2048;

/// How a call's plugin gets vectors.
pub(crate) struct EmbeddingsAccess {
    pub(super) model: Option<Arc<dyn EmbeddingModel>>,
    /// Texts that the call may still send.
    pub(super) left: usize,
    pub(super) report: Arc<Report>,
}

impl EmbeddingsAccess {
    pub(crate) fn new(model: Option<Arc<dyn EmbeddingModel>>, report: &Arc<Report>) -> Self {
        Self { model, left: MAX_TEXTS_OF_CALL, report: Arc::clone(report) }
    }
}
