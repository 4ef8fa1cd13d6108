//! Placements of the Lua module, once their jobs have appeared in the queue: by
//! their claims, and where there was no room to claim, by their marks.

use super::observe::shape;
use crate::journal::Entry;
use sjp_core::cluster::{Job, JobState};
use sjp_core::decision::Basis;
use sjp_core::ledger::{Match, PINNED};
use sjp_core::mark::{self, Mark};
use sjp_core::units::{Cpus, MemMb};
use std::collections::{HashMap, HashSet};

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

/// Tells of jobs that the module placed without a claim, or left alone.
#[derive(Debug, Default)]
pub struct Marked {
    /// Jobs (arrays as a whole) seen, by id, with their submit time.
    known: HashMap<u32, i64>,
    primed: bool,
}

impl Marked {
    /// Looks at a queue; `claimed`: jobs that were just told of by their claims.
    /// Of the first queue nothing is told: those jobs were there before.
    pub fn look(&mut self, jobs: &[Job], claimed: &HashSet<u32>) -> Vec<Entry> {
        let key = |job: &Job| job.array_id.unwrap_or(job.id);
        let told: HashSet<u32> = jobs.iter().filter(|j| claimed.contains(&j.id)).map(key).collect();
        let mut entries = Vec::new();
        let mut now = HashMap::with_capacity(jobs.len());
        for job in jobs {
            let seen_now = now.insert(key(job), job.submit).is_some();
            let seen = self.known.get(&key(job)) == Some(&job.submit);
            if self.primed && !seen && !seen_now && !told.contains(&key(job)) {
                let comment = job.admin_comment.as_deref().unwrap_or_default();
                entries.extend(Mark::parse(comment).and_then(|mark| by_mark(job, &mark)));
            }
        }
        self.known = now;
        self.primed = true;
        entries
    }
}

/// The entry for a job that was placed without a claim, or left alone.
fn by_mark(job: &Job, mark: &Mark) -> Option<Entry> {
    let shape = shape(job);
    let state = format!("waits ({})", job.reason);
    let state = if job.state == JobState::Pending { state } else { job.nodes.join(",") };
    if let Some(reason) = mark.get("skipped") {
        let words = format!("job {}: {shape}: left as it is: {reason}; {state}", job.id);
        let entry = Entry::new("skipped", words).with("job", job.id).with("uid", job.uid);
        return Some(entry.with("reason", reason).with("partitions", &job.partitions));
    }
    let (how, list) = match (mark.get("open"), mark.get("placed")) {
        (Some(list), _) => ("opened", list),
        (None, Some(list)) => ("placed in", list),
        (None, None) => return None,
    };
    let words = format!("job {}: {shape}: {how} {list}; no node has room now; {state}", job.id);
    let entry = Entry::new("placed", words).with("job", job.id).with("uid", job.uid);
    Some(
        entry
            .with_some("id", mark.get("id"))
            .with("pinned", false)
            .with("partitions", &job.partitions)
            .with("claims", 0)
            .with("state", &job.state_word)
            .with("nodes", &job.nodes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sjp_core::publication::Claim;

    #[test]
    fn what_was_placed_without_room_or_left_alone_is_told_once() {
        let job = |id: u32, comment: &str| Job {
            id,
            cpus: Cpus(4),
            reason: "Resources".into(),
            admin_comment: Some(comment.into()),
            ..Job::default()
        };
        let mut marked = Marked::default();
        let old = job(1, "sjp:placed=slim;id=1");
        assert!(
            marked.look(std::slice::from_ref(&old), &HashSet::new()).is_empty(),
            "there before"
        );
        let task = |id| Job { array_id: Some(5), ..job(id, "sjp:open=slim;id=5") };
        let jobs = [
            old,
            job(2, "sjp:open=slim,fat;job=4c;id=2"),
            job(3, "sjp:skipped=multi-node"),
            job(4, "sjp:placed=slim;id=4"),
            task(5),
            task(6),
            job(7, "the site's own"),
        ];
        let entries = marked.look(&jobs, &HashSet::from([4]));
        let words: Vec<&str> = entries.iter().map(Entry::words).collect();
        assert_eq!(
            words,
            [
                "job 2: 4c: opened slim,fat; no node has room now; waits (Resources)",
                "job 3: 4c: left as it is: multi-node; waits (Resources)",
                "job 5: 4c: opened slim; no node has room now; waits (Resources)",
            ]
        );
        assert!(marked.look(&jobs, &HashSet::new()).is_empty());
    }

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
