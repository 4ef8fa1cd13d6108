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
use crate::plan::{Order, Wants, claim, decide_on_table, pass_gates, settle};
use crate::shared::Shared;
use mlua::{Function, Lua, MultiValue, Value};
use parking_lot::Mutex;
use sjp_core::decision::Reason;
use sjp_core::mark;
use sjp_core::request::JobRequest;
use sjp_core::submission::Submission;
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
pub(crate) enum Stop {
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
        let outcome =
            guarded(self.shared, || self.decide(lua, call, job_desc, submit_uid, part_list));
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
        let fields = self.read_job(job_desc, opening.wants, submit_uid)?;
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
                self.note_skipped(job_desc, &job, reason, &fields)?;
                return Err(Stop::Left(reason));
            }
            other => other?,
        };
        claim(&mut shared, config, &plan.change.claims, now_ns);
        drop(shared);
        self.write_job(job_desc, &plan.change, &fields)?;
        Ok(plan.words)
    }

    fn read_job(&self, job_desc: &Value, wants: Wants, submit_uid: u32) -> Result<Fields, Failure> {
        // Whether it may submit for others: slurmctld runs as SlurmUser.
        let owner = submit_uid == 0 || submit_uid == nix::unistd::geteuid().as_raw();
        let values = self
            .read
            .call::<MultiValue>((job_desc, wants.account, wants.qos, owner, wants.host))
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
        job: &JobRequest<'_>,
        reason: Reason,
        fields: &Fields,
    ) -> Result<(), Failure> {
        match mark::skipped(job, reason, fields.admin_comment.as_deref()) {
            Some(comment) => self.write(job_desc, [None, None, None, Some(&comment)], fields),
            None => Ok(()),
        }
    }

    fn write_job(
        &self,
        job_desc: &Value,
        change: &Submission,
        fields: &Fields,
    ) -> Result<(), Failure> {
        let new = [
            change.partition.as_deref(),
            change.req_nodes.as_deref(),
            change.exc_nodes.as_deref(),
            Some(change.comment.as_str()),
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

/// Runs `body`; a panic in it becomes a failure, and what it may have left
/// half-done is thrown away.
fn guarded<T>(shared: &Mutex<Shared>, body: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        if let Some(mut shared) = shared.try_lock() {
            *shared = Shared::new();
        }
        Err(Stop::Failed(Failure::Panic(panic_text(payload.as_ref()))))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_answer_and_the_next_call_starts_afresh() {
        let shared = Mutex::new(Shared::new());
        shared.lock().permitted.push(true);
        for text in [Some("broken"), None] {
            let outcome = guarded::<()>(&shared, || {
                let _held = shared.lock();
                match text {
                    Some(text) => std::panic::panic_any(text.to_owned()),
                    None => std::panic::panic_any(7_u8),
                }
            });
            let Err(Stop::Failed(Failure::Panic(said))) = outcome else { panic!("not caught") };
            assert_eq!(said, text.unwrap_or("a panic without text"));
            assert!(shared.try_lock().is_some_and(|s| s.permitted.is_empty()));
        }
        assert!(guarded(&shared, || Ok(())).is_ok());
    }
}
