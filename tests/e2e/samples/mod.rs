//! The samples of `plugins/samples`, which anybody could have written: each is built and used as
//! its README says, and then attacked.

mod git;
mod images;
mod search;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::docs::built;
use crate::docs::markdown::{Block, blocks, document, root};
use crate::docs::session::Session;
use crate::support::fetched;

/// A sample, which is built once for all tests.
struct Sample {
    name: &'static str,
    /// The folder of fetched software with its compiler, and the folder of programs there.
    compiler: Option<(&'static str, &'static str)>,
    folder: OnceLock<PathBuf>,
}

static GIT: Sample = Sample::new("git", None);
static SEARCH: Sample = Sample::new("web-search", None);
static CALCULATOR: Sample = Sample::new("calculator", Some(("plugins-python", "bin")));
static IMAGES: Sample =
    Sample::new("image-info", Some(("plugins-javascript", "node_modules/.bin")));

impl Sample {
    const fn new(name: &'static str, compiler: Option<(&'static str, &'static str)>) -> Self {
        Self { name, compiler, folder: OnceLock::new() }
    }

    fn readme(&self) -> Vec<Block> {
        blocks(&document(&format!("plugins/samples/{}/README.md", self.name)))
    }

    /// A file that the README shows.
    fn shown(&self, file: &str) -> String {
        let found = self.readme().into_iter().find(|block| block.file.as_deref() == Some(file));
        found.unwrap_or_else(|| panic!("the README of {} shows no {file}", self.name)).text
    }

    /// A shell in the folder of the sample, which is built, tested, and passes `toolhold plugin
    /// test`. `None`, with a notice, if its compiler couldn't be fetched.
    fn session(&self) -> Option<Session> {
        let tools = match self.compiler {
            Some((software, programs)) => Some(fetched(software)?.join(programs)),
            None => None,
        };
        let session = |folder: &Path| {
            let mut session = Session::new(folder);
            session.tools.clone_from(&tools);
            session
        };
        let folder = self.folder.get_or_init(|| {
            let folder = self.copy();
            let session = session(&folder);
            let readme = self.readme();
            let builds: Vec<&Block> =
                readme.iter().filter(|block| block.language == "sh").collect();
            assert_eq!(builds.len(), 1, "the README of {} says how it is built", self.name);
            session.try_block(builds[0]);
            folder
        });
        Some(session(folder))
    }

    /// The component, and the notice of `session` if there is none.
    fn component(&self) -> Option<PathBuf> {
        Some(self.session()?.folder.join(format!("{}.wasm", self.name)))
    }

    /// Copies the sample, where it finds the SDKs as in the repository. Always to the same folder,
    /// or cargo would keep a build for each.
    fn copy(&self) -> PathBuf {
        let place = built().join("samples");
        let folder = place.join("samples").join(self.name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder is made");
        for sdk in ["sdk-python", "sdk-javascript"] {
            match symlink(root().join("plugins").join(sdk), place.join(sdk)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => panic!("{error}"),
                _ => {}
            }
        }
        copy(&root().join("plugins/samples").join(self.name), &folder);
        if let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) {
            // The same path as that of the example, for which the SDK is built already.
            let sdk = root().join("plugins/sdk").display().to_string();
            fs::write(folder.join("Cargo.toml"), manifest.replace("../../sdk", &sdk))
                .expect("a file is written");
        }
        folder
    }

    /// Runs the commands of the README, with the files that it shows. `change` puts what is on this
    /// machine into those.
    fn follow(&self, change: impl Fn(&str) -> String) -> Option<Session> {
        let session = self.session()?;
        for block in self.readme() {
            match &block.file {
                Some(name) => session.write(name, change(&block.text)),
                None if block.language == "console" => session.try_block(&block),
                None => {}
            }
        }
        Some(session)
    }
}

/// Copies the sources, and nothing that a build has left.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("it can be read");
        let name = entry.file_name().to_string_lossy().into_owned();
        let left = ["build", "target", "node_modules", ".venv", "__pycache__"];
        if entry.path().is_file() && !name.ends_with(".wasm") {
            fs::copy(entry.path(), to.join(name)).expect("a file is copied");
        } else if entry.path().is_dir() && !left.contains(&name.as_str()) {
            fs::create_dir_all(to.join(&name)).expect("a folder is made");
            copy(&entry.path(), &to.join(name));
        }
    }
}

#[test]
fn git_works_as_its_readme_says() {
    GIT.session().expect("it needs nothing that has to be fetched");
    let project = GIT.folder.get().expect("it was built").join("project");
    let _ = fs::remove_dir_all(project);
    GIT.follow(str::to_owned);
}

#[test]
fn calculator_works_as_its_readme_says() {
    CALCULATOR.follow(str::to_owned);
}

#[test]
fn image_info_works_as_its_readme_says() {
    IMAGES.follow(str::to_owned);
}

#[test]
fn every_sample_is_listed_and_tested() {
    let page = document("plugins/samples/README.md");
    let samples = [&GIT, &SEARCH, &CALCULATOR, &IMAGES];
    for entry in fs::read_dir(root().join("plugins/samples")).expect("there are samples").flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            assert!(page.contains(&format!("]({name}/README.md)")), "{name} is not listed");
            assert!(samples.iter().any(|sample| sample.name == name), "{name} is not tested");
        }
    }
}
