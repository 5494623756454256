//! The files of a release and its workflow, as the programs of others see them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use toolhold_packaging::{Release, packages};

use crate::{Published, fetched, not_tried, release_for, root, succeeds};

#[test]
fn workflows_and_scripts_pass_their_linters() {
    let Some(python) = fetched("release-python") else { return };
    let workflows = fs::read_dir(root().join(".github/workflows")).expect("it is there");
    let workflows = workflows.map(|entry| entry.expect("it is there").path());
    let mut actionlint = Command::new(python.join("bin/actionlint"));
    actionlint.arg("-shellcheck").arg(python.join("bin/shellcheck"));
    succeeds(actionlint.args(["-pyflakes", "", "-no-color"]).args(workflows));
    let mut shellcheck = Command::new(python.join("bin/shellcheck"));
    for script in [".ci/release", "xtask/packaging/src/get.sh", "xtask/src/dist/install.sh"] {
        shellcheck.arg(root().join(script));
    }
    succeeds(shellcheck.args(["--shell", "sh"]));
}

/// Each step of the workflow that isn't an action is a command of the tree, or one line.
#[test]
fn steps_of_the_workflow_are_short() {
    let workflow = fs::read_to_string(root().join(".github/workflows/release.yml"));
    for line in workflow.expect("it is there").lines() {
        let Some((_, step)) = line.split_once("run: ") else { continue };
        assert!(step.len() < 120 && !step.starts_with(['|', '>']), "{step}");
    }
}

#[test]
fn entry_for_the_registry_of_mcp_matches_its_schema() {
    let release = Published::new();
    let entry = fs::read_to_string(release.path("server.json")).expect("it is there");
    let entry: Value = serde_json::from_str(&entry).expect("it is JSON");
    let bundle = &entry["packages"][2];
    let url = bundle["identifier"].as_str().expect("it has one");
    let (at, name) = url.rsplit_once('/').expect("it is a URL");
    assert_eq!(at, "https://github.com/example/toolhold/releases/download/v1.2.3");
    let bytes = fs::read(release.path(name)).expect("it is among the files");
    assert_eq!(bundle["fileSha256"], crate::sha256(&bytes));

    let Some(python) = fetched("release-python") else { return };
    let version = entry["$schema"].as_str().and_then(|schema| schema.split('/').nth_back(1));
    let version = version.expect("it has one").replace('-', "_");
    // The package itself can't be imported without what it depends on.
    let find = "from importlib.util import find_spec; \
                print(find_spec('skillsaw').submodule_search_locations[0])";
    let package = succeeds(Command::new(python.join("bin/python")).args(["-c", find]));
    let schema = format!("schemas/mcp_registry/v{version}/server.schema.json");
    let schema = fs::read_to_string(Path::new(package.trim_end()).join(schema));
    let schema = serde_json::from_str(&schema.expect("it is there")).expect("it is JSON");
    let schema = jsonschema::validator_for(&schema).expect("it is a schema");
    let errors: Vec<String> = schema.iter_errors(&entry).map(|error| error.to_string()).collect();
    assert_eq!(errors, [""; 0]);
}

#[test]
fn bundle_for_clients_of_mcp_is_read_by_their_tool() {
    let Some(clients) = fetched("release") else { return };
    let release = Published::new();
    let folder = TempDir::new().expect("a folder is made");
    let mcpb = |arguments: &[&str]| {
        let mut mcpb = Command::new(clients.join("node_modules/.bin/mcpb"));
        succeeds(mcpb.args(arguments).current_dir(&folder))
    };
    let bundle = release.path("toolhold-1.2.3-x86_64-linux.mcpb");
    mcpb(&["unpack", bundle.to_str().expect("it is UTF-8"), "bundle"]);
    let said = mcpb(&["validate", "bundle/manifest.json"]);
    assert!(said.contains("passes"), "{said}");
    let program = folder.path().join("bundle/bin/toolhold");
    assert_eq!(succeeds(&mut Command::new(program)), "toolhold 1.2.3\n");
    assert!(folder.path().join("bundle/lib/toolhold/parts/go.wasm").exists());
}

#[test]
fn formula_is_ruby_and_names_the_archives() {
    let release = Published::new();
    let formula = fs::read_to_string(release.path("toolhold.rb")).expect("it is there");
    for machine in ["x86_64", "aarch64"] {
        let archive = format!("{}.tar.gz", crate::archive_name(machine));
        let url = format!("https://github.com/example/toolhold/releases/download/v1.2.3/{archive}");
        let sum = crate::sha256(&fs::read(release.path(&archive)).expect("it is there"));
        let both = format!("    url \"{url}\"\n    sha256 \"{sum}\"\n");
        assert!(formula.contains(&both), "{formula}");
    }
    assert!(!formula.contains('@'), "{formula}");
    let Some(clients) = fetched("release") else { return };
    let parse = "import('@ruby/prism').then(async ({ loadPrism }) => {
        const { errors } = (await loadPrism())(require('fs').readFileSync(process.argv[1], 'utf8'));
        console.log(errors.map((error) => error.message).join('\\n'));
    })";
    let mut node = Command::new("node");
    node.args(["--no-warnings", "-e", parse]).arg(release.path("toolhold.rb"));
    assert_eq!(succeeds(node.current_dir(clients)).trim_end(), "");
}

#[test]
fn package_for_debian_is_installed_and_removed_by_dpkg() {
    if Command::new("dpkg").arg("--version").output().is_err() {
        return not_tried("dpkg");
    }
    let release = Published::new();
    let machine = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let package = release.path(&format!("toolhold_1.2.3_{machine}.deb"));
    let system = TempDir::new().expect("a folder is made");
    let admin = system.path().join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(admin.join(folder)).expect("a folder is made");
    }
    fs::write(admin.join("status"), "").expect("it is written");
    let dpkg = |arguments: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", system.path().display()));
        // Of a package without scripts, nothing needs the rights of root.
        dpkg.args(["--force-not-root", "--force-bad-path", "--log=/dev/null"]);
        succeeds(dpkg.args(arguments).env("LC_ALL", "C"))
    };
    dpkg(&["--install", package.to_str().expect("it is UTF-8")]);
    let usr = system.path().join("usr");
    assert_eq!(succeeds(&mut Command::new(usr.join("bin/toolhold"))), "toolhold 1.2.3\n");
    for file in [
        "lib/toolhold/parts/go.wasm",
        "share/man/man1/toolhold.1",
        "share/zsh/vendor-completions/_toolhold",
        "share/doc/toolhold/copyright",
    ] {
        assert!(usr.join(file).is_file(), "{file}");
    }
    assert!(dpkg(&["--status", "toolhold"]).contains("Version: 1.2.3\n"));
    assert_eq!(dpkg(&["--verify", "toolhold"]), "");
    dpkg(&["--remove", "toolhold"]);
    assert!(!usr.exists(), "something is left");
}

#[test]
fn version_before_a_release_comes_before_it_for_dpkg() {
    if Command::new("dpkg").arg("--version").output().is_err() {
        return not_tried("dpkg");
    }
    let before = Release { version: "1.2.3-rc.1".to_owned(), ..release_for("x86_64") };
    let made = packages(&before).expect("they are made");
    let package = made.iter().find(|package| package.file_name == "toolhold_1.2.3-rc.1_amd64.deb");
    let folder = TempDir::new().expect("a folder is made");
    let file = folder.path().join("before.deb");
    fs::write(&file, &package.expect("it is there").bytes).expect("it is written");
    let version = succeeds(Command::new("dpkg-deb").arg("--field").arg(file).arg("Version"));
    let mut compare = Command::new("dpkg");
    succeeds(compare.args(["--compare-versions", version.trim_end(), "lt", "1.2.3"]));
}

#[test]
fn sdks_are_installed_by_pip_and_npm() {
    let release = Published::new();
    let folder = TempDir::new().expect("a folder is made");
    if let Some(python) = fetched("release-python") {
        let mut pip = Command::new(python.join("bin/pip"));
        pip.args(["install", "--quiet", "--no-index", "--disable-pip-version-check", "--target"]);
        pip.arg(folder.path()).arg(release.path("toolhold_sdk-1.2.3-py3-none-any.whl"));
        succeeds(&mut pip);
        let mut python = Command::new(python.join("bin/python"));
        python.args(["-c", "import toolhold; print(toolhold.tool)"]).current_dir(&folder);
        assert_eq!(succeeds(&mut python), "1\n");
        // The SDK has no code of others.
        let licences = folder.path().join("toolhold_sdk-1.2.3.dist-info/licenses");
        let names = fs::read_dir(licences).expect("it is there");
        let names: Vec<_> = names.map(|entry| entry.expect("it is there").file_name()).collect();
        assert_eq!(names, ["LICENSE-MIT"]);
    }
    if Command::new("npm").arg("--version").output().is_err() {
        return not_tried("npm");
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error"]);
    succeeds(npm.arg(release.path("toolhold-sdk-1.2.3.tgz")).current_dir(&folder));
    let import = "import('toolhold-sdk').then((sdk) => console.log(sdk.tool))";
    let mut node = Command::new("node");
    assert_eq!(succeeds(node.args(["-e", import]).current_dir(&folder)), "1\n");
}
