//! What a user or an admin chooses later wins: the mark goes, with a pin of sjp's that
//! is still there, and the job is never touched again.

use crate::common::{
    QUICK, SOON, cancel, made, mark, start, stop_scheduling, submit, update, wait_rechecks,
};
use sjp_tests::{Job, RunAs};

#[test]
fn a_later_choice_wins_and_the_mark_is_dropped() {
    let cluster = start();
    let full: Vec<u32> =
        ["s01", "s02", "f01"].map(|n| cluster.fill_node(n, 16, 16_000).unwrap()).into();
    let settings = |wait: bool| {
        let pin = format!("[pin]\nrelease_after = 600.0\nwait_for_room = {wait}\n");
        format!("{QUICK}[recheck]\ninterval = 1.0\n{pin}")
    };
    let sjpd = cluster.start_sjpd(&settings(false)).unwrap();
    cluster.wait_placing().unwrap();
    stop_scheduling(&cluster);
    let [partition, nodes, pin, own, stays] = [0; 5].map(|_| submit(&cluster, &[]));
    let named = submit(&cluster, &["-p", "slim"]);
    let open = |job: &Job| job.partitions() == ["fat", "slim"] && !mark(job, "open").is_empty();
    for id in [partition, nodes, pin, own, stays] {
        cluster.wait_job(id, SOON, "is opened", open).unwrap();
    }
    // A partition of the user's own bounds it.
    let job = cluster.job(named).unwrap();
    assert_eq!((job.partition.as_str(), mark(&job, "was").as_str()), ("slim", "slim"));

    // The user's own updates, and text before the mark that the site has put there.
    let user = RunAs::user(1);
    let own_update = |id: u32, what: &str| cluster.update_job(user, id, &[what]);
    let site = format!("admincomment=the site's {}", cluster.job(partition).unwrap().admin_comment);
    update(&cluster, partition, &[&site]);
    own_update(partition, "partition=slim").unwrap();
    own_update(nodes, "reqnodelist=s02").unwrap();
    let gone = |job: &Job| !job.admin_comment.contains("sjp:");
    let job = cluster.wait_job(partition, SOON, "loses its mark", gone).unwrap();
    assert_eq!((job.admin_comment.as_str(), job.partition.as_str()), ("the site's", "slim"));
    let job = cluster.wait_job(nodes, SOON, "loses its mark", gone).unwrap();
    assert_eq!((job.admin_comment.as_str(), job.required_nodes.as_str()), ("", "s02"));

    // A job that sjp has pinned: the user's partition stays, sjp's node goes.
    update(&cluster, full[2], &["timelimit=10"]);
    assert_eq!(sjpd.stop().unwrap(), 0);
    let sjpd = cluster.start_sjpd(&settings(true)).unwrap();
    let pinned = |job: &Job| mark(job, "pin") == "f01" && job.required_nodes == "f01";
    cluster.wait_job(pin, SOON, "is pinned", pinned).unwrap();
    own_update(pin, "partition=slim").unwrap();
    let job = cluster.wait_job(pin, SOON, "loses its mark", gone).unwrap();
    assert_eq!((job.partition.as_str(), job.required_nodes.as_str()), ("slim", ""));
    // One whose node the user took off gets its partitions back, as if released.
    cluster.wait_job(own, SOON, "is pinned", |j| !mark(j, "pin").is_empty()).unwrap();
    own_update(own, "reqnodelist=").unwrap();
    let back = |job: &Job| job.required_nodes.is_empty() && !mark(job, "released").is_empty();
    cluster.wait_job(own, SOON, "has its partitions back", back).unwrap();

    // None of them is touched again, whatever the cluster looks like.
    cancel(&cluster, &full[2..]);
    wait_rechecks(&cluster, 3);
    for id in [partition, pin, nodes] {
        let job = cluster.job(id).unwrap();
        assert!(gone(&job) && job.pending(), "{job:?}");
        // The first two by the user's word, the last as it came: sjp opened it.
        assert_eq!(job.partition, "slim", "{job:?}");
        assert_eq!(made(&cluster, "drop-mark", id), 1);
    }
    assert_eq!(cluster.job(named).unwrap().partition, "slim");
    assert_eq!(sjpd.stop().unwrap(), 0);
    cluster.stop().unwrap();
}
