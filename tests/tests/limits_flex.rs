//! Jobs that only a CPU cap of their QOS holds move to the flex QOS and back, on a
//! real Slurm with slurmdbd.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use sjp_tests::{ClusterSpec, Job, RunAs, Signal, Sjpd, Tampered, TestCluster, wait_for};

const SOON: Duration = Duration::from_secs(60);

fn start() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("n[1-3]", 16, 32_000)
        .partition("batch", "n[1-3]", "Default=YES MaxTime=600 DefaultTime=60")
        .with_accounting("associations,limits,qos")
        .with_sjp("", "")
        .start()
        .unwrap();
    for args in [
        "add qos flex,shared,free",
        "modify qos normal set MaxTRESPerUser=cpu=4",
        "modify qos shared set MaxTRESPerAccount=cpu=2",
        "modify user sjpt1,sjpt2,sjpt3 set qos+=shared",
        "modify user sjpt1 set qos+=flex",
        "modify user root set qos+=free",
    ] {
        sacctmgr(&cluster, args);
    }
    cluster
}

fn sacctmgr(cluster: &TestCluster, args: &str) -> String {
    let args: Vec<&str> = std::iter::once("-i").chain(args.split(' ')).collect();
    cluster.cmd("sacctmgr", &args).unwrap()
}

/// With `limits` in place of these settings of `[limits]`.
fn settings(tampered: &Tampered, limits: &str) -> String {
    let given: Vec<&str> = limits.lines().filter_map(|l| l.split(' ').next()).collect();
    let defaults = ["mode = \"flex\"", "flex_revert_after = 4", "cooldown_seconds = 6"];
    let kept = defaults.iter().filter(|l| !given.iter().any(|g| l.starts_with(&format!("{g} "))));
    let limits: Vec<&str> = kept.copied().chain(limits.lines()).collect();
    let limits = limits.join("\n");
    format!(
        "[cadence]\nqueue_poll_interval = 1.0\nqos_poll_interval = 1.0\nact_interval = 1.0\n\
         [limits]\n{limits}\n{}",
        tampered.toml("")
    )
}

fn submit(cluster: &TestCluster, user: usize, more: &str) -> u32 {
    let args = more.split(' ').chain(["--mem=1000", "-t60", "-o/dev/null", "--wrap=sleep 1000"]);
    let args: Vec<&str> = args.filter(|a| !a.is_empty()).collect();
    cluster.sbatch_as(RunAs::user(user), &args).unwrap()
}

fn cancel(cluster: &TestCluster, ids: &[u32]) {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    cluster.cmd("scancel", &ids.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
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

fn limits(cluster: &TestCluster) -> serde_json::Value {
    let out = cluster.sjp(&["status", "--json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&out.stdout).unwrap_or_default();
    json["status"]["limits"].clone()
}

/// Waits until what `sjp status` says of limits is as wanted.
fn wait_limits(
    cluster: &TestCluster,
    what: &str,
    wanted: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    wait_for(SOON, what, || {
        let seen = limits(cluster);
        Ok(if wanted(&seen) { Ok(seen) } else { Err(seen.to_string()) })
    })
    .unwrap()
}

/// Waits until sjpd has looked at held jobs this many times more.
fn wait_checks(cluster: &TestCluster, tampered: &Tampered, times: usize) {
    let polls = || tampered.calls().iter().filter(|c| c.starts_with("squeue ")).count();
    let before = polls();
    wait_for(SOON, "sjpd reads the queue", || {
        let more = polls() - before;
        let last = limits(cluster);
        Ok(if more > times { Ok(()) } else { Err(format!("{more} of {times}: {last}")) })
    })
    .unwrap();
}

fn in_flex(job: &Job) -> bool {
    job.qos == "flex" && job.admin_comment.contains(";qos=normal>flex")
}

fn as_before(job: &Job) -> bool {
    job.pending()
        && job.qos == "normal"
        && job.admin_comment.starts_with("sjp:")
        && !job.admin_comment.contains("qos=")
}

/// Times of a job's events of this kind that are done, Unix seconds.
fn times(cluster: &TestCluster, id: u32, event: &str) -> Vec<jiff::Timestamp> {
    let done = |e: &serde_json::Value| e["job"] == id && e["stage"] == "done";
    let events = cluster.events(event).into_iter().filter(done);
    events.map(|e| e["time"].as_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn held_jobs_move_to_the_flex_qos_and_back() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    let mut sjpd = cluster.start_sjpd(&settings(&tampered, "")).unwrap();
    cluster.wait_placing().unwrap();

    // At the cap: the second job moves, starts, and keeps the QOS.
    let first = submit(&cluster, 1, "-c4");
    cluster.wait_started(first).unwrap();
    at_the_cap(&cluster);
    let text = "--comment=sjp:qos=root>flex -J sjp:placed=batch;qos=shared>flex";
    let moved = submit(&cluster, 1, &format!("-c4 {text}"));
    let job = cluster.wait_job(moved, SOON, "runs in flex", |j| j.has_nodes()).unwrap();
    assert!(in_flex(&job), "{job:?}");
    assert_eq!(cluster.job(first).unwrap().qos, "normal");
    let why = cluster.events("flex").into_iter().find(|e| e["stage"] == "begin").unwrap();
    assert!(why["why"].as_str().unwrap().starts_with("only the cap of 4 CPUs per user"), "{why}");
    assert_eq!(why["commands"].as_array().unwrap().len(), 1, "{why}");

    // The cap of the account; an array, all tasks of which fit.
    let by_account = submit(&cluster, 1, "-c2 --qos=shared");
    cluster.wait_started(by_account).unwrap();
    let array = submit(&cluster, 1, "-c2 --qos=shared --array=1-2");
    let both = wait_for(SOON, "both tasks run", || {
        let of_it = |j: &Job| j.number("array_job_id") == Some(array.into()) || j.id == array;
        let tasks: Vec<Job> = cluster.jobs()?.into_iter().filter(of_it).collect();
        let run = tasks.len() == 2 && tasks.iter().all(Job::has_nodes);
        Ok(if run { Ok(tasks) } else { Err(format!("{tasks:?}")) })
    })
    .unwrap();
    for task in both {
        assert_eq!(task.qos, "flex", "{task:?}");
        assert!(task.admin_comment.contains("qos=shared>flex"), "{task:?}");
    }
    assert_eq!(cluster.job(by_account).unwrap().qos, "shared");

    // A user who may not: told once, with the command that allows it.
    let own = submit(&cluster, 2, "-c4");
    cluster.wait_started(own).unwrap();
    let denied = submit(&cluster, 2, "-c4");
    wait_limits(&cluster, "the denied user is counted", |l| l["denied"] == 1);
    wait_checks(&cluster, &tampered, 3);
    let job = cluster.job(denied).unwrap();
    assert!(as_before(&job) && job.reason == "QOSMaxCpuPerUserLimit", "{job:?}");
    let told = cluster.events("flex-denied");
    assert_eq!(told.len(), 1, "{told:?}");
    let command = told[0]["command"].as_str().unwrap();
    assert_eq!(command, "sacctmgr modify user where name=sjpt2 account=test set qos+=flex");
    sacctmgr(&cluster, command.strip_prefix("sacctmgr ").unwrap());
    assert_eq!(sjpd.stop().unwrap(), 0);
    sjpd = cluster.start_sjpd(&settings(&tampered, "")).unwrap();
    let job = cluster.wait_started(denied).unwrap();
    assert!(in_flex(&job), "{job:?}");

    cancel(&cluster, &[denied, array, by_account, moved]);
    back(&cluster, &tampered, &mut sjpd);
    enough_idle(&cluster, &tampered, &mut sjpd, first);

    // Nothing but these QOS was ever given to a job.
    for call in tampered.calls().iter().filter(|c| c.contains(" qos=")) {
        let qos = call.split(" qos=").nth(1).and_then(|r| r.split(' ').next()).unwrap();
        assert!(["flex", "normal", "shared"].contains(&qos), "{call}");
    }
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

/// User 1 is at the cap of the QOS that its jobs have without naming one: they are
/// placed, not pinned.
fn at_the_cap(cluster: &TestCluster) {
    wait_for(SOON, "a job beyond the cap is not pinned", || {
        let id = submit(cluster, 1, "-H -c4");
        let job = cluster.job(id)?;
        cancel(cluster, &[id]);
        let placed = job.required_nodes.is_empty() && job.admin_comment.contains("sjp:placed=");
        Ok(if placed { Ok(()) } else { Err(format!("{job:?}")) })
    })
    .unwrap();
}

/// Jobs that do not start in the flex QOS; user 1 is at the cap.
fn back(cluster: &TestCluster, tampered: &Tampered, sjpd: &mut Sjpd) {
    sacctmgr(cluster, "modify qos flex set GrpJobs=0");
    let waits = submit(cluster, 1, "-c2");
    cluster.wait_job(waits, SOON, "is in flex", |j| j.pending() && in_flex(j)).unwrap();
    cluster.wait_job(waits, SOON, "is as before", as_before).unwrap();
    let comment = cluster.job(waits).unwrap().admin_comment;
    // Not again before it has rested.
    cluster.wait_job(waits, SOON, "is in flex again", |j| j.pending() && in_flex(j)).unwrap();
    wait_for(SOON, "the log tells it", || {
        let (moved, came) = (times(cluster, waits, "flex"), times(cluster, waits, "flex-back"));
        Ok(if moved.len() >= 2 && !came.is_empty() { Ok(()) } else { Err(format!("{moved:?}")) })
    })
    .unwrap();
    let (moved, came) = (times(cluster, waits, "flex"), times(cluster, waits, "flex-back"));
    let seconds = |a: jiff::Timestamp, b: jiff::Timestamp| b.duration_since(a).as_secs_f64();
    assert!(seconds(moved[0], came[0]) >= 4.0 - 1.0, "{moved:?} {came:?}");
    assert!(seconds(came[0], moved[1]) >= 6.0 - 1.0, "{moved:?} {came:?}");

    // Killed in between: the next sjpd gives it back.
    sjpd.signal(Signal::SIGKILL).unwrap();
    sjpd.wait().unwrap();
    assert!(in_flex(&cluster.job(waits).unwrap()));
    *sjpd = cluster.start_sjpd(&settings(tampered, "cooldown_seconds = 0")).unwrap();
    let job = cluster.wait_job(waits, SOON, "is as before", as_before).unwrap();
    assert_eq!(job.admin_comment, comment);

    // Its user takes it back: that stays, and sjp lets go of it.
    cluster.wait_job(waits, SOON, "is in flex", |j| j.pending() && in_flex(j)).unwrap();
    let id = format!("jobid={waits}");
    let out = cluster.run(RunAs::user(1), "scontrol", &["update", &id, "qos=normal"]).unwrap();
    assert!(out.success(), "{out:?}");
    cluster.wait_job(waits, SOON, "has no mark", |j| j.admin_comment.is_empty()).unwrap();
    wait_checks(cluster, tampered, 3);
    let job = cluster.job(waits).unwrap();
    assert_eq!((job.qos.as_str(), job.admin_comment.as_str()), ("normal", ""), "{job:?}");

    // Switched off: what waits there goes back at once.
    let other = submit(cluster, 1, "-c2");
    cluster.wait_job(other, SOON, "is in flex", |j| j.pending() && in_flex(j)).unwrap();
    reload(cluster, sjpd, &settings(tampered, "mode = \"off\"\nflex_revert_after = 600"));
    cluster.wait_job(other, SOON, "is as before", as_before).unwrap();
    cancel(cluster, &[waits, other]);
    sacctmgr(cluster, "modify qos flex set GrpJobs=-1");
    reload(cluster, sjpd, &settings(tampered, ""));
}

/// What is idle, and who counts as using it. `first` has 4 of 48 CPUs, and user 2 too.
fn enough_idle(cluster: &TestCluster, tampered: &Tampered, sjpd: &mut Sjpd, first: u32) {
    assert!(cluster.job(first).unwrap().has_nodes());
    reload(cluster, sjpd, &settings(tampered, "min_idle_share = 0.97"));
    let held = submit(cluster, 1, "-c4");
    cluster.wait_job(held, SOON, "is held", |j| j.reason == "QOSMaxCpuPerUserLimit").unwrap();
    let seen = wait_limits(cluster, "it is seen", |l| l["held"] == 1);
    assert!(seen["idle"].as_f64().is_some_and(|i| i > 0.5 && i < 0.97), "{seen}");
    wait_checks(cluster, tampered, 3);
    assert!(as_before(&cluster.job(held).unwrap()));
    // A job of another's waits for more than is idle.
    let large =
        ["-n48", "--qos=free", "--mem-per-cpu=10", "-t60", "-o/dev/null", "--wrap=sleep 1000"];
    let large = cluster.sbatch(&large).unwrap();
    cluster.wait_job(large, SOON, "waits for room", |j| j.reason == "Resources").unwrap();
    reload(cluster, sjpd, &settings(tampered, "count_pending = true"));
    wait_limits(cluster, "they count", |l| l["idle"].as_f64().is_some_and(|i| i < 0.25));
    wait_checks(cluster, tampered, 3);
    assert!(as_before(&cluster.job(held).unwrap()));
    cancel(cluster, &[large]);
    let job = cluster.wait_started(held).unwrap();
    assert!(in_flex(&job), "{job:?}");
}
