//! Bursts: many submissions in a row, faster than sjpd looks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sjp_tests::{ClusterSpec, RunAs, TestCluster};

use crate::common::{Seen, stop_scheduling, wait_placing, wait_table};

/// Nodes of the burst's partition, CPUs and MB of each.
const NODES: usize = 40;
const CPUS: u64 = 16;
const MEM: u64 = 64_000;

/// For so long at least, room is kept for a waiting job without a pin.
const FORGOTTEN: Duration = Duration::from_secs(13);

/// What each of the burst's jobs takes.
const JOB: [&str; 4] = ["-pburst", "-c4", "--mem=8000", "-t60"];

fn cluster() -> TestCluster {
    ClusterSpec::new()
        .cloud_nodes("c[01-40]", 16, 64_000)
        .cloud_nodes("t[1-2]", 16, 64_000)
        .partition("burst", "c[01-40]", "Default=YES MaxTime=600")
        .partition("tiny", "t1", "MaxTime=600")
        .partition("small", "t2", "MaxTime=600")
        .with_sjp("", "")
        .start()
        .unwrap()
}

fn submit_all(cluster: &TestCluster, prefix: &str, count: usize, args: &[&str]) -> Vec<Seen> {
    // Looked at afterwards, so that the submissions follow each other closely.
    let name = |i: usize| format!("{prefix}{i}");
    for i in 0..count {
        let job_name = format!("--job-name={}", name(i));
        let mut all = vec![job_name.as_str(), "--output=/dev/null", "--wrap=sleep 1000"];
        all.splice(2..2, args.iter().copied());
        cluster.sbatch_as(RunAs::user(1), &all).unwrap();
    }
    let jobs = cluster.jobs().unwrap();
    (0..count)
        .map(|i| {
            let (answer, words) = crate::common::answered(cluster, &name(i));
            let job = jobs.iter().find(|j| j.name == name(i)).unwrap().clone();
            Seen { job, answer, words }
        })
        .collect()
}

fn placed(seen: &[Seen]) -> usize {
    seen.iter().filter(|s| s.answer.placed).count()
}

#[test]
fn two_hundred_in_a_row_are_promised_each_cpu_once() {
    let cluster = cluster();
    // A node unlike the rest, so that a pin is worth it from the first job on.
    cluster.fill_node("c01", 12, 56_000).unwrap();
    // Polls at their usual pace: the burst runs between them.
    let sjpd = cluster.start_sjpd("").unwrap();
    wait_placing(&cluster);

    // With Slurm scheduling: each starts at once, on the node it was promised.
    let seen = submit_all(&cluster, "runs", 30, &JOB);
    assert_eq!(placed(&seen), 30);
    for s in &seen {
        let job = cluster.wait_started(s.job.id).unwrap();
        assert!(s.pin().is_empty() || s.pin() == job.nodes, "{s:?}: {}", job.nodes);
    }
    assert!(seen.iter().filter(|s| !s.pin().is_empty()).count() >= 25, "{seen:#?}");

    // Nothing starts: 200 jobs for what is left, 4 CPUs on c01 and 39 empty nodes, less the
    // 30 that run.
    stop_scheduling(&cluster);
    let left = usize::try_from((CPUS / 4) * (NODES as u64 - 1) + 1).unwrap() - 30;
    wait_table(&cluster, "the jobs that run are in the node data", |t| {
        let nodes = t["nodes"].as_array().unwrap().iter();
        let free: u64 = nodes
            .filter(|n| n["name"].as_str().unwrap().starts_with('c'))
            .map(|n| n["cpus_free"].as_u64().unwrap())
            .sum();
        free == 4 * left as u64 && t["claims"]["open"] == 0
    });
    let begin = Instant::now();
    let seen = submit_all(&cluster, "waits", 200, &JOB);
    let unpinned = seen.iter().filter(|s| s.answer.placed && s.pin().is_empty()).count();
    if begin.elapsed() < FORGOTTEN {
        assert_eq!(placed(&seen), left, "{seen:#?}");
    } else {
        // A slow machine: the room of jobs without a pin is no longer kept for them.
        assert!((left..=left + unpinned).contains(&placed(&seen)), "{seen:#?}");
    }
    assert!(placed(&seen) - unpinned >= left / 2, "{seen:#?}");
    assert!(seen.iter().all(|s| s.answer.placed || s.answer.reason == "no room"), "{seen:#?}");
    let mut used: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for job in cluster.jobs().unwrap() {
        let node = if job.pending() { job.required_nodes.clone() } else { job.nodes.clone() };
        if node.is_empty() || !(job.pending() || job.has_nodes()) {
            continue;
        }
        let filled = job.name == sjp_tests::FILL_JOB_NAME;
        let (cpus, mem) = if filled { (12, 56_000) } else { (4, 8000) };
        let sum = used.entry(node).or_default();
        *sum = (sum.0 + cpus, sum.1 + mem);
    }
    assert!(used.len() >= NODES / 2, "{used:?}");
    for (node, (cpus, mem)) in used {
        assert!(cpus <= CPUS && mem <= MEM, "{node} is promised {cpus} CPUs and {mem} MB");
    }

    // Room for one, and ten that are not pinned: several tasks; an array.
    for (partition, node, what) in [("tiny", "t1", "-n16"), ("small", "t2", "--array=1-4")] {
        let args = match partition {
            "tiny" => vec!["-p", partition, what, "--mem-per-cpu=100", "-t60"],
            _ => vec!["-p", partition, what, "-c4", "--mem=100", "-t60"],
        };
        let seen = submit_all(&cluster, partition, 10, &args);
        assert_eq!(placed(&seen), 1, "{node}: {seen:#?}");
        assert!(seen[0].answer.placed && seen[0].pin().is_empty(), "{:?}", seen[0]);
        assert!(seen[1..].iter().all(|s| s.answer.reason == "no room"), "{seen:#?}");
    }
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
