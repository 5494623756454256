//! `toolhold plugin key` and `toolhold plugin sign`: makes and shows keys, and signs a component.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::text::neutral_line;
use toolhold_signing::{
    KeyFolder, PasswordSource, SecretKey, SigningError, read_secret_key, sign_file,
};

use crate::arguments::{KeyCommand, SignArguments};
use crate::error::Error;
use crate::exit::Exit;

/// Runs the command.
pub(crate) fn run(command: &KeyCommand) -> Result<Exit, Error> {
    let keys = KeyFolder::new(&Folders::from_environment()?.config);
    let mut out = anstream::stdout().lock();
    match command {
        KeyCommand::New { name, no_password, password, json } => {
            let source = password.password_from.clone().unwrap_or_default();
            let given = (!no_password)
                .then(|| source.read("Password of the new key", true))
                .transpose()
                .map_err(failed)?;
            let password = given.as_ref().map(|password| password.as_str());
            let made = keys.create(name, password).map_err(failed)?;
            if *json {
                let mut object = described(name, &made.key);
                object["secret_file"] = json!(made.secret);
                object["public_file"] = json!(made.public);
                writeln!(out, "{object:#}")?;
                return Ok(Exit::Success);
            }
            writeln!(out, "The secret key is {}: keep this file secret.", shown(&made.secret))?;
            writeln!(
                out,
                "The public key is {}: give this file to people who",
                shown(&made.public)
            )?;
            writeln!(out, "will trust the key. These people add to their toolhold.toml:\n")?;
            writeln!(out, "  [[installing.keys]]\n  name = \"{name}\"\n  key = \"{}\"", made.key)?;
            writeln!(out, "  plugins = [\"*\"]")?;
        }
        KeyCommand::Show { name, json } => {
            let mut all = keys.all().map_err(failed)?;
            all.retain(|(known, _)| name.as_ref().is_none_or(|name| name == known));
            if let (Some(name), true) = (name, all.is_empty()) {
                let shown = neutral_line(name);
                return Err(Error::Usage(format!(
                    "you have no key `{shown}`; `toolhold plugin key show` lists your keys"
                )));
            }
            if *json {
                let all = all.iter().map(|(name, key)| described(name, key));
                writeln!(out, "{:#}", all.collect::<Value>())?;
                return Ok(Exit::Success);
            }
            if all.is_empty() {
                writeln!(out, "You have no keys. `toolhold plugin key new` makes a key.")?;
            }
            all.iter().try_for_each(|(name, key)| writeln!(out, "{name}  {key}"))?;
        }
    }
    Ok(Exit::Success)
}

/// Signs a component.
pub(crate) fn sign(arguments: &SignArguments) -> Result<Exit, Error> {
    let key = secret_key(&arguments.key, arguments.password.password_from.as_ref())?;
    let (written, statement) =
        sign_file(&arguments.file, arguments.name.as_deref(), &key).map_err(failed)?;
    let mut out = anstream::stdout().lock();
    if arguments.json {
        let id = key.public().id().to_string();
        let said = statement.to_string();
        writeln!(out, "{:#}", json!({ "signature": written, "key": id, "signed": said }))?;
    } else {
        writeln!(out, "{} is signed by key {}:", shown(&arguments.file), key.public().id())?;
        writeln!(out, "  {statement}\n  in {}", shown(&written))?;
    }
    Ok(Exit::Success)
}

/// The secret key that the command line names, as one of the user's or as a file.
pub(crate) fn secret_key(key: &str, password: Option<&PasswordSource>) -> Result<SecretKey, Error> {
    let keys = KeyFolder::new(&Folders::from_environment()?.config);
    let path = if key.contains(['/', '.']) { key.into() } else { keys.secret(key) };
    read_secret_key(&path, &password.cloned().unwrap_or_default()).map_err(failed)
}

fn described(name: &str, key: &toolhold_signing::PublicKey) -> Value {
    json!({ "name": name, "id": key.id().to_string(), "key": key.to_string() })
}

fn shown(path: &Path) -> String {
    neutral_line(&path.display().to_string())
}

pub(crate) fn failed(error: SigningError) -> Error {
    Error::Usage(error.to_string())
}
