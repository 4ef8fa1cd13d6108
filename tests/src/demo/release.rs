//! A pin that cannot start its job is taken back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sjp_tests::{Job, RunAs, Signal, Sjpd, TestCluster, wait_for};

use crate::pass::end_jobs;

/// The longest that anything here may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// The longest that Slurm is waited for to say why the job waits: less than the pin lasts.
const MOMENT: Duration = Duration::from_secs(2);
/// How often the situation is tried to be made.
const TRIES: usize = 3;

/// The example that `sjp place` is asked about, and that is then submitted.
pub const EXAMPLE: [&str; 6] = ["--cpus", "8", "--mem", "16G", "--time", "60"];
/// The same for sbatch.
const SBATCH: [&str; 7] =
    ["-J", "example", "-c8", "--mem=16G", "-t60", "-o/dev/null", "--wrap=exec sleep 1000"];

/// What happened.
#[derive(Debug)]
pub struct Release {
    /// The node of the pin.
    pub node: String,
    /// The job while it could not start.
    pub before: Job,
    /// The job once it ran.
    pub after: Job,
    /// What sjpd logged about the release.
    pub log: Vec<String>,
}

/// Asks `sjp place` about the example until it knows that `node` has `free` CPUs, and
/// returns what it said as JSON.
///
/// # Errors
/// When it does not know in a minute.
pub fn place_example(cluster: &TestCluster, node: &str, free: u64) -> Result<Value> {
    let args: Vec<&str> = ["--json", "place"].into_iter().chain(EXAMPLE).collect();
    wait_for(DEADLINE, &format!("sjp sees {free} free CPUs on {node}"), || {
        // "no room" is no code 0, and comes to pass: nodes are freed a moment after jobs.
        let out = cluster.sjp(&args)?;
        let said: Value = serde_json::from_str(&out.stdout)
            .with_context(|| format!("sjp place printed no JSON: {}", out.stderr))?;
        Ok(if free_cpus(&said, node) == Some(free) { Ok(said) } else { Err(out.stdout) })
    })
}

fn free_cpus(said: &Value, node: &str) -> Option<u64> {
    let candidates = said["candidates"].as_array()?;
    candidates.iter().find(|c| c["node"] == node)?["cpus_free"].as_u64()
}

/// Takes the node of the pin away at the moment of the submission, and waits until sjpd
/// has taken the pin back and the job runs elsewhere. `said` is what `sjp place` said.
///
/// # Errors
/// When the situation cannot be made, or the job does not come free.
pub fn run(cluster: &TestCluster, sjpd: &mut Sjpd, said: &Value) -> Result<Release> {
    let node = said["placement"]["pin"].as_str();
    let node = node.with_context(|| format!("sjp place pins the example nowhere: {said}"))?;
    let free = free_cpus(said, node).context("the pinned node is no candidate")?.to_string();
    let list = format!("--nodelist={node}");
    let cpus = format!("-c{free}");
    for _ in 0..TRIES {
        sjpd.signal(Signal::SIGSTOP)?;
        let made = cluster
            .salloc(RunAs::user(2), &["-n1", &cpus, "--mem=100M", "-t60", &list])
            .and_then(|other| Ok((other, cluster.sbatch_as(RunAs::user(1), &SBATCH)?)));
        // At once: how long its next poll waits depends on how long the last one took.
        sjpd.signal(Signal::SIGCONT)?;
        let (other, id) = made?;
        let before = looked_at(cluster, id)?;
        if before.required_nodes != node || !before.pending() {
            // sjpd was stopped while it wrote, or Slurm was quicker: once more.
            end_jobs(cluster, &[other, id])?;
            continue;
        }
        cluster.wait_started(id)?;
        let log = wait_for(DEADLINE, "sjpd has logged the release", || {
            let log = release_log(cluster, id);
            Ok(if log.len() >= 2 { Ok(log) } else { Err(format!("{log:?}")) })
        })?;
        let after = cluster.job(id)?;
        end_jobs(cluster, &[other, id])?;
        return Ok(Release { node: node.to_string(), before, after, log });
    }
    bail!("the example was not pinned to {node} in {TRIES} tries");
}

/// The job once Slurm has said why it waits, or has started it; a moment later at most.
fn looked_at(cluster: &TestCluster, id: u32) -> Result<Job> {
    let begin = Instant::now();
    cluster.wait_job(id, DEADLINE, "was looked at by Slurm", |job| {
        !job.pending() || job.reason != "None" || begin.elapsed() > MOMENT
    })
}

/// The words of sjpd's log about the release of a job.
fn release_log(cluster: &TestCluster, id: u32) -> Vec<String> {
    let of_job = |d: &Value| d["event"] == "release" && d["job"] == id;
    let words = |d: &Value| d["words"].as_str().map(str::to_string);
    cluster.decisions().iter().filter(|d| of_job(d)).filter_map(words).collect()
}
