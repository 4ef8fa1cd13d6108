//! A thousand pending jobs in one recheck: paced, the useful changes first, and squeue
//! beside it.

use crate::common::{cancel, mark, start, stop_scheduling};
use sjp_tests::{RunAs, TestCluster, wait_for};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const JOBS: usize = 1000;
const PER_SECOND: f64 = 50.0;

/// Times of squeue, one after the other, while `body` runs; median and longest.
fn squeue_beside(cluster: &TestCluster, body: impl FnOnce()) -> (Duration, Duration, usize) {
    let over = AtomicBool::new(false);
    let mut times = std::thread::scope(|scope| {
        let loop_of = scope.spawn(|| {
            let mut times = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                cluster.cmd("squeue", &["-h", "-j", "1"]).unwrap();
                times.push(begin.elapsed());
            }
            times
        });
        body();
        over.store(true, Ordering::Relaxed);
        loop_of.join().unwrap()
    });
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    (median, times.last().copied().unwrap_or_default(), times.len())
}

/// How many jobs sjpd says that it has moved and opened.
fn done(cluster: &TestCluster) -> (u64, u64) {
    let text = std::fs::read_to_string(cluster.dir().join("run/status.json")).unwrap_or_default();
    let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let count = |key: &str| status["waits"][key].as_u64().unwrap_or(0);
    (count("moved"), count("opened"))
}

fn submit_all(cluster: &TestCluster) {
    let left = AtomicUsize::new(JOBS);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    .is_ok()
                {
                    let args =
                        ["-c8", "--mem=8000M", "-t30", "--output=/dev/null", "--wrap=sleep 9"];
                    cluster.sbatch_as(RunAs::user(1), &args).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_thousand_jobs_are_chosen_again_at_a_pace() {
    let cluster = start();
    let full: Vec<u32> =
        ["s01", "s02", "f01"].map(|n| cluster.fill_node(n, 16, 16_000).unwrap()).into();
    let settings = |interval: f64| {
        format!(
            "[cadence]\nnode_poll_interval = 0.5\nqueue_poll_interval = 2.0\n\
             max_updates_per_second = {PER_SECOND:.1}\n[policy]\nalways_place = true\n\
             [recheck]\ninterval = {interval:.1}\n"
        )
    };
    let sjpd = cluster.start_sjpd(&settings(0.0)).unwrap();
    cluster.wait_placing().unwrap();
    stop_scheduling(&cluster);
    let begin = Instant::now();
    submit_all(&cluster);
    println!("{JOBS} jobs submitted in {:.1?}", begin.elapsed());
    let before = squeue_beside(&cluster, || {
        let until = Instant::now() + Duration::from_secs(3);
        wait_for(Duration::from_secs(10), "a moment", || {
            Ok(if Instant::now() >= until { Ok(()) } else { Err("not yet") })
        })
        .unwrap();
    });
    assert_eq!(sjpd.stop().unwrap(), 0);

    // fat has room for two of them.
    cancel(&cluster, &full[2..]);
    let begin = Instant::now();
    let sjpd = cluster.start_sjpd(&settings(600.0)).unwrap();
    let during = squeue_beside(&cluster, || {
        wait_for(Duration::from_secs(240), "every job is seen to", || {
            let (moved, opened) = done(&cluster);
            let there = moved == 2 && opened == JOBS as u64 - 2;
            Ok(if there { Ok(()) } else { Err(format!("{moved} moved, {opened} opened")) })
        })
        .unwrap();
    });
    let took = begin.elapsed();
    println!("{JOBS} jobs chosen again, {JOBS} updates, in {took:.1?}");
    println!("squeue beside it: median, longest, how many: before {before:?}, during {during:?}");

    // No faster than allowed, the moves first, one recheck.
    assert!(took.as_secs_f64() >= (JOBS - 1) as f64 / PER_SECOND, "{took:?}");
    let done: Vec<String> = cluster
        .decisions()
        .iter()
        .filter(|e| e["stage"] == "done")
        .filter_map(|e| e["event"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(done[..2], ["move", "move"]);
    let left: Vec<u64> =
        cluster.events("recheck").iter().filter_map(|e| e["left"].as_u64()).collect();
    assert!(left.len() > 1 && left.last() == Some(&0), "in batches: {left:?}");
    assert!(left.is_sorted_by(|a, b| a > b), "{left:?}");
    let jobs = cluster.jobs().unwrap();
    let opened = jobs.iter().filter(|j| !mark(j, "open").is_empty()).count();
    assert_eq!(opened, JOBS - 2);
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.cmd("scancel", &["-t", "PENDING", "-u", "root"]).unwrap();
    cluster.stop().unwrap();
}
