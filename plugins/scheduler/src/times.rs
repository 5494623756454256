//! Reads when a task runs, as other programs say it.

use serde::Deserialize;
use serde_json::Value;
use toolhold_sdk::Failure;

/// When a task runs. Exactly one of them is given.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// A cron expression, or an object with its kind.
    pub(crate) schedule: Option<Value>,
    /// A cron expression.
    pub(crate) cron: Option<String>,
    /// A time.
    pub(crate) run_at: Option<String>,
    /// A duration.
    pub(crate) delay: Option<String>,
}

/// When a task runs, in the host's words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) kind: &'static str,
    pub(crate) when: String,
    pub(crate) zone: Option<String>,
}

/// The object of `schedule`.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Form {
    Cron {
        #[serde(alias = "expression")]
        expr: String,
        #[serde(alias = "zone", alias = "timezone")]
        tz: Option<String>,
    },
    At {
        at: String,
    },
    After {
        seconds: u64,
    },
    Every {
        every_ms: u64,
    },
}

impl Given {
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    fn count(&self) -> usize {
        let Self { schedule, cron, run_at, delay } = self;
        let given = [schedule.is_some(), cron.is_some(), run_at.is_some(), delay.is_some()];
        given.into_iter().filter(|given| *given).count()
    }

    /// # Errors
    ///
    /// The time isn't a cron expression.
    pub(crate) fn check_repeats(&self) -> Result<(), Failure> {
        if self.run_at.is_some() || self.delay.is_some() {
            return Err(Failure::invalid("add makes a task that repeats")
                .with_suggestion("Give expression, or use the action once."));
        }
        Ok(())
    }

    /// # Errors
    ///
    /// The time isn't a time or a duration.
    pub(crate) fn check_once(&self) -> Result<(), Failure> {
        let repeats = self
            .schedule
            .as_ref()
            .is_some_and(|form| !matches!(form["kind"].as_str(), Some("at" | "after")));
        if self.cron.is_some() || repeats {
            return Err(Failure::invalid("once makes a task that runs once")
                .with_suggestion("Give run_at or delay, or use the action add."));
        }
        Ok(())
    }

    /// # Errors
    ///
    /// There is no time or more than one, or the time has another form.
    pub(crate) fn times(self) -> Result<Times, Failure> {
        if self.count() > 1 {
            return Err(Failure::invalid("more than one time is given")
                .with_suggestion("Give one of expression, run_at, delay and schedule."));
        }
        match (self.schedule, self.cron, self.run_at.or(self.delay)) {
            (Some(Value::String(cron)), ..) | (None, Some(cron), _) => {
                Ok(Times { kind: "cron", when: cron, zone: None })
            }
            (Some(form), ..) => read(form),
            (None, None, Some(when)) => Ok(Times { kind: "once", when, zone: None }),
            (None, None, None) => Err(Failure::invalid("it isn't said when it runs")
                .with_suggestion("Give a cron expression, a time or a duration.")),
        }
    }
}

/// Reads the object of `schedule`.
fn read(form: Value) -> Result<Times, Failure> {
    let form: Form = serde_json::from_value(form).map_err(|error| {
        Failure::invalid(format!("schedule: {error}"))
            .with_suggestion("An example: {\"kind\": \"cron\", \"expr\": \"30 9 * * 1-5\"}.")
    })?;
    let (kind, when, zone) = match form {
        Form::Cron { expr, tz } => ("cron", expr, tz),
        Form::At { at } => ("once", at, None),
        Form::After { seconds } => ("once", format!("PT{seconds}S"), None),
        Form::Every { every_ms } if every_ms > 0 && every_ms % 1000 == 0 => {
            ("every", (every_ms / 1000).to_string(), None)
        }
        Form::Every { every_ms } => {
            return Err(Failure::invalid(format!(
                "schedule: every_ms is {every_ms}; a period is in whole seconds"
            ))
            .with_suggestion("Give a multiple of 1000."));
        }
    };
    Ok(Times { kind, when, zone })
}
