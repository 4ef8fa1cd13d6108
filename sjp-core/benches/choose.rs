//! How long one decision takes, without Lua and without the table:
//! `cargo bench -p sjp-core --bench choose`.
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sjp_core::cluster::{Node, Partition, SlurmConfig};
use sjp_core::config::{Mode, Policy};
use sjp_core::ledger::Ledger;
use sjp_core::place::{Context, Scratch, choose};
use sjp_core::publish::{Extra, RoomsInput, RosterInput, build_rooms, build_roster};
use sjp_core::request::JobRequest;
use sjp_core::units::{Cpus, Limit, MemMb, MemPer};
use std::hint::black_box;

/// `distinct`: every node has free room of its own; else about 300 shapes.
fn nodes(count: u32, distinct: bool) -> Vec<Node> {
    (0..count)
        .map(|i| {
            let fat = i % 5 == 0;
            let mem = if fat { 1_024_000 } else { 256_000 };
            let used = if distinct {
                (i * 7 % 57, u64::from(i) * 17 % mem)
            } else {
                (i % 3 * 16, u64::from(i % 100) * 2048)
            };
            Node {
                name: format!("n{i:05}"),
                usable: true,
                cpus: Cpus(64),
                cpus_effective: Cpus(64),
                cpus_alloc: Cpus(used.0),
                mem: Some(MemMb(mem)),
                mem_alloc: MemMb(used.1),
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

fn bench(c: &mut Criterion) {
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
    let mut group = c.benchmark_group("choose");
    for (kind, distinct) in [("few shapes", false), ("all distinct", true)] {
        for count in [1_000, 5_000, 10_000] {
            let nodes = nodes(count, distinct);
            let roster = build_roster(&RosterInput {
                nodes: &nodes,
                partitions: &partitions,
                config: &config,
                qos: &[],
                bound_users: &[],
                policy: &policy,
            });
            let ledger = Ledger::new();
            let input = RoomsInput {
                nodes: &nodes,
                nodes_asked_at: 0.0,
                reservations: &[],
                jobs: &[],
                ledger: &ledger,
                qos: &[],
                config: &config,
                now: 0,
                extra: Extra::default(),
            };
            let rooms = build_rooms(&roster, &input);
            let job = JobRequest {
                cpus: Cpus(4),
                tasks: 1,
                min_nodes: 1,
                batch: true,
                array_tasks: 1,
                mem: MemPer::Node(MemMb(16_384)),
                time_limit: Limit::At(60),
                ..JobRequest::default()
            };
            let ctx =
                Context { roster: &roster, rooms: &rooms, promised: &[], now: 0, permitted: None };
            let mut scratch = Scratch::new();
            group.bench_function(BenchmarkId::new(kind, count), |b| {
                b.iter(|| choose(black_box(&ctx), black_box(&job), &mut scratch))
            });
            c_rooms(&mut group, kind, count, &roster, &input);
        }
    }
    group.finish();
}

fn c_rooms(
    group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>,
    kind: &str,
    count: u32,
    roster: &sjp_core::publication::Roster,
    input: &RoomsInput<'_>,
) {
    group.bench_function(BenchmarkId::new(format!("build rooms, {kind}"), count), |b| {
        b.iter(|| build_rooms(black_box(roster), black_box(input)))
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
