//! slurmctld is restarted, reconfigured, reloads its script and goes away, with the
//! module in it and sjpd beside it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sjp_tests::{
    ClusterSpec, Daemon, Signal, TestCluster, job_submit_text, mappings, open_files, stage_dir,
    wait_for,
};

const SOON: Duration = Duration::from_secs(60);
const QUICK: &str = "[pin]\nmax_age = 4.0\n[cadence]\nqueue_poll_interval = 1.0\n\
                     config_poll_interval = 2.0\n";

fn start() -> TestCluster {
    ClusterSpec::new()
        .cloud_nodes("s[01-04]", 64, 256_000)
        .cloud_nodes("n01", 64, 256_000)
        .partition("slim", "s[01-04]", "Default=YES")
        .with_sjp("", "")
        .start()
        .unwrap()
}

/// Changes slurm.conf.
fn edit_conf(cluster: &TestCluster, change: impl Fn(String) -> String) {
    let text = std::fs::read_to_string(cluster.conf_path()).unwrap();
    cluster.write("slurm.conf", &change(text)).unwrap();
}

/// Waits until `sjp table` knows a partition, or a node.
fn wait_in_table(cluster: &TestCluster, list: &str, name: &str) {
    wait_for(SOON, &format!("{name} is in the table"), || {
        let out = cluster.sjp(&["table", "--json"]).unwrap();
        let json: serde_json::Value = serde_json::from_str(&out.stdout).unwrap_or_default();
        let names = json[list].as_array().into_iter().flatten().map(|e| e["name"].to_string());
        let names: Vec<String> = names.collect();
        let there = names.contains(&format!("\"{name}\""));
        Ok(if there { Ok(()) } else { Err(format!("{names:?}")) })
    })
    .unwrap();
}

/// A job that is placed and starts on `node`, which only it fits.
fn lands_on(cluster: &TestCluster, partition: &str, node: &str) {
    wait_for(SOON, "a job lands there", || {
        let id = cluster.sbatch(&["-J", "land", "-p", partition, "-c2", "--wrap=true"]).unwrap();
        let answer = cluster.answer_for("land").unwrap();
        if !answer.placed {
            cluster.cmd("scancel", &[&id.to_string()]).unwrap();
            return Ok(Err(format!("{answer:?}")));
        }
        let job = cluster.wait_started(id).unwrap();
        cluster.cmd("scancel", &[&id.to_string()]).unwrap();
        assert_eq!(job.nodes, node);
        Ok(Ok(()))
    })
    .unwrap();
}

#[test]
fn slurmctld_comes_back_changed() {
    let cluster = start();
    let sjpd = cluster.start_sjpd(QUICK).unwrap();
    cluster.wait_placing().unwrap();

    cluster.restart_slurmctld().unwrap();
    cluster.wait_placing().unwrap();
    cluster.kill9_slurmctld().unwrap();
    cluster.start_slurmctld().unwrap();
    cluster.wait_placing().unwrap();

    // A new partition by scontrol reconfigure.
    edit_conf(&cluster, |text| text + "PartitionName=new Nodes=n01 State=UP\n");
    let pid = cluster.slurmctld_pid();
    cluster.reconfigure().unwrap();
    cluster.wait_placing().unwrap();
    wait_in_table(&cluster, "partitions", "new");
    lands_on(&cluster, "new", "n01");
    assert_eq!(cluster.slurmctld_pid(), pid);
    assert!(cluster.slurmctld_alive());

    // New nodes want a restart; they are first in the list, so that every index moves.
    edit_conf(&cluster, |text| {
        text.replace(
            "NodeName=s[01-04] ",
            "NodeName=a[01-02] State=CLOUD CPUs=64 RealMemory=256000\nNodeName=s[01-04] ",
        ) + "PartitionName=newer Nodes=a01 State=UP\n"
    });
    cluster.restart_slurmctld().unwrap();
    wait_in_table(&cluster, "nodes", "a01");
    wait_in_table(&cluster, "partitions", "newer");
    lands_on(&cluster, "newer", "a01");
    lands_on(&cluster, "new", "n01");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

/// What slurmctld holds: descriptors by where they lead, and its mappings of tables
/// and of the module.
fn held(pid: u32) -> (BTreeMap<String, usize>, usize, usize) {
    let mut files = BTreeMap::new();
    for path in open_files(pid).unwrap() {
        let name = path.display().to_string();
        // Numbers of sockets and pipes change all the time.
        let name = name.split(":[").next().unwrap_or_default().to_string();
        *files.entry(name).or_insert(0) += 1;
    }
    let tables = mappings(pid, "sjp-table").unwrap().len();
    (files, tables, mappings(pid, "sjp_native").unwrap().len())
}

#[test]
fn the_script_and_the_module_are_reloaded_without_end() {
    let cluster = start();
    let mut sjpd = cluster.start_sjpd(QUICK).unwrap();
    cluster.wait_placing().unwrap();
    let pid = cluster.slurmctld_pid().unwrap();
    let alive = || assert!(cluster.slurmctld_alive() && cluster.slurmctld_pid() == Some(pid));
    let loaded = || cluster.slurmctld_log().matches("sjp-test: loaded version=").count();
    let (files, tables, modules) = held(pid);
    assert!(tables > 0 && modules > 0, "{tables} {modules}");

    // Fifty reloads, touched and rewritten in turn, with an sjpd that is started anew
    // at every tenth: each of its tables is let go of.
    let before = loaded();
    let text = |n: usize| job_submit_text("", &format!("-- version {n}"));
    for n in 1..=50 {
        if n % 2 == 0 {
            cluster.touch_job_submit().unwrap();
        } else {
            cluster.write_job_submit(&text(n)).unwrap();
        }
        cluster.probe().unwrap();
        if n % 10 == 0 {
            if n % 20 == 0 {
                sjpd.kill9().unwrap();
            } else {
                assert_eq!(sjpd.stop().unwrap(), 0);
            }
            sjpd = cluster.start_sjpd(QUICK).unwrap();
            cluster.wait_placing().unwrap();
        }
    }
    alive();
    // A script is loaded again only when its time stamp has moved by a second.
    assert!(loaded() - before >= 40, "loaded {} times", loaded() - before);
    wait_for(SOON, "slurmctld holds no more than before", || {
        cluster.probe().unwrap();
        let (now, tables_now, modules_now) = held(pid);
        let more: Vec<String> = now
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "socket" | "pipe"))
            .filter(|(name, count)| files.get(*name).is_none_or(|before| *count > before))
            .map(|(name, count)| format!("{count} of {name}"))
            .collect();
        let fine = more.is_empty() && tables_now == tables && modules_now == modules;
        Ok(if fine {
            Ok(())
        } else {
            Err(format!("{more:?}, {tables_now} of {tables}, {modules_now} of {modules}"))
        })
    })
    .unwrap();

    // A script with an error: Slurm keeps the old one or refuses; it lives, and the
    // next sound script is taken.
    cluster.write_job_submit("this is no Lua\n").unwrap();
    let _ = cluster.sbatch_output(sjp_tests::RunAs::Root, &["-H", "--wrap=true"]).unwrap();
    alive();
    cluster.write_job_submit(&text(51)).unwrap();
    cluster.wait_placing().unwrap();

    // `make install`: the module is replaced by a rename while it is loaded.
    let before = loaded();
    for entry in std::fs::read_dir(stage_dir().unwrap()).unwrap() {
        let from = entry.unwrap();
        let to = cluster.dir().join("sjp").join(from.file_name());
        let new = to.with_extension("new");
        std::fs::copy(from.path(), &new).unwrap();
        std::fs::rename(&new, &to).unwrap();
    }
    cluster.touch_job_submit().unwrap();
    cluster.wait_placing().unwrap();
    assert!(loaded() > before);
    alive();
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

#[test]
fn sjpd_backs_off_while_slurmctld_is_away() {
    const AWAY: Duration = Duration::from_secs(30);
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    let text = format!("{QUICK}{}", tampered.toml("timeout = 2.0"));
    let mut sjpd = cluster.start_sjpd(&text).unwrap();
    cluster.wait_placing().unwrap();
    for stopped in [true, false] {
        // Stopped it hangs; gone it refuses connections.
        if stopped {
            cluster.signal(Daemon::Slurmctld, Signal::SIGSTOP).unwrap();
        } else {
            cluster.stop_slurmctld().unwrap();
        }
        let before = tampered.calls();
        let begin = Instant::now();
        let mut most = 0;
        wait_for(AWAY + SOON, "a while without slurmctld", || {
            most = most.max(sjp_tests::children(sjpd.pid()).len());
            assert_eq!(sjpd.ended().unwrap(), None, "{}", sjpd.log());
            Ok(if begin.elapsed() >= AWAY { Ok(()) } else { Err("not over") })
        })
        .unwrap();
        let calls = tampered.calls().split_off(before.len());
        let nodes = calls.iter().filter(|c| c.contains("show nodes")).count();
        // Every second it would be 30; doubling gaps make it 4 or 5.
        assert!((2..=7).contains(&nodes), "{nodes} tries: {calls:?}");
        assert!(calls.len() <= 30, "{} calls: {calls:?}", calls.len());
        assert!(most <= 7, "{most} children");
        if stopped {
            cluster.signal(Daemon::Slurmctld, Signal::SIGCONT).unwrap();
        } else {
            cluster.start_slurmctld().unwrap();
        }
        wait_for(2 * SOON, "placement is back", || {
            let answer = cluster.probe().unwrap();
            Ok(if answer.placed { Ok(()) } else { Err(format!("{answer:?}")) })
        })
        .unwrap();
    }
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
