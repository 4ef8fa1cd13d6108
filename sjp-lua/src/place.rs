//! One call of place() or open(): the gates, the decision, the claims, the
//! fields.
//!
//! The order matters. Nothing of the job is read before it is known that sjp
//! may touch it; claims are written before the fields, so that the next
//! submission sees them; fields are written last and together, or not at all.

use crate::config::Config;
use crate::desc::Fields;
use crate::failure::Failure;
use crate::log;
use crate::shared::{Shared, Table};
use mlua::{Function, Lua, MultiValue, Value};
use parking_lot::Mutex;
use sjp_core::config::{Mode, UserChoice};
use sjp_core::decision::{Placement, Reason};
use sjp_core::mark;
use sjp_core::place::{Context, choose, open};
use sjp_core::publication::{Admit, Claim, PartitionRule, Roster};
use sjp_core::request::JobRequest;
use sjp_core::units::Limit;
use sjp_table::{MAX_TRIES, Meta, PushError, ReadError, TableView};
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

/// Which function was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `place(job_desc, submit_uid [, part_list])`.
    Place,
    /// `open(job_desc, submit_uid [, part_list])`.
    Open,
}

impl Call {
    /// Its name in the module's table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Open => "open",
        }
    }
}

/// How a call ended without a placement.
enum Stop {
    /// As it should be: the job keeps the fields it came with.
    Left(Reason),
    /// Something is wrong.
    Failed(Failure),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Left(reason)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What a placement changes, with names instead of indices.
struct Plan {
    /// New values; `None`: the field stays.
    partition: Option<String>,
    req_nodes: Option<String>,
    exc_nodes: Option<String>,
    comment: String,
    claims: Vec<Claim>,
    /// For the log, where it is wanted.
    words: String,
}

/// The native half of the module for one Lua state.
pub(crate) struct Native {
    shared: &'static Mutex<Shared>,
    /// The module's own table, for its `config`.
    module: mlua::Table,
    config: OnceCell<Config>,
    read: Function,
    names: Function,
    write: Function,
}

impl Native {
    pub(crate) fn new(
        lua: &Lua,
        shared: &'static Mutex<Shared>,
        module: mlua::Table,
    ) -> mlua::Result<Self> {
        let (read, names) =
            lua.load(include_str!("lua/read.lua")).set_name("=sjp read.lua").call(())?;
        let write = lua.load(include_str!("lua/write.lua")).set_name("=sjp write.lua").call(())?;
        Ok(Self { shared, module, config: OnceCell::new(), read, names, write })
    }

    /// What the function returns: placed, and the reason where it is not.
    pub(crate) fn answer(
        &self,
        lua: &Lua,
        call: Call,
        job_desc: &Value,
        submit_uid: &Value,
        part_list: &Value,
    ) -> (bool, Option<&'static str>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.decide(lua, call, job_desc, submit_uid, part_list)
        }))
        .unwrap_or_else(|payload| {
            // What the panic left behind is not to be trusted.
            if let Some(mut shared) = self.shared.try_lock() {
                *shared = Shared::new();
            }
            Err(Stop::Failed(Failure::Panic(panic_text(payload.as_ref()))))
        });
        match outcome {
            Ok(()) => (true, None),
            Err(Stop::Left(reason)) => (false, Some(reason.words())),
            Err(Stop::Failed(failure)) => {
                self.complain(lua, &failure);
                (false, Some(Reason::Error.words()))
            }
        }
    }

    /// Decides, writes, and logs where the site wants each decision logged.
    fn decide(
        &self,
        lua: &Lua,
        call: Call,
        job_desc: &Value,
        submit_uid: &Value,
        part_list: &Value,
    ) -> Result<(), Stop> {
        let submit_uid = check_arguments(call, job_desc, submit_uid, part_list)?;
        let config = self.config()?;
        let outcome = self.carry_out(lua, call, config, job_desc, submit_uid, part_list);
        if config.verbose {
            match &outcome {
                Ok(words) => log::info(lua, &format!("sjp: {}: {words}", call.name())),
                Err(Stop::Left(reason)) => {
                    log::info(lua, &format!("sjp: {}: left as it is: {reason}", call.name()));
                }
                Err(Stop::Failed(_)) => {}
            }
        }
        outcome.map(|_| ())
    }

    fn config(&self) -> Result<&Config, Failure> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let table = self
            .module
            .get::<mlua::Table>("config")
            .map_err(|source| Failure::Reading { what: "sjp.config", source })?;
        let config = Config::read(&table)?;
        Ok(self.config.get_or_init(|| config))
    }

    /// The gates, then the job. Answers what was done, in words.
    fn carry_out(
        &self,
        lua: &Lua,
        call: Call,
        config: &Config,
        job_desc: &Value,
        submit_uid: u32,
        part_list: &Value,
    ) -> Result<String, Stop> {
        if disabled(config)? {
            return Err(Stop::Left(Reason::Disabled));
        }
        let mut shared = self.shared.try_lock().ok_or(Failure::Busy)?;
        let now_ns = sjp_table::now_ns();
        if let Some(trouble) = shared.attach(&config.state_dir, now_ns) {
            // Not an error of this call: there is no table to use.
            complain_on(lua, &mut shared, &trouble, now_ns);
        }
        let opening = settle(&mut shared, config, |table| pass_gates(table, now_ns))?;
        let fields = self.read_job(job_desc, opening.wants)?;
        let names = self.read_names(part_list)?;
        let now = unix_now();
        let job = fields.request(submit_uid, now);
        let order = Order {
            call,
            job: &job,
            fields: &fields,
            names: names.as_deref(),
            now,
            id: shared.claim_id(now_ns),
            verbose: config.verbose,
        };
        let plan = match decide_on_table(&mut shared, config, &order, opening.base, now_ns) {
            Err(Stop::Left(reason)) if about_the_job(reason) => {
                self.note_skipped(job_desc, reason, &fields)?;
                return Err(Stop::Left(reason));
            }
            other => other?,
        };
        claim(&mut shared, config, &plan.claims, now_ns);
        drop(shared);
        self.write_job(job_desc, &plan, &fields)?;
        Ok(plan.words)
    }

    fn read_job(&self, job_desc: &Value, wants: Wants) -> Result<Fields, Failure> {
        let values = self
            .read
            .call::<MultiValue>((job_desc, wants.account, wants.qos))
            .map_err(|source| Failure::Reading { what: "job_desc", source })?;
        Fields::take(values)
    }

    fn read_names(&self, part_list: &Value) -> Result<Option<String>, Failure> {
        if part_list.is_nil() {
            return Ok(None);
        }
        let names = self
            .names
            .call::<mlua::LuaString>(part_list)
            .map_err(|source| Failure::Reading { what: "part_list", source })?;
        Ok(Some(names.to_string_lossy()))
    }

    fn note_skipped(
        &self,
        job_desc: &Value,
        reason: Reason,
        fields: &Fields,
    ) -> Result<(), Failure> {
        match mark::skipped(reason, fields.admin_comment.as_deref()) {
            Some(comment) => self.write(job_desc, [None, None, None, Some(&comment)], fields),
            None => Ok(()),
        }
    }

    fn write_job(&self, job_desc: &Value, plan: &Plan, fields: &Fields) -> Result<(), Failure> {
        let new = [
            plan.partition.as_deref(),
            plan.req_nodes.as_deref(),
            plan.exc_nodes.as_deref(),
            Some(plan.comment.as_str()),
        ];
        self.write(job_desc, new, fields)
    }

    /// Writes partition, req_nodes, exc_nodes and admin_comment, where given.
    fn write(
        &self,
        job_desc: &Value,
        new: [Option<&str>; 4],
        fields: &Fields,
    ) -> Result<(), Failure> {
        let [partition, req_nodes, exc_nodes, comment] = new;
        let raised = self
            .write
            .call::<Option<mlua::LuaString>>((
                job_desc,
                partition,
                req_nodes,
                exc_nodes,
                comment,
                fields.partition.as_deref(),
                fields.req_nodes.as_deref(),
                fields.exc_nodes.as_deref(),
                fields.admin_comment.as_deref(),
            ))
            .map_err(|error| Failure::Writing(error.to_string()))?;
        match raised {
            None => Ok(()),
            Some(text) => Err(Failure::Writing(text.to_string_lossy())),
        }
    }

    fn complain(&self, lua: &Lua, failure: &Failure) {
        // Another thread in the mutex: then this call is the odd one, and it
        // has nothing to count its lines with.
        let Some(mut shared) = self.shared.try_lock() else { return };
        complain_on(lua, &mut shared, failure, sjp_table::now_ns());
    }
}

/// One line in slurmctld's log, unless this kind of failure has just had one.
fn complain_on(lua: &Lua, shared: &mut Shared, failure: &Failure, now_ns: u64) {
    if let Some(kept_back) = shared.limiter.pass(failure.kind(), now_ns) {
        let more = match kept_back {
            0 => String::new(),
            n => format!(" ({n} like it since the last such line)"),
        };
        log::error(lua, &format!("sjp: {failure}{more}"));
    }
}

/// Which fields must be read that not every site needs.
#[derive(Clone, Copy)]
struct Wants {
    account: bool,
    qos: bool,
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
struct Opening {
    wants: Wants,
    base: Base,
}

/// What the published rooms account for: the roster, and the last claim.
type Base = (u64, u64);

fn base_of(view: &TableView<'_>) -> Base {
    (view.roster_id(), view.meta().claims_taken)
}

/// Reads the table, and sorts what comes of it.
fn settle<T>(
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
fn pass_gates(table: &mut Table<'_>, now_ns: u64) -> Result<Result<Opening, Reason>, ReadError> {
    table.reader.read_with_roster(|view, roster| {
        gate(roster, view.meta(), now_ns)?;
        let rules =
            |f: fn(&PartitionRule) -> &Admit| roster.partitions.iter().any(|p| *f(p) != Admit::All);
        let wants = Wants {
            account: rules(|p| &p.accounts) || !roster.bound_users.is_empty(),
            qos: rules(|p| &p.qos) || !roster.qos.is_empty(),
        };
        Ok(Opening { wants, base: base_of(view) })
    })
}

/// Decides about one job on rooms and claims that belong together: where sjpd
/// has published in between, both are looked at again.
fn decide_on_table(
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
fn claim(shared: &mut Shared, config: &Config, claims: &[Claim], now_ns: u64) {
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
struct Order<'a> {
    call: Call,
    job: &'a JobRequest<'a>,
    fields: &'a Fields,
    /// part_list's names, one a line.
    names: Option<&'a str>,
    /// Unix seconds.
    now: u64,
    /// Id of the claims and of the mark.
    id: u64,
    verbose: bool,
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
        Ok(Some(describe(roster, view.roster_id(), &placement, order)))
    })
}

/// Marks the partitions that part_list names.
fn permit(roster: &Roster, names: &str, permitted: &mut Vec<bool>) {
    permitted.clear();
    permitted.resize(roster.partitions.len(), false);
    for name in names.split('\n') {
        let found = roster.partitions.binary_search_by(|p| p.name.as_str().cmp(name));
        if let Some(slot) = found.ok().and_then(|i| permitted.get_mut(i)) {
            *slot = true;
        }
    }
}

/// The new values of the job's fields, and the claims.
fn describe(roster: &Roster, roster_id: u64, placement: &Placement, order: &Order<'_>) -> Plan {
    let (job, fields) = (order.job, order.fields);
    let partitions = mark::partition_names(roster, &placement.partitions);
    let pin = placement.pin.and_then(|n| roster.nodes.get(n as usize));
    let drop_own = roster.policy.user_nodes == UserChoice::Ignore;
    let claims = placement
        .claims
        .iter()
        .map(|claim| Claim {
            seq: 0,
            id: order.id,
            roster: roster_id,
            time: order.now,
            uid: job.uid,
            node: claim.node,
            cpus: claim.cpus,
            mem: claim.mem,
            limit: match job.time_limit {
                Limit::At(minutes) => minutes,
                Limit::Unset | Limit::Unlimited => placement.minutes.unwrap_or(u32::MAX),
            },
            flags: Claim::flags_of(placement, job.array),
        })
        .collect();
    let words = match (order.verbose, pin) {
        (false, _) => String::new(),
        (true, Some(node)) => format!("uid {} to {partitions}, pinned to {node}", job.uid),
        (true, None) => format!(
            "uid {} to {partitions}, not pinned: {}",
            job.uid,
            placement.not_pinned.map_or("no node is better", |why| why.words())
        ),
    };
    Plan {
        req_nodes: match pin {
            Some(node) => differs(node, fields.req_nodes.as_deref()),
            None => cleared(drop_own, fields.req_nodes.as_deref()),
        },
        exc_nodes: cleared(drop_own, fields.exc_nodes.as_deref()),
        comment: mark::for_placement(roster, placement, order.id, fields.admin_comment.as_deref()),
        partition: differs(&partitions, fields.partition.as_deref()),
        claims,
        words,
    }
}

fn differs(new: &str, old: Option<&str>) -> Option<String> {
    (old != Some(new)).then(|| new.to_owned())
}

/// "" clears a field of job_desc.
fn cleared(drop_it: bool, old: Option<&str>) -> Option<String> {
    (drop_it && old.is_some()).then(String::new)
}

/// Whether a reason is about the job, so that its AdminComment may say so; the
/// others are about sjp, and touch nothing.
fn about_the_job(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::NoTable
            | Reason::Stale
            | Reason::Disabled
            | Reason::Observe
            | Reason::Error
            | Reason::NoNativeModule
    )
}

/// Whether the disable file is there. What cannot be told counts as there.
fn disabled(config: &Config) -> Result<bool, Failure> {
    use nix::errno::Errno;
    match nix::unistd::access(&config.disable_file, nix::unistd::AccessFlags::F_OK) {
        Ok(()) => Ok(true),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(false),
        Err(errno) => Err(Failure::DisableFile {
            path: config.disable_file.display().to_string(),
            why: errno.desc().to_owned(),
        }),
    }
}

fn check_arguments(
    call: Call,
    job_desc: &Value,
    submit_uid: &Value,
    part_list: &Value,
) -> Result<u32, Failure> {
    let wrong = |argument, value: &Value, want| Failure::Argument {
        function: call.name(),
        argument,
        got: value.type_name(),
        want,
    };
    if !job_desc.is_table() {
        return Err(wrong("job_desc", job_desc, "a table"));
    }
    if !part_list.is_nil() && !part_list.is_table() {
        return Err(wrong("part_list", part_list, "a table or nil"));
    }
    let uid = match *submit_uid {
        Value::Integer(n) => u32::try_from(n).ok(),
        Value::Number(n) if (0.0..=f64::from(u32::MAX)).contains(&n) => Some(n as u32),
        _ => None,
    };
    uid.ok_or_else(|| wrong("submit_uid", submit_uid, "a number from 0 to 4294967295"))
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without text".to_owned())
}
