//! The generator: a site, and what happens to it.

use crate::slurm::{DAWN, Qos, Slurm};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sjp_core::cluster::{Names, Node, Partition, SlurmConfig};
use sjp_core::config::{Mode, NoRoom, Policy, UserChoice};
use sjp_core::limits;
use sjp_core::units::{Cpus, Limit, MemMb, MemPer};
use sjp_core::waiting::Settings;

/// A site: its settings, and its cluster when the history begins.
#[derive(Clone, Debug)]
pub struct Setup {
    pub policy: Policy,
    pub waiting: Settings,
    /// `[limits] mode = "flex"`.
    pub flex: bool,
    pub limits: limits::Settings,
    /// Users who may use the QOS "flex".
    pub flexers: Vec<u32>,
    /// Changes of one recheck.
    pub batch: usize,
    /// sjpd looks at a job right before it changes it.
    pub looks: bool,
    /// job_submit.lua calls open() where place() says no.
    pub opens: bool,
    pub slurm: Slurm,
    /// At the end sjp is switched off and undone; else it lives on.
    pub undone: bool,
}

/// A job to be submitted.
#[derive(Clone, Debug)]
pub struct Spec {
    pub uid: u32,
    pub cpus: u32,
    pub tasks: bool,
    pub one_node: bool,
    pub mem: MemPer,
    pub limit: Limit,
    pub runs: i64,
    pub array: u32,
    pub held: bool,
    pub begin: i64,
    pub after: Option<Index>,
    pub partitions: Vec<Index>,
    pub node: Option<Index>,
    pub exclude: Option<Index>,
    pub exclusive: bool,
    pub names_qos: bool,
    pub priority: u32,
    pub comment: bool,
    /// Where the site's rules put it if sjp says no.
    pub site: Option<Index>,
}

/// Whose job an event is about: one of those in the right state.
#[derive(Clone, Debug)]
pub enum Event {
    /// A submission, on data as old as they are or fresh.
    Submit(Box<Spec>, bool),
    Pass(i64),
    /// sjpd looks and plans.
    Look,
    /// It looks, and does what it planned.
    Work,
    /// sjpd makes so many updates.
    Hands(usize),
    /// slurmctld refuses one after so many.
    Refuse(u32),
    /// sjpd looks, makes so many updates, and is killed.
    Cut(usize),
    /// sjpd is killed, and whoever undoes.
    Kill,
    /// sjp is switched off, or on again.
    Switch,
    /// Everything is to be undone, where it is switched off.
    Undo,
    Requeue(Index),
    Cancel(Index),
    /// A running job ends.
    End(Index),
    Hold(Index),
    /// A user changes the partitions of a waiting job.
    Partitions(Index, Vec<Index>),
    /// Or its QOS.
    Qos(Index),
    /// Or its nodes.
    Nodes(Index, Option<Index>),
    /// An admin its AdminComment.
    Comment(Index, bool),
    Node(Index),
    Partition(Index, &'static str),
    Reserve(Index, i64),
    /// Its reservations end.
    Unreserve,
}

const PARTITIONS: [&str; 4] = ["pa", "pb", "pc", "pd"];

fn partition() -> impl Strategy<Value = Partition> {
    let usual = 6;
    (
        select(vec![1_u32, 5, 10]),
        prop_oneof![usual => Just(Limit::Unlimited), 1 => Just(Limit::At(30)), 1 => Just(Limit::At(120))],
        prop_oneof![usual => Just(Limit::Unset), 1 => Just(Limit::At(10)), 1 => Just(Limit::At(60))],
        prop_oneof![usual => Just(Limit::Unlimited), 1 => Just(Limit::At(4))],
        prop_oneof![usual => Just(MemPer::Unset), 1 => Just(MemPer::Cpu(MemMb(2000)))],
        prop_oneof![2 => Just(MemPer::Unset), 1 => Just(MemPer::Cpu(MemMb(500))), 1 => Just(MemPer::Cpu(MemMb(1500)))],
        prop_oneof![usual => Just(Names::All), 1 => Just(Names::Listed(vec!["physics".into()]))],
        prop_oneof![usual => Just(Names::All), 1 => Just(Names::Listed(vec!["normal".into()]))],
        prop_oneof![usual => Just(Names::All), 1 => Just(Names::Listed(vec!["chemists".into()]))],
    )
        .prop_map(|(tier, max_time, default_time, cpus, max_mem, def_mem, accounts, qos, groups)| {
            Partition {
                state: "UP".to_owned(),
                tier,
                max_time,
                default_time,
                max_nodes: Limit::Unlimited,
                max_cpus_per_node: cpus,
                max_mem,
                def_mem,
                allow_accounts: accounts,
                allow_qos: qos,
                allow_groups: groups,
                over_subscribe: "NO".to_owned(),
                ..Partition::default()
            }
        })
}

fn node(partitions: usize) -> impl Strategy<Value = Node> {
    (
        select(vec![4_u32, 8, 16]),
        select(vec![8_000_u64, 16_000, 64_000]),
        vec(any::<bool>(), partitions),
        0..partitions,
    )
        .prop_map(|(cpus, mem, within, surely)| Node {
            state: vec!["IDLE".to_owned()],
            usable: true,
            cpus: Cpus(cpus),
            cpus_effective: Cpus(cpus),
            mem: Some(MemMb(mem)),
            threads_per_core: 1,
            weight: 1,
            partitions: (0..within.len())
                .filter(|&p| within[p] || p == surely)
                .map(|p| PARTITIONS[p].to_owned())
                .collect(),
            ..Node::default()
        })
}

fn slurm() -> impl Strategy<Value = Slurm> {
    let nodes = |count: usize| (vec(partition(), count), vec(node(count), 2..=4));
    (
        (2..=4_usize).prop_flat_map(nodes),
        weighted(0.5, select(vec![4_u32, 8])),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.2),
    )
        .prop_map(|((mut partitions, mut nodes), cap, strict_nodes, bound, cores)| {
            for (i, p) in partitions.iter_mut().enumerate() {
                p.name = PARTITIONS[i].to_owned();
                p.default = i == 0;
            }
            for (i, n) in nodes.iter_mut().enumerate() {
                n.name = format!("n{i}");
                n.threads_per_core = if cores { 2 } else { 1 };
            }
            for p in &mut partitions {
                let within = nodes.iter().filter(|n| n.partitions.contains(&p.name));
                p.nodes = within.map(|n| n.name.clone()).collect();
            }
            let params = if cores { "CR_CORE_MEMORY" } else { "CR_CPU_MEMORY" };
            Slurm {
                now: DAWN,
                nodes,
                partitions,
                reservations: Vec::new(),
                config: SlurmConfig {
                    select_type: "select/cons_tres".into(),
                    select_params: vec![params.into()],
                    ..SlurmConfig::default()
                },
                qos: vec![
                    Qos { name: "normal", per_user: cap },
                    Qos { name: "flex", per_user: None },
                ],
                bound: if bound { vec![(3, "pb".to_owned())] } else { Vec::new() },
                strict_nodes,
                jobs: Vec::new(),
                started: Vec::new(),
                next_id: 1,
            }
        })
}

pub fn setup() -> impl Strategy<Value = Setup> {
    let choice = || prop_oneof![3 => Just(UserChoice::Follow), 1 => Just(UserChoice::Ignore)];
    let policy = (
        prop::bool::weighted(0.7),
        prop_oneof![Just(NoRoom::Leave), Just(NoRoom::Open)],
        choice(),
        choice(),
        any::<bool>(),
    )
        .prop_map(|(always_place, no_room, user_partition, user_nodes, eager)| {
            let usual = Policy { mode: Mode::Enforce, ..Policy::default() };
            let usual = Policy { always_place, no_room, user_partition, user_nodes, ..usual };
            // Pins wherever two nodes have room.
            if eager { Policy { min_gain: Some(0.0), min_ratio_gain: 0.0, ..usual } } else { usual }
        });
    let waiting = (any::<bool>(), any::<bool>(), any::<bool>(), select(vec![300_i64, 3600]));
    let flex = (
        any::<bool>(),
        select(vec![vec![1, 2, 3], vec![1], vec![]]),
        any::<bool>(),
        prop::bool::weighted(0.8),
    );
    (policy, waiting, 1..=6_usize, any::<bool>(), slurm(), any::<bool>(), flex).prop_map(
        |(policy, (open, wait, widen, budget), batch, opens, slurm, undone, flex)| Setup {
            flex: flex.0,
            flexers: flex.1,
            looks: flex.3,
            limits: limits::Settings {
                min_idle_share: 0.05,
                count_pending: flex.2,
                lower_below: 0.01,
                hysteresis: 5,
                ceiling: 2.0,
                pulse: 60,
                cooldown: 300,
                flex_qos: "flex".to_owned(),
                revert_after: 60,
            },
            waiting: Settings {
                release_after: 60,
                interval: 60,
                // With neither, a job waits for as long as others are tied to the nodes.
                open: open || !widen,
                wait_for_room: wait && policy.always_place,
                widen,
                budget_fat: budget,
                budget_slim: 2 * budget,
                fat_mb_per_cpu: 3000.0,
                stepped: None,
            },
            policy,
            batch,
            opens,
            slurm,
            undone,
        },
    )
}

fn spec() -> impl Strategy<Value = Spec> {
    let size = (
        select(vec![1_u32, 1, 2, 3, 4, 6, 8, 16]),
        prop::bool::weighted(0.2),
        any::<bool>(),
        prop_oneof![
            3 => select(vec![500_u64, 1000, 2000, 4000]).prop_map(|mb| MemPer::Cpu(MemMb(mb))),
            2 => select(vec![1000_u64, 4000, 8000, 20_000]).prop_map(|mb| MemPer::Node(MemMb(mb))),
            1 => Just(MemPer::Unset),
        ],
        prop_oneof![
            4 => select(vec![5_u32, 20, 60, 300, 1000]).prop_map(Limit::At),
            1 => Just(Limit::Unset),
        ],
        select(vec![20_i64, 200, 1000, 5000, 50_000]),
        prop_oneof![5 => Just(1_u32), 1 => 2..=4_u32],
    );
    let when = (
        prop::bool::weighted(0.08),
        prop_oneof![8 => Just(0_i64), 1 => Just(100_i64)],
        weighted(0.1, any::<Index>()),
        prop::bool::weighted(0.05),
    );
    let own = (
        prop_oneof![3 => Just(Vec::new()), 2 => vec(any::<Index>(), 1..=3)],
        weighted(0.1, any::<Index>()),
        weighted(0.1, any::<Index>()),
        any::<bool>(),
        prop::bool::weighted(0.1),
        weighted(0.3, any::<Index>()),
    );
    (1..=3_u32, size, when, own, 1..1000_u32).prop_map(
        |(
            uid,
            (cpus, tasks, one_node, mem, limit, runs, array),
            (held, begin, after, exclusive),
            (partitions, node, exclude, names_qos, comment, site),
            priority,
        )| Spec {
            uid,
            cpus,
            tasks,
            one_node,
            mem,
            limit,
            runs,
            array,
            held,
            begin,
            after,
            partitions,
            node,
            exclude,
            exclusive,
            names_qos,
            priority,
            comment,
            site,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let which = any::<Index>;
    prop_oneof![
        20 => (spec(), prop::bool::weighted(0.9)).prop_map(|(s, fresh)| Event::Submit(Box::new(s), fresh)),
        8 => select(vec![0_i64, 1, 5, 20, 61, 61, 61, 130, 400, 4000]).prop_map(Event::Pass),
        5 => Just(Event::Look),
        10 => Just(Event::Work),
        6 => (1..=4_usize).prop_map(Event::Hands),
        1 => (0..4_u32).prop_map(Event::Refuse),
        3 => (1..=5_usize).prop_map(Event::Cut),
        1 => Just(Event::Kill),
        1 => Just(Event::Switch),
        1 => Just(Event::Undo),
        2 => which().prop_map(Event::Qos),
        1 => which().prop_map(Event::Requeue),
        1 => which().prop_map(Event::Cancel),
        3 => which().prop_map(Event::End),
        1 => which().prop_map(Event::Hold),
        1 => (which(), vec(which(), 0..=3)).prop_map(|(j, list)| Event::Partitions(j, list)),
        1 => (which(), weighted(0.5, which())).prop_map(|(j, node)| Event::Nodes(j, node)),
        1 => (which(), any::<bool>()).prop_map(|(j, empty)| Event::Comment(j, empty)),
        2 => which().prop_map(Event::Node),
        1 => (which(), select(vec!["UP", "UP", "DOWN", "DRAIN"])).prop_map(|(p, s)| Event::Partition(p, s)),
        1 => (which(), select(vec![0_i64, 600])).prop_map(|(n, at)| Event::Reserve(n, at)),
        1 => Just(Event::Unreserve),
    ]
}

pub fn history() -> impl Strategy<Value = (Setup, Vec<Event>)> {
    (setup(), vec(event(), 5..120))
}
