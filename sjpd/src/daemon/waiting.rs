//! Waiting jobs of sjp's: whose marks to read, and which pins to take back.
//! What is to be done is planned by `sjp-core`; the hands do it.

use super::marks::{MarkBook, waiting_since};
use super::world::seconds;
use crate::actuator::{Action, ActionKind, Outcome, Report, Target, job_updates};
use crate::config::Config;
use sjp_core::cluster::{Job, MarkedJob};
use sjp_core::release::{self, Waiting as OneWaiting};
use std::time::Duration;
use tokio::time::Instant;

/// Bookkeeping for waiting jobs.
#[derive(Debug)]
pub struct Waiting {
    book: MarkBook,
    released: u64,
    /// Pending jobs with a pin at the last look.
    pinned: usize,
    /// Of those, the ones that should have been released by now.
    overdue: usize,
    /// When the next pin is due to be released.
    due: Option<Instant>,
}

impl Waiting {
    /// Of a run that starts at `unix` seconds.
    #[must_use]
    pub fn new(unix: f64) -> Self {
        Self { book: MarkBook::new(seconds(unix)), released: 0, pinned: 0, overdue: 0, due: None }
    }

    /// A new queue was read, asked for at `asked` (Unix seconds).
    pub fn see_queue(&mut self, jobs: &[Job], asked: f64) {
        self.book.see_queue(jobs, asked);
    }

    /// The jobs whose marks are to be read now, at most `most`.
    #[must_use]
    pub fn wanted(&self, jobs: &[Job], unix: f64, config: &Config, most: usize) -> Vec<u32> {
        let mut ids = self.book.wanted(jobs, seconds(unix), matters_after(config));
        ids.truncate(most);
        ids
    }

    /// Marks were read.
    pub fn learn(&mut self, asked: &[u32], read: &[MarkedJob], jobs: &[Job]) {
        self.book.learn(asked, read, jobs);
    }

    /// What is to be done now. Each action is to be handed over, or given to
    /// [`Waiting::not_taken`].
    pub fn plan(&mut self, jobs: &[Job], unix: f64, now: Instant, config: &Config) -> Vec<Action> {
        let after = i64::try_from(config.pin.release_after.as_secs()).unwrap_or(i64::MAX);
        let ours: Vec<OneWaiting<'_>> =
            self.book.ours(jobs, now).map(|(job, mark)| OneWaiting { job, mark }).collect();
        self.pinned = ours.iter().filter(|w| w.mark.get("pin").is_some()).count();
        let due = |w: &OneWaiting<'_>| {
            let at = waiting_since(w.job).saturating_add(after) as f64;
            (w.mark.get("pin").is_some() && at > unix).then_some(at - unix)
        };
        let soonest = ours.iter().filter_map(due).fold(f64::INFINITY, f64::min);
        // A moment later, as Slurm's times are whole seconds.
        self.due = (soonest < 1e9).then(|| now + Duration::from_secs_f64(soonest + 0.1));
        let releases = release::plan(&ours, after, seconds(unix));
        let grace =
            after.saturating_add(2 * seconds(config.cadence.queue_poll_interval.as_secs_f64()));
        self.overdue = releases.iter().filter(|r| r.unpin && r.waited > grace).count();
        let actions: Vec<Action> = releases.into_iter().map(action).collect();
        for job in actions.iter().filter_map(Action::job) {
            self.book.begin(job);
        }
        actions
    }

    /// When the queue is to be read again for a pin that is then due: what is
    /// released is decided on a fresh queue.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The queue will be read for it.
    pub fn due_is_seen_to(&mut self) {
        self.due = None;
    }

    /// The hands' queue was full: planned again at the next look.
    pub fn not_taken(&mut self, action: &Action) {
        if let Some(job) = action.job() {
            self.book.dropped(job);
        }
    }

    /// What became of an action. Answers the error, where it failed.
    pub fn reported(&mut self, report: &Report, unix: f64, now: Instant) -> Option<String> {
        let job = report.action.job()?;
        match &report.outcome {
            Outcome::Done => {
                self.book.made(job, report.action.mark.as_deref(), unix);
                self.released += u64::from(report.action.kind == ActionKind::Release);
            }
            Outcome::Gone(_) | Outcome::Off => self.book.dropped(job),
            Outcome::Would => self.book.told(job),
            Outcome::Failed(said) => {
                self.book.refused(job, now);
                return Some(said.clone());
            }
        }
        None
    }

    /// Settings changed: what a dry run told may be told again.
    pub fn settings_changed(&mut self) {
        self.book.settings_changed();
    }

    /// Pins released since the start.
    #[must_use]
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Pending jobs with a known pin at the last look.
    #[must_use]
    pub fn pinned(&self) -> usize {
        self.pinned
    }

    /// Of those, the ones that should have been released by now.
    #[must_use]
    pub fn overdue(&self) -> usize {
        self.overdue
    }
}

/// A pin matters once it may be time to release it: the mark is read one look
/// at the queue ahead, so that reading does not add to the wait.
fn matters_after(config: &Config) -> Duration {
    let ahead = config.cadence.queue_poll_interval + Duration::from_secs(2);
    config.pin.release_after.saturating_sub(ahead)
}

fn action(release: release::Release) -> Action {
    let release::Release { job, node, unpin, partitions, comment, waited } = release;
    let why = if unpin {
        format!("pending for {waited} s with a pin to {node}")
    } else {
        format!("the pin to {node} was taken off without giving the partitions back")
    };
    Action {
        kind: ActionKind::Release,
        target: Target::Job(job),
        updates: job_updates(job, unpin.then_some(""), &partitions, &comment),
        words: format!("release from {node}, back to {}", partitions.join(",")),
        mark: Some(comment),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sjp_core::cluster::JobState;

    fn job(id: u32, req: &[&str], submit: i64) -> Job {
        Job {
            id,
            array_tasks: 1,
            state: JobState::Pending,
            req_nodes: req.iter().map(|s| (*s).to_owned()).collect(),
            submit,
            ..Job::default()
        }
    }

    fn marked(job: &Job, comment: &str) -> MarkedJob {
        MarkedJob {
            id: job.id,
            admin_comment: comment.into(),
            submit: job.submit,
            ..MarkedJob::default()
        }
    }

    const PIN: &str = "sjp:pin=n1;from=slim1,slim2;job=4c,16G,4.0G/c;free=8c,40G,5.0G/c;id=7f3a";

    fn report(action: &Action, outcome: Outcome) -> Report {
        Report { action: action.clone(), outcome }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pin_is_read_shortly_before_it_matters_and_released_in_time() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let jobs = [job(7, &["n1"], 1010), job(8, &[], 1010), job(9, &["n1", "n2"], 1010)];
        waiting.see_queue(&jobs, 0.0);
        assert!(waiting.wanted(&jobs, 1030.0, &config, 100).is_empty(), "too early");
        let wanted = waiting.wanted(&jobs, 1061.0, &config, 100);
        assert_eq!(wanted, [7], "one required node, and nothing else");
        waiting.learn(&wanted, &[marked(&jobs[0], PIN)], &jobs);
        assert!(waiting.wanted(&jobs, 1065.0, &config, 100).is_empty(), "known");
        assert!(waiting.plan(&jobs, 1069.0, now, &config).is_empty(), "not yet");
        assert_eq!(waiting.due(), Some(now + Duration::from_millis(1100)));
        let plan = waiting.plan(&jobs, 1070.0, now, &config);
        assert_eq!(plan.len(), 1);
        assert_eq!((plan[0].kind, plan[0].job()), (ActionKind::Release, Some(7)));
        let [node, rest] = plan[0].updates.as_slice() else { panic!("two updates") };
        assert_eq!(node.set(), [("reqnodelist", String::new())]);
        assert_eq!(rest.set()[0], ("partition", "slim1,slim2".to_owned()));
        let comment = &rest.set()[1].1;
        assert!(!comment.contains("pin="), "{comment}");
        assert!(waiting.plan(&jobs, 1075.0, now, &config).is_empty(), "under way");
        assert_eq!(waiting.reported(&report(&plan[0], Outcome::Done), 1076.0, now), None);
        assert!(waiting.plan(&jobs, 1080.0, now, &config).is_empty(), "done");
        assert_eq!(waiting.released(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_users_own_node_and_other_marks_are_left_alone() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let jobs = [job(1, &["n2"], 1010), job(2, &["n1"], 1010), job(3, &["n1"], 1010)];
        let comments = [PIN, "sjp:placed=slim1;id=1", "mine"];
        let read: Vec<MarkedJob> = jobs.iter().zip(comments).map(|(j, c)| marked(j, c)).collect();
        waiting.learn(&[1, 2, 3], &read, &jobs);
        assert!(waiting.plan(&jobs, 9000.0, now, &config).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_cut_in_two_by_a_crash_is_finished_after_a_restart() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(2000.0);
        // Its node is gone already, its partitions are not yet back.
        let jobs = [job(7, &[], 1010), job(8, &[], 2001)];
        waiting.see_queue(&jobs, 0.0);
        let wanted = waiting.wanted(&jobs, 2002.0, &config, 100);
        assert_eq!(wanted, [7], "jobs of an earlier run only");
        waiting.learn(&wanted, &[marked(&jobs[0], PIN)], &jobs);
        let plan = waiting.plan(&jobs, 2002.0, now, &config);
        assert_eq!(plan.len(), 1);
        let [rest] = plan[0].updates.as_slice() else { panic!("the node is off already") };
        assert_eq!(rest.set()[0], ("partition", "slim1,slim2".to_owned()));
        waiting.see_queue(&jobs, 0.0);
        let later = [job(9, &[], 1500)];
        assert!(waiting.wanted(&later, 2003.0, &config, 100).is_empty(), "swept once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_change_rests_is_read_again_and_tried_again() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let jobs = [job(7, &["n1"], 1010)];
        waiting.learn(&[7], &[marked(&jobs[0], PIN)], &jobs);
        let plan = waiting.plan(&jobs, 1100.0, now, &config);
        let failed = report(&plan[0], Outcome::Failed("Access/permission denied".into()));
        assert_eq!(
            waiting.reported(&failed, 1101.0, now).as_deref(),
            Some("Access/permission denied")
        );
        // The node went, the partitions did not: known from the mark only.
        let half = [job(7, &[], 1010)];
        waiting.see_queue(&half, 0.0);
        assert_eq!(waiting.wanted(&half, 1101.0, &config, 100), [7]);
        waiting.learn(&[7], &[marked(&half[0], PIN)], &half);
        assert!(waiting.wanted(&half, 1101.0, &config, 100).is_empty());
        assert!(waiting.plan(&half, 1102.0, now, &config).is_empty(), "rests");
        let later = now + Duration::from_secs(61);
        assert_eq!(waiting.plan(&half, 1162.0, later, &config).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dry_run_tells_once() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let jobs = [job(7, &["n1"], 1010)];
        waiting.learn(&[7], &[marked(&jobs[0], PIN)], &jobs);
        let plan = waiting.plan(&jobs, 1100.0, now, &config);
        waiting.reported(&report(&plan[0], Outcome::Would), 1100.0, now);
        assert!(waiting.plan(&jobs, 1200.0, now, &config).is_empty());
        waiting.settings_changed();
        assert_eq!(waiting.plan(&jobs, 1200.0, now, &config).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_id_used_again_is_another_job() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let old = [job(7, &["n1"], 1010)];
        waiting.learn(&[7], &[marked(&old[0], PIN)], &old);
        let new = [job(7, &["n1"], 5000)];
        waiting.see_queue(&new, 0.0);
        assert!(waiting.plan(&new, 9000.0, now, &config).is_empty());
        assert_eq!(waiting.wanted(&new, 9000.0, &config, 100), [7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_tells_marks_needs_no_other_reading() {
        let (config, now) = (Config::default(), Instant::now());
        let mut waiting = Waiting::new(1000.0);
        let told =
            |comment: &str| [Job { admin_comment: Some(comment.into()), ..job(7, &["n1"], 900) }];
        let jobs = told(PIN);
        waiting.see_queue(&jobs, 1001.0);
        assert!(waiting.wanted(&jobs, 1100.0, &config, 100).is_empty());
        let plan = waiting.plan(&jobs, 1100.0, now, &config);
        assert_eq!(plan.len(), 1);
        waiting.reported(&report(&plan[0], Outcome::Done), 1102.0, now);
        // Asked for before the change was made: the old mark is not news.
        waiting.see_queue(&jobs, 1101.0);
        assert!(waiting.plan(&jobs, 1103.0, now, &config).is_empty());
        let mine = told("mine");
        waiting.see_queue(&mine, 1110.0);
        assert!(waiting.plan(&mine, 1111.0, now, &config).is_empty());
    }
}
