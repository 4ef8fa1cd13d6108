//! A job of the in-memory Slurm: what Slurm has of it, and beside that what only the
//! test knows: what was asked for without sjp, and what others have chosen since.

use sjp_core::mark::Mark;
use sjp_core::units::{Limit, MemPer};

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Completed,
    Timeout,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Pending,
    /// `minutes`: that it may run there.
    Running {
        node: String,
        partition: String,
        start: i64,
        minutes: Option<u32>,
    },
    Ended(End),
}

/// What the job would have without sjp: as its user asked, with what the site's rules
/// and everybody's later changes made of it.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The partitions that the user named at submission.
    pub named: Vec<String>,
    pub partitions: Vec<String>,
    pub nodes: Vec<String>,
    pub exclude: Vec<String>,
    pub qos: String,
    pub comment: String,
    pub mem: MemPer,
}

/// What others have chosen after sjp had its say: that stays. Holds the value from
/// before, and what was asked for then; whoever puts that back has chosen nothing that
/// anybody could see.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub partitions: Option<Before<Vec<String>>>,
    pub nodes: Option<Before<Vec<String>>>,
    pub qos: Option<Before<String>>,
}

#[derive(Clone, Debug)]
pub struct Before<T> {
    value: T,
    asked: T,
}

impl Chosen {
    /// Where the job is as a new mark says, nobody has chosen otherwise any more.
    pub fn settle(&mut self, mark: &Mark, partitions: &[String], nodes: &[String]) {
        if mark.places() && nodes.iter().all(|node| mark.get("pin") == Some(node)) {
            self.nodes = None;
        }
        if ["placed", "open"].iter().any(|key| same(&mark.list(key), partitions)) {
            self.partitions = None;
        }
    }

    /// Slurm has no compare-and-set: what is set after a choice that its writer could
    /// not see replaces it.
    pub fn forget(&mut self, key: &str) {
        match key {
            "partition" => self.partitions = None,
            "reqnodelist" => self.nodes = None,
            "qos" => self.qos = None,
            _ => {}
        }
    }
}

/// Notes that `old` becomes `new`; answers what is asked for from now on. `ours`: it
/// still is sjp's, by the mark.
fn note<T: Clone + PartialEq>(
    chosen: &mut Option<Before<T>>,
    old: &T,
    new: &T,
    asked: &T,
    ours: bool,
) -> T {
    let before = || Before { value: old.clone(), asked: asked.clone() };
    let first = chosen.get_or_insert_with(before);
    if first.value != *new || !ours {
        return new.clone();
    }
    let asked = first.asked.clone();
    *chosen = None;
    asked
}

/// A change of a waiting job by its user or an admin.
#[derive(Clone, Debug)]
pub enum Change {
    Partitions(Vec<String>),
    Nodes(Vec<String>),
    Qos(String),
    Comment(String),
}

#[derive(Clone, Debug)]
pub struct Sim {
    pub id: u32,
    pub array: Option<u32>,
    pub tasks: Vec<u32>,
    pub uid: u32,
    pub account: &'static str,
    pub qos: String,
    pub partitions: Vec<String>,
    pub req_nodes: Vec<String>,
    pub exc_nodes: Vec<String>,
    pub comment: String,
    pub cpus: u32,
    pub ntasks: u32,
    pub mem: MemPer,
    pub limit: Limit,
    pub exclusive: bool,
    pub runs: i64,
    pub submit: i64,
    pub begin: i64,
    pub eligible: Option<i64>,
    pub after: Option<u32>,
    pub held: bool,
    pub priority: u32,
    pub state: State,
    pub reason: String,
    pub plan: Option<(String, i64)>,

    pub asked: Asked,
    pub chosen: Chosen,
    /// Slurm would have taken it without sjp.
    pub alone: bool,
    /// sjp has written its mark.
    pub marked: bool,
    /// Partitions that sjp may give (back): accepted once, or asked for.
    pub good: Vec<String>,
    /// When others changed it last, by the history's count.
    pub touched: u64,
    /// Somebody changed it between sjp's look and sjp's update, or took the mark away:
    /// who was last has won, and sjp cannot know better.
    pub raced: bool,
}

impl Sim {
    pub fn node(&self) -> Option<&str> {
        match &self.state {
            State::Running { node, .. } => Some(node),
            State::Pending | State::Ended(_) => None,
        }
    }

    /// Whether an update of job `id` means it; with `tasks`: of these of array `id`.
    pub fn is_named(&self, id: u32, tasks: &[u32]) -> bool {
        match tasks {
            [] => self.id == id,
            tasks => self.array == Some(id) && self.tasks.iter().all(|t| tasks.contains(t)),
        }
    }

    /// The end by its time limit.
    pub fn ends_by(&self) -> Option<i64> {
        match &self.state {
            State::Running { start, minutes, .. } => minutes.map(|m| start + i64::from(m) * 60),
            State::Pending | State::Ended(_) => None,
        }
    }

    /// When a running job will end.
    pub fn ends(&self) -> Option<i64> {
        match &self.state {
            State::Running { start, .. } => {
                let done = start + self.runs;
                Some(self.ends_by().map_or(done, |limit| limit.min(done)))
            }
            State::Pending | State::Ended(_) => None,
        }
    }

    pub fn how_it_ends(&self) -> End {
        match &self.state {
            State::Running { minutes: Some(m), .. } if i64::from(*m) * 60 < self.runs => {
                End::Timeout
            }
            _ => End::Completed,
        }
    }

    /// The job as it would be without sjp.
    pub fn without_sjp(&self) -> Self {
        let asked = &self.asked;
        Self {
            partitions: asked.partitions.clone(),
            req_nodes: asked.nodes.clone(),
            exc_nodes: asked.exclude.clone(),
            qos: asked.qos.clone(),
            mem: asked.mem,
            ..self.clone()
        }
    }

    /// Takes over a change by somebody else.
    pub fn choose(&mut self, change: Change) {
        let (chosen, asked) = (&mut self.chosen, &mut self.asked);
        let mark = Mark::parse(&self.comment).filter(|_| self.marked);
        let placed = mark.as_ref().is_some_and(Mark::places);
        let flexed = mark.as_ref().is_some_and(|mark| mark.get("qos").is_some());
        match change {
            // What is there already is no choice that anybody could see.
            Change::Partitions(list) if same(&list, &self.partitions) => {}
            Change::Nodes(list) if list == self.req_nodes => {}
            Change::Qos(qos) if qos == self.qos => {}
            Change::Partitions(mut list) => {
                // In which order does not count.
                list.sort();
                self.partitions.sort();
                asked.partitions = note(
                    &mut chosen.partitions,
                    &self.partitions,
                    &list,
                    &asked.partitions,
                    placed,
                );
                self.alone = true;
                self.good.extend(list.iter().cloned());
                self.partitions = list;
            }
            Change::Nodes(list) => {
                // The node that sjp is just taking off: the two cannot be told apart.
                let pin = mark.as_ref().and_then(|mark| mark.get("pin"));
                self.raced |= pin.is_some_and(|pin| list == [pin]);
                // Let go of, it got the partitions that hold the nodes it had then.
                self.raced |= !placed && chosen.nodes.is_some();
                asked.nodes = note(&mut chosen.nodes, &self.req_nodes, &list, &asked.nodes, placed);
                self.req_nodes = list;
            }
            // Of a QOS that sjp has not lent, the new one is as good a start.
            Change::Qos(qos) if !flexed => {
                asked.qos.clone_from(&qos);
                self.qos = qos;
            }
            Change::Qos(qos) => {
                asked.qos = note(&mut chosen.qos, &self.qos, &qos, &asked.qos, true);
                self.qos = qos;
            }
            Change::Comment(text) => {
                // What the mark said is lost with it.
                self.raced |= self.marked;
                self.marked = false;
                asked.comment.clone_from(&text);
                self.comment = text;
            }
        }
    }
}

pub fn same(a: &[String], b: &[String]) -> bool {
    a.iter().all(|name| b.contains(name)) && b.iter().all(|name| a.contains(name))
}
