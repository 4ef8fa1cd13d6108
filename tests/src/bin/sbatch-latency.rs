//! What sjp costs a user: the time that sbatch takes on a real slurmctld, with and
//! without `sjp.place` in job_submit.lua, in alternating blocks.
//!
//! Two times are taken of each submission: of sbatch from its start to its end, and
//! of slurmctld's work for it, which slurmctld logs. Jobs are held, so that no
//! scheduling falls in.
//!
//! `cargo run --release -p sjp-tests --bin sbatch-latency -- [SUBMISSIONS [BLOCK
//! [NODES]]]` (500 of each kind in blocks of 50, 1000 nodes) prints a table for
//! docs/benchmarks.md. It needs root, and a release build of sjpd and the modules
//! (`make stage PROFILE=release`, `cargo build --release -p sjpd`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sjp_tests::{ClusterSpec, TestCluster, wait_for};

/// The script without sjp: nothing but the answer that the job is fine.
const WITHOUT: &str = "function slurm_job_submit(job_desc, part_list, submit_uid)
    return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end
return slurm.SUCCESS
";

/// The script with sjp, as lua/job_submit.lua has it.
const WITH: &str = "package.path = \"@DIR@/sjp/?.lua;\" .. package.path
local sjp = require(\"sjp\")
sjp.config.state_dir = \"@DIR@/run\"
sjp.config.disable_file = \"@DIR@/disable\"
function slurm_job_submit(job_desc, part_list, submit_uid)
    local placed, reason = sjp.place(job_desc, submit_uid, part_list)
    if not placed and reason == \"no room\" then
        sjp.open(job_desc, submit_uid, part_list)
    end
    return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end
return slurm.SUCCESS
";

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |what: &str, default: usize| match args.next() {
        Some(word) => word.parse::<usize>().with_context(|| format!("{what}: {word:?}")),
        None => Ok(default),
    };
    let submissions = number("SUBMISSIONS", 500)?;
    let block = number("BLOCK", 50)?.clamp(1, submissions.max(1));
    let nodes = number("NODES", 1000)?.clamp(2, 60_000);
    let cluster = ClusterSpec::many_nodes(nodes).start()?;
    let sjpd = cluster.start_sjpd("")?;
    // Shapes of room that differ, so that there is something to choose.
    cluster.fill_node("s1", 32, 16_000)?;
    cluster.fill_node("f1", 48, 64_000)?;
    cluster.write_job_submit(WITH)?;
    wait_for(Duration::from_secs(60), "jobs are placed", || {
        let job = cluster.job(submit(&cluster)?.0)?;
        let placed = job.admin_comment.starts_with("sjp:");
        Ok(if placed { Ok(()) } else { Err(format!("{job:?}")) })
    })?;

    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut last = 0;
    while with.len() < submissions || without.len() < submissions {
        for (script, times) in [(WITHOUT, &mut without), (WITH, &mut with)] {
            cluster.write_job_submit(script)?;
            // The first one loads the script: it is not counted.
            submit(&cluster)?;
            for _ in 0..block.min(submissions - times.len()) {
                let (id, took) = submit(&cluster)?;
                last = id;
                times.push((id, took));
            }
        }
        let job = cluster.job(last)?;
        if !job.admin_comment.starts_with("sjp:") {
            bail!("a job of the blocks with sjp was not placed: {job:?}");
        }
        // The queue stays short: what is measured is the submission.
        cluster.cancel_probes()?;
    }
    println!(
        "Slurm {}, {nodes} nodes, {submissions} submissions of each kind in blocks of {block}; \
         load {}",
        cluster.version(),
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    );
    println!(
        "\n| job_submit.lua | time of | median | p90 | p99 | longest |\n|---|---|---|---|---|---|"
    );
    let inside = times_inside(&cluster);
    for (name, times) in [("without sjp", &without), ("with sjp", &with)] {
        let whole = times.iter().map(|(_, took)| *took).collect();
        let there = times.iter().filter_map(|(id, _)| inside.get(id).copied()).collect();
        row(name, "sbatch", whole);
        row(name, "slurmctld", there);
    }
    sjpd.stop()?;
    cluster.stop()
}

/// Prints a row of the table.
fn row(name: &str, what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        let time = times.get(index.min(times.len().saturating_sub(1))).copied();
        format!("{:.3} ms", time.unwrap_or_default().as_secs_f64() * 1e3)
    };
    println!("| {name} | {what} | {} | {} | {} | {} |", at(0.5), at(0.9), at(0.99), at(1.0));
}

/// How long slurmctld was at each submission, by job id, as it logs it.
fn times_inside(cluster: &TestCluster) -> BTreeMap<u32, Duration> {
    let log = cluster.slurmctld_log();
    let found = log.lines().filter_map(|line| {
        let rest = line.split_once("_slurm_rpc_submit_batch_job: JobId=")?.1;
        let (id, rest) = rest.split_once(' ')?;
        let micros = rest.split_once("usec=")?.1.trim();
        Some((id.parse().ok()?, Duration::from_micros(micros.parse().ok()?)))
    });
    found.collect()
}

/// One submission of a small job, which waits at once for good (`--hold`), and the
/// time from the start of sbatch to its end.
fn submit(cluster: &TestCluster) -> Result<(u32, Duration)> {
    let begin = Instant::now();
    let args = ["-H", "-J", "latency", "-c4", "--mem=30000M", "-t60", "--wrap=true"];
    let id = cluster.sbatch(&args)?;
    Ok((id, begin.elapsed()))
}
