//! CPU caps of a QOS are raised in pulses and given back, on a real Slurm with
//! slurmdbd: in time, early, after a crash, beside an admin, without a database.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::time::Duration;

use sjp_tests::{ClusterSpec, RunAs, Sjpd, Tampered, TestCluster, children, wait_for};

const SOON: Duration = Duration::from_secs(60);

fn start() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("n[1-2]", 16, 32_000)
        .partition("batch", "n[1-2]", "Default=YES MaxTime=600 DefaultTime=60")
        .with_accounting("associations,limits,qos")
        .with_sjp("", "")
        .start()
        .unwrap();
    sacctmgr(&cluster, "modify qos normal set MaxTRESPerUser=cpu=4,mem=20G GrpTRES=cpu=30");
    cluster
}

fn sacctmgr(cluster: &TestCluster, args: &str) -> String {
    let args: Vec<&str> = std::iter::once("-i").chain(args.split(' ')).collect();
    cluster.cmd("sacctmgr", &args).unwrap()
}

fn settings(tampered: &Tampered, pulse: u32, cooldown: u32) -> String {
    format!(
        "[cadence]\nqueue_poll_interval = 1.0\nqos_poll_interval = 1.0\nact_interval = 1.0\n\
         [limits]\nmode = \"global\"\nhysteresis = 2\npulse_seconds = {pulse}\n\
         cooldown_seconds = {cooldown}\n{}",
        tampered.toml("timeout = 2.0")
    )
}

fn submit(cluster: &TestCluster, cpus: u32) -> u32 {
    let cpus = format!("-c{cpus}");
    let args = [&cpus, "--mem=1000", "-t60", "-o/dev/null", "--wrap=sleep 1000"];
    cluster.sbatch_as(RunAs::user(1), &args).unwrap()
}

fn cancel(cluster: &TestCluster, id: u32) {
    cluster.cmd("scancel", &[&id.to_string()]).unwrap();
}

/// MaxTRESPU and the rest of the limits, as the database has them.
fn caps(cluster: &TestCluster) -> String {
    let args = ["-nP", "show", "qos", "normal", "format=maxtrespu,maxtrespa,grptres"];
    cluster.cmd("sacctmgr", &args).unwrap().trim().to_string()
}

fn capped_at(cpus: u32) -> String {
    format!("cpu={cpus},mem=20G||cpu=30")
}

fn wait_caps(cluster: &TestCluster, sjpd: &Sjpd, cpus: u32) {
    let wanted = capped_at(cpus);
    wait_for(SOON, &format!("the cap is {cpus} CPUs"), || {
        let now = caps(cluster);
        Ok(if now == wanted { Ok(()) } else { Err(format!("{now}\n{}", sjpd.log())) })
    })
    .unwrap();
}

fn record(cluster: &TestCluster) -> PathBuf {
    cluster.dir().join("limits.json")
}

fn wait_no_record(cluster: &TestCluster) {
    let path = record(cluster);
    let text = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_for(SOON, "nothing is recorded any more", || {
        Ok(if path.exists() { Err(text()) } else { Ok(()) })
    })
    .unwrap();
}

fn wait_held(cluster: &TestCluster, id: u32) {
    cluster.wait_job(id, SOON, "is held", |j| j.reason == "QOSMaxCpuPerUserLimit").unwrap();
}

/// Calls of sacctmgr that hold these words.
fn calls(tampered: &Tampered, words: &str) -> usize {
    let of = |c: &String| c.starts_with("sacctmgr ") && c.contains(words);
    tampered.calls().iter().filter(|c| of(c)).count()
}

#[test]
fn caps_are_raised_in_pulses_and_given_back() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    let mut sjpd = cluster.start_sjpd(&settings(&tampered, 5, 2)).unwrap();
    cluster.wait_placing().unwrap();

    // Raised, with what is set beside the CPUs kept; recorded before; given back.
    let first = submit(&cluster, 4);
    cluster.wait_started(first).unwrap();
    assert_eq!(calls(&tampered, "show qos"), 1, "asked once while nothing is held");
    let seen = cluster.dir().join("record-before");
    tampered
        .before_update(&format!("cp {} {}", record(&cluster).display(), seen.display()))
        .unwrap();
    let second = submit(&cluster, 4);
    wait_caps(&cluster, &sjpd, 8);
    let before: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&seen).unwrap()).unwrap();
    assert_eq!(before["qos"]["normal"]["base"]["user"], 4, "{before}");
    assert_eq!(before["qos"]["normal"]["raised"]["user"], 8, "{before}");
    cluster.wait_started(second).unwrap();
    wait_for(SOON, "sjp status says it", || {
        let status = cluster.sjp(&["status"])?.stdout;
        let says = status.contains("goes back to MaxTRESPU cpu=4");
        Ok(if says { Ok(()) } else { Err(status) })
    })
    .unwrap();
    wait_caps(&cluster, &sjpd, 4);
    wait_no_record(&cluster);
    assert!(cluster.job(second).unwrap().has_nodes(), "it keeps what it got");

    // One that the raised cap would hold too raises nothing.
    let third = submit(&cluster, 4);
    wait_held(&cluster, third);
    let raises = calls(&tampered, "MaxTRESPerUser=cpu=8");
    let polls = || tampered.calls().iter().filter(|c| c.starts_with("squeue ")).count();
    let till = polls() + 5;
    wait_for(SOON, "some checks", || Ok(if polls() > till { Ok(()) } else { Err(polls()) }))
        .unwrap();
    assert_eq!(calls(&tampered, "MaxTRESPerUser=cpu=8"), raises);
    cancel(&cluster, third);
    cancel(&cluster, second);

    sjpd = crashes(&cluster, &tampered, sjpd);
    sjpd = admin(&cluster, &tampered, sjpd);
    database(&cluster, &tampered, &mut sjpd);
    cancel(&cluster, first);
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

/// Killed right after, and right before, the command that raises.
fn crashes(cluster: &TestCluster, tampered: &Tampered, mut sjpd: Sjpd) -> Sjpd {
    for after in [true, false] {
        let kill = format!("kill -9 {}", sjpd.pid());
        if after {
            tampered.after_update(&kill).unwrap();
        } else {
            // Nor does the command outlive it.
            tampered.before_update(&format!("{kill}; kill -9 $$")).unwrap();
        }
        let held = submit(cluster, 4);
        sjpd.wait().unwrap();
        assert!(record(cluster).exists());
        assert_eq!(caps(cluster), capped_at(if after { 8 } else { 4 }));
        cancel(cluster, held);
        // Also where it is switched off by then.
        let text = settings(tampered, 600, 2).replace("\"global\"", "\"off\"");
        sjpd = cluster.start_sjpd(&text).unwrap();
        wait_caps(cluster, &sjpd, 4);
        if after {
            wait_no_record(cluster);
            let lower = cluster.events("lower").pop().unwrap();
            assert_eq!(lower["why"], "an earlier run of sjpd raised them", "{lower}");
            assert_eq!(sjpd.stop().unwrap(), 0);
            sjpd = cluster.start_sjpd(&settings(tampered, 600, 2)).unwrap();
        } else {
            // It may still be done for all sjpd knows: the record stays for a while.
            assert!(record(cluster).exists());
            assert_eq!(sjpd.stop().unwrap(), 0);
            std::fs::remove_file(record(cluster)).unwrap();
            sjpd = cluster.start_sjpd(&settings(tampered, 600, 2)).unwrap();
        }
    }
    sjpd
}

/// Stopped during a pulse. Then an admin sets the cap in one, and the cluster fills up.
fn admin(cluster: &TestCluster, tampered: &Tampered, mut sjpd: Sjpd) -> Sjpd {
    let second = submit(cluster, 4);
    wait_caps(cluster, &sjpd, 8);
    cluster.wait_started(second).unwrap();
    assert_eq!(sjpd.stop().unwrap(), 0);
    assert_eq!(caps(cluster), capped_at(4));
    assert!(!record(cluster).exists());
    cancel(cluster, second);
    sjpd = cluster.start_sjpd(&settings(tampered, 600, 2)).unwrap();
    let second = submit(cluster, 4);
    wait_caps(cluster, &sjpd, 8);
    cluster.wait_started(second).unwrap();
    sacctmgr(cluster, "modify qos normal set MaxTRESPerUser=cpu=7");
    wait_no_record(cluster);
    assert_eq!(caps(cluster), capped_at(7));
    let note = cluster.events("caps").pop().unwrap();
    assert!(note["words"].as_str().unwrap().contains("MaxTRESPU cpu=7: they stay"), "{note}");
    // From then on it is the base. Much is used: the pulse ends before its time.
    let third = submit(cluster, 4);
    wait_caps(cluster, &sjpd, 14);
    cluster.wait_started(third).unwrap();
    cluster.wait_job(third, SOON, "runs", |j| j.has_nodes()).unwrap();
    for node in ["n1", "n2"] {
        let record = cluster.node(node).unwrap();
        let used: u32 = record["CPUAlloc"].parse().unwrap();
        let args = [format!("-c{}", 16 - used), format!("-w{node}")];
        let free = ["--mem=1000", "-t60", "-o/dev/null", "--wrap=sleep 1000"];
        let args: Vec<&str> = args.iter().map(String::as_str).chain(free).collect();
        cluster.sbatch(&args).unwrap();
    }
    wait_caps(cluster, &sjpd, 7);
    wait_no_record(cluster);
    let lower = cluster.events("lower").pop().unwrap();
    assert!(lower["why"].as_str().unwrap().ends_with("% idle"), "{lower}");
    cluster.cmd("scancel", &["-u", "root"]).unwrap();
    for id in [second, third] {
        cancel(cluster, id);
    }
    sacctmgr(cluster, "modify qos normal set MaxTRESPerUser=cpu=4");
    assert_eq!(sjpd.stop().unwrap(), 0);
    let text = settings(tampered, 3, 2).replace("timeout = 2.0", "timeout = 1.0");
    cluster.start_sjpd(&text).unwrap()
}

/// sacctmgr hangs, slurmdbd is away: nothing piles up, jobs are placed, and the caps
/// are given back in the end.
fn database(cluster: &TestCluster, tampered: &Tampered, sjpd: &mut Sjpd) {
    let held = submit(cluster, 4);
    tampered
        .after_update(&format!("echo sacctmgr > {}/tampered/hang", cluster.dir().display()))
        .unwrap();
    wait_caps(cluster, sjpd, 8);
    cluster.wait_started(held).unwrap();
    wait_for(SOON, "some calls have hung", || {
        let status = cluster.sjp(&["status", "--json"])?.stdout;
        let json: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
        let failures = json["status"]["qos_limits"]["failures"].as_u64();
        assert!(children(sjpd.pid()).len() <= 6, "a pile");
        cluster.probe()?;
        Ok(if failures >= Some(2) { Ok(()) } else { Err(status) })
    })
    .unwrap();
    assert!(cluster.wait_placing().unwrap().placed);
    // It answers again, and the daemon behind it is away.
    cluster.kill9_slurmdbd().unwrap();
    tampered.hang_no_more().unwrap();
    wait_for(SOON, "it is said that the database is away", || {
        let log = sjpd.log();
        let said = log.matches("onnection refused").count();
        Ok(if said >= 1 { Ok(()) } else { Err(log) })
    })
    .unwrap();
    assert!(cluster.wait_placing().unwrap().placed);
    assert!(record(cluster).exists());
    cluster.start_slurmdbd().unwrap();
    wait_caps(cluster, sjpd, 4);
    wait_no_record(cluster);
    cancel(cluster, held);
}
