//! The ledger of claims: from the moment the module promised room until the
//! node data or the queue speaks for the job, each claim is counted once.
//!
//! A claim is *open* until a job of the queue answers to it; then the job
//! counts (its node shows it allocated, or it is pending and tied to its
//! node), but for two gaps that the ledger bridges: a job that started after
//! the node data was asked for, and a job without a pin that is about to
//! start. A claim that no job answers to expires.

use crate::cluster::{Job, JobState};
use crate::decision::NotPinned;
use crate::mark::Mark;
use crate::publication::{Claim, Roster};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bit of `Claim::flags`: the job is pinned to the node.
pub const PINNED: u32 = 1;
/// Bit of `Claim::flags`: the job is an array.
pub const ARRAY: u32 = 2;

/// A claim whose job has not appeared after two looks at the queue, both at
/// least this many seconds after it was made, is dropped.
const SETTLE: i64 = 3;
/// Seconds for which a pending job without a pin is still expected to start
/// on the node it was claimed against.
const ABOUT_TO_START: i64 = 15;
/// Most seconds between the claim and the job's submit time: slurmctld runs
/// the script before it takes its locks.
const LAG: i64 = 60;

/// One claim, with its node by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As the module wrote it.
    pub claim: Claim,
    /// Node name.
    pub node: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No job yet; looks at the queue that should have shown it.
    Open { missed: u8 },
    /// Its job waits without a pin.
    Waits { job: u32 },
    /// Its job started at this second, first seen in a queue asked for then.
    Started { at: i64, seen: i64 },
}

/// A claim that found its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Claim id: the `id` of the mark.
    pub id: u64,
    /// Job id.
    pub job: u32,
    /// The claims of this id (several for an array).
    pub claims: Vec<(String, Claim)>,
}

/// Counters since the start, for `sjp status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Claims read from the ring.
    pub taken: u64,
    /// Claims whose job appeared.
    pub matched: u64,
    /// Claims whose job never appeared.
    pub expired: u64,
    /// Claims whose roster or node is no longer known.
    pub unknown: u64,
}

/// All claims that still count.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<u64, Entry>,
    /// Jobs that a claim answered to, by job id, with their submit time: no
    /// second claim takes them.
    answered: HashMap<u32, i64>,
    counts: Counts,
}

impl Ledger {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Claims whose job has not appeared yet.
    #[must_use]
    pub fn open(&self) -> usize {
        self.entries.values().filter(|e| matches!(e.state, State::Open { .. })).count()
    }

    /// Every entry that still counts.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Takes claims over from the ring. `roster_of` finds the roster that a
    /// claim's node number is meant in.
    pub fn take<'r>(&mut self, claims: &[Claim], roster_of: impl Fn(u64) -> Option<&'r Roster>) {
        for claim in claims {
            self.counts.taken += 1;
            let node = roster_of(claim.roster).and_then(|r| r.nodes.get(claim.node as usize));
            let Some(node) = node else {
                self.counts.unknown += 1;
                continue;
            };
            // A claim made while the table was replaced may come twice.
            let twice = |e: &Entry| e.claim.id == claim.id && e.node == node;
            if self.entries.values().any(twice) {
                continue;
            }
            let entry =
                Entry { claim: *claim, node: node.to_owned(), state: State::Open { missed: 0 } };
            self.entries.insert(claim.seq, entry);
        }
    }

    /// Reads the queue as it was asked for at `asked_at` (Unix seconds), and
    /// gives back the claims that found their job just now.
    pub fn see_queue(&mut self, jobs: &[Job], asked_at: i64) -> Vec<Match> {
        let by_id: HashMap<u32, &Job> = jobs.iter().map(|j| (j.id, j)).collect();
        self.answered.retain(|id, submit| by_id.get(id).is_some_and(|j| j.submit == *submit));
        let mut by_user: HashMap<u32, Vec<&Job>> = HashMap::new();
        let owners: HashSet<u32> = self.entries.values().map(|e| e.claim.uid).collect();
        for job in jobs.iter().filter(|j| owners.contains(&j.uid)) {
            if !self.answered.contains_key(&job.id) {
                by_user.entry(job.uid).or_default().push(job);
            }
        }
        // A mark names its claim; only jobs as young as the claims can have one of theirs.
        let oldest = self.entries.values().map(|e| e.claim.time).min().unwrap_or(u64::MAX);
        let oldest = i64::try_from(oldest).unwrap_or(i64::MAX) - 1;
        let mut marked: HashMap<u64, u32> = HashMap::new();
        for list in by_user.values_mut() {
            list.sort_by_key(|j| (j.submit, j.id));
            for job in list.iter().filter(|j| j.submit >= oldest) {
                if let Some(id) = claim_id(job) {
                    marked.entry(id).or_insert(job.id);
                }
            }
        }
        let of_mark: HashSet<u32> = marked.values().copied().collect();

        // Claims of one id belong to one job; ids in the order they were made.
        let mut ids: Vec<u64> = Vec::new();
        let mut groups: HashMap<u64, Vec<u64>> = HashMap::new();
        for (seq, entry) in &self.entries {
            if matches!(entry.state, State::Open { .. }) {
                let group = groups.entry(entry.claim.id).or_default();
                if group.is_empty() {
                    ids.push(entry.claim.id);
                }
                group.push(*seq);
            }
        }
        let mut matches = Vec::new();
        for id in ids {
            let Some(seqs) = groups.get(&id) else { continue };
            let Some(first) = seqs.first().and_then(|s| self.entries.get(s)) else { continue };
            let list = by_user.get_mut(&first.claim.uid);
            let at = list.as_ref().and_then(|l| match marked.get(&id) {
                Some(job) => l.iter().position(|j| j.id == *job),
                None => l.iter().position(|j| !of_mark.contains(&j.id) && answers(first, j)),
            });
            let job = match (list, at) {
                (Some(list), Some(at)) => list.remove(at),
                _ => continue,
            };
            self.answered.insert(job.id, job.submit);
            self.counts.matched += seqs.len() as u64;
            let claims = seqs
                .iter()
                .filter_map(|s| self.entries.get(s))
                .map(|e| (e.node.clone(), e.claim))
                .collect();
            matches.push(Match { id, job: job.id, claims });
            for seq in seqs {
                self.settle(*seq, job, asked_at);
            }
        }
        self.follow(&by_id, asked_at);
        matches
    }

    /// Room that open claims take, by node name: CPUs and MB. `nodes_asked_at`
    /// is when the node data was asked for: a job that started before is in it.
    /// Claims of jobs that wait and are `left_out` do not count.
    pub fn open_rooms(
        &self,
        nodes_asked_at: f64,
        left_out: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = (&str, u32, u32)> {
        self.entries.values().filter_map(move |e| {
            let counts = match e.state {
                State::Open { .. } => true,
                State::Waits { job } => !left_out(job),
                State::Started { at, seen } => {
                    nodes_asked_at < (at + 1) as f64 && nodes_asked_at < seen as f64
                }
            };
            counts.then_some((e.node.as_str(), e.claim.cpus, e.claim.mem))
        })
    }

    /// A matched claim: what speaks for its job from now on.
    fn settle(&mut self, seq: u64, job: &Job, asked_at: i64) {
        let Some(entry) = self.entries.get_mut(&seq) else { return };
        let pinned = entry.claim.flags & PINNED != 0;
        match job.state {
            // The queue ties it to its node.
            JobState::Pending if pinned && !job.req_nodes.is_empty() => {
                self.entries.remove(&seq);
            }
            JobState::Pending if !job.could_start() => {
                self.entries.remove(&seq);
            }
            JobState::Pending => entry.state = State::Waits { job: job.id },
            JobState::Active => {
                entry.state = State::Started { at: job.start.unwrap_or(asked_at), seen: asked_at };
            }
            JobState::Ended => {
                self.entries.remove(&seq);
            }
        }
    }

    /// Claims whose job was seen before, and those that no job answered to.
    fn follow(&mut self, by_id: &HashMap<u32, &Job>, asked_at: i64) {
        let mut expired = 0;
        self.entries.retain(|_, e| {
            let made = i64::try_from(e.claim.time).unwrap_or(i64::MAX);
            match e.state {
                State::Open { missed } => {
                    let late = asked_at >= made.saturating_add(SETTLE);
                    let missed = missed + u8::from(late);
                    e.state = State::Open { missed };
                    expired += u64::from(missed >= 2);
                    missed < 2
                }
                State::Waits { job } => match by_id.get(&job) {
                    Some(j) if j.state == JobState::Pending => {
                        asked_at < made.saturating_add(ABOUT_TO_START)
                    }
                    Some(j) if j.state == JobState::Active => {
                        let at = j.start.unwrap_or(asked_at);
                        e.state = State::Started { at, seen: asked_at };
                        true
                    }
                    _ => false,
                },
                // By the second look the node data is newer than the start.
                State::Started { seen, .. } => seen == asked_at,
            }
        });
        self.counts.expired += expired;
    }
}

/// The claim that a job's mark names.
fn claim_id(job: &Job) -> Option<u64> {
    let mark = Mark::parse(job.admin_comment.as_deref()?)?;
    u64::from_str_radix(mark.get("id")?, 16).ok()
}

/// Where no mark tells: whether `job` can be what `entry` was claimed for.
fn answers(entry: &Entry, job: &Job) -> bool {
    let made = i64::try_from(entry.claim.time).unwrap_or(i64::MAX);
    let array = entry.claim.flags & ARRAY != 0;
    let pinned = entry.claim.flags & PINNED != 0;
    let in_time = job.submit >= made - 1 && job.submit <= made.saturating_add(LAG);
    let on_node = match job.state {
        JobState::Pending => !pinned || job.req_nodes == [entry.node.as_str()],
        JobState::Active => !pinned || job.nodes == [entry.node.as_str()],
        JobState::Ended => true,
    };
    // Rounding to whole cores makes the claim the larger one; a whole node is
    // claimed for an exclusive job, which shows what it asked for while it waits.
    let whole = job.exclusive || entry.claim.not_pinned() == Some(NotPinned::Exclusive);
    let same_size = array
        || (job.cpus.0 <= entry.claim.cpus
            && (whole || entry.claim.cpus < job.cpus.0.saturating_mul(2).max(9)));
    in_time && on_node && same_size && array == job.array_id.is_some()
}

#[cfg(test)]
mod tests;
