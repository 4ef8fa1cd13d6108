//! Placement on clusters small enough to work out by hand, and against a plain
//! reference on random ones.

use super::*;
use crate::cluster::{Names, Node, Partition, QosCaps, SlurmConfig};
use crate::config::{Mode, Policy, UserChoice};
use crate::ledger::Ledger;
use crate::publication::Rooms;
use crate::publish::{Extra, RoomsInput, RosterInput, build_rooms, build_roster};
use crate::units::{Cpus, Limit, MemMb};
use proptest::prelude::*;

/// What is changed of a partition, by name.
type Change = (&'static str, fn(&mut Partition));

#[derive(Debug)]
struct Site {
    nodes: Vec<Node>,
    partitions: Vec<Partition>,
    config: SlurmConfig,
    policy: Policy,
    qos: Vec<QosCaps>,
}

fn node(name: &str, partitions: &[&str], cpus: u32, mem: u64, used: (u32, u64)) -> Node {
    Node {
        name: name.to_owned(),
        state: vec!["IDLE".to_owned()],
        usable: true,
        cpus: Cpus(cpus),
        cpus_effective: Cpus(cpus),
        cpus_alloc: Cpus(used.0),
        mem: Some(MemMb(mem)),
        mem_alloc: MemMb(used.1),
        threads_per_core: 1,
        weight: 1,
        partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
        ..Node::default()
    }
}

fn partition(name: &str, tier: u32) -> Partition {
    Partition {
        name: name.to_owned(),
        state: "UP".to_owned(),
        tier,
        max_time: Limit::At(14 * 1440),
        default_time: Limit::At(60),
        max_nodes: Limit::Unlimited,
        over_subscribe: "NO".to_owned(),
        ..Partition::default()
    }
}

impl Site {
    /// slim: s01 and s02 with 64 CPUs and 256,000 MB; fat: f01, 64 CPUs and
    /// 1,024,000 MB.
    fn slim_and_fat() -> Self {
        Self {
            nodes: vec![
                node("s01", &["slim"], 64, 256_000, (0, 0)),
                node("s02", &["slim"], 64, 256_000, (0, 0)),
                node("f01", &["fat"], 64, 1_024_000, (0, 0)),
            ],
            partitions: vec![partition("slim", 10), partition("fat", 8)],
            config: SlurmConfig {
                select_type: "select/cons_tres".to_owned(),
                select_params: vec!["CR_CPU_MEMORY".to_owned()],
                ..SlurmConfig::default()
            },
            policy: Policy { mode: Mode::Enforce, ..Policy::default() },
            qos: Vec::new(),
        }
    }

    fn roster(&self) -> Roster {
        build_roster(&RosterInput {
            nodes: &self.nodes,
            partitions: &self.partitions,
            config: &self.config,
            qos: &self.qos,
            bound_users: &[],
            policy: &self.policy,
        })
    }

    fn rooms(&self, roster: &Roster) -> Rooms {
        let ledger = Ledger::new();
        build_rooms(
            roster,
            &RoomsInput {
                nodes: &self.nodes,
                nodes_asked_at: 1000.0,
                reservations: &[],
                jobs: &[],
                ledger: &ledger,
                qos: &self.qos,
                config: &self.config,
                now: 1000,
                extra: Extra::default(),
            },
        )
    }

    fn choose(&self, job: &JobRequest<'_>) -> Result<Seen, Reason> {
        self.choose_with(job, &[], None)
    }

    fn choose_with(
        &self,
        job: &JobRequest<'_>,
        promised: &[Promised],
        permitted: Option<&[bool]>,
    ) -> Result<Seen, Reason> {
        let roster = self.roster();
        let rooms = self.rooms(&roster);
        let ctx = Context { roster: &roster, rooms: &rooms, promised, now: 1000, permitted };
        let placement = choose(&ctx, job, &mut Scratch::new())?;
        Ok(Seen::new(&roster, placement))
    }
}

/// A placement in names.
#[derive(Debug, PartialEq)]
struct Seen {
    partitions: String,
    admitted: String,
    pin: Option<String>,
    not_pinned: Option<NotPinned>,
    claims: Vec<(String, u32, u32)>,
}

impl Seen {
    fn new(roster: &Roster, p: Placement) -> Self {
        let name = |n: u32| roster.nodes.get(n as usize).unwrap().to_owned();
        Self {
            partitions: crate::mark::partition_names(roster, &p.partitions),
            admitted: crate::mark::partition_names(roster, &p.admitted),
            pin: p.pin.map(name),
            not_pinned: p.not_pinned,
            claims: p.claims.iter().map(|c| (name(c.node), c.cpus, c.mem)).collect(),
        }
    }
}

fn job(cpus: u32, mem_mb: u64) -> JobRequest<'static> {
    JobRequest {
        uid: 1000,
        cpus: Cpus(cpus),
        tasks: 1,
        min_nodes: 1,
        mem: MemPer::Node(MemMb(mem_mb)),
        time_limit: Limit::At(60),
        batch: true,
        array_tasks: 1,
        ..JobRequest::default()
    }
}

#[test]
fn a_lean_job_goes_to_the_slim_nodes() {
    // 8 CPUs, 8,000 MB (1,000 MB per CPU). On an empty slim node the mix from
    // 4,267 MB per CPU up is bound by memory, so the job costs its 8,000 MB
    // there and 8 CPUs in the two lean kinds:
    //   2.0 + 8000 * (.25/4267 + .25/7680 + .15/14178 + .10/30720) = 2.84 CPUs.
    // On an empty fat node (16,000 MB per CPU) only 30,720 is bound by memory:
    //   .9 * 8 + 8000 * .10/30720 = 7.23 CPUs. The difference, 4.4, is above the
    // tolerance of 0.25 * 8 = 2: slim alone.
    let seen = Site::slim_and_fat().choose(&job(8, 8_000)).unwrap();
    assert_eq!(seen.partitions, "slim");
    // Two equal nodes: Slurm may choose.
    assert_eq!(seen.pin, None);
    assert_eq!(seen.not_pinned, Some(NotPinned::NoGain));
    assert_eq!(seen.claims, [("s01".to_owned(), 8, 8_000)]);
}

#[test]
fn a_job_that_only_fat_nodes_hold_goes_there() {
    let seen = Site::slim_and_fat().choose(&job(4, 300_000)).unwrap();
    assert_eq!(seen.partitions, "fat");
    assert_eq!(seen.not_pinned, Some(NotPinned::OneNode));
}

#[test]
fn a_heavy_job_is_cheaper_on_the_fat_node() {
    // 4 CPUs, 128,000 MB (32,000 MB per CPU): on slim it takes half the memory,
    // on fat an eighth.
    let seen = Site::slim_and_fat().choose(&job(4, 128_000)).unwrap();
    assert_eq!(seen.partitions, "fat");
}

#[test]
fn the_node_nearest_in_memory_per_cpu_is_pinned() {
    let mut site = Site::slim_and_fat();
    // s01: 32 CPUs and 64,000 MB free (2,000 per CPU); s02: 32 and 192,000
    // (6,000 per CPU); s03 empty. A job of 4 CPUs, 8,000 MB (2,000 per CPU).
    site.nodes[0].cpus_alloc = Cpus(32);
    site.nodes[0].mem_alloc = MemMb(192_000);
    site.nodes[1].cpus_alloc = Cpus(32);
    site.nodes[1].mem_alloc = MemMb(64_000);
    site.nodes.push(node("s03", &["slim"], 64, 256_000, (0, 0)));
    let seen = site.choose(&job(4, 8_000)).unwrap();
    assert_eq!(seen.pin.as_deref(), Some("s01"));
    assert_eq!(seen.claims, [("s01".to_owned(), 4, 8_000)]);
}

#[test]
fn what_is_promised_is_not_there() {
    let site = Site::slim_and_fat();
    let roster = site.roster();
    let at = |n: &str| u32::try_from(roster.nodes.find(n).unwrap()).unwrap();
    let promised = [
        Promised { node: at("s01"), cpus: 60, mem: 0 },
        Promised { node: at("s02"), cpus: 0, mem: 250_000 },
    ];
    // s01 has 4 CPUs left, s02 6,000 MB: 8 CPUs and 8,000 MB fit only f01.
    let mut promised = promised;
    promised.sort_by_key(|p| p.node);
    let seen = site.choose_with(&job(8, 8_000), &promised, None).unwrap();
    assert_eq!((seen.partitions.as_str(), seen.not_pinned), ("fat", Some(NotPinned::OneNode)));
}

#[test]
fn each_kind_of_job_that_is_left_alone() {
    let site = Site::slim_and_fat();
    let base = job(4, 8_000);
    let cases = [
        (JobRequest { batch: false, ..base.clone() }, Reason::NotBatch),
        (JobRequest { het: true, ..base.clone() }, Reason::HetJob),
        (JobRequest { het: true, batch: false, ..base.clone() }, Reason::HetJob),
        (JobRequest { gres: true, ..base.clone() }, Reason::Gpu),
        (JobRequest { reservation: true, ..base.clone() }, Reason::Reservation),
        (JobRequest { constraint: true, ..base.clone() }, Reason::Constraint),
        (JobRequest { min_nodes: 2, ..base.clone() }, Reason::MultiNode),
        (JobRequest { mem: MemPer::Node(MemMb(0)), ..base.clone() }, Reason::NoMemory),
        (JobRequest { cpus: Cpus(65), ..base.clone() }, Reason::NoPartition),
        (JobRequest { cpus: Cpus(96), tasks: 96, ..base.clone() }, Reason::MultiNode),
        (JobRequest { nodelist: Some("s01,s02"), ..base.clone() }, Reason::MultiNode),
        (JobRequest { nodelist: Some("x9"), ..base.clone() }, Reason::NoNodeInList),
        (JobRequest { nodelist: Some("s[0"), ..base.clone() }, Reason::NoNodeInList),
        (JobRequest { partition: Some("gone"), ..base.clone() }, Reason::NoPartition),
        (JobRequest { time_limit: Limit::At(15 * 1440), ..base.clone() }, Reason::NoPartition),
        (JobRequest { time_limit: Limit::Unlimited, ..base.clone() }, Reason::NoPartition),
    ];
    for (job, reason) in cases {
        assert_eq!(site.choose(&job), Err(reason), "{job:?}");
    }
}

#[test]
fn each_reason_not_to_pin() {
    let mut site = Site::slim_and_fat();
    // Unequal nodes, so that a plain job is pinned.
    site.nodes[0].cpus_alloc = Cpus(32);
    site.nodes[0].mem_alloc = MemMb(200_000);
    let base = job(4, 6_000);
    assert_eq!(site.choose(&base).unwrap().pin.as_deref(), Some("s01"));
    let cases = [
        (JobRequest { array: true, array_tasks: 3, ..base.clone() }, NotPinned::Array),
        (JobRequest { held: true, ..base.clone() }, NotPinned::Held),
        (JobRequest { begins_later: true, ..base.clone() }, NotPinned::Begin),
        (JobRequest { dependent: true, ..base.clone() }, NotPinned::Dependency),
        (JobRequest { exclusive: true, ..base.clone() }, NotPinned::Exclusive),
        (JobRequest { tasks: 2, ..base.clone() }, NotPinned::Tasks),
        (JobRequest { nodelist: Some("s01"), ..base.clone() }, NotPinned::OwnNodes),
        (JobRequest { mem: MemPer::Unset, ..base.clone() }, NotPinned::MemoryUnknown),
    ];
    for (job, why) in cases {
        let seen = site.choose(&job).unwrap();
        assert_eq!((seen.pin, seen.not_pinned), (None, Some(why)), "{job:?}");
        assert!(!seen.claims.is_empty(), "{job:?}");
    }
    let several = JobRequest { tasks: 2, max_nodes: Some(1), ..base.clone() };
    assert!(site.choose(&several).unwrap().pin.is_some());
    site.qos.push(QosCaps {
        name: "normal".to_owned(),
        max_cpus_per_user: Some(16),
        used_by_user: vec![(1000, 14)],
        ..QosCaps::default()
    });
    let capped = JobRequest { qos: Some("normal"), ..base.clone() };
    assert_eq!(site.choose(&capped).unwrap().not_pinned, Some(NotPinned::QosCap));
    // A job that names none has "normal".
    let unnamed = JobRequest { qos: None, ..capped.clone() };
    assert_eq!(site.choose(&unnamed).unwrap().not_pinned, Some(NotPinned::QosCap));
    let elsewhere = JobRequest { qos: Some("other"), ..capped.clone() };
    assert!(site.choose(&elsewhere).unwrap().pin.is_some());
    let other = JobRequest { uid: 1001, ..capped };
    assert!(site.choose(&other).unwrap().pin.is_some());
    site.policy.mode = Mode::Advise;
    assert_eq!(site.choose(&base).unwrap().not_pinned, Some(NotPinned::Off));
}

#[test]
fn an_array_is_claimed_over_the_nodes_it_would_fill() {
    let mut site = Site::slim_and_fat();
    site.nodes[0].cpus_alloc = Cpus(44);
    let array = JobRequest { array: true, array_tasks: 4, ..job(8, 8_000) };
    // s01 has 20 CPUs left: two tasks; the other two go to s02.
    let seen = site.choose(&array).unwrap();
    assert_eq!(seen.claims, [("s01".to_owned(), 16, 16_000), ("s02".to_owned(), 16, 16_000)]);
}

#[test]
fn an_exclusive_job_needs_an_empty_node() {
    let mut site = Site::slim_and_fat();
    site.nodes[0].cpus_alloc = Cpus(1);
    site.nodes[1].cpus_alloc = Cpus(1);
    let exclusive = JobRequest { exclusive: true, ..job(4, 8_000) };
    let seen = site.choose(&exclusive).unwrap();
    assert_eq!(seen.partitions, "fat");
    assert_eq!(seen.claims[0].1, 64);
}

#[test]
fn partitions_slurm_would_refuse_are_never_set() {
    let base = job(8, 8_000);
    let refuse: &[Change] = &[
        ("state", |p| p.state = "DOWN".to_owned()),
        ("inactive", |p| p.state = "INACTIVE".to_owned()),
        ("max_time", |p| p.max_time = Limit::At(59)),
        ("max_nodes", |p| p.max_nodes = Limit::At(0)),
        ("min_nodes", |p| p.min_nodes = 2),
        ("max_cpus", |p| p.max_cpus_per_node = Limit::At(7)),
        ("max_mem_cpu", |p| p.max_mem = MemPer::Cpu(MemMb(999))),
        ("max_mem_node", |p| p.max_mem = MemPer::Node(MemMb(7_999))),
        ("accounts", |p| p.allow_accounts = Names::Listed(vec!["physics".to_owned()])),
        ("deny", |p| p.deny_accounts = vec!["chem".to_owned()]),
        ("qos", |p| p.allow_qos = Names::Listed(vec!["high".to_owned()])),
        ("groups", |p| p.allow_groups = Names::Listed(vec!["staff".to_owned()])),
        ("hosts", |p| p.alloc_nodes = Names::Listed(vec!["login2".to_owned()])),
    ];
    for (what, change) in refuse {
        let mut site = Site::slim_and_fat();
        change(&mut site.partitions[0]);
        let job = JobRequest {
            account: Some("chem"),
            qos: Some("normal"),
            alloc_node: Some("login1"),
            ..base.clone()
        };
        let seen = site.choose(&job).unwrap();
        assert_eq!(seen.partitions, "fat", "{what}");
    }
    let mut site = Site::slim_and_fat();
    site.partitions[0].alloc_nodes = Names::Listed(vec!["login2".to_owned()]);
    let from_there = JobRequest { alloc_node: Some("login2"), ..base.clone() };
    assert_eq!(site.choose(&from_there).unwrap().partitions, "slim");
    assert_eq!(site.choose(&base).unwrap().partitions, "fat", "from nobody knows where");
    // part_list decides over groups.
    let mut site = Site::slim_and_fat();
    site.partitions[0].allow_groups = Names::Listed(vec!["staff".to_owned()]);
    // By name: fat is 0, slim 1.
    let seen = site.choose_with(&base, &[], Some(&[true, true])).unwrap();
    assert_eq!(seen.partitions, "slim");
    assert_eq!(site.choose_with(&base, &[], Some(&[false, false])), Err(Reason::NoPartition));
}

/// One CPU and 4,000 MB cost .670 in slim and .913 in fat: within the tolerance of .25.
fn for_both() -> JobRequest<'static> {
    job(1, 4_000)
}

#[test]
fn a_user_bound_to_partitions_gets_one() {
    let mut site = Site::slim_and_fat();
    let mut roster = site.roster();
    let get = |roster: &Roster, site: &Site, job: &JobRequest<'_>, open_all: bool| {
        let rooms = site.rooms(roster);
        let ctx = Context { roster, rooms: &rooms, promised: &[], now: 1000, permitted: None };
        let decide = if open_all { open } else { choose };
        Seen::new(roster, decide(&ctx, job, &mut Scratch::new()).unwrap())
    };
    assert_eq!(get(&roster, &site, &for_both(), false).admitted, "slim,fat");
    let bound = |account: Option<&str>| crate::publication::UserPartitions {
        uid: 1000,
        account: account.map(str::to_owned),
        partitions: vec![0, 1],
    };
    roster.bound_users = vec![bound(None)];
    assert_eq!(get(&roster, &site, &for_both(), false).admitted, "slim");
    assert_eq!(get(&roster, &site, &for_both(), true).admitted, "slim");
    let fat = JobRequest { partition: Some("fat"), ..for_both() };
    assert_eq!(get(&roster, &site, &fat, false).admitted, "fat");
    // In another account, it is not bound.
    roster.bound_users = vec![bound(Some("physics"))];
    let chem = JobRequest { account: Some("chem"), ..for_both() };
    assert_eq!(get(&roster, &site, &chem, false).admitted, "slim,fat");
    let physics = JobRequest { account: Some("physics"), ..for_both() };
    assert_eq!(get(&roster, &site, &physics, false).admitted, "slim");
    for n in &mut site.nodes {
        n.cpus_alloc = Cpus(64);
    }
    assert_eq!(get(&roster, &site, &physics, true).admitted, "slim");
}

#[test]
fn defaults_of_a_partition_never_take_time_away_or_change_memory() {
    let mut site = Site::slim_and_fat();
    for p in &mut site.partitions {
        p.def_mem = MemPer::Cpu(MemMb(4_000));
    }
    let bare = JobRequest { time_limit: Limit::Unset, mem: MemPer::Unset, ..for_both() };
    site.partitions[0].default = true;
    assert_eq!(site.choose(&bare).unwrap().partitions, "slim,fat");
    let changes: [fn(&mut Partition); 6] = [
        |p| p.default_time = Limit::At(59),
        |p| (p.default_time, p.max_time) = (Limit::Unset, Limit::At(59)),
        |p| p.def_mem = MemPer::Cpu(MemMb(3_999)),
        |p| p.def_mem = MemPer::Node(MemMb(3_999)),
        // With more it might not fit its own partition any more.
        |p| p.def_mem = MemPer::Cpu(MemMb(4_001)),
        |p| p.def_mem = MemPer::Unset,
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut site = Site { partitions: site.partitions.clone(), ..Site::slim_and_fat() };
        change(&mut site.partitions[1]);
        assert_eq!(site.choose(&bare).unwrap().partitions, "slim", "{i}");
        // What the job says itself does not depend on the partition.
        let told = JobRequest { time_limit: Limit::At(50), mem: for_both().mem, ..bare.clone() };
        assert_eq!(site.choose(&told).unwrap().partitions, "slim,fat", "{i}");
        // Where the user names it, its defaults are what the user asked for.
        let own = JobRequest { partition: Some("fat"), ..bare.clone() };
        assert_eq!(site.choose(&own).unwrap().partitions, "fat", "{i}");
        // Slurm takes the memory of the first that is named, the time of the one it starts in.
        let both = JobRequest { partition: Some("slim,fat"), ..bare.clone() };
        let left = if i < 2 { "slim,fat" } else { "slim" };
        assert_eq!(site.choose(&both).unwrap().partitions, left, "{i}");
        site.policy.user_partition = UserChoice::Ignore;
        assert_eq!(site.choose(&both).unwrap().partitions, left, "{i}");
    }
}

#[test]
fn the_user_s_partition_narrows_and_never_widens() {
    let mut site = Site::slim_and_fat();
    let own = JobRequest { partition: Some("fat"), ..job(8, 8_000) };
    assert_eq!(site.choose(&own).unwrap().partitions, "fat");
    site.policy.user_partition = UserChoice::Ignore;
    assert_eq!(site.choose(&own).unwrap().partitions, "slim");
}

#[test]
fn the_user_s_nodes_are_kept_or_dropped() {
    let mut site = Site::slim_and_fat();
    let own = JobRequest { nodelist: Some("f01"), ..job(8, 8_000) };
    assert_eq!(site.choose(&own).unwrap().partitions, "fat");
    let not = JobRequest { exclude: Some("s[01-02]"), ..job(8, 8_000) };
    assert_eq!(site.choose(&not).unwrap().partitions, "fat");
    let not = JobRequest { exclude: Some("s02,f[01-09]"), ..job(8, 8_000) };
    let seen = site.choose(&not).unwrap();
    assert_eq!((seen.partitions.as_str(), seen.claims[0].0.as_str()), ("slim", "s01"));
    site.policy.user_nodes = UserChoice::Ignore;
    assert_eq!(site.choose(&own).unwrap().partitions, "slim");
}

#[test]
fn no_room_is_left_placed_by_shape_or_opened() {
    let mut site = Site::slim_and_fat();
    for n in &mut site.nodes {
        n.cpus_alloc = Cpus(64);
    }
    let base = job(8, 8_000);
    assert_eq!(site.choose(&base), Err(Reason::NoRoom));
    site.policy.always_place = true;
    let seen = site.choose(&base).unwrap();
    assert_eq!((seen.partitions.as_str(), seen.claims.len()), ("slim", 0));
    site.policy.no_room = crate::config::NoRoom::Open;
    assert_eq!(site.choose(&base).unwrap().partitions, "slim,fat");
}

#[test]
fn memory_that_slurm_does_not_manage_refuses_nothing() {
    let mut site = Site::slim_and_fat();
    site.config.select_params = vec!["CR_CPU".to_owned()];
    for node in &mut site.nodes {
        node.mem_alloc = node.mem.unwrap();
    }
    assert_eq!(site.choose(&job(8, 200_000)).unwrap().partitions, "slim,fat");
    // But what a node has not, Slurm refuses there.
    assert_eq!(site.choose(&job(8, 300_000)).unwrap().partitions, "fat");
    assert_eq!(site.choose(&job(8, 4_000_000)), Err(Reason::NoPartition));
    site.nodes[2].partitions.push("slim".to_owned());
    let seen = site.choose(&job(8, 300_000)).unwrap();
    assert_eq!((seen.claims[0].0.as_str(), seen.not_pinned), ("f01", Some(NotPinned::OneNode)));
    // RealMemory that nobody set says nothing.
    site.nodes[0].mem = None;
    assert_eq!(site.choose(&job(8, 4_000_000)).unwrap().partitions, "slim");
}

#[test]
fn a_job_without_memory_is_sized_by_the_default() {
    let mut site = Site::slim_and_fat();
    site.partitions[0].def_mem = MemPer::Cpu(MemMb(2_000));
    site.partitions[1].def_mem = MemPer::Node(MemMb(500_000));
    site.nodes[0].mem_alloc = MemMb(250_000);
    let unset = JobRequest { mem: MemPer::Unset, ..job(4, 0) };
    // 8,000 MB no longer fit s01; s02 alone has room in slim.
    let seen = site.choose(&unset).unwrap();
    assert_eq!(seen.partitions, "slim");
    assert_eq!(seen.claims, [("s02".to_owned(), 4, 8_000)]);
}

#[test]
fn cpus_round_up_to_cores() {
    let mut site = Site::slim_and_fat();
    site.config.select_params = vec!["CR_CORE_MEMORY".to_owned()];
    for n in &mut site.nodes {
        n.threads_per_core = 2;
    }
    site.nodes[0].cpus_alloc = Cpus(62);
    let odd = JobRequest { mem: MemPer::Cpu(MemMb(1_000)), ..job(3, 0) };
    // Three CPUs are two cores: 4 CPUs and 4,000 MB, more than s01 has left.
    let seen = site.choose(&odd).unwrap();
    assert_eq!(seen.claims, [("s02".to_owned(), 4, 4_000)]);
    // Threads are handed out, but no core to two jobs; memory for what was asked for.
    site.config.select_params = vec!["CR_CPU_MEMORY".to_owned()];
    let seen = site.choose(&odd).unwrap();
    assert_eq!(seen.claims, [("s02".to_owned(), 4, 3_000)]);
}

/// The policy again, node by node and without groups: slow and plain.
fn reference(site: &Site, job: &JobRequest<'_>) -> Result<(Vec<String>, Option<String>), Reason> {
    let policy = &site.policy;
    let phi = |c: u32, m: u64| -> f64 {
        policy.demand.iter().map(|d| d.weight * f64::from(c).min(m as f64 / d.mb_per_cpu)).sum()
    };
    let MemPer::Node(mem) = job.mem else { panic!("the reference knows --mem only") };
    let part = |n: &str| site.partitions.iter().find(|p| p.name == n).unwrap();
    let big = |n: &Node| n.cpus >= job.cpus && n.mem.unwrap() >= mem;
    if !site.nodes.iter().any(big) {
        return Err(Reason::NoPartition);
    }
    let loss = |n: &Node| {
        let (c, m) = (n.cpus_free().0, n.mem_free().unwrap().0);
        (n.usable && c >= job.cpus.0 && m >= mem.0)
            .then(|| phi(c, m) - phi(c - job.cpus.0, m - mem.0))
    };
    let cost = |p: &str| {
        site.nodes
            .iter()
            .filter(|n| n.partitions.iter().any(|q| q == p))
            .filter_map(loss)
            .fold(f64::INFINITY, f64::min)
    };
    let best = site.partitions.iter().map(|p| cost(&p.name)).fold(f64::INFINITY, f64::min);
    if best.is_infinite() {
        return Err(Reason::NoRoom);
    }
    let admitted: Vec<String> = site
        .partitions
        .iter()
        .map(|p| p.name.clone())
        .filter(|p| cost(p) <= best + policy.tolerance * f64::from(job.cpus.0) + 1e-9)
        .collect();
    let tier = admitted.iter().map(|p| part(p).tier).max().unwrap();
    let mut nodes: Vec<(&Node, f64, f64)> = site
        .nodes
        .iter()
        .filter(|n| n.partitions.iter().any(|p| admitted.contains(p) && part(p).tier == tier))
        .filter_map(|n| {
            let own = n.mem_free().unwrap().0 as f64 / f64::from(n.cpus_free().0);
            let want = mem.0 as f64 / f64::from(job.cpus.0);
            loss(n).map(|l| (n, l, (own / want).ln().abs()))
        })
        .collect();
    if nodes.len() < 2 {
        return Ok((admitted, None));
    }
    let least = nodes.iter().map(|n| n.1).fold(f64::INFINITY, f64::min);
    let worst = nodes.iter().map(|n| n.1).fold(0.0, f64::max);
    let worst_ratio = nodes.iter().map(|n| n.2).fold(0.0, f64::max);
    let margin = policy.min_gain_share * f64::from(job.cpus.0);
    nodes.retain(|n| n.1 <= least + margin + 1e-9);
    nodes.sort_by(|a, b| {
        let close = |x: f64, y: f64| if (x - y).abs() <= 1e-9 { 0.0 } else { x - y };
        close(a.2, b.2)
            .total_cmp(&0.0)
            .then(close(a.1, b.1).total_cmp(&0.0))
            .then(a.0.name.cmp(&b.0.name))
    });
    let (node, loss, ratio) = nodes[0];
    let gains = worst - loss > margin + 1e-9 || worst_ratio - ratio > policy.min_ratio_gain + 1e-9;
    Ok((admitted, gains.then(|| node.name.clone())))
}

fn any_site() -> impl Strategy<Value = Site> {
    let any = (0usize..3, 1u32..5, 0u32..=64, 0u64..=16, any::<bool>());
    proptest::collection::vec(any, 1..14).prop_map(|list| {
        let mut site = Site::slim_and_fat();
        site.partitions.push(partition("mixed", 10));
        site.nodes = list
            .into_iter()
            .enumerate()
            .map(|(i, (kind, step, used, mem, up))| {
                let (parts, total): (&[&str], u64) = match kind {
                    0 => (&["slim"], 256_000),
                    1 => (&["fat"], 1_024_000),
                    _ => (&["slim", "mixed"], 512_000),
                };
                let used = (used / step * step, total / 16 * mem);
                Node { usable: up, ..node(&format!("n{i:02}"), parts, 64, total, used) }
            })
            .collect();
        site
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn groups_decide_as_node_by_node(site in any_site(), cpus in 1u32..70, gb in 1u64..700) {
        let job = job(cpus, gb * 1024);
        let plain = reference(&site, &job);
        let seen = site.choose(&job).map(|s| {
            let mut names: Vec<String> = s.admitted.split(',').map(str::to_owned).collect();
            names.sort();
            (names, s.pin)
        });
        let plain = plain.map(|(mut names, pin)| { names.sort(); (names, pin) });
        prop_assert_eq!(seen, plain);
    }

    #[test]
    fn claims_always_fit_and_partitions_hold_the_pin(site in any_site(), cpus in 1u32..40, gb in 1u64..200, tasks in 1u32..60) {
        let roster = site.roster();
        let rooms = site.rooms(&roster);
        let ctx = Context { roster: &roster, rooms: &rooms, promised: &[], now: 1000, permitted: None };
        let job = JobRequest { array: tasks > 1, array_tasks: tasks, ..job(cpus, gb * 1024) };
        if let Ok(p) = choose(&ctx, &job, &mut Scratch::new()) {
            for claim in &p.claims {
                let name = roster.nodes.get(claim.node as usize).unwrap();
                let node = site.nodes.iter().find(|n| n.name == name).unwrap();
                prop_assert!(claim.cpus <= node.cpus_free().0);
                prop_assert!(u64::from(claim.mem) <= node.mem_free().unwrap().0);
            }
            if let Some(pin) = p.pin {
                let here = crate::eligible::partitions_of(&roster, pin);
                prop_assert!(!p.partitions.is_empty());
                prop_assert!(p.partitions.iter().all(|q| here.contains(q) && p.admitted.contains(q)));
            }
        }
    }

    #[test]
    fn a_burst_never_promises_a_cpu_twice(site in any_site(), cpus in 1u32..9, gb in 1u64..30) {
        let roster = site.roster();
        let rooms = site.rooms(&roster);
        let mut promises = crate::promises::Promises::new();
        let mut scratch = Scratch::new();
        for _ in 0..60 {
            let ctx = Context { roster: &roster, rooms: &rooms, promised: promises.as_slice(), now: 1000, permitted: None };
            let Ok(p) = choose(&ctx, &job(cpus, gb * 1024), &mut scratch) else { break };
            for c in p.claims {
                promises.promise(c.node, c.cpus, c.mem);
            }
        }
        for p in promises.as_slice() {
            let name = roster.nodes.get(p.node as usize).unwrap();
            let node = site.nodes.iter().find(|n| n.name == name).unwrap();
            prop_assert!(p.cpus <= node.cpus_free().0 && u64::from(p.mem) <= node.mem_free().unwrap().0);
        }
    }
}

/// More nodes of more kinds, threads, reservations ahead, and settings.
fn any_busy_site() -> impl Strategy<Value = (Site, Vec<crate::cluster::Reservation>)> {
    let any = (0usize..4, 0u32..=64, 0u64..=64, 0u8..12, 1u32..3);
    let settings = (0.0..0.6f64, 0.0..0.3f64, proptest::option::of(0.0..2.0f64), 0.0..0.3f64);
    (proptest::collection::vec(any, 1..60), proptest::bool::ANY, settings).prop_map(
        |(list, cores, settings)| {
            let mut site = Site::slim_and_fat();
            site.partitions.push(partition("mixed", 10));
            site.partitions
                .push(Partition { default_time: Limit::At(600), ..partition("late", 8) });
            if cores {
                site.config.select_params = vec!["CR_CORE_MEMORY".to_owned()];
            }
            let policy = &mut site.policy;
            (policy.tolerance, policy.min_gain_share, policy.min_gain, policy.min_ratio_gain) =
                settings;
            let mut reserved = Vec::new();
            site.nodes.clear();
            for (i, (kind, used, mem, luck, threads)) in list.into_iter().enumerate() {
                let (parts, total): (&[&str], u64) = match kind {
                    0 => (&["slim"], 256_000),
                    1 => (&["fat", "late"], 1_024_000),
                    2 => (&["late"], 384_000),
                    _ => (&["slim", "mixed"], 512_000),
                };
                let name = format!("n{i:02}");
                let made =
                    node(&name, parts, 64, total, (used / threads * threads, total / 64 * mem));
                if luck == 1 {
                    reserved.push(crate::cluster::Reservation {
                        nodes: vec![name],
                        whole_nodes: true,
                        start: 1000 + 7200,
                        end: 1_000_000,
                        ..Default::default()
                    });
                }
                site.nodes.push(Node { usable: luck > 0, threads_per_core: threads, ..made });
            }
            (site, reserved)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_quick_survey_finds_what_the_whole_one_finds(
        (site, reservations) in any_busy_site(),
        cpus in 1u32..40, mb in 1u64..300_000, per_cpu: bool, limit in 0usize..3,
        promised in proptest::collection::btree_map(0u32..60, (0u32..40, 0u32..200_000), 0..20),
    ) {
        let roster = site.roster();
        let ledger = Ledger::new();
        let rooms = build_rooms(&roster, &RoomsInput {
            nodes: &site.nodes,
            nodes_asked_at: 1000.0,
            reservations: &reservations,
            jobs: &[],
            ledger: &ledger,
            qos: &[],
            config: &site.config,
            now: 1000, extra: Extra::default(), });
        let promised: Vec<Promised> = promised
            .into_iter()
            .map(|(node, (cpus, mem))| Promised { node, cpus, mem })
            .collect();
        let ctx = Context { roster: &roster, rooms: &rooms, promised: &promised, now: 1000, permitted: None };
        let mut job = job(cpus, mb);
        job.time_limit = [Limit::At(30), Limit::At(300), Limit::Unset][limit];
        if per_cpu {
            job.mem = MemPer::Cpu(MemMb(1 + mb / u64::from(cpus)));
        }
        let mut scratch = Scratch::new();
        let quick = choose(&ctx, &job, &mut scratch);
        let whole = Survey::take(&ctx, &job, &mut scratch).and_then(|survey| {
            if survey.has_room(&scratch) { Ok(survey.by_room(&ctx, &job, &mut scratch)) } else { Err(Reason::NoRoom) }
        });
        match (quick, whole) {
            (Ok(mut quick), Ok(whole)) => {
                prop_assert!((quick.loss - whole.loss).abs() < 1e-9);
                quick.loss = whole.loss;
                prop_assert_eq!(quick, whole);
            }
            (quick, whole) => prop_assert_eq!(quick.err(), whole.err()),
        }
    }
}
