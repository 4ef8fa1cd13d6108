//! Publishing and reading at several sizes, every node in a group of its own
//! (the worst case: real clusters have far fewer groups than nodes).
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{claim, distinct_rooms, roster};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sjp_core::publication::RoomView;
use sjp_table::{Capacity, Meta, Publisher, Reader, now_ns};
use std::hint::black_box;

const SIZES: [usize; 3] = [1_000, 5_000, 10_000];

fn publish(c: &mut Criterion) {
    let mut group = c.benchmark_group("publish");
    for nodes in SIZES {
        let dir = tempfile::tempdir().unwrap();
        let mut publisher = Publisher::create(dir.path(), Capacity::for_size(nodes)).unwrap();
        let (roster, rooms) = (roster(nodes), distinct_rooms(nodes, 1));
        group.bench_function(BenchmarkId::new("rooms", nodes), |b| {
            b.iter(|| {
                let meta = Meta { data_time_ns: now_ns(), claims_taken: 0 };
                publisher.publish(&roster, 1, &rooms, meta).unwrap();
            });
        });
        let mut id = 1;
        group.bench_function(BenchmarkId::new("rooms and roster", nodes), |b| {
            b.iter(|| {
                id += 1;
                let meta = Meta { data_time_ns: now_ns(), claims_taken: 0 };
                publisher.publish(&roster, id, &rooms, meta).unwrap();
            });
        });
    }
    group.finish();
}

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("read");
    for nodes in SIZES {
        let dir = tempfile::tempdir().unwrap();
        let mut publisher = Publisher::create(dir.path(), Capacity::for_size(nodes)).unwrap();
        let (roster, rooms) = (roster(nodes), distinct_rooms(nodes, 1));
        publisher.publish(&roster, 1, &rooms, Meta::default()).unwrap();
        let mut reader = Reader::attach(&publisher.link()).unwrap();
        // Every field of every group.
        group.bench_function(BenchmarkId::new("all groups", nodes), |b| {
            b.iter(|| {
                reader
                    .read_with_roster(|view, roster| {
                        let mut best = (f64::MAX, 0);
                        for i in 0..view.group_count() {
                            let Some(g) = view.group(i) else { break };
                            if g.cpus >= 8 && g.mem >= 64 && g.phi < best.0 {
                                best = (g.phi, black_box(g).first);
                            }
                        }
                        black_box((best, roster.psets.len()))
                    })
                    .unwrap()
            });
        });
        // Free CPUs and memory first, the rest where they suffice for half.
        group.bench_function(BenchmarkId::new("free, then half the groups", nodes), |b| {
            b.iter(|| {
                reader
                    .read(|view| {
                        let mut best = (f64::MAX, 0);
                        for i in 0..view.group_count() {
                            let Some((cpus, mem)) = view.free(i) else { break };
                            if cpus < 64 || mem < 64 {
                                continue;
                            }
                            let Some(g) = view.group(i) else { break };
                            if g.phi < best.0 {
                                best = (g.phi, g.first);
                            }
                        }
                        black_box(best)
                    })
                    .unwrap()
            });
        });
        // What a change of the roster costs the first submission after it.
        let mut id = 1;
        group.bench_function(BenchmarkId::new("a new roster", nodes), |b| {
            b.iter_custom(|times| {
                let mut total = std::time::Duration::ZERO;
                for _ in 0..times {
                    id += 1;
                    publisher.publish(&roster, id, &rooms, Meta::default()).unwrap();
                    let start = std::time::Instant::now();
                    black_box(reader.roster().unwrap());
                    total += start.elapsed();
                }
                total
            });
        });
    }
    group.finish();
}

fn claims(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let publisher = Publisher::create(dir.path(), Capacity::for_size(1000)).unwrap();
    let reader = Reader::attach(&publisher.link()).unwrap();
    let one = claim(1);
    c.bench_function("claims/push", |b| b.iter(|| reader.push_claim(&one).unwrap()));
    let last = reader.push_claim(&one).unwrap();
    for n in [0, 500] {
        let mut list = Vec::new();
        c.bench_function(&format!("claims/read {n}"), |b| {
            b.iter(|| {
                list.clear();
                reader.claims_since(last - n, &mut list).unwrap()
            });
        });
    }
}

fn attach(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let publisher = Publisher::create(dir.path(), Capacity::for_size(10_000)).unwrap();
    let link = publisher.link();
    c.bench_function("attach", |b| b.iter(|| Reader::attach(&link).unwrap()));
}

criterion_group!(benches, publish, read, claims, attach);
criterion_main!(benches);
