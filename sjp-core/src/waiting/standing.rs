//! Whether a waiting job still is where its mark says that sjp put it.

use super::same;
use crate::cluster::Job;
use crate::eligible::partitions_of;
use crate::mark::Mark;
use crate::publication::Roster;

/// How a job stands to its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is where sjp put it.
    Ours,
    /// Its pin is off, its partitions are still those of the pin: a change was
    /// cut in two.
    Half,
    /// Somebody else has changed it.
    Changed {
        /// The node it requires is still the pin of sjp's.
        unpin: bool,
        /// Its partitions are still those that sjp set: somebody chose nodes.
        placed: bool,
    },
    /// The mark says of no place.
    Unplaced,
}

/// How `job` stands to `mark`. Slurm keeps the order of partitions and of the
/// names, but they are compared as sets; a requeued job shows them all again.
#[must_use]
pub fn of(job: &Job, mark: &Mark, roster: &Roster) -> Standing {
    if let Some(node) = mark.get("pin") {
        return pinned(job, mark, node, roster);
    }
    let Some(key) = ["placed", "open"].into_iter().find(|key| mark.get(key).is_some()) else {
        return Standing::Unplaced;
    };
    let nodes_are_its_own = job.req_nodes.is_empty() || mark.has("own", "nodes");
    let placed = same(&job.partitions, &mark.list(key));
    if nodes_are_its_own && placed {
        Standing::Ours
    } else {
        Standing::Changed { unpin: false, placed }
    }
}

/// Whether the node is in the partition, as far as sjp places there.
pub(crate) fn is_in(roster: &Roster, node: &str, partition: &str) -> bool {
    let index = roster.nodes.find(node).and_then(|n| u32::try_from(n).ok());
    let of = index.map_or(&[][..], |index| partitions_of(roster, index));
    of.iter()
        .filter_map(|&p| roster.partitions.get(usize::from(p)))
        .any(|rule| rule.name == partition)
}

fn pinned(job: &Job, mark: &Mark, node: &str, roster: &Roster) -> Standing {
    let from = mark.list("from");
    let index = roster.nodes.find(node).and_then(|n| u32::try_from(n).ok());
    let here: Vec<String> = match index {
        Some(index) => {
            let names: Vec<&str> = partitions_of(roster, index)
                .iter()
                .filter_map(|&p| roster.partitions.get(usize::from(p)))
                .map(|rule| rule.name.as_str())
                .collect();
            from.iter().filter(|name| names.contains(&name.as_str())).cloned().collect()
        }
        // A node that is gone says nothing of its partitions.
        None => job.partitions.iter().filter(|name| from.contains(name)).cloned().collect(),
    };
    let as_set = same(&job.partitions, &here) && !here.is_empty();
    match (job.req_nodes.as_slice(), as_set) {
        ([only], true) if only == node => Standing::Ours,
        ([], true) => Standing::Half,
        ([only], false) if only == node => Standing::Changed { unpin: true, placed: false },
        (_, placed) => Standing::Changed { unpin: false, placed },
    }
}
