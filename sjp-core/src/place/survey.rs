//! The survey: which partitions would accept the job, and which nodes have
//! room for it at what loss.

use super::quick::{Apart, Run};
use super::{Context, judge_kind};
use crate::capacity::{BOUNDLESS, Mix};
use crate::config::UserChoice;
use crate::decision::Reason;
use crate::eligible::{self, Need};
use crate::hostlist;
use crate::publication::{Group, MEM_UNMANAGED, NEVER, RoomView};
use crate::request::JobRequest;
use std::ops::ControlFlow;

/// Nodes with room: a group's untouched members, or a single node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Loss in placeable CPUs.
    pub loss: f64,
    /// Free memory per CPU over the job's; 1 where either is unknown.
    pub quotient: f64,
    /// CPUs free before the job.
    pub cpus: u32,
    /// MB free before the job, or `MEM_UNMANAGED`.
    pub mem: u32,
    /// The group; of a single node too.
    pub group: u32,
    /// The one node, where it is looked at alone; else `GROUPED`.
    pub single: u32,
    /// Partition set and need: an index into `Scratch::slots`.
    pub slot: u32,
    /// Nodes that this stands for.
    pub count: u32,
}

/// `Fit::single` of a fit that stands for a group.
pub(crate) const GROUPED: u32 = u32::MAX;

/// The ends of what the nodes of one slot would cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub nodes: u64,
    pub least_loss: f64,
    pub worst_loss: f64,
    pub least_quotient: f64,
    pub most_quotient: f64,
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            nodes: 0,
            least_loss: f64::INFINITY,
            worst_loss: f64::NEG_INFINITY,
            least_quotient: 1.0,
            most_quotient: 1.0,
        }
    }
}

impl Spread {
    #[inline]
    pub(crate) fn add(&mut self, loss: f64, quotient: f64, count: u32) {
        self.nodes += u64::from(count);
        self.least_loss = if loss < self.least_loss { loss } else { self.least_loss };
        self.worst_loss = if loss > self.worst_loss { loss } else { self.worst_loss };
        let (least, most) = (self.least_quotient, self.most_quotient);
        self.least_quotient = if quotient < least { quotient } else { least };
        self.most_quotient = if quotient > most { quotient } else { most };
    }

    /// With the ends of another.
    pub(crate) fn join(&mut self, other: &Self) {
        self.nodes += other.nodes;
        self.least_loss = self.least_loss.min(other.least_loss);
        self.worst_loss = self.worst_loss.max(other.worst_loss);
        self.least_quotient = self.least_quotient.min(other.least_quotient);
        self.most_quotient = self.most_quotient.max(other.most_quotient);
    }

    /// The largest `|ln|` of a quotient: at one of the ends.
    pub(crate) fn worst_ratio(&self) -> f64 {
        self.least_quotient.ln().abs().max(self.most_quotient.ln().abs())
    }
}

/// Memory that one decision after another reuses.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) mix: Mix,
    /// Distinct needs of the eligible partitions.
    pub(crate) needs: Vec<Need>,
    /// By partition: index into `needs`, where eligible.
    pub(crate) class_of: Vec<Option<u16>>,
    /// By partition set: which needs apply, as bits.
    pub(crate) pset_needs: Vec<u64>,
    /// Nodes that their group does not speak for: promised or excluded.
    pub(crate) touched: Vec<Touched>,
    /// Whether they stand by group, then node; and no node twice.
    touched_in_order: bool,
    /// By group: how many of its members are touched. Longer than needed, and zero
    /// there.
    touched_of: Vec<u32>,
    /// Nodes with room.
    pub(crate) fits: Vec<Fit>,
    batch: Batch,
    /// By partition: least loss.
    pub(crate) costs: Vec<f64>,
    /// By partition set and need: what its nodes would cost.
    pub(crate) slots: Vec<Spread>,
    /// By partition set and need: whether its nodes count for the choice.
    pub(crate) counts: Vec<bool>,
    /// Groups that stand in order, for the quick survey.
    pub(crate) runs: Vec<Run>,
    /// Promised nodes of such groups, with what is left there.
    pub(crate) apart: Vec<Apart>,
}

impl Scratch {
    /// Empty; grows with the cluster and stays.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many members of `group` it does not speak for.
    #[inline]
    pub(crate) fn touched_of(&self, group: u32) -> u32 {
        self.touched_of.get(group as usize).copied().unwrap_or(0)
    }

    /// Forgets the touched nodes.
    fn clear_touched(&mut self, groups: usize) {
        for t in self.touched.drain(..) {
            if let Some(count) = self.touched_of.get_mut(t.group as usize) {
                *count = 0;
            }
        }
        if self.touched_of.len() < groups {
            self.touched_of.resize(groups, 0);
        }
        self.touched_in_order = false;
    }

    fn touch(&mut self, touched: Touched) {
        if let Some(count) = self.touched_of.get_mut(touched.group as usize) {
            *count += 1;
        }
        self.touched.push(touched);
    }

    /// Whether the nodes of a slot count for the choice.
    pub(crate) fn does_count(&self, slot: u32) -> bool {
        self.counts.get(slot as usize).copied().unwrap_or(false)
    }

    /// Whether `node` is one that its group does not speak for.
    pub(crate) fn is_touched(&self, group: u32, node: u32) -> bool {
        if self.touched_in_order {
            self.touched.binary_search_by_key(&(group, node), |t| (t.group, t.node)).is_ok()
        } else {
            self.touched.iter().any(|t| t.node == node)
        }
    }
}

/// The last few fits, whose loss is still to be worked out: their numbers side
/// by side, so that phi is taken of many at a time.
#[derive(Debug)]
struct Batch {
    /// CPUs left with the job there.
    cpus: [f64; BATCH],
    /// MB left with the job there.
    mem: [f64; BATCH],
    /// phi before; in the end, the loss.
    loss: [f64; BATCH],
    len: usize,
}

/// Few enough to stay in the first cache.
const BATCH: usize = 128;

impl Default for Batch {
    fn default() -> Self {
        Self { cpus: [0.0; BATCH], mem: [0.0; BATCH], loss: [0.0; BATCH], len: 0 }
    }
}

/// A node that its group does not speak for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    pub group: u32,
    pub node: u32,
    /// By the user's --exclude.
    pub excluded: bool,
    /// CPUs and MB promised there.
    pub promised: (u32, u32),
}

/// Which needs can differ by partition at most; further ones are not placed.
const MAX_NEEDS: usize = 64;

/// What one look at the cluster found; the rest is in the scratch.
pub(crate) struct Survey {
    /// The one node of the user's own nodelist, which stays.
    pub own_node: Option<u32>,
    /// Partition sets times needs.
    pub stride: usize,
}

impl Survey {
    /// Looks at partitions, then at all nodes.
    pub(crate) fn take<V: RoomView>(
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
    ) -> Result<Self, Reason> {
        let survey = Self::of_partitions(ctx, job, scratch)?;
        survey.look(ctx, job, scratch);
        Ok(survey)
    }

    /// Looks at partitions: which would accept the job, and what it takes there.
    pub(crate) fn of_partitions<V: RoomView>(
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
    ) -> Result<Self, Reason> {
        judge_kind(job)?;
        let roster = ctx.roster;
        let follow = roster.policy.user_nodes == UserChoice::Follow;
        let nodelist = job.nodelist.filter(|l| follow && !l.is_empty());
        let node = nodelist.map(|list| own_node(ctx, list)).transpose()?;
        let named = eligible::named_partitions(roster, job);

        scratch.mix = std::mem::take(&mut scratch.mix).reuse(&roster.policy.demand);
        scratch.needs.clear();
        scratch.class_of.clear();
        for (i, rule) in roster.partitions.iter().enumerate() {
            let Ok(index) = u16::try_from(i) else { break };
            let class =
                eligible::accepts(roster, index, rule, job, ctx.permitted, named.as_deref(), node)
                    .ok()
                    .and_then(|need| class_for(&mut scratch.needs, need));
            scratch.class_of.push(class);
        }
        if scratch.needs.is_empty() {
            // Several tasks may still fit on several nodes: that is Slurm's.
            let spread = job.tasks > 1 && job.max_nodes != Some(1);
            return Err(if spread && fits_spread(ctx, job) {
                Reason::MultiNode
            } else {
                Reason::NoPartition
            });
        }
        scratch.pset_needs.clear();
        for set in &roster.psets {
            let bits = set
                .iter()
                .filter_map(|&p| scratch.class_of.get(usize::from(p)).copied().flatten())
                .fold(0u64, |bits, class| bits | 1 << class);
            scratch.pset_needs.push(bits);
        }

        let survey = Self { own_node: node, stride: scratch.needs.len() };
        let exclude = job.exclude.filter(|l| follow && !l.is_empty());
        survey.touch(ctx, exclude, scratch)?;
        Ok(survey)
    }

    /// Looks at nodes: the user's own, or all.
    pub(crate) fn look<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
    ) {
        self.begin(ctx, scratch);
        Self::put_touched_in_order(scratch);
        match self.own_node {
            Some(node) => self.look_at(ctx, job, node, scratch),
            None => self.look_at_groups(ctx, job, 0, scratch),
        }
        self.cost_partitions(ctx, scratch);
    }

    /// Looks at the nodes whose groups do not stand in order; the rest is the quick
    /// survey's.
    pub(crate) fn look_at_the_rest<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        ordered: usize,
        scratch: &mut Scratch,
    ) {
        self.begin(ctx, scratch);
        self.look_at_groups(ctx, job, ordered, scratch);
    }

    fn begin<V: RoomView>(&self, ctx: &Context<'_, V>, scratch: &mut Scratch) {
        scratch.fits.clear();
        scratch.batch.len = 0;
        scratch.slots.clear();
        scratch.slots.resize(ctx.roster.psets.len() * self.stride, Spread::default());
    }

    /// Whether any node has room.
    pub(crate) fn has_room(&self, scratch: &Scratch) -> bool {
        !scratch.fits.is_empty()
    }

    /// Whether this node has.
    pub(crate) fn has_room_on<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        scratch: &Scratch,
        node: u32,
    ) -> bool {
        let Some(group) = ctx.rooms.group_of(node) else { return false };
        let alone = scratch.is_touched(group, node);
        scratch.fits.iter().any(|fit| match fit.single {
            GROUPED => !alone && fit.group == group,
            single => single == node,
        })
    }

    /// Lists the nodes that are promised or excluded.
    fn touch<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        exclude: Option<&str>,
        scratch: &mut Scratch,
    ) -> Result<(), Reason> {
        scratch.clear_touched(ctx.rooms.group_count());
        for p in ctx.promised {
            if let Some(group) = ctx.rooms.group_of(p.node) {
                let promised = (p.cpus, p.mem);
                scratch.touch(Touched { group, node: p.node, excluded: false, promised });
            }
        }
        if let Some(list) = exclude {
            each_name(list, |name| {
                let node = ctx.roster.nodes.find(name).and_then(|n| u32::try_from(n).ok());
                if let Some(node) = node
                    && let Some(group) = ctx.rooms.group_of(node)
                {
                    scratch.touch(Touched { group, node, excluded: true, promised: (0, 0) });
                }
            })
            .ok_or(Reason::Constraint)?;
            Self::put_touched_in_order(scratch);
        }
        Ok(())
    }

    /// What the look at every node needs; the quick survey does without.
    fn put_touched_in_order(scratch: &mut Scratch) {
        if scratch.touched_in_order {
            return;
        }
        // An excluded node stays excluded when it is promised as well.
        scratch.touched.sort_unstable_by_key(|t| (t.group, t.node, !t.excluded));
        let Scratch { touched, touched_of, .. } = scratch;
        touched.dedup_by(|b, a| {
            let twice = (a.group, a.node) == (b.group, b.node);
            if twice && let Some(count) = touched_of.get_mut(b.group as usize) {
                *count -= 1;
            }
            twice
        });
        scratch.touched_in_order = true;
    }

    /// The groups from number `from` on, and every node that such a group does not speak
    /// for.
    fn look_at_groups<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        from: usize,
        scratch: &mut Scratch,
    ) {
        // No need can be met below these.
        let least_cpus = scratch.needs.iter().map(|n| n.on(1).0).min().unwrap_or(0);
        let least_mem = scratch.needs.iter().map(|n| n.on(1).1).min().unwrap_or(0);
        let (mut weigher, touched) = Weigher::new(ctx, job, self.stride, scratch);
        for i in from..ctx.rooms.group_count() {
            let Some((cpus, mem, pset)) = ctx.rooms.shape(i) else { break };
            if cpus == 0 {
                // Full, as all that follow.
                break;
            }
            if cpus < least_cpus || mem < least_mem {
                continue;
            }
            if weigher.pset_needs.get(usize::from(pset)).copied().unwrap_or(0) == 0 {
                continue;
            }
            let Some(group) = ctx.rooms.group(i) else { break };
            let index = u32::try_from(i).unwrap_or(u32::MAX);
            let count = group.count.saturating_sub(weigher.touched_of(index));
            if count > 0 {
                weigher.keep(&group, index, count, GROUPED);
            }
        }
        for t in touched {
            if !t.excluded && t.group as usize >= from {
                weigher.look_at(t.node);
            }
        }
        weigher.work_out();
    }

    /// The one node that the user named.
    fn look_at<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        node: u32,
        scratch: &mut Scratch,
    ) {
        let (mut weigher, touched) = Weigher::new(ctx, job, self.stride, scratch);
        if !touched.iter().any(|t| t.node == node && t.excluded) {
            weigher.look_at(node);
        }
        weigher.work_out();
    }

    /// The least loss of each partition.
    pub(crate) fn cost_partitions<V: RoomView>(&self, ctx: &Context<'_, V>, scratch: &mut Scratch) {
        let roster = ctx.roster;
        scratch.costs.clear();
        scratch.costs.resize(roster.partitions.len(), f64::INFINITY);
        for (s, set) in roster.psets.iter().enumerate() {
            for &p in set {
                let Some(class) = scratch.class_of.get(usize::from(p)).copied().flatten() else {
                    continue;
                };
                let at = s * self.stride + usize::from(class);
                let least = scratch.slots.get(at).map_or(f64::INFINITY, |s| s.least_loss);
                if let Some(cost) = scratch.costs.get_mut(usize::from(p)) {
                    *cost = cost.min(least);
                }
            }
        }
    }
}

/// The hot loop's view of the scratch, taken apart once.
struct Weigher<'s, 'c, V: RoomView> {
    ctx: &'c Context<'c, V>,
    exclusive: bool,
    stride: u32,
    mix: &'s Mix,
    needs: &'s [Need],
    /// What the first need takes where CPUs come one by one.
    first: (u32, u32),
    pset_needs: &'s [u64],
    fits: &'s mut Vec<Fit>,
    slots: &'s mut [Spread],
    batch: &'s mut Batch,
    touched_of: &'s [u32],
}

impl<'s, 'c, V: RoomView> Weigher<'s, 'c, V> {
    /// Also gives back the touched nodes.
    fn new(
        ctx: &'c Context<'c, V>,
        job: &JobRequest<'_>,
        stride: usize,
        scratch: &'s mut Scratch,
    ) -> (Self, &'s [Touched]) {
        let Scratch { mix, needs, pset_needs, fits, slots, batch, touched, touched_of, .. } =
            scratch;
        let stride = u32::try_from(stride).unwrap_or(u32::MAX);
        let exclusive = job.exclusive;
        let first = needs.first().map_or((0, 0), |n| n.on(1));
        (
            Self {
                ctx,
                exclusive,
                stride,
                mix,
                needs,
                first,
                pset_needs,
                fits,
                slots,
                batch,
                touched_of,
            },
            touched,
        )
    }

    fn touched_of(&self, group: u32) -> u32 {
        self.touched_of.get(group as usize).copied().unwrap_or(0)
    }

    /// One node by itself, less what it has been promised.
    fn look_at(&mut self, node: u32) {
        let Some(index) = self.ctx.rooms.group_of(node) else { return };
        let Some(mut group) = self.ctx.rooms.group(index as usize) else { return };
        let promised = self.ctx.promised.binary_search_by_key(&node, |p| p.node);
        if let Some(p) = promised.ok().and_then(|i| self.ctx.promised.get(i)) {
            let less = |mem: u32| match mem {
                MEM_UNMANAGED => mem,
                m => m.saturating_sub(p.mem),
            };
            group.cpus = group.cpus.saturating_sub(p.cpus);
            group.cpus_then = group.cpus_then.saturating_sub(p.cpus);
            group.mem = less(group.mem);
            group.mem_then = less(group.mem_then);
            group.phi = self.mix.phi(group.cpus, group.mem);
        }
        self.keep(&group, index, 1, node);
    }

    /// Whether the group's nodes could hold the job when empty.
    fn is_big_enough(&self, group: &Group, single: u32, need: &Need) -> bool {
        let first = || self.ctx.rooms.member(group.first as usize);
        let node = if single == GROUPED { first() } else { Some(single) };
        let kind = node.and_then(|n| eligible::kind_of(self.ctx.roster, n));
        kind.is_some_and(|kind| need.fits_kind(kind))
    }

    /// Keeps a group (or node) where the job fits, for every need that
    /// partitions of its nodes have.
    #[inline(always)]
    fn keep(&mut self, group: &Group, index: u32, count: u32, single: u32) {
        let mut bits = self.pset_needs.get(usize::from(group.pset)).copied().unwrap_or(0);
        while bits != 0 {
            let class = bits.trailing_zeros();
            bits &= bits - 1;
            let Some(need) = self.needs.get(class as usize) else { continue };
            let (mut cpus, mut mem, mut phi) = (group.cpus, group.mem, group.phi);
            if group.taken_at != NEVER && ends_after(self.ctx.now, need.minutes, group.taken_at) {
                (cpus, mem) = (cpus.min(group.cpus_then), mem.min(group.mem_then));
                phi = self.mix.phi(cpus, mem);
            }
            let (need_cpus, need_mem) = match (class, group.step) {
                (0, 1) => self.first,
                (_, step) => need.on(u32::from(step)),
            };
            if cpus < need_cpus || mem < need_mem {
                continue;
            }
            // Where memory is not managed, Slurm still looks at what the node has.
            if mem == MEM_UNMANAGED && !self.is_big_enough(group, single, need) {
                continue;
            }
            let mut takes = need_cpus;
            if self.exclusive {
                if !is_empty_node(self.ctx, group, single) || cpus < group.cpus {
                    continue;
                }
                takes = cpus;
            }
            let managed = mem != MEM_UNMANAGED;
            let left = if managed { mem - need_mem } else { mem };
            let quotient = if managed && need_mem != 0 {
                f64::from(mem) * f64::from(need_cpus) / (f64::from(need_mem) * f64::from(cpus))
            } else {
                1.0
            };
            let slot = u32::from(group.pset) * self.stride + class;
            if self.batch.len == BATCH {
                self.work_out();
            }
            let Batch { cpus: cpus_left, mem: mem_left, loss, len } = &mut *self.batch;
            // Always so; said for the compiler.
            let at = *len & (BATCH - 1);
            cpus_left[at] = f64::from(cpus - takes);
            mem_left[at] = if managed { f64::from(left) } else { BOUNDLESS };
            loss[at] = phi;
            *len = at + 1;
            let group = index;
            self.fits.push(Fit { loss: 0.0, quotient, cpus, mem, group, single, slot, count });
        }
    }

    /// The losses of the last fits, and what they make of their slots.
    fn work_out(&mut self) {
        let Batch { cpus, mem, loss, len } = &mut *self.batch;
        let (Some(cpus), Some(mem), Some(loss)) =
            (cpus.get(..*len), mem.get(..*len), loss.get_mut(..*len))
        else {
            return;
        };
        self.mix.take_off(cpus, mem, loss);
        let before = self.fits.len().saturating_sub(*len);
        for (fit, &loss) in self.fits.iter_mut().skip(before).zip(loss.iter()) {
            fit.loss = loss;
            if let Some(spread) = self.slots.get_mut(fit.slot as usize) {
                spread.add(loss, fit.quotient, fit.count);
            }
        }
        *len = 0;
    }
}

/// The one node of the user's nodelist.
fn own_node<V: RoomView>(ctx: &Context<'_, V>, list: &str) -> Result<u32, Reason> {
    let (mut names, mut usable, mut first) = (0u32, 0u32, None);
    let read = each_name(list, |name| {
        let node = ctx.roster.nodes.find(name).and_then(|n| u32::try_from(n).ok());
        names += u32::from(node.is_none() || node != first);
        if let Some(node) = node {
            first = first.or(Some(node));
            usable += u32::from(ctx.rooms.group_of(node).is_some());
        }
    });
    match (read, first) {
        // Slurm gives a job every node it names.
        (Some(()), Some(_)) if names > 1 && usable > 0 => Err(Reason::MultiNode),
        (Some(()), Some(node)) if usable > 0 => Ok(node),
        _ => Err(Reason::NoNodeInList),
    }
}

/// Names that a list may hold; a longer one is not gone through while a
/// submission waits.
const MAX_LIST: u32 = 100_000;

/// Calls `visit` for every name of a hostlist; `None` where it cannot be read
/// or is too long.
fn each_name(list: &str, mut visit: impl FnMut(&str)) -> Option<()> {
    let mut left = MAX_LIST;
    let ended = hostlist::for_each(list, |name| {
        visit(name);
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    matches!(ended, Ok(None)).then_some(())
}

/// Whether a job that starts now would still run at `at` (Unix seconds).
#[inline]
fn ends_after(now: u64, minutes: Option<u32>, at: u32) -> bool {
    minutes.is_none_or(|m| now + u64::from(m) * 60 > u64::from(at))
}

/// Whether nothing at all runs on the group's nodes.
fn is_empty_node<V: RoomView>(ctx: &Context<'_, V>, group: &Group, single: u32) -> bool {
    let node = match single {
        GROUPED => ctx.rooms.member(group.first as usize),
        node => Some(node),
    };
    node.and_then(|n| eligible::kind_of(ctx.roster, n)).is_some_and(|kind| {
        kind.cpus.0 == group.cpus && kind.mem.is_none_or(|m| m.0 <= u64::from(group.mem))
    })
}

/// The number of `need` among `needs`, added where it is new.
fn class_for(needs: &mut Vec<Need>, need: Need) -> Option<u16> {
    let at = needs.iter().position(|n| *n == need).or_else(|| {
        (needs.len() < MAX_NEEDS).then(|| {
            needs.push(need);
            needs.len() - 1
        })
    });
    at.and_then(|i| u16::try_from(i).ok())
}

/// Whether a job of several tasks that no node holds whole could run spread
/// over nodes: one task of it fits a partition that accepts it.
fn fits_spread<V: RoomView>(ctx: &Context<'_, V>, job: &JobRequest<'_>) -> bool {
    let one = JobRequest {
        cpus: crate::units::Cpus(job.cpus.0.div_ceil(job.tasks.max(1))),
        tasks: 1,
        ..job.clone()
    };
    let named = eligible::named_partitions(ctx.roster, job);
    ctx.roster.partitions.iter().enumerate().any(|(i, rule)| {
        u16::try_from(i).is_ok_and(|i| {
            eligible::accepts(ctx.roster, i, rule, &one, ctx.permitted, named.as_deref(), None)
                .is_ok()
        })
    })
}
