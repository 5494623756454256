//! The interface of a database of vectors beside an index.

use std::fmt;

use toolhold_contract::BoxFuture;

/// A database of vectors, next to an index that has them too. The database finds near vectors, and
/// gets numbers alone: no texts, no names.
///
/// The caller bounds the time, and drops a future when it is over. The database may or may not have
/// written the vectors then; writing them again changes nothing.
pub trait VectorDatabase: fmt::Debug + Send + Sync + 'static {
    /// Its name, for people.
    fn name(&self) -> String;

    /// Distinguishes the place from others, without asking it.
    fn place(&self) -> String;

    /// Returns the number of points of a set. Makes the place for them, if it is missing.
    fn count<'a>(&'a self, set: &'a VectorSet) -> BoxFuture<'a, Result<u64, String>>;

    /// Removes all points of a set.
    fn clear<'a>(&'a self, set: &'a VectorSet) -> BoxFuture<'a, Result<(), String>>;

    /// Writes points into a set. Each replaces the point with the same number.
    fn put<'a>(
        &'a self,
        set: &'a VectorSet,
        points: Vec<VectorPoint>,
    ) -> BoxFuture<'a, Result<(), String>>;

    /// Removes points. They need not exist.
    fn remove<'a>(&'a self, set: &'a VectorSet, ids: Vec<i64>)
    -> BoxFuture<'a, Result<(), String>>;

    /// Returns the numbers of the points of a set that are nearest to a vector, at most `limit`.
    /// The answer is untrusted: a point with such a number may not exist.
    fn nearest<'a>(
        &'a self,
        set: &'a VectorSet,
        vector: &'a [i8],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<i64>, String>>;
}

/// The vectors of one index with the same number of numbers, in the same group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorSet {
    /// A random text of the index. It isn't sent. Hashes of groups are made with it, so that nobody
    /// can guess a group by its hash.
    pub secret: String,
    /// The part of the index that its searches are narrowed to, such as a project. It isn't sent
    /// either.
    pub group: String,
    /// The numbers of each vector.
    pub numbers: usize,
}

/// A vector as a database gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorPoint {
    /// Its number in the index.
    pub id: i64,
    /// The vector.
    pub vector: Vec<i8>,
}
