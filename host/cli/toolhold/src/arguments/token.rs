//! The arguments and help of `toolhold token`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

const NEW_AFTER: &str = "\
Examples:
  toolhold token new ci
  toolhold token new ci --expires 30m --allow-read ~/src/app --set tools.autonomy=read-only
  toolhold token new nightly --expires 7d --group dev --json

The token is printed once, and isn't stored. `toolhold serve --http` accepts it until it expires or \
is revoked. Without --for, --allow, --allow-read and --set, the first table of [principals] that \
matches the token decides, or without tables, the token has the rights of the server's own token. \
With --allow and --allow-read, the built-in tools use only these directories. A token never allows \
more than your configuration.";

const REVOKE_AFTER: &str = "\
Examples:
  toolhold token revoke ci
  toolhold token revoke 3f9a2c41d07b5e883f9a2c41d07b5e88
  toolhold token revoke --issuer https://login.example.org --subject anna --purge

NAME|ID revokes tokens of `toolhold token new`. --subject denies a caller for good, also with a \
token of an authorization server that hasn't expired: no server of yours admits the caller, until you \
remove the file that the command names.";

/// `toolhold token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it once
    #[command(after_help = NEW_AFTER)]
    New(NewTokenArguments),
    /// List the tokens that are valid
    #[command(after_help = "Examples:\n  toolhold token list\n  toolhold token list --json")]
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Revoke tokens, or deny a caller; its calls, streams and jobs end at once
    #[command(after_help = REVOKE_AFTER)]
    Revoke(RevokeArguments),
}

/// `toolhold token revoke`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("revoked").args(["token", "subject"]).required(true))]
pub(crate) struct RevokeArguments {
    /// The token's name or ID, from `toolhold token list`
    #[arg(value_name = "NAME|ID")]
    pub(crate) token: Option<String>,
    /// Deny this caller (`sub`), whatever token it has
    #[arg(long, requires = "issuer")]
    pub(crate) subject: Option<String>,
    /// The issuer of the caller's tokens (`iss`)
    #[arg(long, requires = "subject")]
    pub(crate) issuer: Option<String>,
    /// Remove the caller's data, too: sessions, undo, stores, memory and tasks
    #[arg(long, requires = "subject")]
    pub(crate) purge: bool,
}

/// `toolhold token new`.
#[derive(Args, Debug)]
pub(crate) struct NewTokenArguments {
    /// The caller's name: letters, digits and `._@+-`
    pub(crate) name: String,
    /// The time until the token expires: 90s, 30m, 8h or 7d; at most 90d
    #[arg(long, value_name = "TIME", default_value = "8h", value_parser = parse_time)]
    pub(crate) expires: Duration,
    /// A group of the caller; repeat the option for more groups
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// The table of [principals] with the caller's rights
    #[arg(long = "for", value_name = "TABLE")]
    pub(crate) table: Option<String>,
    /// Print one JSON object: id, name, expires, token
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a number and a unit: 90s, 30m, 8h or 7d")]
struct TimeError;

/// Parses a number with the unit s, m, h or d.
fn parse_time(text: &str) -> Result<Duration, TimeError> {
    for (unit, seconds) in [("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)] {
        if let Some(digits) = text.strip_suffix(unit) {
            let number: u32 = digits.parse().map_err(|_| TimeError)?;
            return Ok(Duration::from_secs(u64::from(number) * seconds));
        }
    }
    Err(TimeError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_number_with_a_unit() {
        let times = [("0s", 0), ("90s", 90), ("30m", 1800), ("8h", 28_800), ("7d", 604_800)];
        for (text, seconds) in times {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "8", "h", "-1h", "1.5h", "1h30m", "8 h", "8H", "99999999999d", "ü"] {
            assert_eq!(parse_time(text), Err(TimeError), "{text}");
        }
    }
}
