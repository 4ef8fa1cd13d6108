//! Taking back what sjp did to a waiting job, so that nothing of it stands.
//!
//! A pin comes off, the partitions become those that the job named before sjp
//! placed it (or, where it named none, the default one), a QOS given for flex goes
//! back, and the mark goes; the site's own text in the AdminComment stays. What
//! somebody else has chosen since is left alone: where that is the partitions, they stay
//! as they are; where it is nodes, the partitions that hold them come back.
//!
//! No job ends up worse off: a partition is given back only where it would take
//! the job ([`eligible::accepts`]). Where none would, the partitions that sjp chose
//! stay. Each step leaves the job such that the next plan goes on from there.

use crate::cluster::{Job, JobState};
use crate::eligible;
use crate::mark::Mark;
use crate::publication::{PartitionRule, Roster};
use crate::waiting::standing::{self, Standing};
use crate::waiting::{Origin, Step, Waiting, in_order, permitted, request, same};

/// What is taken back from one job. The steps are to be made in this order: the
/// node; the partitions, with what the mark is then; the QOS, with the AdminComment
/// that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// Job id.
    pub job: u32,
    /// The node whose pin comes off.
    pub unpin: Option<String>,
    /// The partitions it gets; empty: they stay.
    pub partitions: Vec<String>,
    /// Why it does not get the partitions it came with.
    pub stays: Option<String>,
    /// The AdminComment together with the partitions: while the QOS is still to go
    /// back, a mark that says so.
    pub comment: String,
    /// The QOS that goes back.
    pub qos: Option<QosBack>,
}

/// A QOS that goes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosBack {
    /// The one it leaves.
    pub flex: String,
    /// The one it gets.
    pub own: String,
    /// The AdminComment together with it.
    pub comment: String,
}

impl Undo {
    /// The updates, in the order in which they are made: the node comes off first, by
    /// itself, since some versions refuse partitions that do not hold it; mark and QOS
    /// change together.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::with_capacity(3);
        if self.unpin.is_some() {
            steps.push(vec![("reqnodelist", String::new())]);
        }
        let mut set = Vec::with_capacity(2);
        if !self.partitions.is_empty() {
            set.push(("partition", self.partitions.join(",")));
        }
        // Where nothing but the QOS goes back, its update takes the mark off.
        if self.qos.is_none() || !set.is_empty() || self.unpin.is_some() {
            set.push(("admincomment", self.comment.clone()));
            steps.push(set);
        }
        if let Some(qos) = &self.qos {
            steps.push(vec![("qos", qos.own.clone()), ("admincomment", qos.comment.clone())]);
        }
        steps
    }

    /// The AdminComment after all of them.
    #[must_use]
    pub fn comment_after(&self) -> &str {
        self.qos.as_ref().map_or(&self.comment, |qos| &qos.comment)
    }

    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        let mut parts = Vec::with_capacity(4);
        if let Some(node) = &self.unpin {
            parts.push(format!("pin to {node} off"));
        }
        if !self.partitions.is_empty() {
            parts.push(format!("back to {}", self.partitions.join(",")));
        }
        if let Some(why) = &self.stays {
            parts.push(why.clone());
        }
        if let Some(qos) = &self.qos {
            parts.push(format!("QOS {} back to {}", qos.flex, qos.own));
        }
        parts.push("mark off".to_owned());
        parts.join(", ")
    }
}

/// Everything that is to be taken back from the pending jobs among `marked`.
#[must_use]
pub fn plan(roster: &Roster, marked: &[Waiting<'_>]) -> Vec<Undo> {
    marked.iter().filter(|w| w.job.state == JobState::Pending).map(|w| of(roster, w)).collect()
}

/// Everything that is to be taken back from one pending job.
#[must_use]
pub fn of(roster: &Roster, w: &Waiting<'_>) -> Undo {
    let (job, mark) = (w.job, w.mark);
    let own_qos = own_qos(job, mark);
    let standing = standing::of(job, mark, roster);
    let pin = mark.get("pin").map(str::to_owned);
    let (unpin, ours) = match standing {
        Standing::Ours => (pin, true),
        Standing::Half => (None, true),
        Standing::Changed { unpin, placed } => (pin.filter(|_| unpin), placed),
        Standing::Unplaced => (None, false),
    };
    // Nodes that somebody has chosen since stay, and the partitions must hold them.
    let chosen = matches!(standing, Standing::Changed { unpin: false, .. });
    let own_nodes = chosen || mark.has("own", "nodes");
    let (mut partitions, mut stays) = (Vec::new(), None);
    if ours {
        let from = mark.list("from");
        let placed = if from.is_empty() { &job.partitions } else { &from };
        match before(roster, job, mark, own_qos.map(|(own, _)| own), own_nodes) {
            Ok(back) => {
                partitions = back.list;
                if let Some(why) = back.shut {
                    // It may run on in those, and come back to its own when they open.
                    let more = placed.iter().filter(|name| {
                        let holds = |node: &String| standing::is_in(roster, node, name);
                        let held = !own_nodes || job.req_nodes.iter().all(holds);
                        held && !partitions.contains(name)
                    });
                    let more: Vec<String> = more.cloned().collect();
                    partitions.extend(more);
                    stays = Some(format!("stays in {} too: {why}", placed.join(",")));
                }
            }
            Err(why) if chosen => {
                stays = Some(format!("stays in {}: {why}", job.partitions.join(",")));
            }
            Err(why) => {
                // Without the pin's narrowing, what sjp chose for it.
                stays = Some(format!("stays in {}: {why}", placed.join(",")));
                partitions = from;
            }
        }
        if same(&partitions, &job.partitions) {
            partitions.clear();
        }
        if !partitions.is_empty() {
            partitions = in_order(roster, &partitions).unwrap_or_default();
        }
    }
    let comment = match own_qos {
        Some(_) => mark.let_go(),
        None => mark.before.clone(),
    };
    let qos = own_qos.map(|(own, flex)| QosBack {
        flex: flex.to_owned(),
        own: own.to_owned(),
        comment: mark.before.clone(),
    });
    Undo { job: job.id, unpin, partitions, stays, comment, qos }
}

/// The QOS that the job had, and the one that sjp gave it, where it still has that.
fn own_qos<'m>(job: &Job, mark: &'m Mark) -> Option<(&'m str, &'m str)> {
    let (own, flex) = mark.get("qos")?.split_once('>')?;
    (!own.is_empty() && !flex.is_empty() && job.qos.eq_ignore_ascii_case(flex))
        .then_some((own, flex))
}

/// Where a job goes back to.
struct Back {
    list: Vec<String>,
    /// Why none of them would start it now: all are closed to sjp, or down.
    shut: Option<String>,
}

/// The partitions that the job goes back to: of those it named, the ones that
/// would take it, also those that are down for now; the default one where it named none.
fn before(
    roster: &Roster,
    job: &Job,
    mark: &Mark,
    own_qos: Option<&str>,
    own_nodes: bool,
) -> Result<Back, String> {
    let named = mark.original();
    let list: Vec<u16> = (0..)
        .zip(&roster.partitions)
        .filter(
            |(_, rule)| if named.is_empty() { rule.default } else { named.contains(&rule.name) },
        )
        .map(|(index, _)| index)
        .collect();
    let whose = if named.is_empty() {
        "the default partition".to_owned()
    } else {
        format!("{}, which it named", named.join(","))
    };
    if list.is_empty() {
        return Err(format!("there is no {whose}"));
    }
    let origin = Origin::named(&named);
    let mut request = request(job, mark, &origin);
    if own_qos.is_some() {
        request.qos = own_qos;
    }
    let node = match job.req_nodes.as_slice() {
        [only] if own_nodes => roster.nodes.find(only),
        [] => None,
        _ if own_nodes => return Err("it names nodes of its own".to_owned()),
        _ => None,
    };
    let node = node.and_then(|n| u32::try_from(n).ok());
    let mut may = permitted(roster, mark);
    // What Slurm itself had put a skipped job into.
    let had = mark.list("had");
    for (may, rule) in may.iter_mut().zip(&roster.partitions) {
        *may |= had.contains(&rule.name);
    }
    let (mut because, mut any_open, mut shut) = (None, false, None);
    let mut takes = |index: &u16| {
        let Some(rule) = roster.partitions.get(usize::from(*index)) else { return false };
        let named = Some(list.as_slice());
        // Closed to sjp, or down for a while: the job would wait there without sjp too.
        let open = PartitionRule { open: true, ..rule.clone() };
        match eligible::accepts(roster, *index, &open, &request, Some(&may), named, node) {
            Ok(_) => {
                any_open |= rule.open;
                shut = (!rule.open).then(|| rule.closed_because.clone()).or(shut.take());
                true
            }
            Err(why) => {
                because.get_or_insert(why);
                false
            }
        }
    };
    let mut back: Vec<u16> = list.iter().copied().filter(&mut takes).collect();
    // In the order in which the job named them.
    let rank = |index: &u16| {
        let rule = roster.partitions.get(usize::from(*index));
        rule.and_then(|rule| named.iter().position(|n| *n == rule.name))
    };
    back.sort_by_key(rank);
    let names: Vec<String> = back
        .iter()
        .filter_map(|&i| roster.partitions.get(usize::from(i)))
        .map(|rule| rule.name.clone())
        .collect();
    match because {
        Some(why) if names.is_empty() => Err(format!("not back to {whose}: {why}")),
        _ if names.len() > 1 && eligible::one_partition_only(roster, &request) => {
            Err(format!("not back to {whose}: Slurm takes one partition only for its user"))
        }
        _ if any_open => Ok(Back { list: names, shut: None }),
        _ if eligible::one_partition_only(roster, &request) => {
            let why = shut.unwrap_or_default();
            Err(format!("not back to {whose}: closed: {why}"))
        }
        _ => Ok(Back { list: names, shut }),
    }
}

#[cfg(test)]
mod tests;
