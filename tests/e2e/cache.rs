//! Compiled code is only used again if no other user can have written it. A host whose helper
//! doesn't work shows whether it was.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use toolhold_core::config::Folders;
use toolhold_core::{Host, Request};

use crate::support::{Cli, Component, Offer, run, toolhold, unasked};

/// A plugin and Toolhold's own folders, its code compiled into the cache.
struct Compiled {
    root: TempDir,
    /// The folder with the code.
    folder: PathBuf,
    /// The code.
    code: PathBuf,
    /// What it offers.
    offer: PathBuf,
}

impl Compiled {
    async fn new() -> Self {
        let root = TempDir::new().expect("a temporary folder is made");
        let component = Component::offering(vec![Offer::named("tool")]).encode();
        fs::write(root.path().join("plugin.wasm"), component).expect("the plugin is written");
        let folder = root.path().join("cache/compiled");
        let mut compiled = Self { root, code: PathBuf::new(), offer: PathBuf::new(), folder };
        compiled.host(&toolhold()).await.expect("it compiles");
        let kept = fs::read_dir(&compiled.folder).expect("there is a cache").flatten();
        let mut kept: Vec<PathBuf> = kept.map(|file| file.path()).collect();
        kept.sort_by_key(|file| file.extension() != Some("cwasm".as_ref()));
        assert_eq!(kept.len(), 2, "the code and what it offers were kept: {kept:?}");
        compiled.offer = kept.remove(1);
        compiled.code = kept.remove(0);
        compiled
    }

    async fn host(&self, helper: &Path) -> Result<Host, String> {
        let folders = Folders::inside(self.root.path());
        let builder = Host::builder()
            .config(unasked(&folders))
            .folders(folders)
            .working_directory(self.root.path());
        let host =
            builder.plugin_file(self.root.path().join("plugin.wasm")).helper(helper).build().await;
        host.map_err(|error| error.to_string())
    }

    /// Whether a host that can't compile has the plugin anyway.
    async fn is_used(&self) -> bool {
        match self.host(Path::new("/does/not/exist")).await {
            Ok(host) => {
                let answer = host.call(Request::new("handmade__tool", json!({}))).await;
                let failure = answer.outcome.expect_err("the tool itself crashes");
                let is_used = failure.code.as_deref() == Some("crash");
                assert!(
                    is_used || failure.message.contains("compiling the component failed"),
                    "{failure:?}"
                );
                is_used
            }
            Err(message) => {
                assert!(message.contains("compiling the component failed"), "{message}");
                false
            }
        }
    }

    /// A host that can compile has a working plugin, whatever is in the cache.
    async fn assert_loads(&self) {
        let host = self.host(&toolhold()).await.expect("it is compiled anew");
        let answer = host.call(Request::new("handmade__tool", json!({}))).await;
        assert_eq!(
            answer.outcome.expect_err("the tool itself crashes").code.as_deref(),
            Some("crash")
        );
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode is set");
}

#[test]
fn code_is_compiled_once() {
    run(async {
        let compiled = Compiled::new().await;
        assert_eq!(
            fs::metadata(&compiled.folder).expect("it is there").permissions().mode() & 0o777,
            0o700
        );
        assert!(compiled.is_used().await);
    });
}

#[test]
fn cache_that_others_can_enter_is_not_used() {
    run(async {
        let compiled = Compiled::new().await;
        for mode in [0o777, 0o770, 0o707, 0o750, 0o701] {
            set_mode(&compiled.folder, mode);
            assert!(!compiled.is_used().await, "{mode:o}");
            compiled.assert_loads().await;
        }
        set_mode(&compiled.folder, 0o700);
        assert!(compiled.is_used().await);
    });
}

#[test]
fn code_that_others_may_write_is_not_used() {
    run(async {
        let compiled = Compiled::new().await;
        for mode in [0o602, 0o620, 0o666] {
            set_mode(&compiled.code, mode);
            assert!(!compiled.is_used().await, "{mode:o}");
        }
        compiled.assert_loads().await;
        assert!(compiled.is_used().await, "what was compiled anew took its place");
    });
}

#[test]
fn code_behind_a_link_is_not_used() {
    run(async {
        let compiled = Compiled::new().await;
        let aside = compiled.root.path().join("aside");
        fs::rename(&compiled.code, &aside)
            .and_then(|()| symlink(&aside, &compiled.code))
            .expect("a link is made");
        assert!(!compiled.is_used().await);
        fs::remove_file(&compiled.code)
            .and_then(|()| fs::rename(&aside, &compiled.code))
            .expect("the code is back");
        assert!(compiled.is_used().await);

        fs::rename(&compiled.folder, &aside)
            .and_then(|()| symlink(&aside, &compiled.folder))
            .expect("a link is made");
        assert!(!compiled.is_used().await);
        compiled.assert_loads().await;
    });
}

#[test]
fn damaged_cache_entry_is_compiled_anew() {
    run(async {
        let compiled = Compiled::new().await;
        for code in [&b""[..], b"\x7fELF", b"not code at all"] {
            // Replaced, not changed: the file may be mapped.
            fs::remove_file(&compiled.code)
                .and_then(|()| fs::write(&compiled.code, code))
                .expect("the code is replaced");
            set_mode(&compiled.code, 0o600);
            assert!(!compiled.is_used().await, "{code:?}");
            compiled.assert_loads().await;
            assert!(compiled.is_used().await);
        }
    });
}

#[test]
fn offer_that_others_may_write_or_that_is_damaged_is_not_used() {
    run(async {
        let compiled = Compiled::new().await;
        let honest = fs::read_to_string(&compiled.offer).expect("it is text");
        let forged = honest.replace("\"tool\"", "\"forged\"");
        assert_ne!(forged, honest);
        let cut = &honest[..honest.len() / 2];
        for (text, mode) in [(forged.as_str(), 0o602), (&forged, 0o620), (cut, 0o600), ("", 0o600)]
        {
            fs::write(&compiled.offer, text).expect("the offer is replaced");
            set_mode(&compiled.offer, mode);
            let host = compiled.host(&toolhold()).await.expect("it loads");
            assert!(host.tool("handmade__forged").is_none(), "{mode:o}");
            assert!(host.tool("handmade__tool").is_some(), "{mode:o}");
            let kept = fs::read_to_string(&compiled.offer).expect("it was asked, and kept anew");
            assert_eq!(kept, honest);
        }
    });
}

#[test]
fn code_of_another_user_is_not_used() {
    run(async {
        let compiled = Compiled::new().await;
        // Only root can change a file's owner; for others, root's file is another user's.
        for path in [&compiled.code, &compiled.folder] {
            match chown(path, Some(65_534), None) {
                Ok(()) => {
                    assert!(!compiled.is_used().await, "{}", path.display());
                    chown(path, Some(rustix::process::geteuid().as_raw()), None)
                        .expect("root takes it back");
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
                }
            }
        }
        assert!(compiled.is_used().await);
    });
}

#[test]
fn built_in_code_is_unpacked_once_and_only_into_a_closed_cache() {
    let cli = Cli::new();
    let folder = cli.root.path().join("cache/compiled");
    let read = || {
        let mut command = cli.command(&["call", "read", "path=notes.txt"]);
        command.env("TOOLHOLD_CACHE_DIR", cli.root.path().join("cache"));
        let ended = command.output().expect("toolhold starts");
        assert!(String::from_utf8_lossy(&ended.stdout).contains("second"), "{ended:?}");
    };
    let unpacked = || -> BTreeSet<(PathBuf, u64)> {
        let files = fs::read_dir(&folder).expect("there is a cache").flatten();
        let code = files.filter(|file| file.path().extension() == Some("cwasm".as_ref()));
        code.map(|file| (file.path(), file.metadata().expect("it is there").ino())).collect()
    };
    read();
    let first = unpacked();
    assert!(!first.is_empty());
    read();
    assert_eq!(unpacked(), first);
    // Others could put their code there: it works without the cache.
    fs::remove_dir_all(&folder).expect("it is removed");
    fs::create_dir(&folder).expect("a folder is made");
    set_mode(&folder, 0o777);
    read();
    assert_eq!(unpacked(), BTreeSet::new());
}
