//! A job as it asks to be placed: what both job_desc (at submission) and the
//! queue (later) can tell of it, in one shape.

use crate::cluster::{Job, JobState};
use crate::units::{Cpus, Limit, MemPer};

/// A job that wants a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRequest<'a> {
    /// Owner of the job.
    pub uid: u32,
    /// Account, or the user's default account.
    pub account: Option<&'a str>,
    /// QOS, or the user's default QOS.
    pub qos: Option<&'a str>,
    /// The host it is submitted from; `None`: not known.
    pub alloc_node: Option<&'a str>,
    /// Partition list as the user (or the site's rules) wrote it.
    pub partition: Option<&'a str>,
    /// The partitions that it is in without sjp though it named none: the site's rules
    /// put it there. `None`: the default one.
    pub home: Option<&'a str>,
    /// `--nodelist` as written.
    pub nodelist: Option<&'a str>,
    /// `--exclude` as written.
    pub exclude: Option<&'a str>,
    /// CPUs in all, as Slurm will count them before rounding to cores.
    pub cpus: Cpus,
    /// Tasks, at least 1.
    pub tasks: u32,
    /// Least nodes, worked out from the tasks as well; at least 1.
    pub min_nodes: u32,
    /// Most nodes (`-N 1` gives 1).
    pub max_nodes: Option<u32>,
    /// Memory asked for. `Node(0)` (`--mem=0`) is all of the node's memory.
    pub mem: MemPer,
    /// Slurm has taken it: memory that it left to its partition is settled.
    pub submitted: bool,
    /// Time limit in minutes.
    pub time_limit: Limit,
    /// Has a batch script.
    pub batch: bool,
    /// `--array`.
    pub array: bool,
    /// Tasks of the array (1 otherwise).
    pub array_tasks: u32,
    /// Component of a heterogeneous job.
    pub het: bool,
    /// `--exclusive` in any form.
    pub exclusive: bool,
    /// `-H`, or priority 0.
    pub held: bool,
    /// `--begin` in the future.
    pub begins_later: bool,
    /// `--dependency`.
    pub dependent: bool,
    /// GPUs or other generic resources.
    pub gres: bool,
    /// `--reservation`.
    pub reservation: bool,
    /// `--constraint` (features), or another shape sjp does not judge
    /// (`--contiguous`, `--switches`, cores or threads per socket, ...).
    pub constraint: bool,
}

impl<'a> JobRequest<'a> {
    /// A job as it must have asked, by what the queue tells of it. `nodelist` and
    /// `partition`: what it named; empty and `None` where it named nothing.
    #[must_use]
    pub fn queued(job: &'a Job, nodelist: &'a str, partition: Option<&'a str>) -> Self {
        let tasks = job.tasks.max(1);
        Self {
            uid: job.uid,
            account: job.account.as_deref(),
            qos: Some(job.qos.as_str()).filter(|q| !q.is_empty()),
            alloc_node: None,
            partition,
            home: None,
            nodelist: Some(nodelist).filter(|l| !l.is_empty()),
            exclude: None,
            cpus: job.cpus,
            tasks,
            min_nodes: job.node_count.max(1),
            max_nodes: (tasks == 1).then_some(1),
            mem: job.mem,
            submitted: true,
            time_limit: job.time_limit,
            batch: job.batch,
            array: job.array_id.is_some(),
            array_tasks: job.array_tasks.max(1),
            het: job.het,
            exclusive: job.exclusive,
            held: job.priority == 0 && job.state == JobState::Pending,
            begins_later: job.reason == "BeginTime",
            dependent: job.dependent,
            gres: job.gres,
            reservation: job.reservation.is_some(),
            constraint: false,
        }
    }
}
