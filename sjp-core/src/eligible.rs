//! Which partitions would take a job: Slurm's own rules of admission, and the
//! choices of the user and the site. Whether a node has room now is not asked
//! here.

use crate::config::UserChoice;
use crate::publication::{Kind, PartitionRule, Roster, UserPartitions};
use crate::request::JobRequest;
use crate::units::{Cpus, Limit, MemMb, MemPer};
use std::fmt;

/// Why a partition is not for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotEligible {
    /// Closed for everyone (state, `[topology]`, what the partition is).
    Closed(String),
    /// Not in part_list, or its groups cannot be checked.
    NotPermitted,
    /// Not for jobs from this host.
    Host,
    /// Not among the partitions the user named.
    NotNamed,
    /// Account not allowed.
    Account,
    /// QOS not allowed.
    Qos,
    /// The user's associations do not include it.
    Association,
    /// The partition's own QOS could refuse the submission.
    PartitionQos,
    /// The time limit is above MaxTime (minutes).
    Time(Limit),
    /// MaxNodes or MinNodes rule out a job on one node.
    Nodes,
    /// More CPUs than MaxCPUsPerNode.
    CpusPerNode(u32),
    /// More memory than MaxMemPerCPU or MaxMemPerNode.
    Memory(MemPer),
    /// It does not hold the node that the user named.
    Nodelist,
    /// No node of it is big enough.
    TooSmall,
    /// What it gives by default, where the job does not say, is less time than the job
    /// would get without sjp, or other memory.
    Defaults,
}

impl fmt::Display for NotEligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(why) => write!(f, "closed: {why}"),
            Self::NotPermitted => f.write_str("not permitted to this user"),
            Self::Host => f.write_str("not for jobs from this host (AllocNodes)"),
            Self::NotNamed => f.write_str("not among the partitions named"),
            Self::Account => f.write_str("account not allowed"),
            Self::Qos => f.write_str("QOS not allowed"),
            Self::Association => f.write_str("no association for it"),
            Self::PartitionQos => f.write_str("its QOS could refuse the submission"),
            Self::Time(Limit::At(m)) => write!(f, "time limit above MaxTime ({m} min)"),
            Self::Time(_) => f.write_str("no time limit, and MaxTime is set"),
            Self::Nodes => f.write_str("MinNodes or MaxNodes rule out one node"),
            Self::CpusPerNode(n) => write!(f, "more CPUs than MaxCPUsPerNode ({n})"),
            Self::Memory(MemPer::Cpu(m)) => write!(f, "more memory than MaxMemPerCPU ({m})"),
            Self::Memory(MemPer::Node(m)) => write!(f, "more memory than MaxMemPerNode ({m})"),
            Self::Memory(MemPer::Unset) => f.write_str("more memory than it allows"),
            Self::Nodelist => f.write_str("does not hold the node named"),
            Self::TooSmall => f.write_str("no node is big enough"),
            Self::Defaults => f.write_str(
                "less time, or other memory, by default than in the job's own partition",
            ),
        }
    }
}

/// What a job takes on a node of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// CPUs before rounding to cores.
    pub cpus: u32,
    /// Memory: for each CPU (after rounding) or for the node; `Unset`: unknown.
    pub mem: MemPer,
    /// Minutes it may run; `None`: no end known.
    pub minutes: Option<u32>,
}

impl Need {
    /// CPUs and MB on a node whose CPUs come in steps of `step`. Memory that
    /// is unknown counts as 0.
    #[inline]
    #[must_use]
    pub fn on(&self, step: u32) -> (u32, u32) {
        let cpus = Cpus(self.cpus).round_up(step);
        let mem = match self.mem {
            MemPer::Unset => MemMb(0),
            MemPer::Cpu(m) => m.times(cpus),
            MemPer::Node(m) => m,
        };
        // One below the sentinel: more than any node has.
        (cpus.0, u32::try_from(mem.0).unwrap_or(u32::MAX - 1))
    }

    /// Whether a node of this kind, empty, could hold it.
    #[must_use]
    pub fn fits_kind(&self, kind: &Kind) -> bool {
        let (cpus, mem) = self.on(kind.step);
        let within = |m: Option<MemMb>| m.is_none_or(|m| u64::from(mem) <= m.0);
        cpus <= kind.cpus.0 && within(kind.mem) && within(kind.size)
    }
}

/// What `job` takes in `rule`'s partition: its own request, or the defaults.
#[must_use]
pub fn need(rule: &PartitionRule, job: &JobRequest<'_>) -> Need {
    let minutes = match job.time_limit {
        Limit::At(m) => Some(m),
        Limit::Unlimited => None,
        Limit::Unset => rule.default_time.number().or_else(|| rule.max_time.number()),
    };
    // The default is settled when a job is submitted.
    let left = job.mem == MemPer::Unset && !job.submitted;
    let mem = match if left { rule.def_mem } else { job.mem } {
        MemPer::Cpu(m) if rule.mem_as_asked => MemPer::Node(m.times(job.cpus)),
        mem => mem,
    };
    Need { cpus: job.cpus.0, mem, minutes }
}

/// Whether `rule` (partition `index`) would accept `job`; the need there if so.
///
/// `named`: the partitions the user named, by index, where that counts.
/// `node`: the one node the user named, where that counts.
pub fn accepts(
    roster: &Roster,
    index: u16,
    rule: &PartitionRule,
    job: &JobRequest<'_>,
    permitted: Option<&[bool]>,
    named: Option<&[u16]>,
    node: Option<u32>,
) -> Result<Need, NotEligible> {
    if !rule.open {
        return Err(NotEligible::Closed(rule.closed_because.clone()));
    }
    let permitted = match permitted {
        Some(list) => list.get(usize::from(index)).copied().unwrap_or(false),
        None => !rule.restricted,
    };
    if !permitted {
        return Err(NotEligible::NotPermitted);
    }
    if !rule.hosts.admits(job.alloc_node) {
        return Err(NotEligible::Host);
    }
    if named.is_some_and(|n| !n.contains(&index)) {
        return Err(NotEligible::NotNamed);
    }
    if !rule.accounts.admits(job.account) {
        return Err(NotEligible::Account);
    }
    if !rule.qos.admits(job.qos) {
        return Err(NotEligible::Qos);
    }
    if !association_allows(roster, index, job) {
        return Err(NotEligible::Association);
    }
    if rule.only_if_named && named.is_none() {
        return Err(NotEligible::PartitionQos);
    }
    match job.time_limit {
        Limit::At(m) if rule.max_time.exceeded_by(m) => {
            return Err(NotEligible::Time(rule.max_time));
        }
        Limit::Unlimited if rule.max_time.number().is_some() => {
            return Err(NotEligible::Time(Limit::Unset));
        }
        _ => {}
    }
    if rule.min_nodes > 1 || rule.max_nodes == Limit::At(0) {
        return Err(NotEligible::Nodes);
    }
    let need = need(rule, job);
    if let Some(max) = rule.max_cpus_per_node.number()
        && need.cpus > max
    {
        return Err(NotEligible::CpusPerNode(max));
    }
    if exceeds(rule.max_mem, &need) {
        return Err(NotEligible::Memory(rule.max_mem));
    }
    if gives_other(roster, rule, job, &need) {
        return Err(NotEligible::Defaults);
    }
    if let Some(node) = node
        && !partitions_of(roster, node).contains(&index)
    {
        return Err(NotEligible::Nodelist);
    }
    let holds = |kind: &&Kind| {
        need.fits_kind(kind)
            && roster.psets.get(usize::from(kind.pset)).is_some_and(|s| s.contains(&index))
    };
    let big_enough = match node {
        Some(n) => kind_of(roster, n).is_some_and(|k| holds(&k)),
        None => roster.kinds.iter().any(|k| holds(&k)),
    };
    if big_enough { Ok(need) } else { Err(NotEligible::TooSmall) }
}

/// A node's kind.
#[must_use]
pub fn kind_of(roster: &Roster, node: u32) -> Option<&Kind> {
    let kind = *roster.kind_of.get(node as usize)?;
    roster.kinds.get(usize::from(kind))
}

/// The partitions that a node is in.
#[must_use]
pub fn partitions_of(roster: &Roster, node: u32) -> &[u16] {
    kind_of(roster, node)
        .and_then(|k| roster.psets.get(usize::from(k.pset)))
        .map_or(&[], Vec::as_slice)
}

/// The partitions that the user's own list leaves; `None`: no choice to follow.
#[must_use]
pub fn named_partitions(roster: &Roster, job: &JobRequest<'_>) -> Option<Vec<u16>> {
    let list = job.partition.filter(|p| !p.is_empty())?;
    if roster.policy.user_partition == UserChoice::Ignore {
        return None;
    }
    let find = |name: &str| {
        let at = roster.partitions.iter().position(|p| p.name == name)?;
        u16::try_from(at).ok()
    };
    Some(list.split(',').filter_map(|n| find(n.trim())).collect())
}

/// Whether more memory is asked for than a limit allows. A request for the
/// node is held against a limit for each CPU, and the other way round, as
/// Slurm would do before it changes the number of CPUs.
fn exceeds(limit: MemPer, need: &Need) -> bool {
    let cpus = Cpus(need.cpus.max(1));
    match (limit, need.mem) {
        (MemPer::Unset, _) | (_, MemPer::Unset) => false,
        (MemPer::Cpu(max), MemPer::Cpu(m)) | (MemPer::Node(max), MemPer::Node(m)) => m > max,
        (MemPer::Cpu(max), MemPer::Node(m)) => m > max.times(cpus),
        (MemPer::Node(max), MemPer::Cpu(m)) => m.times(cpus) > max,
    }
}

/// Whether a job that leaves its time or memory to the partition would be worse off in
/// `rule`'s, by `need`, than where it would go without sjp: the partitions it names, else
/// the default one.
///
/// Less time: each partition gives its own when the job starts; no limit is the most.
/// Other memory: Slurm takes that of the first partition when the job is submitted, for
/// good; with more than it would have, the job might fit its own partitions no more.
fn gives_other(roster: &Roster, rule: &PartitionRule, job: &JobRequest<'_>, need: &Need) -> bool {
    let no_time = job.time_limit == Limit::Unset;
    let no_mem = job.mem == MemPer::Unset && !job.submitted;
    if !no_time && !no_mem {
        return false;
    }
    let own = job.partition.filter(|p| !p.is_empty()).or(job.home).unwrap_or_default();
    let names = || own.split(',').filter(|n| !n.is_empty());
    let is_own = |rule: &PartitionRule| match names().next() {
        Some(_) => names().any(|n| n.trim() == rule.name),
        None => rule.default,
    };
    let shorter = || {
        let mut own = roster.partitions.iter().filter(|rule| is_own(rule));
        own.any(|own| match (need.minutes, self::need(own, job).minutes) {
            (Some(minutes), Some(own)) => minutes < own,
            (Some(_), None) => true,
            (None, _) => false,
        })
    };
    let first = || match names().next() {
        Some(_) => names().find_map(|n| roster.partitions.iter().find(|r| r.name == n.trim())),
        None => roster.partitions.iter().find(|rule| rule.default),
    };
    let other = || {
        first().is_some_and(|own| {
            let own = self::need(own, job);
            let unset = |need: &Need| need.mem == MemPer::Unset;
            unset(&own) != unset(need) || own.on(1).1 != need.on(1).1
        })
    };
    (no_time && !is_own(rule) && shorter()) || (no_mem && other())
}

/// The partition-bound associations that count for the job.
fn bound<'r>(roster: &'r Roster, job: &JobRequest<'_>) -> impl Iterator<Item = &'r UserPartitions> {
    roster.bound_users.iter().filter(|u| u.uid == job.uid).filter(|u| {
        u.account.is_none() || job.account.is_none() || u.account.as_deref() == job.account
    })
}

/// Whether the user's associations let them into the partition. Users without
/// partition-bound associations are not listed and always pass.
fn association_allows(roster: &Roster, index: u16, job: &JobRequest<'_>) -> bool {
    let mut bound = bound(roster, job).peekable();
    bound.peek().is_none() || bound.any(|u| u.partitions.contains(&index))
}

/// Whether the job may name one partition only: Slurm refuses a list that holds a
/// partition for which the user has an association of its own.
#[must_use]
pub fn one_partition_only(roster: &Roster, job: &JobRequest<'_>) -> bool {
    bound(roster, job).next().is_some()
}
