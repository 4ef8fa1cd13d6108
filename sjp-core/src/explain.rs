//! Why a placement came out as it did: every partition's verdict and the nodes
//! in order. For `sjp place` and the logs; never on the submission path.

use crate::config::UserChoice;
use crate::decision::{Placement, Reason};
use crate::eligible::{self, Need};
use crate::place::{Context, Fit, Scratch, Survey, choose, members, ratio};
use crate::publication::{MEM_UNMANAGED, RoomView};
use crate::request::JobRequest;

/// One partition's verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionVerdict {
    /// Name.
    pub name: String,
    /// PriorityTier.
    pub tier: u32,
    /// Why it would not take the job; `None`: it would.
    pub refused: Option<String>,
    /// Least loss over its nodes with room, in placeable CPUs; `None`: no room.
    pub cost: Option<f64>,
    /// Within tolerance of the cheapest.
    pub admitted: bool,
}

/// One node with room.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Name.
    pub node: String,
    /// Its partitions that would take the job.
    pub partitions: Vec<String>,
    /// Free CPUs before the job.
    pub cpus: u32,
    /// Free MB before the job; `None`: not managed.
    pub mem: Option<u32>,
    /// Loss in placeable CPUs.
    pub loss: f64,
    /// `|ln|` of the node's free memory per CPU over the job's.
    pub ratio: f64,
}

/// The whole story.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The outcome.
    pub outcome: Result<Placement, Reason>,
    /// All partitions, by name.
    pub partitions: Vec<PartitionVerdict>,
    /// Nodes with room, least loss first, at most as many as asked for.
    pub candidates: Vec<Candidate>,
    /// How many nodes have room in all.
    pub with_room: u64,
}

/// Decides as [`choose`] and tells how; at most `most` candidates are listed.
pub fn explain<V: RoomView>(
    ctx: &Context<'_, V>,
    job: &JobRequest<'_>,
    most: usize,
) -> Explanation {
    let mut scratch = Scratch::new();
    let outcome = choose(ctx, job, &mut scratch);
    let mut scratch = Scratch::new();
    let surveyed = Survey::take(ctx, job, &mut scratch).is_ok();
    let mut candidates = Vec::new();
    let mut with_room = 0;
    if surveyed {
        let mut fits: Vec<Fit> = scratch.fits.clone();
        with_room = scratch.slots.iter().map(|s| s.nodes).sum();
        fits.sort_by(|a, b| a.loss.total_cmp(&b.loss).then(ratio(a).total_cmp(&ratio(b))));
        for fit in &fits {
            for node in members(ctx, &scratch, fit) {
                if candidates.len() == most {
                    break;
                }
                candidates.push(candidate(ctx, &scratch, fit, node));
            }
        }
    }
    Explanation {
        partitions: verdicts(ctx, job, surveyed.then_some(&scratch), outcome.as_ref().ok()),
        outcome,
        candidates,
        with_room,
    }
}

fn candidate<V: RoomView>(
    ctx: &Context<'_, V>,
    scratch: &Scratch,
    fit: &Fit,
    node: u32,
) -> Candidate {
    let roster = ctx.roster;
    let class = u16::try_from(fit.slot as usize % scratch.needs.len().max(1)).ok();
    let partitions = eligible::partitions_of(roster, node)
        .iter()
        .filter(|p| scratch.class_of.get(usize::from(**p)).copied().flatten() == class)
        .filter_map(|p| roster.partitions.get(usize::from(*p)))
        .map(|p| p.name.clone())
        .collect();
    Candidate {
        node: roster.nodes.get(node as usize).unwrap_or_default().to_owned(),
        partitions,
        cpus: fit.cpus,
        mem: (fit.mem != MEM_UNMANAGED).then_some(fit.mem),
        loss: fit.loss,
        ratio: ratio(fit),
    }
}

fn verdicts<V: RoomView>(
    ctx: &Context<'_, V>,
    job: &JobRequest<'_>,
    scratch: Option<&Scratch>,
    placement: Option<&Placement>,
) -> Vec<PartitionVerdict> {
    let roster = ctx.roster;
    let named = eligible::named_partitions(roster, job);
    let follow = roster.policy.user_nodes == UserChoice::Follow;
    let node = job
        .nodelist
        .filter(|_| follow)
        .and_then(|l| roster.nodes.find(l))
        .and_then(|n| u32::try_from(n).ok());
    roster
        .partitions
        .iter()
        .enumerate()
        .filter_map(|(i, rule)| {
            let index = u16::try_from(i).ok()?;
            let accepted: Result<Need, _> =
                eligible::accepts(roster, index, rule, job, ctx.permitted, named.as_deref(), node);
            let cost = scratch.and_then(|s| s.costs.get(i).copied()).filter(|c| c.is_finite());
            Some(PartitionVerdict {
                name: rule.name.clone(),
                tier: rule.tier,
                refused: accepted.err().map(|e| e.to_string()),
                cost,
                admitted: placement.is_some_and(|p| p.admitted.contains(&index)),
            })
        })
        .collect()
}
