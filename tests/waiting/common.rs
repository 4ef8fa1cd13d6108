//! What the tests of waiting jobs share: a small cluster, a scheduler that can be
//! stopped, a look into marks.

use std::time::Duration;

use sjp_core::mark::Mark;
use sjp_tests::{ClusterSpec, Job, RunAs, TestCluster, wait_for};

/// The longest anything may take.
pub const SOON: Duration = Duration::from_secs(60);

/// Settings under which everything comes soon. Jobs that no node has room for are
/// placed, so that there is something to choose again.
pub const QUICK: &str = "[cadence]\nnode_poll_interval = 0.3\nqueue_poll_interval = 0.5\n\
                         [policy]\nalways_place = true\n";

/// Submitted jobs wait; the queue tells no reason.
const HELD: &str = "defer,sched_interval=-1,bf_interval=10800";
/// They start at once.
const RUNNING: &str = "sched_min_interval=0,batch_sched_delay=0,bf_interval=3";

/// slim: s01 and s02 with 16 CPUs and 32,000 MB; fat: f01 with 16 CPUs and 256,000 MB.
pub fn start() -> TestCluster {
    ClusterSpec::new()
        .nodes("s[01-02]", 16, 32_000)
        .nodes("f01", 16, 256_000)
        .partition("slim", "s[01-02]", "Default=YES")
        .partition("fat", "f01", "")
        .with_sjp("", "")
        .start()
        .unwrap()
}

fn schedule(cluster: &TestCluster, parameters: &str) {
    let conf = std::fs::read_to_string(cluster.conf_path()).unwrap();
    let lines = conf.lines().map(|line| match line.strip_prefix("SchedulerParameters=") {
        Some(_) => format!("SchedulerParameters={parameters}\n"),
        None => format!("{line}\n"),
    });
    let conf: String = lines.collect();
    assert!(conf.contains(parameters), "no SchedulerParameters in slurm.conf:\n{conf}");
    cluster.write("slurm.conf", &conf).unwrap();
    cluster.reconfigure().unwrap();
    wait_for(SOON, "the scheduler has its parameters", || {
        let config = cluster.cmd("scontrol", &["show", "config"])?;
        Ok(if config.contains(parameters) { Ok(()) } else { Err(config) })
    })
    .unwrap();
}

/// Slurm starts no job from now on.
pub fn stop_scheduling(cluster: &TestCluster) {
    schedule(cluster, HELD);
}

/// Slurm starts jobs again.
pub fn go_on_scheduling(cluster: &TestCluster) {
    schedule(cluster, RUNNING);
}

/// Submits a lean job of 8 CPUs that waits, and is where sjp placed it.
pub fn submit(cluster: &TestCluster, more: &[&str]) -> u32 {
    let args = ["-c8", "--mem=8000M", "-t30", "--output=/dev/null", "--wrap=exec sleep 1000"];
    let args: Vec<&str> = more.iter().copied().chain(args).collect();
    cluster.sbatch_as(RunAs::user(1), &args).unwrap()
}

/// The value at `key` in the job's mark; empty where there is none.
pub fn mark(job: &Job, key: &str) -> String {
    let mark = Mark::parse(&job.admin_comment);
    mark.and_then(|m| m.get(key).map(str::to_owned)).unwrap_or_default()
}

pub fn cancel(cluster: &TestCluster, ids: &[u32]) {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    cluster.cmd("scancel", &ids).unwrap();
}

pub fn update(cluster: &TestCluster, id: u32, what: &[&str]) {
    cluster.update_job(RunAs::Root, id, what).unwrap();
}

/// How many changes of this kind were made for the job.
pub fn made(cluster: &TestCluster, kind: &str, id: u32) -> usize {
    let entries = cluster.events(kind).into_iter();
    entries.filter(|e| e["job"] == id && e["stage"] == "done").count()
}

/// Waits until sjpd has rechecked this many times more, and has nothing left to do.
pub fn wait_rechecks(cluster: &TestCluster, more: u64) {
    let counts = || {
        let out = cluster.sjp(&["status", "--json"]).unwrap();
        let status: serde_json::Value = serde_json::from_str(&out.stdout).unwrap_or_default();
        let waits = &status["status"]["waits"];
        (waits["rechecks"].as_u64(), waits["left"].as_u64())
    };
    let (before, _) = counts();
    let until = before.unwrap_or(0) + more;
    wait_for(SOON, "sjpd looks at waiting jobs again", || {
        let now = counts();
        let there = now.0.is_some_and(|n| n >= until) && now.1 == Some(0);
        Ok(if there { Ok(()) } else { Err(format!("{now:?}, wanted {until}")) })
    })
    .unwrap();
}
