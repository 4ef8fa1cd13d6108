//! Widening and rechecks, a batch at a time: no more changes than can be made
//! before the queue is read again, the most useful first. What is left is planned
//! again, on a newer queue, until a recheck has nothing left.

use crate::config::Config;
use crate::journal::Entry;
use sjp_core::waiting::{Intent, Kind, Settings, Snapshot, Waiting, recheck, widen};
use std::collections::HashSet;
use tokio::time::Instant;

/// Most updates of one batch: what the hands take at once, with room to spare.
const MOST: usize = 200;

/// When what is chosen again.
#[derive(Debug, Default)]
pub struct Rounds {
    /// When the next recheck is due; `None`: now.
    next: Option<Instant>,
    /// The last recheck left changes for the next queue.
    left_over: bool,
    /// Changes of the last batch that are still under way, by job.
    under_way: HashSet<u32>,
    rechecks: u64,
    left: usize,
}

impl Rounds {
    /// The next batch, on a queue that was just read; nothing while the last one
    /// is under way.
    pub fn plan(
        &mut self,
        snapshot: &Snapshot<'_>,
        ours: &[Waiting<'_>],
        settings: &Settings,
        now: Instant,
        config: &Config,
    ) -> (Vec<Intent>, Option<Entry>) {
        if !self.under_way.is_empty() {
            return (Vec::new(), None);
        }
        let mut intents = widen::plan(snapshot.roster, ours, settings, snapshot.input.now);
        let due = self.next.is_none_or(|at| at <= now);
        let rechecks = (due || self.left_over) && settings.interval > 0;
        let mut looked_at = 0;
        if rechecks {
            let found = recheck::plan(snapshot, ours, settings);
            looked_at = found.looked_at;
            intents.extend(found.intents);
            intents.sort_by_key(|i| recheck::usefulness(i.kind));
        }
        if rechecks && due {
            self.next = Some(now + config.recheck.interval);
            self.rechecks += 1;
        }
        let per_queue = config.cadence.max_updates_per_second
            * config.cadence.queue_poll_interval.as_secs_f64();
        let taken = first(&intents, (per_queue.ceil() as usize).clamp(1, MOST));
        self.left = intents.len() - taken;
        self.left_over = rechecks && self.left > 0;
        intents.truncate(taken);
        self.under_way = intents.iter().map(|i| i.job).collect();
        let entry = (!intents.is_empty()).then(|| entry(looked_at, &intents, self.left));
        (intents, entry)
    }

    /// When the next recheck is due, while none is under way.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.next.filter(|_| self.under_way.is_empty())
    }

    /// A change of the last batch has ended, or never began.
    pub fn over(&mut self, job: u32) {
        self.under_way.remove(&job);
    }

    /// The next queue is looked at whatever the time.
    pub fn recheck_now(&mut self) {
        self.next = None;
    }

    /// Another sjpd may have acted: everything is looked at again.
    pub fn begin_anew(&mut self) {
        *self = Self { rechecks: self.rechecks, ..Self::default() };
    }

    /// Rechecks since the start, and changes left for the next queues.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.rechecks, self.left as u64)
    }
}

/// How many of `intents` fit into `most` updates; one in any case.
fn first(intents: &[Intent], most: usize) -> usize {
    let mut sum = 0;
    let fits = |intent: &&Intent| {
        sum += intent.updates();
        sum <= most
    };
    intents.iter().take_while(fits).count().max(1).min(intents.len())
}

fn entry(looked_at: usize, intents: &[Intent], left: usize) -> Entry {
    let count = |kind: Kind| intents.iter().filter(|i| i.kind == kind).count();
    let kinds = [
        (Kind::Move, "move", "to move"),
        (Kind::Narrow, "narrow", "to narrow"),
        (Kind::Widen, "widen", "to widen"),
        (Kind::WaitFor, "wait", "to wait for a node"),
        (Kind::Open, "open", "to open"),
    ];
    let mut words = format!("{looked_at} waiting jobs chosen again");
    for (kind, _, what) in kinds.iter().filter(|(kind, ..)| count(*kind) > 0) {
        words = format!("{words}, {} {what}", count(*kind));
    }
    if left > 0 {
        words = format!("{words}; {left} more with the next queues");
    }
    let entry = Entry::new("recheck", words).with("looked_at", looked_at).with("left", left);
    kinds.iter().fold(entry, |entry, (kind, key, _)| entry.with(key, count(*kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_what_fits_before_the_next_queue() {
        let intent = |unpin| Intent {
            kind: Kind::Move,
            job: 1,
            unpin,
            partitions: Vec::new(),
            pin: None,
            comment: String::new(),
            takes: Vec::new(),
            words: String::new(),
            why: String::new(),
        };
        let two_each: Vec<Intent> = (0..10).map(|_| intent(true)).collect();
        assert_eq!(first(&two_each, 7), 3);
        assert_eq!(first(&two_each, 1), 1, "one in any case");
        assert_eq!(first(&two_each, 100), 10);
        assert_eq!(first(&[], 7), 0);
        let words = entry(5, &two_each, 2);
        assert_eq!(
            words.words(),
            "5 waiting jobs chosen again, 10 to move; 2 more with the next queues"
        );
        assert_eq!(words.field("move"), Some(&10.into()));
    }
}
