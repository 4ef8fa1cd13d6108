//! Which node will have room first: what it has free, less what is promised to
//! jobs that wait there already, plus what its running jobs give back when their
//! time limits end.

use super::Snapshot;
use crate::cluster::JobState;
use crate::eligible::{Need, kind_of, partitions_of};
use crate::place::{Context, Scratch, Survey};
use crate::promises::Promises;
use crate::publication::{MEM_UNMANAGED, NEVER, RoomView as _, Rooms};
use crate::publish::{is_tied, job_share};
use std::cmp::Reverse;
use std::collections::HashSet;

/// Where and when a job is expected to have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// The node.
    pub node: u32,
    /// Unix seconds.
    pub eta: i64,
    /// CPUs that it takes there.
    pub cpus: u32,
    /// MB that it takes there.
    pub mem: u32,
}

/// One node's free room now (negative where more is promised than there is), and
/// what comes back when.
#[derive(Clone, Debug, Default)]
struct Node {
    cpus: i64,
    mem: i64,
    /// Ends of running jobs, soonest first: Unix seconds, CPUs, MB.
    ends: Vec<(i64, i64, i64)>,
}

/// What every node of the roster will have, without the jobs that are decided
/// anew.
pub(super) struct Future {
    nodes: Vec<Node>,
    now: i64,
}

impl Future {
    pub(super) fn new(snapshot: &Snapshot<'_>, anew: &HashSet<u32>) -> Self {
        let (roster, input) = (snapshot.roster, &snapshot.input);
        let mut nodes = vec![Node::default(); roster.nodes.len()];
        let find = |name: &str| roster.nodes.find(name);
        for node in input.nodes {
            if let Some(n) = find(&node.name).and_then(|i| nodes.get_mut(i)) {
                n.cpus = i64::from(node.cpus_free().0);
                n.mem = node.mem_free().map_or(0, |m| signed(m.0));
            }
        }
        let left_out = |job: u32| anew.contains(&job);
        let claims = input.ledger.open_rooms(input.nodes_asked_at, left_out);
        let moving = input.extra.moving.iter().map(|m| (m.node.as_str(), m.cpus, m.mem));
        for (name, cpus, mem) in claims.chain(moving) {
            if let Some(n) = find(name).and_then(|i| nodes.get_mut(i)) {
                n.cpus -= i64::from(cpus);
                n.mem -= i64::from(mem);
            }
        }
        for job in input.jobs {
            let share = |node: usize| {
                let kind = u32::try_from(node).ok().and_then(|node| kind_of(roster, node));
                let step = kind.map_or(1, |kind| kind.step);
                let (cpus, mem) = job_share(job, step, input.config.whole_cores());
                (i64::from(cpus), signed(mem))
            };
            match (job.state, job.end) {
                (JobState::Active, Some(end)) => {
                    for at in job.nodes.iter().filter_map(|n| find(n)) {
                        let (cpus, mem) = share(at);
                        if let Some(n) = nodes.get_mut(at) {
                            n.ends.push((end.max(input.now), cpus, mem));
                        }
                    }
                }
                (JobState::Pending, _) if is_tied(job) && !anew.contains(&job.id) => {
                    for at in job.req_nodes.iter().filter_map(|n| find(n)) {
                        let (cpus, mem) = share(at);
                        if let Some(n) = nodes.get_mut(at) {
                            n.cpus -= cpus;
                            n.mem -= mem;
                        }
                    }
                }
                _ => {}
            }
        }
        for node in &mut nodes {
            node.ends.sort_unstable();
        }
        Self { nodes, now: input.now }
    }

    /// The node that has room first; ties by PriorityTier, then name.
    pub(super) fn first(
        &self,
        ctx: &Context<'_, Rooms>,
        survey: &Survey,
        scratch: &Scratch,
        promises: &Promises,
    ) -> Option<Wait> {
        let key = |wait: &Wait| {
            let tier = partitions_of(ctx.roster, wait.node)
                .iter()
                .filter(|&&p| survey.need_in(p, scratch).is_some())
                .filter_map(|&p| ctx.roster.partitions.get(usize::from(p)))
                .map(|rule| rule.tier)
                .max();
            (wait.eta, Reverse(tier.unwrap_or(0)), wait.node)
        };
        let nodes = ctx.rooms.members.iter();
        nodes.filter_map(|&n| self.on(ctx, survey, scratch, promises, n)).min_by_key(key)
    }

    /// When `node` has room for the job; `None`: never, as far as is known.
    pub(super) fn on(
        &self,
        ctx: &Context<'_, Rooms>,
        survey: &Survey,
        scratch: &Scratch,
        promises: &Promises,
        node: u32,
    ) -> Option<Wait> {
        let partitions = partitions_of(ctx.roster, node);
        let needs = partitions.iter().filter_map(|&p| survey.need_in(p, scratch));
        needs.filter_map(|need| self.when(ctx, promises, node, &need)).min_by_key(|w| w.eta)
    }

    fn when(
        &self,
        ctx: &Context<'_, Rooms>,
        promises: &Promises,
        node: u32,
        need: &Need,
    ) -> Option<Wait> {
        let kind = kind_of(ctx.roster, node).filter(|kind| need.fits_kind(kind))?;
        let group = ctx.rooms.group(ctx.rooms.group_of(node)? as usize)?;
        let here = self.nodes.get(node as usize)?;
        let (cpus, mem) = need.on(kind.step);
        let promised = promises.of(node);
        let managed = group.mem != MEM_UNMANAGED;
        let (mut free_cpus, mut free_mem) =
            (here.cpus - i64::from(promised.0), here.mem - i64::from(promised.1));
        let fits = |free_cpus: i64, free_mem: i64| {
            free_cpus >= i64::from(cpus) && (!managed || free_mem >= i64::from(mem))
        };
        let mut eta = self.now;
        if !fits(free_cpus, free_mem) {
            let mut when = None;
            for &(end, back_cpus, back_mem) in &here.ends {
                free_cpus += back_cpus;
                free_mem += back_mem;
                if fits(free_cpus, free_mem) {
                    when = Some(end);
                    break;
                }
            }
            eta = when?;
        }
        // Room that is taken before the job would be done is none.
        let over = need.minutes.map(|m| eta.saturating_add(i64::from(m) * 60));
        let taken = group.taken_at != NEVER
            && over.is_none_or(|over| over > i64::from(group.taken_at))
            && (group.cpus_then < cpus || (managed && group.mem_then < mem));
        (!taken).then_some(Wait { node, eta, cpus, mem })
    }
}

fn signed(mb: u64) -> i64 {
    i64::try_from(mb).unwrap_or(i64::MAX)
}
