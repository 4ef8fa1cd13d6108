//! What can be changed: an [`Action`] is a few [`Update`]s of one job or one
//! QOS, with the words that tell of it.

use sjp_core::cluster::Job;
use sjp_core::mark::Mark;
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
    /// What the job looked like when it was decided; `None`: it is not looked at
    /// again, as a QOS.
    pub seen: Option<Seen>,
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

/// Of a job, what sjp changes: as it was seen, or as it is to be after some of the
/// updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its partitions.
    pub partitions: Vec<String>,
    /// The nodes it requires.
    pub req_nodes: Vec<String>,
    /// Its QOS.
    pub qos: String,
    /// Its AdminComment.
    pub comment: String,
}

impl Seen {
    /// The job as the queue shows it, with the mark that is known of it.
    #[must_use]
    pub fn of(job: &Job, mark: &Mark) -> Self {
        Self {
            partitions: job.partitions.clone(),
            req_nodes: job.req_nodes.clone(),
            qos: job.qos.clone(),
            comment: mark.to_comment(),
        }
    }

    /// The same after an update.
    pub fn take(&mut self, update: &Update) {
        let list = |value: &str| -> Vec<String> {
            value.split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect()
        };
        for (key, value) in update.set() {
            match *key {
                "partition" => self.partitions = list(value),
                "reqnodelist" => self.req_nodes = list(value),
                "qos" => self.qos.clone_from(value),
                "admincomment" => self.comment.clone_from(value),
                _ => {}
            }
        }
    }

    /// What of `job` is not so, in words; `None`: it is as seen.
    #[must_use]
    pub fn differs(&self, job: &Job) -> Option<String> {
        let other = |what: &str, was: &str, is: &str| {
            Some(format!("its {what} was {was:?} when that was decided, and is {is:?} now"))
        };
        let same_set = |a: &[String], b: &[String]| {
            a.iter().all(|name| b.contains(name)) && b.iter().all(|name| a.contains(name))
        };
        if !same_set(&self.partitions, &job.partitions) {
            return other("partition", &self.partitions.join(","), &job.partitions.join(","));
        }
        if !same_set(&self.req_nodes, &job.req_nodes) {
            return other("ReqNodeList", &self.req_nodes.join(","), &job.req_nodes.join(","));
        }
        if !self.qos.eq_ignore_ascii_case(&job.qos) {
            return other("QOS", &self.qos, &job.qos);
        }
        let comment = job.admin_comment.as_deref()?;
        let same_mark = match (Mark::parse(&self.comment), Mark::parse(comment)) {
            // Keys in whatever order.
            (Some(was), Some(is)) => was.to_comment() == is.to_comment(),
            (None, None) => self.comment.trim() == comment.trim(),
            _ => false,
        };
        if same_mark { None } else { other("AdminComment", &self.comment, comment) }
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
    fn what_somebody_else_changed_is_told_and_what_sjp_changed_is_not() {
        let mut job = Job {
            partitions: vec!["a".into(), "b".into()],
            req_nodes: vec!["n1".into()],
            qos: "normal".into(),
            admin_comment: Some("site sjp:pin=n1;from=a,b".into()),
            ..Job::default()
        };
        // Another order of the keys, and another blank.
        let mark = Mark::parse("site  sjp:from=a,b;pin=n1").expect("a mark");
        job.admin_comment = Some("site\tsjp:from=a,b;pin=n1".into());
        let mut seen = Seen::of(&job, &mark);
        job.partitions.reverse();
        assert_eq!(seen.differs(&job), None, "the order is Slurm's");
        type Change = fn(&mut Job);
        let changed: [(&str, Change); 4] = [
            ("partition", |job| job.partitions = vec!["a".into()]),
            ("ReqNodeList", |job| job.req_nodes.clear()),
            ("QOS", |job| job.qos = "high".into()),
            ("AdminComment", |job| job.admin_comment = Some("note sjp:pin=n1;from=a,b".into())),
        ];
        for (what, change) in changed {
            let mut other = job.clone();
            change(&mut other);
            let words = seen.differs(&other).expect("it differs");
            assert!(words.starts_with(&format!("its {what} was ")), "{words}");
        }
        for update in job_updates(7, Some(""), &["a".to_owned()], "site") {
            seen.take(&update);
        }
        assert!(seen.differs(&job).is_some());
        job.req_nodes.clear();
        job.partitions = vec!["a".into()];
        job.admin_comment = Some("site".into());
        assert_eq!(seen.differs(&job), None);
        job.admin_comment = None;
        assert_eq!(seen.differs(&job), None, "a squeue that does not tell it");
    }

    #[test]
    fn words_name_the_target() {
        let action = |target| Action {
            kind: ActionKind::Raise,
            target,
            updates: Vec::new(),
            mark: None,
            seen: None,
            words: "caps 8 to 16".into(),
            why: String::new(),
        };
        let (job, qos) = (action(Target::Job(7)), action(Target::Qos("normal".into())));
        assert_eq!((job.to_string(), job.job()), ("job 7: caps 8 to 16".into(), Some(7)));
        assert_eq!((qos.to_string(), qos.job()), ("QOS normal: caps 8 to 16".into(), None));
    }
}
