//! What a placement says: the outcome, and the reason where there is none.

use crate::units::{Cpus, MemMb};
use std::fmt;

/// Why a job keeps the fields it came with. The words are part of the Lua API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No node that it may use has room now.
    NoRoom,
    /// There is no table to read (sjpd never ran, or another user's).
    NoTable,
    /// The node data is older than `[pin] max_age`.
    Stale,
    /// The disable file is there.
    Disabled,
    /// `[general] mode = "observe"`.
    Observe,
    /// salloc or srun.
    NotBatch,
    /// Asks for GPUs or other generic resources.
    Gpu,
    /// Asks for a reservation.
    Reservation,
    /// Asks for features, or for a shape of node that sjp does not judge.
    Constraint,
    /// Needs more than one node.
    MultiNode,
    /// `--mem=0`: the whole node's memory.
    NoMemory,
    /// A component of a heterogeneous job.
    HetJob,
    /// No partition that it may use can hold it.
    NoPartition,
    /// None of the nodes it names can be used.
    NoNodeInList,
    /// Something went wrong; slurmctld's log has it.
    Error,
    /// No native module for this Lua.
    NoNativeModule,
}

impl Reason {
    /// The words that `place()` returns.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoRoom => "no room",
            Self::NoTable => "no table",
            Self::Stale => "stale",
            Self::Disabled => "disabled",
            Self::Observe => "observe",
            Self::NotBatch => "not batch",
            Self::Gpu => "gpu",
            Self::Reservation => "reservation",
            Self::Constraint => "constraint",
            Self::MultiNode => "multi-node",
            Self::NoMemory => "no memory",
            Self::HetJob => "het job",
            Self::NoPartition => "no partition",
            Self::NoNodeInList => "no usable node in --nodelist",
            Self::Error => "error",
            Self::NoNativeModule => "no native module",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Why a placed job got partitions, but no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotPinned {
    /// `[pin] enabled = false`, or mode advise.
    Off,
    /// `--array`.
    Array,
    /// Several tasks without `-N 1`.
    Tasks,
    /// `--begin` in the future.
    Begin,
    /// A dependency.
    Dependency,
    /// Held.
    Held,
    /// `--exclusive`.
    Exclusive,
    /// The user is at the CPU cap of the QOS.
    QosCap,
    /// No memory request and no default anywhere.
    MemoryUnknown,
    /// The user named nodes: they stay as named.
    OwnNodes,
    /// Only one node has room.
    OneNode,
    /// No node is better than the rest by the margins of `[pin]`.
    NoGain,
    /// No node has room now (`always_place`, or opened).
    NoRoom,
}

impl NotPinned {
    /// A few words for logs and `sjp place`.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Off => "pins are off",
            Self::Array => "array",
            Self::Tasks => "several tasks without -N 1",
            Self::Begin => "begins later",
            Self::Dependency => "dependency",
            Self::Held => "held",
            Self::Exclusive => "exclusive",
            Self::QosCap => "user at the CPU cap of the QOS",
            Self::MemoryUnknown => "memory unknown",
            Self::OwnNodes => "own nodelist",
            Self::OneNode => "one node has room",
            Self::NoGain => "no node is better by the margins",
            Self::NoRoom => "no node has room now",
        }
    }
}

impl fmt::Display for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Which rule chose the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// Nodes have room now: partitions by loss.
    Room,
    /// No room; by shape, as if the cluster were empty (`always_place`).
    Shape,
    /// No room; every partition that can hold the job (`no_room = "open"`, `sjp.open`).
    Open,
}

/// A free shape: what a node has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// CPUs.
    pub cpus: Cpus,
    /// Memory; `None` where it is not managed.
    pub mem: Option<MemMb>,
}

/// Room taken on one node by a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeClaim {
    /// Node index.
    pub node: u32,
    /// CPUs in all there.
    pub cpus: u32,
    /// MB in all there (0 where unknown or not managed).
    pub mem: u32,
}

/// Where a job goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Partitions it gets now, as indices into the roster, in the order to
    /// write them (highest tier first, then name).
    pub partitions: Vec<u16>,
    /// All admitted partitions; what it gets back when a pin is released.
    pub admitted: Vec<u16>,
    /// The node it is pinned to, as an index into the roster.
    pub pin: Option<u32>,
    /// Why it is not pinned, where it is not.
    pub not_pinned: Option<NotPinned>,
    /// What to claim, node by node: the pin, or the nodes that Slurm would
    /// most likely use (several for an array). Empty where no node has room.
    pub claims: Vec<NodeClaim>,
    /// What the first of these nodes has free before the job.
    pub room: Room,
    /// CPUs that one job (one array task) takes there, rounded to cores.
    pub cpus: Cpus,
    /// Memory that it takes; `None` where it is unknown or not managed.
    pub mem: Option<MemMb>,
    /// Loss on the first of these nodes, in placeable CPUs.
    pub loss: f64,
    /// Minutes it may run, by its limit or the partition's; `None`: no end known.
    pub minutes: Option<u32>,
    /// What decided.
    pub basis: Basis,
}
