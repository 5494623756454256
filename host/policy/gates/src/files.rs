//! Decides which paths a call may read and write.
//!
//! Paths in this module are real paths: absolute, with links resolved. The rules never read a file
//! system. The order of the rules is: Toolhold's own folders; the longest matching grant;
//! `deny_read`, `allow_read`, `deny_write`. A denial takes precedence.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use toolhold_contract::text::{cut, toml};
use toolhold_contract::{Access, Denial, PathRefusal};

use crate::origin::{Origin, OriginKind};
pub use crate::path_globs::PathGlobs;
use crate::pattern::literal;

/// Names of files that configure Toolhold or its filters. Guests may not write files with these
/// names in any folder.
pub const OWN_NAMES: [&str; 2] = ["toolhold.toml", "filters.toml"];

/// Bytes of a path that a denial shows. A longer path is cut.
const MAX_SHOWN: usize = 1024;

/// Granted directories that a denial shows. A denial gives only the number of further directories.
const MAX_SHOWN_GRANTS: usize = 3;

/// Bytes of a granted directory in a denial. A longer path is cut.
const MAX_SHOWN_GRANT: usize = 256;

/// A directory that the operator granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Real path.
    pub path: PathBuf,
    /// The access that is granted below the path.
    pub access: Access,
    /// Place of the grant in the configuration.
    pub place: Origin,
}

/// One of Toolhold's own folders. No grant gives access to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFolder {
    /// The real path. A path `NAME/..` protects only the directory `NAME` itself, and not its
    /// content, because no path in `NAME` begins with `NAME/..`. It is used for a directory that a
    /// path to a folder of Toolhold leads through.
    pub path: PathBuf,
    /// Whether reading the folder is also denied.
    pub secret: bool,
}

/// The kind of the object at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory. `allow_read` doesn't apply to directories, because a call enters them to reach
    /// the allowed files.
    Directory,
    /// Any other object.
    Other,
}

/// All path rules for one plugin.
#[derive(Clone, Debug, Default)]
pub struct FileRules {
    grants: Vec<Grant>,
    own_folders: Vec<OwnFolder>,
    deny_read: PathGlobs,
    allow_read: PathGlobs,
    deny_write: PathGlobs,
}

/// The rule that denies a path. [`FileRules::explain`] describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No grant covers the path.
    Outside,
    /// The path is in Toolhold's own folder, or is Toolhold's own file.
    Own,
    /// The grant that covers the path is read-only.
    ReadOnlyGrant(usize),
    /// The tool declares itself read-only.
    ReadOnlyCall,
    /// The plugin's manifest requests files only to read them.
    ReadOnlyManifest,
    /// A glob of `deny_read` matches.
    DenyRead(usize),
    /// `allow_read` is set, and none of its globs matches.
    NotInAllowRead,
    /// A glob of `deny_write` matches.
    DenyWrite(usize),
    /// The path is a granted directory, or a folder above it. A guest must not replace the path,
    /// because the grant would cover other files at the next start.
    GrantRoot(usize),
    /// The path is in a kernel file system such as procfs or sysfs.
    Kernel,
    /// The folder can't be moved or removed as a whole, because it has too many entries to check.
    TooMuchBelow,
    /// A rule for calls denies the path.
    OfCall(PathRefusal),
}

impl FileRules {
    /// Makes the rules for `grants`. `own_folders` are Toolhold's folders, which no grant includes.
    pub fn new(mut grants: Vec<Grant>, own_folders: Vec<OwnFolder>) -> Self {
        // The longest path comes first, so the first match is the longest. If a path is granted
        // twice, the narrower grant applies.
        grants.sort_by(|a, b| {
            let a_length = a.path.components().count();
            let b_length = b.path.components().count();
            b_length.cmp(&a_length).then_with(|| a.access.cmp(&b.access))
        });
        Self { grants, own_folders, ..Self::default() }
    }

    /// Replaces the globs.
    #[must_use]
    pub fn with_globs(
        mut self,
        deny_read: PathGlobs,
        allow_read: PathGlobs,
        deny_write: PathGlobs,
    ) -> Self {
        self.deny_read = deny_read;
        self.allow_read = allow_read;
        self.deny_write = deny_write;
        self
    }

    /// Returns Toolhold's own folders, which no grant includes.
    pub fn own(&self) -> &[OwnFolder] {
        &self.own_folders
    }

    /// Checks whether there are globs. Without globs, every path below a grant is allowed except
    /// for Toolhold's own files.
    pub fn has_globs(&self) -> bool {
        !(self.deny_read.is_empty() && self.allow_read.is_empty() && self.deny_write.is_empty())
    }

    /// Returns the grants, the longest path first.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Checks whether `access` to `path` is allowed.
    ///
    /// Write access includes creating, moving and removing. A path that may not be read may not be
    /// written either.
    ///
    /// # Errors
    ///
    /// Returns the rule that denies the access.
    pub fn decide(&self, path: &Path, kind: Kind, access: Access) -> Result<(), Refusal> {
        // If a call creates a file at `path`, Toolhold can't create its own folder below `path`
        // later.
        let creates_file = kind == Kind::Other && access == Access::Write;
        if creates_file
            && self.own_folders.iter().any(|own| own.path != path && own.path.starts_with(path))
        {
            return Err(Refusal::Own);
        }
        if self.is_always_denied(path, access) {
            return Err(Refusal::Own);
        }

        let mut grants = self.grants.iter().enumerate();
        let (index, grant) =
            grants.find(|(_, grant)| path.starts_with(&grant.path)).ok_or(Refusal::Outside)?;
        if access == Access::Write && grant.access == Access::Read {
            return Err(Refusal::ReadOnlyGrant(index));
        }

        if let Some(glob) = self.deny_read.first_match(path) {
            return Err(Refusal::DenyRead(glob));
        }
        match access {
            Access::Read => {
                let is_bounded = kind == Kind::Other && !self.allow_read.is_empty();
                if is_bounded && !self.allow_read.covers(path) {
                    return Err(Refusal::NotInAllowRead);
                }
            }
            Access::Write => {
                if let Some(glob) = self.deny_write.first_match(path) {
                    return Err(Refusal::DenyWrite(glob));
                }
            }
        }
        Ok(())
    }

    /// Returns a rule that certainly denies writing a path below the folder `path`. Returns `None`
    /// if no such rule is known.
    pub fn refused_below(&self, path: &Path) -> Option<Refusal> {
        if self.own_folders.iter().any(|own| own.path.starts_with(path)) {
            return Some(Refusal::Own);
        }
        // An anchor is the folder of a glob before its first wildcard. The glob denies paths at or
        // below it, so moving or removing `path` would affect a denied path.
        for (index, anchor) in self.deny_read.anchors() {
            if anchor.starts_with(path) {
                return Some(Refusal::DenyRead(index));
            }
        }
        for (index, anchor) in self.deny_write.anchors() {
            if anchor.starts_with(path) {
                return Some(Refusal::DenyWrite(index));
            }
        }
        if let Some(index) = self.grant_below(path, Access::Read) {
            return Some(Refusal::ReadOnlyGrant(index));
        }
        self.grant_below(path, Access::Write).map(Refusal::GrantRoot)
    }

    fn grant_below(&self, path: &Path, access: Access) -> Option<usize> {
        self.grants.iter().position(|grant| grant.access == access && grant.path.starts_with(path))
    }

    /// Checks whether a file or directory at `path` may be created, moved or removed. Use this
    /// check in addition to [`decide`](Self::decide).
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::ReadOnlyGrant`] or [`Refusal::GrantRoot`] for a granted directory itself.
    pub fn decide_name(&self, path: &Path) -> Result<(), Refusal> {
        let Some(index) = self.grants.iter().position(|grant| grant.path == path) else {
            return Ok(());
        };
        match self.grants[index].access {
            Access::Read => Err(Refusal::ReadOnlyGrant(index)),
            Access::Write => Err(Refusal::GrantRoot(index)),
        }
    }

    /// Describes a denial: the action, the rule, its place, and the line that would change it.
    pub fn explain(&self, refusal: Refusal, path: &Path, access: Access) -> Denial {
        let path_text = path.display().to_string();
        let shown = cut(&path_text, MAX_SHOWN);
        let verb = match access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let built_in = Origin::default();
        let annotations = Origin::from("the tool's annotations");
        let manifest = Origin::from("the plugin's manifest");
        let none = Origin::from("no directory is granted");
        let (rule, place, remedy): (_, _, Cow<'static, str>) = match refusal {
            Refusal::Outside => {
                let place = self.place_of_grants().unwrap_or(&none);
                (self.describe_grants(), place, self.remedy_outside(path, access, place))
            }
            Refusal::Own => (
                "Toolhold's own files are blocked".to_owned(),
                &built_in,
                "No configuration key can change this.".into(),
            ),
            Refusal::Kernel => (
                "the kernel's own file systems (procfs, sysfs, …) are blocked".to_owned(),
                &built_in,
                "No configuration key can change this.".into(),
            ),
            Refusal::ReadOnlyGrant(index) => {
                let grant = &self.grants[index];
                let rule = format!("the read-only grant of {}", grant.path.display());
                (rule, &grant.place, remedy_to_write(grant))
            }
            Refusal::ReadOnlyCall => (
                "the tool declares that it only reads".to_owned(),
                &annotations,
                "The tool's author has to remove `read-only`.".into(),
            ),
            Refusal::ReadOnlyManifest => (
                "the plugin asks for files only to read them".to_owned(),
                &manifest,
                "The plugin's author has to ask for `read-write` access to files: in plugin.toml, `access = \"read-write\"`.".into(),
            ),
            Refusal::DenyRead(index) => self.deny_read.explain("deny_read", index),
            Refusal::DenyWrite(index) => self.deny_write.explain("deny_write", index),
            Refusal::NotInAllowRead => {
                let place = self.allow_read.places.first().unwrap_or(&built_in);
                let remedy = place.remedy(|| match to_toml(path, literal) {
                    Some(glob) => format!("To allow it, add to `allow_read`: {glob}"),
                    None => "To allow it, add a glob that matches the path to \
                             `allow_read`.".to_owned(),
                });
                ("allow_read, which has no glob for this path".to_owned(), place, remedy)
            }
            Refusal::GrantRoot(index) => {
                let grant = &self.grants[index];
                let rule = "granted directories can't be moved or removed".to_owned();
                (rule, &grant.place, remedy_to_move(grant))
            }
            Refusal::TooMuchBelow => (
                "the folder has too many entries to check (the limits are 100,000 entries and 128 \
                 levels)".to_owned(),
                &built_in,
                "Move or remove smaller folders.".into(),
            ),
            Refusal::OfCall(_) => (
                "a rule about calls".to_owned(),
                &built_in,
                "`toolhold policy check` shows the rules.".into(),
            ),
        };
        Denial {
            capability: "files".to_owned(),
            action: format!("{verb} {shown}"),
            rule,
            place: place.text.clone().into_owned(),
            remedy: remedy.into_owned(),
        }
    }

    /// Describes the rule `allowed_paths`: the first of the outermost granted directories, and the
    /// number of further directories.
    fn describe_grants(&self) -> String {
        let outermost = self.outermost_grants();
        if outermost.is_empty() {
            return "allowed_paths".to_owned();
        }

        let mut shown = Vec::new();
        for path in outermost.iter().take(MAX_SHOWN_GRANTS) {
            shown.push(toml(cut(path, MAX_SHOWN_GRANT)));
        }
        let hidden_count = outermost.len() - shown.len();
        let more =
            if hidden_count > 0 { format!(" and {hidden_count} more") } else { String::new() };
        format!("allowed_paths = [{}]{more}", shown.join(", "))
    }

    /// Returns the granted directories that lie in no other granted directory.
    fn outermost_grants(&self) -> Vec<String> {
        let mut outermost = Vec::new();
        for grant in &self.grants {
            let is_inside_other = self
                .grants
                .iter()
                .any(|other| other.path != grant.path && grant.path.starts_with(&other.path));
            let path = grant.path.display().to_string();
            if !is_inside_other && !outermost.contains(&path) {
                outermost.push(path);
            }
        }
        outermost
    }

    /// Returns the place of the grants for a remedy. If a file that isn't the user's own limits the
    /// grants, returns the place in that file, because a change of the user's own file has no
    /// effect.
    fn place_of_grants(&self) -> Option<&Origin> {
        let mut first_in_list = None;
        for grant in &self.grants {
            // A flag only adds its grant to the list, so the place of the flag isn't the place of
            // the list.
            if is_added(&grant.place) {
                continue;
            }
            if grant.place.remedy_elsewhere().is_some() {
                return Some(&grant.place);
            }
            if first_in_list.is_none() {
                first_in_list = Some(&grant.place);
            }
        }
        // If the list is empty, all grants are from flags.
        first_in_list.or(self.grants.first().map(|grant| &grant.place))
    }

    fn remedy_outside(&self, path: &Path, access: Access, place: &Origin) -> Cow<'static, str> {
        let plain = without_dots(path);
        if self.grants.iter().any(|grant| plain.starts_with(&grant.path)) {
            return "The path is a link out of the granted directory. To allow it, grant the directory of its target.".into();
        }
        if self.is_always_denied(&plain, access) {
            return "No configuration key can change this: the path is always blocked.".into();
        }
        place.remedy(|| self.remedy_by_grant(&plain, access, place))
    }

    /// Returns the remedy that grants the parent of `path`, because `path` may be a file. The
    /// remedy never grants the whole machine. The remedy doesn't reveal whether the directory
    /// exists, because a denied call must not learn that.
    fn remedy_by_grant(&self, path: &Path, access: Access, place: &Origin) -> String {
        let parent = match path.parent() {
            Some(parent) if parent.parent().is_some() && !self.is_too_wide(parent) => parent,
            _ => {
                return "If the path is a directory, grant the directory in `allowed_paths`. \
                         If the path is a file, move the file into a separate directory and \
                         grant that directory."
                    .to_owned();
            }
        };
        let Some(directory) = to_toml(parent, str::to_owned) else {
            return "To allow it, grant the parent directory of the path.".to_owned();
        };
        let grant = match access {
            Access::Read => format!("{{ path = {directory}, access = \"read\" }}"),
            Access::Write => directory,
        };
        match &place.kind {
            // A written list replaces the default list, so `.` is written too.
            OriginKind::Default(table) => {
                let line = format!("allowed_paths = [\".\", {grant}]");
                let lines = table.lines("tools.file", &line);
                format!("To allow it (the path has to be an existing directory), {lines}")
            }
            _ => format!(
                "To allow it, add to `allowed_paths` (the path has to be an existing directory): {grant}"
            ),
        }
    }

    /// Checks whether a directory contains more than a person intends to grant: Toolhold's secrets,
    /// or another granted directory.
    fn is_too_wide(&self, path: &Path) -> bool {
        let secrets = self.own_folders.iter().filter(|own| own.secret).map(|own| &own.path);
        let grants = self.grants.iter().map(|grant| &grant.path);
        secrets.chain(grants).any(|inner| inner.starts_with(path))
    }

    /// Checks whether `access` to a path is always denied because the path belongs to Toolhold.
    /// Reading is denied only in Toolhold's secret folders.
    fn is_always_denied(&self, path: &Path, access: Access) -> bool {
        let is_write = access == Access::Write;
        if is_write
            && let Some(name) = path.file_name()
            && OWN_NAMES.iter().any(|own_name| name.eq_ignore_ascii_case(own_name))
        {
            return true;
        }
        self.own_folders.iter().any(|folder| {
            let is_denied = is_write || folder.secret;
            is_denied && path.starts_with(&folder.path)
        })
    }
}

/// Returns the remedy that makes a read-only grant writable. The grant of a flag is changed by
/// another flag, and not by the configuration.
fn remedy_to_write(grant: &Grant) -> Cow<'static, str> {
    match &grant.place.kind {
        OriginKind::Flag(flag) if flag.starts_with("--allow-read") => {
            "To allow it, grant the directory with --allow instead of --allow-read.".into()
        }
        _ => grant.place.remedy(|| format!("To allow it, grant {:?} for writing.", grant.path)),
    }
}

/// Returns the remedy that lets a call move or remove a granted directory: a grant of the parent
/// directory in place of the grant of the directory itself.
fn remedy_to_move(grant: &Grant) -> Cow<'static, str> {
    grant.place.remedy(|| match &grant.place.kind {
        OriginKind::Default(table) => format!(
            "The directory is granted by default, because `allowed_paths` isn't set in \
             [tools.file] of {}. To allow it, name the parent directory in `allowed_paths` \
             instead.",
            table.file
        ),
        _ => format!(
            "To allow it, replace {:?} in `allowed_paths` with its parent directory.",
            grant.path
        ),
    })
}

fn is_added(place: &Origin) -> bool {
    matches!(&place.kind, OriginKind::Flag(flag) if flag.starts_with("--allow"))
}

/// Returns `path` as a TOML string, after `convert` has changed its text. Returns `None` if `path`
/// isn't UTF-8, or is too long to be shown uncut.
fn to_toml(path: &Path, convert: impl FnOnce(&str) -> String) -> Option<String> {
    let text = path.to_str()?;
    if text.len() > MAX_SHOWN {
        return None;
    }
    Some(toml(&convert(text)))
}

/// Removes `.` and `..` from a path without reading the file system. Each `..` also removes the
/// part before it.
pub fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(patterns: &[&str]) -> PathGlobs {
        let patterns =
            patterns.iter().map(|pattern| ((*pattern).to_owned(), "[tools.file]".to_owned()));
        PathGlobs::new(patterns.collect()).expect("valid globs")
    }

    fn grant(path: &str, access: Access) -> Grant {
        Grant { path: path.into(), access, place: "[tools.file]".into() }
    }

    fn rules() -> FileRules {
        let own = vec![
            OwnFolder { path: "/work/.toolhold/config".into(), secret: false },
            OwnFolder { path: "/work/.toolhold/cache".into(), secret: true },
            OwnFolder { path: "/home/u/.local/share/toolhold".into(), secret: true },
        ];
        FileRules::new(
            vec![
                grant("/work", Access::Write),
                grant("/work/vendor", Access::Read),
                grant("/work/vendor/patch", Access::Write),
            ],
            own,
        )
        .with_globs(
            globs(&["**/.env", "secrets/**", "/work/keys"]),
            PathGlobs::default(),
            globs(&[".git/hooks/**", ".git/config"]),
        )
    }

    #[track_caller]
    fn check(path: &str, access: Access, expected: Result<(), Refusal>) {
        assert_eq!(
            rules().decide(Path::new(path), Kind::Other, access),
            expected,
            "{access:?} {path}"
        );
    }

    #[test]
    fn longest_grant_decides() {
        check("/work/a", Access::Write, Ok(()));
        check("/work/vendor/a", Access::Read, Ok(()));
        check("/work/vendor/a", Access::Write, Err(Refusal::ReadOnlyGrant(1)));
        check("/work/vendor/patch/a", Access::Write, Ok(()));
        check("/workshop/a", Access::Read, Err(Refusal::Outside));
        check("/", Access::Read, Err(Refusal::Outside));
    }

    #[test]
    fn narrower_of_two_grants_of_one_path_counts() {
        let rules =
            FileRules::new(vec![grant("/a", Access::Write), grant("/a", Access::Read)], Vec::new());
        assert_eq!(
            rules.decide(Path::new("/a/x"), Kind::Other, Access::Write),
            Err(Refusal::ReadOnlyGrant(0))
        );
    }

    #[test]
    fn unreadable_path_is_not_writable() {
        for path in [
            "/work/.env",
            "/work/deep/er/.env",
            "/work/secrets",
            "/work/x/secrets/y/z",
            "/work/keys",
            "/work/keys/id",
        ] {
            for access in [Access::Read, Access::Write] {
                let decision = rules().decide(Path::new(path), Kind::Other, access);
                assert!(
                    matches!(decision, Err(Refusal::DenyRead(_))),
                    "{access:?} {path}: {decision:?}"
                );
            }
        }
        check("/work/.envrc", Access::Read, Ok(()));
        check("/work/my-secrets/x", Access::Read, Ok(()));
    }

    #[test]
    fn glob_for_content_of_folder_covers_the_folder() {
        check("/work/.git/hooks", Access::Write, Err(Refusal::DenyWrite(0)));
        check("/work/sub/.git/hooks/pre-commit", Access::Write, Err(Refusal::DenyWrite(0)));
        check("/work/.git/hooks/pre-commit", Access::Read, Ok(()));
        check("/work/.git/config", Access::Write, Err(Refusal::DenyWrite(1)));
        check("/work/.git/HEAD", Access::Write, Ok(()));
    }

    #[test]
    fn own_folders_are_blocked() {
        check("/work/.toolhold/config/toolhold.toml", Access::Read, Ok(()));
        check("/work/.toolhold/config/x", Access::Write, Err(Refusal::Own));
        check("/work/.toolhold/cache/x", Access::Read, Err(Refusal::Own));
        check("/work/deep/toolhold.toml", Access::Read, Ok(()));
        check("/work/deep/toolhold.toml", Access::Write, Err(Refusal::Own));
        check("/work/deep/Filters.TOML", Access::Write, Err(Refusal::Own));
    }

    #[test]
    fn allow_read_bounds_files_and_not_directories() {
        let rules = FileRules::new(vec![grant("/work", Access::Write)], Vec::new()).with_globs(
            globs(&["src/private.rs"]),
            globs(&["src"]),
            PathGlobs::default(),
        );
        let read = |path: &str, kind| rules.decide(Path::new(path), kind, Access::Read);
        assert_eq!(read("/work/src/lib.rs", Kind::Other), Ok(()));
        assert_eq!(read("/work/README.md", Kind::Other), Err(Refusal::NotInAllowRead));
        assert_eq!(read("/work/docs", Kind::Directory), Ok(()));
        assert_eq!(read("/work/src/private.rs", Kind::Other), Err(Refusal::DenyRead(0)));
    }

    #[test]
    fn folder_above_refused_path_is_refused() {
        let rules = rules();
        assert_eq!(rules.refused_below(Path::new("/work/.toolhold")), Some(Refusal::Own));
        assert_eq!(rules.refused_below(Path::new("/work")), Some(Refusal::Own));
        assert_eq!(rules.refused_below(Path::new("/work/vendor")), Some(Refusal::ReadOnlyGrant(1)));
        assert_eq!(rules.refused_below(Path::new("/work/src")), None);
    }

    #[test]
    fn folder_above_first_wildcard_or_escape_is_refused() {
        let denied = globs(&["/work/a/\\[x]/key", "/work/b/c?/key", "/work/d/key"]);
        let folders = ["/work/a", "/work/b", "/work/d/key"];
        assert_eq!(denied.folders().collect::<Vec<_>>(), folders.map(PathBuf::from));
        let rules = FileRules::new(vec![grant("/work", Access::Write)], Vec::new()).with_globs(
            PathGlobs::default(),
            PathGlobs::default(),
            denied,
        );
        for (index, folder) in folders.iter().enumerate() {
            let refusal = Some(Refusal::DenyWrite(index));
            assert_eq!(rules.refused_below(Path::new(folder)), refusal, "{folder}");
        }
        assert_eq!(rules.refused_below(Path::new("/work/b/c")), None);
    }

    #[test]
    fn granted_directory_can_not_be_moved_or_removed() {
        let rules = rules();
        let (own, inner) = (Refusal::GrantRoot(2), Refusal::GrantRoot(0));
        for (path, expected) in [
            ("/work", own),
            ("/work/vendor", Refusal::ReadOnlyGrant(1)),
            ("/work/vendor/patch", inner),
        ] {
            assert_eq!(rules.decide_name(Path::new(path)), Err(expected), "{path}");
        }
        assert_eq!(rules.decide_name(Path::new("/work/vendor/patch/x")), Ok(()));
        assert_eq!(
            rules.refused_below(Path::new("/work/vendor/patch")),
            Some(Refusal::GrantRoot(0))
        );
    }

    #[test]
    fn denial_names_rule_place_and_remedy() {
        let denial = rules().explain(Refusal::DenyRead(0), Path::new("/work/.env"), Access::Read);
        assert_eq!(
            denial.to_string(),
            "read /work/.env is denied: deny_read = \"**/.env\" ([tools.file]). To allow it, remove \"**/.env\" from `deny_read`."
        );
    }

    #[test]
    fn denial_outside_names_at_most_three_granted_directories() {
        let rule = |folders: &[&str]| {
            let grants = folders.iter().map(|folder| grant(folder, Access::Write)).collect();
            let rules = FileRules::new(grants, Vec::new());
            rules.explain(Refusal::Outside, Path::new("/etc/passwd"), Access::Read).rule
        };
        assert_eq!(rule(&[]), "allowed_paths");
        assert_eq!(rule(&["/work", "/work/vendor"]), "allowed_paths = [\"/work\"]");
        let many = rule(&["/a", "/b", "/c", "/d", "/e"]);
        assert!(
            many.starts_with("allowed_paths = [\"/") && many.ends_with("] and 2 more"),
            "{many}"
        );
        let long = rule(&[&format!("/{}", "x".repeat(100_000))]);
        assert!(long.len() < 512, "{}", long.len());
    }

    #[test]
    fn remedy_names_smallest_grant() {
        for (path, remedy) in [
            ("/etc/passwd", "directory): { path = \"/etc\", access = \"read\" }"),
            (
                "/home/u/notes/todo.txt",
                "directory): { path = \"/home/u/notes\", access = \"read\" }",
            ),
            ("/home/u/.ssh/id", "directory): { path = \"/home/u/.ssh\", access = \"read\" }"),
            (
                "/work/../srv/a \\\"b\"/x",
                "directory): { path = \"/srv/a \\\\\\\"b\\\"\", access = \"read\" }",
            ),
            (
                "/work/../srv/\u{1b}\u{202e}/x",
                "directory): { path = \"/srv/\\u001b\\U0000202E\", access = \"read\" }",
            ),
            ("/work/link/passwd", "a link out of"),
            ("/work/.toolhold/cache/../../../work/.toolhold/cache/x/y", "a link out of"),
        ] {
            let denial = rules().explain(Refusal::Outside, Path::new(path), Access::Read);
            assert!(denial.remedy.contains(remedy), "{path}: {}", denial.remedy);
        }
        // Each may be a file, and a line that grants a file ends every call.
        for path in
            ["/etc", "/home/u/notes", "/home/u/todo.txt", "/home/u/Makefile", "/home/u/.netrc"]
        {
            let denial = rules().explain(Refusal::Outside, Path::new(path), Access::Read);
            assert!(denial.remedy.contains("a separate directory"), "{path}: {}", denial.remedy);
            assert!(!denial.remedy.contains("path ="), "{path}: {}", denial.remedy);
        }
        let long = rules().explain(
            Refusal::Outside,
            Path::new(&format!("/{}", "x".repeat(100_000))),
            Access::Read,
        );
        assert!(long.to_string().len() < 4096);
    }

    #[test]
    fn error_names_invalid_glob() {
        let error =
            PathGlobs::new(vec![("a[".to_owned(), "x".to_owned())]).expect_err("invalid glob");
        assert!(error.to_string().contains("a["), "{error}");
    }
}
