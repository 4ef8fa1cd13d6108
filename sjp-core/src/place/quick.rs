//! The survey that does not look at every group: groups stand in the order of their
//! free memory per CPU, and what a job costs grows with the distance from its own.
//!
//! On nodes with r MB per free CPU a job of (c, m) costs at least
//! `sum of w * (c where q <= r, else m / q)` over the demand mix: for a node's CPUs
//! are the shorter supply to the demands below r, before the job and after it, and
//! its memory to those above. That bound is least at the job's own m / c and grows to
//! both sides, and most nodes cost just as much. So a search that begins there and
//! goes outwards has found the least loss as soon as the bound reaches it, and the
//! node to pin is the first that is within the margin.
//!
//! What it finds is what the whole survey finds, which stays the reference, or
//! nothing: where the order says too little, the whole survey decides.

use super::survey::{GROUPED, Spread, Touched};
use super::{Context, Fit, Scratch, Survey, judge_pin, ratio};
use crate::config::{Demand, Tie};
use crate::publication::{MEM_UNMANAGED, RoomView, first_not};
use crate::request::JobRequest;
use crate::units::MemPer;

/// Losses closer than this are equal: far below what decisions tell apart.
const EQUAL: f64 = 1e-10;
/// As in the choice.
const SAME: f64 = 1e-9;

/// Groups in a row: of one partition set and one step of CPUs, in the order of their
/// free memory per CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pset: u16,
    step: u16,
    start: usize,
    end: usize,
}

/// A node that has been promised something since its group was published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Apart {
    node: u32,
    group: u32,
    pset: u16,
    step: u16,
    /// CPUs and MB left.
    cpus: u32,
    mem: u32,
}

/// What the quick survey says.
pub(crate) enum Quick {
    /// The costs are worked out; this node is worth a pin.
    Pin(Fit),
    /// No node has room.
    NoRoom,
    /// The whole survey is needed.
    Unsure,
}

/// One run, for one need: where the search begins, and what is looked for.
struct Search<'a> {
    run: Run,
    /// CPUs and MB that the job takes here.
    need: (u32, u32),
    /// The first group with more memory per CPU than the job.
    middle: usize,
    mix: &'a [Demand],
}

/// What a job costs at least on a node with this much free.
fn bound(mix: &[Demand], need: (u32, u32), cpus: u32, mem: u32) -> f64 {
    let (c, m) = (f64::from(cpus), f64::from(mem));
    let (jc, jm) = (f64::from(need.0), f64::from(need.1));
    let term = |d: &Demand| d.weight * if d.mb_per_cpu * c <= m { jc } else { jm / d.mb_per_cpu };
    mix.iter().map(term).sum()
}

impl Search<'_> {
    fn bound(&self, cpus: u32, mem: u32) -> f64 {
        bound(self.mix, self.need, cpus, mem)
    }

    /// The groups from the job's own ratio outwards, to one side.
    fn outwards(&self, up: bool) -> impl Iterator<Item = usize> + use<> {
        let (run, middle) = (self.run, self.middle);
        let mut at = 0;
        std::iter::from_fn(move || {
            let next = if up { middle.checked_add(at)? } else { middle.checked_sub(at + 1)? };
            at += 1;
            (run.start..run.end).contains(&next).then_some(next)
        })
    }
}

impl Survey {
    /// Whether the order can tell where this job goes.
    pub(crate) fn can_be_quick<V: RoomView>(
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
    ) -> bool {
        let sized = |mem: MemPer| match mem {
            MemPer::Unset => false,
            MemPer::Cpu(m) | MemPer::Node(m) => m.0 > 0,
        };
        ctx.roster.policy.tie == Tie::Ratio
            && job.cpus.0 > 0
            && judge_pin(ctx, job).is_none()
            && scratch.needs.iter().all(|n| sized(n.mem))
    }

    /// Finds the least loss of every slot, adding to what the scratch has of nodes
    /// that were looked at one by one; then, with the partitions that follow from
    /// those, the node. `admit` marks the slots that count and answers whether any
    /// partition has room.
    pub(crate) fn quickly<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
        admit: impl FnOnce(&mut Scratch),
    ) -> Quick {
        self.least_losses(ctx, scratch);
        self.least_losses_apart(ctx, scratch);
        self.cost_partitions(ctx, scratch);
        if scratch.costs.iter().all(|c| c.is_infinite()) {
            return Quick::NoRoom;
        }
        admit(scratch);
        self.best_node(ctx, job, scratch)
    }

    /// The runs among the first `end` groups, which stand in order.
    pub(crate) fn find_runs<V: RoomView>(ctx: &Context<'_, V>, end: usize, runs: &mut Vec<Run>) {
        runs.clear();
        let mut start = 0;
        while start < end {
            let Some(class) = ctx.rooms.class(start) else { break };
            let (pset, step) = class;
            let same = |i: usize| ctx.rooms.class(i).is_some_and(|c| c <= class);
            let end = first_not(start + 1, end, same);
            runs.push(Run { pset, step, start, end });
            start = end;
        }
    }

    /// What is left of the promised nodes whose groups are among the first `end`.
    pub(crate) fn find_apart<V: RoomView>(
        ctx: &Context<'_, V>,
        end: usize,
        touched: &[Touched],
        apart: &mut Vec<Apart>,
    ) {
        apart.clear();
        for t in touched.iter().filter(|t| !t.excluded && (t.group as usize) < end) {
            let at = t.group as usize;
            let (Some((cpus, mem)), Some((pset, step))) = (ctx.rooms.free(at), ctx.rooms.class(at))
            else {
                continue;
            };
            let (cpus, mem) = (cpus.saturating_sub(t.promised.0), mem.saturating_sub(t.promised.1));
            if cpus > 0 {
                apart.push(Apart { node: t.node, group: t.group, pset, step, cpus, mem });
            }
        }
    }

    /// Calls `visit` with every node apart and every need that applies to it and fits:
    /// slot, node, CPUs and MB needed.
    fn each_apart(&self, scratch: &Scratch, mut visit: impl FnMut(usize, &Apart, (u32, u32))) {
        for apart in &scratch.apart {
            let mut bits = scratch.pset_needs.get(usize::from(apart.pset)).copied().unwrap_or(0);
            while bits != 0 {
                let class = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(need) = scratch.needs.get(class) else { continue };
                let need = need.on(u32::from(apart.step));
                if apart.cpus >= need.0 && apart.mem >= need.1 {
                    visit(usize::from(apart.pset) * self.stride + class, apart, need);
                }
            }
        }
    }

    fn least_losses_apart<V: RoomView>(&self, ctx: &Context<'_, V>, scratch: &mut Scratch) {
        let mut slots = std::mem::take(&mut scratch.slots);
        let mix = &ctx.roster.policy.demand;
        self.each_apart(scratch, |at, apart, need| {
            let Some(slot) = slots.get_mut(at) else { return };
            if bound(mix, need, apart.cpus, apart.mem) < slot.least_loss - EQUAL {
                let loss = fit_apart(scratch, apart, need, at).loss;
                slot.least_loss = slot.least_loss.min(loss);
            }
        });
        scratch.slots = slots;
    }

    /// Calls `visit` with every run that a need applies to, and its slot.
    fn each_search<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        scratch: &Scratch,
        mut visit: impl FnMut(usize, &Search<'_>),
    ) {
        for &run in &scratch.runs {
            let mut bits = scratch.pset_needs.get(usize::from(run.pset)).copied().unwrap_or(0);
            while bits != 0 {
                let class = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(need) = scratch.needs.get(class) else { continue };
                let need = need.on(u32::from(run.step));
                let less = |i: usize| {
                    ctx.rooms.free(i).is_some_and(|(cpus, mem)| {
                        u64::from(mem) * u64::from(need.0) < u64::from(need.1) * u64::from(cpus)
                    })
                };
                let middle = first_not(run.start, run.end, less);
                let mix = &ctx.roster.policy.demand;
                let search = Search { run, need, middle, mix };
                visit(usize::from(run.pset) * self.stride + class, &search);
            }
        }
    }

    fn least_losses<V: RoomView>(&self, ctx: &Context<'_, V>, scratch: &mut Scratch) {
        let mut slots = std::mem::take(&mut scratch.slots);
        self.each_search(ctx, scratch, |at, search| {
            let Some(slot) = slots.get_mut(at) else { return };
            for up in [true, false] {
                for i in search.outwards(up) {
                    let Some((cpus, mem)) = ctx.rooms.free(i) else { break };
                    if cpus < search.need.0 || mem < search.need.1 {
                        continue;
                    }
                    if search.bound(cpus, mem) >= slot.least_loss - EQUAL {
                        break;
                    }
                    if let Some(fit) = fit(ctx, scratch, search, i, at)
                        && fit.loss < slot.least_loss
                    {
                        slot.least_loss = fit.loss;
                    }
                }
            }
        });
        scratch.slots = slots;
    }

    /// The node worth a pin among the slots that count.
    fn best_node<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
    ) -> Quick {
        let policy = &ctx.roster.policy;
        let margin = policy.min_gain.unwrap_or(policy.min_gain_share * f64::from(job.cpus.0));
        let mut all = Spread::default();
        for (_, spread) in self.counted(scratch) {
            all.join(spread);
        }
        let limit = all.least_loss + margin + SAME;
        // Those that were looked at one by one, then the runs.
        let mut best: Option<(Fit, f64)> = None;
        for fit in &scratch.fits {
            if fit.loss <= limit && scratch.does_count(fit.slot) {
                self.keep_better(ctx, scratch, &mut best, fit);
            }
        }
        self.each_search(ctx, scratch, |at, search| {
            if !scratch.counts.get(at).copied().unwrap_or(false) {
                return;
            }
            for up in [true, false] {
                for i in search.outwards(up) {
                    let Some((cpus, mem)) = ctx.rooms.free(i) else { break };
                    if cpus < search.need.0 || mem < search.need.1 {
                        continue;
                    }
                    let far = best.is_some_and(|(_, best)| {
                        distance(quotient(search.need, cpus, mem)) > best + SAME
                    });
                    if far || search.bound(cpus, mem) > limit + EQUAL {
                        break;
                    }
                    if let Some(fit) = fit(ctx, scratch, search, i, at)
                        && fit.loss <= limit
                    {
                        self.keep_better(ctx, scratch, &mut best, &fit);
                    }
                }
            }
            // The ends of the run: the farthest from the job.
            let ends = [
                (search.run.start..search.run.end).find_map(|i| fit(ctx, scratch, search, i, at)),
                (search.run.start..search.run.end)
                    .rev()
                    .find_map(|i| fit(ctx, scratch, search, i, at)),
            ];
            for end in ends.into_iter().flatten() {
                all.add(end.loss, end.quotient, end.count);
            }
        });
        self.each_apart(scratch, |at, apart, need| {
            let value = distance(quotient(need, apart.cpus, apart.mem));
            let far = best.is_some_and(|(_, best)| value > best + SAME);
            if !far && scratch.counts.get(at).copied().unwrap_or(false) {
                let fit = fit_apart(scratch, apart, need, at);
                if fit.loss <= limit {
                    self.keep_better(ctx, scratch, &mut best, &fit);
                }
            }
        });
        let Some((winner, _)) = best else { return Quick::Unsure };
        let gains = all.worst_loss - winner.loss > margin + SAME
            || all.worst_ratio() - ratio(&winner) > policy.min_ratio_gain + SAME;
        if gains { Quick::Pin(winner) } else { Quick::Unsure }
    }

    fn keep_better<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        scratch: &Scratch,
        best: &mut Option<(Fit, f64)>,
        fit: &Fit,
    ) {
        let value = distance(fit.quotient);
        if super::select::is_better(ctx, scratch, best.as_ref().map(|(f, v)| (f, *v)), fit, value) {
            *best = Some((*fit, value));
        }
    }
}

/// Grows as |ln| does, without the logarithm.
pub(crate) fn distance(quotient: f64) -> f64 {
    if quotient < 1.0 { 1.0 / quotient } else { quotient }
}

/// The node's free memory per CPU over the job's.
fn quotient(need: (u32, u32), cpus: u32, mem: u32) -> f64 {
    f64::from(mem) * f64::from(need.0) / (f64::from(need.1) * f64::from(cpus))
}

/// A node apart where the job fits.
fn fit_apart(scratch: &Scratch, apart: &Apart, need: (u32, u32), slot: usize) -> Fit {
    let &Apart { node, group, cpus, mem, .. } = apart;
    let left = scratch.mix.phi(cpus - need.0, mem - need.1);
    Fit {
        loss: scratch.mix.phi(cpus, mem) - left,
        quotient: quotient(need, cpus, mem),
        cpus,
        mem,
        group,
        single: node,
        slot: u32::try_from(slot).unwrap_or(u32::MAX),
        count: 1,
    }
}

/// Group `i`, where the job fits on a member that its group speaks for.
#[inline]
fn fit<V: RoomView>(
    ctx: &Context<'_, V>,
    scratch: &Scratch,
    search: &Search<'_>,
    i: usize,
    slot: usize,
) -> Option<Fit> {
    let (cpus, mem) = ctx.rooms.free(i)?;
    let (need_cpus, need_mem) = search.need;
    if cpus < need_cpus || mem < need_mem || mem == MEM_UNMANAGED {
        return None;
    }
    let (phi, members) = ctx.rooms.worth(i)?;
    let index = u32::try_from(i).ok()?;
    let count = members.saturating_sub(scratch.touched_of(index));
    if count == 0 {
        return None;
    }
    Some(Fit {
        loss: phi - scratch.mix.phi(cpus - need_cpus, mem - need_mem),
        quotient: quotient(search.need, cpus, mem),
        cpus,
        mem,
        group: index,
        single: GROUPED,
        slot: u32::try_from(slot).ok()?,
        count,
    })
}
