//! Settings that only make sense together. Run on a file whose single values
//! are all right; findings are placed at the first of the keys involved that
//! the file gives.

use super::read::{Finding, Given};
use super::settings::{Config, LimitsMode};
use std::path::Path;
use std::time::Duration;

pub(super) fn check(
    config: &Config,
    given: &Given,
    errors: &mut Vec<Finding>,
    notices: &mut Vec<Finding>,
) {
    let finding = |keys: &[&str], message: String| {
        let (key, at) = keys
            .iter()
            .find_map(|k| given.get(k).map(|at| (*k, *at)))
            .unwrap_or((keys.first().copied().unwrap_or_default(), 0));
        let key = match key.split_once('.') {
            Some((section, rest)) => format!("[{section}] {rest}"),
            None => key.to_owned(),
        };
        Finding { at, key, message }
    };

    for ((one, a), (other, b)) in same_files(config) {
        let message = format!("{} is what {other} names too; each needs its own", a.display());
        debug_assert_eq!(a, b);
        errors.push(finding(&[one, other], message));
    }

    let (pin, cadence, policy, limits) =
        (&config.pin, &config.cadence, &config.policy, &config.limits);
    let mut say = |keys: &[&str], message: String| notices.push(finding(keys, message));
    if cadence.policy_max_age < pin.max_age {
        let message = format!(
            "[pin] max_age ({} s) is above [cadence] policy_max_age ({} s), which counts",
            pin.max_age.as_secs_f64(),
            cadence.policy_max_age.as_secs_f64()
        );
        say(&["pin.max_age", "cadence.policy_max_age"], message);
    }
    let age = pin.max_age.min(cadence.policy_max_age);
    let least = cadence.node_poll_interval.saturating_mul(2);
    if age < least {
        let message = format!(
            "nodes are read every {} s, so that data is often older than [pin] max_age ({} s), \
             and place() then answers \"stale\"; give at least {} s",
            cadence.node_poll_interval.as_secs_f64(),
            age.as_secs_f64(),
            least.as_secs_f64()
        );
        say(&["pin.max_age", "cadence.policy_max_age", "cadence.node_poll_interval"], message);
    }
    if pin.wait_for_room {
        let missing: Vec<_> = [
            (!policy.always_place, "[policy] always_place = true"),
            (!pin.enabled, "[pin] enabled = true"),
            (config.recheck.interval == Duration::ZERO, "[recheck] interval above 0"),
        ]
        .into_iter()
        .filter_map(|(lacks, what)| lacks.then_some(what))
        .collect();
        if !missing.is_empty() {
            let message = format!("has no effect without {}", missing.join(" and "));
            say(&["pin.wait_for_room"], message);
        }
    }
    if policy.always_place && policy.no_room == sjp_core::config::NoRoom::Open {
        let message = "has no effect with [policy] no_room = \"open\"".into();
        say(&["policy.always_place"], message);
    }
    if pin.min_gain.is_some() && given.contains_key("pin.min_gain_share") {
        let message = "has no effect where [pin] min_gain is set".into();
        say(&["pin.min_gain_share"], message);
    }
    if config.recheck.interval == Duration::ZERO && given.contains_key("recheck.open") {
        let message = "has no effect with [recheck] interval = 0".into();
        say(&["recheck.open"], message);
    }
    if limits.mode == LimitsMode::Global && limits.lower_below >= limits.min_idle_share {
        let message = format!(
            "{} is not below min_idle_share ({}): a pulse would end as it begins",
            limits.lower_below, limits.min_idle_share
        );
        say(&["limits.lower_below", "limits.min_idle_share"], message);
    }
    if limits.mode == LimitsMode::Global && limits.ceiling <= 1.0 {
        say(&["limits.ceiling"], "1 raises nothing".into());
    }
    let topology = &config.topology;
    for name in &topology.batch_partitions {
        if topology.exclude_partitions.contains(name) {
            let message = format!("\"{name}\" is in batch_partitions too, and stays excluded");
            say(&["topology.exclude_partitions"], message);
        }
        if name == "interactive" && topology.exclude_interactive {
            let message = "\"interactive\" stays excluded by exclude_interactive = true".into();
            say(&["topology.batch_partitions"], message);
        }
    }
}

type Named<'a> = (&'static str, &'a Path);

/// Pairs of settings that name the same file.
fn same_files(config: &Config) -> Vec<(Named<'_>, Named<'_>)> {
    let general = &config.general;
    let mut files: Vec<Named<'_>> = vec![
        ("general.state_dir", &general.state_dir),
        ("general.log_file", &general.log_file),
        ("general.disable_file", &general.disable_file),
        ("limits.state_file", &config.limits.state_file),
    ];
    if let Some(text_log) = &general.text_log.0 {
        files.push(("general.text_log", text_log));
    }
    let mut pairs = Vec::new();
    for (i, a) in files.iter().enumerate() {
        for b in files.iter().skip(i + 1).filter(|b| a.1 == b.1) {
            pairs.push((*a, *b));
        }
    }
    pairs
}
