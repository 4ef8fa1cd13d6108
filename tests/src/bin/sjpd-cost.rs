//! What sjpd costs the host of slurmctld: CPU of sjpd and of the commands it runs,
//! and its memory, on a real slurmctld with many nodes and a long queue, while jobs
//! are submitted.
//!
//! `cargo run --release -p sjp-tests --bin sjpd-cost -- [SECONDS [RATE [NODES
//! [PENDING [STARTED]]]]]` (600 s, 10 submissions a second, 5,000 nodes, 9,000
//! pending jobs, 1,000 with nodes) prints a table for docs/benchmarks.md. It needs
//! root, and a release build of sjpd and the modules (`make stage PROFILE=release`,
//! `cargo build --release -p sjpd`). The nodes are cloud nodes without a slurmd.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sjp_tests::{ClusterSpec, TestCluster, cpu_seconds};

/// Jobs of the stream that stay in the queue before they are cancelled, so that the
/// queue keeps its length.
const STREAM: usize = 100;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |what: &str, default: usize| match args.next() {
        Some(word) => word.parse::<usize>().with_context(|| format!("{what}: {word:?}")),
        None => Ok(default),
    };
    let seconds = number("SECONDS", 600)?;
    let rate = number("RATE", 10)?.max(1);
    let nodes = number("NODES", 5000)?.clamp(2, 60_000);
    let pending = number("PENDING", 9000)?;
    let started = number("STARTED", 1000)?;
    let cluster = ClusterSpec::many_nodes(nodes).start()?;
    for i in 0..started {
        // Shapes that differ, so that nodes do too.
        let (cpus, mem) =
            (format!("-c{}", 1 + i % 48), format!("--mem={}M", 1000 + i * 97 % 90_000));
        cluster.sbatch(&[&cpus, &mem, "-t2000", "--wrap=true"])?;
    }
    for _ in 0..pending {
        cluster.sbatch(&["-H", "-c4", "--mem=16G", "-t60", "--wrap=true"])?;
    }
    let mut sjpd = cluster.start_sjpd("")?;
    sjpd.wait_ready()?;
    let pid = sjpd.pid();

    let (begin, before) = (Instant::now(), cpu_seconds(pid)?);
    let mut stream = VecDeque::new();
    let mut submitted = 0u32;
    while begin.elapsed() < Duration::from_secs(seconds as u64) {
        let due = begin + Duration::from_secs(1).mul_f64(f64::from(submitted) / rate as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.push_back(submit(&cluster, submitted)?);
        submitted += 1;
        if stream.len() > STREAM
            && let Some(old) = stream.pop_front()
        {
            cluster.cmd("scancel", &[&old.to_string()])?;
        }
    }
    let (took, after) = (begin.elapsed().as_secs_f64(), cpu_seconds(pid)?);
    let share = |seconds: f64| 100.0 * seconds / took;
    println!(
        "Slurm {}, {nodes} nodes, {pending} pending jobs and {started} with nodes; {submitted} \
         submissions in {took:.0} s ({:.1} a second); load {}\n",
        cluster.version(),
        f64::from(submitted) / took,
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    );
    println!("| what | of a core |\n|---|---|");
    println!("| sjpd | {:.2}% |", share(after.own - before.own));
    println!("| the commands it ran | {:.2}% |", share(after.children - before.children));
    let all = after.own - before.own + after.children - before.children;
    println!("| together | {:.2}% |", share(all));
    println!("\nMost memory of sjpd: {} kB (VmHWM).\n", memory(pid)?);
    println!("{}", cluster.sjp(&["status"])?.stdout);
    sjpd.stop()?;
    cluster.stop()
}

/// A small job that can start at once; every other one is held.
fn submit(cluster: &TestCluster, number: u32) -> Result<u32> {
    let mem = format!("--mem={}M", 1000 + number % 50 * 500);
    let mut args = vec!["-c2", mem.as_str(), "-t60", "--wrap=true"];
    if number.is_multiple_of(2) {
        args.push("-H");
    }
    cluster.sbatch(&args)
}

/// The most memory a process has had, in kB.
fn memory(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).context("no VmHWM")?;
    line.trim().trim_end_matches("kB").trim().parse().context("VmHWM")
}
