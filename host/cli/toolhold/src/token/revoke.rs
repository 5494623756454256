//! `toolhold token revoke`.

use std::io::Write;

use toolhold_core::config::{DeniedPrincipal, Folders, Who};
use toolhold_core::text::neutral_line;
use toolhold_mcp_server::LocalTokens;

use crate::arguments::token::RevokeArguments;
use crate::error::Error;
use crate::exit::Exit;

pub(super) fn run(
    arguments: &RevokeArguments,
    folders: &Folders,
    tokens: &LocalTokens,
) -> Result<Exit, Error> {
    if let Some(name_or_id) = &arguments.token {
        revoke(tokens, name_or_id)?;
    }
    if let (Some(issuer), Some(subject)) = (&arguments.issuer, &arguments.subject) {
        // The issuer and the subject alone name a principal.
        let who = Who {
            issuer: issuer.clone(),
            subject: subject.clone(),
            groups: Vec::new(),
            client: None,
            token: None,
        };
        deny(folders, &who, arguments.purge)?;
    }
    Ok(Exit::Success)
}

fn revoke(tokens: &LocalTokens, name_or_id: &str) -> Result<(), Error> {
    let revoked = tokens.revoke(name_or_id)?;
    if revoked.is_empty() {
        return Err(Error::Usage(format!(
            "no token has the name or ID `{}`; `toolhold token list` lists the tokens",
            neutral_line(name_or_id)
        )));
    }
    let mut out = anstream::stdout().lock();
    for id in revoked {
        writeln!(out, "Revoked {id}.")?;
    }
    Ok(())
}

fn deny(folders: &Folders, who: &Who, purge: bool) -> Result<(), Error> {
    let file = DeniedPrincipal::store(folders, who, purge)?;
    let mut out = anstream::stdout().lock();
    writeln!(
        out,
        "Denied {} of {}. To admit the caller again, remove {}",
        neutral_line(&who.subject),
        neutral_line(&who.issuer),
        file.display()
    )?;
    if purge {
        // A running server ends the caller's work, and then removes what it wrote meanwhile.
        DeniedPrincipal::remove_data(folders, &who.id())?;
        writeln!(out, "Removed the caller's data.")?;
    }
    Ok(())
}
