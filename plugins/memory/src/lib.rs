//! The built-in memory: what an agent wants to know again later.

mod date;
mod entry;
mod forget;
mod save;
mod scope;
mod search;

berth_sdk::plugin! {
    name: "memory",
    description: "Remembers what later sessions need",
    capabilities: [index = "to keep what is remembered, and to find it again"],
    tools: [save::Save, search::Search, forget::Forget],
}
