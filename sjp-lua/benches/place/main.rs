//! place() through Lua, as slurmctld would see it.
//!
//! Timed is `sjp.place(job_desc, 1000, part_list)` inside Lua, one call at a
//! time, against a table that `Publisher` published. job_desc stands in for
//! Slurm's: C functions as metamethods that compare the field's name with each
//! name in 22.05's order, by a call to strcmp that the compiler may not inline,
//! and then push a value; so the price of reading a job is in the figures
//! (`job_desc alone` is that price and nothing else; with a `plain table` for
//! job_desc there is none: that is what sjp itself costs). Not in them: what Slurm
//! itself does before it calls the script, and a cold cache after other work.
//!
//! On a machine with other work to do, SJP_BENCH_CLOCK=cpu counts the thread's
//! CPU time instead of the wall clock (a call of that clock costs 0.2 us or
//! so, which is in the figures).
//!
//! 16 nodes are there for what a call costs whatever the cluster's size.
//!
//! Besides criterion's own figures each case prints median, p99 and worst of
//! the single calls.
#![allow(missing_docs, reason = "a bench")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on stops")]

#[path = "../../tests/common/cluster.rs"]
#[allow(dead_code)]
mod cluster;
mod stand_in;

use cluster::{Cluster, node, partition};
use criterion::{Criterion, criterion_group, criterion_main};
use mlua::{Function, Lua, Table};
use parking_lot::Mutex;
use sjp_core::config::Mode;
use sjp_core::publication::{Rooms, Roster};
use sjp_native::Shared;
use sjp_table::{Capacity, Meta, Publisher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A publisher, and what it publishes again and again.
struct Source {
    publisher: Publisher,
    roster: Roster,
    rooms: Rooms,
    /// How many claims are left outstanding.
    outstanding: u64,
    /// The last claim seen.
    upto: u64,
}

impl Source {
    fn publish(&mut self) {
        self.upto = self.publisher.claims_since(self.upto).unwrap().upto;
        let meta = Meta {
            data_time_ns: sjp_table::now_ns(),
            claims_taken: self.upto.saturating_sub(self.outstanding),
        };
        self.publisher.publish(&self.roster, 1, &self.rooms, meta).unwrap();
    }
}

/// Shapes of jobs that come one after the other: (CPUs, MB for each CPU).
const JOBS: [(u32, u32); 8] = [
    (1, 4_000),
    (4, 2_000),
    (8, 8_000),
    (2, 15_000),
    (16, 4_000),
    (1, 30_000),
    (4, 6_000),
    (32, 1_000),
];

/// `count` nodes of four kinds in six partitions, busy as clusters are: an
/// eighth empty, half with every CPU taken, the rest part-filled with jobs.
/// `distinct` gives every node a free shape of its own, and fills none.
fn cluster(count: usize, distinct: bool) -> Cluster {
    let mut cluster = Cluster::empty();
    cluster.policy.mode = Mode::Enforce;
    let mut seed = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for i in 0..count {
        let (cpus, mb, names): (u32, u64, &[&str]) = match i % 10 {
            0..=5 => (64, 256_000, &["batch", "short"]),
            6..=7 => (128, 512_000, &["batch", "big"]),
            8 => (64, 1_024_000, &["fat", "long"]),
            _ => (32, 128_000, &["old", "short"]),
        };
        let mut node = node(&format!("node{i:05}"), cpus, mb, names);
        let level = match random(8) {
            0 => 0,
            1..=4 if !distinct => cpus,
            _ => cpus * (30 + random(65) as u32) / 100,
        };
        let (mut used, mut taken) = (0, 0);
        while used < level {
            let (job, per_cpu) = JOBS[random(8) as usize];
            let job = job.min(level - used);
            used += job;
            taken = (taken + u64::from(job * per_cpu)).min(mb);
        }
        if distinct {
            taken = (taken + i as u64 % 997 + random(50_000)).min(mb);
        }
        node.cpus_alloc.0 = used;
        node.mem_alloc.0 = taken;
        cluster.nodes.push(node);
    }
    for name in ["batch", "short", "big", "fat", "long", "old"] {
        cluster.partitions.push(partition(name, &cluster.nodes));
    }
    cluster
}

/// A Lua state with the module, and a function that runs and times calls.
struct Caller {
    lua: Lua,
    run: Function,
}

impl Caller {
    /// `plain`: with tables for job_desc.
    fn new(dir: &std::path::Path, plain: bool) -> Self {
        let lua = Lua::new();
        let shared: &'static Mutex<Shared> = Box::leak(Box::default());
        let module = sjp_native::module_on(&lua, shared).unwrap();
        let config: Table = module.get("config").unwrap();
        config.set("state_dir", dir.to_str().unwrap()).unwrap();
        lua.globals().set("sjp", module).unwrap();
        stand_in::register(&lua);
        // Runs `count` jobs from number `first` on; returns each call's
        // nanoseconds, and how many were placed.
        let run = lua
            .load(
                "local place, job_desc, now, next_job = sjp.place, job_desc, now, next_job
                 local plain, plain_job = ..., plain_job
                 local part_list = { batch = {}, short = {}, big = {}, fat = {}, long = {}, old = {} }
                 return function(first, count)
                     local times, placed = {}, 0
                     for i = 1, count do
                         local job_desc = job_desc
                         if plain then
                             job_desc = plain_job(first + i)
                         else
                             next_job(first + i)
                         end
                         local start = now()
                         local ok = place(job_desc, 1000, part_list)
                         times[i] = now() - start
                         if ok then placed = placed + 1 end
                     end
                     return times, placed
                 end",
            )
            .call(plain)
            .unwrap();
        Self { lua, run }
    }

    fn run(&self, first: u64, count: u64) -> (Vec<u64>, u64) {
        self.run.call((first, count)).unwrap()
    }
}

/// Median, p99 and worst of single calls, in words; and the fastest tenth,
/// which other work on the machine distorts least.
fn spread(times: &mut [u64]) -> String {
    if times.is_empty() {
        return "not run".to_owned();
    }
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    format!(
        "median {:.1} us, p99 {:.1} us, worst {:.1} us, fastest tenth {:.1} us, {} calls",
        at(0.5),
        at(0.99),
        at(1.0),
        at(0.1),
        times.len()
    )
}

/// Whether the command line asks for this case: making a cluster takes time.
fn is_asked_for(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|a| !a.starts_with('-')).peekable();
    filters.peek().is_none()
        || filters.any(|f| format!("place/{name}").contains(f.trim_end_matches('$')))
}

/// Calls between two publications where no thread publishes.
const BATCH: u64 = 32;

fn place(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("place");
    group.sample_size(20).warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(2));
    for nodes in [16, 1_000, 5_000, 10_000] {
        for distinct in [false, true] {
            for (outstanding, threaded, plain) in [
                (0, false, false),
                (300, false, false),
                (0, true, false),
                (300, true, false),
                (0, false, true),
                (300, true, true),
            ] {
                let name = format!(
                    "{nodes} nodes, {}, {outstanding} claims{}{}",
                    if distinct { "all distinct" } else { "realistic" },
                    if threaded { ", publishing" } else { "" },
                    if plain { ", plain table" } else { "" }
                );
                if !is_asked_for(&name) {
                    continue;
                }
                let dir = tempfile::tempdir().unwrap();
                let cluster = cluster(nodes, distinct);
                let roster = cluster.roster();
                let rooms = cluster.rooms(&roster);
                let groups = rooms.groups.len();
                let publisher = Publisher::create(dir.path(), Capacity::for_size(nodes)).unwrap();
                let source = Source { publisher, roster, rooms, outstanding, upto: 0 };
                let source = Arc::new(Mutex::new(source));
                source.lock().publish();
                let caller = Caller::new(dir.path(), plain);
                let mut first = 0;
                let (_, placed) = caller.run(first, outstanding.max(BATCH));
                assert!(placed > 0, "jobs are placed");
                let stop = Arc::new(AtomicBool::new(false));
                let thread = threaded.then(|| {
                    let (source, stop) = (Arc::clone(&source), Arc::clone(&stop));
                    std::thread::spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            source.lock().publish();
                            std::thread::sleep(Duration::from_millis(10));
                        }
                    })
                });
                let mut all = Vec::new();
                group.bench_function(&name, |bencher| {
                    bencher.iter_custom(|count| {
                        let mut total = 0;
                        let mut left = count;
                        while left > 0 {
                            let batch = left.min(BATCH);
                            if !threaded {
                                source.lock().publish();
                            }
                            let (times, _) = caller.run(first, batch);
                            first += batch;
                            left -= batch;
                            total += times.iter().sum::<u64>();
                            all.extend(times);
                        }
                        Duration::from_nanos(total)
                    });
                });
                stop.store(true, Ordering::Relaxed);
                if let Some(thread) = thread {
                    thread.join().unwrap();
                }
                println!("    {name} ({groups} groups): {}", spread(&mut all));
                drop(caller.lua);
            }
        }
    }
    group.finish();
}

/// The price of reading the same fields of job_desc in Lua, without sjp.
fn reading(criterion: &mut Criterion) {
    let lua = Lua::new();
    stand_in::register(&lua);
    let read: Function = lua
        .load(
            "local read = load_read(); local job_desc, now = job_desc, now
             return function(count)
                 local times = {}
                 for i = 1, count do
                     next_job(i)
                     local start = now(); read(job_desc, false, false); times[i] = now() - start
                 end
                 return times
             end",
        )
        .set_name("reading")
        .eval()
        .unwrap();
    let mut all = Vec::new();
    criterion.bench_function("job_desc alone", |bencher| {
        bencher.iter_custom(|count| {
            let times: Vec<u64> = read.call(count).unwrap();
            let total = times.iter().sum::<u64>();
            all.extend(times);
            Duration::from_nanos(total)
        });
    });
    println!("    job_desc alone: {}", spread(&mut all));
}

criterion_group!(benches, reading, place);
criterion_main!(benches);
