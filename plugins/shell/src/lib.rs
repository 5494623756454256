//! The built-in plugin of `bash`.

mod bash;
mod envelope;
mod failure;

toolhold_sdk::plugin! {
    name: "shell",
    description: "Runs shell commands",
    capabilities: [process = "to run the commands that calls give"],
    tools: [bash::Bash],
}
