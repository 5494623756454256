//! Hosts to measure, each with only what it needs. The rows don't know how a host is built.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::runtime::{Builder, Runtime};
use toolhold_core::config::{self, Config, Folders, Inputs, Who};
use toolhold_core::{
    Audience, Builtin, EmbeddedFile, Host, HostBuilder, Output, PluginState, Request, Resolve,
};

use crate::measure::median;

/// The smallest tool, of the plugin `bench`.
pub(crate) const ECHO: &str = "bench__echo";

/// A host and what runs its calls.
pub(crate) struct Sandbox {
    runtime: Runtime,
    host: Host,
}

impl Sandbox {
    /// The file tools, with `directory` as their working directory.
    pub(crate) fn with_files(repository: &Path, directory: &Path) -> Result<Sandbox, String> {
        Sandbox::build(builder(repository)?.working_directory(directory))
    }

    /// The same with the default cache of answers.
    pub(crate) fn with_kept_answers(
        repository: &Path,
        directory: &Path,
    ) -> Result<Sandbox, String> {
        Sandbox::build(builder(repository)?.config(Config::default()).working_directory(directory))
    }

    /// The file tools and the echoing plugin.
    pub(crate) fn with_echo(repository: &Path, scratch: &Path) -> Result<Sandbox, String> {
        let plugin = repository.join("target/plugins/bench.wasm");
        Sandbox::build(builder(repository)?.working_directory(scratch).plugin_file(plugin))
    }

    /// The built-in tools, with folders of their own below `home`, `directory` to work in, and
    /// settings over the defaults.
    pub(crate) fn with_builtins(
        repository: &Path,
        home: &Path,
        directory: &Path,
        settings: &[&str],
    ) -> Result<Sandbox, String> {
        let folders = Folders::inside(home);
        let builder = builder(repository)?
            .config(loaded(&folders, settings)?)
            .folders(folders)
            .working_directory(directory);
        Sandbox::build(builder)
    }

    /// The same, and every name is one of this machine.
    pub(crate) fn with_own_names(
        repository: &Path,
        home: &Path,
        directory: &Path,
        settings: &[&str],
    ) -> Result<Sandbox, String> {
        let folders = Folders::inside(home);
        let builder = builder(repository)?
            .config(loaded(&folders, settings)?)
            .folders(folders)
            .working_directory(directory)
            .resolver(Arc::new(OwnNames));
        Sandbox::build(builder)
    }

    /// Only the plugins that the settings name, with folders below `home`.
    pub(crate) fn without_builtins(home: &Path, settings: &[&str]) -> Result<Sandbox, String> {
        let folders = Folders::inside(home);
        let builder = Host::builder().config(loaded(&folders, settings)?).folders(folders);
        Sandbox::build(builder.working_directory(home))
    }

    /// The echoing plugin, with its own folders and additional settings.
    pub(crate) fn governed(
        repository: &Path,
        home: &Path,
        settings: &[&str],
    ) -> Result<Sandbox, String> {
        Sandbox::with_echo_in(repository, Folders::inside(home), repository, settings)
    }

    /// The built-in tools and the echoing plugin, with these folders, `directory` to work in, and
    /// additional settings.
    pub(crate) fn with_echo_in(
        repository: &Path,
        folders: Folders,
        directory: &Path,
        settings: &[&str],
    ) -> Result<Sandbox, String> {
        let builder = builder(repository)?
            .config(loaded(&folders, settings)?)
            .folders(folders)
            .working_directory(directory);
        Sandbox::build(builder.plugin_file(repository.join("target/plugins/bench.wasm")))
    }

    /// A host that watches its plugin folder, which it trusts, and that folder.
    pub(crate) fn with_folder(
        repository: &Path,
        home: &Path,
    ) -> Result<(Sandbox, PathBuf), String> {
        let folders = Folders::inside(home);
        let plugins = folders.data.join("plugins");
        let mut made = std::fs::DirBuilder::new();
        made.recursive(true)
            .mode(0o700)
            .create(&plugins)
            .map_err(|error| format!("can't create {}: {error}", plugins.display()))?;
        let loaded = loaded(&folders, &["plugin_folder.reload=trust"])?;
        let builder =
            builder(repository)?.config(loaded).folders(folders).working_directory(home).watch();
        Ok((Sandbox::build(builder)?, plugins))
    }

    /// A host of the principal with this number, in the engine of this sandbox. It has answered one
    /// call.
    pub(crate) fn further_host(
        &self,
        builtins: &[Builtin],
        home: &Path,
        number: usize,
    ) -> Result<Host, String> {
        let who = Who {
            issuer: "https://login.example.org".to_owned(),
            subject: number.to_string(),
            groups: Vec::new(),
            client: None,
            token: None,
        };
        let folders = Folders::inside(home).of_principal(&who.id());
        let builder = Host::builder()
            .builtins(builtins)
            .config(loaded(&folders, &[])?)
            .folders(folders)
            .working_directory(home)
            .shares_engine(&self.host)
            .principal(who);
        self.runtime.block_on(async {
            let host = builder
                .build()
                .await
                .map_err(|error| format!("a further host does not start: {error}"))?;
            let request = Request::new("list_directory", json!({ "path": "." }));
            match host.call(request).await.outcome {
                Ok(_) => Ok(host),
                Err(failure) => Err(format!("list_directory failed: {}", failure.message)),
            }
        })
    }

    /// The runtime of the calls.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// One call, which must succeed. Its answer is read completely, like the output of the program
    /// that it is compared with.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Output, String> {
        self.call_for(Audience::Person, tool, arguments).await
    }

    /// One call, which must succeed, with a shaped answer.
    pub(crate) async fn call_for(
        &self,
        audience: Audience,
        tool: &str,
        arguments: Value,
    ) -> Result<Output, String> {
        self.host
            .call(Request { audience, ..Request::new(tool, arguments) })
            .await
            .outcome
            .map_err(|failure| format!("{tool} failed: {}", failure.message))
    }

    /// One call, from a thread outside the runtime.
    pub(crate) fn call_and_wait(&self, tool: &str, arguments: Value) -> Result<Output, String> {
        self.runtime.block_on(self.call(tool, arguments))
    }

    /// One call: whether its answer came from the cache.
    pub(crate) fn is_kept(&self, tool: &str, arguments: &Value) -> Result<bool, String> {
        let answer = self.runtime.block_on(self.host.call(Request::new(tool, arguments.clone())));
        answer
            .outcome
            .map(|_| answer.cached)
            .map_err(|failure| format!("{tool} failed: {}", failure.message))
    }

    /// The structured answer of a call.
    pub(crate) fn structured(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        self.call_and_wait(tool, arguments)?
            .structured
            .ok_or(format!("{tool} answered without structured output"))
    }

    /// The number of warm instances of a plugin.
    pub(crate) fn ready(&self, plugin: &str) -> usize {
        self.state(plugin, |state| state.ready)
    }

    /// The number of versions of a plugin that have served.
    pub(crate) fn generation(&self, plugin: &str) -> u64 {
        self.state(plugin, |state| state.generation)
    }

    fn state<T: Default>(&self, plugin: &str, of: impl Fn(&PluginState) -> T) -> T {
        self.host.plugins().iter().find(|state| state.name == plugin).map(of).unwrap_or_default()
    }

    /// Waits until a condition is true.
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn() -> bool) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(30);
        while !holds() {
            if Instant::now() > end {
                return Err(format!(
                    "it never came to this: {what}; the plugins: {:?}",
                    self.host.plugins()
                ));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// The median time of this number of consecutive calls of the echo tool.
    pub(crate) fn p50(&self, calls: usize) -> Result<Duration, String> {
        self.runtime.block_on(async {
            let mut times = Vec::with_capacity(calls);
            for _ in 0..calls {
                let start = Instant::now();
                self.call(ECHO, json!({ "text": "hello" })).await?;
                times.push(start.elapsed());
            }
            Ok(median(times))
        })
    }

    fn build(builder: HostBuilder) -> Result<Sandbox, String> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| format!("the runtime does not start: {error}"))?;
        let host = runtime
            .block_on(builder.build())
            .map_err(|error| format!("the host does not start: {error}"))?;
        Ok(Sandbox { runtime, host })
    }
}

#[derive(Debug)]
struct OwnNames;

impl Resolve for OwnNames {
    fn resolve<'r>(
        &'r self,
        _: &'r str,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'r>> {
        Box::pin(async { Ok(vec![Ipv4Addr::LOCALHOST.into()]) })
    }
}

/// A host with the built-in plugins and its own folders: nobody's configuration counts, and
/// compiled code is kept between runs. It caches no answers, since most rows repeat the same call
/// to measure its run.
fn builder(repository: &Path) -> Result<HostBuilder, String> {
    let builtins = builtins(repository)?;
    let folders = Folders::inside(&repository.join("target/bench/home"));
    // Hundreds of thousands of calls are recorded; the records aren't read.
    let loaded = loaded(&folders, &["tools.result_cache.enabled=false", "audit.keep=1"])?;
    Ok(Host::builder().builtins(&builtins).config(loaded).folders(folders))
}

/// The built-in plugins. Their bytes stay in memory until the end of the process.
pub(crate) fn builtins(repository: &Path) -> Result<Vec<Builtin>, String> {
    let parts = parts(&repository.join("target/plugins/parts"))?;
    let builtin = |name: &'static str| -> Result<Builtin, String> {
        let wasm = read(&repository.join(format!("target/plugins/{name}.wasm")))?;
        let wasm = EmbeddedFile::Plain(wasm.leak());
        Ok(Builtin { name, wasm, digest: None, parts, compiled: None })
    };
    let names = ["file", "shell", "web", "filters", "memory", "code", "diagnostics"];
    names.into_iter().map(builtin).collect()
}

/// The parts in a folder, by their names and digests. The bench finds them beside itself.
fn parts(folder: &Path) -> Result<&'static [(&'static str, &'static str)], String> {
    let mut parts = Vec::new();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = file.path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            let digest = Sha256::digest(read(&path)?);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            parts.push((&*name.leak(), &*digest.leak()));
        }
    }
    Ok(parts.leak())
}

fn loaded(folders: &Folders, settings: &[&str]) -> Result<Config, String> {
    let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
    config::load(folders, &Inputs { settings, ..Inputs::default() })
        .map_err(|error| error.to_string())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| {
        format!("can't read {}: {error}; build with `cargo xtask bench`", path.display())
    })
}
