//! sjpd, and `sjp undo`, killed with -9 at the commands that raise the caps of a QOS
//! and give them back, on a real Slurm: before the command, with the command still on
//! its way, and after it. (Killed right before and after a raise: limits_pulse.rs.)

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sjp_tests::{ClusterSpec, Crash, RunAs, Tampered, TestCluster, wait_for};

const SOON: Duration = Duration::from_secs(60);

fn start() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("n1", 16, 32_000)
        .partition("batch", "n1", "Default=YES")
        .with_accounting("associations,limits,qos")
        .start()
        .unwrap();
    sacctmgr(&cluster, "add qos capped");
    sacctmgr(&cluster, "modify qos capped set MaxTRESPerUser=cpu=1");
    sacctmgr(&cluster, "modify user sjpt1 set qos+=capped");
    cluster
}

fn sacctmgr(cluster: &TestCluster, args: &str) {
    let args: Vec<&str> = std::iter::once("-i").chain(args.split(' ')).collect();
    cluster.cmd("sacctmgr", &args).unwrap();
}

fn settings(tampered: &Tampered, mode: &str) -> String {
    format!(
        "[cadence]\nqueue_poll_interval = 1.0\nqos_poll_interval = 1.0\nact_interval = 1.0\n\
         [limits]\nmode = {mode:?}\nhysteresis = 1\nmin_idle_share = 0.01\nlower_below = 0.0\n\
         pulse_seconds = 600\ncooldown_seconds = 0\n{}",
        tampered.toml("")
    )
}

/// MaxTRESPerUser of the QOS.
fn cap(cluster: &TestCluster) -> String {
    let args = ["-nP", "show", "qos", "capped", "format=MaxTRESPU"];
    cluster.cmd("sacctmgr", &args).unwrap().trim().to_string()
}

fn record(cluster: &TestCluster) -> std::path::PathBuf {
    cluster.dir().join("limits.json")
}

/// What an sjpd leaves that is killed during a pulse.
fn raised(cluster: &TestCluster) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let text = serde_json::json!({
        "format": 1,
        "qos": {"capped": {"base": {"user": 1}, "raised": {"user": 2}, "at": now}},
    });
    cluster.write("limits.json", &text.to_string()).unwrap();
    sacctmgr(cluster, "modify qos capped set MaxTRESPerUser=cpu=2");
}

fn wait_base(cluster: &TestCluster) {
    wait_for(SOON, "the caps are as before, and nothing is recorded", || {
        let (cap, recorded) = (cap(cluster), record(cluster).exists());
        Ok(if cap == "cpu=1" && !recorded { Ok(()) } else { Err(format!("{cap}, {recorded}")) })
    })
    .unwrap();
}

/// Starts sjpd, which is killed at its next command for the QOS.
fn killed(cluster: &TestCluster, tampered: &Tampered, mode: &str, how: Crash, words: &str) {
    cluster.write_sjp_toml(&settings(tampered, mode)).unwrap();
    tampered.crash(how, words).unwrap();
    let mut sjpd = cluster.spawn_sjpd(&[]).unwrap();
    assert_eq!(sjpd.wait().unwrap(), 128 + 9, "{how:?}: {}", sjpd.log());
    assert!(record(cluster).exists(), "{how:?}");
}

#[test]
fn caps_are_given_back_wherever_it_is_killed() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    const LOWER: &str = "name=capped set MaxTRESPerUser=cpu=1";
    for how in [Crash::Lost, Crash::Late, Crash::After] {
        raised(&cluster);
        killed(&cluster, &tampered, "off", how, LOWER);
        let sjpd = cluster.start_sjpd(&settings(&tampered, "off")).unwrap();
        if how == Crash::After {
            // Given back already; for all the next one knows it was never raised, and
            // may still be: the record stays for a while.
            wait_for(SOON, "the cap is as before", || {
                let cap = cap(&cluster);
                Ok(if cap == "cpu=1" { Ok(()) } else { Err(cap) })
            })
            .unwrap();
            assert_eq!(sjpd.stop().unwrap(), 0);
            std::fs::remove_file(record(&cluster)).unwrap();
        } else {
            wait_base(&cluster);
            assert_eq!(sjpd.stop().unwrap(), 0);
        }
    }

    // The same with `sjp undo`, and no sjpd.
    for how in [Crash::Lost, Crash::Late, Crash::After] {
        raised(&cluster);
        tampered.crash(how, LOWER).unwrap();
        let out = cluster.sjp(&["undo"]).unwrap();
        assert_eq!(out.code, 128 + 9, "{out:?}");
        assert!(record(&cluster).exists(), "{how:?}");
        let out = cluster.sjp(&["undo"]).unwrap();
        if how == Crash::After {
            assert_eq!((out.code, cap(&cluster).as_str()), (1, "cpu=1"), "{out:?}");
            assert!(
                out.stdout.contains("left: QOS capped: its caps are not raised now"),
                "{out:?}"
            );
            std::fs::remove_file(record(&cluster)).unwrap();
        } else {
            assert!(out.success(), "{out:?}");
            assert!(
                out.stdout.contains("QOS capped: caps back to MaxTRESPU cpu=1: done"),
                "{out:?}"
            );
            assert!(out.stdout.ends_with("caps of 1 QOS; nothing is left\n"), "{out:?}");
            wait_base(&cluster);
        }
    }

    // Killed at a raise that comes all the same: it is given back when it is seen.
    let submit = || {
        let args = ["-c1", "--mem=500", "-qcapped", "-t600", "-o/dev/null", "--wrap=sleep 1000"];
        cluster.sbatch_as(RunAs::user(1), &args).unwrap()
    };
    cluster.wait_started(submit()).unwrap();
    let held = submit();
    cluster.wait_job(held, SOON, "is held", |j| j.reason == "QOSMaxCpuPerUserLimit").unwrap();
    killed(&cluster, &tampered, "global", Crash::Late, "name=capped set MaxTRESPerUser=cpu=2");
    let sjpd = cluster.start_sjpd(&settings(&tampered, "off")).unwrap();
    wait_base(&cluster);
    let job = cluster.job(held).unwrap();
    assert!(job.has_nodes() || job.reason == "QOSMaxCpuPerUserLimit", "{job:?}");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
