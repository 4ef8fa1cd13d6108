//! The choice: admitted partitions, a node where it is worth a pin, and what
//! to claim where it is not.

use super::quick::{Quick, distance};
use super::survey::{GROUPED, Spread};
use super::{Context, Fit, Scratch, Survey, judge_pin, without_nodes};
use crate::config::Tie;
use crate::decision::{Basis, NodeClaim, NotPinned, Placement, Room};
use crate::eligible;
use crate::publication::{MEM_UNMANAGED, RoomView};
use crate::request::JobRequest;
use crate::units::{Cpus, MemMb, MemPer};

/// Nodes over which an array is claimed at most.
const MAX_ARRAY_NODES: usize = 32;
/// Losses closer than this are equal: below what a tenth of a CPU can mean.
const SAME: f64 = 1e-9;

/// No node has room.
pub(crate) struct NoRoomLeft;

impl Survey {
    /// Partitions within tolerance of the cheapest, and a node.
    pub(crate) fn by_room<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
    ) -> Placement {
        let admitted = self.admitted(ctx, job, scratch);
        self.on_nodes(ctx, job, scratch, admitted, Basis::Room)
    }

    /// The same without a look at every node; `None` where that takes one.
    pub(crate) fn by_order<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
    ) -> Option<Result<Placement, NoRoomLeft>> {
        if self.own_node.is_some() || !Self::can_be_quick(ctx, job, scratch) {
            return None;
        }
        let (ordered, _) = ctx.rooms.ends();
        Self::find_runs(ctx, ordered, &mut scratch.runs);
        Self::find_apart(ctx, ordered, &scratch.touched, &mut scratch.apart);
        self.look_at_the_rest(ctx, job, ordered, scratch);
        let mut admitted = Vec::new();
        let quick = self.quickly(ctx, job, scratch, |scratch| {
            admitted = self.admitted(ctx, job, scratch);
            self.count_top(ctx, &admitted, scratch);
        });
        match quick {
            Quick::Unsure => None,
            Quick::NoRoom => Some(Err(NoRoomLeft)),
            Quick::Pin(fit) => {
                Some(Ok(self.pinned(ctx, job, scratch, &fit, admitted, Basis::Room)))
            }
        }
    }

    /// Partitions within tolerance of the cheapest.
    fn admitted<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
    ) -> Vec<u16> {
        let best = scratch.costs.iter().copied().fold(f64::INFINITY, f64::min);
        let limit = best + ctx.roster.policy.tolerance * f64::from(job.cpus.0) + SAME;
        let admitted =
            self.ordered(ctx, |p| scratch.costs.get(usize::from(p)).is_some_and(|&c| c <= limit));
        as_allowed(ctx, job, admitted, &scratch.costs)
    }

    /// Every eligible partition.
    pub(crate) fn opened<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
    ) -> Placement {
        let all = self
            .ordered(ctx, |p| scratch.class_of.get(usize::from(p)).copied().flatten().is_some());
        let all = as_allowed(ctx, job, all, &scratch.costs);
        if self.has_room(scratch) {
            return self.on_nodes(ctx, job, scratch, all, Basis::Open);
        }
        let (mem, minutes) = self.shape_in(&all, scratch);
        without_nodes(all, job, Basis::Open, minutes, mem)
    }

    /// The partitions whose empty nodes the job would cost least.
    pub(crate) fn by_shape<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
    ) -> Placement {
        let roster = ctx.roster;
        let mut costs = vec![f64::INFINITY; roster.partitions.len()];
        for kind in &roster.kinds {
            let Some(set) = roster.psets.get(usize::from(kind.pset)) else { continue };
            for &p in set {
                let Some(need) = self.need_in(p, scratch) else { continue };
                if !need.fits_kind(kind) {
                    continue;
                }
                let (cpus, mem) = need.on(kind.step);
                let has = kind.mem.map_or(MEM_UNMANAGED, saturate);
                let left = if has == MEM_UNMANAGED { has } else { has - mem };
                let loss =
                    scratch.mix.phi(kind.cpus.0, has) - scratch.mix.phi(kind.cpus.0 - cpus, left);
                if let Some(cost) = costs.get_mut(usize::from(p)) {
                    *cost = cost.min(loss);
                }
            }
        }
        let best = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let limit = best + roster.policy.tolerance * f64::from(job.cpus.0) + SAME;
        let admitted =
            self.ordered(ctx, |p| costs.get(usize::from(p)).is_some_and(|&c| c <= limit));
        let admitted = as_allowed(ctx, job, admitted, &costs);
        let (mem, minutes) = self.shape_in(&admitted, scratch);
        without_nodes(admitted, job, Basis::Shape, minutes, mem)
    }

    /// Picks the node to pin, or the nodes to claim, among `admitted`.
    fn on_nodes<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
        admitted: Vec<u16>,
        basis: Basis,
    ) -> Placement {
        self.count_top(ctx, &admitted, scratch);
        let chosen = self.pin(ctx, job, scratch, &admitted, basis);
        match chosen {
            Ok(fit) => self.pinned(ctx, job, scratch, &fit, admitted, basis),
            Err(why) => match self.likely_nodes(ctx, job, scratch) {
                Some((fit, claims)) => {
                    let lists = (admitted.clone(), admitted);
                    self.placement(ctx, job, scratch, &fit, lists, None, Some(why), claims, basis)
                }
                None => {
                    let (mem, minutes) = self.shape_in(&admitted, scratch);
                    without_nodes(admitted, job, basis, minutes, mem)
                }
            },
        }
    }

    /// The placement on a node of `fit`.
    fn pinned<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
        fit: &Fit,
        admitted: Vec<u16>,
        basis: Basis,
    ) -> Placement {
        let node = representative(ctx, scratch, fit).unwrap_or(u32::MAX);
        let here = eligible::partitions_of(ctx.roster, node);
        let partitions = admitted.iter().copied().filter(|p| here.contains(p)).collect();
        let claims = vec![self.claim(ctx, job, scratch, fit, node, 1)];
        let lists = (partitions, admitted);
        self.placement(ctx, job, scratch, fit, lists, Some(node), None, claims, basis)
    }

    /// Marks what counts for the node: of the admitted partitions with room now, those
    /// of the highest tier.
    fn count_top<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        admitted: &[u16],
        scratch: &mut Scratch,
    ) {
        let roomy = |p: &&u16| scratch.costs.get(usize::from(**p)).is_some_and(|c| c.is_finite());
        let tier = admitted.iter().filter(roomy).filter_map(|&p| tier_of(ctx, p)).max();
        let top: Vec<u16> =
            admitted.iter().filter(roomy).copied().filter(|&p| tier_of(ctx, p) == tier).collect();
        self.count_sets(ctx, &top, scratch);
    }

    /// Marks the sets of partitions whose nodes are in one of `top`.
    fn count_sets<V: RoomView>(&self, ctx: &Context<'_, V>, top: &[u16], scratch: &mut Scratch) {
        scratch.counts.clear();
        scratch.counts.resize(ctx.roster.psets.len() * self.stride, false);
        for (s, set) in ctx.roster.psets.iter().enumerate() {
            for p in top.iter().filter(|p| set.contains(p)) {
                let class = scratch.class_of.get(usize::from(*p)).copied().flatten();
                let at = class.map(|c| s * self.stride + usize::from(c));
                if let Some(counts) = at.and_then(|at| scratch.counts.get_mut(at)) {
                    *counts = true;
                }
            }
        }
    }

    /// The node worth a pin, or why there is none.
    fn pin<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
        admitted: &[u16],
        basis: Basis,
    ) -> Result<Fit, NotPinned> {
        if let Some(why) = judge_pin(ctx, job) {
            return Err(why);
        }
        if self.own_node.is_some() {
            return Err(NotPinned::OwnNodes);
        }
        if basis == Basis::Open {
            return Err(NotPinned::Off);
        }
        let mut all = Spread::default();
        for (at, spread) in self.counted(scratch) {
            all.join(spread);
            let mem = scratch.needs.get(at % self.stride).map(|n| n.mem);
            if spread.nodes > 0 && mem == Some(MemPer::Unset) && manages_memory(ctx) {
                return Err(NotPinned::MemoryUnknown);
            }
        }
        if all.nodes <= 1 {
            return Err(NotPinned::OneNode);
        }
        let policy = &ctx.roster.policy;
        let margin = policy.min_gain.unwrap_or(policy.min_gain_share * f64::from(job.cpus.0));
        let limit = all.least_loss + margin + SAME;
        let by_ratio = match policy.tie {
            Tie::Ratio => true,
            Tie::Scarce => memory_is_scarcer(ctx, admitted),
        };
        let mut winner: Option<(&Fit, f64)> = None;
        for fit in &scratch.fits {
            if fit.loss > limit || !scratch.counts.get(fit.slot as usize).copied().unwrap_or(false)
            {
                continue;
            }
            let value = if by_ratio { distance(fit.quotient) } else { f64::from(fit.cpus) };
            if is_better(ctx, scratch, winner, fit, value) {
                winner = Some((fit, value));
            }
        }
        let Some((winner, _)) = winner else { return Err(NotPinned::NoRoom) };
        let gains = all.worst_loss - winner.loss > margin + SAME
            || all.worst_ratio() - ratio(winner) > policy.min_ratio_gain + SAME;
        if gains { Ok(*winner) } else { Err(NotPinned::NoGain) }
    }

    /// The slots whose nodes count for the choice.
    pub(crate) fn counted<'s>(
        &self,
        scratch: &'s Scratch,
    ) -> impl Iterator<Item = (usize, &'s Spread)> {
        let counts = scratch.counts.iter();
        scratch.slots.iter().zip(counts).enumerate().filter_map(|(i, (s, &c))| c.then_some((i, s)))
    }

    #[allow(clippy::too_many_arguments, reason = "two call sites, all of it the answer")]
    fn placement<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
        fit: &Fit,
        (partitions, admitted): (Vec<u16>, Vec<u16>),
        pin: Option<u32>,
        not_pinned: Option<NotPinned>,
        claims: Vec<NodeClaim>,
        basis: Basis,
    ) -> Placement {
        let need = self.need_of(fit, scratch);
        let (cpus, mem) = self.takes(ctx, job, scratch, fit);
        let managed = fit.mem != MEM_UNMANAGED;
        Placement {
            partitions,
            admitted,
            pin,
            not_pinned,
            claims,
            room: Room { cpus: Cpus(fit.cpus), mem: managed.then_some(MemMb(u64::from(fit.mem))) },
            cpus: Cpus(cpus),
            mem: need.is_some_and(|n| n.mem != MemPer::Unset).then_some(MemMb(u64::from(mem))),
            loss: fit.loss,
            basis,
            minutes: need.and_then(|n| n.minutes),
        }
    }

    /// The nodes that Slurm would most likely use: lowest weight, then fewest
    /// free CPUs, then order; filled one after the other for an array.
    fn likely_nodes<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
    ) -> Option<(Fit, Vec<NodeClaim>)> {
        let counts = |f: &&Fit| scratch.counts.get(f.slot as usize).copied().unwrap_or(false);
        let weight = |f: &Fit| ctx.rooms.weight(f.group as usize).unwrap_or(u32::MAX);
        let first = |f: &Fit| representative(ctx, scratch, f).unwrap_or(u32::MAX);
        if !job.array || job.array_tasks <= 1 {
            let mut best: Option<(&Fit, (u32, u32))> = None;
            for fit in scratch.fits.iter().filter(counts) {
                let key = (weight(fit), fit.cpus);
                let better = match best {
                    None => true,
                    Some((b, k)) => key < k || (key == k && first(fit) < first(b)),
                };
                if better {
                    best = Some((fit, key));
                }
            }
            let (fit, _) = best?;
            return Some((*fit, vec![self.claim(ctx, job, scratch, fit, first(fit), 1)]));
        }
        let mut fits: Vec<&Fit> = scratch.fits.iter().filter(counts).collect();
        fits.sort_by_cached_key(|f| (weight(f), f.cpus, first(f)));
        let mut wanted = job.array_tasks;
        let mut claims = Vec::new();
        for fit in &fits {
            let (cpus, mem) = self.takes(ctx, job, scratch, fit);
            let by_cpu = fit.cpus / cpus.max(1);
            let by_mem = match (fit.mem, mem) {
                (MEM_UNMANAGED, _) | (_, 0) => u32::MAX,
                (has, each) => has / each,
            };
            let each = by_cpu.min(by_mem).max(1);
            for node in members(ctx, scratch, fit) {
                if wanted == 0 || claims.len() == MAX_ARRAY_NODES {
                    break;
                }
                let here = each.min(wanted);
                claims.push(self.claim(ctx, job, scratch, fit, node, here));
                wanted -= here;
            }
        }
        fits.first().map(|f| (**f, claims))
    }

    /// What `times` such jobs take on `node`.
    fn claim<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
        fit: &Fit,
        node: u32,
        times: u32,
    ) -> NodeClaim {
        let (cpus, mem) = self.takes(ctx, job, scratch, fit);
        NodeClaim { node, cpus: cpus.saturating_mul(times), mem: mem.saturating_mul(times) }
    }

    /// CPUs and MB that the job takes on a node of `fit`.
    fn takes<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
        fit: &Fit,
    ) -> (u32, u32) {
        let step = ctx.rooms.group(fit.group as usize).map_or(1, |g| g.step);
        let need = self.need_of(fit, scratch).map_or((0, 0), |n| n.on(u32::from(step)));
        if job.exclusive { (fit.cpus, need.1) } else { need }
    }

    fn need_of<'s>(&self, fit: &Fit, scratch: &'s Scratch) -> Option<&'s eligible::Need> {
        scratch.needs.get(fit.slot as usize % self.stride)
    }

    /// What the job takes in a partition that would accept it.
    pub(crate) fn need_in(&self, partition: u16, scratch: &Scratch) -> Option<eligible::Need> {
        let class = scratch.class_of.get(usize::from(partition)).copied().flatten()?;
        scratch.needs.get(usize::from(class)).copied()
    }

    /// Memory and minutes by the first of `partitions`.
    fn shape_in(&self, partitions: &[u16], scratch: &Scratch) -> (MemPer, Option<u32>) {
        partitions
            .first()
            .and_then(|&p| self.need_in(p, scratch))
            .map_or((MemPer::Unset, None), |n| (n.mem, n.minutes))
    }

    /// Partitions that `keep`, highest tier first, then by name.
    fn ordered<V: RoomView>(&self, ctx: &Context<'_, V>, keep: impl Fn(u16) -> bool) -> Vec<u16> {
        let count = u16::try_from(ctx.roster.partitions.len()).unwrap_or(u16::MAX);
        let mut list: Vec<u16> = (0..count).filter(|&p| keep(p)).collect();
        list.sort_by_key(|&p| (std::cmp::Reverse(tier_of(ctx, p)), p));
        list
    }
}

/// Whether `fit` is the better choice: the smaller value, then the smaller loss, then
/// the earlier name.
pub(crate) fn is_better<V: RoomView>(
    ctx: &Context<'_, V>,
    scratch: &Scratch,
    than: Option<(&Fit, f64)>,
    fit: &Fit,
    value: f64,
) -> bool {
    match than {
        None => true,
        Some((_, best)) if (value - best).abs() > SAME => value < best,
        Some((w, _)) if (fit.loss - w.loss).abs() > SAME => fit.loss < w.loss,
        Some((w, _)) => representative(ctx, scratch, fit) < representative(ctx, scratch, w),
    }
}

/// `list`, or the one partition of it that costs least, where Slurm would refuse a list.
fn as_allowed<V: RoomView>(
    ctx: &Context<'_, V>,
    job: &JobRequest<'_>,
    mut list: Vec<u16>,
    costs: &[f64],
) -> Vec<u16> {
    if list.len() > 1 && eligible::one_partition_only(ctx.roster, job) {
        let cost = |p: u16| costs.get(usize::from(p)).copied().unwrap_or(f64::INFINITY);
        let own = |p: u16| ctx.roster.partitions.get(usize::from(p)).is_some_and(|r| r.default);
        list.sort_by(|&a, &b| cost(a).total_cmp(&cost(b)).then(own(b).cmp(&own(a))));
        list.truncate(1);
    }
    list
}

fn tier_of<V: RoomView>(ctx: &Context<'_, V>, partition: u16) -> Option<u32> {
    ctx.roster.partitions.get(usize::from(partition)).map(|p| p.tier)
}

/// How far the node's free memory per CPU is from the job's: `|ln ratio|`.
/// Nodes without managed memory are told apart by their free CPUs alone.
pub(crate) fn ratio(fit: &Fit) -> f64 {
    fit.quotient.ln().abs()
}

/// The first node that a fit stands for.
pub(crate) fn representative<V: RoomView>(
    ctx: &Context<'_, V>,
    scratch: &Scratch,
    fit: &Fit,
) -> Option<u32> {
    members(ctx, scratch, fit).next()
}

/// The nodes that a fit stands for, ascending.
pub(crate) fn members<'a, V: RoomView>(
    ctx: &'a Context<'_, V>,
    scratch: &'a Scratch,
    fit: &Fit,
) -> impl Iterator<Item = u32> + 'a {
    let single = (fit.single != GROUPED).then_some(fit.single);
    let range = match (single, ctx.rooms.group(fit.group as usize)) {
        (None, Some(g)) => g.first..g.first.saturating_add(g.count),
        _ => 0..0,
    };
    let free =
        move |node: &u32| ctx.rooms.group_of(*node).is_some_and(|g| !scratch.is_touched(g, *node));
    let grouped = range.map_while(|k| ctx.rooms.member(k as usize)).filter(free);
    single.into_iter().chain(grouped)
}

/// Whether any node's memory is managed.
fn manages_memory<V: RoomView>(ctx: &Context<'_, V>) -> bool {
    ctx.roster.kinds.iter().any(|k| k.mem.is_some())
}

/// Whether memory is fuller than CPUs over the nodes of `partitions`.
fn memory_is_scarcer<V: RoomView>(ctx: &Context<'_, V>, partitions: &[u16]) -> bool {
    let roster = ctx.roster;
    let (mut cpus, mut free_cpus, mut mem, mut free_mem) = (0.0, 0.0, 0.0, 0.0);
    for i in 0..ctx.rooms.group_count() {
        let Some(group) = ctx.rooms.group(i) else { break };
        let inside = roster
            .psets
            .get(usize::from(group.pset))
            .is_some_and(|s| s.iter().any(|p| partitions.contains(p)));
        let kind =
            ctx.rooms.member(group.first as usize).and_then(|n| eligible::kind_of(roster, n));
        let (true, Some(kind), true) = (inside, kind, group.mem != MEM_UNMANAGED) else {
            continue;
        };
        let count = f64::from(group.count);
        cpus += count * f64::from(kind.cpus.0);
        free_cpus += count * f64::from(group.cpus);
        mem += count * kind.mem.map_or(0.0, |m| m.0 as f64);
        free_mem += count * f64::from(group.mem);
    }
    // free_mem / mem < free_cpus / cpus, without dividing by zero.
    free_mem * cpus < free_cpus * mem
}

fn saturate(mem: MemMb) -> u32 {
    u32::try_from(mem.0).unwrap_or(MEM_UNMANAGED - 1).min(MEM_UNMANAGED - 1)
}
