//! Somebody else changes a job exactly between sjpd's decision and its command, on a
//! real Slurm: what they chose stays, and sjpd lets go of it or decides anew. And two
//! sjpd's on one cluster, by an admin's mistake.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::time::Duration;

use sjp_tests::{ClusterSpec, Job, RunAs, Tampered, TestCluster, wait_for};

const SOON: Duration = Duration::from_secs(30);

fn start() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("s01,m01", 16, 32_000)
        .nodes("f01", 16, 64_000)
        .partition("slim", "s01", "Default=YES")
        .partition("mid", "m01", "")
        .partition("fat", "f01", "")
        .with_accounting("associations,limits,qos")
        .start()
        .unwrap();
    for args in ["add qos other,flex,capped", "modify user sjpt1 set qos+=other,flex,capped"] {
        sacctmgr(&cluster, args);
    }
    cluster
}

fn sacctmgr(cluster: &TestCluster, args: &str) {
    let args: Vec<&str> = std::iter::once("-i").chain(args.split(' ')).collect();
    cluster.cmd("sacctmgr", &args).unwrap();
}

fn settings(tampered: &Tampered, more: &str) -> String {
    format!(
        "[cadence]\nqueue_poll_interval = 1.0\nqos_poll_interval = 1.0\nact_interval = 1.0\n\
         max_updates_per_second = 100\n[pin]\nrelease_after = 1.0\n{more}\n{}",
        tampered.toml("")
    )
}

fn update(cluster: &TestCluster, id: u32, words: &[&str]) {
    let id = format!("jobid={id}");
    let args: Vec<&str> = ["update", &id].into_iter().chain(words.iter().copied()).collect();
    wait_for(SOON, "slurmctld has time for an update", || {
        let out = cluster.run(RunAs::Root, "scontrol", &args)?;
        Ok(if out.success() { Ok(()) } else { Err(out.stderr) })
    })
    .unwrap();
}

/// A job that waits, with a mark as if sjp had put it there.
fn submit(cluster: &TestCluster, more: &[&str], set: &[&str], mark: &str) -> u32 {
    let args = ["--mem=500", "-t600", "-o/dev/null", "--wrap=sleep 1000"];
    let args: Vec<&str> = more.iter().copied().chain(args).collect();
    let id = cluster.sbatch_as(RunAs::user(1), &args).unwrap();
    for words in set {
        update(cluster, id, &[words]);
    }
    update(cluster, id, &[&format!("admincomment={mark}")]);
    id
}

/// What sjpd said became of its changes of this job: event and stage.
fn stages(cluster: &TestCluster, id: u32) -> Vec<(String, String)> {
    let word = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_string();
    let of = |e: &serde_json::Value| e["job"] == id && e["stage"].is_string();
    let entries = cluster.decisions().into_iter().filter(of);
    entries.map(|e| (word(&e["event"]), word(&e["stage"]))).collect()
}

fn wait_stage(cluster: &TestCluster, id: u32, event: &str, stage: &str) {
    wait_for(SOON, &format!("{event} of job {id}: {stage}"), || {
        let seen = stages(cluster, id);
        let there = seen.iter().any(|(e, s)| e == event && s == stage);
        Ok(if there { Ok(()) } else { Err(format!("{seen:?}")) })
    })
    .unwrap();
}

fn set_of(job: &Job) -> BTreeSet<&str> {
    job.partitions().into_iter().collect()
}

#[test]
fn what_somebody_else_chose_meanwhile_stays() {
    const PIN: &str = "site sjp:pin=s01;from=slim,fat;was=slim;job=8c,0.5G,0.1G/c;id=1";
    const OFF: &str = "[recheck]\ninterval = 0\n[starvation]\nenabled = false";
    let cluster = start();
    let full = cluster.fill_node("s01", 16, 1_000).unwrap();
    for node in ["m01", "f01"] {
        cluster.fill_node(node, 16, 1_000).unwrap();
    }
    let tampered = cluster.tamper().unwrap();
    cluster.write_sjp_toml(&settings(&tampered, OFF)).unwrap();
    // Each is pinned, and its pin is to be taken off: two updates.
    let pinned = |change: &str| {
        let id = submit(&cluster, &["-c8", "-pslim"], &["reqnodelist=s01"], PIN);
        tampered.before_look(&change.replace("ID", &id.to_string())).unwrap();
        id
    };
    let sjpd = cluster.start_sjpd(&settings(&tampered, OFF)).unwrap();
    let decided = |id| wait_stage(&cluster, id, "release", "changed");

    // Its user picks another partition.
    let id =
        pinned("scontrol update jobid=ID reqnodelist= && scontrol update jobid=ID partition=mid");
    decided(id);
    wait_stage(&cluster, id, "drop-mark", "done");
    let job = cluster.job(id).unwrap();
    assert_eq!((job.partition.as_str(), job.admin_comment.as_str()), ("mid", "site"), "{job:?}");

    // Another node.
    let id = pinned(
        "scontrol update jobid=ID reqnodelist= && scontrol update jobid=ID partition=fat reqnodelist=f01",
    );
    decided(id);
    wait_stage(&cluster, id, "drop-mark", "done");
    let job = cluster.job(id).unwrap();
    assert_eq!((job.partition.as_str(), job.required_nodes.as_str()), ("fat", "f01"), "{job:?}");
    assert_eq!(job.admin_comment, "site");

    // Another QOS: of no matter to the pin, which goes all the same.
    let id = pinned("scontrol update jobid=ID qos=other");
    decided(id);
    wait_stage(&cluster, id, "release", "done");
    let job = cluster.job(id).unwrap();
    assert_eq!((job.qos.as_str(), job.required_nodes.as_str()), ("other", ""), "{job:?}");
    assert_eq!(set_of(&job), ["slim", "fat"].into());

    // An admin's note in the AdminComment, before the mark.
    let note = PIN.replace("site", "checked by ann");
    let id = pinned(&format!("scontrol update jobid=ID admincomment='{note}'"));
    decided(id);
    wait_stage(&cluster, id, "release", "done");
    let job = cluster.job(id).unwrap();
    assert!(job.admin_comment.starts_with("checked by ann sjp:placed=slim,fat;"), "{job:?}");

    // An admin takes the mark off: it is none of sjp's any more.
    let id = pinned("scontrol update jobid=ID admincomment=mine");
    decided(id);
    let probe = pinned("true");
    wait_stage(&cluster, probe, "release", "done");
    let job = cluster.job(id).unwrap();
    assert_eq!(
        (job.admin_comment.as_str(), job.required_nodes.as_str()),
        ("mine", "s01"),
        "{job:?}"
    );

    // Held: it stays held, and may lose its pin.
    let id = pinned("scontrol hold ID");
    wait_stage(&cluster, id, "release", "done");
    let job = cluster.job(id).unwrap();
    assert!(job.pending() && job.reason.starts_with("JobHeld"), "{job:?}");

    // Cancelled.
    let id = pinned("scancel ID");
    wait_stage(&cluster, id, "release", "gone");

    // It starts after all.
    let ours = RunAs::user(1);
    cluster.run(ours, "scancel", &["-t", "PENDING", "-u", "sjpt1"]).unwrap().ok().unwrap();
    let until = "until squeue -h -t R -j ID | grep -q ID; do sleep 0.1; done";
    let id = pinned(&format!("scancel {full}; {until}"));
    wait_stage(&cluster, id, "release", "gone");
    let job = cluster.job(id).unwrap();
    assert!(job.has_nodes() && job.admin_comment == PIN, "{job:?}");

    cluster.fill_node("s01", 8, 1_000).unwrap();

    // Between the last look and the command nothing can be seen: the later command
    // wins. After the first of two updates the job is looked at again.
    let id = submit(&cluster, &["-c8", "-pslim"], &["reqnodelist=s01"], PIN);
    tampered
        .before_update(&format!(
            "scontrol update jobid={id} reqnodelist= && scontrol update jobid={id} partition=mid"
        ))
        .unwrap();
    decided(id);
    wait_stage(&cluster, id, "drop-mark", "done");
    let job = cluster.job(id).unwrap();
    assert_eq!((job.partition.as_str(), job.admin_comment.as_str()), ("mid", "site"), "{job:?}");
    assert_eq!(sjpd.stop().unwrap(), 0);

    // One update: what is overwritten is what the mark then tells of, so that it can
    // be taken back.
    let id = submit(&cluster, &["-c8", "-pfat"], &[], "site sjp:placed=fat;was=fat,mid;id=2");
    tampered.before_update(&format!("scontrol update jobid={id} partition=mid")).unwrap();
    let on = "[recheck]\ninterval = 1\n[starvation]\nenabled = false";
    let sjpd = cluster.start_sjpd(&settings(&tampered, on)).unwrap();
    wait_stage(&cluster, id, "open", "done");
    let job = cluster.job(id).unwrap();
    assert_eq!(set_of(&job), ["fat", "mid"].into(), "{job:?}");
    assert!(job.admin_comment.starts_with("site sjp:open="), "{job:?}");
    assert_eq!(sjpd.stop().unwrap(), 0);

    let looks = tampered.calls().iter().filter(|c| c.contains(" -j ")).count();
    let updates = tampered.calls().iter().filter(|c| c.contains(" update ")).count();
    eprintln!("{looks} looks at single jobs, {updates} updates");
    // What one costs, for the record.
    let (one, begin) = (id.to_string(), std::time::Instant::now());
    for _ in 0..20 {
        cluster.cmd("squeue", &["-h", "-a", "-O", "JobID:0,admin_comment:0", "-j", &one]).unwrap();
    }
    eprintln!("a look takes {:.1?}", begin.elapsed() / 20);
    assert!(looks >= updates, "each update is preceded by a look");
    cluster.stop().unwrap();
}

/// Two sjpd's with state folders of their own, both in mode enforce: each would raise
/// what the other has raised, and give back what it never was.
#[test]
fn of_two_sjpds_on_one_cluster_one_acts() {
    const BOTH: &str = "[cadence]\nqueue_poll_interval = 1.0\nqos_poll_interval = 1.0\n\
         act_interval = 1.0\nconfig_poll_interval = 1.0\n[pin]\nrelease_after = 1.0\n\
         [recheck]\ninterval = 1\n[limits]\nmode = \"global\"\nhysteresis = 1\n\
         min_idle_share = 0.01\nlower_below = 0.0\npulse_seconds = 3\ncooldown_seconds = 0\n";
    let cluster = start();
    sacctmgr(&cluster, "modify qos capped set MaxTRESPerUser=cpu=1");
    let first = cluster.start_sjpd(BOTH).unwrap();
    let second = cluster.start_other_sjpd("other", BOTH).unwrap();
    assert!(second.log().contains("does not act: another sjpd of this host does (pid "));
    assert!(!first.log().contains("another sjpd"), "{}", first.log());
    let toml = cluster.dir().join("other.toml").display().to_string();
    let status = || {
        let bin = std::env::var("SJP_BIN").ok().filter(|b| !b.is_empty());
        let bin = bin
            .unwrap_or_else(|| sjp_tests::build_dir().unwrap().join("sjp").display().to_string());
        cluster.run(RunAs::Root, &bin, &["--config", &toml, "status"]).unwrap()
    };
    let told = status();
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stdout.contains("another sjpd of this host"), "{told:?}");

    // Held by the cap, with room: raised by one, and given back.
    let job = || {
        let args = ["-c1", "--mem=500", "-qcapped", "-t600", "-o/dev/null", "--wrap=sleep 1000"];
        cluster.sbatch_as(RunAs::user(1), &args).unwrap()
    };
    cluster.wait_started(job()).unwrap();
    for _ in 0..8 {
        job();
    }
    let cap = || {
        let args = ["-nP", "show", "qos", "capped", "format=MaxTRESPU"];
        cluster.cmd("sacctmgr", &args).unwrap().trim().to_string()
    };
    wait_for(SOON, "a pulse has ended", || {
        let cap = cap();
        assert!(["cpu=1", "cpu=2"].contains(&cap.as_str()), "raised upon a raise: {cap}");
        let lowered = cluster.events("lower").iter().filter(|e| e["stage"] == "done").count();
        Ok(if lowered >= 1 && cap == "cpu=1" { Ok(()) } else { Err(format!("{cap}, {lowered}")) })
    })
    .unwrap();
    let made = |log: &str| cluster.decisions_in(log).iter().any(|e| e["stage"] == "begin");
    assert!(made("sjp-decisions.jsonl") && !made("other.jsonl"));

    // The other takes over as soon as the first has gone, by whatever end.
    first.kill9().unwrap();
    wait_for(SOON, "the other acts", || {
        let log = second.log();
        Ok(if log.contains("sjpd acts on this host") { Ok(()) } else { Err(log) })
    })
    .unwrap();
    wait_for(SOON, "sjp status says nothing of it any more", || {
        let told = status().stdout;
        Ok(if told.contains("another sjpd") { Err(told) } else { Ok(()) })
    })
    .unwrap();
    let id = submit(
        &cluster,
        &["-c1", "-pslim", "-d", "afterok:1", "-bnow+1hour"],
        &["dependency=", "reqnodelist=s01"],
        "sjp:placed=slim;id=1",
    );
    wait_for(SOON, "it acts", || {
        let job = cluster.job(id)?;
        let over = job.admin_comment.is_empty() || made("other.jsonl");
        Ok(if over { Ok(()) } else { Err(format!("{job:?}\n{}", second.log())) })
    })
    .unwrap();
    assert_eq!(second.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
