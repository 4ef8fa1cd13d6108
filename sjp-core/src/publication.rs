//! What sjpd publishes and the Lua module decides on: the cluster boiled down
//! to what a placement needs. sjp-table carries exactly this; the daemon, the
//! commands and the simulator use it directly.
//!
//! Two parts. The `Roster` changes rarely (names, partitions, rules, settings)
//! and is decoded once a change. The `Rooms` change every second and are read
//! where they stand.

use crate::config::Policy;
use crate::decision::{Basis, NotPinned, Placement};
use crate::units::{Cpus, Limit, MemMb, MemPer};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// `Rooms::group_of` of a node that is in no group (not usable, excluded).
pub const NO_GROUP: u32 = u32::MAX;
/// Free memory of a group where memory is not managed.
pub const MEM_UNMANAGED: u32 = u32::MAX;
/// `Group::taken_at` where nothing is ahead.
pub const NEVER: u32 = u32::MAX;

/// Names in one string, sorted by bytes: cheap to decode, binary searched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameTable {
    text: String,
    ends: Vec<u32>,
}

impl NameTable {
    /// Builds the table; names are kept in the order given.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut table = Self::default();
        for name in names {
            table.text.push_str(name);
            table.ends.push(u32::try_from(table.text.len()).unwrap_or(u32::MAX));
        }
        table
    }

    /// How many names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name at `i`; `None` past the end or where the table is damaged.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { *self.ends.get(i - 1)? as usize };
        self.text.get(start..end)
    }

    /// Where `name` stands in a sorted table.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        let (mut lo, mut hi) = (0, self.len());
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            match self.get(mid)?.as_bytes().cmp(name.as_bytes()) {
                std::cmp::Ordering::Less => lo = mid + 1,
                std::cmp::Ordering::Greater => hi = mid,
                std::cmp::Ordering::Equal => return Some(mid),
            }
        }
        None
    }
}

/// Names let in, or kept out, by a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Admit {
    /// Everyone.
    #[default]
    All,
    /// Just these.
    Only(Vec<String>),
    /// All but these.
    Except(Vec<String>),
}

impl Admit {
    /// Whether `name` is let in. An unknown name is let in only by `All`
    /// and `Except`.
    #[must_use]
    pub fn admits(&self, name: Option<&str>) -> bool {
        match (self, name) {
            (Self::All, _) => true,
            (Self::Only(list), Some(n)) => list.iter().any(|l| l.eq_ignore_ascii_case(n)),
            (Self::Except(list), Some(n)) => !list.iter().any(|l| l.eq_ignore_ascii_case(n)),
            (Self::Only(_) | Self::Except(_), None) => false,
        }
    }
}

/// One partition's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRule {
    /// Name.
    pub name: String,
    /// PriorityTier.
    pub tier: u32,
    /// UP, and not excluded by `[topology]` or by what it is (RootOnly,
    /// ReqResv, whole-node or whole-user partitions).
    pub open: bool,
    /// `Default=YES`: what Slurm takes when the user names none.
    pub default: bool,
    /// Why it is not open, for people; empty where it is.
    pub closed_because: String,
    /// MaxTime, minutes.
    pub max_time: Limit,
    /// DefaultTime, minutes.
    pub default_time: Limit,
    /// MaxNodes.
    pub max_nodes: Limit,
    /// MinNodes.
    pub min_nodes: u32,
    /// MaxCPUsPerNode.
    pub max_cpus_per_node: Limit,
    /// MaxMemPerCPU/Node, the cluster's where the partition has none.
    pub max_mem: MemPer,
    /// DefMemPerCPU/Node, the cluster's where the partition has none.
    pub def_mem: MemPer,
    /// By account.
    pub accounts: Admit,
    /// By QOS.
    pub qos: Admit,
    /// Memory per CPU counts for the CPUs asked for, not for those of whole cores
    /// (`CR_CPU_Memory`; the same for every partition).
    pub mem_as_asked: bool,
    /// By submit host (AllocNodes), which part_list does not look at.
    pub hosts: Admit,
    /// Only some groups may use it: without a part_list nobody is known to be
    /// let in.
    pub restricted: bool,
    /// Its own QOS could refuse a submission: only where the user named it.
    pub only_if_named: bool,
}

impl PartitionRule {
    /// Why a partition in this state is not open.
    #[must_use]
    pub fn because_of_state(state: &str) -> String {
        format!("state {state}")
    }

    /// Whether no job can be put into it now, by its state (DRAIN, INACTIVE): a list
    /// that begins with such a partition is refused, also one that is given back
    /// (job_mgr.c looks at the first only).
    #[must_use]
    pub fn takes_no_jobs(&self) -> bool {
        !self.open
            && ["DRAIN", "INACTIVE"].map(Self::because_of_state).contains(&self.closed_because)
    }
}

/// A kind of node: its configured size and the partitions it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kind {
    /// CPUs that jobs can use.
    pub cpus: Cpus,
    /// Memory that jobs can use; `None` where it is not managed.
    pub mem: Option<MemMb>,
    /// RealMemory: what no job on it may exceed, managed or not; `None` where nobody set
    /// it.
    pub size: Option<MemMb>,
    /// CPUs come in steps of this (threads per core where cores are allocated).
    pub step: u32,
    /// Index into `Roster::psets`.
    pub pset: u16,
}

/// A user who may use some partitions only (associations by partition).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserPartitions {
    /// uid.
    pub uid: u32,
    /// Account; `None`: any.
    pub account: Option<String>,
    /// Partition indices.
    pub partitions: Vec<u16>,
}

/// What changes rarely.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Roster {
    /// Settings.
    pub policy: Policy,
    /// Node names, sorted by bytes: a node's index is its rank by name.
    pub nodes: NameTable,
    /// Partitions, sorted by name.
    pub partitions: Vec<PartitionRule>,
    /// Sets of partitions that some node is in; each sorted.
    pub psets: Vec<Vec<u16>>,
    /// Kinds of node that exist, usable or not.
    pub kinds: Vec<Kind>,
    /// `kind_of[node]` is an index into `kinds`.
    pub kind_of: Vec<u16>,
    /// Users bound to some partitions.
    pub bound_users: Vec<UserPartitions>,
    /// QOS names, for `QosRoom::qos`; sorted.
    pub qos: Vec<String>,
}

/// Nodes with the same free shape in the same partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    /// Free CPUs.
    pub cpus: u32,
    /// Free MB, or `MEM_UNMANAGED`.
    pub mem: u32,
    /// Index into `Roster::psets`.
    pub pset: u16,
    /// CPU step.
    pub step: u16,
    /// phi of the free shape.
    pub phi: f64,
    /// Wall-clock second (Unix, 32 bits) from which part of it is taken by a
    /// reservation or by Slurm's own plan, or `NEVER`.
    pub taken_at: u32,
    /// CPUs left from then on.
    pub cpus_then: u32,
    /// MB left from then on, or `MEM_UNMANAGED`.
    pub mem_then: u32,
    /// Node weight.
    pub weight: u32,
    /// First member in `Rooms::members`.
    pub first: u32,
    /// How many members.
    pub count: u32,
}

impl Group {
    /// Whether it has room for anything, now and for as long as anybody knows: such
    /// groups come first.
    #[must_use]
    pub fn in_order(&self) -> bool {
        self.cpus > 0 && self.mem != MEM_UNMANAGED && self.taken_at == NEVER
    }

    /// The order of groups: by kind ([`Group::in_order`], else with room, else full),
    /// then by partition set and step, then by free memory per CPU.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        let kind = |g: &Self| (!g.in_order(), g.cpus == 0);
        let class = |g: &Self| (g.pset, g.step);
        let cross = |a: &Self, b: &Self| u64::from(a.mem) * u64::from(b.cpus);
        kind(self)
            .cmp(&kind(other))
            .then_with(|| class(self).cmp(&class(other)))
            .then_with(|| cross(self, other).cmp(&cross(other, self)))
            .then_with(|| self.cpus.cmp(&other.cpus))
    }
}

/// CPUs that a user still has under a QOS's cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct QosRoom {
    /// uid; `u32::MAX`: what a user without any use has.
    pub uid: u32,
    /// Index into `Roster::qos`.
    pub qos: u32,
    /// CPUs left.
    pub cpus: u32,
}

/// What changes every second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rooms {
    /// Groups. First those that stand in order ([`Group::order`]), so that one with a
    /// given memory per CPU is found without a look at all; then those of other kinds.
    pub groups: Vec<Group>,
    /// Node indices, group by group, ascending within a group.
    pub members: Vec<u32>,
    /// `group_of[node]`, or `NO_GROUP`.
    pub group_of: Vec<u32>,
    /// Room under QOS caps, sorted by (uid, qos); only capped QOS appear.
    pub qos_rooms: Vec<QosRoom>,
}

/// How the rooms are read where they stand: by `Rooms`, and by the table's
/// reader. Every method answers `None` (or an empty iterator's end) past the
/// bounds; whatever stands in the table, callers never index beyond.
pub trait RoomView {
    /// How many groups.
    fn group_count(&self) -> usize;
    /// Group `i`.
    fn group(&self, i: usize) -> Option<Group>;
    /// Free CPUs, free MB and partition set of group `i`: enough to pass over
    /// most groups without reading the rest.
    fn shape(&self, i: usize) -> Option<(u32, u32, u16)> {
        self.group(i).map(|g| (g.cpus, g.mem, g.pset))
    }
    /// Partition set and step of group `i`.
    fn class(&self, i: usize) -> Option<(u16, u16)> {
        self.group(i).map(|g| (g.pset, g.step))
    }
    /// How many groups stand in order, and how many have any CPU free: both from the
    /// first on.
    fn ends(&self) -> (usize, usize) {
        let count = self.group_count();
        let roomy = first_not(0, count, |i| self.free(i).is_some_and(|(cpus, _)| cpus > 0));
        let ordered = |i: usize| self.group(i).is_some_and(|g| g.in_order());
        (first_not(0, roomy, ordered), roomy)
    }
    /// Free CPUs and free MB of group `i`.
    fn free(&self, i: usize) -> Option<(u32, u32)> {
        self.group(i).map(|g| (g.cpus, g.mem))
    }
    /// phi of group `i`, and how many members it has.
    fn worth(&self, i: usize) -> Option<(f64, u32)> {
        self.group(i).map(|g| (g.phi, g.count))
    }
    /// Node weight of group `i`.
    fn weight(&self, i: usize) -> Option<u32> {
        self.group(i).map(|g| g.weight)
    }
    /// Member `k` of `members`.
    fn member(&self, k: usize) -> Option<u32>;
    /// The group of a node.
    fn group_of(&self, node: u32) -> Option<u32>;
    /// CPUs left to this user under this QOS; `None`: no cap.
    fn qos_room(&self, uid: u32, qos: u32) -> Option<u32>;
}

/// The first place from `low` to `high` where `holds` does not, given that it holds up
/// to there and nowhere behind; any place where that is not so.
pub(crate) fn first_not(mut low: usize, mut high: usize, holds: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let half = low + (high - low) / 2;
        if holds(half) {
            low = half + 1;
        } else {
            high = half;
        }
    }
    low
}

impl RoomView for Rooms {
    fn group_count(&self) -> usize {
        self.groups.len()
    }

    fn group(&self, i: usize) -> Option<Group> {
        self.groups.get(i).copied()
    }

    fn member(&self, k: usize) -> Option<u32> {
        self.members.get(k).copied()
    }

    fn group_of(&self, node: u32) -> Option<u32> {
        self.group_of.get(node as usize).copied().filter(|&g| g != NO_GROUP)
    }

    fn qos_room(&self, uid: u32, qos: u32) -> Option<u32> {
        let find = |uid| {
            self.qos_rooms
                .binary_search_by_key(&(uid, qos), |r| (r.uid, r.qos))
                .ok()
                .and_then(|i| self.qos_rooms.get(i))
                .map(|r| r.cpus)
        };
        find(uid).or_else(|| find(u32::MAX))
    }
}

/// A claim: a promise made at submission, as the module writes it and sjpd
/// reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Sequence number in the ring, from 1; given by the ring.
    pub seq: u64,
    /// Random-looking id that also goes into the mark.
    pub id: u64,
    /// The roster whose node indices it uses.
    pub roster: u64,
    /// Wall-clock second of the submission.
    pub time: u64,
    /// Owner.
    pub uid: u32,
    /// Node index.
    pub node: u32,
    /// CPUs taken.
    pub cpus: u32,
    /// MB taken.
    pub mem: u32,
    /// Time limit in minutes; `u32::MAX`: none known.
    pub limit: u32,
    /// Bit 0: pinned. Bit 1: array. From bit 8: `basis()` and `not_pinned()`,
    /// for the log.
    pub flags: u32,
}

/// What `Claim::flags` may say in bits 8 to 11, from 0.
const BASES: [Basis; 3] = [Basis::Room, Basis::Shape, Basis::Open];
/// What `Claim::flags` may say in bits 16 to 23, from 1; 0 is none.
const WHY_NOT: [NotPinned; 13] = [
    NotPinned::Off,
    NotPinned::Array,
    NotPinned::Tasks,
    NotPinned::Begin,
    NotPinned::Dependency,
    NotPinned::Held,
    NotPinned::Exclusive,
    NotPinned::QosCap,
    NotPinned::MemoryUnknown,
    NotPinned::OwnNodes,
    NotPinned::OneNode,
    NotPinned::NoGain,
    NotPinned::NoRoom,
];

impl Claim {
    /// `flags` of the claims of a placement.
    #[must_use]
    pub fn flags_of(placement: &Placement, array: bool) -> u32 {
        let place = |found: Option<usize>| found.and_then(|i| u32::try_from(i).ok());
        let basis = place(BASES.iter().position(|&b| b == placement.basis)).unwrap_or(0);
        let why = placement.not_pinned.and_then(|w| place(WHY_NOT.iter().position(|&n| n == w)));
        u32::from(placement.pin.is_some())
            | u32::from(array) << 1
            | basis << 8
            | why.map_or(0, |i| i + 1) << 16
    }

    /// What decided; `None` where the flags say nothing known.
    #[must_use]
    pub fn basis(&self) -> Option<Basis> {
        BASES.get((self.flags >> 8 & 0xf) as usize).copied()
    }

    /// Why the job was not pinned, where it was not.
    #[must_use]
    pub fn not_pinned(&self) -> Option<NotPinned> {
        (self.flags >> 16 & 0xff).checked_sub(1).and_then(|i| WHY_NOT.get(i as usize).copied())
    }
}

/// What a node has already been promised and the published rooms do not yet
/// show. Sorted by node, one entry a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// Node index.
    pub node: u32,
    /// CPUs.
    pub cpus: u32,
    /// MB.
    pub mem: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_read_back() {
        let mut placement = Placement {
            partitions: Vec::new(),
            admitted: Vec::new(),
            pin: None,
            not_pinned: None,
            claims: Vec::new(),
            room: crate::decision::Room::default(),
            cpus: Cpus(1),
            mem: None,
            loss: 0.0,
            basis: Basis::Room,
            minutes: None,
        };
        for basis in BASES {
            for why in WHY_NOT.into_iter().map(Some).chain([None]) {
                (placement.basis, placement.not_pinned) = (basis, why);
                placement.pin = why.is_none().then_some(3);
                for array in [false, true] {
                    let flags = Claim::flags_of(&placement, array);
                    let claim = Claim { flags, ..Claim::default() };
                    assert_eq!((claim.basis(), claim.not_pinned()), (Some(basis), why));
                    assert_eq!(flags & crate::ledger::PINNED != 0, why.is_none());
                    assert_eq!(flags & crate::ledger::ARRAY != 0, array);
                }
            }
        }
        let nonsense = Claim { flags: u32::MAX, ..Claim::default() };
        assert_eq!((nonsense.basis(), nonsense.not_pinned()), (None, None));
    }
}
