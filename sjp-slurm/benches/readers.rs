//! How long the readers take at the sizes of a large cluster: 5,000 nodes,
//! 10,000 jobs as squeue's columns, and a queue of 20 MB as JSON. The records
//! are real ones, repeated under other names.
#![allow(clippy::expect_used, reason = "a benchmark that cannot go on fails")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use jiff::tz::TimeZone;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;

const NONCE: u64 = 0x0123_4567_89ab_cdef;

fn asset(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/assets/versions").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// `scontrol show nodes -d -o` of 5,000 nodes.
fn nodes_text() -> String {
    let one = asset("22.05/scontrol-show-nodes-d-o.txt");
    let records: Vec<&str> = one.lines().collect();
    let mut text = String::new();
    for n in 0..5_000 {
        let record = records[n % records.len()];
        let (_, rest) = record.split_once(' ').expect("a record has fields");
        let _ = writeln!(text, "NodeName=node{n:05} {rest}");
    }
    text
}

/// What the columns of `squeue::Query` print for 10,000 jobs.
fn queue_text() -> String {
    let mut text = String::new();
    for n in 0..10_000 {
        let running = n % 10 == 0;
        let (state, nodes, start) = if running {
            ("RUNNING", "node[00001-00004,00007]", "1796056809")
        } else {
            ("PENDING", "", "N/A")
        };
        let _ = writeln!(
            text,
            "{n}|b{NONCE:016x}|{n}|N/A|{}|{state}|slim,fat|(null)|{nodes}|1796056809|1796056809|\
             {start}|N/A|1-00:00:00|4|1|1|1|2000M|cpu=4,mem=8000M,node=1,billing=4|N/A|N/A|N/A|N/A|\
             10500|OK|(null)|N/A|(null)|r{NONCE:016x}||n{NONCE:016x}|normal|q{NONCE:016x}|acc|\
             c{NONCE:016x}|Priority|a{NONCE:016x}|sjp:pin=node00001;from=slim,fat;job=4c,8G,2.0G/c;id=7f3a|e{NONCE:016x}",
            1000 + n % 50,
        );
    }
    text
}

/// `squeue --json` of 24.11, its jobs repeated up to `bytes`.
fn queue_json(bytes: usize) -> String {
    let one = asset("24.11/squeue-json.json");
    let start = one.find('[').expect("a list of jobs") + 1;
    let end = one.find("\n  ],").expect("the end of the list");
    let jobs = &one[start..end];
    let mut text = one[..start].to_owned();
    while text.len() + jobs.len() < bytes {
        text.push_str(jobs);
        text.push(',');
    }
    text + jobs + &one[end..]
}

fn readers(c: &mut Criterion) {
    let mut group = c.benchmark_group("readers");
    group.sample_size(20);

    let text = nodes_text();
    group.throughput(Throughput::Bytes(text.len() as u64));
    let read = sjp_slurm::nodes::read(&text);
    assert_eq!((read.records.len(), read.errors.len()), (5_000, 0));
    group.bench_function("nodes_5000", |b| b.iter(|| sjp_slurm::nodes::read(black_box(&text))));

    let text = queue_text();
    group.throughput(Throughput::Bytes(text.len() as u64));
    let query = sjp_slurm::squeue::Query::new(NONCE);
    let read = query.read(&text, &TimeZone::UTC);
    assert_eq!((read.records.len(), read.errors.len()), (10_000, 0), "{:?}", read.errors.first());
    group.bench_function("squeue_10000", |b| {
        b.iter(|| query.read(black_box(&text), &TimeZone::UTC));
    });

    let text = queue_json(20_000_000);
    group.throughput(Throughput::Bytes(text.len() as u64));
    let read = sjp_slurm::json::marks(text.as_bytes(), None);
    assert!(read.records.len() > 1_000 && read.errors.is_empty(), "{:?}", read.errors.first());
    group.bench_function("json_20mb", |b| {
        b.iter(|| sjp_slurm::json::marks(black_box(text.as_bytes()), None));
    });
    let wanted = HashSet::from([4, 7]);
    group.bench_function("json_20mb_two_jobs", |b| {
        b.iter(|| sjp_slurm::json::marks(black_box(text.as_bytes()), Some(&wanted)));
    });
    group.finish();
}

criterion_group!(benches, readers);
criterion_main!(benches);
