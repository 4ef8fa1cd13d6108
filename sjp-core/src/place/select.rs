//! The choice: admitted partitions, a node where it is worth a pin, and what
//! to claim where it is not.

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

impl Survey {
    /// Partitions within tolerance of the cheapest, and a node.
    pub(crate) fn by_room<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &mut Scratch,
    ) -> Placement {
        let best = scratch.costs.iter().copied().fold(f64::INFINITY, f64::min);
        let limit = best + ctx.roster.policy.tolerance * f64::from(job.cpus.0) + SAME;
        let admitted =
            self.ordered(ctx, |p| scratch.costs.get(usize::from(p)).is_some_and(|&c| c <= limit));
        self.on_nodes(ctx, job, scratch, admitted, Basis::Room)
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
        let roster = ctx.roster;
        // Only partitions with room now count for the node.
        let roomy = |p: &&u16| scratch.costs.get(usize::from(**p)).is_some_and(|c| c.is_finite());
        let tier = admitted.iter().filter(roomy).filter_map(|&p| tier_of(ctx, p)).max();
        let top: Vec<u16> =
            admitted.iter().filter(roomy).copied().filter(|&p| tier_of(ctx, p) == tier).collect();
        let mut fits = std::mem::take(&mut scratch.fits);
        fits.retain(|fit| {
            top.iter().any(|p| {
                scratch.class_of.get(usize::from(*p)).copied().flatten() == Some(fit.class)
                    && roster.psets.get(usize::from(fit.pset)).is_some_and(|s| s.contains(p))
            })
        });
        let chosen = self.pin(ctx, job, scratch, &fits, &admitted, basis);
        let placement = match chosen {
            Ok(fit) => {
                let node = representative(ctx, scratch, &fit).unwrap_or(u32::MAX);
                let here = eligible::partitions_of(roster, node);
                let partitions: Vec<u16> =
                    admitted.iter().copied().filter(|p| here.contains(p)).collect();
                let claims = vec![claim(node, &fit, 1)];
                self.placement(scratch, &fit, partitions, admitted, Some(node), None, claims, basis)
            }
            Err(why) => {
                let claims = likely_nodes(ctx, job, scratch, &mut fits);
                match fits.first().copied() {
                    Some(fit) => self.placement(
                        scratch,
                        &fit,
                        admitted.clone(),
                        admitted,
                        None,
                        Some(why),
                        claims,
                        basis,
                    ),
                    None => {
                        let (mem, minutes) = self.shape_in(&admitted, scratch);
                        without_nodes(admitted, job, basis, minutes, mem)
                    }
                }
            }
        };
        scratch.fits = fits;
        placement
    }

    /// The node worth a pin, or why there is none.
    fn pin<V: RoomView>(
        &self,
        ctx: &Context<'_, V>,
        job: &JobRequest<'_>,
        scratch: &Scratch,
        fits: &[Fit],
        admitted: &[u16],
        basis: Basis,
    ) -> Result<Fit, NotPinned> {
        if let Some(why) = judge_pin(ctx, job) {
            return Err(why);
        }
        if self.own_nodes {
            return Err(NotPinned::OwnNodes);
        }
        if basis == Basis::Open {
            return Err(NotPinned::Off);
        }
        let unknown = |f: &Fit| self.mem_of(f, scratch) == MemPer::Unset && f.mem != MEM_UNMANAGED;
        if fits.iter().any(unknown) {
            return Err(NotPinned::MemoryUnknown);
        }
        if fits.iter().map(|f| u64::from(f.count)).sum::<u64>() <= 1 {
            return Err(NotPinned::OneNode);
        }
        let policy = &ctx.roster.policy;
        let margin = policy.min_gain.unwrap_or(policy.min_gain_share * f64::from(job.cpus.0));
        let least = fits.iter().map(|f| f.loss).fold(f64::INFINITY, f64::min);
        let by_ratio = match policy.tie {
            Tie::Ratio => true,
            Tie::Scarce => memory_is_scarcer(ctx, admitted),
        };
        let key = |f: &Fit| if by_ratio { ratio(f) } else { f64::from(f.cpus) };
        let mut winner: Option<(&Fit, f64)> = None;
        for fit in fits.iter().filter(|f| f.loss <= least + margin + SAME) {
            let value = key(fit);
            let better = match winner {
                None => true,
                Some((w, best)) => {
                    if (value - best).abs() > SAME {
                        value < best
                    } else if (fit.loss - w.loss).abs() > SAME {
                        fit.loss < w.loss
                    } else {
                        representative(ctx, scratch, fit) < representative(ctx, scratch, w)
                    }
                }
            };
            if better {
                winner = Some((fit, value));
            }
        }
        let Some((winner, _)) = winner else { return Err(NotPinned::NoRoom) };
        let worst_loss = fits.iter().map(|f| f.loss).fold(f64::NEG_INFINITY, f64::max);
        let worst_ratio = fits.iter().map(ratio).fold(f64::NEG_INFINITY, f64::max);
        let gains = worst_loss - winner.loss > margin + SAME
            || worst_ratio - ratio(winner) > policy.min_ratio_gain + SAME;
        if gains { Ok(*winner) } else { Err(NotPinned::NoGain) }
    }

    #[allow(clippy::too_many_arguments, reason = "one call site a branch, all of it the answer")]
    fn placement(
        &self,
        scratch: &Scratch,
        fit: &Fit,
        partitions: Vec<u16>,
        admitted: Vec<u16>,
        pin: Option<u32>,
        not_pinned: Option<NotPinned>,
        claims: Vec<NodeClaim>,
        basis: Basis,
    ) -> Placement {
        let known = self.mem_of(fit, scratch) != MemPer::Unset;
        let managed = fit.mem != MEM_UNMANAGED;
        Placement {
            partitions,
            admitted,
            pin,
            not_pinned,
            claims,
            room: Room { cpus: Cpus(fit.cpus), mem: managed.then_some(MemMb(u64::from(fit.mem))) },
            cpus: Cpus(fit.need_cpus),
            mem: known.then_some(MemMb(u64::from(fit.need_mem))),
            loss: fit.loss,
            basis,
            minutes: scratch.needs.get(usize::from(fit.class)).and_then(|n| n.minutes),
        }
    }

    fn mem_of(&self, fit: &Fit, scratch: &Scratch) -> MemPer {
        scratch.needs.get(usize::from(fit.class)).map(|n| n.mem).unwrap_or_default()
    }

    fn need_in(&self, partition: u16, scratch: &Scratch) -> Option<eligible::Need> {
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

fn tier_of<V: RoomView>(ctx: &Context<'_, V>, partition: u16) -> Option<u32> {
    ctx.roster.partitions.get(usize::from(partition)).map(|p| p.tier)
}

/// How far the node's free memory per CPU is from the job's: `|ln ratio|`.
/// Nodes without managed memory are told apart by their free CPUs alone.
pub(crate) fn ratio(fit: &Fit) -> f64 {
    if fit.mem == MEM_UNMANAGED || fit.need_mem == 0 {
        return 0.0;
    }
    let node = f64::from(fit.mem) / f64::from(fit.cpus.max(1));
    let job = f64::from(fit.need_mem) / f64::from(fit.need_cpus.max(1));
    (node / job).ln().abs()
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
    let single = fit.single;
    let range = match single {
        Some(_) => 0..0,
        None => fit.first..fit.first.saturating_add(fit.members),
    };
    let free =
        move |node: &u32| ctx.rooms.group_of(*node).is_some_and(|g| !scratch.is_touched(g, *node));
    let grouped = range.map_while(|k| ctx.rooms.member(k as usize)).filter(free);
    single.into_iter().chain(grouped)
}

fn claim(node: u32, fit: &Fit, times: u32) -> NodeClaim {
    NodeClaim {
        node,
        cpus: fit.need_cpus.saturating_mul(times),
        mem: fit.need_mem.saturating_mul(times),
    }
}

/// The nodes that Slurm would most likely use: lowest weight, then fewest free
/// CPUs, then order; filled one after the other for an array. Leaves `fits` in
/// that order.
fn likely_nodes<V: RoomView>(
    ctx: &Context<'_, V>,
    job: &JobRequest<'_>,
    scratch: &Scratch,
    fits: &mut [Fit],
) -> Vec<NodeClaim> {
    // A stable sort would allocate; ties fall to the lower node below.
    fits.sort_unstable_by_key(|f| (f.weight, f.cpus, f.single.unwrap_or(f.first)));
    let mut wanted = if job.array { job.array_tasks.max(1) } else { 1 };
    let mut claims = Vec::new();
    if wanted == 1 {
        let first = fits.first().map(|f| (f.weight, f.cpus));
        let best = fits
            .iter()
            .take_while(|f| Some((f.weight, f.cpus)) == first)
            .filter_map(|f| representative(ctx, scratch, f).map(|n| (n, f)))
            .min_by_key(|&(n, _)| n);
        return best.map(|(node, fit)| claim(node, fit, 1)).into_iter().collect();
    }
    for fit in fits.iter() {
        let by_cpu = fit.cpus / fit.need_cpus.max(1);
        let by_mem = match (fit.mem, fit.need_mem) {
            (MEM_UNMANAGED, _) | (_, 0) => u32::MAX,
            (has, each) => has / each,
        };
        let each = by_cpu.min(by_mem).max(1);
        for node in members(ctx, scratch, fit) {
            let here = each.min(wanted);
            claims.push(claim(node, fit, here));
            wanted -= here;
            if wanted == 0 || claims.len() == MAX_ARRAY_NODES {
                return claims;
            }
        }
    }
    claims
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
