//! What can be changed: an [`Action`] is a few [`Update`]s of one job or one
//! QOS, with the words that tell of it.

use std::fmt;

/// A change to the cluster, as a whole: its updates are made in order, and
/// what one of them leaves behind when the next never comes must be decidable
/// from what the job shows and what its mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What it is.
    pub kind: ActionKind,
    /// What is changed.
    pub target: Target,
    /// The updates, in order.
    pub updates: Vec<Update>,
    /// The job's AdminComment afterwards, where it changes.
    pub mark: Option<String>,
    /// What is done, after "job 7: ", for the log.
    pub words: String,
    /// Why.
    pub why: String,
}

/// The kinds of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActionKind {
    /// A pinned job loses its node and gets its partitions back.
    Release,
    /// A job gets other partitions, or another node.
    Move,
    /// A job gets every open partition that can hold it.
    Open,
    /// An opened job gets fewer partitions again, since it can start there.
    Narrow,
    /// A job is pinned to the node that is expected to have room first.
    WaitFor,
    /// A job past its budget gets every partition that can hold it.
    Widen,
    /// A job that somebody else changed loses sjp's mark.
    DropMark,
    /// A job gets the flex QOS.
    Flex,
    /// A job gets its own QOS back.
    FlexBack,
    /// Caps of a QOS are raised for a while.
    Raise,
    /// They are given back.
    Lower,
    /// A change of sjp's is taken back because it is switched off.
    Undo,
}

impl ActionKind {
    /// One word for the log.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Move => "move",
            Self::Open => "open",
            Self::Narrow => "narrow",
            Self::WaitFor => "wait",
            Self::Widen => "widen",
            Self::DropMark => "drop-mark",
            Self::Flex => "flex",
            Self::FlexBack => "flex-back",
            Self::Raise => "raise",
            Self::Lower => "lower",
            Self::Undo => "undo",
        }
    }

    /// Whether it takes back what sjp did, or lets go of a job: such changes
    /// go before all others.
    #[must_use]
    pub const fn undoes(self) -> bool {
        matches!(self, Self::Release | Self::DropMark | Self::FlexBack | Self::Lower | Self::Undo)
    }
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What an action changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A job, by its raw id (of an array: its pending tasks).
    Job(u32),
    /// A QOS, by name.
    Qos(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(id) => write!(f, "job {id}"),
            Self::Qos(name) => write!(f, "QOS {name}"),
        }
    }
}

impl Action {
    /// The job that is changed; `None` where it is a QOS.
    #[must_use]
    pub fn job(&self) -> Option<u32> {
        match self.target {
            Target::Job(id) => Some(id),
            Target::Qos(_) => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.target, self.words)
    }
}

/// Keys and values, in the order written.
pub type Settings = Vec<(&'static str, String)>;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// `scontrol update jobid=ID KEY=VALUE ...`
    Job {
        /// The job.
        id: u32,
        /// What it gets.
        set: Settings,
    },
    /// `scontrol update jobid=ID_[TASKS] KEY=VALUE ...`: the tasks of an array that
    /// wait in one record. Naming them leaves those alone that run.
    Tasks {
        /// The array.
        id: u32,
        /// Its tasks, `1,3,5-9`. Tasks that started meanwhile do no harm: Slurm splits
        /// a record only where it has tasks beyond these.
        tasks: String,
        /// What they get.
        set: Settings,
    },
    /// `sacctmgr -i modify qos where name=NAME set KEY=VALUE ...`
    Qos {
        /// The QOS.
        name: String,
        /// What it gets.
        set: Settings,
    },
}

impl Update {
    /// Keys and values, in the order written.
    #[must_use]
    pub fn set(&self) -> &[(&'static str, String)] {
        match self {
            Self::Job { set, .. } | Self::Tasks { set, .. } | Self::Qos { set, .. } => set,
        }
    }

    /// The job, where it is one.
    #[must_use]
    pub fn job(&self) -> Option<u32> {
        match self {
            Self::Job { id, .. } | Self::Tasks { id, .. } => Some(*id),
            Self::Qos { .. } => None,
        }
    }
}

/// The updates that give a job another node, other partitions and another
/// AdminComment. Some versions refuse partitions that do not hold the required
/// node, so where the node changes it goes first, by itself: `Some("")` takes
/// it off. `None`: it stays. No partitions: they stay.
#[must_use]
pub fn job_updates(id: u32, node: Option<&str>, partitions: &[String], mark: &str) -> Vec<Update> {
    let mut updates = Vec::with_capacity(2);
    if let Some(node) = node {
        updates.push(Update::Job { id, set: vec![("reqnodelist", node.to_owned())] });
    }
    let mut set = Vec::with_capacity(2);
    if !partitions.is_empty() {
        set.push(("partition", partitions.join(",")));
    }
    set.push(("admincomment", mark.to_owned()));
    updates.push(Update::Job { id, set });
    updates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_goes_before_the_partitions() {
        let parts = ["slim1".to_owned(), "slim2".to_owned()];
        let updates = job_updates(7, Some(""), &parts, "sjp:released=n1");
        assert_eq!(updates.len(), 2);
        assert_eq!(updates[0].set(), [("reqnodelist", String::new())]);
        let second = [
            ("partition", "slim1,slim2".to_owned()),
            ("admincomment", "sjp:released=n1".to_owned()),
        ];
        assert_eq!(updates[1].set(), second);
        assert_eq!(job_updates(7, None, &parts, "sjp:released=n1"), updates[1..]);
        assert_eq!(job_updates(7, None, &[], "mine")[0].set(), [("admincomment", "mine".into())]);
    }

    #[test]
    fn words_name_the_target() {
        let action = |target| Action {
            kind: ActionKind::Raise,
            target,
            updates: Vec::new(),
            mark: None,
            words: "caps 8 to 16".into(),
            why: String::new(),
        };
        let (job, qos) = (action(Target::Job(7)), action(Target::Qos("normal".into())));
        assert_eq!((job.to_string(), job.job()), ("job 7: caps 8 to 16".into(), Some(7)));
        assert_eq!((qos.to_string(), qos.job()), ("QOS normal: caps 8 to 16".into(), None));
    }
}
