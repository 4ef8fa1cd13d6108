//! The life of claims, poll by poll.

use super::*;
use crate::publication::NameTable;
use crate::units::Cpus;

fn roster() -> Roster {
    Roster { nodes: NameTable::new(["n1", "n2"]), ..Roster::default() }
}

fn claim(seq: u64, time: u64, flags: u32) -> Claim {
    Claim { seq, id: seq, time, uid: 5, node: 0, cpus: 4, mem: 100, flags, ..Claim::default() }
}

fn pending(id: u32, submit: i64, req: &[&str]) -> Job {
    Job {
        id,
        uid: 5,
        submit,
        cpus: Cpus(4),
        priority: 1,
        req_nodes: req.iter().map(|s| (*s).to_owned()).collect(),
        ..Job::default()
    }
}

fn running(id: u32, submit: i64, start: i64, node: &str) -> Job {
    Job {
        state: JobState::Active,
        start: Some(start),
        nodes: vec![node.to_owned()],
        ..pending(id, submit, &[])
    }
}

fn room(ledger: &Ledger, nodes_asked_at: f64) -> u32 {
    ledger.open_rooms(nodes_asked_at, |_| false).map(|r| r.1).sum()
}

fn taken(claims: &[Claim]) -> Ledger {
    let roster = roster();
    let mut ledger = Ledger::new();
    ledger.take(claims, |_| Some(&roster));
    ledger
}

#[test]
fn a_pinned_job_that_waits_is_left_to_the_queue() {
    let mut ledger = taken(&[claim(1, 100, PINNED)]);
    assert_eq!(room(&ledger, 101.0), 4);
    let matches = ledger.see_queue(&[pending(9, 100, &["n1"])], 101);
    assert_eq!((matches[0].job, matches[0].id), (9, 1));
    assert_eq!(room(&ledger, 101.0), 0);
}

#[test]
fn a_started_job_counts_until_the_node_data_is_newer() {
    let mut ledger = taken(&[claim(1, 100, PINNED)]);
    ledger.see_queue(&[running(9, 100, 102, "n1")], 102);
    assert_eq!(room(&ledger, 101.9), 4, "asked before the start");
    assert_eq!(room(&ledger, 103.0), 0, "asked after");
    ledger.see_queue(&[running(9, 100, 102, "n1")], 104);
    assert_eq!(room(&ledger, 101.9), 0, "and no longer than one more poll");
}

#[test]
fn a_job_without_a_pin_counts_while_it_is_about_to_start() {
    let mut ledger = taken(&[claim(1, 100, 0)]);
    let job = pending(9, 100, &[]);
    ledger.see_queue(std::slice::from_ref(&job), 101);
    assert_eq!(room(&ledger, 101.0), 4);
    ledger.see_queue(std::slice::from_ref(&job), 116);
    assert_eq!(room(&ledger, 116.0), 0);
}

#[test]
fn a_held_job_s_claim_is_given_up_at_once() {
    let mut ledger = taken(&[claim(1, 100, 0)]);
    ledger.see_queue(&[Job { priority: 0, ..pending(9, 100, &[]) }], 101);
    assert_eq!(room(&ledger, 101.0), 0);
}

#[test]
fn a_submission_that_was_refused_expires() {
    let mut ledger = taken(&[claim(1, 100, PINNED)]);
    ledger.see_queue(&[], 101);
    ledger.see_queue(&[], 103);
    assert_eq!(room(&ledger, 103.0), 4);
    ledger.see_queue(&[], 104);
    assert_eq!((room(&ledger, 104.0), ledger.counts().expired), (0, 1));
}

#[test]
fn equal_jobs_of_one_user_take_one_claim_each() {
    let claims: Vec<Claim> = (1..=3).map(|i| claim(i, 100, PINNED)).collect();
    let mut ledger = taken(&claims);
    let jobs: Vec<Job> = (0..2).map(|i| pending(10 + i, 100, &["n1"])).collect();
    let matches = ledger.see_queue(&jobs, 101);
    assert_eq!(matches.iter().map(|m| m.job).collect::<Vec<_>>(), [10, 11]);
    assert_eq!(room(&ledger, 101.0), 4, "the third still stands");
    assert!(ledger.see_queue(&jobs, 102).is_empty());
}

#[test]
fn marks_tell_which_claim_is_whose() {
    // Without marks the first claim, which is not pinned, would take the first job.
    let mut ledger = taken(&[claim(1, 100, 0), claim(2, 100, PINNED)]);
    let marked =
        |job: Job, id: u64| Job { admin_comment: Some(format!("sjp:placed=p;id={id:x}")), ..job };
    let jobs = [marked(pending(9, 100, &["n1"]), 2), marked(pending(10, 100, &[]), 1)];
    let found = ledger.see_queue(&jobs, 101);
    let found: Vec<(u64, u32)> = found.iter().map(|m| (m.id, m.job)).collect();
    assert_eq!(found, [(1, 10), (2, 9)]);
    // A job of another claim answers none.
    let mut ledger = taken(&[claim(3, 100, 0)]);
    assert!(ledger.see_queue(&[marked(pending(11, 100, &[]), 4)], 101).is_empty());
}

#[test]
fn somebody_else_s_job_answers_nothing() {
    let mut ledger = taken(&[claim(1, 100, PINNED)]);
    let others = [
        Job { uid: 6, ..pending(9, 100, &["n1"]) },
        pending(10, 90, &["n1"]),
        pending(11, 100, &["n2"]),
        pending(12, 100, &[]),
        Job { cpus: Cpus(5), ..pending(13, 100, &["n1"]) },
        Job { array_id: Some(14), ..pending(14, 100, &["n1"]) },
    ];
    assert!(ledger.see_queue(&others, 101).is_empty());
}

#[test]
fn an_array_s_claims_go_together() {
    let mut a = claim(1, 100, ARRAY);
    let mut b = claim(2, 100, ARRAY);
    (a.id, b.id, b.node) = (77, 77, 1);
    let mut ledger = taken(&[a, b]);
    let array = Job { array_id: Some(20), array_tasks: 2, ..pending(20, 100, &[]) };
    let matches = ledger.see_queue(&[array], 101);
    assert_eq!((matches.len(), matches[0].claims.len()), (1, 2));
    assert_eq!(ledger.open(), 0);
}

#[test]
fn a_claim_that_comes_twice_counts_once() {
    let again = Claim { seq: 9, ..claim(1, 100, PINNED) };
    let ledger = taken(&[claim(1, 100, PINNED), again]);
    assert_eq!(room(&ledger, 101.0), 4);
}

#[test]
fn a_claim_from_an_unknown_roster_is_counted_and_dropped() {
    let mut ledger = Ledger::new();
    ledger.take(&[claim(1, 100, PINNED)], |_| None);
    assert_eq!((room(&ledger, 0.0), ledger.counts().unknown), (0, 1));
}

#[test]
fn a_whole_node_is_claimed_by_a_job_that_shows_fewer_cpus() {
    // 64 CPUs claimed for a job that asked for 4, in the queue as exclusive or, for
    // `--exclusive=user`, by the claim alone.
    use crate::decision::Placement;
    let placement = Placement {
        partitions: vec![0],
        admitted: vec![0],
        pin: None,
        not_pinned: Some(NotPinned::Exclusive),
        claims: Vec::new(),
        room: crate::decision::Room::default(),
        cpus: Cpus(64),
        mem: None,
        loss: 0.0,
        minutes: None,
        basis: crate::decision::Basis::Room,
    };
    for (exclusive, flags) in [(true, 0), (false, Claim::flags_of(&placement, false))] {
        let whole = Claim { cpus: 64, ..claim(1, 100, flags) };
        let mut ledger = taken(&[whole]);
        let job = Job { exclusive, ..pending(9, 100, &[]) };
        assert_eq!(ledger.see_queue(&[job], 101).len(), 1, "{exclusive}");
        assert_eq!(room(&ledger, 101.0), 64);
    }
    let mut ledger = taken(&[Claim { cpus: 64, ..claim(1, 100, 0) }]);
    assert!(ledger.see_queue(&[pending(9, 100, &[])], 101).is_empty(), "another job's claim");
}
