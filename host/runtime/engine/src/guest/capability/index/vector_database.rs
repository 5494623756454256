//! The interface of an external vector database of an index.

use std::fmt;

use toolhold_contract::BoxFuture;

/// An external database that finds near vectors. The index has the same vectors. The database gets
/// numbers, but no texts and no names.
///
/// The caller limits the time of a request by dropping the future. The database may have written
/// the vectors by then, so a second write of the same vectors must change nothing.
pub trait VectorDatabase: fmt::Debug + Send + Sync + 'static {
    /// Returns the database's name.
    fn name(&self) -> String;

    /// Returns an identifier that no other database has. Doesn't contact the database.
    fn place(&self) -> String;

    /// Returns the number of points in a set. Creates the set if it is missing.
    fn count<'a>(&'a self, set: &'a VectorSet) -> BoxFuture<'a, Result<u64, String>>;

    /// Removes all points of a set.
    fn clear<'a>(&'a self, set: &'a VectorSet) -> BoxFuture<'a, Result<(), String>>;

    /// Writes points. A point replaces the point with the same number.
    fn put<'a>(
        &'a self,
        set: &'a VectorSet,
        points: Vec<VectorPoint>,
    ) -> BoxFuture<'a, Result<(), String>>;

    /// Removes points. Missing points are ignored.
    fn remove<'a>(&'a self, set: &'a VectorSet, ids: Vec<i64>)
    -> BoxFuture<'a, Result<(), String>>;

    /// Returns the numbers of the `limit` points that are nearest to a vector. The answer is
    /// untrusted and may contain unknown numbers.
    fn nearest<'a>(
        &'a self,
        set: &'a VectorSet,
        vector: &'a [i8],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<i64>, String>>;
}

/// Vectors of an index with the same length and the same group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorSet {
    /// A random text of the index that isn't sent. The name of a set is a hash of this text and the
    /// group, so that the database can't guess the group.
    pub secret: String,
    /// The part of the index that a search covers, such as a project. It isn't sent.
    pub group: String,
    /// The length of each vector.
    pub numbers: usize,
}

/// A vector as a database stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorPoint {
    /// The vector's number in the index.
    pub id: i64,
    /// The vector.
    pub vector: Vec<i8>,
}
