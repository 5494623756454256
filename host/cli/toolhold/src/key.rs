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
    match command {
        KeyCommand::New { name, no_password, password, json } => {
            let mut new_password = None;
            if !no_password {
                let source = password.password_from.clone().unwrap_or_default();
                new_password = Some(source.read("Password of the new key", true).map_err(failed)?);
            }
            let new_password = new_password.as_ref().map(|password| password.as_str());
            create(&keys, name, new_password, *json)
        }
        KeyCommand::Show { name, json } => show(&keys, name.as_deref(), *json),
    }
}

fn create(
    keys: &KeyFolder,
    name: &str,
    password: Option<&str>,
    as_json: bool,
) -> Result<Exit, Error> {
    let new = keys.create(name, password).map_err(failed)?;
    let mut out = anstream::stdout().lock();
    if as_json {
        let mut object = key_as_json(name, &new.key);
        object["secret_file"] = json!(new.secret);
        object["public_file"] = json!(new.public);
        writeln!(out, "{object:#}")?;
        return Ok(Exit::Success);
    }
    writeln!(out, "The secret key is {}: keep this file secret.", shown(&new.secret))?;
    writeln!(out, "The public key is {}: give this file to people who", shown(&new.public))?;
    writeln!(out, "will trust the key. These people add to their toolhold.toml:\n")?;
    writeln!(out, "  [[installing.keys]]\n  name = \"{name}\"\n  key = \"{}\"", new.key)?;
    writeln!(out, "  plugins = [\"*\"]")?;
    Ok(Exit::Success)
}

/// Shows the key of a name, or all keys.
fn show(keys: &KeyFolder, name: Option<&str>, as_json: bool) -> Result<Exit, Error> {
    let mut shown_keys = keys.all().map_err(failed)?;
    if let Some(name) = name {
        shown_keys.retain(|(other, _)| other == name);
        if shown_keys.is_empty() {
            let name = neutral_line(name);
            return Err(Error::Usage(format!(
                "you have no key `{name}`; `toolhold plugin key show` lists your keys"
            )));
        }
    }

    let mut out = anstream::stdout().lock();
    if as_json {
        let objects: Value = shown_keys.iter().map(|(name, key)| key_as_json(name, key)).collect();
        writeln!(out, "{objects:#}")?;
        return Ok(Exit::Success);
    }
    if shown_keys.is_empty() {
        writeln!(out, "You have no keys. `toolhold plugin key new` makes a key.")?;
    }
    for (name, key) in &shown_keys {
        writeln!(out, "{name}  {key}")?;
    }
    Ok(Exit::Success)
}

/// Signs a component.
pub(crate) fn sign(arguments: &SignArguments) -> Result<Exit, Error> {
    let key = secret_key(&arguments.key, arguments.password.password_from.as_ref())?;
    let (signature, statement) =
        sign_file(&arguments.file, arguments.name.as_deref(), &key).map_err(failed)?;
    let id = key.public().id().to_string();
    let mut out = anstream::stdout().lock();
    if arguments.json {
        let statement = statement.to_string();
        writeln!(out, "{:#}", json!({ "signature": signature, "key": id, "signed": statement }))?;
    } else {
        writeln!(out, "{} is signed by key {id}:", shown(&arguments.file))?;
        writeln!(out, "  {statement}\n  in {}", shown(&signature))?;
    }
    Ok(Exit::Success)
}

/// Reads the secret key that the command line names. `key`: the name of one of the user's keys, or
/// the path of a file.
pub(crate) fn secret_key(key: &str, password: Option<&PasswordSource>) -> Result<SecretKey, Error> {
    let keys = KeyFolder::new(&Folders::from_environment()?.config);
    let is_path = key.contains(['/', '.']);
    let path = if is_path { key.into() } else { keys.secret(key) };
    read_secret_key(&path, &password.cloned().unwrap_or_default()).map_err(failed)
}

fn key_as_json(name: &str, key: &toolhold_signing::PublicKey) -> Value {
    json!({ "name": name, "id": key.id().to_string(), "key": key.to_string() })
}

fn shown(path: &Path) -> String {
    neutral_line(&path.display().to_string())
}

pub(crate) fn failed(error: SigningError) -> Error {
    Error::Usage(error.to_string())
}
