//! What sjp did, counted from the decision log.

use std::collections::BTreeMap;

use serde_json::Value;

/// Changes of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Begun.
    pub begun: u64,
    /// Made whole.
    pub done: u64,
    /// The job did not wait any more.
    pub gone: u64,
    /// Refused, or slurmctld was busy for too long.
    pub failed: u64,
    /// Commands of those that were begun.
    pub commands: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Submissions by what place() did with them, as sjpd saw them in the queue.
    pub placements: BTreeMap<String, u64>,
    /// Changes of waiting jobs and QOS, by their word in the log.
    pub changes: BTreeMap<String, Changes>,
    /// What was said of those that failed, and their commands.
    pub failures: Vec<String>,
}

impl Tally {
    /// Counts the entries of a decision log.
    pub fn of(entries: &[Value]) -> Self {
        let mut tally = Self::default();
        for entry in entries {
            let Some(event) = entry["event"].as_str() else { continue };
            if let Some(outcome) = placement(event, entry) {
                *tally.placements.entry(outcome).or_default() += 1;
            }
            let Some(stage) = entry["stage"].as_str() else { continue };
            let changes = tally.changes.entry(event.to_string()).or_default();
            match stage {
                "begin" => {
                    changes.begun += 1;
                    changes.commands += entry["commands"].as_array().map_or(0, |c| c.len() as u64);
                }
                "done" => changes.done += 1,
                "gone" => changes.gone += 1,
                _ => {
                    changes.failed += 1;
                    let said = entry["said"].as_str().unwrap_or(stage);
                    tally.failures.push(format!("{event}: {said}: {}", entry["commands"]));
                }
            }
        }
        tally
    }

    /// Changes of this kind.
    pub fn changes(&self, kind: &str) -> Changes {
        self.changes.get(kind).cloned().unwrap_or_default()
    }

    /// Commands of all kinds.
    pub fn commands(&self) -> u64 {
        self.changes.values().map(|c| c.commands).sum()
    }
}

/// What place() did with the job of an entry, in words.
fn placement(event: &str, entry: &Value) -> Option<String> {
    match event {
        "placed" if entry["pinned"] == true => Some("pinned to a node".into()),
        "placed" if entry["claims"].as_u64() == Some(0) => Some("opened or placed, no room".into()),
        "placed" => Some("placed, not pinned".into()),
        "skipped" => Some(format!("left: {}", entry["reason"].as_str().unwrap_or("?"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_are_counted_by_kind_and_stage() {
        let change = |event: &str, stage: &str, said: Option<&str>| json!({"event": event, "stage": stage, "commands": ["a", "b"], "said": said});
        let tally = Tally::of(&[
            json!({"event": "placed", "pinned": true, "claims": 1}),
            json!({"event": "placed", "pinned": false, "claims": 0}),
            json!({"event": "skipped", "reason": "array"}),
            json!({"event": "start"}),
            change("move", "begin", None),
            change("move", "done", None),
            change("move", "begin", None),
            change("move", "failed", Some("no")),
            change("release", "begin", None),
            change("release", "gone", Some("started")),
        ]);
        assert_eq!(tally.placements.values().sum::<u64>(), 3);
        assert_eq!(tally.placements["left: array"], 1);
        let moves = Changes { begun: 2, done: 1, gone: 0, failed: 1, commands: 4 };
        assert_eq!(tally.changes("move"), moves);
        assert_eq!(tally.changes("release").gone, 1);
        assert_eq!(tally.commands(), 6);
        assert_eq!(tally.failures, ["move: no: [\"a\",\"b\"]"]);
    }
}
