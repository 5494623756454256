//! The tokens of `toolhold token`: makes, lists, checks and revokes them.
//!
//! A token is a JSON Web Token that a key of this installation has signed. Its record in the data
//! folder has its limits. A token without a record is revoked.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind as JwtErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolhold_core::config::{DeniedPrincipal, Folders, PrincipalId, Who};
use toolhold_core::{HostError, NAME, state};
use toolhold_data_dir::PrivateFolder;

use super::keys::install_cryptography;

/// The folder of the key and the records in the data folder.
const FOLDER: &str = "tokens";

/// The file with the key that signs tokens.
const KEY: &str = "key";

/// Maximum number of tokens that are valid at a time, and of files in the folder.
const MAX_TOKENS: usize = 10_000;
const MAX_FILES: usize = 2 * MAX_TOKENS;

const MAX_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);

const ID_DIGITS: usize = 32;
const MAX_NAME_BYTES: usize = 64;

const MAX_GROUPS: usize = 32;

/// Maximum length of a group's name and of a table's name in bytes.
const MAX_TEXT_BYTES: usize = 200;

/// The tokens of an installation.
#[derive(Clone, Debug)]
pub struct LocalTokens {
    folder: PathBuf,
}

/// A token that is to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// The caller's name: letters, digits and `._@+-`.
    pub name: String,
    /// The groups of the caller.
    pub groups: Vec<String>,
    /// The table of `[principals]` with the caller's rights. If `None`, the tables decide.
    pub table: Option<String>,
    /// The time until the token expires.
    pub lifetime: Duration,
    /// The limits of the token, for [`Inputs::bounds`](toolhold_core::config::Inputs::bounds). If
    /// empty, the token has the rights of the server's own token.
    pub bounds: Vec<String>,
}

/// The data of a valid token. The token itself isn't stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// 32 random hexadecimal digits.
    pub id: String,
    /// The caller's name.
    pub name: String,
    /// The groups of the caller.
    pub groups: Vec<String>,
    /// The table of `[principals]` with the caller's rights.
    pub table: Option<String>,
    /// The Unix time at which the token was made.
    pub made: u64,
    /// The Unix time at which the token expires.
    pub expires: u64,
    /// The limits of the token, as in [`NewToken::bounds`].
    pub bounds: Vec<String>,
}

impl TokenRecord {
    /// Checks whether the caller has fewer rights than the server's own token.
    pub fn is_limited(&self) -> bool {
        self.table.is_some() || !self.bounds.is_empty()
    }

    pub(super) fn into_who(self) -> Who {
        Who {
            issuer: NAME.to_owned(),
            subject: self.name,
            groups: self.groups,
            client: None,
            token: Some(self.id),
        }
    }
}

/// The reason why a token can't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The name could not be a part of a path.
    #[error(
        "the name of a token has 1 to {MAX_NAME_BYTES} letters, digits and `._@+-`, and begins \
         with a letter or a digit"
    )]
    Name,
    /// A group or a table has no valid name, or there are too many groups.
    #[error(
        "a token has at most {MAX_GROUPS} groups, and the name of a group or a table has 1 to \
         {MAX_TEXT_BYTES} bytes and no control characters"
    )]
    Text,
    /// The token would be valid for no time or for too long.
    #[error("a token is valid for at least 1 second and at most 90 days")]
    Lifetime,
    /// There are too many tokens.
    #[error("there are {MAX_TOKENS} tokens, the limit; revoke tokens that nobody needs")]
    Full,
    /// A file can't be read or written.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl NewToken {
    fn check(&self) -> Result<(), TokenError> {
        if !is_name(&self.name) {
            return Err(TokenError::Name);
        }
        let mut texts = self.groups.iter().chain(&self.table);
        if self.groups.len() > MAX_GROUPS || !texts.all(|text| is_text(text)) {
            return Err(TokenError::Text);
        }
        if self.lifetime.as_secs() == 0 || self.lifetime > MAX_LIFETIME {
            return Err(TokenError::Lifetime);
        }
        Ok(())
    }
}

impl LocalTokens {
    /// Returns the tokens in the operator's data folder. Reads nothing.
    pub fn new(folders: &Folders) -> Self {
        Self { folder: folders.operator_data().join(FOLDER) }
    }

    /// Makes a token. Returns its record and the token. Removes the records of expired tokens.
    ///
    /// # Errors
    ///
    /// Returns [`TokenError`] if the token would be invalid, there are too many tokens, or a file
    /// can't be read or written.
    pub fn make(&self, new: NewToken) -> Result<(TokenRecord, String), TokenError> {
        new.check()?;
        let key = state::secret(&self.folder, KEY)?;
        let folder = PrivateFolder::make(&self.folder).map_err(|error| self.error(error))?;
        // The lock prevents two processes from making the last token.
        let _lock = folder.lock(state::LOCK).map_err(|error| self.error(error))?;
        if self.remove_expired(&folder)? >= MAX_TOKENS {
            return Err(TokenError::Full);
        }

        let mut id = state::random_digits().map_err(|error| self.error(error))?;
        id.truncate(ID_DIGITS);
        let made = seconds();
        let record = TokenRecord {
            id,
            name: new.name,
            groups: new.groups,
            table: new.table,
            made,
            expires: made + new.lifetime.as_secs(),
            bounds: new.bounds,
        };
        let text = serde_json::to_vec_pretty(&record).map_err(|error| self.error(error.into()))?;
        folder.put(&file_name(&record.id), &text).map_err(|error| self.error(error))?;
        let token = sign(&record, &key);
        Ok((record, token))
    }

    /// Returns the valid tokens by name, and the errors of records that can't be read.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be read.
    pub fn list(&self) -> Result<(Vec<TokenRecord>, Vec<HostError>), HostError> {
        let mut records = Vec::new();
        let mut errors = Vec::new();
        let Some(folder) = self.open()? else { return Ok((records, errors)) };
        for id in self.ids(&folder)? {
            match self.valid(&id) {
                Ok(record) => records.extend(record),
                Err(error) => errors.push(error),
            }
        }
        records.sort_by(|one, other| (&one.name, one.made).cmp(&(&other.name, other.made)));
        Ok((records, errors))
    }

    /// Revokes the tokens with a name, or the token with an ID. Returns their IDs.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be read or a record can't be removed.
    pub fn revoke(&self, name_or_id: &str) -> Result<Vec<String>, HostError> {
        let mut revoked = Vec::new();
        let Some(folder) = self.open()? else { return Ok(revoked) };
        // The lock prevents two processes from removing the same record.
        let _lock = folder.lock(state::LOCK).map_err(|error| self.error(error))?;
        for id in self.ids(&folder)? {
            // The server refuses a token whose record can't be read, so its name doesn't matter.
            let has_name =
                matches!(self.record(&id), Ok(Some(record)) if record.name == name_or_id);
            if has_name || id == name_or_id {
                folder.remove(&file_name(&id)).map_err(|error| self.error(error))?;
                revoked.push(id);
            }
        }
        // A power failure must not bring a revoked token back.
        rustix::fs::fsync(&folder).map_err(|errno| self.error(errno.into()))?;
        Ok(revoked)
    }

    /// Returns the record of a token that is neither revoked nor expired. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the record can't be read. The token must then be refused.
    pub fn valid(&self, id: &str) -> Result<Option<TokenRecord>, HostError> {
        let now = seconds();
        Ok(self.record(id)?.filter(|record| record.expires > now))
    }

    fn record(&self, id: &str) -> Result<Option<TokenRecord>, HostError> {
        // The ID is a part of a path.
        if !is_id(id) {
            return Ok(None);
        }
        state::read(&self.folder, &file_name(id))
    }

    /// Returns the number of other records. A record that can't be read stays.
    fn remove_expired(&self, folder: &PrivateFolder) -> Result<usize, HostError> {
        let mut count = 0;
        for id in self.ids(folder)? {
            if matches!(self.valid(&id), Ok(None)) {
                folder.remove(&file_name(&id)).map_err(|error| self.error(error))?;
            } else {
                count += 1;
            }
        }
        Ok(count)
    }

    fn open(&self) -> Result<Option<PrivateFolder>, HostError> {
        match PrivateFolder::open(&self.folder) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    fn ids(&self, folder: &PrivateFolder) -> Result<Vec<String>, HostError> {
        let mut ids = Vec::new();
        for name in folder.names(MAX_FILES).map_err(|error| self.error(error))? {
            if let Some(id) = name.strip_suffix(".json")
                && is_id(id)
            {
                ids.push(id.to_owned());
            }
        }
        Ok(ids)
    }

    fn error(&self, error: io::Error) -> HostError {
        HostError::io(self.folder.display().to_string())(error)
    }
}

/// The reason why a caller's token is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenFault {
    #[error("the token has expired: make a new one with `toolhold token new`")]
    Expired,
    #[error("the token was revoked")]
    Revoked,
    #[error("the token has expired, was revoked, or lost its rights during the request")]
    Ended,
    #[error("the token isn't one of this server")]
    Unknown,
    #[error("the server can't read the token's record")]
    Unreadable,
}

/// Checks the tokens of callers, and whether the operator denied the callers.
pub(super) struct TokenChecker {
    folders: Folders,
    tokens: LocalTokens,
    key: DecodingKey,
    validation: Validation,
}

#[derive(Deserialize)]
struct Claims {
    jti: String,
}

impl TokenChecker {
    /// Loads or creates the key.
    pub(super) fn new(folders: &Folders) -> Result<Self, HostError> {
        install_cryptography();
        let tokens = LocalTokens::new(folders);
        let key = state::secret(&tokens.folder, KEY)?;
        let mut validation = Validation::new(Algorithm::HS256);
        // The same machine makes and checks the token, so no difference of clocks is allowed.
        validation.leeway = 0;
        // In its last second, the token is no longer valid, as in `LocalTokens::valid`.
        validation.reject_tokens_expiring_in_less_than = 1;
        validation.set_issuer(&[NAME]);
        validation.set_required_spec_claims(&["exp", "iss", "sub"]);
        let key = DecodingKey::from_secret(key.as_bytes());
        Ok(Self { folders: folders.clone(), tokens, key, validation })
    }

    /// Checks whether `toolhold token` of some installation has made a token. Doesn't check the
    /// signature.
    pub(super) fn accepts(token: &str) -> bool {
        decode_header(token).is_ok_and(|header| {
            header.alg == Algorithm::HS256 && header.kid.as_deref() == Some(NAME)
        })
    }

    /// Checks the signature and the time of a token. Then reads its record, so that a forged token
    /// causes no I/O.
    pub(super) async fn check(self: &Arc<Self>, token: &str) -> Result<TokenRecord, TokenFault> {
        let decoded = decode::<Claims>(token, &self.key, &self.validation).map_err(|error| {
            match error.kind() {
                JwtErrorKind::ExpiredSignature => TokenFault::Expired,
                _ => TokenFault::Unknown,
            }
        })?;
        match self.valid(decoded.claims.jti).await {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(TokenFault::Revoked),
            Err(error) => {
                tracing::warn!("a token is refused: {error}");
                Err(TokenFault::Unreadable)
            }
        }
    }

    /// Reads the record of a token that is neither revoked nor expired.
    pub(super) async fn valid(
        self: &Arc<Self>,
        id: String,
    ) -> Result<Option<TokenRecord>, HostError> {
        let tokens = self.tokens.clone();
        match tokio::task::spawn_blocking(move || tokens.valid(&id)).await {
            Ok(result) => result,
            Err(error) => Err(self.tokens.error(io::Error::other(error))),
        }
    }

    /// Returns an error if the operator denied the caller, or the denials can't be read.
    pub(super) async fn check_admission(self: &Arc<Self>, who: &Who) -> Result<(), HostError> {
        let checker = Arc::clone(self);
        let who = who.clone();
        let checking =
            tokio::task::spawn_blocking(move || DeniedPrincipal::check(&checker.folders, &who));
        match checking.await {
            Ok(result) => result,
            Err(error) => Err(self.tokens.error(io::Error::other(error))),
        }
    }

    /// Returns the denied principals among `all`. A principal whose denial can't be read is denied.
    pub(super) async fn denied(
        self: &Arc<Self>,
        all: HashSet<PrincipalId>,
    ) -> HashSet<PrincipalId> {
        let checker = Arc::clone(self);
        let everybody = all.clone();
        let checking = tokio::task::spawn_blocking(move || {
            let is_admitted =
                |id: &PrincipalId| matches!(DeniedPrincipal::find(&checker.folders, id), Ok(None));
            all.into_iter().filter(|id| !is_admitted(id)).collect()
        });
        checking.await.unwrap_or(everybody)
    }
}

/// Returns the JSON Web Token for a record.
fn sign(record: &TokenRecord, key: &str) -> String {
    let header = json!({ "alg": "HS256", "kid": NAME, "typ": "JWT" });
    let claims = json!({
        "iss": NAME, "sub": record.name, "iat": record.made, "exp": record.expires,
        "jti": record.id,
    });
    let encoded_header = URL_SAFE_NO_PAD.encode(header.to_string());
    let encoded_claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    let signed = format!("{encoded_header}.{encoded_claims}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checks whether a name can be a part of a path, as in `allowed_paths = ["/srv/{sub}"]`.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte))
}

fn is_text(text: &str) -> bool {
    (1..=MAX_TEXT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    struct Scene {
        root: TempDir,
        tokens: LocalTokens,
    }

    impl Scene {
        fn new() -> Self {
            let root = tempfile::tempdir().expect("a folder is made");
            let tokens = LocalTokens::new(&Folders::inside(root.path()));
            Self { root, tokens }
        }

        fn checker(&self) -> Arc<TokenChecker> {
            let folders = Folders::inside(self.root.path());
            Arc::new(TokenChecker::new(&folders).expect("the key is made"))
        }

        fn make(&self, name: &str) -> (TokenRecord, String) {
            self.tokens.make(new_token(name)).expect("a token is made")
        }

        fn file(&self, id: &str) -> PathBuf {
            self.tokens.folder.join(file_name(id))
        }
    }

    fn new_token(name: &str) -> NewToken {
        NewToken {
            name: name.to_owned(),
            groups: vec!["dev".to_owned()],
            table: None,
            lifetime: Duration::from_secs(3600),
            bounds: Vec::new(),
        }
    }

    #[tokio::test]
    async fn changed_byte_makes_a_token_invalid() {
        let scene = Scene::new();
        let checker = scene.checker();
        let (record, token) = scene.make("ci");
        assert!(TokenChecker::accepts(&token));
        assert_eq!(checker.check(&token).await.expect("it is valid"), record);
        for index in 0..token.len() {
            for new in ["A", "B", "z", "9", "-", "_", ".", "", "AA"] {
                let mut changed = token.clone();
                changed.replace_range(index..=index, new);
                if changed != token {
                    let fault = checker.check(&changed).await.expect_err("it was changed");
                    assert!(matches!(fault, TokenFault::Unknown), "{index} {new}: {fault}");
                }
            }
        }
        for added in ["A", ".", "=", "\n"] {
            assert!(checker.check(&format!("{token}{added}")).await.is_err(), "{added:?}");
        }
    }

    #[tokio::test]
    async fn claims_need_the_signature_of_this_installation() {
        let scene = Scene::new();
        let checker = scene.checker();
        let other = Scene::new();
        let (record, token) = other.make("ci");
        // The record alone doesn't make the token valid.
        scene.make("other");
        fs::copy(other.file(&record.id), scene.file(&record.id)).expect("the record is copied");
        assert!(matches!(checker.check(&token).await, Err(TokenFault::Unknown)));

        let (own, _) = scene.make("ci");
        let key = state::secret(&scene.tokens.folder, KEY).expect("there is a key");
        assert!(checker.check(&sign(&own, &key)).await.is_ok());
        for wrong_key in ["", NAME, "0"] {
            assert!(checker.check(&sign(&own, wrong_key)).await.is_err(), "{wrong_key:?}");
        }
        let (_, claims) = token.split_once('.').expect("it has parts");
        let (claims, _) = claims.split_once('.').expect("it has parts");
        let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "none", "kid": NAME }).to_string());
        for unsigned in [format!("{header}.{claims}."), format!("{header}.{claims}")] {
            assert!(checker.check(&unsigned).await.is_err(), "{unsigned}");
        }
        // No signature makes a path of an ID.
        let path = TokenRecord { id: "../tokens/key".to_owned(), ..own };
        assert!(matches!(checker.check(&sign(&path, &key)).await, Err(TokenFault::Revoked)));
    }

    #[tokio::test]
    async fn expired_and_revoked_tokens_are_refused() {
        let scene = Scene::new();
        let checker = scene.checker();
        let key = state::secret(&scene.tokens.folder, KEY).expect("there is a key");
        let (record, _) = scene.make("ci");
        let expired = TokenRecord { expires: seconds() - 1, ..record.clone() };
        assert!(matches!(checker.check(&sign(&expired, &key)).await, Err(TokenFault::Expired)));
        // The record decides, too.
        let text = serde_json::to_vec(&expired).expect("it is JSON");
        fs::write(scene.file(&record.id), text).expect("the record is written");
        assert!(checker.check(&sign(&record, &key)).await.is_err());
        assert!(scene.tokens.list().expect("it is read").0.is_empty());
        scene.make("other");
        assert!(!scene.file(&record.id).exists(), "a new token removes expired records");

        let [first, second, other] = ["ci", "ci", "web"].map(|name| scene.make(name));
        assert_eq!(scene.tokens.revoke("nobody").expect("it is read"), [""; 0]);
        assert_eq!(scene.tokens.revoke("../key").expect("it is read"), [""; 0]);
        assert_eq!(scene.tokens.revoke(&first.0.id).expect("it is revoked"), [first.0.id]);
        assert!(matches!(checker.check(&first.1).await, Err(TokenFault::Revoked)));
        assert!(checker.check(&second.1).await.is_ok());
        assert_eq!(scene.tokens.revoke("ci").expect("it is revoked"), [second.0.id]);
        assert!(matches!(checker.check(&second.1).await, Err(TokenFault::Revoked)));
        assert!(checker.check(&other.1).await.is_ok());
    }

    #[tokio::test]
    async fn files_are_private_and_must_stay_so() {
        let scene = Scene::new();
        let (record, token) = scene.make("ci");
        let checker = scene.checker();
        let mode =
            |path: PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o7777;
        let key = scene.tokens.folder.join(KEY);
        assert_eq!(mode(scene.tokens.folder.clone()), 0o700);
        assert_eq!([mode(key.clone()), mode(scene.file(&record.id))], [0o600, 0o600]);
        let text = fs::read_to_string(scene.file(&record.id)).expect("it is read");
        assert!(!text.contains(&token), "the token isn't stored: {text}");

        let set_mode = |path: &PathBuf, mode: u32| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode is set");
        };
        set_mode(&scene.file(&record.id), 0o666);
        assert!(matches!(checker.check(&token).await, Err(TokenFault::Unreadable)));
        assert_eq!(scene.tokens.list().expect("the others are read").1.len(), 1);
        set_mode(&scene.file(&record.id), 0o600);
        assert!(checker.check(&token).await.is_ok());
        set_mode(&key, 0o644);
        assert!(TokenChecker::new(&Folders::inside(scene.root.path())).is_err());
        assert!(scene.tokens.make(new_token("ci")).is_err());
    }

    #[test]
    fn invalid_names_groups_and_times_make_no_token() {
        let scene = Scene::new();
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", "a/b", "../x", ".", "-x", "a b", "a\nb", "ünï", "\0", &long] {
            let made = scene.tokens.make(new_token(name));
            assert!(matches!(made, Err(TokenError::Name)), "{name:?}");
        }
        for groups in [vec![String::new()], vec!["a\nb".to_owned()], vec!["a".to_owned(); 33]] {
            let made = scene.tokens.make(NewToken { groups, ..new_token("ci") });
            assert!(matches!(made, Err(TokenError::Text)));
        }
        for lifetime in [Duration::ZERO, MAX_LIFETIME + Duration::from_secs(1), Duration::MAX] {
            let made = scene.tokens.make(NewToken { lifetime, ..new_token("ci") });
            assert!(matches!(made, Err(TokenError::Lifetime)), "{lifetime:?}");
        }
        assert!(!scene.tokens.folder.exists(), "nothing was written");
        scene.make("anna.b@example.org+ci-1");
    }

    #[tokio::test]
    async fn ten_thousand_tokens_are_the_limit() {
        let scene = Scene::new();
        let (record, token) = scene.make("ci");
        let folder = PrivateFolder::open(&scene.tokens.folder).expect("it is there");
        for number in 1..MAX_TOKENS {
            let record = TokenRecord { id: format!("{number:032x}"), ..record.clone() };
            let text = serde_json::to_vec(&record).expect("it is JSON");
            folder.put_lightly(&file_name(&record.id), &text).expect("it is written");
        }
        assert!(matches!(scene.tokens.make(new_token("one-more")), Err(TokenError::Full)));
        assert!(scene.checker().check(&token).await.is_ok());
        assert_eq!(scene.tokens.revoke("ci").expect("they are revoked").len(), MAX_TOKENS);
        assert!(scene.checker().check(&token).await.is_err());
        scene.make("one-more");
    }
}
