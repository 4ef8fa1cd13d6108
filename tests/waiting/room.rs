//! A job that no node has room for waits for the node that will have it first, and is
//! widened after its budget, once.

use crate::common::{QUICK, SOON, cancel, made, mark, start, submit, update, wait_rechecks};
use sjp_tests::{Job, TestCluster};

const SETTINGS: &str = "[recheck]\ninterval = 1.0\n[pin]\nrelease_after = 2.0\nwait_for_room = true\n\
                        [starvation]\nbudget_hours = { slim = 0.01, fat = 1.0 }\n";

/// Fills a node for so many minutes.
fn fill(cluster: &TestCluster, node: &str, partition: &str, minutes: u32) -> u32 {
    let id = cluster
        .sbatch(&[
            &format!("--partition={partition}"),
            &format!("--nodelist={node}"),
            &format!("--time={minutes}"),
            "-N1",
            "-c16",
            "--mem=16000M",
            "--output=/dev/null",
            "--wrap=exec sleep 100000",
        ])
        .unwrap();
    cluster.wait_started(id).unwrap();
    id
}

fn pinned(node: &'static str) -> impl Fn(&Job) -> bool {
    move |job| job.pending() && job.required_nodes == node && mark(job, "pin") == node
}

#[test]
fn a_job_waits_for_the_node_that_has_room_first_and_is_widened_once() {
    let cluster = start();
    let fills = [
        fill(&cluster, "s01", "slim", 30),
        fill(&cluster, "s02", "slim", 20),
        fill(&cluster, "f01", "fat", 60),
    ];
    let sjpd = cluster.start_sjpd(&format!("{QUICK}{SETTINGS}")).unwrap();
    cluster.wait_placing().unwrap();
    // Fat by memory per CPU: its budget is long. The other's is half a minute.
    let args = ["-c2", "--mem=14000M", "-t30", "--output=/dev/null", "--wrap=exec sleep 1000"];
    let waits = cluster.sbatch(&args).unwrap();
    let lean = submit(&cluster, &[]);
    let first = cluster.wait_job(waits, SOON, "waits for s02", pinned("s02")).unwrap();
    let end = cluster.job(fills[1]).unwrap();
    let end = end.raw["end_time"].as_i64().or_else(|| end.raw["end_time"]["number"].as_i64());
    assert_eq!(mark(&first, "eta").parse::<i64>().ok(), end, "by the time limit");
    assert_eq!(first.partition, "slim");
    cluster.wait_job(lean, SOON, "waits for s02 as well", pinned("s02")).unwrap();
    // The release rule leaves it.
    wait_rechecks(&cluster, 4);
    assert!(pinned("s02")(&cluster.job(waits).unwrap()));
    assert_eq!((made(&cluster, "release", waits), made(&cluster, "wait", waits)), (0, 1));

    // s01 is first now.
    update(&cluster, fills[0], &["timelimit=10"]);
    let job = cluster.wait_job(waits, SOON, "waits for s01", pinned("s01")).unwrap();
    assert_eq!(mark(&job, "moved"), "s02>s01", "{job:?}");

    // The lean job's budget ends: every partition, no pin, and nothing more after.
    let widened = |job: &Job| !mark(job, "widened").is_empty();
    let job = cluster.wait_job(lean, SOON, "is widened", widened).unwrap();
    assert!(job.pending() && job.required_nodes.is_empty(), "{job:?}");
    assert_eq!(job.partitions(), ["fat", "slim"]);
    wait_rechecks(&cluster, 3);
    assert_eq!(made(&cluster, "widen", lean), 1);
    assert_eq!(cluster.job(lean).unwrap().admin_comment, job.admin_comment);

    // Room, sooner than expected: both run.
    cancel(&cluster, &fills[..1]);
    assert_eq!(cluster.wait_started(waits).unwrap().nodes, "s01");
    assert_eq!(cluster.wait_started(lean).unwrap().nodes, "s01");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
