//! Asks the external database for near vectors, and sends it the vectors that it lacks.
//!
//! The database only preselects vectors. The index then compares these vectors itself, and applies
//! prefix and tags. A wrong answer can omit documents, but can't add any.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Access, Report};
use toolhold_store::index::{self, DocumentIndex, MAX_HITS, MAX_VECTOR, UnsentVector};
use toolhold_store::{Stop, StoreError};

use crate::guest::CallState;
use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::index as wit;
use crate::guest::capability::index::vector_database::{VectorDatabase, VectorPoint, VectorSet};

/// Time limit for one search, including the transfer of missing vectors. The call needs the rest of
/// its time.
const TIME: Duration = Duration::from_secs(5);

/// Changes that are sent at a time.
const BATCH: usize = 256;

/// At least this many vectors are requested, because some of the nearest vectors may have the wrong
/// tags.
const NEAR: usize = 200;

/// Longest error message of a database in bytes. Longer messages are cut.
const MAX_REASON: usize = 400;

#[derive(Debug, thiserror::Error)]
enum NearestError {
    #[error("the database didn't answer within {:.1} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("{0} vectors are not sent to the database yet; the next search sends the rest")]
    Unsent(u64),
    #[error("{}", .0.message)]
    Index(Error),
    #[error("{0}")]
    Database(String),
}

pub(super) struct Vectors {
    database: Arc<dyn VectorDatabase>,
    /// Whether the database has failed in this call. A failed database isn't asked again, because
    /// each failure takes time.
    has_failed: bool,
    report: Arc<Report>,
}

impl Vectors {
    pub(super) fn new(database: Arc<dyn VectorDatabase>, report: &Arc<Report>) -> Self {
        Self { database, has_failed: false, report: Arc::clone(report) }
    }
}

impl CallState {
    /// Asks the database for the documents that may be near. If this returns `None`, the index must
    /// compare all vectors itself. A failure of the database becomes a notice.
    pub(crate) async fn find_near_documents(&mut self, query: &wit::Query) -> Option<Vec<i64>> {
        let vectors = self.capabilities.index.as_ref()?.vectors.as_ref()?;
        if vectors.has_failed {
            return None;
        }
        let vector = query.vector.as_deref()?;
        // A search without a group needs the vectors of all groups, which are too many to send.
        let group = index::group(&query.prefix)?.to_owned();
        // The index refuses a vector with another length.
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
        tracing::warn!(plugin = &*self.call.plugin, "the search in {name} failed: {why}");
        report.say(format!(
            "the search in {name} failed, so the index compared all its vectors: {why}"
        ));
        let index = self.capabilities.index.as_mut();
        if let Some(vectors) = index.and_then(|index| index.vectors.as_mut()) {
            vectors.has_failed = true;
        }
        None
    }

    /// Sends the changes that the database lacks, and asks the database for the vectors that are
    /// nearest to `vector`. Returns an error if sending the changes takes more than half of `time`.
    async fn find_nearest(
        &mut self,
        database: &dyn VectorDatabase,
        vector: &[i8],
        group: String,
        limit: usize,
        time: Duration,
    ) -> Result<Vec<i64>, NearestError> {
        // The second half of the time is for the last batch and for the search.
        let sending_ends = Instant::now() + time / 2;
        let vector_length = vector.len();
        let database_place = database.place();
        let set = self.bring_up_to_date(database, vector_length, group, &database_place).await?;
        let group = &*set.group;
        loop {
            let changes = self
                .run_in_index(|index, stop| index.unsent(vector_length, group, BATCH, stop))
                .await?;
            if changes.is_empty() {
                let nearest = database.nearest(&set, vector, limit).await;
                return nearest.map_err(NearestError::Database);
            }
            if Instant::now() >= sending_ends {
                let mirror = self
                    .run_in_index(|index, stop| {
                        index.mirror(vector_length, group, &database_place, stop)
                    })
                    .await?;
                return Err(NearestError::Unsent(mirror.unsent));
            }
            send(database, &set, &changes).await?;
            self.run_in_index(|index, stop| index.sent(&changes, stop)).await?;
        }
    }

    /// Returns the set of vectors in the database. If the set has a wrong number of vectors, for
    /// example because the database was wiped, the set is cleared and all its vectors are unsent.
    async fn bring_up_to_date(
        &mut self,
        database: &dyn VectorDatabase,
        vector_length: usize,
        group: String,
        database_place: &str,
    ) -> Result<VectorSet, NearestError> {
        // The mirror is the index's record of the vectors that the database has.
        let mirror = self
            .run_in_index(|index, stop| index.mirror(vector_length, &group, database_place, stop))
            .await?;
        let set = VectorSet { secret: mirror.secret.clone(), group, numbers: vector_length };
        let count = database.count(&set).await.map_err(NearestError::Database)?;
        if mirror.is_begun {
            // Each unsent change explains a difference of one vector.
            if count.abs_diff(mirror.vectors) <= mirror.unsent {
                return Ok(set);
            }
            let current_mirror = self
                .run_in_index(|index, stop| {
                    index.mirror(vector_length, &set.group, database_place, stop)
                })
                .await?;
            if current_mirror != mirror {
                // Another process has sent vectors in the meantime.
                return Ok(set);
            }
        }

        if count > 0 {
            database.clear(&set).await.map_err(NearestError::Database)?;
        }
        self.run_in_index(|index, stop| {
            index.begin_mirror(vector_length, &set.group, database_place, stop)
        })
        .await?;
        Ok(set)
    }

    /// Runs an operation of the host on the index.
    async fn run_in_index<T>(
        &mut self,
        operation: impl FnOnce(&Arc<DocumentIndex>, &Stop) -> Result<T, StoreError>,
    ) -> Result<T, NearestError> {
        self.in_index(Access::Read, operation).await.map_err(NearestError::Index)
    }
}

/// Sends changes of the index to the database. A change without a vector removes its vector.
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
