//! `toolhold plugin key` and `toolhold plugin sign`.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::config::{self, Folders};
use toolhold_core::text::{neutral_line, shell_word};
use toolhold_signing::{
    KeyFolder, PasswordSource, SecretKey, SigningError, read_secret_key, sign_file,
};

use crate::arguments::{KeyCommand, SignArguments};
use crate::error::Error;
use crate::exit::Exit;

pub(crate) fn run(command: &KeyCommand) -> Result<Exit, Error> {
    let keys = KeyFolder::new(&Folders::from_environment()?.config);
    match command {
        KeyCommand::New { name, no_password, password, json } => {
            let mut new_password = None;
            if !no_password {
                let source = password.password_from.clone().unwrap_or_default();
                let twice = true;
                new_password = Some(source.read("Password of the new key", twice).map_err(failed)?);
            }
            let new_password = new_password.as_ref().map(|password| password.as_str());
            create(&keys, name, new_password, *json)
        }
        KeyCommand::Show { name, json } => show(&keys, name.as_deref(), *json),
    }
}

/// Makes a key, and prints its files and how to use the public key.
fn create(
    keys: &KeyFolder,
    name: &str,
    password: Option<&str>,
    as_json: bool,
) -> Result<Exit, Error> {
    let new_key = keys.create(name, password).map_err(failed)?;
    let mut out = anstream::stdout().lock();
    if as_json {
        let mut object = key_as_json(name, &new_key.key);
        object["secret_file"] = json!(new_key.secret);
        object["public_file"] = json!(new_key.public);
        writeln!(out, "{object:#}")?;
        return Ok(Exit::Success);
    }
    writeln!(out, "The secret key is {}: keep this file secret.", shown(&new_key.secret))?;
    writeln!(out, "The public key is {}: give this file to people who", shown(&new_key.public))?;
    writeln!(out, "will trust the key. For signing plugins, these people add to their")?;
    writeln!(out, "toolhold.toml, with the names of your plugins instead of `*`:\n")?;
    writeln!(out, "  [[installing.keys]]\n  name = \"{name}\"\n  key = \"{}\"", new_key.key)?;
    writeln!(out, "  plugins = [\"*\"]\n")?;
    let keys_file = config::ceiling_keys_path(config::SYSTEM_CEILING.as_ref());
    writeln!(out, "For signing a ceiling, put the public key into {} instead,", shown(&keys_file))?;
    writeln!(out, "and into no toolhold.toml.")?;
    Ok(Exit::Success)
}

/// Prints the public key `name`, or all public keys of the user.
fn show(keys: &KeyFolder, name: Option<&str>, as_json: bool) -> Result<Exit, Error> {
    let mut shown_keys = keys.all().map_err(failed)?;
    if let Some(name) = name {
        shown_keys.retain(|(key_name, _)| key_name == name);
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

/// Reads a secret key. `key` is the name of a key of the user, or the path of a file.
pub(crate) fn secret_key(key: &str, password: Option<&PasswordSource>) -> Result<SecretKey, Error> {
    let keys = KeyFolder::new(&Folders::from_environment()?.config);
    let is_path = key.contains(['/', '.']);
    let path = if is_path { key.into() } else { keys.secret(key) };
    let is_missing = path.try_exists().is_ok_and(|exists| !exists);
    if !is_path && is_missing {
        return Err(Error::Usage(format!(
            "there is no key `{}` ({}); to make one: toolhold plugin key new {}",
            neutral_line(key),
            shown(&path),
            neutral_line(&shell_word(key))
        )));
    }
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
