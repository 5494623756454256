//! The built-in plugin of the memory: what an agent wants to know again later.

mod date;
mod entry;
mod forget;
mod keys;
mod save;
mod scope;
mod search;
mod vectors;

toolhold_sdk::plugin! {
    name: "memory",
    description: "Remembers what later sessions need",
    capabilities: [
        index = "to keep what is remembered, and to find it again",
        embeddings = "to find it by what it means, if you choose a model for that",
    ],
    tools: [save::Save, search::Search, forget::Forget],
}
