//! Measures two things so that changes of the machine affect both: in turn, and compared pair by
//! pair.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The result of measuring Toolhold and its rival in turn.
pub(crate) struct Compared {
    /// The median of Toolhold's rounds.
    pub(crate) ours: Duration,
    /// The median of the rival's rounds.
    pub(crate) rival: Duration,
    /// Each round's own ratio, ours to the rival's: below 1 Toolhold is faster.
    pub(crate) ratios: Vec<f64>,
}

/// Runs both once to warm up, then `rounds` times in turn: A B A B.
///
/// # Errors
///
/// The first that either reports.
pub(crate) fn in_turn(
    rounds: usize,
    mut ours: impl FnMut() -> Result<Duration, String>,
    mut rival: impl FnMut() -> Result<Duration, String>,
) -> Result<Compared, String> {
    ours()?;
    rival()?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        times.push((ours()?, rival()?));
    }
    let ratio =
        |(ours, rival): &(Duration, Duration)| ours.as_secs_f64() / rival.as_secs_f64().max(1e-9);
    Ok(Compared {
        ours: median(times.iter().map(|(ours, _)| *ours).collect()),
        rival: median(times.iter().map(|(_, rival)| *rival).collect()),
        ratios: times.iter().map(ratio).collect(),
    })
}

/// Time of `work`.
///
/// # Errors
///
/// What `work` reports.
pub(crate) fn time<T>(work: impl FnOnce() -> Result<T, String>) -> Result<Duration, String> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// Runs a program to its end and returns what it wrote to its standard output.
///
/// # Errors
///
/// It can't be started, or exits with anything but 0.
pub(crate) fn output_of(command: &mut Command) -> Result<Vec<u8>, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let answer = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program} can't be started: {error}"))?;
    if answer.status.success() {
        Ok(answer.stdout)
    } else {
        Err(format!(
            "{program} failed ({}): {}",
            answer.status,
            String::from_utf8_lossy(&answer.stderr).trim()
        ))
    }
}

/// The middle value; the upper one of two.
pub(crate) fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A percentile.
pub(crate) fn percentile(values: &[Duration], percent: usize) -> Duration {
    let mut values = values.to_vec();
    values.sort_unstable();
    values
        .get((values.len() * percent / 100).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// The middle value; the upper one of two.
pub(crate) fn median_ratio(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A kind of memory of a process in MiB, as its `status` names it: `VmRSS` is what it has in RAM,
/// `RssAnon` what of that is its own and not a file's.
pub(crate) fn memory(process: u32, kind: &str) -> Result<f64, String> {
    let status = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&status)
        .map_err(|error| format!("can't read {status}: {error}"))?;
    let kibibytes = text.lines().find_map(|line| {
        let value = line.strip_prefix(kind)?.strip_prefix(':')?;
        value.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()
    });
    kibibytes.map(|kibibytes| kibibytes / 1024.0).ok_or_else(|| format!("{status} has no {kind}"))
}

/// Where `PATH` has a program.
pub(crate) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_what_was_measured_after_warming_up() {
        let mut ours = [100, 3, 1, 2].into_iter();
        let mut rival = [100, 6, 4, 2].into_iter();
        let next = |values: &mut std::array::IntoIter<u64, 4>| {
            values.next().map(Duration::from_millis).ok_or("spent".to_owned())
        };
        let next_rival = next;
        let compared = in_turn(3, || next(&mut ours), || next_rival(&mut rival)).unwrap();
        assert_eq!(
            (compared.ours, compared.rival),
            (Duration::from_millis(2), Duration::from_millis(4))
        );
        assert_eq!(compared.ratios, [0.5, 0.25, 1.0]);
    }

    #[test]
    fn a_percentile_leaves_out_the_worst() {
        let values: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 99), Duration::from_millis(199));
        assert_eq!(percentile(&values, 50), Duration::from_millis(101));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn an_error_ends_the_measurement() {
        assert_eq!(
            in_turn(1, || Err("ours".to_owned()), || Ok(Duration::ZERO)).err().as_deref(),
            Some("ours")
        );
    }
}
