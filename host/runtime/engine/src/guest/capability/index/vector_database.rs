//! The interface of an external vector database of an index.

use std::fmt;

use toolhold_contract::BoxFuture;

/// An external database of vectors. The index has the same vectors. The database finds near
/// vectors. It gets only numbers, no texts and no names.
///
/// The caller limits the time of each request, and drops the future when the time is over. The
/// database may already have written the vectors. Writing them again changes nothing.
pub trait VectorDatabase: fmt::Debug + Send + Sync + 'static {
    /// Returns the database's name, for people.
    fn name(&self) -> String;

    /// Returns an identifier that differs from those of other databases. Doesn't contact the
    /// database.
    fn place(&self) -> String;

    /// Returns the number of points of a set. Creates the set if it is missing.
    fn count<'a>(&'a self, set: &'a VectorSet) -> BoxFuture<'a, Result<u64, String>>;

    /// Removes all points of a set.
    fn clear<'a>(&'a self, set: &'a VectorSet) -> BoxFuture<'a, Result<(), String>>;

    /// Writes points into a set. Each replaces the point with the same number.
    fn put<'a>(
        &'a self,
        set: &'a VectorSet,
        points: Vec<VectorPoint>,
    ) -> BoxFuture<'a, Result<(), String>>;

    /// Removes points. A point that doesn't exist is no error.
    fn remove<'a>(&'a self, set: &'a VectorSet, ids: Vec<i64>)
    -> BoxFuture<'a, Result<(), String>>;

    /// Returns the numbers of the points of a set that are nearest to a vector, at most `limit`.
    /// The answer is untrusted: it may contain numbers of points that don't exist.
    fn nearest<'a>(
        &'a self,
        set: &'a VectorSet,
        vector: &'a [i8],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<i64>, String>>;
}

/// The vectors of one index that have the same length and the same group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorSet {
    /// A random text of the index. The host never sends this text. The host hashes it together with
    /// the names of groups, so that nobody can guess a group by its hash.
    pub secret: String,
    /// The group: the part of the index that a search is limited to, such as a project. The host
    /// never sends the group.
    pub group: String,
    /// The numbers of each vector.
    pub numbers: usize,
}

/// A vector in the form that a database gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorPoint {
    /// The vector's number in the index.
    pub id: i64,
    /// The vector.
    pub vector: Vec<i8>,
}
