//! The placement policy: partitions by the placeable capacity a job would
//! cost there, and a node where one is clearly better than the rest.
//!
//! One survey of the published groups of nodes (this file), then the choice
//! (`select`). The hot path: it runs inside slurmctld, while a submission
//! waits. It allocates nothing once its scratch has grown.

mod quick;
mod select;
mod survey;

use crate::config::NoRoom;
use crate::decision::{Basis, NotPinned, Placement, Reason};
use crate::publication::{Promised, RoomView, Roster};
use crate::request::JobRequest;
use crate::units::MemPer;
pub(crate) use select::{members, ratio};
pub use survey::Scratch;
pub(crate) use survey::{Fit, Survey};

/// What a placement is decided on.
pub struct Context<'a, V: RoomView> {
    /// Names, rules and settings.
    pub roster: &'a Roster,
    /// Free room now.
    pub rooms: &'a V,
    /// Promised since the rooms were published; sorted by node.
    pub promised: &'a [Promised],
    /// Unix seconds.
    pub now: u64,
    /// Partitions this user may use, by index; `None`: not known.
    pub permitted: Option<&'a [bool]>,
}

/// Chooses partitions and, where it is worth it, a node.
///
/// # Errors
/// The reason why the job keeps the fields it came with.
pub fn choose<V: RoomView>(
    ctx: &Context<'_, V>,
    job: &JobRequest<'_>,
    scratch: &mut Scratch,
) -> Result<Placement, Reason> {
    let (survey, placement) = look_for_room(ctx, job, scratch)?;
    if let Some(placement) = placement {
        return Ok(placement);
    }
    let policy = &ctx.roster.policy;
    match (policy.no_room, policy.always_place) {
        (NoRoom::Open, _) => Ok(survey.opened(ctx, job, scratch)),
        (NoRoom::Leave, true) => Ok(survey.by_shape(ctx, job, scratch)),
        (NoRoom::Leave, false) => Err(Reason::NoRoom),
    }
}

/// Where the job has room now, if anywhere; what it costs in each partition is in the
/// scratch.
///
/// # Errors
/// The reason why the job keeps the fields it came with.
pub(crate) fn look_for_room<V: RoomView>(
    ctx: &Context<'_, V>,
    job: &JobRequest<'_>,
    scratch: &mut Scratch,
) -> Result<(Survey, Option<Placement>), Reason> {
    let survey = Survey::of_partitions(ctx, job, scratch)?;
    let placement = match survey.by_order(ctx, job, scratch) {
        Some(found) => found.ok(),
        None => {
            survey.look(ctx, job, scratch);
            survey.has_room(scratch).then(|| survey.by_room(ctx, job, scratch))
        }
    };
    Ok((survey, placement))
}

/// Every partition that can hold the job and will accept it.
///
/// # Errors
/// The reason why the job keeps the fields it came with.
pub fn open<V: RoomView>(
    ctx: &Context<'_, V>,
    job: &JobRequest<'_>,
    scratch: &mut Scratch,
) -> Result<Placement, Reason> {
    let survey = Survey::take(ctx, job, scratch)?;
    Ok(survey.opened(ctx, job, scratch))
}

/// Whether this is a job sjp places at all.
fn judge_kind(job: &JobRequest<'_>) -> Result<(), Reason> {
    // First, since only the first component of a batch job shows its script.
    let reason = if job.het {
        Reason::HetJob
    } else if !job.batch {
        Reason::NotBatch
    } else if job.gres {
        Reason::Gpu
    } else if job.reservation {
        Reason::Reservation
    } else if job.constraint {
        Reason::Constraint
    } else if job.min_nodes > 1 {
        Reason::MultiNode
    } else if matches!(job.mem, MemPer::Node(m) | MemPer::Cpu(m) if m.0 == 0) {
        Reason::NoMemory
    } else {
        return Ok(());
    };
    Err(reason)
}

/// Why this job is not pinned whatever the nodes look like; `None`: it may be.
fn judge_pin<V: RoomView>(ctx: &Context<'_, V>, job: &JobRequest<'_>) -> Option<NotPinned> {
    let roster = ctx.roster;
    let why = if !roster.policy.pin || roster.policy.mode == crate::config::Mode::Advise {
        NotPinned::Off
    } else if job.array {
        NotPinned::Array
    } else if job.held {
        NotPinned::Held
    } else if job.begins_later {
        NotPinned::Begin
    } else if job.dependent {
        NotPinned::Dependency
    } else if job.exclusive {
        NotPinned::Exclusive
    } else if job.tasks > 1 && job.max_nodes != Some(1) {
        NotPinned::Tasks
    } else if at_qos_cap(ctx, job) {
        NotPinned::QosCap
    } else {
        return None;
    };
    Some(why)
}

/// Whether this job may be pinned at all.
pub(crate) fn may_pin<V: RoomView>(ctx: &Context<'_, V>, job: &JobRequest<'_>) -> bool {
    judge_pin(ctx, job).is_none()
}

/// The QOS of a job that names none, where its user has several and no default, and
/// no default stands at the root of the associations.
const DEFAULT_QOS: &str = "normal";

/// Whether the QOS leaves this user fewer CPUs than the job needs.
fn at_qos_cap<V: RoomView>(ctx: &Context<'_, V>, job: &JobRequest<'_>) -> bool {
    let name = job.qos.unwrap_or(DEFAULT_QOS);
    let Ok(qos) = ctx.roster.qos.binary_search_by(|q| q.as_str().cmp(name)) else { return false };
    let qos = u32::try_from(qos).unwrap_or(u32::MAX);
    ctx.rooms.qos_room(job.uid, qos).is_some_and(|left| left < job.cpus.0)
}

/// The placement without nodes, for `basis`.
fn without_nodes(
    partitions: Vec<u16>,
    job: &JobRequest<'_>,
    basis: Basis,
    minutes: Option<u32>,
    mem: MemPer,
) -> Placement {
    let need = crate::eligible::Need { cpus: job.cpus.0, mem, minutes };
    let mb = need.on(1).1;
    Placement {
        admitted: partitions.clone(),
        partitions,
        pin: None,
        not_pinned: Some(NotPinned::NoRoom),
        claims: Vec::new(),
        room: crate::decision::Room::default(),
        cpus: job.cpus,
        mem: (mem != MemPer::Unset).then_some(crate::units::MemMb(u64::from(mb))),
        loss: 0.0,
        basis,
        minutes,
    }
}

#[cfg(test)]
mod tests;
