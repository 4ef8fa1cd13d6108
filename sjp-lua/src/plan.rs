//! The decision about one job on the table: which partitions and node it
//! gets, and what that makes of its fields and of the claims.

use crate::config::Config;
use crate::desc::Fields;
use crate::failure::Failure;
use crate::place::{Call, Stop};
use crate::shared::{Shared, Table};
use sjp_core::config::Mode;
use sjp_core::decision::{Placement, Reason};
use sjp_core::mark;
use sjp_core::place::{Context, choose, open};
use sjp_core::publication::{Admit, Claim, PartitionRule, Roster};
use sjp_core::request::JobRequest;
use sjp_core::submission::{Stamp, Submission, permit};
use sjp_table::{MAX_TRIES, Meta, PushError, ReadError, TableView};

/// What a placement changes.
pub(crate) struct Plan {
    pub(crate) change: Submission,
    /// For the log, where it is wanted.
    pub(crate) words: String,
}

/// Which fields must be read that not every site needs.
#[derive(Clone, Copy)]
pub(crate) struct Wants {
    pub(crate) account: bool,
    pub(crate) qos: bool,
    pub(crate) host: bool,
}

/// The gates that the table itself decides: mode and age.
fn gate(roster: &Roster, meta: Meta, now_ns: u64) -> Result<(), Reason> {
    if roster.policy.mode == Mode::Observe {
        return Err(Reason::Observe);
    }
    let age_ns = now_ns.saturating_sub(meta.data_time_ns);
    // Data from the future has no age that could be trusted; published while
    // this call ran, it may be a little ahead.
    let ahead_ns = meta.data_time_ns.saturating_sub(now_ns);
    if age_ns > roster.policy.max_age_ms.saturating_mul(1_000_000) || ahead_ns > 1_000_000_000 {
        return Err(Reason::Stale);
    }
    Ok(())
}

/// What the first look at the table tells.
pub(crate) struct Opening {
    pub(crate) wants: Wants,
    pub(crate) base: Base,
}

/// What the published rooms account for: the roster, and the last claim.
pub(crate) type Base = (u64, u64);

fn base_of(view: &TableView<'_>) -> Base {
    (view.roster_id(), view.meta().claims_taken)
}

/// Reads the table, and sorts what comes of it.
pub(crate) fn settle<T>(
    shared: &mut Shared,
    config: &Config,
    read: impl FnOnce(&mut Table<'_>) -> Result<Result<T, Reason>, ReadError>,
) -> Result<T, Stop> {
    match read(&mut shared.table()?) {
        Ok(answer) => answer.map_err(Stop::Left),
        Err(ReadError::Empty | ReadError::Closed) => Err(Stop::Left(Reason::NoTable)),
        Err(error @ (ReadError::Busy | ReadError::Damaged(_))) => {
            if error != ReadError::Busy {
                shared.detach();
            }
            Err(Stop::Failed(Failure::Table {
                state_dir: config.state_dir.display().to_string(),
                why: error.to_string(),
            }))
        }
    }
}

/// Passes the gates and tells what the job must be asked.
pub(crate) fn pass_gates(
    table: &mut Table<'_>,
    now_ns: u64,
) -> Result<Result<Opening, Reason>, ReadError> {
    table.reader.read_with_roster(|view, roster| {
        gate(roster, view.meta(), now_ns)?;
        let rules =
            |f: fn(&PartitionRule) -> &Admit| roster.partitions.iter().any(|p| *f(p) != Admit::All);
        let wants = Wants {
            account: rules(|p| &p.accounts) || !roster.bound_users.is_empty(),
            qos: rules(|p| &p.qos) || !roster.qos.is_empty(),
            host: rules(|p| &p.hosts),
        };
        Ok(Opening { wants, base: base_of(view) })
    })
}

/// Decides about one job on rooms and claims that belong together: where sjpd
/// has published in between, both are looked at again.
pub(crate) fn decide_on_table(
    shared: &mut Shared,
    config: &Config,
    order: &Order<'_>,
    mut base: Base,
    now_ns: u64,
) -> Result<Plan, Stop> {
    for _ in 0..MAX_TRIES {
        let plan = settle(shared, config, |table| {
            table.folded.update(table.reader, base)?;
            plan(table, order, base, now_ns)
        })?;
        match plan {
            Some(plan) => return Ok(plan),
            None => base = settle(shared, config, |table| pass_gates(table, now_ns))?.base,
        }
    }
    settle(shared, config, |_| Err(ReadError::Busy))
}

/// Writes the claims. Where the table was closed a moment ago, into the one
/// that follows it; where there is none, no sjpd is there to count them.
pub(crate) fn claim(shared: &mut Shared, config: &Config, claims: &[Claim], now_ns: u64) {
    for claim in claims {
        let closed = shared
            .table()
            .is_ok_and(|table| table.reader.push_claim(claim) == Err(PushError::Closed));
        if closed {
            let _ = shared.attach(&config.state_dir, now_ns);
            if let Ok(table) = shared.table() {
                let _ = table.reader.push_claim(claim);
            }
        }
    }
}

/// A job to be planned.
pub(crate) struct Order<'a> {
    pub(crate) call: Call,
    pub(crate) job: &'a JobRequest<'a>,
    pub(crate) fields: &'a Fields,
    /// part_list's names, one a line.
    pub(crate) names: Option<&'a str>,
    /// Unix seconds.
    pub(crate) now: u64,
    /// Id of the claims and of the mark.
    pub(crate) id: u64,
    pub(crate) verbose: bool,
}

/// Decides about one job, on one consistent view of the table. `Ok(None)`: not
/// the publication that the promises start from.
fn plan(
    table: &mut Table<'_>,
    order: &Order<'_>,
    base: Base,
    now_ns: u64,
) -> Result<Result<Option<Plan>, Reason>, ReadError> {
    let Table { reader, folded, scratch, permitted } = table;
    let promised = folded.promises.as_slice();
    reader.read_with_roster(|view, roster| {
        if base_of(view) != base {
            return Ok(None);
        }
        gate(roster, view.meta(), now_ns)?;
        let permitted = order.names.map(|names| {
            permit(roster, names, permitted);
            permitted.as_slice()
        });
        let context = Context { roster, rooms: view, promised, now: order.now, permitted };
        let placement = match order.call {
            Call::Place => choose(&context, order.job, scratch)?,
            Call::Open => open(&context, order.job, scratch)?,
        };
        Ok(Some(describe(roster, view.roster_id(), &placement, permitted, order)))
    })
}

/// The new values of the job's fields, and the claims.
fn describe(
    roster: &Roster,
    roster_id: u64,
    placement: &Placement,
    permitted: Option<&[bool]>,
    order: &Order<'_>,
) -> Plan {
    let (job, existing) = (order.job, order.fields.admin_comment.as_deref());
    let stamp = Stamp { roster: roster_id, id: order.id, now: order.now };
    let change = Submission::new(roster, placement, job, permitted, existing, stamp);
    let pin = placement.pin.and_then(|n| roster.nodes.get(n as usize));
    let partitions = || mark::partition_names(roster, &placement.partitions);
    let words = match (order.verbose, pin) {
        (false, _) => String::new(),
        (true, Some(node)) => format!("uid {} to {}, pinned to {node}", job.uid, partitions()),
        (true, None) => format!(
            "uid {} to {}, not pinned: {}",
            job.uid,
            partitions(),
            placement.not_pinned.map_or("no node is better", |why| why.words())
        ),
    };
    Plan { change, words }
}
