//! Pins that did not help are taken back on a real Slurm: after crashes, with a busy
//! slurmctld, when the job has moved on; and what is never touched.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use sjp_tests::{ClusterSpec, Job, RunAs, Signal, Sjpd, Tampered, TestCluster, wait_for};

const SOON: Duration = Duration::from_secs(60);

/// Three nodes, each in a partition of its own, so that a pin shows in the
/// partition too; s01 has another shape of room than the others.
fn start() -> TestCluster {
    let cluster = ClusterSpec::new()
        .nodes("s[01-03]", 16, 32_000)
        .partition("p1", "s01", "Default=YES")
        .partition("p2", "s02", "")
        .partition("p3", "s03", "")
        .with_sjp("", "")
        .start()
        .unwrap();
    cluster.fill_node("s01", 8, 4_000).unwrap();
    cluster
}

/// Old data is answered from for long, so that a stopped sjpd leaves the module with
/// a picture in which there is room.
fn settings(tampered: &Tampered) -> String {
    let commands = tampered.toml("");
    format!(
        "[pin]\nrelease_after = 4.0\nmax_age = 600.0\n[recheck]\ninterval = 0\n\
         [cadence]\nqueue_poll_interval = 1.0\n{commands}"
    )
}

/// Submits a job that fits the room of s01.
fn submit(cluster: &TestCluster, more: &[&str]) -> u32 {
    let args = ["-c2", "--mem=7000M", "-t10", "--wrap=sleep 1000"];
    let args: Vec<&str> = more.iter().copied().chain(args).collect();
    cluster.sbatch_as(RunAs::user(1), &args).unwrap()
}

/// The node that the job is pinned to; it waits.
fn pin_of(cluster: &TestCluster, id: u32) -> String {
    let job = cluster.job(id).unwrap();
    assert!(job.pending(), "{job:?}");
    let mark = job.admin_comment.split_once("sjp:pin=").map(|(_, rest)| rest);
    let node = mark.and_then(|rest| rest.split(';').next()).unwrap_or_default().to_string();
    assert_eq!(job.required_nodes, node, "not pinned: {job:?}");
    assert_eq!(job.partitions(), [format!("p{}", &node[2..])], "{job:?}");
    node
}

/// Takes all room that is left on the three nodes; returns the jobs that hold it.
fn fill_up(cluster: &TestCluster) -> Vec<u32> {
    [("s01", 8), ("s02", 16), ("s03", 16)]
        .iter()
        .map(|(node, cpus)| cluster.fill_node(node, *cpus, 1_000).unwrap())
        .collect()
}

fn released(job: &Job) -> bool {
    job.pending()
        && job.required_nodes.is_empty()
        && job.partitions() == ["p1", "p2", "p3"]
        && job.admin_comment.contains("released=")
        && !job.admin_comment.contains("pin=")
}

fn cancel(cluster: &TestCluster, id: u32) {
    cluster.cmd("scancel", &[&id.to_string()]).unwrap();
}

/// The stages of the release of a job in the decision log.
fn stages(cluster: &TestCluster, id: u32) -> Vec<String> {
    let entries = cluster.decisions().into_iter().filter(|e| e["job"] == id);
    entries.filter_map(|e| e["stage"].as_str().map(str::to_string)).collect()
}

/// Stops sjpd, fills the cluster, submits: the jobs are pinned to where there was
/// room, and wait.
fn pin_two(cluster: &TestCluster, sjpd: &mut Sjpd) -> (Vec<u32>, [u32; 2]) {
    sjpd.signal(Signal::SIGSTOP).unwrap();
    let fill = fill_up(cluster);
    let jobs = [submit(cluster, &[]), submit(cluster, &[])];
    for id in jobs {
        pin_of(cluster, id);
    }
    (fill, jobs)
}

#[test]
fn pins_are_taken_back() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    let mut sjpd = cluster.start_sjpd(&settings(&tampered)).unwrap();
    cluster.wait_placing().unwrap();

    // A busy slurmctld, then a crash between the two updates of a release.
    let (fill, [one, two]) = pin_two(&cluster, &mut sjpd);
    let node = pin_of(&cluster, one);
    tampered.busy(2).unwrap();
    sjpd.signal(Signal::SIGCONT).unwrap();
    cluster.wait_job(one, SOON, "is released", released).unwrap();
    let job = cluster.wait_job(two, SOON, "is released", released).unwrap();
    assert!(job.admin_comment.contains(&format!("released={node}")), "{job:?}");
    let made = tampered.made();
    for id in [one, two] {
        let of_it = made.iter().filter(|m| m.contains(&format!(" jobid={id} "))).count();
        assert_eq!(of_it, 2, "two updates each: {made:?}");
    }
    let tried = tampered.calls().iter().filter(|c| c.contains(" update ")).count();
    assert!(tried >= 6, "two of the updates were to fail first: {tried} tried");
    wait_for(SOON, "the log tells it", || {
        let all = [stages(&cluster, one), stages(&cluster, two)];
        let told = all.iter().all(|s| s.join(" ") == "begin done");
        Ok(if told { Ok(()) } else { Err(format!("{all:?}")) })
    })
    .unwrap();
    // There is room on one node: one of them starts there.
    cancel(&cluster, fill[2]);
    let job = cluster.wait_started(one).unwrap();
    assert_eq!((job.nodes.as_str(), job.partition.as_str()), ("s03", "p3"));
    for id in [one, two] {
        cancel(&cluster, id);
    }
    for id in &fill[..2] {
        cancel(&cluster, *id);
    }
    wait_empty(&cluster);

    // Killed between pin and release: the next sjpd releases it. Killed again
    // between the two updates: the one after that gives the partitions back.
    see_room(&cluster, &mut sjpd);
    let (fill, [one, two]) = pin_two(&cluster, &mut sjpd);
    sjpd.kill9().unwrap();
    let mut sjpd = cluster.spawn_sjpd(&[]).unwrap();
    tampered.after_update(&format!("kill -9 {}", sjpd.pid())).unwrap();
    assert_eq!(sjpd.wait().unwrap(), 128 + 9);
    let half: Vec<Job> = [one, two].iter().map(|id| cluster.job(*id).unwrap()).collect();
    let halves = half.iter().filter(|j| j.required_nodes.is_empty()).count();
    assert_eq!(halves, 1, "{half:?}");
    for job in &half {
        assert_eq!(job.partitions().len(), 1, "{job:?}");
        assert!(job.admin_comment.contains("pin="), "{job:?}");
    }
    let mut sjpd = cluster.spawn_sjpd(&[]).unwrap();
    sjpd.wait_ready().unwrap();
    for id in [one, two] {
        cluster.wait_job(id, SOON, "is released", released).unwrap();
        cancel(&cluster, id);
    }
    for id in &fill {
        cancel(&cluster, *id);
    }
    wait_empty(&cluster);

    // One starts, the other is cancelled, before its first update is made.
    see_room(&cluster, &mut sjpd);
    let (fill, [one, two]) = pin_two(&cluster, &mut sjpd);
    // They are released in the order of the queue; either may be first.
    let start = |id: u32, fill: u32| {
        format!(
            "scancel {fill}; while squeue -h -j {id} -t PD 2>/dev/null | grep -q .; do sleep 0.1; done\n"
        )
    };
    let on = |node: &str| fill[usize::from(node.as_bytes()[2] - b'1')];
    let (first, second) = (on(&pin_of(&cluster, one)), two);
    // Both are ordered from one look at the queue.
    wait_overdue(&cluster, two);
    tampered.before_update(&format!("scancel {second}; {}", start(one, first))).unwrap();
    sjpd.signal(Signal::SIGCONT).unwrap();
    let job = cluster.wait_started(one).unwrap();
    assert!(job.admin_comment.contains("pin="), "{job:?}");
    wait_for(SOON, "the log says that there is nothing left to do", || {
        let all = [stages(&cluster, one), stages(&cluster, two)];
        // Seen in the queue together, they were ordered together.
        let gone = all.iter().all(|s| s.join(" ") == "begin gone");
        Ok(if gone { Ok(()) } else { Err(format!("{all:?}")) })
    })
    .unwrap();
    let job = cluster.job(one).unwrap();
    assert!(job.has_nodes() && job.admin_comment.contains("pin="), "{job:?}");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

/// Waits until a pin's time is over, while sjpd is stopped.
fn wait_overdue(cluster: &TestCluster, id: u32) {
    let due = cluster.job(id).unwrap().number("submit_time").unwrap() + 5;
    wait_for(SOON, "the time of the pin is over", || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
        Ok(if now >= due { Ok(()) } else { Err(format!("{} s left", due - now)) })
    })
    .unwrap();
}

/// Waits until only the first fill job is left.
fn wait_empty(cluster: &TestCluster) {
    wait_for(SOON, "the nodes are as at the start", || {
        let used: Vec<String> = ["s01", "s02", "s03"]
            .iter()
            .map(|n| cluster.node(n).unwrap().remove("CPUAlloc").unwrap_or_default())
            .collect();
        Ok(if used == ["8", "0", "0"] { Ok(()) } else { Err(format!("{used:?}")) })
    })
    .unwrap();
}

/// Waits until sjpd has published the room that is there.
fn see_room(cluster: &TestCluster, sjpd: &mut Sjpd) {
    wait_for(SOON, "sjpd sees the room", || {
        assert_eq!(sjpd.ended().unwrap(), None, "{}", sjpd.log());
        let out = cluster.sjp(&["table", "--json"]).unwrap();
        let json: serde_json::Value = serde_json::from_str(&out.stdout).unwrap_or_default();
        let nodes = json["nodes"].as_array().into_iter().flatten();
        let seen: Vec<Option<u64>> = nodes.map(|n| n["cpus_free"].as_u64()).collect();
        let open = json["claims"]["open"].as_u64();
        let there = seen == [Some(8), Some(16), Some(16)] && open == Some(0);
        Ok(if there { Ok(()) } else { Err(format!("{seen:?} free, {open:?} claims")) })
    })
    .unwrap();
}

#[test]
fn what_is_not_sjps_is_left_alone() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    let mut sjpd = cluster.start_sjpd(&settings(&tampered)).unwrap();
    cluster.wait_placing().unwrap();
    sjpd.signal(Signal::SIGSTOP).unwrap();
    fill_up(&cluster);
    let pinned = submit(&cluster, &[]);
    let node = pin_of(&cluster, pinned);
    // A user's own node, which sjp marked as placed; one without any mark; one whose
    // mark says another node; a pin whose mark an admin replaced, or emptied.
    let own = submit(&cluster, &["--nodelist=s02"]);
    let unmarked = submit(&cluster, &["--nodelist=s02"]);
    let other = submit(&cluster, &["--nodelist=s02"]);
    let (replaced, emptied) = (submit(&cluster, &[]), submit(&cluster, &[]));
    for id in [replaced, emptied] {
        pin_of(&cluster, id);
    }
    let comment = |id: u32, text: &str| {
        let (job, comment) = (format!("jobid={id}"), format!("admincomment={text}"));
        cluster.cmd("scontrol", &["update", &job, &comment]).unwrap();
    };
    comment(unmarked, "");
    comment(other, "sjp:pin=s01;from=p1,p2,p3;id=1");
    comment(replaced, "kept there by the admin");
    comment(emptied, "");
    let before: Vec<Job> = [own, unmarked, other, replaced, emptied]
        .iter()
        .map(|id| cluster.job(*id).unwrap())
        .collect();
    assert!(before[0].admin_comment.starts_with("sjp:placed="), "{:?}", before[0]);
    assert!(before.iter().all(|j| !j.required_nodes.is_empty()), "{before:?}");

    // A dry run says what it would do, and does not, in whatever mode.
    for mode in ["observe", "enforce"] {
        sjpd.kill9().unwrap();
        let text = format!("[general]\nmode = \"{mode}\"\n{}", settings(&tampered));
        cluster.write_sjp_toml(&text).unwrap();
        let told = stages(&cluster, pinned).len();
        sjpd = cluster.spawn_sjpd(&["--dry-run"]).unwrap();
        sjpd.wait_ready().unwrap();
        wait_for(SOON, "the dry run says what it would do", || {
            let stages = stages(&cluster, pinned).split_off(told);
            Ok(if stages == ["would"] { Ok(()) } else { Err(format!("{stages:?}")) })
        })
        .unwrap();
        wait_polls(&tampered, 2);
    }
    assert_eq!(pin_of(&cluster, pinned), node);
    let updates = |calls: Vec<String>| calls.into_iter().filter(|c| c.contains(" update "));
    assert_eq!(updates(tampered.calls()).collect::<Vec<_>>(), Vec::<String>::new());

    // The pin goes outside mode enforce, and with the disable file in place, and so does
    // the mark of the job that is elsewhere; nothing else does.
    std::fs::write(cluster.dir().join("disable"), "").unwrap();
    assert_eq!(sjpd.stop().unwrap(), 0);
    let advise = format!("[general]\nmode = \"advise\"\n{}", settings(&tampered));
    let sjpd = cluster.start_sjpd(&advise).unwrap();
    cluster.wait_reason("disabled").unwrap();
    cluster.wait_job(pinned, SOON, "is released", released).unwrap();
    wait_polls(&tampered, 4);
    for job in &before {
        let now = cluster.job(job.id).unwrap();
        let comment = if job.id == other { "" } else { &job.admin_comment };
        assert_eq!(
            (&now.required_nodes, &now.partition, now.admin_comment.as_str()),
            (&job.required_nodes, &job.partition, comment)
        );
    }
    let of = |id: u32| format!(" jobid={id} ");
    let made = tampered.made();
    let made_of = |id: u32| made.iter().filter(|c| c.contains(&of(id))).count();
    assert_eq!((made.len(), made_of(pinned), made_of(other)), (3, 2, 1), "{made:?}");
    let touched = updates(tampered.calls());
    let others = touched.filter(|c| !c.contains(&of(pinned)) && !c.contains(&of(other)));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<String>::new());
    // The disable file counts from the next submission on, and so does its absence.
    assert_eq!(cluster.probe().unwrap().reason, "disabled");
    std::fs::remove_file(cluster.dir().join("disable")).unwrap();
    assert_ne!(cluster.probe().unwrap().reason, "disabled");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}

/// Waits until sjpd has read the queue this many times more.
fn wait_polls(tampered: &Tampered, times: usize) {
    let polls = || tampered.calls().iter().filter(|c| c.starts_with("squeue ")).count();
    let before = polls();
    wait_for(SOON, "sjpd reads the queue", || {
        let more = polls() - before;
        // The one that is under way may be about to be read.
        Ok(if more > times { Ok(()) } else { Err(format!("{more} of {times}")) })
    })
    .unwrap();
}

#[test]
fn marks_come_from_json_where_squeue_has_no_column_for_them() {
    let cluster = start();
    let tampered = cluster.tamper().unwrap();
    tampered.no_marks().unwrap();
    let mut sjpd = cluster.start_sjpd(&settings(&tampered)).unwrap();
    cluster.wait_placing().unwrap();
    let (_, jobs) = pin_two(&cluster, &mut sjpd);
    sjpd.signal(Signal::SIGCONT).unwrap();
    for id in jobs {
        cluster.wait_job(id, SOON, "is released", released).unwrap();
    }
    let calls: Vec<String> =
        tampered.calls().into_iter().filter(|c| c.starts_with("squeue ")).collect();
    // Once by what reads the queue, and once by what looks at a job before its update.
    for single in [false, true] {
        let of = |c: &&String| c.contains(" -j ") == single && c.contains("admin_comment");
        let with_column = calls.iter().filter(of).count();
        assert_eq!(with_column, 1, "asked for once, and then no more: {calls:?}");
    }
    let json: Vec<&String> = calls.iter().filter(|c| c.contains("--json")).collect();
    // The three jobs are new once, and two of them after each of their releases' updates;
    // the rest of the polls know all marks.
    assert!(!json.is_empty() && json.len() < calls.len() / 2, "{calls:?}");
    let by_id = cluster.release() >= (24, 11);
    assert!(json.iter().all(|c| c.contains(" -j ") == by_id), "{json:?}");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
