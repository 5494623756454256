use berth_catalogue::plugins::Approvals;
use berth_config::{self as config, Folders};
use berth_contract::HostError;

use super::Finding;
use crate::approvals::Questions;
use crate::session;

/// State that is stored between runs: whether it can be read and trusted.
pub(super) fn findings(folders: &Folders) -> Vec<Finding> {
    let approved = Approvals::open(folders).all().map(|all| (all.len(), Vec::new()));
    let questions =
        Questions::open(folders).waiting().map(|(waiting, wrong)| (waiting.len(), wrong));
    let trusted = config::trusted(folders).map(|files| (files.len(), Vec::new()));
    [
        finding("sessions", "kept", session::count(folders)),
        finding("questions", "waiting", questions),
        finding("approved plugins", "approved", approved),
        finding("trusted files", "trusted", trusted),
    ]
    .concat()
}

fn finding(
    name: &str,
    what: &str,
    looked: Result<(usize, Vec<HostError>), HostError>,
) -> Vec<Finding> {
    let wrong = match looked {
        Ok((count, wrong)) if wrong.is_empty() => {
            return vec![Finding::ok(name, format!("{count} {what}"))];
        }
        Ok((_, wrong)) => wrong,
        Err(error) => vec![error],
    };
    let fix = "fix the named file, or remove it to begin anew: its content is lost then";
    wrong.iter().map(|error| Finding::failure(name, error.to_string(), fix)).collect()
}
