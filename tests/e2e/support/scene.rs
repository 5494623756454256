use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Answer, Content, Events, Host, Progress, Request, Resolve};

use super::artifacts::{builtin, plugin, toolhold};
use super::log;

/// Small limits, so that a call reaches them soon.
const BOUNDS: [&str; 8] = [
    // Attacks are about the limits that hold without a person.
    "tools.autonomy=full",
    "tools.call=1",
    "tools.limits.cpu_secs=1",
    "tools.limits.memory_mib=64",
    "tools.limits.result_mib=1",
    "tools.limits.written_mib=1",
    "tools.limits.handles=64",
    "tools.max_concurrent=8",
];

/// A granted folder, another beside it that isn't, and a host with the hostile plugin, the file
/// tools and an `echo`.
pub(crate) struct Scene {
    root: TempDir,
    /// The granted folder, the host's working directory.
    pub(crate) granted: PathBuf,
    /// The folder that isn't granted.
    pub(crate) outside: PathBuf,
    /// A file outside.
    pub(crate) secret_file: PathBuf,
    /// The content of the file, which is nowhere else.
    pub(crate) secret: String,
    before: BTreeMap<PathBuf, Trace>,
    pub(crate) host: Arc<Host>,
}

/// Resolves every name below `test` to this machine, and other names as the system does.
#[derive(Debug)]
struct TestNames;

impl Resolve for TestNames {
    fn resolve<'r>(
        &'r self,
        name: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        Box::pin(async move {
            if name.ends_with(".test") {
                return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
            }
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Parts of the outside that must not change.
type Trace = (Option<Vec<u8>>, u32, u64, i64, i64);

impl Scene {
    /// The plain scene.
    pub(crate) async fn new() -> Self {
        Self::with(&[], |_| {}).await
    }

    /// A scene with settings in addition to the plain ones. `{root}`, `{granted}` and `{outside}`
    /// in them are the folders. `prepare` fills the folders before the host is built, and gets the
    /// one that holds both.
    pub(crate) async fn with(settings: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        Self::in_folders(settings, prepare, |_| None).await
    }

    /// The same with Toolhold's own folders from `folders`.
    pub(crate) async fn in_folders(
        settings: &[&str],
        prepare: impl FnOnce(&Path),
        folders: impl FnOnce(&Path) -> Option<Folders>,
    ) -> Self {
        log::keep();
        let root = TempDir::new().expect("a temporary folder is made");
        let path = root.path().canonicalize().expect("the folder is there");
        let (granted, outside) = (path.join("granted"), path.join("outside"));
        let secret = format!(
            "secret-of-{}",
            path.file_name().expect("the folder has a name").to_string_lossy()
        );
        let secret_file = outside.join("secret.txt");
        fs::create_dir(&granted).and_then(|()| fs::create_dir(&outside)).expect("folders are made");
        fs::write(&secret_file, &secret).expect("the secret is written");
        fs::write(granted.join("public.txt"), "public").expect("a file is written");
        prepare(&path);
        let before = traces(&outside);

        let own = folders(&path).unwrap_or_else(|| Folders {
            cache: shared_cache(),
            ..Folders::inside(&path.join("toolhold"))
        });
        let mut all: Vec<String> = BOUNDS.iter().map(|&setting| setting.to_owned()).collect();
        all.push(format!("plugins.hostile.path={:?}", plugin("hostile")));
        all.push("plugins.hostile.reload=trust".to_owned());
        all.push(format!("plugins.hostile.allowed_paths=[{granted:?}]"));
        let fill = |setting: &str| {
            let fill = |text: String, name: &str, path: &Path| {
                text.replace(name, &path.display().to_string())
            };
            fill(
                fill(fill(setting.to_owned(), "{root}", &path), "{granted}", &granted),
                "{outside}",
                &outside,
            )
        };
        all.extend(settings.iter().map(|setting| fill(setting)));
        let loaded = config::load(
            &own,
            &Inputs { settings: all, variables: tools_of_the_user(), ..Inputs::default() },
        )
        .expect("the settings are valid");
        let host = Host::builder()
            .config(loaded)
            .folders(own)
            .working_directory(&granted)
            .builtins(&[
                builtin("file"),
                builtin("bench"),
                builtin("shell"),
                builtin("web"),
                builtin("diagnostics"),
                builtin("filters"),
                builtin("memory"),
            ])
            .helper(toolhold())
            .resolver(Arc::new(TestNames))
            .build();
        let host = Arc::new(host.await.expect("the plugins load"));
        Self { root, granted, outside, secret_file, secret, before, host }
    }

    /// The folder that holds everything.
    pub(crate) fn root(&self) -> PathBuf {
        self.root.path().canonicalize().expect("the folder is there")
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.host.call(Request::new(tool, arguments)).await
    }

    /// Calls a tool of the hostile plugin, and checks that it hasn't revealed the secret or changed
    /// anything outside.
    pub(crate) async fn attack(&self, tool: &str, arguments: Value) -> Answer {
        let answer = self.call(&format!("hostile__{tool}"), arguments).await;
        self.assert_safe(&answer);
        answer
    }

    /// The same with a listener for events.
    pub(crate) async fn attack_heard(
        &self,
        tool: &str,
        arguments: Value,
    ) -> (Answer, Arc<Recorder>) {
        let recorder = Arc::new(Recorder::default());
        let events: Arc<dyn Events> = Arc::clone(&recorder) as _;
        let answer = self
            .host
            .call(Request { events, ..Request::new(format!("hostile__{tool}"), arguments) })
            .await;
        self.assert_safe(&answer);
        (answer, recorder)
    }

    /// The same while others call a tool of another plugin: they are served.
    pub(crate) async fn attack_beside_others(&self, tool: &str, arguments: Value) -> Answer {
        let request = Request::new(format!("hostile__{tool}"), arguments);
        let host = Arc::clone(&self.host);
        let attack = tokio::spawn(async move { host.call(request).await });
        self.assert_serves().await;
        let answer = attack.await.expect("the host does not panic");
        self.assert_safe(&answer);
        self.assert_serves().await;
        answer
    }

    /// The host answers other calls.
    pub(crate) async fn assert_serves(&self) {
        for number in 0..20 {
            let text = format!("hello {number}");
            let answer = self.call("echo", json!({ "text": text })).await;
            let output = answer
                .outcome
                .unwrap_or_else(|failure| panic!("others are served: {}", failure.message));
            assert_eq!(output.joined_text(), text);
        }
    }

    /// The secret is nowhere in an answer, and everything outside is unchanged.
    #[track_caller]
    pub(crate) fn assert_safe(&self, answer: &Answer) {
        let whole = format!("{:?}", answer.outcome);
        assert!(!whole.contains(&self.secret), "the secret got out: {whole}");
        self.assert_untouched();
    }

    /// Everything outside is unchanged.
    #[track_caller]
    pub(crate) fn assert_untouched(&self) {
        assert_eq!(traces(&self.outside), self.before, "something outside was changed");
    }
}

/// Stores the events of a running call.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) progress: Mutex<Vec<Progress>>,
    pub(crate) parts: Mutex<Vec<Content>>,
    /// Wakes the task that waits for a part.
    pub(crate) emitted: tokio::sync::Notify,
}

impl Events for Recorder {
    fn progress(&self, progress: Progress) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
    }

    fn emitted(&self, part: &Content) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part.clone());
        self.emitted.notify_one();
    }
}

/// The folders of the user's own tools, for commands.
fn tools_of_the_user() -> Vec<(OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| ["PATH", "CARGO_HOME", "RUSTUP_HOME"].iter().any(|known| name == known))
        .collect()
}

/// Everything below a folder, with its bytes, mode, links and times.
fn traces(folder: &Path) -> BTreeMap<PathBuf, Trace> {
    let mut traces = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).expect("what is outside stays there");
        if metadata.is_dir() {
            pending.extend(
                fs::read_dir(&path)
                    .expect("the folder is readable")
                    .flatten()
                    .map(|entry| entry.path()),
            );
        }
        let bytes = if metadata.is_file() { fs::read(&path).ok() } else { None };
        // Not of folders: the tests themselves may move things into and out of them.
        let times =
            if metadata.is_dir() { (0, 0) } else { (metadata.mtime(), metadata.mtime_nsec()) };
        traces.insert(path, (bytes, metadata.mode(), metadata.nlink(), times.0, times.1));
    }
    traces
}

/// A configuration in which acting calls need no approval, and nothing else is set.
pub(crate) fn unasked(folders: &Folders) -> config::Config {
    let settings = vec!["tools.autonomy=full".to_owned()];
    config::load(folders, &Inputs { settings, ..Inputs::default() }).expect("the setting is valid")
}

/// Code that was compiled for one test serves the others.
pub(crate) fn shared_cache() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toolhold-cache");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .expect("a cache folder is made");
    folder
}
