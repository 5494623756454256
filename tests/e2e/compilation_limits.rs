//! Components that are small in text and take long to compile.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use toolhold_core::Host;
use toolhold_core::config::Folders;

use crate::support::{Component, Offer, run, toolhold, unasked};

/// A folder with a plugin in it, and folders of Toolhold's own.
struct Tried(TempDir);

impl Tried {
    /// A plugin with more in its core module.
    fn with(in_module: String) -> Self {
        Self::new(&Component {
            in_module: in_module.leak(),
            ..Component::offering(vec![Offer::named("tool")])
        })
    }

    fn new(component: &Component) -> Self {
        let root = TempDir::new().expect("a temporary folder is made");
        fs::write(root.path().join("plugin.wasm"), component.encode())
            .expect("the plugin is written");
        Self(root)
    }

    /// The reason why it doesn't load.
    async fn refused(&self, helper: &Path) -> String {
        let folders = Folders::inside(self.0.path());
        let builder = Host::builder()
            .config(unasked(&folders))
            .folders(folders)
            .working_directory(self.0.path());
        let host =
            builder.plugin_file(self.0.path().join("plugin.wasm")).helper(helper).build().await;
        host.err().expect("it does not load").to_string()
    }

    /// What is in the cache.
    fn kept_files(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.0.path().join("cache/compiled")).expect("there is a cache");
        folder.flatten().map(|entry| entry.path()).collect()
    }

    /// It fails for this reason, which is stored until the file named in the message is deleted.
    async fn fails_once(&self, reason: &str) {
        let nothing_compiles = Path::new("/does/not/exist");
        let message = self.refused(&toolhold()).await;
        assert!(message.contains(reason), "{message}");
        let [kept] = &self.kept_files()[..] else { panic!("{:?}", self.kept_files()) };
        assert!(message.contains(&format!("To try again, delete {}", kept.display())), "{message}");
        // Nothing can be compiled now: there is no program for it.
        assert_eq!(self.refused(nothing_compiles).await, message);
        fs::remove_file(kept).expect("it is deleted");
        let message = self.refused(nothing_compiles).await;
        assert!(
            message.contains("compiling the component failed") && !message.contains(reason),
            "{message}"
        );
        // That was this machine's fault, so it isn't stored.
        assert!(self.kept_files().is_empty(), "{:?}", self.kept_files());
    }
}

/// Nested loops, and the number of functions with them.
fn loops(deep: usize, functions: usize) -> String {
    let function =
        format!("(func {} {})", "loop ".repeat(deep), "i32.const 0 br_if 0 end ".repeat(deep));
    function.repeat(functions)
}

#[test]
fn loops_within_loops_are_not_compiled() {
    run(async {
        Tried::with(loops(40_000, 1)).fails_once("too many nested loops; the limit is 64").await;
        Tried::with(format!("(func {} {})", "block loop ".repeat(65), "end end ".repeat(65)))
            .fails_once("too many nested loops")
            .await;
    });
}

#[test]
fn very_many_functions_are_not_compiled() {
    run(async {
        Tried::with("(func)".repeat(500_000))
            .fails_once("too many functions; the limit for 2")
            .await;
    });
}

/// Thirty components, each of which makes two instances of the next: some hundred bytes, and a
/// thousand million instances.
#[test]
fn components_that_unfold_without_end_are_not_compiled() {
    run(async {
        let innermost =
            "(component $c (core module $m) (core instance (instantiate $m)))".to_owned();
        let nested = (0..30).fold(innermost, |inner, _| {
            format!(
                "(component $c {inner} (instance (instantiate $c)) (instance (instantiate $c)))"
            )
        });
        let component = Component {
            in_component: nested.leak(),
            ..Component::offering(vec![Offer::named("tool")])
        };
        Tried::new(&component).fails_once("too many nested instances; the limit is 1000").await;
    });
}

/// Nested blocks that all pass on the same values: a compiler names each value in each block.
fn values(blocks: usize, count: usize, functions: usize) -> String {
    let list = "i32 ".repeat(count);
    let body = format!(
        "{} {} {} {}",
        "i32.const 0 ".repeat(count),
        "block (type $values) ".repeat(blocks),
        "i32.const 1 br_if 0 end ".repeat(blocks),
        "drop ".repeat(count)
    );
    format!(
        "(type $values (func (param {list}) (result {list}))) {}",
        format!("(func {body})").repeat(functions)
    )
}

/// Its structure is allowed; the processor time that it needs isn't.
#[test]
fn compiling_time_is_bounded_by_the_component_s_size() {
    run(async {
        // Each takes 300 MiB too, so that memory ends first if many are compiled at a time.
        let few =
            std::thread::available_parallelism().is_ok_and(|processors| processors.get() <= 4);
        let reason = if few { "s of CPU time, the limit for" } else { ", the limit for" };
        Tried::with(values(350, 350, 300)).fails_once(reason).await;
    });
}

#[test]
fn compiling_memory_is_bounded_by_the_component_s_size() {
    run(async {
        Tried::with(values(2000, 1000, 1)).fails_once("MiB of memory, the limit for").await;
    });
}
