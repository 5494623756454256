//! `[tools.shell]`: what commands may do, and what the processes that they start may see and use.

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use toolhold_system::confine;

use crate::narrowing::{Narrowing, section};
use crate::presets::{PRESETS, Preset, preset};
use crate::string_types::{as_written, inline_schema};
use crate::{AllowedPath, Bounded, PathGlob, WrittenPattern};

section! {
    /// What commands may do, whichever tool runs them, and what the processes of calls see and use.
    pub struct Shell {
        /// Whether there is a `bash` tool. `false` takes it out of the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Directories that commands may use. If empty, those of `[tools.file]`. `deny_read`,
        /// `allow_read` and `deny_write` of `[tools.file]` hold there too, except the default of
        /// `deny_write`: git writes to `.git`.
        pub allowed_paths: Vec<AllowedPath>, Narrowing::Directories;
        /// Whether commands reach the network: never, if a person approves, or always.
        /// `allow_network = false` is another way to write `"deny"`, and `allow_network = true` to
        /// write `"allow"`.
        pub network: NetworkGrant, Narrowing::Stricter(&["deny", "ask", "allow"]);
        /// How much of the kernel's sandbox commands and programs of plugins need: all of it, or
        /// they don't start; what this machine offers, with a notice about missing parts; or none.
        pub sandbox: SandboxMode, Narrowing::Stricter(&["strict", "best-effort", "off"]);
        /// Tools of yours that commands use, by name. Their caches, programs and settings are
        /// granted, their credentials are not.
        pub presets: Vec<PresetName>, Narrowing::Subset;
        /// Variables of your environment that commands get in addition to the usual ones, by name.
        /// A variable that looks like a credential is passed on only if it is named here.
        pub env: Vec<VariableName>, Narrowing::Subset;
        /// Sockets in the granted directories that commands may connect to, and folders of such
        /// sockets. The program that listens there runs outside the sandbox, so all other sockets
        /// are hidden. `~` is the home directory, and a relative path starts at the working
        /// directory.
        pub sockets: Vec<String>, Narrowing::Subset;
        /// Commands that never run, in addition to those that are always blocked: `rm -rf /`,
        /// `sudo`, `mkfs`, `dd if=`, `curl`, `wget`, `nc`, `ncat`, `netcat`, `shutdown`, `reboot`,
        /// `halt`. An entry is a program, or a program with arguments that have to be among its
        /// own.
        pub blocked_commands: Vec<WrittenPattern>, Narrowing::Adds;
        /// Exceptions from the commands that are always blocked.
        pub allowed_commands: Vec<WrittenPattern>, Narrowing::Subset;
        /// The programs that a command may start, by name. If empty, any. Shell built-ins (`cd`,
        /// `echo`, …) are always allowed. A command that can't be resolved is refused.
        pub only_commands: Vec<WrittenPattern>, Narrowing::Restricts;
        /// Whether a command that can't be resolved, or that contains `$(…)`, backticks, `<(…)` or
        /// `>(…)`, is refused instead of needing approval.
        pub strict_parse: bool, Narrowing::OnlyTrue;
        /// Texts that make a command need approval if it contains one. They count if
        /// `[tools.permissions]` has no rule for `bash`. The default ones count only with
        /// `autonomy = "ask"`.
        pub confirm_patterns: Vec<WrittenPattern> = CONFIRM.iter().map(|text| WrittenPattern((*text).to_owned())).collect(), Narrowing::Adds;
        /// Whether commands of high risk (`rm`, `chmod`, `ssh`, …) are refused instead of needing
        /// approval.
        pub block_high_risk_commands: bool, Narrowing::OnlyTrue;
        /// Whether commands of medium risk (`git commit`, `mv`, `npm install`, …) need approval
        /// whatever `autonomy` is, unless a permission allows them.
        pub require_approval_for_medium_risk: bool, Narrowing::OnlyTrue;
        /// Whether what commands change in files is saved first, for `toolhold undo`, as what file
        /// tools change (`[tools.undo]`).
        pub transactional: bool = true, Narrowing::OnlyTrue;
        /// Globs of the files whose changes by commands are saved. If empty, all.
        pub transaction_scope: Vec<PathGlob> = vec![PathGlob::known("**")], Narrowing::Ignored;
        /// Whether a change by a command is refused if the old state can't be saved: because it is
        /// too large, or because the sandbox can't tell what the command changes.
        pub snapshot_required: bool, Narrowing::OnlyTrue;
        /// Bytes that are saved of what the commands of one call change. 0: as much as
        /// `[tools.undo]` has in `call_mib`.
        pub max_snapshot_bytes: u64, Narrowing::Ignored;
        /// Whether the changes of a command are undone at once if it ends with one of
        /// `auto_rollback_exit_codes`.
        pub auto_rollback: bool, Narrowing::Ignored;
        /// The exit codes that undo the changes of a command. If empty, 2 and above.
        pub auto_rollback_exit_codes: Vec<i32> = vec![1, 2], Narrowing::Ignored;
        /// Whether a command of a session begins with what the last one left: its working
        /// directory and exported variables, except those that make programs run other code
        /// (`PATH`, `LD_*`, `GIT_*`, …). The rules about commands read the variables as part of
        /// the next command.
        pub session: bool, Narrowing::OnlyFalse;
        /// What the processes of one command may use, and those of one program that a plugin
        /// starts.
        pub limits: ProcessLimits, Narrowing::Table(ProcessLimits::RULES);
        /// Commands that go on after their call: `bash` starts one with `background = true`.
        pub jobs: JobSettings, Narrowing::Table(JobSettings::RULES);
    }
}

section! {
    /// Commands in the background. Each has the `limits` of a command, too.
    pub struct JobSettings {
        /// Jobs of one session that run at the same time. 0: there are none, and no tools for them.
        pub running: Bounded<0, 64> = Bounded::clamped(8), Narrowing::Smaller;
        /// Seconds after which a job is stopped.
        pub max_secs: Bounded<1, 604_800> = Bounded::clamped(14_400), Narrowing::Smaller;
        /// MiB that are kept of the output of one job. The oldest output makes room.
        pub output_mib: Bounded<1, 64> = Bounded::clamped(16), Narrowing::Smaller;
    }
}

/// The default of `confirm_patterns`.
const CONFIRM: [&str; 12] = [
    "rm ",
    "git push -f",
    "git push --force",
    "drop table",
    "drop database",
    "truncate ",
    "$(",
    "`",
    "<(",
    ">(",
    "<<<",
    "eval ",
];

/// Whether processes reach the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum NetworkGrant {
    /// Never.
    Deny,
    /// If a person approves.
    #[default]
    Ask,
    /// If they ask for it.
    Allow,
}

/// How much of the kernel's sandbox is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum SandboxMode {
    /// All of it, or nothing starts.
    #[default]
    Strict,
    /// What this machine offers, with a notice about missing parts.
    BestEffort,
    /// None.
    Off,
}

impl From<SandboxMode> for confine::Sandbox {
    fn from(mode: SandboxMode) -> Self {
        match mode {
            SandboxMode::Strict => Self::Strict,
            SandboxMode::BestEffort => Self::BestEffort,
            SandboxMode::Off => Self::Off,
        }
    }
}

section! {
    /// What the processes of one command may use.
    #[derive(Copy, Eq)]
    pub struct ProcessLimits {
        /// MiB of memory in use, for all processes together. A reservation isn't counted.
        pub memory_mib: Bounded<16, 1_048_576> = Bounded::clamped(4096), Narrowing::Smaller;
        /// Processes and threads at the same time.
        pub processes: Bounded<4, 65_536> = Bounded::clamped(512), Narrowing::Smaller;
        /// Seconds of processor time, for all processes together.
        pub cpu_secs: Bounded<1, 604_800> = Bounded::clamped(3600), Narrowing::Smaller;
        /// MiB of one file that is written.
        pub file_mib: Bounded<1, 1_048_576> = Bounded::clamped(4096), Narrowing::Smaller;
        /// Files, sockets and pipes that each process may have open.
        pub open_files: Bounded<64, 1_048_576> = Bounded::clamped(4096), Narrowing::Smaller;
        /// MiB of the private `/tmp` and home directory, which are in memory and end with the
        /// command.
        pub scratch_mib: Bounded<1, 1_048_576> = Bounded::clamped(1024), Narrowing::Smaller;
    }
}

impl From<ProcessLimits> for confine::Limits {
    fn from(limits: ProcessLimits) -> Self {
        Self {
            memory: limits.memory_mib.get() << 20,
            processes: limits.processes.get(),
            cpu: limits.cpu_secs.get(),
            file_size: limits.file_mib.get() << 20,
            open_files: limits.open_files.get(),
            scratch: limits.scratch_mib.get() << 20,
        }
    }
}

/// The name of a [`Preset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PresetName(&'static str);

impl PresetName {
    /// The preset with the name.
    pub fn preset(self) -> Option<&'static Preset> {
        preset(self.0)
    }
}

impl<'de> Deserialize<'de> for PresetName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        preset(&written).map(|preset| Self(preset.name)).ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            let known = names.join(", ");
            serde::de::Error::custom(format!("there is no preset `{written}`; the presets are: {known}. To grant a directory, use `allowed_paths`"))
        })
    }
}

inline_schema!(PresetName, "PresetName", {
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    json_schema!({ "type": "string", "enum": names })
});

/// The name of an environment variable: letters, digits and `_`. It doesn't begin with a digit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VariableName(String);

as_written!(VariableName);

/// Characters of a variable's name.
const MAX_NAME: usize = 128;

impl<'de> Deserialize<'de> for VariableName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.is_empty()
            || name.len() > MAX_NAME
            || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            || name.starts_with(|first: char| first.is_ascii_digit())
        {
            // A value must not appear in a message.
            let name =
                if name.contains('=') { name.split('=').next().unwrap_or_default() } else { &name };
            return Err(serde::de::Error::custom(format!(
                "`{name}` isn't a valid variable name: `env` takes names, as in \"DATABASE_URL\"; the values come from your environment"
            )));
        }
        Ok(Self(name))
    }
}

inline_schema!(
    VariableName,
    "VariableName",
    json_schema!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": MAX_NAME })
);

/// A program that a plugin may start, and globs for its arguments: `git {status,diff} **`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenProgram(String);

as_written!(WrittenProgram);

impl<'de> Deserialize<'de> for WrittenProgram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        toolhold_policy::Programs::new([(written.clone(), String::new())])
            .map_err(serde::de::Error::custom)?;
        Ok(Self(written))
    }
}

inline_schema!(WrittenProgram, "Program", json_schema!({ "type": "string", "minLength": 1 }));

impl From<NetworkGrant> for toolhold_policy::Network {
    fn from(grant: NetworkGrant) -> Self {
        match grant {
            NetworkGrant::Deny => Self::Deny,
            NetworkGrant::Ask => Self::Ask,
            NetworkGrant::Allow => Self::Allow,
        }
    }
}
