//! The paths of Toolhold's own folders, and of the files in them.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toolhold_contract::HostError;
use toolhold_policy::files::OwnFolder;
use toolhold_signing::KEY_FOLDER;

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
        }
    }

    /// Returns the path of the user's configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.config.join("toolhold.toml")
    }

    /// Returns Toolhold's folders for the path rules. Tools can't write in these folders. Tools can
    /// read only the configuration, without its signing keys.
    pub fn own_folders(&self) -> Vec<OwnFolder> {
        let mut folders = vec![self.clone()];
        // The default folders are included even if variables name other folders. Otherwise a tool
        // could put files into the default folders, and a later run would use these files.
        if let Some(home) = &self.home {
            let default = Self {
                config: home.join(".config/toolhold"),
                data: home.join(".local/share/toolhold"),
                cache: home.join(".cache/toolhold"),
                home: None,
            };
            folders.push(default);
        }
        let mut own: Vec<OwnFolder> = Vec::new();
        for Self { config, data, cache, .. } in folders {
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

    /// Returns the folder with the approvals of the servers of `[mcp.servers]`. Each server has a
    /// `.json` file.
    pub fn servers(&self) -> PathBuf {
        self.data.join("servers")
    }

    /// Returns the folder with the packages of the server `name` that `npx` or `uvx` fetches.
    pub fn server_packages(&self, name: &str) -> PathBuf {
        self.cache.join("servers").join(name)
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
    fn missing_path_resolves_to_its_future_name() {
        assert_eq!(
            real_or_given(Path::new("/proc/self/../no-such/deeper")),
            PathBuf::from("/proc/no-such/deeper")
        );
        assert_eq!(real_or_given(Path::new("/")), PathBuf::from("/"));
    }
}
