//! job_desc as it comes from Slurm, and the job that it asks for.
//!
//! `Fields` holds what read.lua returns, with "unset" settled; `request` makes
//! a `JobRequest` of it. Field names and meanings are those of job_submit/lua
//! from 22.05 on; a name that another version does not know reads as nil.
//! Left alone, since they change nothing about where a job fits: licenses,
//! burst_buffer, clusters, container, wckey, mcs_label, network, deadline,
//! and reboot, which only operators may ask for.

use crate::failure::Failure;
use crate::number::{Number, Width, number, time_limit};
use crate::tres;
use mlua::{MultiValue, Value};
use sjp_core::request::JobRequest;
use sjp_core::units::{Cpus, Limit, MemMb, MemPer};

/// What was read of a job.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    batch: bool,
    pub(crate) admin_comment: Option<String>,
    account: Option<String>,
    qos: Option<String>,
    user_id: Option<u32>,
    pub(crate) partition: Option<String>,
    pub(crate) req_nodes: Option<String>,
    pub(crate) exc_nodes: Option<String>,
    min_cpus: Option<u64>,
    num_tasks: Option<u64>,
    cpus_per_task: Option<u64>,
    pn_min_cpus: Option<u64>,
    ntasks_per_node: Option<u64>,
    min_nodes: Option<u64>,
    max_nodes: Option<u64>,
    mem: MemPer,
    time_limit: Limit,
    begin_time: Option<u64>,
    held: bool,
    exclusive: bool,
    array_inx: Option<String>,
    dependent: bool,
    het: bool,
    reservation: bool,
    constraint: bool,
    gres: bool,
    tres_per_task: Option<String>,
    /// The host it is submitted from, where the roster asks for it.
    alloc_node: Option<String>,
}

/// Takes the values that read.lua returned, one by one, by name.
struct Values {
    values: std::collections::vec_deque::IntoIter<Value>,
}

impl Values {
    fn next(&mut self) -> Value {
        self.values.next().unwrap_or(Value::Nil)
    }

    /// A string; empty is as good as none.
    fn text(&mut self, field: &'static str) -> Result<Option<String>, Failure> {
        match self.next() {
            Value::Nil => Ok(None),
            Value::String(s) => {
                let text = s.to_str().map_err(|_| Failure::NotUtf8 { field })?;
                Ok((!text.is_empty()).then(|| text.to_owned()))
            }
            other => Err(Failure::Field { field, got: other.type_name(), want: "a string or nil" }),
        }
    }

    /// Whether a string is there; its bytes do not matter.
    fn given(&mut self, field: &'static str) -> Result<bool, Failure> {
        match self.next() {
            Value::Nil => Ok(false),
            Value::String(s) => Ok(!s.as_bytes().is_empty()),
            other => Err(Failure::Field { field, got: other.type_name(), want: "a string or nil" }),
        }
    }

    fn number(&mut self, field: &'static str, width: Width) -> Result<Number, Failure> {
        number(&self.next(), width).map_err(|got| wrong_number(field, got))
    }
}

fn wrong_number(field: &'static str, got: &'static str) -> Failure {
    Failure::Field { field, got, want: "a number or nil" }
}

impl Fields {
    /// Sorts the values that read.lua returned.
    ///
    /// # Errors
    /// A value of a type that Slurm never hands over, or text that is not
    /// UTF-8.
    pub(crate) fn take(values: MultiValue) -> Result<Self, Failure> {
        use Width::{W16, W32, W64};
        let mut v = Values { values: values.into_iter() };
        let batch = matches!(v.next(), Value::Boolean(true));
        let mut f = Self { batch, admin_comment: v.text("admin_comment")?, ..Self::default() };
        if !batch {
            f.het = v.number("het_job_offset", W32)?.get().is_some();
            return Ok(f);
        }
        f.account = v.text("account")?;
        f.qos = v.text("qos")?;
        f.user_id = v.number("user_id", W32)?.get().and_then(|n| u32::try_from(n).ok());
        f.partition = v.text("partition")?;
        f.req_nodes = v.text("req_nodes")?;
        f.exc_nodes = v.text("exc_nodes")?;
        f.min_cpus = v.number("min_cpus", W32)?.positive();
        f.num_tasks = v.number("num_tasks", W32)?.positive();
        f.cpus_per_task = v.number("cpus_per_task", W16)?.positive();
        f.pn_min_cpus = v.number("pn_min_cpus", W16)?.positive();
        f.ntasks_per_node = v.number("ntasks_per_node", W16)?.positive();
        f.min_nodes = v.number("min_nodes", W32)?.positive();
        f.max_nodes = v.number("max_nodes", W32)?.positive();
        let per_cpu = v.number("min_mem_per_cpu", W64)?;
        let per_node = v.number("min_mem_per_node", W64)?;
        f.mem = match (per_cpu, per_node) {
            // Nothing per CPU is no request that Slurm could hold a job to:
            // the same as --mem=0.
            (Number::Is(0), _) | (Number::Unset, Number::Is(0)) => MemPer::Node(MemMb(0)),
            (Number::Is(mb), _) => MemPer::Cpu(MemMb(mb)),
            (Number::Unset, Number::Is(mb)) => MemPer::Node(MemMb(mb)),
            (Number::Unset, Number::Unset) => MemPer::Unset,
        };
        f.time_limit = time_limit(&v.next()).map_err(|got| wrong_number("time_limit", got))?;
        f.begin_time = v.number("begin_time", W64)?.positive();
        f.held = v.number("priority", W32)?.get() == Some(0);
        // 0 is --exclusive, 1 --oversubscribe, from 2 on --exclusive=user,
        // =mcs and =topo.
        f.exclusive = v.number("shared", W16)?.get().is_some_and(|n| n != 1);
        f.array_inx = v.text("array_inx")?;
        f.dependent = v.given("dependency")?;
        f.het = v.number("het_job_offset", W32)?.get().is_some();
        f.reservation = v.given("reservation")?;
        f.constraint = v.given("features")?;
        f.constraint |= v.given("prefer")?;
        for field in ["tres_per_node", "tres_per_job", "tres_per_socket"] {
            f.gres |= v.text(field)?.is_some_and(|s| tres::asks_gres(&s));
        }
        f.tres_per_task = v.text("tres_per_task")?;
        f.gres |= f.tres_per_task.as_deref().is_some_and(tres::asks_gres);
        // Tasks for each GPU: a job for GPUs, even where their number is left
        // to slurmctld.
        f.gres |= v.number("ntasks_per_tres", W16)?.positive().is_some();
        for (field, width) in [
            ("contiguous", W16),
            ("req_switch", W32),
            ("cores_per_socket", W16),
            ("sockets_per_node", W16),
            ("threads_per_core", W16),
            ("ntasks_per_core", W16),
            ("ntasks_per_socket", W16),
            ("pn_min_tmp_disk", W32),
        ] {
            f.constraint |= v.number(field, width)?.positive().is_some();
        }
        f.alloc_node = v.text("alloc_node")?;
        Ok(f)
    }

    /// The job as placement sees it. `submit_uid` is who submits, for a job
    /// that names no owner; `now` is the Unix second.
    pub(crate) fn request(&self, submit_uid: u32, now: u64) -> JobRequest<'_> {
        let min_nodes = self.min_nodes.unwrap_or(1);
        let tasks = self
            .num_tasks
            .unwrap_or_else(|| self.ntasks_per_node.unwrap_or(1).saturating_mul(min_nodes));
        let per_task = self
            .cpus_per_task
            .or_else(|| self.tres_per_task.as_deref().and_then(tres::cpus_in))
            .unwrap_or(1);
        // sbatch sets min_cpus to tasks x CPUs per task (to the nodes with
        // --overcommit), and pn_min_cpus to the larger of --mincpus and the
        // CPUs per task.
        let cpus = tasks
            .saturating_mul(per_task)
            .max(self.min_cpus.unwrap_or(1))
            .max(self.pn_min_cpus.unwrap_or(1));
        // 22.05 leaves min_nodes unset for -n 4 --ntasks-per-node=2.
        let spread = self.ntasks_per_node.map_or(1, |per_node| tasks.div_ceil(per_node));
        JobRequest {
            uid: self.user_id.unwrap_or(submit_uid),
            account: self.account.as_deref(),
            qos: self.qos.as_deref(),
            alloc_node: self.alloc_node.as_deref(),
            partition: self.partition.as_deref(),
            home: None,
            nodelist: self.req_nodes.as_deref(),
            exclude: self.exc_nodes.as_deref(),
            cpus: Cpus(clamp(cpus)),
            tasks: clamp(tasks),
            min_nodes: clamp(min_nodes.max(spread)),
            max_nodes: self.max_nodes.map(clamp),
            mem: self.mem,
            submitted: false,
            time_limit: self.time_limit,
            batch: self.batch,
            array: self.array_inx.is_some(),
            array_tasks: self.array_inx.as_deref().map_or(1, tres::array_tasks),
            het: self.het,
            exclusive: self.exclusive,
            held: self.held,
            begins_later: self.begin_time.is_some_and(|at| at > now),
            dependent: self.dependent,
            gres: self.gres,
            reservation: self.reservation,
            constraint: self.constraint,
        }
    }
}

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
