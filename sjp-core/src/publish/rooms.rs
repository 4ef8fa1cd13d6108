//! The rooms: what each usable node has free, less what is promised and tied,
//! with what a reservation or Slurm's own plan will take, in groups of equal
//! nodes.

use super::roster::managed_mem;
use crate::capacity::Mix;
use crate::cluster::{Job, JobState, Node, QosCaps, Reservation, SlurmConfig};
use crate::eligible::kind_of;
use crate::ledger::Ledger;
use crate::mark::Mark;
use crate::publication::{Group, MEM_UNMANAGED, NEVER, NO_GROUP, QosRoom, Rooms, Roster};
use crate::units::{Cpus, MemMb, MemPer};
use std::collections::{HashMap, HashSet};

/// What rooms are made of.
#[derive(Clone, Copy, Debug)]
pub struct RoomsInput<'a> {
    /// Nodes as last read.
    pub nodes: &'a [Node],
    /// Unix seconds (with fraction) at which they were asked for.
    pub nodes_asked_at: f64,
    /// Reservations as last read.
    pub reservations: &'a [Reservation],
    /// The queue as last read.
    pub jobs: &'a [Job],
    /// Claims that the node data does not yet show.
    pub ledger: &'a Ledger,
    /// QOS caps with use.
    pub qos: &'a [QosCaps],
    /// Slurm's own settings.
    pub config: &'a SlurmConfig,
    /// Unix seconds now.
    pub now: i64,
    /// What only sjpd's own planning knows.
    pub extra: Extra<'a>,
}

/// Beyond what the cluster itself shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra<'a> {
    /// Room that changes under way will take.
    pub moving: &'a [Moving],
    /// Pending jobs whose place is decided anew: neither their claims nor the
    /// nodes they are tied to count.
    pub anew: Option<&'a HashSet<u32>>,
    /// Slurm's plans count for jobs of a higher priority than this only.
    pub plans_above: u32,
}

/// Room that a change under way will take on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    /// The node.
    pub node: String,
    /// CPUs.
    pub cpus: u32,
    /// MB.
    pub mem: u32,
}

/// What is taken from one node, beyond what Slurm has allocated.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    cpus: u32,
    mem: u64,
    /// Whole node taken from this second on.
    whole_from: Option<i64>,
    /// Cores taken from a later second on.
    part_from: Option<i64>,
    part_cores: u32,
}

/// Builds the rooms for the nodes of `roster`.
#[must_use]
pub fn build_rooms(roster: &Roster, input: &RoomsInput<'_>) -> Rooms {
    let taken = taken(roster, input);
    let mix = Mix::new(&roster.policy.demand);
    let mut group_of = vec![NO_GROUP; roster.nodes.len()];
    let mut groups: Vec<(Group, Vec<u32>)> = Vec::new();
    let mut at: HashMap<Key, usize> = HashMap::new();
    let mut members: Vec<(u32, &Node)> = input
        .nodes
        .iter()
        .filter(|n| n.usable)
        .filter_map(|n| Some((u32::try_from(roster.nodes.find(&n.name)?).ok()?, n)))
        .collect();
    members.sort_unstable_by_key(|&(i, _)| i);
    members.dedup_by_key(|&mut (i, _)| i);
    for (i, node) in members {
        let Some(kind) = kind_of(roster, i) else { continue };
        if roster.psets.get(usize::from(kind.pset)).is_none_or(Vec::is_empty) {
            continue;
        }
        let t = taken.get(&i).copied().unwrap_or_default();
        let group = free_shape(node, kind.pset, kind.step, &t, input);
        let kind = roster.kind_of.get(i as usize).copied().unwrap_or(0);
        let key = Key::new(kind, &group);
        let g = *at.entry(key).or_insert_with(|| {
            let phi = mix.phi(group.cpus, group.mem);
            groups.push((Group { phi, ..group }, Vec::new()));
            groups.len() - 1
        });
        if let Some((_, list)) = groups.get_mut(g) {
            list.push(i);
        }
    }
    groups.sort_by(|(a, _), (b, _)| a.order(b));
    let mut rooms = Rooms::default();
    for (g, (mut group, list)) in groups.into_iter().enumerate() {
        group.first = u32::try_from(rooms.members.len()).unwrap_or(u32::MAX);
        group.count = u32::try_from(list.len()).unwrap_or(u32::MAX);
        for &node in &list {
            if let Some(slot) = group_of.get_mut(node as usize) {
                *slot = u32::try_from(g).unwrap_or(NO_GROUP);
            }
        }
        rooms.members.extend(list);
        rooms.groups.push(group);
    }
    rooms.group_of = group_of;
    rooms.qos_rooms = qos_rooms(roster, input.qos);
    rooms
}

/// What makes nodes alike.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    kind: u16,
    cpus: u32,
    mem: u32,
    taken_at: u32,
    cpus_then: u32,
    mem_then: u32,
    weight: u32,
}

impl Key {
    fn new(kind: u16, g: &Group) -> Self {
        Self {
            kind,
            cpus: g.cpus,
            mem: g.mem,
            taken_at: g.taken_at,
            cpus_then: g.cpus_then,
            mem_then: g.mem_then,
            weight: g.weight,
        }
    }
}

fn free_shape(node: &Node, pset: u16, step: u32, t: &Taken, input: &RoomsInput<'_>) -> Group {
    let cpus = node.cpus_free().less(Cpus(t.cpus)).0;
    let mem = match managed_mem(node, input.config) {
        None => MEM_UNMANAGED,
        Some(_) => node
            .mem_free()
            .map(|m| m.less(MemMb(t.mem)))
            .and_then(|m| u32::try_from(m.0).ok())
            .map_or(MEM_UNMANAGED - 1, |m| m.min(MEM_UNMANAGED - 1)),
    };
    let mut group = Group {
        cpus,
        mem,
        pset,
        step: u16::try_from(step).unwrap_or(1).max(1),
        taken_at: NEVER,
        cpus_then: cpus,
        mem_then: mem,
        weight: node.weight,
        ..Group::default()
    };
    let part = t.part_cores.saturating_mul(node.threads_per_core.max(1));
    match (t.whole_from, t.part_from) {
        (Some(whole), part_from) => {
            // Two things ahead: the smaller one counts from now on, so that
            // only the first second of the larger one has to be told.
            if part_from.is_some_and(|p| p < whole) {
                group.cpus = group.cpus.saturating_sub(part);
            }
            group.taken_at = seconds(whole);
            group.cpus_then = 0;
            group.mem_then = 0;
        }
        (None, Some(from)) => {
            group.taken_at = seconds(from);
            group.cpus_then = cpus.saturating_sub(part);
        }
        (None, None) => {}
    }
    group
}

fn seconds(time: i64) -> u32 {
    u32::try_from(time.max(0)).unwrap_or(NEVER - 1).min(NEVER - 1)
}

fn taken(roster: &Roster, input: &RoomsInput<'_>) -> HashMap<u32, Taken> {
    let mut taken: HashMap<u32, Taken> = HashMap::new();
    let find = |name: &str| roster.nodes.find(name).and_then(|n| u32::try_from(n).ok());
    let anew = |job: u32| input.extra.anew.is_some_and(|list| list.contains(&job));
    let claims = input.ledger.open_rooms(input.nodes_asked_at, anew);
    let moving = input.extra.moving.iter().map(|m| (m.node.as_str(), m.cpus, m.mem));
    for (name, cpus, mem) in claims.chain(moving) {
        if let Some(node) = find(name) {
            let t = taken.entry(node).or_default();
            t.cpus = t.cpus.saturating_add(cpus);
            t.mem = t.mem.saturating_add(u64::from(mem));
        }
    }
    for job in input.jobs.iter().filter(|j| is_tied(j) && !anew(j.id)) {
        for node in job.req_nodes.iter().filter_map(|n| find(n)) {
            let step = kind_of(roster, node).map_or(1, |kind| kind.step);
            let (cpus, mem) = job_share(job, step, input.config.whole_cores());
            let t = taken.entry(node).or_default();
            t.cpus = t.cpus.saturating_add(cpus);
            t.mem = t.mem.saturating_add(mem);
        }
    }
    // Slurm plans whole nodes: nothing that would still run then may start.
    let plans = input.jobs.iter().filter(|j| j.priority > input.extra.plans_above);
    for (job, start) in plans.filter_map(|j| Some((j, planned_at(j)?))) {
        for node in job.sched_nodes.iter().filter_map(|n| find(n)) {
            let t = taken.entry(node).or_default();
            let start = start.max(input.now);
            t.whole_from = Some(t.whole_from.map_or(start, |w| w.min(start)));
        }
    }
    for r in input.reservations.iter().filter(|r| r.end > input.now) {
        if r.whole_nodes {
            for node in r.nodes.iter().filter_map(|n| find(n)) {
                let t = taken.entry(node).or_default();
                t.whole_from = Some(t.whole_from.map_or(r.start, |w| w.min(r.start)));
            }
        } else {
            for part in &r.cores {
                let Some(node) = find(&part.node) else { continue };
                let t = taken.entry(node).or_default();
                t.part_from = Some(t.part_from.map_or(r.start, |w| w.min(r.start)));
                t.part_cores = t.part_cores.saturating_add(part.cores);
            }
        }
    }
    taken
}

/// Whether a pending job will take room on the nodes it names, and on no
/// other, as soon as it can.
#[must_use]
pub fn is_tied(job: &Job) -> bool {
    job.state == JobState::Pending && !job.req_nodes.is_empty() && job.could_start()
}

/// When Slurm has planned to start a pending job on nodes of its choice, Unix
/// seconds; `None`: it has not, or the job is tied to nodes and counts there.
#[must_use]
pub fn planned_at(job: &Job) -> Option<i64> {
    let waits = job.state == JobState::Pending && !job.sched_nodes.is_empty() && !is_tied(job);
    job.start.filter(|_| waits)
}

/// CPUs and MB that a job takes on each of its nodes: a pending one on those it
/// names, all tasks of an array together. What runs shows what it was given; what
/// waits, what it asked for: `step` is how CPUs come on the node (1: one by one), and
/// with `whole_cores` memory for each CPU counts for all of those.
#[must_use]
pub fn job_share(job: &Job, step: u32, whole_cores: bool) -> (u32, u64) {
    let named = if job.nodes.is_empty() { job.req_nodes.len() } else { job.nodes.len() };
    let nodes = job.node_count.max(u32::try_from(named).unwrap_or(1)).max(1);
    let tasks = job.array_tasks.max(1);
    let asked = Cpus(job.cpus.0.div_ceil(nodes));
    let waits = job.state == JobState::Pending;
    let cpus = if waits { asked.round_up(step) } else { asked };
    let mem = match asked_mem(job) {
        MemPer::Unset => 0,
        MemPer::Node(m) => m.0,
        MemPer::Cpu(m) => m.times(if whole_cores { cpus } else { asked }).0,
    };
    (cpus.0.saturating_mul(tasks), mem.saturating_mul(u64::from(tasks)))
}

/// The memory that a job asked for. Of one with a single CPU, the queue does not show
/// whether it is for each CPU: its mark does.
#[must_use]
pub fn asked_mem(job: &Job) -> MemPer {
    let marked = || {
        let mark = job.admin_comment.as_deref().and_then(Mark::parse);
        mark.is_some_and(|mark| mark.has("per", "cpu"))
    };
    match job.mem {
        MemPer::Node(m)
            if job.state == JobState::Pending && job.cpus.0 == 1 && m.0 > 0 && marked() =>
        {
            MemPer::Cpu(m)
        }
        mem => mem,
    }
}

fn qos_rooms(roster: &Roster, qos: &[QosCaps]) -> Vec<QosRoom> {
    let mut rooms = Vec::new();
    for caps in qos {
        let Some(cap) = caps.max_cpus_per_user else { continue };
        let Ok(index) = roster.qos.binary_search(&caps.name) else { continue };
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        rooms.push(QosRoom { uid: u32::MAX, qos: index, cpus: cap });
        for &(uid, used) in &caps.used_by_user {
            rooms.push(QosRoom { uid, qos: index, cpus: cap.saturating_sub(used) });
        }
    }
    rooms.sort_unstable();
    rooms.dedup_by_key(|r| (r.uid, r.qos));
    rooms
}
