//! `[agent]` and `[providers]`: Toolhold's own agent, and the models that it uses.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::{Amount, Bounded, Ratio, ServerSecret};

section! {
    /// Toolhold's own agent: `toolhold run` and `toolhold chat`.
    pub struct Agent {
        /// The table of `[providers]` whose model the agent uses. If empty, the agent uses the only
        /// table.
        pub provider: String, Narrowing::Ignored;
        /// The model, instead of the provider's own.
        pub model: String, Narrowing::Ignored;
        /// Answers of the model in one task. After these answers the task ends, and you can resume
        /// it.
        pub max_turns: Bounded<1, 10_000> = Bounded::clamped(100), Narrowing::Smaller;
        /// Seconds for one task, without the time that you take to answer questions.
        pub max_secs: Bounded<1, 604_800> = Bounded::clamped(3600), Narrowing::Smaller;
        /// Tokens that one task may use, including tokens from the provider's cache. 0 means any
        /// number.
        pub max_tokens: Bounded<0, 1_000_000_000> = Bounded::clamped(0), Narrowing::SmallerOrUnbounded;
        /// The cost limit of one task, in the currency of `prices`. 0 means any amount. If the
        /// limit is set, a task can't start with a model that has no prices.
        pub max_cost: Amount, Narrowing::SmallerOrUnbounded;
        /// The table of `[providers]` whose model writes summaries. If empty, the agent's own model
        /// writes them.
        pub compress_provider: String, Narrowing::Ignored;
        /// The table of `[providers]` whose model corrects arguments that don't match a tool's
        /// schema. The call is then repeated once under the same rules. Its time limit is
        /// `budget_secs` of `[tools.retry]`. If empty, arguments aren't corrected.
        pub parameter_reformat_provider: String, Narrowing::Ignored;
        /// Whether the model of `compress_provider` summarises results that were cut. Models can
        /// read the rest of a result in any case.
        pub summarize_output: bool, Narrowing::Ignored;
        /// Models on this machine that may call tools with an answer that contains only JSON, each
        /// as `PROVIDER/MODEL`. `"*"` means all. Other forms of calls in text are always accepted,
        /// and unmarked JSON inside text is never accepted.
        #[schemars(extend("examples" = [["local/qwen2.5-coder"]]))]
        pub lenient_models: Vec<String>, Narrowing::Subset;
        /// Fields for thinking in tools with complex arguments.
        pub tafc: Tafc, Narrowing::Table(Tafc::RULES);
        /// Sub-agents, to which the model gives parts of its task.
        pub delegate: Delegate, Narrowing::Table(Delegate::RULES);
        /// The selection of tools for the model if there are many tools.
        pub tool_filter: ToolFilter, Narrowing::Table(ToolFilter::RULES);
        /// Postponing calls that seem of little use.
        pub utility: Utility, Narrowing::Table(Utility::RULES);
        /// Whether a note lists paths that the model may have invented. These paths don't exist,
        /// and the model hasn't read them anywhere.
        pub hallucination_detection: bool, Narrowing::Ignored;
        /// Whether `AGENTS.md` and `TOOLHOLD.md` of the working directory and of the directories
        /// above are read. You approve each file before it is used, and again after each change.
        pub instructions: bool = true, Narrowing::OnlyFalse;
        /// The full screen of `toolhold chat`.
        pub screen: ScreenSettings, Narrowing::Table(ScreenSettings::RULES);
        /// Days for which a session is stored after its last change.
        pub keep_days: Bounded<1, 3650> = Bounded::clamped(90), Narrowing::InCeiling(&Narrowing::Smaller);
        /// Size limit of one session, in MiB.
        pub session_mib: Bounded<1, 4096> = Bounded::clamped(256), Narrowing::Smaller;
    }
}

section! {
    /// Sub-agents: agents to which the model gives a part of its task, with the tool `delegate`. A
    /// sub-agent has the rules of the agent that started it, and shares the limits of that agent's
    /// task.
    pub struct Delegate {
        /// Levels of sub-agents. With 1, sub-agents can't start sub-agents. With 0, there are no
        /// sub-agents.
        pub max_depth: Bounded<0, 4> = Bounded::clamped(1), Narrowing::Smaller;
        /// Sub-agents of one agent or one client that work at the same time. Further sub-agents
        /// wait.
        pub at_once: Bounded<1, 16> = Bounded::clamped(4), Narrowing::Smaller;
        /// The table of `[providers]` whose model sub-agents use. If empty, sub-agents use the
        /// agent's table.
        pub provider: String, Narrowing::Ignored;
        /// Whether `toolhold serve` offers `delegate` to its clients. Clients can then start agents
        /// that use your provider.
        pub serve: bool, Narrowing::OnlyFalse;
    }
}

section! {
    /// The full screen of `toolhold chat`.
    #[derive(Copy)]
    pub struct ScreenSettings {
        /// Whether the terminal shows a notification when a call needs approval, unless the
        /// terminal reports that its window is in front.
        pub notify: bool = true, Narrowing::OnlyFalse;
    }
}

section! {
    /// A field in which the model may think before it fills in the arguments of a tool. The field
    /// is removed before the call, so tools and logs don't get it.
    #[derive(Copy)]
    pub struct Tafc {
        /// Whether tools get the field.
        pub enabled: bool, Narrowing::Ignored;
        /// The complexity of a tool's arguments at which the tool gets the field.
        pub complexity_threshold: Ratio = Ratio::from_default(0.6), Narrowing::Ignored;
    }
}

/// Returns the tools that the filter never leaves out by default.
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
    /// The selection of tools that the model is offered. The tools are chosen for the first task of
    /// a session. The model finds other tools with `find_tools`, and calls them with `call_tool`.
    pub struct ToolFilter {
        /// Whether tools are chosen in every session. Otherwise they are chosen only if all tools
        /// together take more than `budget_percent`.
        pub enabled: bool, Narrowing::Ignored;
        /// The number of tools that are chosen because they match the task. 0 means as many as fit.
        /// This key applies if `enabled` is set.
        pub top_k: Bounded<0, 1000> = Bounded::clamped(10), Narrowing::Ignored;
        /// Tools with fewer words in their descriptions are always chosen, because so few words
        /// can't be compared with a task.
        pub min_description_words: Bounded<0, 64> = Bounded::clamped(3), Narrowing::Ignored;
        /// Tools that are always offered, by their full names.
        pub always_on: Vec<String> = always_on(), Narrowing::Ignored;
        /// Percent of the model's context that the definitions of the tools may take.
        pub budget_percent: Bounded<1, 100> = Bounded::clamped(25), Narrowing::Ignored;
        /// The table of `[providers]` whose model compares the meaning of a task and of tools. The
        /// provider needs an `/embeddings` endpoint, and gets the task and the descriptions. If
        /// empty, only words are compared.
        pub embeddings: String, Narrowing::Ignored;
    }
}

section! {
    /// Postponement of calls that only read and seem of little use. The model gets a note once, and
    /// the call runs if the model repeats it. Calls that you ask for are never postponed.
    pub struct Utility {
        /// Whether calls are postponed.
        pub enabled: bool, Narrowing::Ignored;
        /// The score, from 0 to 1, below which a call is postponed.
        pub threshold: Ratio = Ratio::from_default(0.0), Narrowing::Ignored;
        /// Tools whose calls are never postponed.
        pub exempt_tools: Vec<String> =
            vec!["invoke_skill".to_owned(), "load_skill".to_owned()], Narrowing::Ignored;
    }
}

section! {
    /// A provider of models: a service, or a server on this machine. `anthropic`, `openai`,
    /// `gemini`, `mistral`, `deepseek`, `xai`, `groq`, `openrouter` and `ollama` need neither
    /// `format` nor `base_url`.
    pub struct ProviderSettings {
        /// The format of the provider's requests and answers.
        pub format: ModelFormat, Narrowing::Ignored;
        /// The URL, up to `/messages`, `/chat/completions`, `/responses` or `/api/chat`.
        #[schemars(extend("examples" = ["http://127.0.0.1:8080/v1"]))]
        pub base_url: String, Narrowing::Ignored;
        /// The name of the model.
        pub model: String, Narrowing::Ignored;
        /// The provider's key. The key is one secret, and is sent only to the provider, in a header
        /// of each request. If `header` is missing, the format determines the header.
        pub secrets: BTreeMap<String, ServerSecret>, Narrowing::Named(ServerSecret::RULES);
        /// Headers of each request, with their values. Don't put secrets here.
        #[schemars(extend("examples" = [{ "X-Team": "blue" }]))]
        pub headers: BTreeMap<String, String>, Narrowing::Each(&Narrowing::Ignored);
        /// Length of a vector, for a model that makes vectors (`embeddings` of other tables) and
        /// can shorten them. 0 means the model's own length.
        pub dimensions: Bounded<0, 4096> = Bounded::clamped(0), Narrowing::Ignored;
        /// Tokens of the model's context. 0 means the provider's value, otherwise 32,768.
        pub context_tokens: Bounded<0, 100_000_000> = Bounded::clamped(0), Narrowing::Ignored;
        /// Tokens that the model may write in one answer.
        pub max_output_tokens: Bounded<1, 10_000_000> = Bounded::clamped(16_384), Narrowing::Smaller;
        /// How much the model thinks before it answers.
        pub thinking: ThinkingEffort, Narrowing::Ignored;
        /// Whether the model calls tools with the provider's interface for tools. With `false`, the
        /// model writes calls in its text.
        pub native_tools: bool = true, Narrowing::Ignored;
        /// Seconds without a byte of the answer after which a request fails.
        pub idle_secs: Bounded<1, 3600> = Bounded::clamped(300), Narrowing::Smaller;
        /// The prices of a million tokens.
        pub prices: Prices, Narrowing::Table(Prices::RULES);
    }
}

section! {
    /// The prices of a million tokens, all in one currency of your choice.
    #[derive(Copy)]
    pub struct Prices {
        /// Price of tokens that the model reads, except tokens from the provider's cache.
        pub input: Amount, Narrowing::Ignored;
        /// Price of tokens from the provider's cache. 0 means the same as `input`.
        pub cache_read: Amount, Narrowing::Ignored;
        /// Price of tokens that the model reads and that are written to the provider's cache. 0
        /// means the same as `input`.
        pub cache_write: Amount, Narrowing::Ignored;
        /// Price of tokens that the model writes.
        pub output: Amount, Narrowing::Ignored;
    }
}

/// The format of a provider's requests and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ModelFormat {
    /// The format that belongs to the provider's name.
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
    /// The provider's default.
    #[default]
    Default,
    /// No thinking, if the model supports that.
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
