//! The clock is set an hour forward and back under sjpd (Debian's libfaketime, in sjpd
//! alone), and the disk is full, on a real Slurm: no pin goes early and none stays for
//! good, pulses end, and no cap is raised that cannot be recorded.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sjp_tests::{ClusterSpec, RunAs, Slurm, Tampered, TestCluster, build_dir, wait_for};

const SOON: Duration = Duration::from_secs(40);
const PIN: &str = "sjp:pin=s01;from=slim,fat;was=slim;job=8c,0.5G,0.1G/c;id=1";

fn start() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("s01,f01", 16, 32_000)
        .partition("slim", "s01", "Default=YES")
        .partition("fat", "f01", "")
        .with_accounting("associations,limits,qos")
        .start()
        .unwrap();
    sacctmgr(&cluster, "add qos capped");
    sacctmgr(&cluster, "modify qos capped set MaxTRESPerUser=cpu=1");
    sacctmgr(&cluster, "modify user sjpt1 set qos+=capped");
    cluster.fill_node("s01", 16, 1_000).unwrap();
    cluster
}

fn sacctmgr(cluster: &TestCluster, args: &str) {
    let args: Vec<&str> = std::iter::once("-i").chain(args.split(' ')).collect();
    cluster.cmd("sacctmgr", &args).unwrap();
}

fn settings(tampered: &Tampered, more: &str) -> String {
    format!(
        "[cadence]\nqueue_poll_interval = 0.5\nqos_poll_interval = 1.0\nact_interval = 1.0\n\
         [recheck]\ninterval = 0\n[pin]\nrelease_after = 15.0\n{more}\n{}",
        tampered.toml("")
    )
}

const PULSES: &str = "mode = \"global\"\nhysteresis = 1\nmin_idle_share = 0.01\n\
     lower_below = 0.0\npulse_seconds = 600\ncooldown_seconds = 0";

fn cap(cluster: &TestCluster) -> String {
    let args = ["-nP", "show", "qos", "capped", "format=MaxTRESPU"];
    cluster.cmd("sacctmgr", &args).unwrap().trim().to_string()
}

fn wait_cap(cluster: &TestCluster, wanted: &str) {
    wait_for(SOON, &format!("the cap is {wanted}"), || {
        let now = cap(cluster);
        let log = || std::fs::read_to_string(cluster.dir().join("log/sjpd-timed.log"));
        Ok(if now == wanted { Ok(()) } else { Err(format!("{now}\n{:?}", log())) })
    })
    .unwrap();
}

fn held(cluster: &TestCluster) -> u32 {
    let args =
        ["-c1", "--mem=500", "-pfat", "-qcapped", "-t600", "-o/dev/null", "--wrap=sleep 1000"];
    cluster.sbatch_as(RunAs::user(1), &args).unwrap()
}

fn pinned(cluster: &TestCluster) -> u32 {
    let args = ["-c8", "--mem=500", "-pslim", "-t600", "-o/dev/null", "--wrap=sleep 1000"];
    let id = cluster.sbatch_as(RunAs::user(2), &args).unwrap();
    let job = format!("jobid={id}");
    let mark = format!("admincomment={PIN}");
    cluster.cmd("scontrol", &["update", &job, "reqnodelist=s01", &mark]).unwrap();
    id
}

/// Waits until sjpd has looked at the queue some times more.
fn some_looks(tampered: &Tampered) {
    let polls = || tampered.calls().iter().filter(|c| c.starts_with("squeue ")).count();
    let till = polls() + 6;
    wait_for(SOON, "some looks", || Ok(if polls() > till { Ok(()) } else { Err(polls()) }))
        .unwrap();
}

fn wait_released(cluster: &TestCluster, id: u32) {
    cluster.wait_job(id, SOON, "has no pin", |j| j.required_nodes.is_empty()).unwrap();
}

/// Sets sjpd's clock, by so many seconds beside the real one.
fn set_clock(file: &Path, seconds: i64) {
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
    std::fs::rename(&new, file).unwrap();
}

fn faketime() -> PathBuf {
    let libs = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut found = libs.map(|d| d.path().join("faketime/libfaketime.so.1"));
    let none = "no libfaketime: tests/install-deps.sh test installs it";
    found.find(|p| p.exists()).ok_or(none).unwrap()
}

#[test]
fn the_clock_is_set_an_hour_forward_and_back() {
    let cluster = start();
    if *cluster.slurm() != Slurm::Native {
        eprintln!("only with the Slurm of this system: libfaketime is not in another root");
        return cluster.stop().unwrap();
    }
    let tampered = cluster.tamper().unwrap();
    let clock = cluster.dir().join("clock");
    set_clock(&clock, 0);
    let more = format!("[limits]\n{PULSES}");
    let toml = cluster.write_sjp_toml(&settings(&tampered, &more)).unwrap();
    std::fs::create_dir_all(cluster.dir().join("run")).unwrap();
    let bin = std::env::var_os("SJPD_BIN").filter(|b| !b.is_empty());
    let bin = bin.map_or_else(|| build_dir().unwrap().join("sjpd"), PathBuf::from);
    let script = format!(
        "#!/bin/sh\nexport FAKETIME_TIMESTAMP_FILE={} FAKETIME_NO_CACHE=1\n\
         export FAKETIME_DONT_FAKE_MONOTONIC=1 LD_PRELOAD={}\nexec {} --config {}\n",
        clock.display(),
        faketime().display(),
        bin.display(),
        toml.display()
    );
    let script = cluster.write("timed-sjpd", &script).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let first = held(&cluster);
    cluster.wait_started(first).unwrap();
    let second = held(&cluster);
    let script = script.display().to_string();
    let mut sjpd = cluster.spawn(RunAs::Root, "sjpd-timed", &script, &[]).unwrap();

    // A pulse, and a pin that has just begun.
    wait_cap(&cluster, "cpu=2");
    cluster.wait_started(second).unwrap();
    let id = pinned(&cluster);
    set_clock(&clock, 3600);
    let said = |count: usize| {
        wait_for(SOON, "it is said that the clock was set", || {
            let seen = cluster.events("clock");
            Ok(if seen.len() == count { Ok(()) } else { Err(format!("{seen:?}")) })
        })
        .unwrap();
    };
    said(1);
    wait_cap(&cluster, "cpu=1");
    some_looks(&tampered);
    let job = cluster.job(id).unwrap();
    assert_eq!(job.required_nodes, "s01", "released for what the clock says: {job:?}");
    wait_released(&cluster, id);

    // Another pulse, by the clock that is ahead; then it is set back.
    cluster.cmd("scancel", &[&second.to_string()]).unwrap();
    let third = held(&cluster);
    wait_cap(&cluster, "cpu=2");
    cluster.wait_started(third).unwrap();
    let id = pinned(&cluster);
    set_clock(&clock, 0);
    said(2);
    wait_cap(&cluster, "cpu=1");
    wait_for(SOON, "nothing is recorded as raised", || {
        let there = cluster.dir().join("limits.json").exists();
        Ok(if there { Err("it is") } else { Ok(()) })
    })
    .unwrap();
    wait_released(&cluster, id);
    sjpd.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(sjpd.wait(SOON).unwrap(), 0);
    cluster.stop().unwrap();
}

/// A small file system, full.
struct Full(PathBuf);

impl Drop for Full {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn on_a_full_disk_nothing_is_raised_and_pins_go_all_the_same() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    let dir = cluster.dir().join("full");
    std::fs::create_dir(&dir).unwrap();
    let none = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("tmpfs"), &dir, Some("tmpfs"), none, Some("size=64k")).unwrap();
    let full = Full(dir.clone());
    let fill = dir.join("fill");
    assert!(std::fs::write(&fill, vec![0; 1 << 20]).is_err(), "it should be full");
    let at = |name: &str| format!("{:?}", dir.join(name).display().to_string());
    let more = format!(
        "[general]\nlog_file = {}\ntext_log = {}\n[limits]\nstate_file = {}\n{PULSES}",
        at("d.jsonl"),
        at("d.log"),
        at("limits.json")
    );
    let first = held(&cluster);
    cluster.wait_started(first).unwrap();
    let second = held(&cluster);
    let sjpd = cluster.start_sjpd(&settings(&tampered, &more)).unwrap();
    wait_for(SOON, "it is said that nothing can be recorded", || {
        let log = sjpd.log();
        let said = log.contains("its caps are not raised, since they cannot be recorded");
        Ok(if said { Ok(()) } else { Err(log) })
    })
    .unwrap();
    let id = pinned(&cluster);
    wait_released(&cluster, id);
    assert_eq!(cap(&cluster), "cpu=1");
    assert!(cluster.job(second).unwrap().pending());
    assert!(!tampered.calls().iter().any(|c| c.contains(" modify ")), "{:?}", tampered.calls());
    let status = cluster.sjp(&["status"]).unwrap();
    assert_eq!(status.code, 1, "{status:?}");
    assert!(status.stdout.contains("d.jsonl") && status.stdout.contains("lost"), "{status:?}");

    // There is room again: it is raised after all, at the next try.
    std::fs::remove_file(&fill).unwrap();
    wait_for(2 * SOON, "it is raised", || {
        let now = cap(&cluster);
        Ok(if now == "cpu=2" { Ok(()) } else { Err(format!("{now}\n{}", sjpd.log())) })
    })
    .unwrap();
    assert!(dir.join("limits.json").exists());
    assert_eq!(sjpd.stop().unwrap(), 0);
    assert_eq!(cap(&cluster), "cpu=1");
    drop(full);
    cluster.stop().unwrap();
}
