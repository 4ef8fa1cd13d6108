//! The cluster as Slurm describes it: the records that the readers make of
//! Slurm's output, and nothing computed from them. Text is kept as printed;
//! units are MB, CPUs, minutes for limits and Unix seconds for times.

use crate::units::{Cpus, Limit, MemMb, MemPer};
use serde::{Deserialize, Serialize};

/// A node's GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpus {
    /// From `Gres`.
    pub total: u32,
    /// From `GresUsed` or `AllocTRES`; `None` where the output does not tell.
    pub used: Option<u32>,
}

/// One node (`scontrol show node`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// `NodeName`.
    pub name: String,
    /// Base state and flags, upper case, in the order printed, suffix signs
    /// written out (`*` is `NOT_RESPONDING`, `~` `POWERED_DOWN`, ...).
    pub state: Vec<String>,
    /// Whether a new job may be placed there now, by state alone.
    pub usable: bool,
    /// `CPUTot`.
    pub cpus: Cpus,
    /// `CPUEfctv` (without specialised cores), or `CPUTot` where absent.
    pub cpus_effective: Cpus,
    /// `CPUAlloc`.
    pub cpus_alloc: Cpus,
    /// `RealMemory`; `None` where nobody set it (`RealMemory=1`).
    pub mem: Option<MemMb>,
    /// `MemSpecLimit`.
    pub mem_spec: MemMb,
    /// `AllocMem`.
    pub mem_alloc: MemMb,
    /// CPUs of a core: `ThreadsPerCore`, or 1 where the node has no more CPUs than
    /// cores; at least 1.
    pub threads_per_core: u32,
    /// `Weight`.
    pub weight: u32,
    /// GPUs by `Gres`.
    pub gpus: Gpus,
    /// `Partitions`, in the order printed.
    pub partitions: Vec<String>,
    /// `ActiveFeatures`.
    pub features: Vec<String>,
    /// `Reason`, on one line; text that admins or users of `scontrol` wrote.
    pub reason: Option<String>,
}

impl Node {
    /// CPUs not allocated, never negative.
    #[must_use]
    pub fn cpus_free(&self) -> Cpus {
        self.cpus_effective.less(self.cpus_alloc)
    }

    /// Memory not allocated, never negative; `None` where it is not managed.
    #[must_use]
    pub fn mem_free(&self) -> Option<MemMb> {
        self.mem.map(|m| m.less(self.mem_spec).less(self.mem_alloc))
    }
}

/// A list of names that a partition lets in or keeps out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Names {
    /// `ALL` (or the key is absent).
    #[default]
    All,
    /// Just these.
    Listed(Vec<String>),
}

/// One partition (`scontrol show partition`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// `PartitionName`.
    pub name: String,
    /// `State`: `UP`, `DOWN`, `DRAIN` or `INACTIVE`.
    pub state: String,
    /// `Nodes`, expanded.
    pub nodes: Vec<String>,
    /// `TotalNodes`.
    pub node_count: u32,
    /// `PriorityTier`.
    pub tier: u32,
    /// `Default=YES`.
    pub default: bool,
    /// `MaxTime` in minutes.
    pub max_time: Limit,
    /// `DefaultTime` in minutes.
    pub default_time: Limit,
    /// `MaxNodes`.
    pub max_nodes: Limit,
    /// `MinNodes`.
    pub min_nodes: u32,
    /// `MaxCPUsPerNode`.
    pub max_cpus_per_node: Limit,
    /// `MaxMemPerCPU` or `MaxMemPerNode`.
    pub max_mem: MemPer,
    /// `DefMemPerCPU` or `DefMemPerNode`.
    pub def_mem: MemPer,
    /// `AllowAccounts`.
    pub allow_accounts: Names,
    /// `DenyAccounts`; empty where absent.
    pub deny_accounts: Vec<String>,
    /// `AllowQos`.
    pub allow_qos: Names,
    /// `DenyQos`; empty where absent.
    pub deny_qos: Vec<String>,
    /// `AllowGroups`.
    pub allow_groups: Names,
    /// `AllocNodes`.
    pub alloc_nodes: Names,
    /// `QoS` of the partition itself.
    pub qos: Option<String>,
    /// `RootOnly=YES`.
    pub root_only: bool,
    /// `ReqResv=YES`.
    pub req_resv: bool,
    /// `Hidden=YES`.
    pub hidden: bool,
    /// `ExclusiveUser=YES` (26.05: `Exclusive=USER`).
    pub exclusive_user: bool,
    /// `OverSubscribe`, as printed (`NO`, `EXCLUSIVE`, `FORCE:1`, ...).
    pub over_subscribe: String,
    /// `LLN=YES`.
    pub lln: bool,
}

/// What a reservation keeps of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedCores {
    /// The node.
    pub node: String,
    /// How many of its cores.
    pub cores: u32,
}

/// One reservation (`scontrol show reservation`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// `ReservationName`.
    pub name: String,
    /// `Nodes`, expanded.
    pub nodes: Vec<String>,
    /// Whether the nodes are reserved whole; else see `cores`.
    pub whole_nodes: bool,
    /// Cores by node, of a reservation of parts of nodes.
    pub cores: Vec<ReservedCores>,
    /// `StartTime`, Unix seconds.
    pub start: i64,
    /// `EndTime`, Unix seconds.
    pub end: i64,
    /// `Flags`.
    pub flags: Vec<String>,
    /// `State=ACTIVE`.
    pub active: bool,
}

/// A job's state, as far as placement cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JobState {
    /// Waits.
    #[default]
    Pending,
    /// Has nodes: running, configuring, suspended, stopped, completing...
    Active,
    /// Over, whatever its end was.
    Ended,
}

/// One job of the queue (`squeue` columns that hold no users' text).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The raw job id (for an array record that still waits: the array's id).
    pub id: u32,
    /// `ArrayJobID`, where the job belongs to an array.
    pub array_id: Option<u32>,
    /// How many array tasks this record stands for (1 if no array).
    pub array_tasks: u32,
    /// Which tasks those are, as `scontrol` takes them in `ID_[...]`; `None` if no
    /// array.
    pub task_ids: Option<String>,
    /// Owner.
    pub uid: u32,
    /// State, condensed.
    pub state: JobState,
    /// State as Slurm words it (`PENDING`, `CONFIGURING`, ...).
    pub state_word: String,
    /// Reason as Slurm words it.
    pub reason: String,
    /// Partitions asked for (or the one it runs in).
    pub partitions: Vec<String>,
    /// Required nodes, expanded.
    pub req_nodes: Vec<String>,
    /// Nodes that backfill has planned, expanded.
    pub sched_nodes: Vec<String>,
    /// Allocated nodes, expanded.
    pub nodes: Vec<String>,
    /// Submitted, Unix seconds.
    pub submit: i64,
    /// Eligible since, Unix seconds; `None` where not yet known.
    pub eligible: Option<i64>,
    /// Started, or expected to start, Unix seconds.
    pub start: Option<i64>,
    /// Ends at the latest (running jobs), Unix seconds.
    pub end: Option<i64>,
    /// Time limit in minutes.
    pub time_limit: Limit,
    /// CPUs asked for or allocated.
    pub cpus: Cpus,
    /// Memory asked for (`Node(0)`: all of the node's).
    pub mem: MemPer,
    /// Nodes asked for or allocated.
    pub node_count: u32,
    /// Tasks asked for, at least 1 where they were read.
    pub tasks: u32,
    /// Whether it has a batch script (else salloc or srun).
    pub batch: bool,
    /// Account. Without accounting, any text of the user's.
    pub account: Option<String>,
    /// QOS.
    pub qos: String,
    /// Priority; 0 is held.
    pub priority: u32,
    /// Whether the user asked for whole nodes, as far as it is known.
    pub exclusive: bool,
    /// Whether it asks for GPUs or other generic resources.
    pub gres: bool,
    /// Reservation the job asks for.
    pub reservation: Option<String>,
    /// Whether a dependency is still unmet.
    pub dependent: bool,
    /// Component of a heterogeneous job.
    pub het: bool,
    /// `AdminComment`; `None` where it was not read. Only from output framed so
    /// that no user's text can imitate it.
    pub admin_comment: Option<String>,
}

impl Job {
    /// Whether nothing but room and its turn keeps the job from starting: it is not
    /// held, depends on no other, and its begin time is not ahead.
    #[must_use]
    pub fn could_start(&self) -> bool {
        self.priority != 0
            && !self.dependent
            && !matches!(self.reason.as_str(), "BeginTime" | "JobHeldUser" | "JobHeldAdmin")
    }
}

/// What only JSON tells safely of a job: its marks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkedJob {
    /// The raw job id.
    pub id: u32,
    /// States as Slurm words them.
    pub state: Vec<String>,
    /// `AdminComment`.
    pub admin_comment: String,
    /// Required nodes as printed (a hostlist).
    pub required_nodes: String,
    /// Partitions.
    pub partitions: Vec<String>,
    /// Submitted, Unix seconds.
    pub submit: i64,
}

/// The parts of `scontrol show config` that placement needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmConfig {
    /// `ClusterName`.
    pub cluster: String,
    /// `SLURM_VERSION`, as printed.
    pub version: String,
    /// `SelectType` (`select/cons_tres`, ...).
    pub select_type: String,
    /// `SelectTypeParameters`, split.
    pub select_params: Vec<String>,
    /// `DefMemPerCPU` or `DefMemPerNode` of the cluster.
    pub def_mem: MemPer,
    /// `MaxMemPerCPU` or `MaxMemPerNode` of the cluster.
    pub max_mem: MemPer,
    /// `EnforcePartLimits`.
    pub enforce_part_limits: String,
    /// `AccountingStorageEnforce`, split.
    pub accounting_enforce: Vec<String>,
    /// `SlurmUser` as printed, for example `slurm(64030)`.
    pub slurm_user: String,
    /// `SlurmctldHost[n]` names, first is the primary.
    pub controllers: Vec<String>,
    /// `JobSubmitPlugins`, split.
    pub job_submit_plugins: Vec<String>,
    /// Every key and value as printed, for what else may be asked.
    pub all: Vec<(String, String)>,
}

impl SlurmConfig {
    /// Whether memory is a consumable resource (else no node may be refused
    /// for memory). `CR_*_Memory` parameters, and `select/linear` with
    /// `CR_Memory`.
    #[must_use]
    pub fn memory_consumable(&self) -> bool {
        self.select_params.iter().any(|p| p.to_ascii_uppercase().contains("MEMORY"))
    }

    /// Whether memory per CPU counts for every CPU of the cores that a job gets
    /// (`CR_Core*`, `CR_Socket*`), not only for those it asked for. Jobs get whole cores
    /// with any of them.
    #[must_use]
    pub fn whole_cores(&self) -> bool {
        self.select_params.iter().any(|p| {
            let p = p.to_ascii_uppercase();
            p.starts_with("CR_CORE") || p.starts_with("CR_SOCKET")
        })
    }

    /// Whether nodes are shared at all.
    #[must_use]
    pub fn nodes_shared(&self) -> bool {
        self.select_type != "select/linear"
    }
}

/// The per-user room under one QOS's CPU caps (`scontrol show assoc_mgr flags=qos`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosCaps {
    /// QOS name.
    pub name: String,
    /// `MaxTRESPU` cpu.
    pub max_cpus_per_user: Option<u32>,
    /// `MaxTRESPA` cpu.
    pub max_cpus_per_account: Option<u32>,
    /// CPUs in use by uid.
    pub used_by_user: Vec<(u32, u32)>,
    /// CPUs in use by account.
    pub used_by_account: Vec<(String, u32)>,
    /// Whether it can refuse a submission by itself: `DenyOnLimit`, or a
    /// submit limit (`MaxSubmitJobs*`, `GrpSubmitJobs`).
    pub can_reject: bool,
}
