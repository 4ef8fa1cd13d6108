//! When each kind of reading is asked for again: never two at once, never
//! sooner than the last one's cost allows, later and later while it fails.
//! Missed ticks are not made up.

use std::time::Duration;
use tokio::time::Instant;

/// The longest gap between two tries of something that fails.
pub const BACKOFF_CAP: Duration = Duration::from_secs(60);

/// Half the gap after the first failure; it doubles.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The first gap is the interval, but no longer than this: what is read rarely
/// is not to be missed for long because slurmctld was away just then.
const LONGEST_FIRST: Duration = Duration::from_secs(8);

/// How often a kind of reading is wanted, and what it may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Wanted gap from start to start.
    pub interval: Duration,
    /// The gap after a reading is at least its duration times this, so that
    /// at most one part in `1 + factor` of the time is spent reading.
    pub factor: f64,
    /// The least gap from start to start when it is asked for sooner.
    pub soonest: Duration,
}

/// The clock of one kind of reading.
#[derive(Debug)]
pub struct Pacer {
    pace: Pace,
    /// Start of the reading in flight.
    in_flight: Option<Instant>,
    /// When the next one is wanted.
    due: Option<Instant>,
    /// Before this it is not asked for, whoever wants it.
    not_before: Option<Instant>,
    last_start: Option<Instant>,
    failures: u32,
}

impl Pacer {
    /// A pacer whose first reading is due at once.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self { pace, in_flight: None, due: None, not_before: None, last_start: None, failures: 0 }
    }

    /// Takes over a changed pace: it counts from the next reading on.
    pub fn set_pace(&mut self, pace: Pace) {
        if pace != self.pace {
            self.pace = pace;
            if let (Some(due), Some(start)) = (self.due, self.last_start) {
                self.due = Some(due.min(start + pace.interval));
            }
        }
    }

    /// When to start the next reading; `None` while one is in flight.
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        if self.in_flight.is_some() {
            return None;
        }
        let due = self.due.unwrap_or(now);
        Some(self.not_before.map_or(due, |earliest| due.max(earliest)))
    }

    /// Whether a reading is to be started now.
    #[must_use]
    pub fn ready(&self, now: Instant) -> bool {
        self.next(now).is_some_and(|at| at <= now)
    }

    /// A reading was started.
    pub fn started(&mut self, now: Instant) {
        self.in_flight = Some(now);
        self.last_start = Some(now);
    }

    /// For `gap` this process did not run (it was stopped, its machine slept): that
    /// is no cost of the reading in flight.
    pub fn paused(&mut self, gap: Duration) {
        if let Some(start) = &mut self.in_flight {
            *start += gap;
        }
    }

    /// It came back.
    pub fn done(&mut self, now: Instant, ok: bool) {
        let start = self.in_flight.take().unwrap_or(now);
        let took = now.saturating_duration_since(start);
        let rest = now + took.mul_f64(self.pace.factor.max(1.0));
        if ok {
            self.failures = 0;
            self.due = Some(start + self.pace.interval);
            self.not_before = Some(rest);
        } else {
            self.failures = self.failures.saturating_add(1);
            let doubled = 2f64.powi(i32::try_from(self.failures.min(16)).unwrap_or(16));
            let gap = FIRST_BACKOFF
                .mul_f64(doubled)
                .max(self.pace.interval.min(LONGEST_FIRST))
                .min(BACKOFF_CAP);
            self.due = Some(now + gap);
            // The factor must not turn one long timeout into minutes of
            // silence: a failure rests no longer than the cap.
            self.not_before = Some(rest.min(now + BACKOFF_CAP).max(now + gap));
        }
    }

    /// Asks for the next reading sooner than its interval: as soon as the
    /// pace allows. While it fails, the back-off stands.
    pub fn hasten(&mut self, now: Instant) {
        if self.failures > 0 {
            return;
        }
        let soonest = self.last_start.map_or(now, |start| start + self.pace.soonest);
        let due = self.due.unwrap_or(now);
        self.due = Some(due.min(soonest));
    }

    /// What made it fail is over: the next reading is due at once, and a
    /// failure begins a new back-off.
    pub fn forget_failures(&mut self, now: Instant) {
        if std::mem::take(&mut self.failures) > 0 {
            self.due = Some(now);
            self.not_before = None;
        }
    }

    /// Whoever is asked is another from now on: what the last one cost, and a
    /// reading of it that is in flight, say nothing.
    pub fn begin_anew(&mut self) {
        *self = Self { last_start: self.last_start, ..Self::new(self.pace) };
    }

    /// The present gap from start to start: the interval, or what cost and
    /// failures make of it.
    #[must_use]
    pub fn gap(&self) -> Duration {
        match (self.last_start, self.next_after_last()) {
            (Some(start), Some(next)) => next.saturating_duration_since(start),
            _ => self.pace.interval,
        }
    }

    fn next_after_last(&self) -> Option<Instant> {
        if self.in_flight.is_some() { None } else { self.due.max(self.not_before) }
    }

    /// Failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether a reading is in flight.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        self.in_flight.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn pacer() -> Pacer {
        Pacer::new(Pace { interval: 8 * S, factor: 10.0, soonest: 2 * S })
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_reading_keeps_its_interval_from_start_to_start() {
        let t0 = Instant::now();
        let mut p = pacer();
        assert!(p.ready(t0));
        p.started(t0);
        assert_eq!(p.next(t0 + 100 * S), None, "one in flight");
        p.done(t0 + S / 10, true);
        assert_eq!(p.next(t0 + S), Some(t0 + 8 * S));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dear_reading_is_followed_by_a_rest() {
        let t0 = Instant::now();
        let mut p = pacer();
        p.started(t0);
        p.done(t0 + 2 * S, true);
        assert_eq!(p.next(t0 + 2 * S), Some(t0 + 22 * S), "2 s + 10 times 2 s");
        p.hasten(t0 + 3 * S);
        assert_eq!(p.next(t0 + 3 * S), Some(t0 + 22 * S), "asking does not shorten the rest");
    }

    #[tokio::test(start_paused = true)]
    async fn another_controller_is_asked_at_once() {
        let t0 = Instant::now();
        let mut p = pacer();
        p.started(t0);
        p.done(t0 + 5 * S, true);
        assert!(!p.ready(t0 + 6 * S));
        p.begin_anew();
        assert!(p.ready(t0 + 6 * S));
        p.started(t0 + 6 * S);
        p.begin_anew();
        assert!(p.ready(t0 + 7 * S), "the one in flight was given up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_in_which_sjpd_was_stopped_makes_no_reading_dear() {
        let t0 = Instant::now();
        let mut p = pacer();
        p.paused(5 * S);
        p.started(t0);
        p.paused(60 * S);
        p.done(t0 + 60 * S + S / 10, true);
        assert_eq!(p.next(t0 + 61 * S), Some(t0 + 68 * S));
    }

    #[tokio::test(start_paused = true)]
    async fn missed_ticks_are_not_made_up() {
        let t0 = Instant::now();
        let mut p = Pacer::new(Pace { interval: S, factor: 1.0, soonest: S });
        p.started(t0);
        p.done(t0 + 30 * S, true);
        let next = p.next(t0 + 30 * S).expect("idle");
        assert_eq!(next, t0 + 60 * S);
        p.started(next);
        p.done(next + S / 10, true);
        assert_eq!(p.next(next), Some(next + S), "one, not thirty");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_to_the_cap_and_success_ends_it() {
        let mut now = Instant::now();
        let mut p = Pacer::new(Pace { interval: S, factor: 1.0, soonest: S });
        let mut gaps = Vec::new();
        for _ in 0..9 {
            p.started(now);
            p.done(now, false);
            p.hasten(now);
            let next = p.next(now).expect("idle");
            gaps.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(gaps, [2, 4, 8, 16, 32, 60, 60, 60, 60]);
        p.started(now);
        p.done(now, true);
        assert_eq!(p.next(now), Some(now + S));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_read_rarely_is_tried_again_soon_and_at_once_when_all_is_well() {
        let t0 = Instant::now();
        let mut p = Pacer::new(Pace { interval: 600 * S, factor: 100.0, soonest: S });
        p.started(t0);
        p.done(t0, false);
        assert_eq!(p.next(t0), Some(t0 + 8 * S));
        p.forget_failures(t0 + S);
        assert!(p.ready(t0 + S));
        p.started(t0 + S);
        p.done(t0 + S, true);
        p.forget_failures(t0 + 2 * S);
        assert_eq!(p.next(t0 + 2 * S), Some(t0 + 601 * S), "nothing to forget");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_rests_no_longer_than_the_cap() {
        let t0 = Instant::now();
        let mut p = pacer();
        p.started(t0);
        p.done(t0 + 10 * S, false);
        assert_eq!(p.next(t0 + 10 * S), Some(t0 + 70 * S), "100 s of rest, capped");
    }

    #[tokio::test(start_paused = true)]
    async fn hastening_brings_the_next_one_to_the_soonest() {
        let t0 = Instant::now();
        let mut p = pacer();
        p.started(t0);
        p.done(t0 + S / 100, true);
        p.hasten(t0 + S);
        assert_eq!(p.next(t0 + S), Some(t0 + 2 * S));
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_interval_is_taken_over_and_a_shorter_one_at_once() {
        let t0 = Instant::now();
        let mut p = pacer();
        p.started(t0);
        p.done(t0, true);
        p.set_pace(Pace { interval: 3 * S, factor: 10.0, soonest: S });
        assert_eq!(p.next(t0), Some(t0 + 3 * S));
    }
}
