//! The types of keys that are granted directories, or globs over paths.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toolhold_policy::GlobError;
use toolhold_policy::files::PathGlobs;

use crate::string_types::inline_schema;

/// A granted directory: `"path"` to read and write, or `{ path = "path", access = "read" }`.
///
/// `~` is the home directory. A relative path starts at the working directory, in every source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedPath {
    /// The path as written.
    pub path: String,
    /// The access to the path.
    pub access: PathAccess,
}

/// The access to a granted directory.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PathAccess {
    /// Files are read, directories listed and searched.
    Read,
    /// Files and directories may also be created, changed and removed.
    #[default]
    ReadWrite,
}

/// The form of a granted directory with its access.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
struct Long {
    /// The directory.
    path: String,
    /// The access to the path.
    #[serde(default)]
    access: PathAccess,
}

impl<'de> Deserialize<'de> for AllowedPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A derived untagged enum would only report "did not match any variant", and would hide
        // unknown keys.
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = AllowedPath;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path, or { path = \"…\", access = \"read\" }")
            }

            fn visit_str<E: serde::de::Error>(self, path: &str) -> Result<AllowedPath, E> {
                check_path(path.to_owned(), PathAccess::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AllowedPath, A::Error> {
                let Long { path, access } = Long::deserialize(MapAccessDeserializer::new(map))?;
                check_path(path, access)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

fn check_path<E: serde::de::Error>(path: String, access: PathAccess) -> Result<AllowedPath, E> {
    if path.is_empty() || path.contains('\0') {
        return Err(E::custom(
            "a path must not be empty or contain a NUL; the working directory is \".\"",
        ));
    }
    if is_in_other_home(&path) {
        return Err(E::custom(format_args!(
            "{path:?}: the home of another user can't be named with `~`; write the path in full"
        )));
    }
    Ok(AllowedPath { path, access })
}

/// Checks whether a path begins with `~name`, the home directory of the user `name`.
fn is_in_other_home(path: &str) -> bool {
    path.starts_with('~') && path != "~" && !path.starts_with("~/")
}

impl Serialize for AllowedPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.access {
            PathAccess::ReadWrite => serializer.serialize_str(&self.path),
            access => Long { path: self.path.clone(), access }.serialize(serializer),
        }
    }
}

impl JsonSchema for AllowedPath {
    fn schema_name() -> Cow<'static, str> {
        "AllowedPath".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let long = generator.subschema_for::<Long>();
        json_schema!({
            "description": "A directory: `~` is the home directory, a relative path starts at the working directory.",
            "anyOf": [{ "type": "string", "minLength": 1, "description": "Read and write." }, long],
        })
    }
}

/// The reason why a glob isn't valid or can never match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathGlobError {
    /// The pattern is empty.
    #[error("a glob must not be empty")]
    Empty,
    /// The pattern begins with `!`.
    #[error("`{0}`: a glob can't be negated with `!`, because a denial always wins")]
    Inverted(String),
    /// The glob contains `..`.
    #[error("`{0}`: a glob with `..` never matches, because paths are compared without `..`")]
    Parent(String),
    /// The pattern begins with `~` and a name.
    #[error("`{0}`: the home of another user can't be named with `~`; write the path in full")]
    OtherHome(String),
    /// The pattern isn't a valid glob.
    #[error(transparent)]
    Glob(#[from] GlobError),
}

/// A glob over paths, for [`PathGlobs`]. A glob with a leading `/` or `~/` is compared with the
/// whole path. Other globs match at any depth. A glob also matches everything below a matching
/// path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathGlob(String);

impl PathGlob {
    /// Creates a glob that can match a path.
    ///
    /// # Errors
    ///
    /// Fails if the glob is invalid or can never match. In `deny_read`, such a glob would protect
    /// nothing.
    pub fn new(pattern: impl Into<String>) -> Result<Self, PathGlobError> {
        let pattern = pattern.into();
        if pattern.is_empty() {
            return Err(PathGlobError::Empty);
        }
        if pattern.starts_with('!') {
            return Err(PathGlobError::Inverted(pattern));
        }
        if pattern.split('/').any(|part| part == "..") {
            return Err(PathGlobError::Parent(pattern));
        }
        if is_in_other_home(&pattern) {
            return Err(PathGlobError::OtherHome(pattern));
        }
        PathGlobs::new(vec![(pattern.clone(), String::new())])?;
        Ok(Self(pattern))
    }

    /// Creates one of Toolhold's default globs without checking it. Defaults are created at every
    /// start, and compiling a glob takes time. A test checks the default globs.
    pub(crate) fn known(pattern: &'static str) -> Self {
        Self(pattern.to_owned())
    }

    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for PathGlob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

inline_schema!(PathGlob, "PathGlob", json_schema!({ "type": "string", "minLength": 1 }));
