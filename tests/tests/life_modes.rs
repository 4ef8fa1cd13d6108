//! The three modes on a real Slurm: what is set at submission, what the decision log
//! says, and how the mode changes under a running slurmctld.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use serde_json::{Value, json};
use sjp_tests::{ClusterSpec, Job, RunAs, Signal, Sjpd, TestCluster, wait_for};

const SOON: Duration = Duration::from_secs(60);
const QUICK: &str = "[cadence]\nqueue_poll_interval = 1.0\n";

/// The whole cluster in one partition more, and room of another shape on s01.
fn start() -> TestCluster {
    let cluster = ClusterSpec::new()
        .cloud_nodes("s[01-02]", 32, 128_000)
        .cloud_nodes("f01", 32, 1_024_000)
        .partition("slim", "s[01-02]", "Default=YES")
        .partition("fat", "f01", "")
        .with_sjp("", "")
        .start()
        .unwrap();
    cluster.fill_node("s01", 16, 8_000).unwrap();
    cluster
}

fn mode(cluster: &TestCluster, sjpd: &mut Sjpd, mode: &str) {
    cluster.write_sjp_toml(&format!("{QUICK}[general]\nmode = \"{mode}\"\n")).unwrap();
    sjpd.signal(Signal::SIGHUP).unwrap();
    wait_for(SOON, "the mode is taken over", || {
        let log = sjpd.log();
        let said = format!("settings read again; mode {mode}");
        Ok(if log.contains(&said) { Ok(()) } else { Err(log) })
    })
    .unwrap();
}

/// 7.5 GB a CPU, as s01 has left.
fn submit(cluster: &TestCluster, name: &str, more: &[&str]) -> Job {
    let args = ["-J", name, "-c4", "--mem=30000M", "-t10", "--wrap=true"];
    let args: Vec<&str> = more.iter().copied().chain(args).collect();
    let id = cluster.sbatch_as(RunAs::user(1), &args).unwrap();
    cluster.job(id).unwrap()
}

/// The entry of this event about a job, once it is there.
fn entry(cluster: &TestCluster, event: &str, stage: &str, job: u32) -> Value {
    wait_for(SOON, &format!("{event} {stage} of job {job} is logged"), || {
        let all = cluster.events(event);
        let found =
            all.iter().find(|e| e["job"] == job && (stage.is_empty() || e["stage"] == stage));
        Ok(found.cloned().ok_or_else(|| format!("{all:?}")))
    })
    .unwrap()
}

#[test]
fn observe_advise_enforce_and_back() {
    let cluster = start();
    let observe = format!("{QUICK}[general]\nmode = \"observe\"\n");
    let mut sjpd = cluster.start_sjpd(&observe).unwrap();
    cluster.wait_reason("observe").unwrap();

    // Observe: the job keeps what it came with, and the log tells what sjp would have
    // said: of a job that started, of one that waits, of one that sjp leaves alone.
    let started = submit(&cluster, "started", &[]);
    let named = submit(&cluster, "named", &["-p", "fat"]);
    let waits = submit(&cluster, "waits", &["-H"]);
    let many = submit(&cluster, "many", &["-N2", "-p", "slim"]);
    let het = submit(&cluster, "het", &["-c1", "--mem=100M", ":"]);
    let srun = ["-J", "srun", "-c1", "--mem=100M", "-t10", "true"];
    let srun = cluster.srun_background(RunAs::user(1), &srun).unwrap();
    let by_srun = wait_for(SOON, "srun has its job", || {
        let job = cluster.jobs().unwrap().into_iter().find(|j| j.name == "srun" && j.has_nodes());
        Ok(job.ok_or("no job"))
    })
    .unwrap();
    for job in [&started, &named, &waits, &many, &het, &by_srun] {
        assert_eq!((job.admin_comment.as_str(), job.required_nodes.as_str()), ("", ""), "{job:?}");
    }
    assert_eq!(waits.partition, "slim", "the default partition, which Slurm sets");
    let told = entry(&cluster, "observed", "started", started.id);
    let there = cluster.job(started.id).unwrap().nodes;
    assert_eq!(told["nodes"], json!([there]), "{told}");
    assert_eq!(told["partitions"], json!(["slim"]), "{told}");
    assert_eq!(told["would_partitions"], json!(["slim"]), "{told}");
    assert_eq!(told["would_node"], json!("s01"), "{told}");
    assert!(told["why"].as_str().unwrap().contains("least loss"), "{told}");
    // The partition that the user named narrows the choice.
    let told = entry(&cluster, "observed", "started", named.id);
    assert_eq!(told["nodes"], json!(["f01"]), "{told}");
    assert_eq!(told["would_partitions"], json!(["fat"]), "{told}");
    assert_eq!(told["would_node"], Value::Null, "{told}");
    let told = entry(&cluster, "observed", "pending", waits.id);
    assert_eq!(told["reason"], "JobHeldUser", "{told}");
    assert_eq!(told["would_partitions"], json!(["fat", "slim"]), "{told}");
    assert_eq!(told["would_node"], Value::Null, "{told}");
    assert!(told["why"].as_str().unwrap().contains("held"), "{told}");
    let told = entry(&cluster, "observed", "", many.id);
    assert_eq!(told["would_partitions"], json!([]), "{told}");
    assert_eq!(told["why"], "multi-node", "{told}");
    assert_eq!(entry(&cluster, "observed", "", het.id)["why"], "het job");
    assert_eq!(entry(&cluster, "observed", "", by_srun.id)["why"], "not batch");
    drop(srun);
    let words = std::fs::read_to_string(cluster.dir().join("log/sjp-decisions.log")).unwrap();
    let line =
        format!("job {}: 4c,29.3G,7.3G/c; Slurm: on {there} in slim; sjp would have", started.id);
    assert!(words.contains(&line), "no {line:?} in:\n{words}");
    assert!(cluster.events("placed").is_empty(), "{:?}", cluster.events("placed"));
    cluster.cmd("scancel", &["-u", "sjpt1"]).unwrap();

    // Advise: partitions and a mark, no node.
    mode(&cluster, &mut sjpd, "advise");
    cluster.wait_placing().unwrap();
    let advised = submit(&cluster, "advised", &[]);
    assert_eq!(advised.required_nodes, "", "{advised:?}");
    assert!(advised.admin_comment.starts_with("sjp:placed=fat,slim;"), "{advised:?}");
    let told = entry(&cluster, "placed", "", advised.id);
    assert_eq!(told["pinned"], false, "{told}");

    // Enforce: the same job is pinned.
    mode(&cluster, &mut sjpd, "enforce");
    let pinned = wait_for(SOON, "a job is pinned", || {
        let job = submit(&cluster, "pinned", &[]);
        if job.required_nodes.is_empty() {
            cluster.cmd("scancel", &[&job.id.to_string()]).unwrap();
            return Ok(Err(format!("{job:?}")));
        }
        Ok(Ok(job))
    })
    .unwrap();
    assert_eq!((pinned.required_nodes.as_str(), pinned.partition.as_str()), ("s01", "slim"));
    assert!(pinned.admin_comment.starts_with("sjp:pin=s01;from=fat,slim;"), "{pinned:?}");
    let told = entry(&cluster, "placed", "", pinned.id);
    assert_eq!((&told["pinned"], &told["node"]), (&json!(true), &json!("s01")), "{told}");

    // And back: nothing is touched any more.
    mode(&cluster, &mut sjpd, "observe");
    cluster.wait_reason("observe").unwrap();
    let left = submit(&cluster, "left", &["-p", "fat"]);
    assert_eq!((left.admin_comment.as_str(), left.partition.as_str()), ("", "fat"));
    entry(&cluster, "observed", "started", left.id);
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
