//! Makes calls until it is killed, for the tests of the audit: `caller FOLDER MIB`, or `caller
//! FOLDER MIB ROUNDS` to make a number of calls and end. It prints `ran ID` when an acting call
//! takes effect, `answered ID` when a call is answered, and `stopped ID: WHY` if the call didn't
//! run.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use toolhold_contract::{BoxFuture, Call, Definition, Outcome, Output, ToolSource};
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Annotations, Host, Request};

/// Number of parallel callers.
const CALLERS: usize = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    toolhold_core::helper_hook();
    let mut words = std::env::args().skip(1);
    let (Some(folder), Some(mib)) = (words.next(), words.next()) else {
        return Err("caller FOLDER MIB [ROUNDS]".into());
    };
    let rounds = words.next().map_or(Ok(usize::MAX), |rounds| rounds.parse())?;
    let folders = Folders::inside(Path::new(&folder));
    let settings = vec!["tools.autonomy=full".to_owned(), format!("audit.max_mib={mib}")];
    let loaded = config::load(&folders, &Inputs { settings, ..Inputs::default() })
        .map_err(|error| error.to_string())?;
    let reactor =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    reactor.block_on(async {
        let host = Host::builder()
            .config(loaded)
            .folders(folders)
            .working_directory(&folder)
            .provider(Arc::new(Tools))
            .build()
            .await?;
        let host = Arc::new(host);
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| tokio::spawn(call_on(Arc::clone(&host), number, rounds)))
            .collect();
        for caller in callers {
            caller.await??;
        }
        Ok(())
    })
}

async fn call_on(host: Arc<Host>, number: usize, rounds: usize) -> io::Result<()> {
    for _ in 0..rounds {
        for tool in ["look", "act"] {
            let answer = host
                .call(Request::new(
                    tool,
                    json!({ "number": number, "text": "x".repeat(number * 40) }),
                ))
                .await;
            match answer.outcome {
                Ok(_) => said("answered", &answer.id.0)?,
                Err(failure) => {
                    said("stopped", &format!("{}: {tool}: {}", answer.id, failure.message))?;
                }
            }
        }
    }
    Ok(())
}

/// In one write, so that it appears completely or not at all.
fn said(what: &str, id: &str) -> io::Result<()> {
    rustix::io::write(io::stdout(), format!("{what} {id}\n").as_bytes())?;
    Ok(())
}

/// A tool that only reads, and one that acts.
struct Tools;

impl ToolSource for Tools {
    fn name(&self) -> &str {
        "caller"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        let schema = json!({ "type": "object" });
        let look = Definition::new("look", "Looks", schema.clone());
        let look =
            Definition { annotations: Annotations { read_only: true, ..look.annotations }, ..look };
        vec![Arc::new(look), Arc::new(Definition::new("act", "Acts", schema))]
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            if call.tool == "act" {
                let _ = said("ran", &call.id.0);
            }
            Ok(Output::text("done"))
        })
    }
}
