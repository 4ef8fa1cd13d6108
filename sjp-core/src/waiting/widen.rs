//! Widening: a job that has waited for longer than its budget gets every
//! partition that can hold it and that Slurm will accept for it. Once a job.

use super::standing::{self, Standing};
use super::{
    Intent, Kind, Origin, Settings, Waiting, in_order, opened_list, own_partitions, permitted,
    place_words, request, same, waits_for_room,
};
use crate::cluster::Job;
use crate::eligible;
use crate::publication::Roster;
use std::cmp::Reverse;

/// Jobs that sjp placed and that have waited for room longer than their budget,
/// highest priority first.
#[must_use]
pub fn plan(
    roster: &Roster,
    waiting: &[Waiting<'_>],
    settings: &Settings,
    now: i64,
) -> Vec<Intent> {
    if !settings.widen {
        return Vec::new();
    }
    let mut intents: Vec<(&Job, Intent)> = waiting
        .iter()
        .filter(|w| settings.past_budget(w.job, now))
        .filter_map(|w| Some((w.job, one(roster, w, settings, now)?)))
        .collect();
    intents.sort_by_key(|(job, _)| (Reverse(job.priority), job.submit, job.id));
    intents.into_iter().map(|(_, intent)| intent).collect()
}

fn one(roster: &Roster, w: &Waiting<'_>, settings: &Settings, now: i64) -> Option<Intent> {
    let (job, mark) = (w.job, w.mark);
    if mark.get("widened").is_some() || standing::of(job, mark, roster) != Standing::Ours {
        return None;
    }
    let pinned = mark.get("pin");
    // A node that is not there and that sjp did not choose is the job's own affair;
    // partitions are sjp's choice.
    let own_node = job.reason.starts_with("ReqNodeNotAvail") && pinned.is_none();
    if !waits_for_room(job) || own_node {
        return None;
    }
    let from = mark.list("from");
    let before = own_partitions(job, &from);
    // Some versions refuse partitions that do not hold the nodes of the job's own.
    let holds = |name: &&String| {
        let in_it = |node: &String| standing::is_in(roster, node, name);
        !mark.has("own", "nodes") || job.req_nodes.iter().all(in_it)
    };
    let held: Vec<String> = before.iter().filter(holds).cloned().collect();
    let list = in_order(roster, &opened_list(roster, &all(roster, w), &held))?;
    if pinned.is_none() && same(&list, &job.partitions) {
        return None;
    }
    let mut widened = mark.clone();
    for key in ["pin", "from", "free", "eta", "placed"] {
        widened.remove(key);
    }
    if let Some(node) = pinned {
        widened.set("released", node);
    }
    widened.set("open", &list.join(","));
    widened.set("widened", &place_words(job));
    widened.set("at", &now.to_string());
    let waited = now.saturating_sub(settings.since(job, now));
    Some(Intent {
        kind: Kind::Widen,
        job: job.id,
        unpin: pinned.is_some(),
        words: format!("widen from {} to {}", place_words(job), list.join(",")),
        why: format!("pending for {waited} s ({}), longer than its budget", job.reason),
        partitions: list,
        pin: None,
        comment: widened.to_comment(),
        takes: Vec::new(),
    })
}

/// Every partition that would accept the job, highest tier first, then by name;
/// one only where Slurm would refuse a list.
fn all(roster: &Roster, w: &Waiting<'_>) -> Vec<u16> {
    let origin = Origin::of(w.job, w.mark);
    let request = request(w.job, w.mark, &origin);
    if eligible::one_partition_only(roster, &request) {
        return Vec::new();
    }
    let named = eligible::named_partitions(roster, &request);
    let permitted = permitted(roster, w.mark);
    // A nodelist of the job's own stays: only partitions that hold it.
    let node = w.job.req_nodes.first().filter(|_| w.mark.has("own", "nodes"));
    let node = node.and_then(|n| roster.nodes.find(n)).and_then(|n| u32::try_from(n).ok());
    let accepts = |index: u16| {
        let rule = roster.partitions.get(usize::from(index))?;
        let permitted = Some(permitted.as_slice());
        eligible::accepts(roster, index, rule, &request, permitted, named.as_deref(), node).ok()
    };
    let count = u16::try_from(roster.partitions.len()).unwrap_or(u16::MAX);
    let mut list: Vec<u16> = (0..count).filter(|&p| accepts(p).is_some()).collect();
    let tier = |p: u16| roster.partitions.get(usize::from(p)).map_or(0, |r| r.tier);
    list.sort_by_key(|&p| (Reverse(tier(p)), p));
    list
}
