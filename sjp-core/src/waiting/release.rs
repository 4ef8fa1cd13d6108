//! Releasing pins: a job that its pin has not helped gets its partitions back.

use super::standing::{self, Standing};
use super::{Intent, Kind, Settings, Waiting, in_order};
use crate::cluster::JobState;
use crate::publication::Roster;

/// Pins whose jobs have been eligible, and pinned, for at least `release_after`
/// seconds.
///
/// Only jobs whose mark says `pin` and names the partitions to give back, and
/// that are where the mark says: on that pin and nothing else, or without it
/// where an earlier change got half-way. A pin that waits for room (`eta`) lasts
/// until the job's budget is over, and then until it is widened.
#[must_use]
pub fn plan(
    roster: &Roster,
    waiting: &[Waiting<'_>],
    settings: &Settings,
    now: i64,
) -> Vec<Intent> {
    waiting.iter().filter_map(|w| one(roster, w, settings, now)).collect()
}

/// When the pin of a job is due to be released, Unix seconds; `None`: it has no
/// pin, or one that waits for room. By the clock as it is `now`.
#[must_use]
pub fn due(w: &Waiting<'_>, settings: &Settings, now: i64) -> Option<i64> {
    w.mark.get("pin")?;
    let since = settings.since(w.job, now);
    let at = w.mark.seconds("at").map(|at| settings.after_step(at, now));
    let pinned = at.map_or(since, |at| at.max(since));
    let over = pinned.saturating_add(settings.release_after);
    if w.mark.get("eta").is_some() && settings.wait_for_room {
        let budget = since.saturating_add(settings.budget(w.job));
        return (!settings.widen).then_some(budget.max(over));
    }
    Some(over)
}

fn one(roster: &Roster, w: &Waiting<'_>, settings: &Settings, now: i64) -> Option<Intent> {
    let (job, mark) = (w.job, w.mark);
    let node = mark.get("pin")?;
    let from = mark.list("from");
    if job.state != JobState::Pending || from.is_empty() {
        return None;
    }
    let unpin = match standing::of(job, mark, roster) {
        Standing::Ours => true,
        Standing::Half => false,
        Standing::Changed { .. } | Standing::Unplaced => return None,
    };
    if unpin && due(w, settings, now).is_none_or(|due| now < due) {
        return None;
    }
    // Where none of them takes jobs now, it keeps those of the pin.
    let partitions = in_order(roster, &from).unwrap_or_default();
    let placed = if partitions.is_empty() { &job.partitions } else { &partitions };
    let placed = placed.join(",");
    let mut released = mark.clone();
    for key in ["pin", "from", "free", "eta", "at"] {
        released.remove(key);
    }
    released.set("placed", &placed);
    released.set("released", node);
    let waited = now.saturating_sub(settings.since(job, now));
    Some(Intent {
        kind: Kind::Release,
        job: job.id,
        unpin,
        words: format!("release from {node}, back to {placed}"),
        why: if unpin {
            format!("pending for {waited} s with a pin to {node}")
        } else {
            format!("the pin to {node} was taken off without giving the partitions back")
        },
        partitions,
        pin: None,
        comment: released.to_comment(),
        takes: Vec::new(),
    })
}
