//! A day's work: what users submit and admins do, drawn from a seed. Times are
//! simulated minutes since midnight.

use std::ops::Range;

/// The day, in simulated minutes.
pub const DAY: f64 = 24.0 * 60.0;
/// Nodes of partition slim, CPUs and MB of each.
pub const SLIM: (u32, u32, u32) = (22, 32, 128_000);
/// Nodes of partition fat, CPUs and MB of each.
pub const FAT: (u32, u32, u32) = (6, 32, 512_000);
/// CPUs that user 1 may use in the QOS that they have by default.
pub const CAP: u32 = 160;

/// Work of the day as a share of what all CPUs can do.
const LOAD: f64 = 0.85;
/// Submissions spread over the day, besides the bursts.
const SUBMISSIONS: usize = 600;
/// Shapes of jobs: CPUs, and MB for each. The last fits fat nodes only.
const SHAPES: [(u32, u32); 9] = [
    (1, 4_000),
    (4, 2_000),
    (8, 8_000),
    (2, 15_000),
    (16, 4_000),
    (1, 30_000),
    (4, 6_000),
    (32, 1_000),
    (4, 40_000),
];
/// How busy the users are from an hour on, against the others.
const HOURS: [(f64, f64); 6] =
    [(0.0, 0.4), (7.0, 1.0), (8.5, 2.2), (12.0, 1.2), (18.0, 0.8), (22.0, 0.5)];
/// Jobs that one user submits at once: when (hour), who, how many, of which shape.
const BURSTS: [(f64, usize, usize, usize); 5] =
    [(2.0, 1, 24, 4), (8.6, 2, 30, 1), (9.2, 3, 30, 2), (13.5, 2, 30, 5), (20.0, 1, 24, 4)];

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at: f64,
    /// What.
    pub what: What,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A user submits.
    Submit(Submission),
    /// An admin drains a node.
    Drain(&'static str),
    /// And takes it back into use.
    Resume(&'static str),
    /// An admin reserves a node, from and for so many minutes.
    Reserve(&'static str, f64, f64),
}

/// One call of sbatch.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// The test user, 1 to 3.
    pub user: usize,
    /// CPUs.
    pub cpus: u32,
    /// MB for each CPU.
    pub mb_per_cpu: u32,
    /// Jobs in it: more than one makes an array.
    pub tasks: u32,
    /// How long each runs, in minutes.
    pub run: f64,
    /// The time limit, in minutes.
    pub limit: f64,
    /// The user's own `--partition`.
    pub partition: Option<&'static str>,
    /// Waits for the end of this user's last submission.
    pub after_last: bool,
}

/// The events of the day, in order.
pub fn day(seed: u64) -> Vec<Event> {
    let mut random = Random::new(seed);
    let mut events = Vec::new();
    for _ in 0..SUBMISSIONS {
        let user = [1, 2, 2, 2, 3, 3][random.below(6)];
        let shape = match random.below(25) {
            0 => 8,
            _ => random.below(8),
        };
        let mut job = random.submission(user, shape, 5.0..360.0);
        if job.cpus <= 4 && random.below(6) == 0 {
            job.tasks = 4 + random.below(9) as u32;
            job.run /= 4.0;
            job.limit /= 4.0;
        }
        match random.below(20) {
            0 => job.partition = Some("fat"),
            1 if shape < 8 => job.partition = Some("slim"),
            2 => job.after_last = true,
            _ => {}
        }
        events.push(Event { at: random.arrival(), what: What::Submit(job) });
    }
    for (hour, user, count, shape) in BURSTS {
        for i in 0..count {
            // All within a minute, as a loop around sbatch does it.
            let at = 60.0 * hour + i as f64 / count as f64;
            let job = random.submission(user, shape, 30.0..90.0);
            events.push(Event { at, what: What::Submit(job) });
        }
    }
    let factor = LOAD * capacity() / work(&events);
    for event in &mut events {
        if let What::Submit(job) = &mut event.what {
            job.run *= factor;
            job.limit *= factor;
        }
    }
    for (hour, what) in [
        (10.0, What::Drain("s3")),
        (12.0, What::Reserve("f2", 240.0, 120.0)),
        (14.0, What::Resume("s3")),
    ] {
        events.push(Event { at: 60.0 * hour, what });
    }
    events.sort_by(|a, b| a.at.total_cmp(&b.at));
    events
}

/// CPU minutes that the cluster can give in a day.
pub fn capacity() -> f64 {
    f64::from(SLIM.0 * SLIM.1 + FAT.0 * FAT.1) * DAY
}

/// CPU minutes of all jobs.
fn work(events: &[Event]) -> f64 {
    let jobs = events.iter().filter_map(|event| match &event.what {
        What::Submit(job) => Some(f64::from(job.cpus * job.tasks) * job.run),
        _ => None,
    });
    jobs.sum()
}

/// Marsaglia's xorshift: the same numbers for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        // Zero would stay zero, and small seeds begin alike.
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..16 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// From 0 to below 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A job of this shape; its run time is as often in each octave of `run`.
    fn submission(&mut self, user: usize, shape: usize, run: Range<f64>) -> Submission {
        let (cpus, mb_per_cpu) = SHAPES[shape];
        let run = run.start * (run.end / run.start).powf(self.share());
        // Users ask for more time than they need.
        let limit = run * (1.2 + 3.8 * self.share());
        let (tasks, partition, after_last) = (1, None, false);
        Submission { user, cpus, mb_per_cpu, tasks, run, limit, partition, after_last }
    }

    /// When something is submitted.
    fn arrival(&mut self) -> f64 {
        loop {
            let hour = 24.0 * self.share();
            let busy = HOURS.iter().rev().find(|(from, _)| hour >= *from).map_or(0.0, |h| h.1);
            if self.share() * 2.2 < busy {
                return 60.0 * hour;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_a_day_of_the_wanted_load() {
        let events = day(1);
        assert_eq!(events, day(1));
        assert_ne!(events, day(2));
        assert!((work(&events) / capacity() - LOAD).abs() < 1e-9);
        assert!(events.is_sorted_by(|a, b| a.at <= b.at));
        assert!(events.iter().all(|e| (0.0..DAY).contains(&e.at)));
        for event in events {
            if let What::Submit(job) = event.what {
                assert!(job.limit > job.run && job.run > 0.0, "{job:?}");
                let mb = job.cpus * job.mb_per_cpu;
                let most = if job.partition == Some("slim") { SLIM.2 } else { FAT.2 };
                assert!(mb <= most, "{job:?}");
            }
        }
    }
}
