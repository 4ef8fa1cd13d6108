//! Clusters made up for the tests: sound rosters and rooms of any size, from a
//! number or from proptest.
#![allow(dead_code, reason = "each test file uses some of it")]

use proptest::prelude::*;
use sjp_core::config::{Demand, Mode, NoRoom, Policy, Tie, UserChoice};
use sjp_core::publication::{
    Admit, Claim, Group, Kind, MEM_UNMANAGED, NEVER, NO_GROUP, NameTable, PartitionRule, QosRoom,
    Rooms, Roster, UserPartitions,
};
use sjp_core::units::{Cpus, Limit, MemMb, MemPer};
use sjp_table::layout::Capacity;
use std::collections::BTreeMap;

/// A small generator of numbers, so that a cluster follows from its seed.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5DEE_CE66_D1CE_4E5B)
    }

    pub fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

/// A roster of `nodes` nodes in four partitions.
pub fn roster(nodes: usize) -> Roster {
    let names: Vec<String> = (0..nodes).map(|i| format!("node{i:05}")).collect();
    let partition = |name: &str, tier| PartitionRule {
        name: name.into(),
        tier,
        open: true,
        max_time: Limit::At(1440),
        max_mem: MemPer::Cpu(MemMb(8000)),
        ..Default::default()
    };
    Roster {
        policy: Policy::default(),
        nodes: NameTable::new(names.iter().map(String::as_str)),
        partitions: vec![
            partition("fat", 1),
            partition("long", 2),
            partition("short", 3),
            partition("slim", 1),
        ],
        psets: vec![vec![0], vec![1, 2], vec![3]],
        kinds: vec![
            Kind {
                cpus: Cpus(64),
                mem: Some(MemMb(1_024_000)),
                size: Some(MemMb(9_000_000)),
                step: 1,
                pset: 0,
            },
            Kind {
                cpus: Cpus(128),
                mem: Some(MemMb(256_000)),
                size: Some(MemMb(9_000_000)),
                step: 2,
                pset: 1,
            },
            Kind { cpus: Cpus(96), mem: None, size: Some(MemMb(9_000_000)), step: 1, pset: 2 },
        ],
        kind_of: (0..nodes).map(|i| (i % 3) as u16).collect(),
        bound_users: vec![UserPartitions {
            uid: 1001,
            account: Some("physics".into()),
            partitions: vec![0, 3],
        }],
        qos: vec!["high".into(), "normal".into()],
    }
}

/// Rooms over `nodes` nodes, each in a group of its own.
pub fn distinct_rooms(nodes: usize, seed: u64) -> Rooms {
    let mut numbers = Numbers::new(seed);
    let groups = (0..nodes as u32)
        .map(|node| Group {
            cpus: numbers.below(128) as u32,
            mem: node,
            pset: (node % 3) as u16,
            step: 1,
            phi: numbers.below(1000) as f64 / 7.0,
            taken_at: NEVER,
            cpus_then: 0,
            mem_then: MEM_UNMANAGED,
            weight: 1,
            first: node,
            count: 1,
        })
        .collect();
    Rooms {
        groups,
        members: (0..nodes as u32).collect(),
        group_of: (0..nodes as u32).collect(),
        qos_rooms: (0..50).map(|uid| QosRoom { uid, qos: uid % 2, cpus: uid * 10 }).collect(),
    }
}

/// Room for small tests.
pub fn small() -> Capacity {
    Capacity { nodes: 64, groups: 64, qos_rooms: 64, roster_bytes: 16_384, claims: 64 }
}

/// A claim whose every field follows from a number.
pub fn claim(n: u64) -> Claim {
    Claim {
        seq: 0,
        id: n.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        roster: n + 1,
        time: n + 2,
        uid: n as u32 + 3,
        node: n as u32 + 4,
        cpus: n as u32 + 5,
        mem: n as u32 + 6,
        limit: n as u32 + 7,
        flags: n as u32 + 8,
    }
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![Just(Limit::Unset), Just(Limit::Unlimited), any::<u32>().prop_map(Limit::At)]
}

fn mem_per() -> impl Strategy<Value = MemPer> {
    prop_oneof![
        Just(MemPer::Unset),
        any::<u64>().prop_map(|m| MemPer::Cpu(MemMb(m))),
        any::<u64>().prop_map(|m| MemPer::Node(MemMb(m))),
    ]
}

fn admit() -> impl Strategy<Value = Admit> {
    let names = proptest::collection::vec("\\PC{0,8}", 0..3);
    prop_oneof![
        Just(Admit::All),
        names.clone().prop_map(Admit::Only),
        names.prop_map(Admit::Except)
    ]
}

fn partition() -> impl Strategy<Value = PartitionRule> {
    (
        (any::<u32>(), any::<bool>(), any::<bool>(), "\\PC{0,12}"),
        (limit(), limit(), limit(), any::<u32>(), limit()),
        (mem_per(), mem_per(), admit(), admit(), admit(), any::<bool>(), any::<bool>()),
    )
        .prop_map(|((tier, open, default, why), times, rest)| {
            let (max_time, default_time, max_nodes, min_nodes, max_cpus_per_node) = times;
            let (max_mem, def_mem, accounts, qos, hosts, restricted, only_if_named) = rest;
            PartitionRule {
                name: String::new(),
                tier,
                open,
                default,
                closed_because: why,
                max_time,
                default_time,
                max_nodes,
                min_nodes,
                max_cpus_per_node,
                max_mem,
                def_mem,
                accounts,
                qos,
                mem_as_asked: default,
                hosts,
                restricted,
                only_if_named,
            }
        })
}

fn policy() -> impl Strategy<Value = Policy> {
    (
        prop_oneof![Just(Mode::Observe), Just(Mode::Advise), Just(Mode::Enforce)],
        proptest::collection::vec((1.0..1e6f64, 0.0..1.0f64), 0..8),
        (0.0..10.0f64, 0.0..10.0f64, proptest::option::of(0.0..10.0f64), 0.0..1.0f64),
        any::<[bool; 6]>(),
        any::<u64>(),
        proptest::collection::vec("[a-z]{1,6}", 0..3),
    )
        .prop_map(|(mode, demand, numbers, flags, max_age_ms, names)| Policy {
            mode,
            demand: demand
                .into_iter()
                .map(|(mb_per_cpu, weight)| Demand { mb_per_cpu, weight })
                .collect(),
            tolerance: numbers.0,
            min_gain_share: numbers.1,
            min_gain: numbers.2,
            min_ratio_gain: numbers.3,
            always_place: flags[0],
            no_room: if flags[1] { NoRoom::Open } else { NoRoom::Leave },
            user_partition: if flags[2] { UserChoice::Ignore } else { UserChoice::Follow },
            user_nodes: if flags[3] { UserChoice::Ignore } else { UserChoice::Follow },
            pin: flags[4],
            tie: if flags[5] { Tie::Scarce } else { Tie::Ratio },
            max_age_ms,
            batch_partitions: names.clone(),
            exclude_partitions: names,
            exclude_interactive: flags[0],
            exclude_gpu_nodes: flags[1],
        })
}

/// Any sound roster of up to 40 nodes.
pub fn any_roster() -> impl Strategy<Value = Roster> {
    use proptest::collection::{btree_map, btree_set, vec};
    (
        policy(),
        btree_set("\\PC{1,10}", 0..40),
        btree_map("\\PC{1,8}", partition(), 1..6),
        btree_set("[a-z]{1,8}", 0..4),
        any::<u64>(),
        vec((any::<u32>(), proptest::option::of("[a-z]{1,5}")), 0..4),
    )
        .prop_map(|(policy, nodes, partitions, qos, seed, users)| {
            let mut numbers = Numbers::new(seed);
            let partitions: Vec<PartitionRule> =
                partitions.into_iter().map(|(name, p)| PartitionRule { name, ..p }).collect();
            let subset = |numbers: &mut Numbers| -> Vec<u16> {
                (0..partitions.len() as u16).filter(|_| numbers.below(2) == 1).collect()
            };
            let psets: Vec<Vec<u16>> =
                (0..=numbers.below(4)).map(|_| subset(&mut numbers)).collect();
            let kinds: Vec<Kind> = (0..=numbers.below(4))
                .map(|_| Kind {
                    cpus: Cpus(numbers.next() as u32),
                    mem: (numbers.below(2) == 1).then(|| MemMb(numbers.next())),
                    size: None,
                    step: numbers.below(9) as u32,
                    pset: numbers.below(psets.len() as u64) as u16,
                })
                .collect();
            let kind_of = nodes.iter().map(|_| numbers.below(kinds.len() as u64) as u16).collect();
            let bound_users = users
                .into_iter()
                .map(|(uid, account)| UserPartitions {
                    uid,
                    account,
                    partitions: subset(&mut numbers),
                })
                .collect();
            Roster {
                policy,
                nodes: NameTable::new(nodes.iter().map(String::as_str)),
                kind_of,
                bound_users,
                qos: qos.into_iter().collect(),
                partitions,
                psets,
                kinds,
            }
        })
}

/// Sound rooms for a roster, from a number.
pub fn rooms_for(roster: &Roster, seed: u64) -> Rooms {
    let mut numbers = Numbers::new(seed);
    let nodes = roster.nodes.len();
    let most = numbers.below(nodes as u64 + 1);
    let mut groups: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut given = Vec::new();
    for node in 0..nodes as u32 {
        let group = numbers.below(most + 2);
        given.push(group);
        if group > 0 {
            groups.entry(group).or_default().push(node);
        }
    }
    let index = |group: &u64| groups.keys().position(|g| g == group).map_or(NO_GROUP, |i| i as u32);
    let group_of = given.iter().map(index).collect();
    let mut members = Vec::new();
    let list = groups
        .values()
        .map(|nodes| {
            let first = members.len() as u32;
            members.extend(nodes);
            Group {
                cpus: numbers.next() as u32,
                mem: numbers.next() as u32,
                pset: numbers.below(roster.psets.len() as u64) as u16,
                step: numbers.next() as u16,
                phi: numbers.below(1 << 40) as f64 / 1024.0,
                taken_at: numbers.next() as u32,
                cpus_then: numbers.next() as u32,
                mem_then: numbers.next() as u32,
                weight: numbers.next() as u32,
                first,
                count: nodes.len() as u32,
            }
        })
        .collect();
    let mut rooms = Rooms { groups: list, members, group_of, qos_rooms: Vec::new() };
    if !roster.qos.is_empty() {
        let keys: std::collections::BTreeSet<(u32, u32)> = (0..numbers.below(30))
            .map(|i| {
                let uid = if i % 5 == 0 { u32::MAX } else { numbers.below(40) as u32 };
                (uid, numbers.below(roster.qos.len() as u64) as u32)
            })
            .collect();
        rooms.qos_rooms = keys
            .into_iter()
            .map(|(uid, qos)| QosRoom { uid, qos, cpus: numbers.next() as u32 })
            .collect();
    }
    rooms
}
