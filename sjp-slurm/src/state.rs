//! Node and job states: Slurm's words with all their flags and signs.

use sjp_core::cluster::JobState;

/// The words of a node state as Slurm prints it, upper case, in the order
/// printed, with signs and short forms written out: `DOWN*+DRAIN` is `DOWN`,
/// `NOT_RESPONDING`, `DRAIN`; `drng@` is `DRAINING`, `REBOOT_REQUESTED`.
#[must_use]
pub fn node_words(text: &str) -> Vec<String> {
    let mut words = Vec::with_capacity(2);
    for part in text.split('+') {
        let bare = part.trim().trim_end_matches(|c| sign(c).is_some());
        if !bare.is_empty() {
            push(&mut words, long_form(bare));
        }
        for c in part.trim()[bare.len()..].chars() {
            if let Some(word) = sign(c) {
                push(&mut words, word.to_owned());
            }
        }
    }
    words
}

fn push(words: &mut Vec<String>, word: String) {
    if !words.contains(&word) {
        words.push(word);
    }
}

/// What a sign behind a state stands for.
fn sign(c: char) -> Option<&'static str> {
    Some(match c {
        '*' => "NOT_RESPONDING",
        '~' => "POWERED_DOWN",
        '#' => "POWERING_UP",
        '!' => "POWER_DOWN",
        '%' => "POWERING_DOWN",
        '$' => "MAINT",
        '@' => "REBOOT_REQUESTED",
        '^' => "REBOOT_ISSUED",
        '-' => "PLANNED",
        _ => return None,
    })
}

/// The long form of sinfo's short words; other words in upper case.
fn long_form(word: &str) -> String {
    let upper = word.to_ascii_uppercase();
    let long = match upper.as_str() {
        "ALLOC" => "ALLOCATED",
        "MIX" => "MIXED",
        "COMP" => "COMPLETING",
        "DRNG" => "DRAINING",
        "FAILG" => "FAILING",
        "RESV" => "RESERVED",
        "PLND" => "PLANNED",
        "UNK" => "UNKNOWN",
        "FUTR" => "FUTURE",
        "BLOCK" => "BLOCKED",
        "BOOT" => "REBOOT_ISSUED",
        "NO_RESPOND" => "NOT_RESPONDING",
        "POW_UP" => "POWERING_UP",
        "POW_DN" => "POWERING_DOWN",
        _ => return upper,
    };
    long.to_owned()
}

/// Whether a new job may be placed on a node in this state. A node that is
/// full (`ALLOCATED`) is still usable: whether it has room is another matter,
/// and a partition of full nodes can hold a job later.
#[must_use]
pub fn node_usable<S: AsRef<str>>(words: &[S]) -> bool {
    !words.is_empty() && !words.iter().any(|w| keeps_jobs_off(w.as_ref()))
}

fn keeps_jobs_off(word: &str) -> bool {
    word.starts_with("DRAIN")
        || word.starts_with("FAIL")
        || word.starts_with("MAINT")
        || word.starts_with("INVAL")
        || matches!(
            word,
            "DOWN"
                | "REBOOT_ISSUED"
                | "NOT_RESPONDING"
                | "UNKNOWN"
                | "FUTURE"
                | "ERROR"
                | "BLOCKED"
                | "POWER_DRAIN"
        )
}

/// A job's state, condensed, from Slurm's word for it; `None` for a word that
/// Slurm does not use.
#[must_use]
pub fn job(word: &str) -> Option<JobState> {
    Some(match word {
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "SPECIAL_EXIT"
        | "RESV_DEL_HOLD" => JobState::Pending,
        "RUNNING" | "CONFIGURING" | "COMPLETING" | "SUSPENDED" | "STOPPED" | "RESIZING"
        | "SIGNALING" | "STAGE_OUT" | "POWER_UP_NODE" | "EXPEDITING" => JobState::Active,
        "COMPLETED" | "CANCELLED" | "FAILED" | "TIMEOUT" | "NODE_FAIL" | "PREEMPTED"
        | "BOOT_FAIL" | "DEADLINE" | "OUT_OF_MEMORY" | "REVOKED" | "LAUNCH_FAILED"
        | "RECONFIG_FAIL" | "UPDATE_DB" => JobState::Ended,
        _ => return None,
    })
}

/// Slurm's word for squeue's short form of a job state (`PD`, `CG`, ...);
/// longer words as they are.
#[must_use]
pub fn job_word(text: &str) -> &str {
    match text {
        "PD" => "PENDING",
        "R" => "RUNNING",
        "CF" => "CONFIGURING",
        "CG" => "COMPLETING",
        "CD" => "COMPLETED",
        "CA" => "CANCELLED",
        "F" => "FAILED",
        "TO" => "TIMEOUT",
        "NF" => "NODE_FAIL",
        "PR" => "PREEMPTED",
        "BF" => "BOOT_FAIL",
        "DL" => "DEADLINE",
        "OOM" => "OUT_OF_MEMORY",
        "RD" => "RESV_DEL_HOLD",
        "RF" => "REQUEUE_FED",
        "RH" => "REQUEUE_HOLD",
        "RQ" => "REQUEUED",
        "RS" => "RESIZING",
        "RV" => "REVOKED",
        "S" => "SUSPENDED",
        "SE" => "SPECIAL_EXIT",
        "SI" => "SIGNALING",
        "SO" => "STAGE_OUT",
        "ST" => "STOPPED",
        word => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_node_states() {
        for (text, want) in [
            ("DOWN*+DRAIN", vec!["DOWN", "NOT_RESPONDING", "DRAIN"]),
            ("IDLE+CLOUD+POWERED_DOWN", vec!["IDLE", "CLOUD", "POWERED_DOWN"]),
            ("drng@", vec!["DRAINING", "REBOOT_REQUESTED"]),
            ("fail*", vec!["FAIL", "NOT_RESPONDING"]),
            ("idle~", vec!["IDLE", "POWERED_DOWN"]),
            ("mix-", vec!["MIXED", "PLANNED"]),
            ("mixed+reserved", vec!["MIXED", "RESERVED"]),
            ("IDLE+NOT_RESPONDING*", vec!["IDLE", "NOT_RESPONDING"]),
            ("", vec![]),
        ] {
            assert_eq!(node_words(text), want, "{text}");
        }
    }

    #[test]
    fn usable_states() {
        for state in [
            "IDLE",
            "MIXED",
            "ALLOCATED",
            "IDLE+CLOUD",
            "IDLE+CLOUD+POWERED_DOWN",
            "IDLE~",
            "IDLE#",
            "IDLE+POWERING_UP",
            "MIXED+COMPLETING",
            "IDLE+PLANNED",
            "IDLE+RESERVED",
            "IDLE@",
            "MIXED+REBOOT_REQUESTED",
            "IDLE+DYNAMIC_NORM",
            "mix",
            "idle-",
        ] {
            assert!(node_usable(&node_words(state)), "{state}");
        }
        for state in [
            "DOWN",
            "IDLE+DRAIN",
            "DRAINED",
            "MIXED+DRAIN+REBOOT_REQUESTED",
            "draining",
            "FAIL",
            "FAILING*",
            "IDLE+MAINT",
            "maint",
            "IDLE+MAINTENANCE",
            "IDLE$",
            "IDLE+REBOOT_ISSUED",
            "IDLE^",
            "IDLE*",
            "IDLE+NOT_RESPONDING",
            "INVAL",
            "IDLE+INVALID_REG",
            "UNKNOWN",
            "FUTURE",
            "ERROR",
            "IDLE+BLOCKED",
            "drng@",
            "",
        ] {
            assert!(!node_usable(&node_words(state)), "{state}");
        }
    }

    #[test]
    fn job_states() {
        assert_eq!(job("PENDING"), Some(JobState::Pending));
        assert_eq!(job(job_word("CG")), Some(JobState::Active));
        assert_eq!(job("TIMEOUT"), Some(JobState::Ended));
        assert_eq!(job("bar"), None);
    }
}
