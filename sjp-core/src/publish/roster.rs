//! The roster: names, partitions with their rules, kinds of nodes, settings.

use crate::cluster::{Names, Node, Partition, QosCaps, SlurmConfig};
use crate::config::Policy;
use crate::publication::{Admit, Kind, NameTable, PartitionRule, Roster, UserPartitions};
use crate::units::{Limit, MemMb, MemPer};
use std::collections::{BTreeSet, HashMap};

/// What a roster is made of.
#[derive(Clone, Copy, Debug)]
pub struct RosterInput<'a> {
    /// All nodes, in any order.
    pub nodes: &'a [Node],
    /// All partitions.
    pub partitions: &'a [Partition],
    /// Slurm's own settings.
    pub config: &'a SlurmConfig,
    /// QOS caps; empty without accounting.
    pub qos: &'a [QosCaps],
    /// Users with associations bound to partitions: uid, account, and the
    /// partitions they may use (empty: all, by another association).
    pub bound_users: &'a [(u32, Option<String>, Vec<String>)],
    /// sjp's settings.
    pub policy: &'a Policy,
}

/// Builds the roster. The same input gives an equal roster, so that a change
/// can be told by comparing.
#[must_use]
pub fn build_roster(input: &RosterInput<'_>) -> Roster {
    let mut nodes: Vec<&Node> = input.nodes.iter().collect();
    nodes.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    nodes.dedup_by(|a, b| a.name == b.name);
    let mut partitions: Vec<&Partition> = input.partitions.iter().collect();
    partitions.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    partitions.dedup_by(|a, b| a.name == b.name);
    partitions.truncate(usize::from(u16::MAX));

    let index: HashMap<&str, u16> = partitions
        .iter()
        .enumerate()
        .filter_map(|(i, p)| Some((p.name.as_str(), u16::try_from(i).ok()?)))
        .collect();
    let mut rules: Vec<PartitionRule> = partitions.iter().map(|p| rule(p, input)).collect();

    let mut psets: Vec<Vec<u16>> = Vec::new();
    let mut pset_at: HashMap<Vec<u16>, u16> = HashMap::new();
    let mut kinds: Vec<Kind> = Vec::new();
    let mut kind_at: HashMap<Kind, u16> = HashMap::new();
    let mut kind_of = Vec::with_capacity(nodes.len());
    let mut placeable: BTreeSet<u16> = BTreeSet::new();
    for node in &nodes {
        let mut set: Vec<u16> = if placeable_ever(node, input.policy) {
            node.partitions.iter().filter_map(|p| index.get(p.as_str()).copied()).collect()
        } else {
            Vec::new()
        };
        set.sort_unstable();
        set.dedup();
        placeable.extend(&set);
        let pset = number(&mut pset_at, &mut psets, set);
        let kind = Kind {
            cpus: node.cpus_effective,
            mem: managed_mem(node, input.config),
            size: node.mem,
            step: node.threads_per_core.max(1),
            pset,
        };
        kind_of.push(number(&mut kind_at, &mut kinds, kind));
    }
    for (i, rule) in rules.iter_mut().enumerate() {
        let empty = u16::try_from(i).is_ok_and(|i| !placeable.contains(&i));
        if rule.open && empty {
            rule.open = false;
            rule.closed_because = "no node in it that sjp places on".to_owned();
        }
    }
    let mut bound_users: Vec<UserPartitions> = input
        .bound_users
        .iter()
        .map(|(uid, account, names)| UserPartitions {
            uid: *uid,
            account: account.clone(),
            partitions: match names.as_slice() {
                [] => (0..partitions.len()).filter_map(|i| u16::try_from(i).ok()).collect(),
                names => names.iter().filter_map(|n| index.get(n.as_str()).copied()).collect(),
            },
        })
        .collect();
    bound_users.sort_by(|a, b| (a.uid, &a.account).cmp(&(b.uid, &b.account)));
    let qos: BTreeSet<&str> = input.qos.iter().map(|q| q.name.as_str()).collect();
    Roster {
        policy: input.policy.clone(),
        nodes: NameTable::new(nodes.iter().map(|n| n.name.as_str())),
        partitions: rules,
        psets,
        kinds,
        kind_of,
        bound_users,
        qos: qos.into_iter().map(str::to_owned).collect(),
    }
}

/// Memory that jobs can use, where Slurm manages it on this node.
pub(super) fn managed_mem(node: &Node, config: &SlurmConfig) -> Option<MemMb> {
    node.mem.filter(|_| config.memory_consumable()).map(|m| m.less(node.mem_spec))
}

/// Whether sjp would ever place on the node, whatever its state is now.
fn placeable_ever(node: &Node, policy: &Policy) -> bool {
    let excluded = policy.exclude_gpu_nodes && node.gpus.total > 0;
    !excluded && node.state.iter().all(|s| s != "FUTURE")
}

/// The number of `item`, a new one where it is new.
fn number<T: Clone + Eq + std::hash::Hash>(
    at: &mut HashMap<T, u16>,
    list: &mut Vec<T>,
    item: T,
) -> u16 {
    if let Some(&i) = at.get(&item) {
        return i;
    }
    // 65,535 different kinds of node are more than any cluster has; further
    // ones share the last number, which only makes them look alike.
    let i = u16::try_from(list.len()).unwrap_or(u16::MAX);
    if i < u16::MAX {
        list.push(item.clone());
        at.insert(item, i);
        i
    } else {
        u16::MAX - 1
    }
}

fn rule(p: &Partition, input: &RosterInput<'_>) -> PartitionRule {
    let closed = closed_because(p, input);
    let or = |own: MemPer, cluster: MemPer| if own == MemPer::Unset { cluster } else { own };
    let admit = |allow: &Names, deny: &[String]| match allow {
        Names::Listed(list) => Admit::Only(list.clone()),
        Names::All if deny.is_empty() => Admit::All,
        Names::All => Admit::Except(deny.to_vec()),
    };
    let own_qos = p.qos.as_deref();
    PartitionRule {
        name: p.name.clone(),
        tier: p.tier,
        open: closed.is_none(),
        default: p.default,
        closed_because: closed.unwrap_or_default(),
        max_time: p.max_time,
        default_time: p.default_time,
        max_nodes: p.max_nodes,
        min_nodes: p.min_nodes,
        max_cpus_per_node: p.max_cpus_per_node,
        max_mem: or(p.max_mem, input.config.max_mem),
        def_mem: or(p.def_mem, input.config.def_mem),
        accounts: admit(&p.allow_accounts, &p.deny_accounts),
        qos: admit(&p.allow_qos, &p.deny_qos),
        mem_as_asked: !input.config.whole_cores(),
        hosts: admit(&p.alloc_nodes, &[]),
        restricted: p.allow_groups != Names::All,
        only_if_named: own_qos
            .is_some_and(|q| input.qos.iter().any(|c| c.name == q && c.can_reject)),
    }
}

/// Why a partition is not placed into; `None`: it is open.
fn closed_because(p: &Partition, input: &RosterInput<'_>) -> Option<String> {
    let policy = input.policy;
    let listed = |list: &[String]| list.iter().any(|n| n == &p.name);
    let over = p.over_subscribe.to_ascii_uppercase();
    let why = if !input.config.nodes_shared() {
        "select/linear: nodes are not shared".to_owned()
    } else if p.state != "UP" {
        PartitionRule::because_of_state(&p.state)
    } else if listed(&policy.exclude_partitions) {
        "topology.exclude_partitions".to_owned()
    } else if !policy.batch_partitions.is_empty() && !listed(&policy.batch_partitions) {
        "not in topology.batch_partitions".to_owned()
    } else if policy.exclude_interactive && p.name.eq_ignore_ascii_case("interactive") {
        "topology.exclude_interactive".to_owned()
    } else if p.root_only {
        "RootOnly=YES".to_owned()
    } else if p.req_resv {
        "ReqResv=YES".to_owned()
    } else if p.exclusive_user {
        "ExclusiveUser=YES".to_owned()
    } else if over.starts_with("EXCLUSIVE") {
        "OverSubscribe=EXCLUSIVE: whole nodes".to_owned()
    } else if p.max_nodes == Limit::At(0) {
        "MaxNodes=0".to_owned()
    } else if p.min_nodes > 1 {
        format!("MinNodes={}", p.min_nodes)
    } else {
        return None;
    };
    Some(why)
}
