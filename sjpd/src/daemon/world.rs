//! What is known of the cluster, and how old it is.

use crate::ports::{Associations, BoundUser, Kind, Records, UserQos};
use sjp_core::cluster::{Job, MarkedJob, Node, Partition, QosCaps, Reservation, SlurmConfig};
use sjp_core::limits::pulse::Caps;
use sjp_core::publish::is_tied;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When a reading was asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// CLOCK_MONOTONIC, nanoseconds: the clock of the table.
    pub mono_ns: u64,
    /// Unix seconds, with fraction.
    pub unix: f64,
}

impl Asked {
    /// Seconds of the steady clock: what came before what, whatever is done to the
    /// time of day.
    #[must_use]
    pub fn steady(&self) -> f64 {
        self.mono_ns as f64 / 1e9
    }

    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self { mono_ns: sjp_table::now_ns(), unix: unix_now() }
    }
}

/// Unix seconds now, with fraction.
#[must_use]
pub fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Seconds of a clock that is never stepped (CLOCK_MONOTONIC).
#[must_use]
pub fn steady_now() -> f64 {
    sjp_table::now_ns() as f64 / 1e9
}

/// Whole Unix seconds of a time with fraction.
#[must_use]
pub fn seconds(unix: f64) -> i64 {
    unix.floor() as i64
}

/// One reading's result.
#[derive(Debug)]
pub enum Reading {
    /// Nodes.
    Nodes(Records<Node>),
    /// Partitions.
    Partitions(Records<Partition>),
    /// Slurm's settings.
    Config(Box<SlurmConfig>),
    /// Reservations.
    Reservations(Records<Reservation>),
    /// Jobs.
    Queue(Records<Job>),
    /// CPU caps.
    Qos(Records<QosCaps>),
    /// Associations.
    Associations(Associations),
    /// CPU caps as the database has them.
    Limits(Records<(String, Caps)>),
    /// AdminComments: what was asked for, and the answer.
    Marks(Vec<u32>, Records<MarkedJob>),
    /// Which controller acts.
    Controller(usize),
}

/// How the last reading of a kind went.
#[derive(Clone, Debug, Default)]
pub struct Last {
    /// When the last good one was asked for.
    pub asked: Option<Asked>,
    /// How long it took.
    pub took: Duration,
    /// Good ones since the start.
    pub good: u64,
    /// Failures since the start.
    pub failed: u64,
    /// What the last failure said; cleared by the next good one.
    pub error: Option<String>,
    /// Records of the last good one that could not be read.
    pub bad_records: usize,
}

/// The cluster as last read.
#[derive(Debug, Default)]
pub struct World {
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Partitions.
    pub partitions: Vec<Partition>,
    /// Slurm's settings.
    pub config: SlurmConfig,
    /// Reservations.
    pub reservations: Vec<Reservation>,
    /// Jobs.
    pub jobs: Vec<Job>,
    /// CPU caps.
    pub qos: Vec<QosCaps>,
    /// Users bound to partitions.
    pub bound_users: Vec<BoundUser>,
    /// Who may use which QOS; `None`: not known.
    pub user_qos: Option<Vec<UserQos>>,
    /// CPU caps of QOS as the database had them when it was last asked.
    pub limits: Vec<(String, Caps)>,
    /// Which controller acts, by index in the config's list; `None`: not read.
    pub acting: Option<usize>,
    /// How each kind of reading went.
    pub last: BTreeMap<Kind, Last>,
    /// Whether something that the roster is made of has changed since it was
    /// last built.
    pub roster_stale: bool,
}

impl World {
    /// Nothing known.
    #[must_use]
    pub fn new() -> Self {
        Self { roster_stale: true, ..Self::default() }
    }

    /// How the last reading of `kind` went.
    #[must_use]
    pub fn last(&self, kind: Kind) -> Last {
        self.last.get(&kind).cloned().unwrap_or_default()
    }

    /// When the last good reading of `kind` was asked for.
    #[must_use]
    pub fn asked(&self, kind: Kind) -> Option<Asked> {
        self.last.get(&kind).and_then(|l| l.asked)
    }

    /// Whether `kind` was read or has failed at least once.
    #[must_use]
    pub fn tried(&self, kind: Kind) -> bool {
        self.last.get(&kind).is_some_and(|l| l.good + l.failed > 0)
    }

    /// Whether enough is known to publish: what placement cannot do without
    /// was read, and what it can do without was at least tried.
    #[must_use]
    pub fn complete(&self) -> bool {
        let needed = [Kind::Nodes, Kind::Partitions, Kind::Config, Kind::Queue, Kind::Reservations];
        needed.iter().all(|&k| self.asked(k).is_some())
            && [Kind::Qos, Kind::Associations].iter().all(|&k| self.tried(k))
    }

    /// Whether one of `nodes` has other allocations than when it was last read,
    /// while a pending job is tied to it: that job may have started, and
    /// counts twice until the queue is read again.
    #[must_use]
    pub fn tied_node_changed(&self, nodes: &[Node]) -> bool {
        let tied: HashSet<&str> = self
            .jobs
            .iter()
            .filter(|j| is_tied(j))
            .flat_map(|j| j.req_nodes.iter().map(String::as_str))
            .collect();
        let known = self.nodes.iter().filter(|n| tied.contains(n.name.as_str()));
        let then: HashMap<&str, &Node> = known.map(|n| (n.name.as_str(), n)).collect();
        let changed =
            |n: &Node| then.get(n.name.as_str()).is_some_and(|t| t.cpus_alloc != n.cpus_alloc);
        !then.is_empty() && nodes.iter().any(changed)
    }

    /// Takes in a failure.
    pub fn failed(&mut self, kind: Kind, error: String) {
        let last = self.last.entry(kind).or_default();
        last.failed += 1;
        last.error = Some(error);
    }

    /// Takes in a reading (marks are kept elsewhere). `took`: how long it took.
    pub fn take(&mut self, reading: Reading, asked: Asked, took: Duration) {
        let (kind, errors) = match reading {
            Reading::Nodes(records) => {
                self.roster_stale |= !same_roster_nodes(&self.nodes, &records.list);
                self.nodes = records.list;
                (Kind::Nodes, records.errors)
            }
            Reading::Partitions(records) => {
                self.roster_stale |= self.partitions != records.list;
                self.partitions = records.list;
                (Kind::Partitions, records.errors)
            }
            Reading::Config(config) => {
                self.roster_stale |= self.config != *config;
                self.config = *config;
                (Kind::Config, Vec::new())
            }
            Reading::Reservations(records) => {
                self.reservations = records.list;
                (Kind::Reservations, records.errors)
            }
            Reading::Queue(records) => {
                self.jobs = records.list;
                (Kind::Queue, records.errors)
            }
            Reading::Qos(records) => {
                // Use changes all the time; the roster has names and caps' kinds.
                let rules = |q: &QosCaps| (q.name.clone(), q.can_reject);
                self.roster_stale |= !self.qos.iter().map(rules).eq(records.list.iter().map(rules));
                self.qos = records.list;
                (Kind::Qos, records.errors)
            }
            Reading::Associations(read) => {
                self.roster_stale |= self.bound_users != read.bound;
                self.bound_users = read.bound;
                self.user_qos = read.qos;
                (Kind::Associations, read.errors)
            }
            Reading::Limits(records) => {
                self.limits = records.list;
                (Kind::Limits, records.errors)
            }
            Reading::Controller(index) => {
                self.acting = Some(index);
                (Kind::Controller, Vec::new())
            }
            Reading::Marks(_, records) => (Kind::Marks, records.errors),
        };
        let last = self.last.entry(kind).or_default();
        if errors.len() != last.bad_records {
            for error in errors.iter().take(5) {
                tracing::warn!(%kind, error, "cannot read a record");
            }
            if errors.len() > 5 {
                tracing::warn!(%kind, more = errors.len() - 5, "more records cannot be read");
            }
        }
        last.asked = Some(asked);
        last.took = took;
        last.good += 1;
        last.error = None;
        last.bad_records = errors.len();
    }
}

/// Whether two lists of nodes make the same roster.
fn same_roster_nodes(a: &[Node], b: &[Node]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.name == b.name
                && a.cpus == b.cpus
                && a.cpus_effective == b.cpus_effective
                && a.mem == b.mem
                && a.mem_spec == b.mem_spec
                && a.threads_per_core == b.threads_per_core
                && a.weight == b.weight
                && a.gpus.total == b.gpus.total
                && a.partitions == b.partitions
                && a.features == b.features
                && (a.state == b.state || future(a) == future(b))
        })
}

fn future(node: &Node) -> bool {
    node.state.iter().any(|s| s == "FUTURE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sjp_core::units::Cpus;

    fn node(name: &str) -> Node {
        Node { name: name.into(), cpus: Cpus(8), ..Node::default() }
    }

    fn nodes(world: &mut World, list: Vec<Node>) -> bool {
        world.roster_stale = false;
        let records = Records { list, errors: Vec::new() };
        world.take(Reading::Nodes(records), Asked { mono_ns: 1, unix: 1.0 }, Duration::ZERO);
        world.roster_stale
    }

    #[test]
    fn only_what_the_roster_is_made_of_makes_it_stale() {
        let mut world = World::new();
        assert!(nodes(&mut world, vec![node("a"), node("b")]));
        assert!(!nodes(&mut world, vec![node("a"), node("b")]));
        let busy = Node { cpus_alloc: Cpus(4), state: vec!["MIXED".into()], ..node("b") };
        assert!(!nodes(&mut world, vec![node("a"), busy]), "allocation is the rooms' business");
        assert!(nodes(&mut world, vec![node("a")]), "a node is gone");
        let moved = Node { partitions: vec!["fat".into()], ..node("a") };
        assert!(nodes(&mut world, vec![moved]));
        let future = Node { state: vec!["FUTURE".into()], ..node("a") };
        assert!(nodes(&mut world, vec![future]));
    }

    #[test]
    fn a_tied_job_s_node_tells_that_it_may_have_started() {
        let mut world = World::new();
        nodes(&mut world, vec![node("a"), node("b")]);
        world.jobs = vec![Job { priority: 1, req_nodes: vec!["b".into()], ..Job::default() }];
        let busy = |name: &str| Node { cpus_alloc: Cpus(4), ..node(name) };
        assert!(!world.tied_node_changed(&[node("a"), node("b")]));
        assert!(!world.tied_node_changed(&[busy("a"), node("b")]));
        assert!(world.tied_node_changed(&[node("a"), busy("b")]));
    }

    #[test]
    fn accounting_may_be_away_but_nodes_and_queue_may_not() {
        let mut world = World::new();
        let asked = Asked { mono_ns: 1, unix: 1.0 };
        let zero = Duration::ZERO;
        world.take(Reading::Nodes(Records::default()), asked, zero);
        world.take(Reading::Partitions(Records::default()), asked, zero);
        world.take(Reading::Config(Box::default()), asked, zero);
        world.take(Reading::Queue(Records::default()), asked, zero);
        world.failed(Kind::Qos, "no slurmdbd".into());
        world.failed(Kind::Associations, "no slurmdbd".into());
        world.failed(Kind::Reservations, "busy".into());
        assert!(!world.complete(), "reservations are needed");
        world.take(Reading::Reservations(Records::default()), asked, zero);
        assert!(world.complete());
        world.failed(Kind::Nodes, "away".into());
        assert!(world.complete(), "old nodes are still nodes");
        assert_eq!(world.last(Kind::Nodes).error.as_deref(), Some("away"));
    }
}
