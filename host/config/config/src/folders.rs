//! The paths of Toolhold's own folders, and of the files in them.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toolhold_contract::HostError;
use toolhold_policy::files::OwnFolder;
use toolhold_signing::KEY_FOLDER;

use crate::who::PrincipalId;

/// The folder of the operator's data with a folder for each principal of a server.
const PRINCIPALS: &str = "principals";

/// The folder with the state of upstream servers.
const SERVERS: &str = "servers";

/// The absolute paths of Toolhold's own folders. The folders may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// The folder of `toolhold.toml`: `$TOOLHOLD_CONFIG_DIR`, or `toolhold` in `$XDG_CONFIG_HOME`
    /// or `~/.config`.
    pub config: PathBuf,
    /// The folder of permanent data: `$TOOLHOLD_DATA_DIR`, or `toolhold` in `$XDG_DATA_HOME` or
    /// `~/.local/share`.
    pub data: PathBuf,
    /// The folder of data that can be made again, such as compiled plugins: `$TOOLHOLD_CACHE_DIR`,
    /// or `toolhold` in `$XDG_CACHE_HOME` or `~/.cache`.
    pub cache: PathBuf,
    /// The user's home directory, for `~`. `None` if it is unknown.
    pub home: Option<PathBuf>,
    /// The operator's folders, if `data` and `cache` are the folders of a principal.
    pub operator: Option<OperatorFolders>,
}

/// The folders that all principals of a server share, and that none of them may enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorFolders {
    /// The operator's folder of permanent data.
    pub data: PathBuf,
    /// The operator's folder of data that can be made again.
    pub cache: PathBuf,
}

impl Folders {
    /// Finds the folders of the user who runs this process.
    ///
    /// # Errors
    ///
    /// Fails with [`HostError::Config`] if a folder has no variable and there is no home directory.
    pub fn from_environment() -> Result<Self, HostError> {
        Self::resolve(&|name| env::var_os(name), env::home_dir())
    }

    /// Puts all of Toolhold's folders inside one folder, for tests and for programs that embed
    /// Toolhold.
    pub fn inside(folder: &Path) -> Self {
        Self {
            config: folder.join("config"),
            data: folder.join("data"),
            cache: folder.join("cache"),
            home: env::home_dir(),
            operator: None,
        }
    }

    /// Returns the folders of a principal: data and cache of its own, below the operator's.
    pub fn of_principal(&self, id: &PrincipalId) -> Self {
        let data = self.operator_data().to_owned();
        let cache = self.operator_cache().to_owned();
        Self {
            config: self.config.clone(),
            data: data.join(PRINCIPALS).join(id.as_str()),
            cache: cache.join(PRINCIPALS).join(id.as_str()),
            home: self.home.clone(),
            operator: Some(OperatorFolders { data, cache }),
        }
    }

    /// Returns the operator's folder of permanent data: approvals of plugins and servers, the
    /// audit log.
    pub fn operator_data(&self) -> &Path {
        self.operator.as_ref().map_or(&self.data, |operator| &operator.data)
    }

    /// Returns the operator's folder of data that can be made again: compiled plugins.
    pub fn operator_cache(&self) -> &Path {
        self.operator.as_ref().map_or(&self.cache, |operator| &operator.cache)
    }

    /// Checks whether data and cache are the folders of a principal.
    pub fn is_of_principal(&self) -> bool {
        self.operator.is_some()
    }

    /// Returns the folder with the folders of the principals.
    pub fn principals(&self) -> PathBuf {
        self.operator_data().join(PRINCIPALS)
    }

    /// Returns the path of the user's configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.config.join("toolhold.toml")
    }

    /// Returns Toolhold's folders for the path rules. Tools can't write in these folders. Tools can
    /// read only the configuration, without its signing keys.
    pub fn own_folders(&self) -> Vec<OwnFolder> {
        // The operator's folders contain those of all principals. A principal's own folders alone
        // would leave its neighbours' data open.
        let mut folders = vec![(
            self.config.clone(),
            self.operator_data().to_owned(),
            self.operator_cache().to_owned(),
        )];
        // The default folders are included even if variables name other folders. Otherwise a tool
        // could put files into the default folders, and a later run would use these files.
        if let Some(home) = &self.home {
            folders.push((
                home.join(".config/toolhold"),
                home.join(".local/share/toolhold"),
                home.join(".cache/toolhold"),
            ));
        }
        let mut own: Vec<OwnFolder> = Vec::new();
        for (config, data, cache) in folders {
            let keys = config.join(KEY_FOLDER);
            for (path, secret) in [(config, false), (keys, true), (data, true), (cache, true)] {
                // The same folder isn't listed twice: resolving its real path takes many system
                // calls.
                if !own.iter().any(|known| known.path == path) {
                    own.push(OwnFolder { path, secret });
                }
            }
        }
        own
    }

    /// Returns the folder with the operator's approvals of the servers of `[mcp.servers]`. Each
    /// server has a `.json` file.
    pub fn server_pins(&self) -> PathBuf {
        self.operator_data().join(SERVERS)
    }

    /// Returns the folder with the OAuth tokens for the servers of `[mcp.servers]`.
    pub fn server_tokens(&self) -> PathBuf {
        self.data.join(SERVERS).join("tokens")
    }

    /// Returns the folder with the packages of the server `name` that `npx` or `uvx` fetches.
    pub fn server_packages(&self, name: &str) -> PathBuf {
        self.cache.join(SERVERS).join(name)
    }

    /// Finds the folders by the values of variables and the home directory.
    fn resolve(
        variable: &dyn Fn(&str) -> Option<OsString>,
        home: Option<PathBuf>,
    ) -> Result<Self, HostError> {
        let home = home.filter(|home| home.is_absolute());
        let config = home.as_ref().map(|home| home.join(".config"));
        let data = home.as_ref().map(|home| home.join(".local/share"));
        let cache = home.as_ref().map(|home| home.join(".cache"));
        Ok(Self {
            config: own_folder(variable, "TOOLHOLD_CONFIG_DIR", "XDG_CONFIG_HOME", config)?,
            data: own_folder(variable, "TOOLHOLD_DATA_DIR", "XDG_DATA_HOME", data)?,
            cache: own_folder(variable, "TOOLHOLD_CACHE_DIR", "XDG_CACHE_HOME", cache)?,
            home,
            operator: None,
        })
    }
}

/// Finds one of Toolhold's folders. `own` names the variable with the folder itself. `xdg` names
/// the variable with the parent folder for all programs, and `home_default` is its default.
fn own_folder(
    variable: &dyn Fn(&str) -> Option<OsString>,
    own: &str,
    xdg: &str,
    home_default: Option<PathBuf>,
) -> Result<PathBuf, HostError> {
    if let Some(folder) = set_path(variable, own) {
        return std::path::absolute(&folder).map_err(HostError::io(format!("resolving {own}")));
    }
    // The XDG specification ignores relative values.
    let base = set_path(variable, xdg).filter(|base| base.is_absolute()).or(home_default);
    match base {
        Some(base) => Ok(base.join(toolhold_contract::NAME)),
        None => Err(HostError::Config(format!(
            "there is no home directory for Toolhold's folders; set HOME or {own}"
        ))),
    }
}

/// An empty variable is treated as missing.
fn set_path(variable: &dyn Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Who;
    use toolhold_system::files::real_or_given;

    #[track_caller]
    fn check(variables: &[(&str, &str)], home: Option<&str>, expected: Option<[&str; 3]>) {
        let variable = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        let folders = Folders::resolve(&variable, home.map(PathBuf::from)).ok();
        let folders = folders.map(|folders| [folders.config, folders.data, folders.cache]);
        assert_eq!(folders, expected.map(|paths| paths.map(PathBuf::from)));
    }

    #[test]
    fn first_folder_that_is_set_counts() {
        let home = ["/h/.config/toolhold", "/h/.local/share/toolhold", "/h/.cache/toolhold"];
        check(&[], Some("/h"), Some(home));
        check(&[("XDG_CONFIG_HOME", "relative"), ("XDG_CACHE_HOME", "")], Some("/h"), Some(home));
        check(&[("XDG_DATA_HOME", "/x")], Some("/h"), Some([home[0], "/x/toolhold", home[2]]));
        check(
            &[("XDG_CONFIG_HOME", "/x"), ("TOOLHOLD_CONFIG_DIR", "/b")],
            Some("/h"),
            Some(["/b", home[1], home[2]]),
        );
        let all = [
            ("TOOLHOLD_CONFIG_DIR", "/1"),
            ("TOOLHOLD_DATA_DIR", "/2"),
            ("TOOLHOLD_CACHE_DIR", "/3"),
        ];
        check(&all, None, Some(["/1", "/2", "/3"]));
        check(&all[..2], None, None);
    }

    #[test]
    fn principal_has_its_own_data_and_protects_everybodys() {
        let operator = Folders::inside(Path::new("/t"));
        let who = |subject: &str| Who {
            issuer: "https://login.example.org".into(),
            subject: subject.into(),
            groups: Vec::new(),
            client: None,
            token: None,
        };
        let anna = operator.of_principal(&who("anna").id());
        let ben = anna.of_principal(&who("ben").id());
        assert_eq!(ben, operator.of_principal(&who("ben").id()));
        assert_eq!(ben.operator_data(), Path::new("/t/data"));
        assert_eq!(ben.operator_cache(), Path::new("/t/cache"));
        assert!(ben.data != anna.data && ben.data.starts_with("/t/data/principals"));
        assert!(ben.cache != anna.cache && ben.cache.starts_with("/t/cache/principals"));
        assert_eq!(ben.own_folders(), operator.own_folders());
    }

    #[test]
    fn missing_path_resolves_to_its_future_name() {
        assert_eq!(
            real_or_given(Path::new("/proc/self/../no-such/deeper")),
            PathBuf::from("/proc/no-such/deeper")
        );
        assert_eq!(real_or_given(Path::new("/")), PathBuf::from("/"));
    }
}
