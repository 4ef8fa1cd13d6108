//! Switching off, and taking everything back, on a real Slurm: what is new stops at
//! once, what takes back goes on, and `sjp undo` leaves nothing of sjp's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use sjp_tests::{ClusterSpec, Job, RunAs, Signal, Sjpd, Tampered, TestCluster, wait_for};

const SOON: Duration = Duration::from_secs(60);

/// Three nodes, each in a partition of its own; tiny holds no job of more than 1 GB.
fn start() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("s[01-03]", 16, 32_000)
        .nodes("t01", 16, 1_000)
        .partition("p1", "s01", "Default=YES")
        .partition("p2", "s02", "")
        .partition("p3", "s03", "")
        .partition("tiny", "t01", "")
        .with_sjp(
            "if job_desc.name == \"site\" then job_desc.admin_comment = \"project 7\" end",
            "",
        )
        .start()
        .unwrap();
    cluster.fill_node("s01", 8, 4_000).unwrap();
    cluster
}

fn settings(tampered: &Tampered, general: &str, more: &str) -> String {
    format!(
        "[general]\n{general}\n[pin]\nrelease_after = 600.0\nmax_age = 600.0\n\
         [cadence]\nqueue_poll_interval = 1.0\n{more}\n[starvation]\nenabled = false\n{}",
        tampered.toml("")
    )
}

fn submit(cluster: &TestCluster, more: &[&str]) -> u32 {
    let args = ["-c2", "--mem=7000M", "-t10", "-o/dev/null", "--wrap=sleep 1000"];
    let args: Vec<&str> = more.iter().copied().chain(args).collect();
    cluster.sbatch_as(RunAs::user(1), &args).unwrap()
}

fn fill_up(cluster: &TestCluster) {
    for (node, cpus) in [("s01", 8), ("s02", 16), ("s03", 16)] {
        cluster.fill_node(node, cpus, 1_000).unwrap();
    }
}

fn update(cluster: &TestCluster, user: RunAs, id: u32, words: &[&str]) {
    let id = format!("jobid={id}");
    let args: Vec<&str> = ["update", &id].into_iter().chain(words.iter().copied()).collect();
    wait_for(SOON, "slurmctld has time for an update", || {
        let out = cluster.run(user, "scontrol", &args)?;
        Ok(if out.success() { Ok(()) } else { Err(out.stderr) })
    })
    .unwrap();
}

/// Partition, required nodes, AdminComment.
fn seen(cluster: &TestCluster, id: u32) -> (String, String, String) {
    let job = cluster.job(id).unwrap();
    assert!(job.pending(), "{job:?}");
    (job.partition, job.required_nodes, job.admin_comment)
}

fn is(cluster: &TestCluster, id: u32, partition: &str, nodes: &str, comment: &str) {
    assert_eq!(seen(cluster, id), (partition.into(), nodes.into(), comment.into()), "job {id}");
}

fn reload(cluster: &TestCluster, sjpd: &mut Sjpd, text: &str) {
    let said = |log: &str| log.matches("settings read again").count();
    let before = said(&sjpd.log());
    cluster.write_sjp_toml(text).unwrap();
    sjpd.signal(Signal::SIGHUP).unwrap();
    wait_for(SOON, "the settings are read", || {
        let log = sjpd.log();
        Ok(if said(&log) > before { Ok(()) } else { Err(log) })
    })
    .unwrap();
}

/// The updates that were made of jobs, by the words that tell them apart.
fn made(tampered: &Tampered, words: &str) -> usize {
    tampered.made().iter().filter(|line| line.contains(words)).count()
}

#[test]
fn switched_off_and_taken_back() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    let off = "[recheck]\ninterval = 0";
    let mut sjpd = cluster.start_sjpd(&settings(&tampered, "", off)).unwrap();
    cluster.wait_placing().unwrap();
    cluster.cancel_probes().unwrap();

    // Jobs of each kind that wait: with pins that sjp made, by what they came with.
    sjpd.signal(Signal::SIGSTOP).unwrap();
    fill_up(&cluster);
    let (plain, named, site) = (
        submit(&cluster, &[]),
        submit(&cluster, &["-pp2,p1"]),
        submit(&cluster, &["-Jsite", "-pp1,p2,tiny"]),
    );
    let (theirs, unmarked) = (submit(&cluster, &[]), submit(&cluster, &["-ws02", "-pp2"]));
    update(&cluster, RunAs::Root, unmarked, &["admincomment="]);
    let stuck = submit(&cluster, &[]);
    for id in [plain, named, site, stuck] {
        let (_, nodes, comment) = seen(&cluster, id);
        assert!(!nodes.is_empty() && comment.contains(&format!("sjp:pin={nodes};")), "{comment}");
    }
    assert!(seen(&cluster, site).2.starts_with("project 7 sjp:"));
    // Its user goes elsewhere; another's mark says that it named what cannot hold it.
    assert!(seen(&cluster, theirs).2.starts_with("sjp:"));
    update(&cluster, RunAs::user(1), theirs, &["partition=p1,p2"]);
    let (_, node, comment) = seen(&cluster, stuck);
    let from = comment.split(';').find_map(|part| part.strip_prefix("from=")).unwrap().to_string();
    let comment = comment.replace(";job=", ";was=tiny;job=");
    update(&cluster, RunAs::Root, stuck, &[&format!("admincomment={comment}")]);

    // Not while an sjpd acts, which would do it again. A dry run says what it would.
    let out = cluster.sjp(&["undo"]).unwrap();
    assert_eq!(out.code, 75, "{out:?}");
    assert!(out.stderr.contains("would do it again"), "{out:?}");
    let out = cluster.sjp(&["undo", "--dry-run"]).unwrap();
    assert!(out.success(), "{out:?}");
    assert!(
        out.stdout.contains(&format!("job {stuck}: would be undone: pin to {node} off")),
        "{out:?}"
    );
    assert_eq!(made(&tampered, "update"), 0, "{:?}", tampered.made());

    // With the disable file, beside the sjpd that holds the state folder.
    std::fs::write(cluster.dir().join("disable"), "").unwrap();
    let before = seen(&cluster, unmarked);
    let out = cluster.sjp(&["undo"]).unwrap();
    assert!(out.success(), "{out:?}");
    assert!(out.stdout.ends_with("undone: 5 jobs; nothing is left\n"), "{out:?}");
    is(&cluster, plain, "p1", "", "");
    is(&cluster, named, "p2,p1", "", "");
    is(&cluster, site, "p1,p2", "", "project 7");
    is(&cluster, theirs, "p1,p2", "", "");
    assert_eq!(seen(&cluster, unmarked), before);
    let (stays, nodes, comment) = seen(&cluster, stuck);
    assert_eq!((nodes.as_str(), comment.as_str()), ("", ""));
    assert_eq!(stays, from, "all that sjp chose");
    assert!(
        out.stdout.contains("not back to tiny, which it named: no node is big enough"),
        "{out:?}"
    );
    // Twice is the same as once.
    let updates = made(&tampered, "update");
    let out = cluster.sjp(&["undo", "--json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    assert!(out.success() && json["jobs"] == 0 && json["left"] == serde_json::json!({}), "{json}");
    assert_eq!(made(&tampered, "update"), updates);
    std::fs::remove_file(cluster.dir().join("disable")).unwrap();
    sjpd.signal(Signal::SIGCONT).unwrap();

    at_once(&cluster, &tampered, &mut sjpd);

    // Nobody runs: sjpd --undo.
    sjpd.kill9().unwrap();
    let mut undo = cluster.spawn_sjpd(&["--undo"]).unwrap();
    assert_eq!(undo.wait().unwrap(), 0, "{}", undo.log());
    assert!(undo.log().contains("nothing is left"), "{}", undo.log());
    let marked: Vec<Job> = cluster
        .jobs()
        .unwrap()
        .into_iter()
        .filter(|j| j.pending() && j.admin_comment.contains("sjp:"))
        .collect();
    assert!(marked.is_empty(), "{marked:?}");
    cluster.stop().unwrap();
}

/// What sjpd has decided on but not made is not made any more after the disable file
/// or a reload, while what takes back goes on.
fn at_once(cluster: &TestCluster, tampered: &Tampered, sjpd: &mut Sjpd) {
    let slow = "max_updates_per_second = 1.0\n[recheck]\ninterval = 1";
    reload(cluster, sjpd, &settings(tampered, "", "[recheck]\ninterval = 0"));
    let jobs: Vec<u32> = (0..12).map(|_| submit(cluster, &["-H", "-pp1"])).collect();
    for id in &jobs {
        let mark = format!("admincomment=sjp:placed=p1;id={id}");
        update(cluster, RunAs::Root, *id, &[&mark]);
        cluster.cmd("scontrol", &["release", &id.to_string()]).unwrap();
    }
    // Another is put into two partitions by hand, which is for sjp to let go of.
    let opened = || {
        let open = |id: &&u32| seen(cluster, **id).2.contains("open=");
        jobs.iter().filter(open).count()
    };
    let stop_and_see = |what: &str, go_on: &mut dyn FnMut()| {
        let some = wait_for(SOON, "some jobs are opened", || {
            let opened = opened();
            Ok(if opened >= 2 { Ok(opened) } else { Err(opened) })
        })
        .unwrap();
        go_on();
        let pinned = submit(cluster, &["-pp1"]);
        update(cluster, RunAs::Root, pinned, &["reqnodelist=s01"]);
        let mark = "admincomment=sjp:pin=s01;from=p1,p2;at=1;id=1";
        update(cluster, RunAs::Root, pinned, &["partition=p1", mark]);
        let after = opened();
        assert!(after < jobs.len(), "{what}: {some}, then {after}");
        // In between, the pin has been released: the queue was read and acted upon.
        cluster
            .wait_job(pinned, SOON, "is released", |j| j.admin_comment.contains("released=s01"))
            .unwrap();
        assert!(opened() <= after + 1, "{what}: {after}, then {}", opened());
        cluster.cmd("scancel", &[&pinned.to_string()]).unwrap();
    };
    let quick = |general: &str| {
        settings(tampered, general, slow).replace("release_after = 600.0", "release_after = 1.0")
    };
    reload(cluster, sjpd, &quick(""));
    stop_and_see("the disable file", &mut || {
        std::fs::write(cluster.dir().join("disable"), "").unwrap();
    });
    // The rest of them, until a reload.
    let before = opened();
    std::fs::remove_file(cluster.dir().join("disable")).unwrap();
    wait_for(SOON, "it goes on", || {
        let now = opened();
        Ok(if now > before { Ok(()) } else { Err(now) })
    })
    .unwrap();
    stop_and_see("mode observe", &mut || reload(cluster, sjpd, &quick("mode = \"observe\"")));
}
