//! How much of the cluster is idle, in placeable capacity.

use super::View;
use crate::capacity::Mix;
use crate::cluster::Job;
use crate::eligible::kind_of;
use crate::publication::{Group, MEM_UNMANAGED, Roster};
use crate::publish::is_tied;
use crate::units::MemPer;
use crate::waiting::waits_for_room;

/// Idle and whole placeable capacity, in placeable CPUs (phi under the demand
/// mix), of the usable nodes in partitions that sjp places into.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Idle {
    /// What is idle.
    pub idle: f64,
    /// What there is.
    pub all: f64,
}

impl Idle {
    /// The idle share; 0 of nothing.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.all > 0.0 { (self.idle / self.all).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Takes placeable CPUs off.
    pub fn take(&mut self, placeable: f64) {
        self.idle = (self.idle - placeable).max(0.0);
    }
}

/// What is idle now. Promised and tied room is not, nor is what a reservation
/// has begun to keep or Slurm plans to use at once. With `count_pending`, jobs
/// that wait for room and name no node count as using it: each takes the
/// larger of its shares of the CPUs and of the memory.
#[must_use]
pub fn idle(view: &View<'_>, count_pending: bool) -> Idle {
    let roster = view.roster;
    let mix = Mix::new(&roster.policy.demand);
    let (mut idle, mut cpus, mut mem) = (Idle::default(), 0.0, 0.0);
    for group in view.rooms.groups.iter().filter(|g| is_placed_into(roster, g)) {
        let first = view.rooms.members.get(group.first as usize);
        let Some(kind) = first.and_then(|&node| kind_of(roster, node)) else { continue };
        let count = f64::from(group.count);
        let has = kind.mem.map_or(MEM_UNMANAGED, |m| u32::try_from(m.0).unwrap_or(u32::MAX - 1));
        idle.all += count * mix.phi(kind.cpus.0, has);
        idle.idle += count * free(group, &mix, view.now);
        cpus += count * f64::from(kind.cpus.0);
        mem += count * kind.mem.map_or(0.0, |m| m.0 as f64);
    }
    if count_pending {
        let waiting = view.jobs.iter().filter(|j| takes_up_room(j) && names_open(roster, j));
        let share: f64 = waiting.map(|j| share_of(j, cpus, mem)).sum();
        idle.take(share * idle.all);
    }
    idle
}

fn is_placed_into(roster: &Roster, group: &Group) -> bool {
    let open = |p: &u16| roster.partitions.get(usize::from(*p)).is_some_and(|p| p.open);
    roster.psets.get(usize::from(group.pset)).is_some_and(|set| set.iter().any(open))
}

/// phi of what is free and stays so for the moment.
fn free(group: &Group, mix: &Mix, now: i64) -> f64 {
    if i64::from(group.taken_at) <= now {
        mix.phi(group.cpus.min(group.cpus_then), group.mem.min(group.mem_then))
    } else {
        group.phi
    }
}

/// Whether a pending job would take room if there were some, and has none yet.
fn takes_up_room(job: &Job) -> bool {
    waits_for_room(job) && !is_tied(job)
}

fn names_open(roster: &Roster, job: &Job) -> bool {
    job.partitions.iter().any(|name| roster.partitions.iter().any(|p| p.open && p.name == *name))
}

/// The larger of a job's shares of `cpus` CPUs and `mem` MB.
fn share_of(job: &Job, cpus: f64, mem: f64) -> f64 {
    let tasks = f64::from(job.array_tasks.max(1));
    let wants = match job.mem {
        MemPer::Unset => 0.0,
        MemPer::Cpu(m) => m.times(job.cpus).0 as f64,
        MemPer::Node(m) => m.0 as f64 * f64::from(job.node_count.max(1)),
    };
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    tasks * share(f64::from(job.cpus.0), cpus).max(share(wants, mem))
}
