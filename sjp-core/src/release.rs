//! Releasing pins: a job that its pin has not helped gets its partitions back.

use crate::cluster::{Job, JobState};
use crate::mark::Mark;

/// A pending job of sjp's, with its mark.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// The job as the queue shows it.
    pub job: &'a Job,
    /// Its mark, read where users cannot write.
    pub mark: &'a Mark,
}

/// One pin to take back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Job id.
    pub job: u32,
    /// The node it was pinned to.
    pub node: String,
    /// Whether the required node still has to be taken off (else only the
    /// partitions and the mark are left to do, after a crash in between).
    pub unpin: bool,
    /// The partitions it gets back.
    pub partitions: Vec<String>,
    /// The AdminComment it gets.
    pub comment: String,
    /// Seconds it waited with its pin.
    pub waited: i64,
}

/// Pins whose jobs have been eligible for at least `release_after` seconds.
///
/// Only jobs whose mark says `pin` and names the partitions to give back, and
/// whose required node is still that pin and nothing else (or nothing at all,
/// where an earlier release got half-way). A required node that differs is
/// somebody's own choice, and stays.
#[must_use]
pub fn plan(waiting: &[Waiting<'_>], release_after: i64, now: i64) -> Vec<Release> {
    waiting.iter().filter_map(|w| one(w, release_after, now)).collect()
}

fn one(w: &Waiting<'_>, release_after: i64, now: i64) -> Option<Release> {
    let (job, mark) = (w.job, w.mark);
    let node = mark.get("pin")?;
    let partitions = mark.list("from");
    if job.state != JobState::Pending || partitions.is_empty() {
        return None;
    }
    let unpin = match job.req_nodes.as_slice() {
        [] => false,
        [only] if only == node => true,
        _ => return None,
    };
    let since = job.eligible.unwrap_or(job.submit).max(job.submit);
    let waited = now.saturating_sub(since);
    if unpin && waited < release_after {
        return None;
    }
    let mut released = mark.clone();
    released.remove("pin");
    released.remove("from");
    released.remove("free");
    released.set("placed", &partitions.join(","));
    released.set("released", node);
    Some(Release {
        job: job.id,
        node: node.to_owned(),
        unpin,
        partitions,
        comment: released.to_comment(),
        waited,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(req: &[&str], submit: i64) -> Job {
        Job {
            id: 7,
            req_nodes: req.iter().map(|s| (*s).to_owned()).collect(),
            submit,
            ..Job::default()
        }
    }

    #[test]
    fn a_pin_is_released_when_its_time_is_over() {
        let mark = Mark::parse("mine sjp:pin=s01;from=fat,slim;job=4c;free=8c;id=1").unwrap();
        let job = job(&["s01"], 100);
        let waiting = [Waiting { job: &job, mark: &mark }];
        assert!(plan(&waiting, 60, 159).is_empty());
        let plan = plan(&waiting, 60, 160);
        assert_eq!(plan.len(), 1);
        assert_eq!(plan[0].partitions, ["fat", "slim"]);
        assert_eq!(plan[0].comment, "mine sjp:placed=fat,slim;released=s01;job=4c;id=1");
        assert!(plan[0].unpin);
    }

    #[test]
    fn half_a_release_is_finished_at_once() {
        let mark = Mark::parse("sjp:pin=s01;from=slim;id=1").unwrap();
        let job = job(&[], 100);
        let plan = plan(&[Waiting { job: &job, mark: &mark }], 60, 101);
        assert!(!plan[0].unpin);
    }

    #[test]
    fn somebody_s_own_nodes_stay() {
        let mark = Mark::parse("sjp:pin=s01;from=slim;id=1").unwrap();
        for req in [&["s02"][..], &["s01", "s02"]] {
            let job = job(req, 0);
            assert!(plan(&[Waiting { job: &job, mark: &mark }], 60, 1000).is_empty());
        }
        let placed = Mark::parse("sjp:placed=slim;id=1").unwrap();
        let job = job(&["s01"], 0);
        assert!(plan(&[Waiting { job: &job, mark: &placed }], 60, 1000).is_empty());
    }
}
