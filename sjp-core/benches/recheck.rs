//! How long one recheck takes, and what Slurm's own plans add to it:
//! `cargo bench -p sjp-core --bench recheck`.
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sjp_core::cluster::{Job, JobState, Node, Partition, SlurmConfig};
use sjp_core::config::{Mode, Policy};
use sjp_core::ledger::Ledger;
use sjp_core::mark::Mark;
use sjp_core::publish::{Extra, RoomsInput, RosterInput, build_roster};
use sjp_core::units::{Cpus, Limit, MemMb, MemPer};
use sjp_core::waiting::{Settings, Snapshot, Waiting, recheck};
use std::hint::black_box;

const NOW: i64 = 100_000;
const NODES: u32 = 5_000;
const JOBS: u32 = 9_000;

/// Seven of eight nodes are full.
fn nodes() -> Vec<Node> {
    (0..NODES)
        .map(|i| {
            let fat = i % 5 == 0;
            let mem = if fat { 1_024_000 } else { 256_000 };
            let used = if i % 8 == 0 { i % 60 } else { 64 };
            Node {
                name: format!("n{i:05}"),
                usable: true,
                cpus: Cpus(64),
                cpus_effective: Cpus(64),
                cpus_alloc: Cpus(used),
                mem: Some(MemMb(mem)),
                mem_alloc: MemMb(u64::from(i) * 17 % mem),
                threads_per_core: 1,
                weight: 1,
                partitions: if fat {
                    vec!["fat".into()]
                } else {
                    vec!["slim".into(), "long".into()]
                },
                ..Node::default()
            }
        })
        .collect()
}

/// Jobs that wait where sjp put them; backfill has a plan for the first `planned`.
fn jobs(planned: u32) -> Vec<Job> {
    (0..JOBS)
        .map(|i| Job {
            id: i + 1,
            array_tasks: 1,
            uid: 1000 + i % 40,
            state: JobState::Pending,
            reason: "Priority".into(),
            partitions: vec!["long".into(), "slim".into()],
            submit: NOW - 300,
            eligible: Some(NOW - 300),
            time_limit: Limit::At(60 + i % 600),
            cpus: Cpus(1 + i % 16),
            mem: MemPer::Node(MemMb(u64::from(1 + i % 16) * (1_000 + u64::from(i % 9) * 1_500))),
            node_count: 1,
            tasks: 1,
            batch: true,
            priority: JOBS - i,
            start: (i < planned).then_some(NOW + 3600),
            sched_nodes: if i < planned { vec![format!("n{:05}", i * 8)] } else { Vec::new() },
            ..Job::default()
        })
        .collect()
}

fn bench(c: &mut Criterion) {
    let nodes = nodes();
    let partitions: Vec<Partition> = [("slim", 10), ("long", 10), ("fat", 8)]
        .iter()
        .map(|&(name, tier)| Partition {
            name: name.into(),
            state: "UP".into(),
            tier,
            max_time: Limit::Unlimited,
            over_subscribe: "NO".into(),
            ..Partition::default()
        })
        .collect();
    let config = SlurmConfig {
        select_type: "select/cons_tres".into(),
        select_params: vec!["CR_CPU_MEMORY".into()],
        ..SlurmConfig::default()
    };
    let policy = Policy { mode: Mode::Enforce, ..Policy::default() };
    let roster = build_roster(&RosterInput {
        nodes: &nodes,
        partitions: &partitions,
        config: &config,
        qos: &[],
        bound_users: &[],
        policy: &policy,
    });
    let mark = Mark::parse("sjp:placed=long,slim;job=4c,16G,4.0G/c;id=7f3a").unwrap_or_default();
    let mut group = c.benchmark_group("recheck");
    group.sample_size(10);
    for (planned, wait) in [(0, false), (100, false), (500, false), (100, true)] {
        let jobs = jobs(planned);
        let waiting: Vec<Waiting<'_>> =
            jobs.iter().map(|job| Waiting { job, mark: &mark }).collect();
        let ledger = Ledger::new();
        let snapshot = Snapshot {
            roster: &roster,
            input: RoomsInput {
                nodes: &nodes,
                nodes_asked_at: NOW as f64,
                reservations: &[],
                jobs: &jobs,
                ledger: &ledger,
                qos: &[],
                config: &config,
                now: NOW,
                extra: Extra::default(),
            },
        };
        let settings = Settings {
            release_after: 60,
            interval: 60,
            open: true,
            wait_for_room: wait,
            widen: true,
            budget_fat: 3600,
            budget_slim: 4 * 3600,
            fat_mb_per_cpu: 6000.0,
            stepped: None,
        };
        let found = recheck::plan(&snapshot, &waiting, &settings);
        println!("{} jobs looked at, {} changes", found.looked_at, found.intents.len());
        let name =
            if wait { "9000 jobs, 5000 nodes, wait for room" } else { "9000 jobs, 5000 nodes" };
        group.bench_function(BenchmarkId::new(name, format!("{planned} planned")), |b| {
            b.iter(|| recheck::plan(black_box(&snapshot), black_box(&waiting), &settings))
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
