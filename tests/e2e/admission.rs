//! What `[installing]` keeps from being loaded, wherever a component lies, and by its effect: the
//! tool answers, or it doesn't.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Living, ends, version};

/// A user with a plugin `word` that is signed by the key `acme`, and a ceiling.
struct Company {
    living: Living,
    signed: PathBuf,
    unsigned: PathBuf,
    key: String,
}

impl Company {
    fn new() -> Self {
        let living = Living::new();
        let made =
            ends(&living.toolhold(&["plugin", "key", "new", "acme", "--no-password", "--json"]), 0);
        let made: Value = serde_json::from_str(&made).expect("it is JSON");
        let key = made["key"].as_str().expect("it has a key").to_owned();
        let [signed, unsigned] = ["signed", "unsigned"].map(|name| living.root().join(name));
        for (folder, says) in [(&signed, "signed"), (&unsigned, "unsigned")] {
            fs::create_dir(folder).expect("a folder is made");
            let component = version("word", "1.0.0", says).encode();
            fs::write(folder.join("word.wasm"), component).expect("it is written");
        }
        let [signed, unsigned] = [signed, unsigned].map(|folder| folder.join("word.wasm"));
        let file = signed.to_str().expect("it is UTF-8");
        ends(&living.toolhold(&["plugin", "sign", file, "--key", "acme"]), 0);
        Self { living, signed, unsigned, key }
    }

    /// Writes the ceiling. `KEY` stands for the key.
    fn rules(&self, ceiling: &str) -> PathBuf {
        let path = self.living.root().join("ceiling.toml");
        let text = ceiling.replace("KEY", &self.key);
        fs::write(&path, text).expect("the ceiling is written");
        path
    }

    /// The code and the output of a call of the plugin's tool under a ceiling. The user trusts the
    /// key with everything.
    fn call(&self, ceiling: &str, options: &[&str]) -> (Option<i32>, String) {
        let mut command = self.living.command();
        command.env("TOOLHOLD_CEILING", self.rules(ceiling));
        command.args(["--set", "tools.autonomy=full", "--set"]);
        command.arg(format!(
            "installing.keys=[{{ name = \"mine\", key = \"{}\", plugins = [\"*\"] }}]",
            self.key
        ));
        command.args(options).args(["call", "word__say", "--yes"]);
        let output = command.output().expect("toolhold starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    }

    #[track_caller]
    fn assert_runs(&self, ceiling: &str, options: &[&str], says: &str) {
        let (code, text) = self.call(ceiling, options);
        assert!(code == Some(0) && text.contains(says), "{ceiling}: {code:?}: {text}");
    }

    #[track_caller]
    fn assert_refused(&self, ceiling: &str, options: &[&str], why: &str) {
        let (code, text) = self.call(ceiling, options);
        assert!(code != Some(0) && text.contains(why), "{ceiling}: {code:?}: {text}");
        let remedies = ["ask whoever manages", "get the plugin from its author", "add "];
        assert!(remedies.iter().any(|remedy| text.contains(remedy)), "{text}");
    }
}

const REQUIRED: &str = "[installing]\nrequire_signature = true\n";
const TRUSTED: &str = "[[installing.keys]]\nname = \"acme\"\nkey = \"KEY\"\n";

#[test]
fn unsigned_component_loads_from_nowhere_under_a_ceiling_that_requires_signatures() {
    let company = Company::new();
    let required = format!("{REQUIRED}{TRUSTED}plugins = [\"*\"]\n");
    for (file, is_signed) in [(&company.unsigned, false), (&company.signed, true)] {
        let living = &company.living;
        let path = file.to_str().expect("it is UTF-8");
        let named = format!("plugins.word.path={path:?}");
        let by_path: &[&str] = &["--set", &named, "--set", "plugins.word.reload=trust"];
        let given: &[&str] = &["--plugin", path];
        let says = if is_signed { "signed" } else { "unsigned" };
        let assert_place = |options: &[&str]| {
            company.assert_runs("", options, says);
            if is_signed {
                company.assert_runs(&required, options, says);
            } else {
                company.assert_refused(&required, options, "the signature is missing");
            }
        };
        assert_place(by_path);
        assert_place(given);
        // The plugin folder, approved by hand.
        fs::copy(file, living.file("word")).expect("it is copied");
        if is_signed {
            let signature = format!("{}.minisig", living.file("word").display());
            fs::copy(format!("{path}.minisig"), signature).expect("it is copied");
        }
        living.approve("word");
        assert_place(&[]);
        fs::remove_file(living.file("word")).expect("it was there");
        ends(&living.toolhold(&["plugin", "add", path, "--yes"]), 0);
        // What the lock file says proves nothing.
        let lock = living.folders.data.join("toolhold.lock");
        let mut locked: Value =
            serde_json::from_slice(&fs::read(&lock).expect("it is there")).expect("it is JSON");
        locked["word"]["source"]["signer"] = "mine".into();
        fs::write(&lock, locked.to_string()).expect("it is written");
        assert_place(&[]);
        ends(&living.toolhold(&["plugin", "remove", "word"]), 0);
    }
}

#[test]
fn revoked_and_expired_keys_and_scopes_count_at_each_start() {
    let company = Company::new();
    let path = company.signed.to_str().expect("it is UTF-8");
    ends(&company.living.toolhold(&["plugin", "add", path, "--yes"]), 0);
    let with = |more: &str| format!("{REQUIRED}{TRUSTED}{more}\n");
    company.assert_runs(&with("plugins = [\"word\"]"), &[], "signed");
    let revoked = with("plugins = [\"word\"]\nrevoked = true");
    company.assert_refused(&revoked, &[], "is revoked");
    // Also where no signature is required.
    company.assert_refused(&revoked.replace("= true\n[[", "= false\n[["), &[], "is revoked");
    let expired = with("plugins = [\"word\"]\nnot_after = \"2026-01-01\"");
    company.assert_refused(&expired, &[], "expired after 2026-01-01");
    company.assert_refused(&with("plugins = [\"acme-*\"]"), &[], "is not trusted for `word`");
    let elsewhere = with("plugins = [\"word\"]\nsources = [\"oci://r.example/acme/*\"]");
    company.assert_refused(&elsewhere, &[], "is not trusted for `word` from");
    company.assert_refused(
        "installing.sources = [\"oci://r.example/acme/*\"]",
        &[],
        "isn't in `installing.sources`",
    );
    // Other bytes under the same signature.
    let copy = company.living.root().join("word.wasm");
    fs::copy(&company.unsigned, &copy).expect("it is copied");
    fs::copy(format!("{path}.minisig"), format!("{}.minisig", copy.display())).expect("copied");
    let given = copy.to_str().expect("it is UTF-8");
    ends(&company.living.toolhold(&["plugin", "remove", "word"]), 0);
    company.assert_refused(&with("plugins = [\"*\"]"), &["--plugin", given], "signature is wrong");
}

#[test]
fn only_allowed_plugins_load() {
    let company = Company::new();
    let given = ["--plugin", company.unsigned.to_str().expect("it is UTF-8")];
    let signed = ["--plugin", company.signed.to_str().expect("it is UTF-8")];
    let inspected = ends(&company.living.toolhold(&["plugin", "inspect", given[1], "--json"]), 0);
    let inspected: Value = serde_json::from_str(&inspected).expect("it is JSON");
    let digest = inspected["digest"].as_str().expect("it has one");
    let wide = "--set=installing.allowed=[{ plugins = [\"*\"] }]";
    let of_user = [wide, given[0], given[1]];
    company.assert_refused("installing.allowed = []", &of_user, "has no entry for this plugin");
    company.assert_refused("installing.allowed = [{ plugins = [\"acme-*\"] }]", &given, digest);
    let by_digest = format!("installing.allowed = [{{ digest = \"sha256:{digest}\" }}]");
    company.assert_runs(&by_digest, &given, "unsigned");
    company.assert_refused(&by_digest, &signed, "has no entry for this plugin");
    let by_key = "installing.allowed = [{ key = \"KEY\" }]";
    company.assert_runs(by_key, &signed, "signed");
    company.assert_refused(by_key, &given, "the signature is missing");
    // `add` refuses as well, before anything is asked or written.
    let mut command = company.living.command();
    command.env("TOOLHOLD_CEILING", company.rules(by_key));
    let refused = command.args(["plugin", "add", given[1], "--yes"]).output().expect("it starts");
    assert!(ends(&refused, 4).contains("has no entry for this plugin"));
    assert!(!company.living.folders.data.join("toolhold.lock").exists());
}
