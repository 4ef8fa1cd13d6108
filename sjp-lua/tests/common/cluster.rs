//! Clusters to publish: Slurm's records made by hand, then the same way to a
//! roster and rooms that sjpd takes.

use sjp_core::cluster::{Node, Partition, QosCaps, SlurmConfig};
use sjp_core::config::{Mode, Policy};
use sjp_core::ledger::Ledger;
use sjp_core::publication::{Rooms, Roster};
use sjp_core::publish::{Extra, RoomsInput, RosterInput, build_rooms, build_roster};
use sjp_core::units::{Cpus, MemMb};
use std::time::{SystemTime, UNIX_EPOCH};

/// What Slurm would say.
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub partitions: Vec<Partition>,
    pub qos: Vec<QosCaps>,
    pub config: SlurmConfig,
    pub policy: Policy,
}

impl Cluster {
    /// No nodes, no partitions, mode enforce.
    pub fn empty() -> Self {
        Self {
            nodes: Vec::new(),
            partitions: Vec::new(),
            qos: Vec::new(),
            config: SlurmConfig {
                cluster: "test".to_owned(),
                select_type: "select/cons_tres".to_owned(),
                select_params: vec!["CR_CPU_MEMORY".to_owned()],
                ..SlurmConfig::default()
            },
            policy: Policy { mode: Mode::Enforce, ..Policy::default() },
        }
    }

    /// Partition slim: slim1 to slim4 with 16 CPUs and 64,000 MB, slim2 half
    /// taken. Partition fat: fat1 and fat2 with 16 CPUs and 256,000 MB, fat1
    /// half taken. Tier 1 both; slim is the default.
    pub fn slim_and_fat() -> Self {
        let mut cluster = Self::empty();
        for i in 1..=4 {
            cluster.nodes.push(node(&format!("slim{i}"), 16, 64_000, &["slim"]));
        }
        for i in 1..=2 {
            cluster.nodes.push(node(&format!("fat{i}"), 16, 256_000, &["fat"]));
        }
        cluster.take("slim2", 8, 8_000);
        cluster.take("fat1", 8, 192_000);
        cluster.partitions.push(partition("slim", &cluster.nodes));
        cluster.partitions.push(partition("fat", &cluster.nodes));
        cluster.partitions[0].default = true;
        cluster
    }

    /// Allocates CPUs and MB on a node.
    pub fn take(&mut self, name: &str, cpus: u32, mb: u64) {
        let node = self.nodes.iter_mut().find(|n| n.name == name).unwrap();
        node.cpus_alloc = Cpus(node.cpus_alloc.0 + cpus);
        node.mem_alloc = MemMb(node.mem_alloc.0 + mb);
    }

    /// Allocates everything everywhere.
    pub fn fill(&mut self) {
        for node in &mut self.nodes {
            node.cpus_alloc = node.cpus_effective;
            node.mem_alloc = node.mem.unwrap_or_default();
        }
    }

    pub fn partition(&mut self, name: &str) -> &mut Partition {
        self.partitions.iter_mut().find(|p| p.name == name).unwrap()
    }

    pub fn roster(&self) -> Roster {
        build_roster(&RosterInput {
            nodes: &self.nodes,
            partitions: &self.partitions,
            config: &self.config,
            qos: &self.qos,
            bound_users: &[],
            policy: &self.policy,
        })
    }

    pub fn rooms(&self, roster: &Roster) -> Rooms {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        build_rooms(
            roster,
            &RoomsInput {
                nodes: &self.nodes,
                nodes_asked_at: now.as_secs_f64(),
                reservations: &[],
                jobs: &[],
                ledger: &Ledger::new(),
                qos: &self.qos,
                config: &self.config,
                now: i64::try_from(now.as_secs()).unwrap(),
                extra: Extra::default(),
            },
        )
    }
}

/// An idle node.
pub fn node(name: &str, cpus: u32, mb: u64, partitions: &[&str]) -> Node {
    Node {
        name: name.to_owned(),
        state: vec!["IDLE".to_owned()],
        usable: true,
        cpus: Cpus(cpus),
        cpus_effective: Cpus(cpus),
        mem: Some(MemMb(mb)),
        threads_per_core: 1,
        weight: 1,
        partitions: partitions.iter().map(|&p| p.to_owned()).collect(),
        ..Node::default()
    }
}

/// A partition that is up, of the nodes that say they are in it.
pub fn partition(name: &str, nodes: &[Node]) -> Partition {
    let nodes: Vec<String> = nodes
        .iter()
        .filter(|n| n.partitions.iter().any(|p| p == name))
        .map(|n| n.name.clone())
        .collect();
    Partition {
        name: name.to_owned(),
        state: "UP".to_owned(),
        node_count: u32::try_from(nodes.len()).unwrap(),
        nodes,
        tier: 1,
        over_subscribe: "NO".to_owned(),
        ..Partition::default()
    }
}
