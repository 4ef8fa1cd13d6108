//! The test cluster itself: it starts, runs jobs, survives restarts, and goes.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use sjp_tests::{ACCOUNT, ClusterSpec, Daemon, RunAs, Signal, wait_for};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn jobs_run_where_they_are_sent() {
    let cluster = ClusterSpec::slim_and_fat().start().unwrap();
    let id = cluster.sbatch(&["-n1", "--mem=1G", "-w", "s02", "--wrap=sleep 100"]).unwrap();
    let job = cluster.wait_started(id).unwrap();
    assert_eq!((job.nodes.as_str(), job.required_nodes.as_str()), ("s02", "s02"));
    assert_eq!((job.partition.as_str(), job.state.as_str()), ("slim", "RUNNING"));

    let user = RunAs::user(2);
    let id = cluster
        .sbatch_script(
            user,
            &["-p", "fat", "-o", "out-%j"],
            "#!/bin/sh\nid -un; echo $SLURM_CONF\n",
        )
        .unwrap();
    let job = cluster.wait_job(id, SOON, "is done", |job| job.state == "COMPLETED").unwrap();
    assert_eq!((job.nodes.as_str(), RunAs::Uid(job.uid)), ("f01", user));
    let out = std::fs::read_to_string(cluster.dir().join(format!("work/out-{id}"))).unwrap();
    assert_eq!(out, format!("sjpt2\n{}\n", cluster.conf_path().display()));

    let out = cluster.srun(RunAs::user(1), &["-p", "fat", "hostname"]).unwrap();
    assert!(out.success(), "{out:?}");
    let id = cluster.salloc(RunAs::user(1), &["-p", "fat", "-c2"]).unwrap();
    assert_eq!(cluster.job(id).unwrap().cpus, 2);

    cluster.fill_node("s01", 12, 20_000).unwrap();
    let node = cluster.node("s01").unwrap();
    assert_eq!((node["CPUAlloc"].as_str(), node["AllocMem"].as_str()), ("12", "20000"));
    cluster.cancel_all().unwrap();
    assert_eq!(cluster.node("s01").unwrap()["CPUAlloc"], "0");

    let refused = cluster.sbatch_output(user, &["-p", "nosuch", "--wrap=true"]).unwrap();
    assert!(refused.stderr.contains("invalid partition"), "{refused:?}");
    cluster.stop().unwrap();
}

#[test]
fn daemons_stop_start_and_take_signals() {
    let cluster = ClusterSpec::slim_and_fat().start().unwrap();
    let id = cluster.fill_node("s01", 1, 100).unwrap();
    let before = cluster.slurmctld_pid();
    cluster.restart_slurmctld().unwrap();
    assert_ne!(cluster.slurmctld_pid(), before);
    assert_eq!(cluster.job(id).unwrap().nodes, "s01");
    cluster.reconfigure().unwrap();

    cluster.kill9_slurmctld().unwrap();
    assert!(!cluster.slurmctld_alive());
    cluster.start_slurmctld().unwrap();
    assert!(cluster.slurmctld_alive());

    cluster.drain_node("s02").unwrap();
    cluster.resume_node("s02").unwrap();
    cluster.down_node("f01").unwrap();
    cluster.resume_node("f01").unwrap();

    cluster.signal(Daemon::Slurmctld, Signal::SIGSTOP).unwrap();
    let pid = cluster.slurmctld_pid().unwrap();
    wait_for(SOON, "slurmctld is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Ok(if stat.contains(") T ") { Ok(()) } else { Err(stat) })
    })
    .unwrap();
    cluster.signal(Daemon::Slurmctld, Signal::SIGCONT).unwrap();

    cluster.signal(Daemon::Slurmd("s02"), Signal::SIGTERM).unwrap();
    cluster.restart_slurmd("s02").unwrap();
    cluster.stop().unwrap();
}

#[test]
fn job_submit_lua_runs_and_is_loaded_again() {
    let text = |comment: &str| {
        format!(
            "function slurm_job_submit(job_desc, part_list, submit_uid)\n\
             job_desc.admin_comment = '{comment}'\nreturn slurm.SUCCESS\nend\n\
             function slurm_job_modify() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n"
        )
    };
    let cluster = ClusterSpec::slim_and_fat().job_submit_lua(&text("one")).start().unwrap();
    for comment in ["one", "two", "three"] {
        if comment != "one" {
            cluster.write_job_submit(&text(comment)).unwrap();
        }
        let id = cluster.sbatch(&["--wrap=true"]).unwrap();
        assert_eq!(cluster.job(id).unwrap().admin_comment, comment);
    }
    cluster.stop().unwrap();
}

#[test]
fn accounting_holds_users_to_their_qos() {
    let cluster =
        ClusterSpec::slim_and_fat().with_accounting("associations,limits,qos").start().unwrap();
    cluster.cmd("sacctmgr", &["-i", "add", "qos", "capped", "MaxTRESPU=cpu=2"]).unwrap();
    cluster.cmd("sacctmgr", &["-i", "modify", "user", "sjpt1", "set", "qos+=capped"]).unwrap();
    let user = RunAs::user(1);
    let first = cluster.sbatch_as(user, &["--qos=capped", "-n2", "--wrap=sleep 100"]).unwrap();
    cluster.wait_started(first).unwrap();
    let second = cluster.sbatch_as(user, &["--qos=capped", "-n2", "--wrap=sleep 100"]).unwrap();
    let job = cluster
        .wait_job(second, SOON, "waits for the QOS", |job| job.reason == "QOSMaxCpuPerUserLimit")
        .unwrap();
    assert_eq!((job.qos.as_str(), job.account.as_str()), ("capped", ACCOUNT));
    let refused = cluster.sbatch_output(RunAs::Uid(1), &["--wrap=true"]).unwrap();
    assert!(!refused.success(), "a uid without an association was let in: {refused:?}");
    cluster.stop().unwrap();
}

#[test]
fn cloud_nodes_are_allocated_without_slurmd() {
    let cluster = ClusterSpec::new()
        .nodes("s01", 4, 8000)
        .cloud_nodes("c[0001-0500]", 64, 256_000)
        .partition("slim", "s01", "Default=YES")
        .partition("cloud", "c[0001-0500]", "")
        .start()
        .unwrap();
    let nodes = cluster.cmd("scontrol", &["show", "nodes", "-o"]).unwrap();
    assert_eq!(nodes.lines().filter(|l| l.starts_with("NodeName=c")).count(), 500);
    let id = cluster.sbatch(&["-p", "cloud", "-w", "c0321", "-n8", "--wrap=true"]).unwrap();
    let job = cluster.wait_started(id).unwrap();
    assert_eq!(job.nodes, "c0321");
    assert!(job.raw["job_state"].to_string().contains("CONFIGURING"), "{job:?}");
    cluster.stop().unwrap();
}

#[test]
fn two_clusters_at_once_do_not_meet() {
    let one = ClusterSpec::slim_and_fat().start().unwrap();
    let two = ClusterSpec::slim_and_fat().start().unwrap();
    let id = one.fill_node("s01", 16, 1000).unwrap();
    assert!(two.job(id).is_err());
    let dir = one.dir().to_path_buf();
    one.stop().unwrap();
    assert!(!dir.exists());
    two.fill_node("s01", 16, 1000).unwrap();
    two.stop().unwrap();
}

/// Pids of processes with this SLURM_CONF in their environment.
fn users_of(conf: &str) -> Vec<String> {
    let wanted = format!("SLURM_CONF={conf}");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let environ = |path: PathBuf| std::fs::read(path.join("environ")).unwrap_or_default();
    processes
        .filter(|entry| environ(entry.path()).split(|b| *b == 0).any(|v| v == wanted.as_bytes()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test process that can be killed")]
fn nothing_outlives_a_killed_test_process() {
    let mut holder = Command::new(env!("CARGO_BIN_EXE_hold"))
        .args(["--accounting", "limits", "--job"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map_while(Result::ok);
    let conf = lines.find_map(|l| l.strip_prefix("export SLURM_CONF=").map(String::from)).unwrap();
    let running = users_of(&conf);
    assert!(running.len() >= 8, "too few for four daemons, three slurmds and a job: {running:?}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_for(SOON, "every process of the cluster is gone", || {
        let left = users_of(&conf);
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    })
    .unwrap();

    // The folder goes with the next start.
    ClusterSpec::slim_and_fat().start().unwrap().stop().unwrap();
    assert!(!PathBuf::from(&conf).exists());
}
