//! `[tools.shell]`: the rules for commands, and the files and resources that their processes may
//! use.

use std::collections::BTreeMap;

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use toolhold_system::confine;

use crate::narrowing::{Narrowing, section};
use crate::presets::{PRESETS, Preset, preset};
use crate::string_types::{as_written, inline_schema};
use crate::{AllowedPath, Bounded, HostGrant, PathGlob, ShellSecret, VariableName, WrittenPattern};

section! {
    /// Rules for commands of all tools, and the sandbox of their processes.
    pub struct Shell {
        /// Whether the `bash` tool exists. `false` removes it from the catalogue.
        pub enabled: bool = true, Narrowing::OnlyFalse;
        /// Directories that commands may use. If empty, commands use the directories of
        /// `[tools.file]`. `deny_read`, `allow_read` and `deny_write` of `[tools.file]` also apply
        /// to commands. The default of `deny_write` doesn't, because git writes to `.git`.
        pub allowed_paths: Vec<AllowedPath>, Narrowing::Directories;
        /// Whether commands may use the network: never, with approval of each host or of the whole
        /// network, or always. `allow_network = false` means `"deny"`, and `allow_network = true`
        /// means `"allow"`.
        pub network: NetworkGrant, Narrowing::Stricter(&["deny", "ask", "allow"]);
        /// Hosts that commands reach without approval, if `network` is `"ask"`: `"example.org"`, or
        /// `"*.example.org"` for all names below `example.org`, with TLS; `"http://example.org"`
        /// with plain HTTP; `"example.org:22"` with any protocol over TCP. A table can also name
        /// the `methods` and `paths` of requests. An entry with a private host also opens this
        /// host. Other hosts need approval when a program first connects to them. `"job"` stands
        /// for the jobs of the session, which commands without the network reach in any case.
        pub hosts: Vec<HostGrant>, Narrowing::Covered(HostGrant::covers_written);
        /// Secrets that commands use without seeing them, by names of your choice. Commands with
        /// the whole network don't get them.
        pub secrets: BTreeMap<String, ShellSecret>, Narrowing::Named(ShellSecret::RULES);
        /// The kernel sandbox for commands and for programs of plugins. With `"strict"`, a program
        /// starts only if all parts of the sandbox are available. With `"best-effort"`, the sandbox
        /// has the parts that this machine supports, and a notice lists the missing parts. With
        /// `"off"`, there is no sandbox.
        pub sandbox: SandboxMode, Narrowing::Stricter(&["strict", "best-effort", "off"]);
        /// Your development tools that commands use, by name. Commands get their caches, programs
        /// and settings, but not their credentials. The hosts in your own settings of `npm`, `pip`,
        /// `cargo`, `go` and `git` are added to `hosts`.
        pub presets: Vec<PresetName>, Narrowing::Subset;
        /// Variables of your environment, by name, that commands get in addition to the usual
        /// variables. A variable that looks like a credential is passed on only if this list names
        /// it.
        pub env: Vec<VariableName>, Narrowing::Subset;
        /// Sockets in the granted directories that commands may connect to, and folders of such
        /// sockets. All other sockets are hidden, because the program behind a socket runs outside
        /// the sandbox. `~` is the home directory, and a relative path starts at the working
        /// directory.
        pub sockets: Vec<String>, Narrowing::Subset;
        /// Commands that are denied, in addition to those that are always denied: `rm -rf /`,
        /// `sudo`, `mkfs`, `dd if=`, `curl`, `wget`, `nc`, `ncat`, `netcat`, `shutdown`, `reboot`,
        /// `halt`. An entry is a program, or a program with arguments that the command must
        /// contain.
        pub blocked_commands: Vec<WrittenPattern>, Narrowing::Adds;
        /// Exceptions from the commands that are always denied.
        pub allowed_commands: Vec<WrittenPattern>, Narrowing::Subset;
        /// The programs that a command may start, by name. If empty, a command may start any
        /// program. Shell built-ins (`cd`, `echo`, …) are always allowed. A command that can't be
        /// resolved is denied.
        pub only_commands: Vec<WrittenPattern>, Narrowing::Restricts;
        /// Whether a command that can't be resolved, or that contains `$(…)`, backticks, `<(…)` or
        /// `>(…)`, is denied instead of needing approval.
        pub strict_parse: bool, Narrowing::OnlyTrue;
        /// Strings that make a command need approval. A command needs approval if it contains one
        /// of them, unless `[tools.permissions]` has a rule for `bash`. The default strings apply
        /// only with `autonomy = "ask"`.
        pub confirm_patterns: Vec<WrittenPattern> = CONFIRM.iter().map(|text| WrittenPattern((*text).to_owned())).collect(), Narrowing::Adds;
        /// Whether commands of high risk (`rm`, `chmod`, `ssh`, …) are denied instead of needing
        /// approval.
        pub block_high_risk_commands: bool, Narrowing::OnlyTrue;
        /// Whether commands of medium risk (`git commit`, `mv`, `npm install`, …) need approval at
        /// every `autonomy`, unless a permission allows them.
        pub require_approval_for_medium_risk: bool, Narrowing::OnlyTrue;
        /// Whether files are saved before a command changes them, for `toolhold undo`, as for file
        /// tools (`[tools.undo]`).
        pub transactional: bool = true, Narrowing::OnlyTrue;
        /// Globs of the files whose changes by commands are saved. If empty, all changes are saved.
        pub transaction_scope: Vec<PathGlob> = vec![PathGlob::known("**")], Narrowing::Ignored;
        /// Whether a change by a command is denied if the old state can't be saved. The reason is
        /// that the file is too large, or that the sandbox can't see the command's changes.
        pub snapshot_required: bool, Narrowing::OnlyTrue;
        /// Bytes that are saved for the commands of one call. 0 means `call_mib` of `[tools.undo]`.
        pub max_snapshot_bytes: u64, Narrowing::Ignored;
        /// Whether the changes of a command are undone at once if the command ends with one of
        /// `auto_rollback_exit_codes`.
        pub auto_rollback: bool, Narrowing::Ignored;
        /// The exit codes that undo the changes of a command. If empty, 2 and above.
        pub auto_rollback_exit_codes: Vec<i32> = vec![1, 2], Narrowing::Ignored;
        /// Whether a command continues with the working directory and the exported variables of the
        /// session's last command, except variables that make programs run other code (`PATH`,
        /// `LD_*`, `GIT_*`, …). The rules about commands treat the variables as a part of the next
        /// command.
        pub session: bool, Narrowing::OnlyFalse;
        /// The limits for the processes of one command, or of one program that a plugin starts.
        pub limits: ProcessLimits, Narrowing::Table(ProcessLimits::RULES);
        /// Jobs: commands that continue after their call. `bash` starts a job with `background =
        /// true`.
        pub jobs: JobSettings, Narrowing::Table(JobSettings::RULES);
    }
}

section! {
    /// Jobs: commands in the background. The `limits` of commands also apply to jobs.
    pub struct JobSettings {
        /// Jobs of one session that run at the same time. 0 means that there are no jobs, and no
        /// tools for jobs.
        pub running: Bounded<0, 64> = Bounded::clamped(8), Narrowing::Smaller;
        /// Seconds after which a job is stopped.
        pub max_secs: Bounded<1, 604_800> = Bounded::clamped(14_400), Narrowing::Smaller;
        /// Size limit of the stored output of one job, in MiB. The oldest output is removed first.
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
    /// With approval.
    #[default]
    Ask,
    /// Without approval.
    Allow,
}

/// The parts of the kernel's sandbox that are required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum SandboxMode {
    /// All parts. If a part is missing, no program starts.
    #[default]
    Strict,
    /// The parts that this machine supports, with a notice about missing parts.
    BestEffort,
    /// No sandbox.
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
    /// The limits for the processes of one command.
    #[derive(Copy, Eq)]
    pub struct ProcessLimits {
        /// MiB of memory in use, for all processes together. Reserved memory isn't counted.
        pub memory_mib: Bounded<16, 1_048_576> = Bounded::clamped(4096), Narrowing::Smaller;
        /// Processes and threads at the same time.
        pub processes: Bounded<4, 65_536> = Bounded::clamped(512), Narrowing::Smaller;
        /// Seconds of processor time, for all processes together.
        pub cpu_secs: Bounded<1, 604_800> = Bounded::clamped(3600), Narrowing::Smaller;
        /// MiB of one file that is written.
        pub file_mib: Bounded<1, 1_048_576> = Bounded::clamped(4096), Narrowing::Smaller;
        /// Files, sockets and pipes that each process may have open.
        pub open_files: Bounded<64, 1_048_576> = Bounded::clamped(4096), Narrowing::Smaller;
        /// MiB of the private `/tmp` and home directory, which are in memory and are deleted when
        /// the command ends.
        pub scratch_mib: Bounded<1, 1_048_576> = Bounded::clamped(1024), Narrowing::Smaller;
    }
}

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

impl From<ProcessLimits> for confine::Limits {
    fn from(limits: ProcessLimits) -> Self {
        Self {
            memory: limits.memory_mib.get() * MIB,
            processes: limits.processes.get(),
            cpu: limits.cpu_secs.get(),
            file_size: limits.file_mib.get() * MIB,
            open_files: limits.open_files.get(),
            scratch: limits.scratch_mib.get() * MIB,
        }
    }
}

/// The name of a [`Preset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PresetName(&'static str);

impl PresetName {
    /// Returns the preset with this name.
    pub fn preset(self) -> Option<&'static Preset> {
        preset(self.0)
    }
}

impl<'de> Deserialize<'de> for PresetName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        if let Some(preset) = preset(&written) {
            return Ok(Self(preset.name));
        }
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let known = names.join(", ");
        Err(serde::de::Error::custom(format!(
            "the preset `{written}` doesn't exist; the presets are: {known}. To grant a directory, \
             use `allowed_paths`"
        )))
    }
}

inline_schema!(PresetName, "PresetName", {
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    json_schema!({ "type": "string", "enum": names })
});

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
