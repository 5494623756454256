//! Asks the operator's vector database which vectors are near, and sends the database the vectors
//! that it doesn't have.
//!
//! The index has all vectors too. The database only selects vectors. The index then compares them
//! itself, and applies prefix and tags. So a wrong answer can omit near documents, but can't add a
//! document.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_contract::Report;
use toolhold_contract::text::{cut, neutral_line};
use toolhold_store::index::{self, DocumentIndex, MAX_HITS, MAX_VECTOR, UnsentVector};
use toolhold_store::{Stop, StoreError};

use crate::guest::CallState;
use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::index as wit;
use crate::guest::capability::index::vector_database::{VectorDatabase, VectorPoint, VectorSet};

/// The time limit of the database for one search, including the transfer of missing vectors. The
/// call needs the rest of its time.
const TIME: Duration = Duration::from_secs(5);

/// Changes that are sent together.
const BATCH: usize = 256;

/// The minimum number of requested vectors. Some of the vectors may have other tags.
const NEAR: usize = 200;

/// Bytes of the reason of a failure.
const MAX_REASON: usize = 400;

/// A reason why the database finds no vectors.
#[derive(Debug, thiserror::Error)]
enum NearestError {
    #[error("no answer within {:.1} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("{0} vectors aren't sent yet; the next search continues")]
    Unsent(u64),
    #[error("{}", .0.message)]
    Index(Error),
    /// The database's own message.
    #[error("{0}")]
    Database(String),
}

/// The database of a call's index.
pub(super) struct Vectors {
    database: Arc<dyn VectorDatabase>,
    /// Whether the database has failed in this call. The call then doesn't ask it again, since
    /// another failure would take as long.
    has_failed: bool,
    report: Arc<Report>,
}

impl Vectors {
    pub(super) fn new(database: Arc<dyn VectorDatabase>, report: &Arc<Report>) -> Self {
        Self { database, has_failed: false, report: Arc::clone(report) }
    }
}

impl CallState {
    /// Finds the documents whose vectors may be near the vector of a query. Returns `None` if the
    /// index must compare all vectors. A failure of the database becomes a notice.
    pub(crate) async fn near_by_database(&mut self, query: &wit::Query) -> Option<Vec<i64>> {
        let vectors = self.capabilities.index.as_ref()?.vectors.as_ref()?;
        if vectors.has_failed {
            return None;
        }
        let vector = query.vector.as_deref()?;
        // Without a group, the vectors of all groups would have to be sent.
        let group = index::group(&query.prefix)?.to_owned();
        // The index refuses a vector of this length.
        if !(1..=MAX_VECTOR).contains(&vector.len()) {
            return None;
        }

        let database = Arc::clone(&vectors.database);
        let report = Arc::clone(&vectors.report);
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX).clamp(NEAR, MAX_HITS);
        let watch = Arc::clone(&self.call.watch);
        let time_left = watch.deadline().saturating_duration_since(Instant::now());
        let time = TIME.min(time_left / 4);
        let search = self.find_nearest(&*database, vector, group, limit, time);
        let in_time = tokio::time::timeout(time, search);
        // A cancelled call needs no answer.
        let result = watch.cancel.run_until_cancelled(in_time).await?;
        let error = match result {
            Ok(Ok(near)) => return Some(near),
            Ok(Err(error)) => error,
            Err(_) => NearestError::Timeout(time),
        };

        let name = database.name();
        let why = neutral_line(cut(&error.to_string(), MAX_REASON));
        tracing::warn!(plugin = &*self.call.plugin, "{name} found no vectors: {why}");
        report.say(format!(
            "{name} found no vectors, so the index compared all of its vectors: {why}"
        ));
        let index = self.capabilities.index.as_mut();
        if let Some(vectors) = index.and_then(|index| index.vectors.as_mut()) {
            vectors.has_failed = true;
        }
        None
    }

    /// Sends the missing vectors to the database, and asks the database for the nearest vectors.
    async fn find_nearest(
        &mut self,
        database: &dyn VectorDatabase,
        vector: &[i8],
        group: String,
        limit: usize,
        time: Duration,
    ) -> Result<Vec<i64>, NearestError> {
        // Half of the time is for sending, in batches that need much less than the other half.
        let sending_ends = Instant::now() + time / 2;
        let numbers = vector.len();
        let place = database.place();
        let set = self.bring_up_to_date(database, numbers, group, &place).await?;
        let group = &*set.group;
        loop {
            let changes =
                self.run_in_index(|index, stop| index.unsent(numbers, group, BATCH, stop)).await?;
            if changes.is_empty() {
                let nearest = database.nearest(&set, vector, limit).await;
                return nearest.map_err(NearestError::Database);
            }
            if Instant::now() >= sending_ends {
                let mirror = self
                    .run_in_index(|index, stop| index.mirror(numbers, group, &place, stop))
                    .await?;
                return Err(NearestError::Unsent(mirror.unsent));
            }
            send(database, &set, &changes).await?;
            self.run_in_index(|index, stop| index.sent(&changes, stop)).await?;
        }
    }

    /// Clears the set in the database if the number of its vectors is wrong, because the database
    /// was wiped or changed. Returns the set.
    async fn bring_up_to_date(
        &mut self,
        database: &dyn VectorDatabase,
        numbers: usize,
        group: String,
        place: &str,
    ) -> Result<VectorSet, NearestError> {
        let mirror =
            self.run_in_index(|index, stop| index.mirror(numbers, &group, place, stop)).await?;
        let set = VectorSet { secret: mirror.secret.clone(), group, numbers };
        let count = database.count(&set).await.map_err(NearestError::Database)?;
        if mirror.is_begun {
            if count.abs_diff(mirror.vectors) <= mirror.unsent {
                return Ok(set);
            }
            let current = self
                .run_in_index(|index, stop| index.mirror(numbers, &set.group, place, stop))
                .await?;
            if current != mirror {
                // Another process has sent vectors since.
                return Ok(set);
            }
        }

        if count > 0 {
            database.clear(&set).await.map_err(NearestError::Database)?;
        }
        self.run_in_index(|index, stop| index.begin_mirror(numbers, &set.group, place, stop))
            .await?;
        Ok(set)
    }

    /// Runs an operation on the index that the guest didn't request.
    async fn run_in_index<T>(
        &mut self,
        operation: impl FnOnce(&Arc<DocumentIndex>, &Stop) -> Result<T, StoreError>,
    ) -> Result<T, NearestError> {
        self.in_index(false, operation).await.map_err(NearestError::Index)
    }
}

async fn send(
    database: &dyn VectorDatabase,
    set: &VectorSet,
    changes: &[UnsentVector],
) -> Result<(), NearestError> {
    let mut removed = Vec::new();
    let mut points = Vec::new();
    for change in changes {
        match &change.vector {
            None => removed.push(change.id),
            Some(vector) => points.push(VectorPoint { id: change.id, vector: vector.clone() }),
        }
    }
    if !removed.is_empty() {
        database.remove(set, removed).await.map_err(NearestError::Database)?;
    }
    if !points.is_empty() {
        database.put(set, points).await.map_err(NearestError::Database)?;
    }
    Ok(())
}
