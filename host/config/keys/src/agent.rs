//! `[agent]` and `[providers]`: Toolhold's own agent, and the models that it asks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{Amount, Bounded, Ratio, ServerSecret};

section! {
    /// Toolhold's own agent: `toolhold run` and `toolhold chat`.
    pub struct Agent {
        /// The table of `[providers]` whose model is asked. If empty, the only one there is.
        pub provider: String, Narrowing::Ignored;
        /// The model, instead of the provider's own.
        pub model: String, Narrowing::Ignored;
        /// Answers of the model in one task. Then the task ends, and can be resumed.
        pub max_turns: Bounded<1, 10_000> = Bounded::clamped(100), Narrowing::Smaller;
        /// Seconds for one task, without the time in which a person is asked.
        pub max_secs: Bounded<1, 604_800> = Bounded::clamped(3600), Narrowing::Smaller;
        /// Tokens that one task may use, those from the provider's cache included. 0 means any
        /// number.
        pub max_tokens: Bounded<0, 1_000_000_000> = Bounded::clamped(0), Narrowing::SmallerOrUnbounded;
        /// What one task may cost, in the currency of `prices`. 0 means any amount. A model without
        /// prices costs nothing that Toolhold knows of, so no task starts with one then.
        pub max_cost: Amount, Narrowing::SmallerOrUnbounded;
        /// The table of `[providers]` whose model summarises. If empty, the one that is asked.
        pub compress_provider: String, Narrowing::Ignored;
        /// The table of `[providers]` whose model corrects arguments that don't match a tool's
        /// schema. The call is then made once more, under the same rules. `budget_secs` in
        /// `[tools.retry]` is its time. If empty, none does.
        pub parameter_reformat_provider: String, Narrowing::Ignored;
        /// Whether the model gets a summary of a result that was cut because it is too long, by the
        /// model of `compress_provider`. It can read the rest either way.
        pub summarize_output: bool, Narrowing::Ignored;
        /// Models on this machine that may call tools by a JSON text that is their whole answer,
        /// each as `PROVIDER/MODEL`; `"*"` is every one. Other forms of calls in text count always,
        /// and unmarked JSON never.
        #[schemars(extend("examples" = [["local/qwen2.5-coder"]]))]
        pub lenient_models: Vec<String>, Narrowing::Subset;
        /// Fields for thinking in tools with complex arguments.
        pub tafc: Tafc, Narrowing::Table(Tafc::RULES);
        /// Other agents that the model hands work to.
        pub delegate: Delegate, Narrowing::Table(Delegate::RULES);
        /// Which tools the model is offered where there are many.
        pub tool_filter: ToolFilter, Narrowing::Table(ToolFilter::RULES);
        /// Whether calls that seem of little use are put off.
        pub utility: Utility, Narrowing::Table(Utility::RULES);
        /// Whether paths are pointed out that the model names, although they don't exist and stand
        /// in nothing that it has read. It may have made them up.
        pub hallucination_detection: bool, Narrowing::Ignored;
        /// Whether `AGENTS.md` and `TOOLHOLD.md` of the working directory and the directories above
        /// are read. A file counts after a person has seen it, and again after each change.
        pub instructions: bool = true, Narrowing::OnlyFalse;
        /// The full screen of `toolhold chat`.
        pub screen: ScreenSettings, Narrowing::Table(ScreenSettings::RULES);
        /// Days after the last change for which a session is kept.
        pub keep_days: Bounded<1, 3650> = Bounded::clamped(90), Narrowing::InCeiling(&Narrowing::Smaller);
        /// MiB that one session may take.
        pub session_mib: Bounded<1, 4096> = Bounded::clamped(256), Narrowing::Smaller;
    }
}

section! {
    /// Sub-agents: agents that the model hands a part of its task to, with the tool `delegate`.
    /// They work by the rules of the one that started them, and what they take counts as its
    /// task's.
    pub struct Delegate {
        /// How often work may be handed on. 1: sub-agents have none of their own. 0: there are
        /// none.
        pub max_depth: Bounded<0, 4> = Bounded::clamped(1), Narrowing::Smaller;
        /// Sub-agents of one agent, or one client, that work at the same time. Others wait.
        pub at_once: Bounded<1, 16> = Bounded::clamped(4), Narrowing::Smaller;
        /// The table of `[providers]` whose model they ask. If empty, that of the agent.
        pub provider: String, Narrowing::Ignored;
        /// Whether `toolhold serve` offers `delegate` to its clients: then they start agents that
        /// ask your provider.
        pub serve: bool, Narrowing::OnlyFalse;
    }
}

section! {
    /// The full screen of `toolhold chat`.
    #[derive(Copy)]
    pub struct ScreenSettings {
        /// Whether the terminal shows a notification when a call needs approval and its window
        /// isn't in front, or it doesn't say whether it is.
        pub notify: bool = true, Narrowing::OnlyFalse;
    }
}

section! {
    /// A field in which the model may think before it fills in the arguments of a tool. It never
    /// reaches the tool or a record.
    #[derive(Copy)]
    pub struct Tafc {
        /// Whether tools get it.
        pub enabled: bool, Narrowing::Ignored;
        /// How complex the arguments of a tool have to be.
        pub complexity_threshold: Ratio = Ratio::from_default(0.6), Narrowing::Ignored;
    }
}

/// The tools that are offered whatever the task is: what an agent needs for nearly any.
fn always_on() -> Vec<String> {
    let names = [
        "read",
        "write",
        "edit",
        "grep",
        "find_path",
        "bash",
        "read_overflow",
        "memory_search",
        "memory_save",
        "load_skill",
        "schedule_periodic",
        "schedule_deferred",
        "list_tasks",
    ];
    names.map(str::to_owned).to_vec()
}

section! {
    /// The tools that the model is offered, chosen for the first task of a session. It finds the
    /// others with `find_tools`, and calls them with `call_tool`.
    pub struct ToolFilter {
        /// Whether tools are chosen in every session. Without it, they are only if all of them take
        /// more than `budget_percent`.
        pub enabled: bool, Narrowing::Ignored;
        /// Tools that are chosen because they fit the task. 0 means as many as there is room for.
        /// It counts if `enabled` is set.
        pub top_k: Bounded<0, 1000> = Bounded::clamped(10), Narrowing::Ignored;
        /// A tool whose description has fewer words is chosen too, since nobody knows whether it
        /// fits.
        pub min_description_words: Bounded<0, 64> = Bounded::clamped(3), Narrowing::Ignored;
        /// Tools that are always offered, by their whole names.
        pub always_on: Vec<String> = always_on(), Narrowing::Ignored;
        /// Percent of the model's context that the definitions of the tools may take.
        pub budget_percent: Bounded<1, 100> = Bounded::clamped(25), Narrowing::Ignored;
        /// The table of `[providers]` whose model compares the meaning of a task and of tools. It
        /// needs an `/embeddings`, and gets the task and the descriptions. If empty, words alone
        /// count.
        pub embeddings: String, Narrowing::Ignored;
    }
}

section! {
    /// Puts off calls that only read and seem of little use: the model is told once, and the call
    /// is made if it insists. What you ask for is never put off.
    pub struct Utility {
        /// Whether calls are put off.
        pub enabled: bool, Narrowing::Ignored;
        /// The least use of a call, from 0 to 1.
        pub threshold: Ratio = Ratio::from_default(0.0), Narrowing::Ignored;
        /// Tools that are never put off.
        pub exempt_tools: Vec<String> =
            vec!["invoke_skill".to_owned(), "load_skill".to_owned()], Narrowing::Ignored;
    }
}

section! {
    /// A provider of models: a service, or a server on this machine. `anthropic`, `openai`,
    /// `openrouter` and `ollama` need neither `format` nor `base_url`.
    pub struct ProviderSettings {
        /// The form of its requests and answers.
        pub format: ModelFormat, Narrowing::Ignored;
        /// Where it is: what stands before `/messages`, `/chat/completions`, `/responses` or
        /// `/api/chat`.
        #[schemars(extend("examples" = ["http://127.0.0.1:8080/v1"]))]
        pub base_url: String, Narrowing::Ignored;
        /// The model that is asked.
        pub model: String, Narrowing::Ignored;
        /// The key: one secret, which goes into a header of each request there, and nowhere else.
        /// Without `header`, that is where the format has its key.
        pub secrets: BTreeMap<String, ServerSecret>, Narrowing::Named(ServerSecret::RULES);
        /// Headers of each request, with their values. They are no place for secrets.
        #[schemars(extend("examples" = [{ "X-Team": "blue" }]))]
        pub headers: BTreeMap<String, String>, Narrowing::Each(&Narrowing::Ignored);
        /// Numbers of a vector, where the model makes vectors (`embeddings` of other tables) and
        /// can shorten them. 0 means as many as it has.
        pub dimensions: Bounded<0, 4096> = Bounded::clamped(0), Narrowing::Ignored;
        /// Tokens that the model can read at once. 0 means as the provider says, else 32,768.
        pub context_tokens: Bounded<0, 100_000_000> = Bounded::clamped(0), Narrowing::Ignored;
        /// Tokens that the model may write in one answer.
        pub max_output_tokens: Bounded<1, 10_000_000> = Bounded::clamped(16_384), Narrowing::Smaller;
        /// How much the model thinks before it answers.
        pub thinking: ThinkingEffort, Narrowing::Ignored;
        /// Whether the model calls tools by the provider's own means. `false`: in its text.
        pub native_tools: bool = true, Narrowing::Ignored;
        /// Seconds without a byte of an answer after which a request is given up.
        pub idle_secs: Bounded<1, 3600> = Bounded::clamped(300), Narrowing::Smaller;
        /// What a million tokens cost.
        pub prices: Prices, Narrowing::Table(Prices::RULES);
    }
}

impl ProviderSettings {
    /// Its format and its `base_url`, or what its name stands for. `None`: one of them is missing.
    pub fn place(&self, name: &str) -> Option<(ModelFormat, &str)> {
        let known = match name {
            "anthropic" => Some((ModelFormat::Messages, "https://api.anthropic.com/v1")),
            "openai" => Some((ModelFormat::Responses, "https://api.openai.com/v1")),
            "openrouter" => Some((ModelFormat::Chat, "https://openrouter.ai/api/v1")),
            "ollama" => Some((ModelFormat::Ollama, "http://127.0.0.1:11434")),
            _ => None,
        };
        let base_url = match &*self.base_url {
            "" => known.map(|(_, base_url)| base_url),
            base_url => Some(base_url),
        };
        let format = match self.format {
            ModelFormat::ByName => known.map(|(format, _)| format)?,
            format => format,
        };
        Some((format, base_url?))
    }
}

section! {
    /// What a million tokens cost, in any one currency.
    #[derive(Copy)]
    pub struct Prices {
        /// Those that the model reads, without those from the provider's cache.
        pub input: Amount, Narrowing::Ignored;
        /// Those that come from the provider's cache. 0 means as `input`.
        pub cache_read: Amount, Narrowing::Ignored;
        /// Those that are written into the provider's cache, read included. 0 means as `input`.
        pub cache_write: Amount, Narrowing::Ignored;
        /// Those that the model writes.
        pub output: Amount, Narrowing::Ignored;
    }
}

/// The form of a provider's requests and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ModelFormat {
    /// As the name of the provider says.
    #[default]
    ByName,
    /// Anthropic's Messages.
    Messages,
    /// `OpenAI`'s Chat Completions, and what llama.cpp, vLLM, LM Studio and others offer.
    Chat,
    /// `OpenAI`'s Responses.
    Responses,
    /// Ollama's own.
    Ollama,
}

/// How much a model thinks before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ThinkingEffort {
    /// As the provider has it.
    #[default]
    Default,
    /// Not at all, where the model can be told so.
    Off,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_skills_are_never_put_off() {
        assert_eq!(Utility::default().exempt_tools, ["invoke_skill", "load_skill"]);
        assert!(!Utility::default().enabled);
    }

    #[test]
    fn memory_and_skills_are_always_on() {
        for name in ["memory_search", "memory_save", "load_skill", "list_tasks", "read", "bash"] {
            assert!(ToolFilter::default().always_on.contains(&name.to_owned()), "{name}");
        }
    }
}
