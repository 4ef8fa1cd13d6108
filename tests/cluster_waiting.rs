//! sjpd and waiting jobs on a real Slurm: pins that are released, releases cut in two,
//! jobs that are nobody's business; and sjpd while slurmctld is away. The marks are
//! written by hand here, so that none of this depends on the module.

#![allow(clippy::unwrap_used)] // helpers of tests: a failure is the test's

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use sjp_tests::{ClusterSpec, Job, RunAs, TestCluster, wait_for};

const SOON: Duration = Duration::from_secs(60);
const MARK: &str = "sjp:pin=s01;from=fat,slim;job=4c,1000M,0.2G/c;free=8c,4000M,0.5G/c;id=7f3a";
/// Pins last a second, and the queue is read as often.
const QUICK: &str = "[pin]\nrelease_after = 1.0\n[cadence]\nqueue_poll_interval = 1.0\n";

/// A full node s01, and a way to make jobs that wait for it.
fn cluster() -> TestCluster {
    let cluster = ClusterSpec::slim_and_fat().start().unwrap();
    cluster.fill_node("s01", 16, 1000).unwrap();
    cluster
}

/// A job that waits for s01, with this AdminComment, and a `--comment` and a name that
/// look like marks.
fn waiting(cluster: &TestCluster, comment: &str) -> u32 {
    let forged = format!("--comment={MARK}");
    let id = cluster
        .sbatch_as(
            RunAs::user(1),
            &[
                "-J",
                MARK,
                &forged,
                "-p",
                "slim",
                "-w",
                "s01",
                "-c4",
                "--mem=1000M",
                "-t10",
                "--wrap=sleep 1000",
            ],
        )
        .unwrap();
    if !comment.is_empty() {
        let set = format!("admincomment={comment}");
        cluster.cmd("scontrol", &["update", &format!("jobid={id}"), &set]).unwrap();
    }
    id
}

fn when(cluster: &TestCluster, id: u32, what: &str, good: impl Fn(&Job) -> bool) -> Job {
    wait_for(SOON, what, || {
        let job = cluster.job(id)?;
        Ok(if good(&job) { Ok(job) } else { Err(format!("{job:?}")) })
    })
    .unwrap()
}

fn stages(cluster: &TestCluster, id: u32) -> Vec<String> {
    let of = |d: &Value| d["event"] == "release" && d["job"] == id;
    let list = cluster.decisions();
    list.iter().filter(|d| of(d)).filter_map(|d| Some(d["stage"].as_str()?.to_owned())).collect()
}

fn status(cluster: &TestCluster) -> Result<Value> {
    let text = std::fs::read_to_string(cluster.dir().join("run/status.json"))?;
    Ok(serde_json::from_str(&text)?)
}

#[test]
fn a_pin_that_did_not_help_is_released_and_nobody_elses_is() {
    let cluster = cluster();
    let pinned = waiting(&cluster, MARK);
    let own = waiting(&cluster, "");
    let sites = waiting(&cluster, "the site's own text");
    let other = waiting(&cluster, "sjp:pin=s02;from=fat,slim;id=1");
    let sjpd = cluster.start_sjpd(QUICK).unwrap();
    // The partitions it gets back let it start.
    let job = cluster.wait_started(pinned).unwrap();
    assert!(job.nodes == "s02" || job.nodes == "f01", "{job:?}");
    assert_eq!(job.admin_comment, "sjp:placed=fat,slim;released=s01;job=4c,1000M,0.2G/c;id=7f3a");
    wait_for(SOON, "the release is logged", || {
        let stages = stages(&cluster, pinned);
        Ok(if stages == ["begin", "done"] { Ok(()) } else { Err(stages.join(",")) })
    })
    .unwrap();
    for id in [own, sites, other] {
        let job = cluster.job(id).unwrap();
        assert!(job.pending() && job.required_nodes == "s01", "{job:?}");
        assert_eq!(job.partition, "slim");
        assert!(stages(&cluster, id).is_empty());
    }
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

#[test]
fn a_release_cut_in_two_is_finished_by_the_next_run() {
    let cluster = cluster();
    cluster.fill_node("s02", 16, 1000).unwrap();
    cluster.fill_node("f01", 16, 1000).unwrap();
    let id = waiting(&cluster, MARK);
    cluster.cmd("scontrol", &["update", &format!("jobid={id}"), "reqnodelist="]).unwrap();
    let sjpd = cluster.start_sjpd("").unwrap();
    let job = when(&cluster, id, "the partitions are back", |j| j.partitions() == ["fat", "slim"]);
    assert_eq!(job.required_nodes, "");
    let job = when(&cluster, id, "the mark says so", |j| !j.admin_comment.contains("pin="));
    assert!(job.admin_comment.starts_with("sjp:placed=fat,slim;released=s01;"), "{job:?}");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

#[test]
fn nothing_is_changed_outside_enforce_and_by_a_dry_run() {
    let cluster = cluster();
    let id = waiting(&cluster, MARK);
    let mut seen = 0;
    for (mode, args) in [("observe", &[][..]), ("advise", &[]), ("enforce", &["--dry-run"])] {
        let overrides = format!("general.mode = \"{mode}\"\n{QUICK}");
        cluster.write_sjp_toml(&overrides).unwrap();
        let mut sjpd = cluster.spawn_sjpd(args).unwrap();
        sjpd.wait_ready().unwrap();
        let asked = |v: &Value| v["queue"]["asked_at"].as_f64();
        let first = status(&cluster).ok().as_ref().and_then(asked).unwrap_or(f64::MAX);
        wait_for(SOON, "the queue is read several times", || {
            let now = asked(&status(&cluster)?).unwrap_or(0.0);
            Ok(if now > first + 3.0 { Ok(()) } else { Err(format!("{first} {now}")) })
        })
        .unwrap();
        let job = cluster.job(id).unwrap();
        assert!(job.required_nodes == "s01" && job.admin_comment == MARK, "{mode}: {job:?}");
        let stages = stages(&cluster, id);
        let would = if args.is_empty() { 0 } else { 1 };
        assert_eq!(stages[seen..], vec!["would"; would], "{mode}");
        seen = stages.len();
        assert_eq!(sjpd.stop().unwrap(), 0);
    }
    cluster.stop().unwrap();
}

#[test]
fn a_slurmctld_that_goes_and_comes_back_is_waited_for() {
    let cluster = cluster();
    let mut sjpd = cluster.start_sjpd(&format!("[commands]\ntimeout = 1.0\n{QUICK}")).unwrap();
    cluster.stop_slurmctld().unwrap();
    wait_for(SOON, "nodes cannot be read", || {
        let nodes = &status(&cluster)?["nodes"];
        Ok(if nodes["failures"].as_u64() > Some(1) { Ok(()) } else { Err(nodes.to_string()) })
    })
    .unwrap();
    let data = status(&cluster).unwrap()["nodes"]["ok_at"].clone();
    assert!(sjpd.ended().unwrap().is_none());
    cluster.start_slurmctld().unwrap();
    wait_for(SOON, "nodes and queue are read again", || {
        let now = status(&cluster)?;
        let again = now["nodes"]["ok_at"].as_f64() > data.as_f64()
            && now["queue"]["error"].is_null()
            && now["config"]["error"].is_null();
        Ok(if again { Ok(()) } else { Err(now.to_string()) })
    })
    .unwrap();
    // And it does its work.
    let id = waiting(&cluster, MARK);
    cluster.wait_started(id).unwrap();
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

#[test]
fn observe_compares_slurms_placements_with_its_own() {
    let cluster = ClusterSpec::slim_and_fat().start().unwrap();
    let sjpd = cluster.start_sjpd(&format!("general.mode = \"observe\"\n{QUICK}")).unwrap();
    let args = ["-p", "fat", "-c2", "--mem=1000M", "-t10", "--wrap=sleep 1000"];
    let id = cluster.sbatch_as(RunAs::user(1), &args).unwrap();
    let seen = wait_for(SOON, "the comparison is logged", || {
        let of = |d: &Value| d["event"] == "observed" && d["job"] == id && d["stage"] == "started";
        Ok(cluster.decisions().into_iter().find(of).ok_or("not yet"))
    })
    .unwrap();
    assert_eq!(seen["nodes"], serde_json::json!(["f01"]));
    assert_eq!(seen["would_partitions"], serde_json::json!(["slim"]));
    assert_eq!(cluster.job(id).unwrap().admin_comment, "");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
