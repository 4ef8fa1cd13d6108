//! Placements of the Lua module, once their jobs have appeared in the queue.

use super::observe::shape;
use crate::journal::Entry;
use sjp_core::cluster::{Job, JobState};
use sjp_core::decision::Basis;
use sjp_core::ledger::{Match, PINNED};
use sjp_core::mark;
use sjp_core::units::{Cpus, MemMb};

/// The entry for a claim that found its job; `None` where the queue does not
/// have it (any more).
#[must_use]
pub fn entry(found: &Match, jobs: &[Job]) -> Option<Entry> {
    let job = jobs.iter().find(|j| j.id == found.job)?;
    let (node, claim) = found.claims.first()?;
    let pinned = claim.flags & PINNED != 0;
    let partitions = job.partitions.join(",");
    let basis = match claim.basis() {
        Some(Basis::Room) => "nodes have room",
        Some(Basis::Shape) => "no room; by shape",
        Some(Basis::Open) => "no room; every partition that can hold it",
        None => "unknown",
    };
    let claimed = mark::shape(Cpus(claim.cpus), (claim.mem > 0).then_some(MemMb(claim.mem.into())));
    let mut words = format!("job {}: {}: ", job.id, shape(job));
    words += &if pinned {
        format!("pinned to {node} in {partitions}")
    } else {
        let nodes: Vec<&str> = found.claims.iter().map(|(node, _)| node.as_str()).take(3).collect();
        format!("placed in {partitions}, expected on {}", nodes.join(","))
    };
    words = format!("{words}; {basis}");
    if let Some(not) = claim.not_pinned() {
        words = format!("{words}; not pinned: {not}");
    }
    match job.state {
        JobState::Active => words = format!("{words}; started on {}", job.nodes.join(",")),
        JobState::Pending => words = format!("{words}; waits ({})", job.reason),
        JobState::Ended => {}
    }
    Some(
        Entry::new("placed", words)
            .with("job", job.id)
            .with("uid", job.uid)
            .with("id", format!("{:x}", found.id))
            .with("pinned", pinned)
            .with("node", node)
            .with("partitions", &job.partitions)
            .with("claimed", claimed)
            .with("claims", found.claims.len())
            .with("basis", basis)
            .with_some("not_pinned", claim.not_pinned().map(|n| n.words()))
            .with("state", &job.state_word)
            .with("nodes", &job.nodes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sjp_core::publication::Claim;

    #[test]
    fn a_placement_says_where_and_what_became_of_it() {
        let claim = Claim { id: 0x7f3a, cpus: 4, mem: 16384, flags: 1, ..Claim::default() };
        let found = Match { id: 0x7f3a, job: 9, claims: vec![("n16".into(), claim)] };
        let job = Job {
            id: 9,
            state: JobState::Active,
            state_word: "RUNNING".into(),
            partitions: vec!["slim1".into()],
            nodes: vec!["n16".into()],
            cpus: Cpus(4),
            node_count: 1,
            ..Job::default()
        };
        assert!(entry(&found, &[]).is_none());
        let entry = entry(&found, &[job]).expect("the job is there");
        let words = entry.words();
        assert_eq!(words, "job 9: 4c: pinned to n16 in slim1; nodes have room; started on n16");
        assert_eq!(entry.field("id"), Some(&"7f3a".into()));
    }
}
