//! What is published of small clusters.

use super::*;
use crate::cluster::{Job, JobState, Node, Partition, Reservation, ReservedCores, SlurmConfig};
use crate::config::Policy;
use crate::ledger::{Ledger, PINNED};
use crate::publication::{Claim, Group, MEM_UNMANAGED, NEVER, NO_GROUP, Roster};
use crate::units::{Cpus, Limit, MemMb, MemPer};

/// What is changed of a partition, and the reason it is then closed for.
type Change = (&'static str, fn(&mut Partition));

const NOW: i64 = 1_000_000;

fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        state: vec!["IDLE".to_owned()],
        usable: true,
        cpus: Cpus(16),
        cpus_effective: Cpus(16),
        mem: Some(MemMb(64_000)),
        threads_per_core: 1,
        weight: 1,
        partitions: vec!["p".to_owned()],
        ..Node::default()
    }
}

fn partition(name: &str) -> Partition {
    Partition {
        name: name.to_owned(),
        state: "UP".to_owned(),
        max_time: Limit::Unlimited,
        over_subscribe: "NO".to_owned(),
        ..Partition::default()
    }
}

fn config() -> SlurmConfig {
    SlurmConfig {
        select_type: "select/cons_tres".to_owned(),
        select_params: vec!["CR_CORE_MEMORY".to_owned()],
        ..SlurmConfig::default()
    }
}

fn roster_of(nodes: &[Node], partitions: &[Partition], config: &SlurmConfig) -> Roster {
    build_roster(&RosterInput {
        nodes,
        partitions,
        config,
        qos: &[],
        bound_users: &[],
        policy: &Policy::default(),
    })
}

/// The group of `name`, where `jobs`, `reservations` and `ledger` take room.
fn group(
    nodes: &[Node],
    name: &str,
    jobs: &[Job],
    reservations: &[Reservation],
    ledger: &Ledger,
) -> Group {
    let config = config();
    let roster = roster_of(nodes, &[partition("p")], &config);
    let rooms = build_rooms(
        &roster,
        &RoomsInput {
            nodes,
            nodes_asked_at: NOW as f64,
            reservations,
            jobs,
            ledger,
            qos: &[],
            config: &config,
            now: NOW,
            extra: Extra::default(),
        },
    );
    let at = roster.nodes.find(name).unwrap();
    rooms.groups[rooms.group_of[at] as usize]
}

fn tied(node: &str, cpus: u32, mb: u64) -> Job {
    Job {
        id: 1,
        priority: 1,
        cpus: Cpus(cpus),
        node_count: 1,
        mem: MemPer::Node(MemMb(mb)),
        req_nodes: vec![node.to_owned()],
        ..Job::default()
    }
}

#[test]
fn pending_jobs_tied_to_a_node_take_their_room() {
    let nodes = [node("n1"), node("n2")];
    let none = Ledger::new();
    let g = group(&nodes, "n1", &[tied("n1", 4, 8_000)], &[], &none);
    assert_eq!((g.cpus, g.mem), (12, 56_000));
    let g = group(&nodes, "n2", &[tied("n1", 4, 8_000)], &[], &none);
    assert_eq!((g.cpus, g.mem), (16, 64_000));
    // Jobs that cannot start soon take nothing.
    for job in [
        Job { priority: 0, ..tied("n1", 4, 8_000) },
        Job { dependent: true, ..tied("n1", 4, 8_000) },
        Job { reason: "BeginTime".to_owned(), ..tied("n1", 4, 8_000) },
        Job { state: JobState::Active, ..tied("n1", 4, 8_000) },
    ] {
        assert_eq!(group(&nodes, "n1", &[job], &[], &none).cpus, 16);
    }
    // More than there is: nothing left, never less.
    assert_eq!(group(&nodes, "n1", &[tied("n1", 40, 800_000)], &[], &none).cpus, 0);
}

#[test]
fn open_claims_take_their_room() {
    let nodes = [node("n1")];
    let roster = roster_of(&nodes, &[partition("p")], &config());
    let mut ledger = Ledger::new();
    let claim = Claim { seq: 1, id: 1, cpus: 3, mem: 1_000, flags: PINNED, ..Claim::default() };
    ledger.take(&[claim], |_| Some(&roster));
    let g = group(&nodes, "n1", &[], &[], &ledger);
    assert_eq!((g.cpus, g.mem), (13, 63_000));
}

#[test]
fn a_reservation_takes_the_node_from_its_start() {
    let nodes = [node("n1")];
    let whole = Reservation {
        nodes: vec!["n1".to_owned()],
        whole_nodes: true,
        start: NOW + 3600,
        end: NOW + 7200,
        ..Reservation::default()
    };
    let none = Ledger::new();
    let g = group(&nodes, "n1", &[], std::slice::from_ref(&whole), &none);
    assert_eq!((g.cpus, g.taken_at, g.cpus_then), (16, 1_003_600, 0));
    let over = Reservation { start: NOW - 10, end: NOW, ..whole.clone() };
    assert_eq!(group(&nodes, "n1", &[], &[over], &none).taken_at, NEVER);
    let cores = Reservation {
        whole_nodes: false,
        cores: vec![ReservedCores { node: "n1".to_owned(), cores: 6 }],
        start: NOW - 10,
        ..whole.clone()
    };
    let g = group(&nodes, "n1", &[], std::slice::from_ref(&cores), &none);
    assert_eq!((g.cpus_then, g.taken_at), (10, 999_990));
    // Cores now and the whole node in an hour: both are told.
    let g = group(&nodes, "n1", &[], &[cores, whole], &none);
    assert_eq!((g.cpus, g.taken_at, g.cpus_then), (10, 1_003_600, 0));
}

#[test]
fn slurm_s_own_plan_takes_the_node_from_its_start() {
    let nodes = [node("n1")];
    let planned = Job {
        priority: 9,
        start: Some(NOW + 600),
        sched_nodes: vec!["n1".to_owned()],
        cpus: Cpus(16),
        ..Job::default()
    };
    let g = group(&nodes, "n1", &[planned], &[], &Ledger::new());
    assert_eq!((g.cpus, g.taken_at, g.cpus_then), (16, 1_000_600, 0));
}

#[test]
fn equal_nodes_share_a_group_and_unusable_ones_have_none() {
    let mut nodes = vec![node("n3"), node("n1"), node("n2"), node("n4"), node("g1")];
    nodes[3].usable = false;
    nodes[4].gpus.total = 2;
    nodes[2].cpus_alloc = Cpus(4);
    let config = config();
    let roster = roster_of(&nodes, &[partition("p")], &config);
    let rooms = build_rooms(
        &roster,
        &RoomsInput {
            nodes: &nodes,
            nodes_asked_at: 0.0,
            reservations: &[],
            jobs: &[],
            ledger: &Ledger::new(),
            qos: &[],
            config: &config,
            now: NOW,
            extra: Extra::default(),
        },
    );
    let names: Vec<&str> = (0..roster.nodes.len()).filter_map(|i| roster.nodes.get(i)).collect();
    assert_eq!(names, ["g1", "n1", "n2", "n3", "n4"]);
    assert_eq!(rooms.group_of, [NO_GROUP, 0, 1, 0, NO_GROUP]);
    assert_eq!((rooms.groups.len(), rooms.members.as_slice()), (2, &[1, 3, 2][..]));
    assert_eq!((rooms.groups[0].first, rooms.groups[0].count), (0, 2));
}

#[test]
fn memory_is_unmanaged_where_slurm_does_not_count_it() {
    let mut nodes = [node("n1")];
    nodes[0].mem = None;
    assert_eq!(group(&nodes, "n1", &[], &[], &Ledger::new()).mem, MEM_UNMANAGED);
}

#[test]
fn partitions_are_closed_with_a_reason() {
    let nodes = [node("n1"), Node { partitions: vec!["gpu".to_owned()], ..node("g1") }];
    let mut nodes = nodes;
    nodes[1].gpus.total = 4;
    let close: &[Change] = &[
        ("state DRAIN", |p| p.state = "DRAIN".to_owned()),
        ("topology.exclude_interactive", |p| p.name = "interactive".to_owned()),
        ("RootOnly=YES", |p| p.root_only = true),
        ("ReqResv=YES", |p| p.req_resv = true),
        ("ExclusiveUser=YES", |p| p.exclusive_user = true),
        ("OverSubscribe=EXCLUSIVE: whole nodes", |p| p.over_subscribe = "EXCLUSIVE".to_owned()),
        ("MinNodes=2", |p| p.min_nodes = 2),
        ("no node in it that sjp places on", |p| p.name = "gpu".to_owned()),
    ];
    for (why, change) in close {
        let mut p = partition("p");
        change(&mut p);
        let roster = roster_of(&nodes, &[p], &config());
        assert_eq!(
            (roster.partitions[0].open, roster.partitions[0].closed_because.as_str()),
            (false, *why)
        );
    }
    let linear = SlurmConfig { select_type: "select/linear".to_owned(), ..config() };
    assert!(!roster_of(&nodes, &[partition("p")], &linear).partitions[0].open);
    assert!(roster_of(&nodes, &[partition("p")], &config()).partitions[0].open);
}

#[test]
fn a_tied_job_takes_whole_cores() {
    let threads = Node { threads_per_core: 2, ..node("n1") };
    let (nodes, none) = ([threads], Ledger::new());
    let free = |job: Job| {
        let group = group(&nodes, "n1", &[job], &[], &none);
        (16 - group.cpus, 64_000 - group.mem)
    };
    let of = |cpus, mem| Job { mem, ..tied("n1", cpus, 0) };
    assert_eq!(free(of(3, MemPer::Cpu(MemMb(1000)))), (4, 4000));
    assert_eq!(free(of(3, MemPer::Node(MemMb(1000)))), (4, 1000));
    // The queue does not tell whose memory that of a single CPU is; the mark does.
    let one = of(1, MemPer::Node(MemMb(1000)));
    assert_eq!(free(one.clone()), (2, 1000));
    let comment = Some("sjp:pin=n1;from=p;per=cpu;id=1".to_owned());
    assert_eq!(free(Job { admin_comment: comment, ..one }), (2, 2000));
}
