//! What a placement makes of a job that is being submitted: the new values of its
//! fields, its mark, and the claims.

use crate::config::UserChoice;
use crate::decision::Placement;
use crate::mark;
use crate::publication::{Claim, Roster};
use crate::request::JobRequest;
use crate::units::Limit;

/// What a placement changes, with names instead of indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// New partitions; `None`: as they are.
    pub partition: Option<String>,
    /// New required nodes; `None`: as they are, empty: none.
    pub req_nodes: Option<String>,
    /// New excluded nodes; the same.
    pub exc_nodes: Option<String>,
    /// The new AdminComment.
    pub comment: String,
    /// To be written before any field.
    pub claims: Vec<Claim>,
}

/// Who says so, and when.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The roster's number, for the claims.
    pub roster: u64,
    /// Id of the claims and of the mark.
    pub id: u64,
    /// Unix seconds.
    pub now: u64,
}

impl Submission {
    /// What `placement` changes of `job`, which has the AdminComment `existing`.
    /// `permitted`: the partitions that its user may use, by index; `None`: not known.
    #[must_use]
    pub fn new(
        roster: &Roster,
        placement: &Placement,
        job: &JobRequest<'_>,
        permitted: Option<&[bool]>,
        existing: Option<&str>,
        stamp: Stamp,
    ) -> Self {
        let partitions = mark::partition_names(roster, &placement.partitions);
        let pin = placement.pin.and_then(|n| roster.nodes.get(n as usize));
        let drop_own = roster.policy.user_nodes == UserChoice::Ignore;
        let claims = placement.claims.iter().map(|claim| Claim {
            seq: 0,
            id: stamp.id,
            roster: stamp.roster,
            time: stamp.now,
            uid: job.uid,
            node: claim.node,
            cpus: claim.cpus,
            mem: claim.mem,
            limit: match job.time_limit {
                Limit::At(minutes) => minutes,
                Limit::Unset | Limit::Unlimited => placement.minutes.unwrap_or(u32::MAX),
            },
            flags: Claim::flags_of(placement, job.array),
        });
        Self {
            req_nodes: match pin {
                Some(node) => differs(node, job.nodelist),
                None => cleared(drop_own, job.nodelist),
            },
            exc_nodes: cleared(drop_own, job.exclude),
            comment: mark::for_placement(roster, job, placement, permitted, stamp.id, existing),
            partition: differs(&partitions, job.partition),
            claims: claims.collect(),
        }
    }
}

/// Marks the partitions of the roster that `names` (one a line) holds.
pub fn permit(roster: &Roster, names: &str, permitted: &mut Vec<bool>) {
    permitted.clear();
    permitted.resize(roster.partitions.len(), false);
    for name in names.split('\n') {
        let found = roster.partitions.binary_search_by(|p| p.name.as_str().cmp(name));
        if let Some(slot) = found.ok().and_then(|i| permitted.get_mut(i)) {
            *slot = true;
        }
    }
}

fn differs(new: &str, old: Option<&str>) -> Option<String> {
    (old != Some(new)).then(|| new.to_owned())
}

/// "" clears a field of job_desc.
fn cleared(drop_it: bool, old: Option<&str>) -> Option<String> {
    (drop_it && old.is_some()).then(String::new)
}
