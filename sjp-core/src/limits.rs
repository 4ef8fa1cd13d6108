//! Jobs that only a CPU cap of their QOS holds, while much of the cluster is
//! idle: who they are (`held`), how much is idle (`idle`), which of them fit
//! (`trial`), and what is done for them: single jobs move to a flex QOS and
//! back (`flex`), or caps are raised for a moment (`pulse`).

pub mod flex;
pub mod held;
pub mod idle;
pub mod pulse;
mod trial;

#[cfg(test)]
mod tests;

pub use held::{Cap, Held, held};
pub use idle::{Idle, idle};
pub use trial::Trial;

use crate::cluster::{Job, Partition, QosCaps};
use crate::mark::Mark;
use crate::publication::{Rooms, Roster};

/// The cluster as the plans see it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Names, rules and settings.
    pub roster: &'a Roster,
    /// Free room now.
    pub rooms: &'a Rooms,
    /// The queue.
    pub jobs: &'a [Job],
    /// Partitions, for the QOS of their own.
    pub partitions: &'a [Partition],
    /// CPU caps of QOS, and their use.
    pub qos: &'a [QosCaps],
    /// Unix seconds.
    pub now: i64,
}

impl View<'_> {
    /// The caps of a QOS.
    #[must_use]
    pub fn caps(&self, qos: &str) -> Option<&QosCaps> {
        self.qos.iter().find(|q| q.name.eq_ignore_ascii_case(qos))
    }
}

/// What the plans depend on, of `[limits]`. Times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Idle share of the placeable capacity that is needed.
    pub min_idle_share: f64,
    /// Jobs that wait for room use up the idle share.
    pub count_pending: bool,
    /// A pulse ends early below this idle share.
    pub lower_below: f64,
    /// Checks in a row before a pulse.
    pub hysteresis: u32,
    /// Raised caps, times the cap.
    pub ceiling: f64,
    /// Length of a pulse.
    pub pulse: i64,
    /// Rest after a pulse, or after a job came back from the flex QOS.
    pub cooldown: i64,
    /// The flex QOS.
    pub flex_qos: String,
    /// A moved job that still waits after this goes back.
    pub revert_after: i64,
}

/// Whether the queue tells all that a placement of this job depends on: not of
/// jobs that sjp left alone for what they ask for (features, ...).
#[must_use]
pub(crate) fn can_be_judged(mark: &Mark) -> bool {
    mark.get("skipped").is_none_or(|why| why == crate::decision::Reason::NoRoom.words())
}
