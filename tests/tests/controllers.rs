//! Two slurmctld, one of which stands by, and an sjpd beside each: only the one on
//! the host of the acting slurmctld changes anything, and a fail-over hands over
//! what the other did.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use sjp_tests::{ClusterSpec, Job, RunAs, Signal, TestCluster, wait_for};

const SOON: Duration = Duration::from_secs(40);

/// Old data is answered from for long, so that a stopped sjpd leaves its slurmctld
/// with a picture in which there is room.
const SETTINGS: &str = "[pin]\nrelease_after = 4.0\nmax_age = 600.0\n\
                        [cadence]\nqueue_poll_interval = 1.0\n[recheck]\ninterval = 0\n";

fn wait_standing(cluster: &TestCluster, host: &str, wanted: &str) {
    wait_for(SOON, &format!("sjpd on {host} is {wanted}"), || {
        let path = cluster.state_dir_on(host).join("status.json");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let standing = status["standing"].as_str().unwrap_or_default().to_string();
        assert_eq!(status["active"] == true, standing == "active", "{status}");
        Ok(if standing == wanted { Ok(()) } else { Err(standing) })
    })
    .unwrap();
}

/// A job that fits nowhere but on empty nodes.
fn submit(cluster: &TestCluster) -> u32 {
    let args = ["-c2", "--mem=7000M", "-t10", "--wrap=sleep 1000"];
    cluster.sbatch_as(RunAs::user(1), &args).unwrap()
}

fn released(job: &Job) -> bool {
    job.pending() && job.required_nodes.is_empty() && job.admin_comment.contains("released=")
}

/// Changes of jobs in the decision log of a host.
fn changes(cluster: &TestCluster, host: &str) -> Vec<String> {
    let entries = cluster.decisions_on(host).into_iter();
    let line = |e: serde_json::Value| format!("{} {} {}", e["event"], e["job"], e["stage"]);
    entries.filter(|e| e["stage"].is_string()).map(line).collect()
}

#[test]
fn only_the_host_of_the_acting_controller_acts() {
    let cluster = ClusterSpec::new()
        .cloud_nodes("c[1-2]", 16, 32_000)
        .partition("p1", "c1", "Default=YES")
        .partition("p2", "c2", "")
        .controllers(&["sjpa", "sjpb"], 4)
        .with_sjp("", "")
        .start()
        .unwrap();
    let mut backup = cluster.spawn_controller("sjpb").unwrap();
    cluster.fill_node("c1", 8, 4_000).unwrap();
    let mut first = cluster.start_sjpd_on("sjpa", SETTINGS).unwrap();
    let second = cluster.start_sjpd_on("sjpb", SETTINGS).unwrap();
    wait_standing(&cluster, "sjpa", "active");
    wait_standing(&cluster, "sjpb", "standby");
    let status = cluster.sjp_on("sjpb", &["status"]).unwrap();
    assert!(status.stdout.contains("the slurmctld that acts is the one of sjpa"), "{status:?}");

    // Two pins made by the first slurmctld, whose host then stops with both daemons.
    cluster.wait_placing().unwrap();
    cluster.cancel_probes().unwrap();
    first.signal(Signal::SIGSTOP).unwrap();
    let fill = [("c1", 8), ("c2", 16)].map(|(n, c)| cluster.fill_node(n, c, 1_000).unwrap());
    let pinned = [submit(&cluster), submit(&cluster)];
    for id in pinned {
        let job = cluster.job(id).unwrap();
        assert!(job.admin_comment.contains("sjp:pin="), "{job:?}");
    }
    wait_saved(&cluster);
    cluster.kill9_slurmctld().unwrap();
    wait_standing(&cluster, "sjpb", "active");
    for id in pinned {
        cluster.wait_job(id, SOON, "is released", released).unwrap();
    }

    // The other slurmctld places by the table of its own host.
    cluster.cmd("scancel", &[&fill[1].to_string()]).unwrap();
    wait_for(SOON, "the second slurmctld places jobs", || {
        let id = submit(&cluster);
        let job = cluster.job(id).unwrap();
        let mark = job.admin_comment.clone();
        let placed = mark.contains("sjp:pin=") || mark.contains("sjp:placed=");
        Ok(if placed { Ok(()) } else { Err(format!("{job:?}")) })
    })
    .unwrap();

    // The first sjpd comes back to find that another acts: what is due is not its.
    let due = fill_in(&cluster);
    second.kill9().unwrap();
    first.signal(Signal::SIGCONT).unwrap();
    wait_standing(&cluster, "sjpa", "standby");
    wait_polls(&cluster, "sjpa", 4);
    assert_eq!(changes(&cluster, "sjpa"), Vec::<String>::new());
    assert!(!released(&cluster.job(due).unwrap()));

    // Its slurmctld takes the control back, and with it goes the job.
    cluster.start_slurmctld().unwrap();
    wait_standing(&cluster, "sjpa", "active");
    cluster.wait_job(due, SOON, "is released", released).unwrap();
    let seen = changes(&cluster, "sjpa");
    let of_it = [format!("\"release\" {due} \"begin\""), format!("\"release\" {due} \"done\"")];
    wait_for(SOON, "the log tells it", || {
        let seen = changes(&cluster, "sjpa");
        Ok(if of_it.iter().all(|l| seen.contains(l)) { Ok(()) } else { Err(format!("{seen:?}")) })
    })
    .unwrap();
    let of_others = |l: &&String| pinned.iter().any(|id| l.contains(&format!(" {id} ")));
    assert_eq!(seen.iter().find(of_others), None, "{seen:?}");
    let standings: Vec<String> = cluster
        .decisions_on("sjpa")
        .iter()
        .filter_map(|e| e["standing"].as_str().map(str::to_string))
        .collect();
    assert_eq!(standings.last().map(String::as_str), Some("active"), "{standings:?}");
    assert!(standings.contains(&"standby".to_string()), "{standings:?}");
    assert_eq!(first.stop().unwrap(), 0);
    assert_eq!(backup.ended().unwrap(), None, "it stands by");
    cluster.stop().unwrap();
}

/// Waits until slurmctld has saved the jobs that it has now.
fn wait_saved(cluster: &TestCluster) {
    let now = std::time::SystemTime::now();
    let file = cluster.dir().join("state/job_state");
    wait_for(SOON, "slurmctld saves its state", || {
        let saved = std::fs::metadata(&file).and_then(|m| m.modified());
        Ok(if saved.as_ref().is_ok_and(|at| *at > now) {
            Ok(())
        } else {
            Err(format!("{saved:?}"))
        })
    })
    .unwrap();
}

/// A pin whose time is over, made by an admin's hand.
fn fill_in(cluster: &TestCluster) -> u32 {
    let id = submit(cluster);
    let job = format!("jobid={id}");
    let mark = "admincomment=sjp:pin=c1;from=p1,p2;id=1";
    let update = |words: &[&str]| {
        let args: Vec<&str> = ["update", &job].iter().chain(words).copied().collect();
        // 24.11 has no time for new partitions while a backfill cycle runs.
        wait_for(SOON, "slurmctld has time for an update", || {
            let out = cluster.run(RunAs::Root, "scontrol", &args)?;
            Ok(if out.success() { Ok(()) } else { Err(out.stderr) })
        })
        .unwrap();
    };
    update(&["reqnodelist=c1"]);
    update(&["partition=p1", mark]);
    id
}

/// Waits until the sjpd of this host has read the queue this many times more.
fn wait_polls(cluster: &TestCluster, host: &str, times: usize) {
    let asked = || -> Option<f64> {
        let path = cluster.state_dir_on(host).join("status.json");
        let status: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
        status["queue"]["ok_at"].as_f64()
    };
    for _ in 0..times {
        let before = asked();
        wait_for(SOON, "sjpd reads the queue", || {
            Ok(if asked() > before { Ok(()) } else { Err(format!("{before:?}")) })
        })
        .unwrap();
    }
}
