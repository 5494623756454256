//! Makes a loaded plugin a source of tools. A new version is a new source, so that a call runs on
//! the version that was checked.

use std::sync::Arc;

use toolhold_contract::{BoxFuture, Call, Category, Definition, Failure, Outcome, ToolSource};

use crate::plugin::Plugin;
use crate::run;

impl ToolSource for Plugin {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        self.0.tools.iter().map(|tool| Arc::clone(&tool.definition)).collect()
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        match self.0.tools.iter().position(|tool| tool.definition.name == call.tool) {
            Some(index) => Box::pin(run::call(&self.0, index, call)),
            None => {
                let failure = Failure::new(
                    Category::ToolNotFound,
                    format!("no tool is named `{}`", call.tool),
                );
                Box::pin(std::future::ready(Err(failure)))
            }
        }
    }
}
