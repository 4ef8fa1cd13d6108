//! sjpd, and `sjp undo`, killed with -9 at every update of every kind of change of
//! jobs, on a real Slurm: before the command, with the command still on its way, and
//! after it. Whoever comes next goes on, until nothing is left to do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sjp_tests::{ClusterSpec, Crash, Job, RunAs, Tampered, TestCluster, wait_for};

const SOON: Duration = Duration::from_secs(30);
/// An sjpd that has made no update for so long has nothing left to do.
const QUIET: Duration = Duration::from_secs(3);
/// Lives of sjpd that one stage may take.
const LIVES: usize = 40;

const HOW: [Crash; 3] = [Crash::Lost, Crash::Late, Crash::After];

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
    for args in [
        "add qos flex,capped",
        // Nothing starts there: what moves to it comes back.
        "modify qos flex set GrpJobs=0",
        "modify qos capped set MaxTRESPerUser=cpu=1",
        "modify user sjpt1 set qos+=flex,capped",
    ] {
        let args: Vec<&str> = std::iter::once("-i").chain(args.split(' ')).collect();
        cluster.cmd("sacctmgr", &args).unwrap();
    }
    // Room for four CPUs on one node, and nowhere else.
    for (node, cpus) in [("s01", 16), ("m01", 11), ("f01", 16)] {
        cluster.fill_node(node, cpus, 1_000).unwrap();
    }
    cluster
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
    let mark = format!("admincomment=site {mark}");
    for words in set {
        update(cluster, id, &[words]);
    }
    update(cluster, id, &[&mark]);
    id
}

/// What holds at every moment, whatever was cut off where.
fn check(job: &Job) {
    let mark = job.admin_comment.strip_prefix("site ").unwrap_or_default();
    assert!(mark.starts_with("sjp:"), "the mark, or the site's text, is lost: {job:?}");
    let parts = job.partitions();
    let known = ["slim", "mid", "fat"];
    assert!(!parts.is_empty() && parts.iter().all(|p| known.contains(p)), "{job:?}");
    if !job.required_nodes.is_empty() {
        let pin = format!("sjp:pin={};", job.required_nodes);
        assert!(mark.starts_with(&pin), "a node that no mark tells of: {job:?}");
    }
    match job.qos.as_str() {
        "flex" => assert!(mark.contains("qos=capped>flex"), "{job:?}"),
        qos => assert!(!mark.contains("qos=") && ["normal", "capped"].contains(&qos), "{job:?}"),
    }
}

/// Lives of sjpd, each killed at its first update in one way or another, until one
/// finds nothing to do. Answers how many there were.
fn until_done(cluster: &TestCluster, tampered: &Tampered, more: &str, jobs: &[u32]) -> usize {
    cluster.write_sjp_toml(&settings(tampered, more)).unwrap();
    for life in 0..LIVES {
        tampered.crash(HOW[life % HOW.len()], "").unwrap();
        let mut sjpd = cluster.spawn_sjpd(&[]).unwrap();
        let begun = Instant::now();
        let killed = wait_for(SOON, "sjpd is killed, or has nothing to do", || {
            Ok(match sjpd.ended()? {
                Some(code) => Ok(Some(code)),
                None if begun.elapsed() > QUIET => Ok(None),
                None => Err("neither"),
            })
        })
        .unwrap();
        for id in jobs {
            check(&cluster.job(*id).unwrap());
        }
        match killed {
            Some(code) => assert_eq!(code, 128 + 9, "{}", sjpd.log()),
            None => {
                assert!(tampered.crash_is_ahead());
                assert_eq!(sjpd.stop().unwrap(), 0);
                return life;
            }
        }
    }
    panic!("no end after {LIVES} lives: {:#?}", tampered.crashes());
}

/// The kinds of change that an sjpd was killed in.
fn kinds(cluster: &TestCluster) -> BTreeSet<String> {
    let begun = cluster.decisions().into_iter().filter(|e| e["stage"] == "begin");
    begun.filter_map(|e| e["event"].as_str().map(str::to_string)).collect()
}

#[test]
fn killed_at_every_update_nothing_is_lost_doubled_or_left_behind() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    let pinned = submit(
        &cluster,
        &["-c8", "-pslim"],
        &["reqnodelist=s01"],
        "sjp:pin=s01;from=slim,fat;was=slim;job=8c,0.5G,0.1G/c;id=1",
    );
    let opened = submit(&cluster, &["-c8", "-pfat"], &[], "sjp:placed=fat;job=8c,0.5G,0.1G/c;id=2");
    let moved =
        submit(&cluster, &["-c2", "-pslim"], &[], "sjp:placed=slim;job=2c,0.5G,0.2G/c;id=3");
    // At the cap of its QOS; one more would fit.
    cluster
        .sbatch_as(
            RunAs::user(1),
            &["-c1", "--mem=500", "-pmid", "-qcapped", "-t600", "--wrap=sleep 1000"],
        )
        .and_then(|id| cluster.wait_started(id))
        .unwrap();
    let flexed = submit(
        &cluster,
        &["-c1", "-pmid", "-qcapped"],
        &[],
        "sjp:placed=mid;was=mid;job=1c,0.5G,0.5G/c;id=4",
    );
    let jobs = [pinned, opened, moved, flexed];

    // Released; moved; opened.
    let recheck = "[recheck]\ninterval = 1\n[starvation]\nenabled = false";
    let lives = until_done(&cluster, &tampered, recheck, &jobs);
    assert!(lives >= 9, "{:#?}", tampered.crashes());
    let all: BTreeSet<&str> = ["slim", "mid", "fat"].into();
    let everywhere = |job: &Job| job.partitions().into_iter().collect::<BTreeSet<_>>() == all;
    let job = cluster.job(pinned).unwrap();
    assert!(job.pending() && job.required_nodes.is_empty(), "{job:?}");
    let parts: BTreeSet<&str> = job.partitions().into_iter().collect();
    assert_eq!(parts, ["slim", "fat"].into(), "it named slim, and is not opened beyond: {job:?}");
    assert!(job.admin_comment.contains("released=s01") && job.admin_comment.contains("was=slim;"));
    let job = cluster.job(opened).unwrap();
    assert!(job.pending() && everywhere(&job) && job.admin_comment.contains("open="), "{job:?}");
    let job = cluster.wait_started(moved).unwrap();
    assert_eq!((job.nodes.as_str(), job.partition.as_str()), ("m01", "mid"), "{job:?}");
    assert!(job.admin_comment.contains("moved=slim>"), "{job:?}");

    // To the flex QOS and back.
    let flex = "[recheck]\ninterval = 0\n[starvation]\nenabled = false\n\
                [limits]\nmode = \"flex\"\nflex_revert_after = 1\ncooldown_seconds = 0\n\
                min_idle_share = 0.0";
    cluster.write_sjp_toml(&settings(&tampered, flex)).unwrap();
    for (words, how) in ["qos=flex", "qos=capped"].iter().flat_map(|w| HOW.map(|how| (w, how))) {
        tampered.crash(how, words).unwrap();
        let mut sjpd = cluster.spawn_sjpd(&[]).unwrap();
        assert_eq!(sjpd.wait().unwrap(), 128 + 9, "{}", sjpd.log());
        check(&cluster.job(flexed).unwrap());
    }

    // Pinned to where room is expected first.
    cluster.cmd("scancel", &[&pinned.to_string()]).unwrap();
    let jobs = [opened, moved, flexed];
    let wait = "wait_for_room = true\n[policy]\nalways_place = true\n[recheck]\ninterval = 1";
    let off = format!("{wait}\n[starvation]\nenabled = false");
    let lives = until_done(&cluster, &tampered, &off, &jobs);
    assert!(lives >= 3, "{:#?}", tampered.crashes());
    let job = cluster.job(flexed).unwrap();
    assert!(job.pending() && job.qos == "capped", "moves to flex are off: {job:?}");
    let job = cluster.job(opened).unwrap();
    assert!(!job.required_nodes.is_empty() && job.admin_comment.contains("eta="), "{job:?}");

    // Widened, once its budget of 36 s is over. What is cut in two there is finished
    // as a release, which comes to the same.
    wait_for(SOON + SOON, "the budget is over", || {
        let submitted = cluster.job(opened)?.raw["submit_time"].clone();
        let submitted = submitted.as_u64().or_else(|| submitted["number"].as_u64()).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
        Ok(if now > submitted + 40 { Ok(()) } else { Err(format!("{}", now - submitted)) })
    })
    .unwrap();
    let on = format!("{wait}\n[starvation]\nbudget_hours.fat = 0.01\nbudget_hours.slim = 0.01");
    let lives = until_done(&cluster, &tampered, &on, &jobs);
    assert!(lives >= 6, "{:#?}", tampered.crashes());
    let job = cluster.job(opened).unwrap();
    assert!(everywhere(&job) && job.required_nodes.is_empty(), "{job:?}");
    assert!(job.admin_comment.contains("released="), "{job:?}");
    let wanted = ["release", "open", "move", "flex", "flex-back", "wait", "widen"];
    let seen = kinds(&cluster);
    assert!(wanted.iter().all(|kind| seen.contains(*kind)), "{seen:?}");

    undone(&cluster, &tampered, [opened, moved, flexed]);
    cluster.stop().unwrap();
}

/// Everything is taken back, however often that is killed.
fn undone(cluster: &TestCluster, tampered: &Tampered, [opened, moved, flexed]: [u32; 3]) {
    // One with a pin and in the flex QOS: three updates.
    update(cluster, flexed, &["reqnodelist=m01"]);
    let both = "admincomment=site sjp:pin=m01;from=mid,slim;was=slim;qos=capped>flex;id=4";
    update(cluster, flexed, &["qos=flex", both]);
    let mut killed = 0;
    loop {
        tampered.crash(HOW[killed % HOW.len()], "").unwrap();
        let out = cluster.sjp(&["undo"]).unwrap();
        if out.success() {
            assert!(out.stdout.contains("nothing is left"), "{out:?}");
            break;
        }
        assert_eq!(out.code, 128 + 9, "{out:?}");
        killed += 1;
        assert!(killed < LIVES, "{:#?}", tampered.crashes());
    }
    assert!(killed >= 5, "{:#?}", tampered.crashes());
    // A command that was late may have come after the last look.
    wait_for(SOON, "nothing of sjp's is left", || {
        let out = cluster.sjp(&["undo"])?;
        let seen: Vec<Job> = [opened, flexed].iter().map(|id| cluster.job(*id).unwrap()).collect();
        let bare = |j: &Job| j.admin_comment == "site" && j.required_nodes.is_empty();
        Ok(if out.success() && seen.iter().all(bare) { Ok(()) } else { Err(format!("{seen:?}")) })
    })
    .unwrap();
    let place = |id: u32| {
        let job = cluster.job(id).unwrap();
        (job.partition, job.qos)
    };
    assert_eq!(place(opened), ("slim".into(), "normal".into()));
    assert_eq!(place(flexed), ("slim".into(), "capped".into()));
    let running = cluster.job(moved).unwrap();
    assert!(running.has_nodes() && running.admin_comment.contains("sjp:"), "{running:?}");
}
