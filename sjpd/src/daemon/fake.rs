//! A cluster for tests: answers from memory after as long as it is told to,
//! counts what is in flight, remembers when it was asked, and takes updates.

use crate::actuator::{Actuator, Answer, Update};
use crate::ports::{Associations, Cluster, Kind, ReadError, Records};
use parking_lot::Mutex;
use sjp_core::cluster::{
    Job, JobState, MarkedJob, Node, Partition, QosCaps, Reservation, SlurmConfig,
};
use sjp_core::limits::pulse::Caps;
use sjp_core::units::{Cpus, MemMb, MemPer};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What the fake is told, and what it remembers.
#[derive(Debug, Default)]
pub struct Inner {
    pub jobs: Vec<Job>,
    pub boot: String,
    /// Names of the controllers, and which of them acts.
    pub controllers: Vec<String>,
    pub acting: usize,
    pub slow: HashMap<Kind, Duration>,
    pub failing: HashSet<Kind>,
    pub asked: Vec<(Kind, Instant)>,
    pub marks_asked: Vec<Vec<u32>>,
    pub in_flight: HashMap<Kind, usize>,
    pub most_in_flight: usize,
    pub panic: Option<Kind>,
    pub updates: Vec<Update>,
    pub answers: Vec<Answer>,
    /// CPU caps of QOS, as the database has them.
    pub caps: BTreeMap<String, Caps>,
    pub qos: Vec<QosCaps>,
    pub associations: Associations,
    /// Whether the queue tells AdminComments.
    pub marks_in_queue: bool,
}

#[derive(Debug, Default)]
pub struct Fake {
    pub inner: Arc<Mutex<Inner>>,
}

/// Ends a reading, also one that is cut off.
struct Flight(Arc<Mutex<Inner>>, Kind);

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(n) = self.0.lock().in_flight.get_mut(&self.1) {
            *n -= 1;
        }
    }
}

impl Fake {
    pub fn new() -> Arc<Self> {
        let fake = Self::default();
        fake.inner.lock().marks_in_queue = true;
        Arc::new(fake)
    }

    /// When a kind was asked for, in whole seconds since `t0`.
    pub fn seconds(&self, kind: Kind, t0: Instant) -> Vec<u64> {
        let inner = self.inner.lock();
        inner.asked.iter().filter(|(k, _)| *k == kind).map(|(_, at)| (*at - t0).as_secs()).collect()
    }

    pub fn count(&self, kind: Kind) -> usize {
        self.inner.lock().asked.iter().filter(|(k, _)| *k == kind).count()
    }

    async fn answer<T>(&self, kind: Kind, make: impl FnOnce(&Inner) -> T) -> Result<T, ReadError> {
        let slow = {
            let mut inner = self.inner.lock();
            inner.asked.push((kind, Instant::now()));
            let n = inner.in_flight.entry(kind).or_default();
            *n += 1;
            let n = *n;
            inner.most_in_flight = inner.most_in_flight.max(n);
            inner.slow.get(&kind).copied().unwrap_or(Duration::from_millis(5))
        };
        let _flight = Flight(self.inner.clone(), kind);
        tokio::time::sleep(slow).await;
        let inner = self.inner.lock();
        assert!(inner.panic != Some(kind), "told to panic");
        if inner.failing.contains(&kind) {
            return Err(ReadError::Unreadable { what: kind.word(), why: "told to fail".into() });
        }
        Ok(make(&inner))
    }
}

fn records<T>(list: Vec<T>) -> Records<T> {
    Records { list, errors: Vec::new() }
}

impl Cluster for Fake {
    async fn nodes(&self) -> Result<Records<Node>, ReadError> {
        self.answer(Kind::Nodes, |_| records(nodes())).await
    }

    async fn partitions(&self) -> Result<Records<Partition>, ReadError> {
        self.answer(Kind::Partitions, |_| records(partitions())).await
    }

    async fn config(&self) -> Result<SlurmConfig, ReadError> {
        self.answer(Kind::Config, |inner| SlurmConfig {
            cluster: "fake".into(),
            controllers: inner.controllers.clone(),
            version: "22.05.8".into(),
            select_type: "select/cons_tres".into(),
            select_params: vec!["CR_CPU_MEMORY".into()],
            job_submit_plugins: vec!["lua".into()],
            all: vec![("BOOT_TIME".into(), inner.boot.clone())],
            ..SlurmConfig::default()
        })
        .await
    }

    async fn reservations(&self) -> Result<Records<Reservation>, ReadError> {
        self.answer(Kind::Reservations, |_| records(Vec::new())).await
    }

    async fn queue(&self) -> Result<Records<Job>, ReadError> {
        self.answer(Kind::Queue, |inner| {
            let told = inner.marks_in_queue;
            let tell = |job: &Job| Job {
                admin_comment: job.admin_comment.clone().filter(|_| told),
                ..job.clone()
            };
            records(inner.jobs.iter().map(tell).collect())
        })
        .await
    }

    async fn marks(&self, jobs: &[u32]) -> Result<Records<MarkedJob>, ReadError> {
        self.inner.lock().marks_asked.push(jobs.to_vec());
        self.answer(Kind::Marks, |inner| {
            let mark = |job: &Job| MarkedJob {
                id: job.id,
                admin_comment: job.admin_comment.clone().unwrap_or_default(),
                submit: job.submit,
                ..MarkedJob::default()
            };
            records(inner.jobs.iter().map(mark).collect())
        })
        .await
    }

    async fn qos_caps(&self) -> Result<Records<QosCaps>, ReadError> {
        self.answer(Kind::Qos, |inner| records(inner.qos.clone())).await
    }

    async fn qos_limits(&self) -> Result<Records<(String, Caps)>, ReadError> {
        self.answer(Kind::Limits, |inner| records(inner.caps.clone().into_iter().collect())).await
    }

    async fn acting_controller(&self) -> Result<usize, ReadError> {
        self.answer(Kind::Controller, |inner| inner.acting).await
    }

    async fn associations(&self) -> Result<Associations, ReadError> {
        self.answer(Kind::Associations, |inner| inner.associations.clone()).await
    }
}

impl Actuator for Fake {
    async fn update(&self, update: &Update) -> Answer {
        let mut inner = self.inner.lock();
        inner.updates.push(update.clone());
        let answer = if inner.answers.is_empty() { Answer::Made } else { inner.answers.remove(0) };
        if answer == Answer::Made {
            for job in inner.jobs.iter_mut().filter(|j| Some(j.id) == update.job()) {
                for (key, value) in update.set() {
                    match *key {
                        "reqnodelist" => {
                            let names = value.split(',').filter(|n| !n.is_empty());
                            job.req_nodes = names.map(str::to_owned).collect();
                        }
                        "partition" => {
                            job.partitions = value.split(',').map(str::to_owned).collect();
                        }
                        "admincomment" => job.admin_comment = Some(value.clone()),
                        other => panic!("nobody should update {other}"),
                    }
                }
            }
        }
        answer
    }

    fn words(&self, update: &Update) -> String {
        format!("{update:?}")
    }
}

fn node(name: &str, mem: u64, partition: &str) -> Node {
    Node {
        name: name.into(),
        state: vec!["IDLE".into()],
        usable: true,
        cpus: Cpus(16),
        cpus_effective: Cpus(16),
        mem: Some(MemMb(mem)),
        threads_per_core: 1,
        weight: 1,
        partitions: vec![partition.into()],
        ..Node::default()
    }
}

pub fn nodes() -> Vec<Node> {
    vec![node("fat1", 512_000, "fat"), node("slim1", 64_000, "slim"), node("slim2", 64_000, "slim")]
}

pub fn partitions() -> Vec<Partition> {
    let partition = |name: &str, list: &[&str]| Partition {
        name: name.into(),
        state: "UP".into(),
        nodes: list.iter().map(|s| (*s).to_owned()).collect(),
        node_count: 1,
        tier: 1,
        default: name == "fat",
        over_subscribe: "NO".into(),
        ..Partition::default()
    };
    vec![partition("fat", &["fat1"]), partition("slim", &["slim1", "slim2"])]
}

/// A pending job, submitted at `submit` (Unix seconds).
pub fn job(id: u32, req: &[&str], comment: &str, submit: i64) -> Job {
    Job {
        batch: true,
        id,
        array_tasks: 1,
        uid: 1000,
        state: JobState::Pending,
        state_word: "PENDING".into(),
        reason: "Resources".into(),
        partitions: vec!["slim".into()],
        req_nodes: req.iter().map(|s| (*s).to_owned()).collect(),
        submit,
        cpus: Cpus(2),
        mem: MemPer::Cpu(MemMb(2000)),
        node_count: 1,
        priority: 7,
        admin_comment: Some(comment.into()),
        ..Job::default()
    }
}
