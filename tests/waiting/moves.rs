//! Jobs move when room appears elsewhere, never more than fit; they are opened where
//! there is none, and narrowed when they can start. Arrays and requeued jobs too.

use crate::common::{
    QUICK, SOON, cancel, go_on_scheduling, made, mark, start, stop_scheduling, submit, update,
    wait_rechecks,
};
use sjp_tests::{Job, TestCluster};

fn settings(open: bool) -> String {
    format!("{QUICK}[recheck]\ninterval = 1.0\nopen = {open}\n[pin]\nrelease_after = 2.0\n")
}

fn all(cluster: &TestCluster, ids: &[u32]) -> Vec<Job> {
    ids.iter().map(|id| cluster.job(*id).unwrap()).collect()
}

#[test]
fn jobs_move_open_and_narrow_as_room_comes_and_goes() {
    let cluster = start();
    let full: Vec<u32> =
        ["s01", "s02", "f01"].map(|n| cluster.fill_node(n, 16, 16_000).unwrap()).into();
    let sjpd = cluster.start_sjpd(&settings(false)).unwrap();
    cluster.wait_placing().unwrap();

    // Six jobs placed by shape in slim, and an array; the middle ones come first.
    stop_scheduling(&cluster);
    let jobs: Vec<u32> = (0..6).map(|_| submit(&cluster, &[])).collect();
    let array = submit(&cluster, &["--array=1-4"]);
    for job in all(&cluster, &jobs) {
        assert!(job.pending() && mark(&job, "placed") == "slim", "{job:?}");
    }
    for (id, priority) in [(jobs[2], 900), (jobs[3], 800)] {
        update(&cluster, id, &[&format!("priority={priority}")]);
    }
    wait_rechecks(&cluster, 2);

    // One node of 16 CPUs comes free: two of them move there, the first by priority,
    // and no third one ever.
    cancel(&cluster, &full[2..]);
    let moved = |job: &Job| mark(job, "moved") == "slim>fat";
    for id in &jobs[2..4] {
        let job = cluster.wait_job(*id, SOON, "moves to where room is", moved).unwrap();
        assert_eq!((job.partition.as_str(), mark(&job, "placed").as_str()), ("fat", "fat"));
        assert!(job.required_nodes.is_empty(), "{job:?}");
    }
    wait_rechecks(&cluster, 3);
    let count = all(&cluster, &jobs).iter().filter(|job| moved(job)).count();
    assert_eq!(count, 2, "{:?}", all(&cluster, &jobs));
    assert!(jobs[2..4].iter().all(|id| made(&cluster, "move", *id) == 1), "each moves once");
    assert_eq!(made(&cluster, "move", array), 0);
    go_on_scheduling(&cluster);
    for id in &jobs[2..4] {
        assert_eq!(cluster.wait_started(*id).unwrap().nodes, "f01");
    }

    // With open, those without room get every partition, and the array does as well.
    stop_scheduling(&cluster);
    assert_eq!(sjpd.stop().unwrap(), 0);
    let sjpd = cluster.start_sjpd(&settings(true)).unwrap();
    let opened = |job: &Job| job.pending() && job.partitions() == ["fat", "slim"];
    for id in [jobs[0], jobs[1], jobs[4], jobs[5], array] {
        let job = cluster.wait_job(id, SOON, "is opened", opened).unwrap();
        let mut open: Vec<String> = mark(&job, "open").split(',').map(str::to_owned).collect();
        open.sort();
        assert_eq!(open, ["fat", "slim"], "{job:?}");
    }
    wait_rechecks(&cluster, 2);
    assert_eq!(made(&cluster, "open", jobs[0]), 1, "open already");

    // s01 comes free: two of them can start there, and are narrowed to it.
    cancel(&cluster, &full[..1]);
    for id in &jobs[..2] {
        let narrowed = |job: &Job| mark(job, "open").is_empty() && mark(job, "placed") == "slim";
        let job = cluster.wait_job(*id, SOON, "is narrowed", narrowed).unwrap();
        assert_eq!(job.partition, "slim", "{job:?}");
        assert_eq!(made(&cluster, "narrow", *id), 1);
    }
    wait_rechecks(&cluster, 2);
    assert!(all(&cluster, &[jobs[4], jobs[5], array]).iter().all(opened));
    go_on_scheduling(&cluster);
    for id in &jobs[..2] {
        assert_eq!(cluster.wait_started(*id).unwrap().nodes, "s01");
    }

    // Room for two tasks of the array in fat: the group that waits moves there; the
    // tasks that ran keep their marks.
    cancel(&cluster, &[jobs[4], jobs[5], jobs[2], jobs[3]]);
    let task = |n: usize| -> Vec<Job> {
        let jobs = cluster.jobs().unwrap().into_iter();
        let tasks = jobs.filter(|j| j.raw["array_job_id"].to_string().contains(&array.to_string()));
        tasks.filter(|j| j.has_nodes() && j.nodes == "f01").take(n).collect()
    };
    sjp_tests::wait_for(SOON, "two tasks run in fat", || {
        let running = task(4);
        Ok(if running.len() == 2 { Ok(()) } else { Err(format!("{running:?}")) })
    })
    .unwrap();

    // A requeued job shows the partitions that it had, and keeps its mark.
    let requeued = task(1).remove(0);
    cluster.cmd("scontrol", &["requeue", &requeued.id.to_string()]).unwrap();
    let back = cluster.wait_job(requeued.id, SOON, "is back", Job::pending).unwrap();
    wait_rechecks(&cluster, 3);
    let back_later = cluster.job(requeued.id).unwrap();
    assert!(!mark(&back_later, "job").is_empty(), "let go: {back:?} {back_later:?}");
    assert_eq!(made(&cluster, "drop-mark", requeued.id), 0);
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
