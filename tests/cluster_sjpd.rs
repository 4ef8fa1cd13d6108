//! sjpd and its module on a real Slurm: the way from sbatch to a pinned job, and what
//! the handle of the daemon can do.

use std::time::Duration;

use sjp_tests::{ClusterSpec, RunAs, Signal, wait_for};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_job_is_placed_where_the_least_is_lost() {
    let cluster = ClusterSpec::slim_and_fat().with_sjp("", "").start().unwrap();
    // s01 keeps 8 CPUs and 4000 MB: room for the job, but not in proportion.
    cluster.fill_node("s01", 8, 28_000).unwrap();
    let mut sjpd = cluster.start_sjpd("").unwrap();
    let id = cluster
        .sbatch_as(RunAs::user(1), &["-J", "one", "-c4", "--mem=8G", "-t10", "--wrap=sleep 100"])
        .unwrap();
    let answer = cluster.answer_for("one").unwrap();
    assert!(answer.ok && answer.placed, "{answer:?}");
    let job = cluster.wait_started(id).unwrap();
    assert!(job.admin_comment.starts_with("sjp:"), "{job:?}");
    assert_eq!(job.nodes, "s02");

    // Without the daemon jobs keep the fields they came with.
    sjpd.signal(Signal::SIGHUP).unwrap();
    assert_eq!(sjpd.stop().unwrap(), 0);
    let id = cluster.sbatch(&["-J", "two", "-c4", "--mem=8G", "--wrap=sleep 100"]).unwrap();
    let answer =
        wait_for(SOON, "the answer is logged", || Ok(cluster.answer_for("two").ok_or("no answer")))
            .unwrap();
    assert!(answer.ok && !answer.placed, "{answer:?}");
    assert_eq!(cluster.job(id).unwrap().partition, "slim");
    cluster.stop().unwrap();
}
