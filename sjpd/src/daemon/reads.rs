//! Readings in flight: each kind at most once, each in a task of its own, all
//! of them ended with the set.

use super::pacing::{Pace, Pacer};
use super::world::{Asked, Reading, unix_now};
use crate::config::Config;
use crate::ports::{Cluster, Kind, ReadError};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

/// Associations change by an admin's hand, and sacctmgr asks the database.
const ASSOCIATIONS: Duration = Duration::from_secs(600);
/// How often the acting controller is asked for: 16 bytes of a file.
const CONTROLLER: Duration = Duration::from_secs(1);
/// The least gap between two readings of marks.
const MARKS: Duration = Duration::from_secs(2);

/// A reading that came back.
#[derive(Debug)]
pub struct Arrival {
    /// Its kind.
    pub kind: Kind,
    /// When it was asked for.
    pub asked: Asked,
    /// How long it took.
    pub took: Duration,
    /// What came.
    pub result: Result<Reading, ReadError>,
}

/// The pace of each kind, from the settings.
#[must_use]
pub fn pace(kind: Kind, config: &Config) -> Pace {
    let c = &config.cadence;
    let queue = c.queue_poll_interval;
    let (interval, factor, soonest) = match kind {
        Kind::Nodes | Kind::Partitions => (c.node_poll_interval, 4.0, c.node_poll_interval),
        // Sooner after a claim, but a dear queue is not read more often.
        Kind::Queue => (queue, 10.0, (queue / 4).max(c.node_poll_interval)),
        Kind::Config => (c.config_poll_interval, 10.0, Duration::from_secs(1)),
        Kind::Reservations => (c.reservation_poll_interval, 10.0, Duration::from_secs(1)),
        Kind::Qos => (c.qos_poll_interval, 10.0, Duration::from_secs(2)),
        Kind::Associations => (ASSOCIATIONS, 100.0, Duration::from_secs(10)),
        Kind::Marks => (MARKS, 20.0, MARKS),
        Kind::Controller => (CONTROLLER, 4.0, CONTROLLER),
        Kind::Limits => (c.act_interval, 10.0, Duration::from_secs(1)),
    };
    Pace { interval, factor, soonest }
}

/// A task that has ended.
pub type Joined = Result<(Id, Arrival), JoinError>;

/// All kinds of reading of one cluster.
#[derive(Debug)]
pub struct Reads<C> {
    cluster: Arc<C>,
    pacers: BTreeMap<Kind, Pacer>,
    tasks: JoinSet<Arrival>,
    running: HashMap<Id, (Kind, Instant)>,
    asked: BTreeMap<Kind, f64>,
}

impl<C: Cluster> Reads<C> {
    /// All due at once.
    #[must_use]
    pub fn new(cluster: Arc<C>, config: &Config) -> Self {
        let pacers = Kind::ALL.iter().map(|&k| (k, Pacer::new(pace(k, config)))).collect();
        Self {
            cluster,
            pacers,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// See [`Cluster::means_to_act`].
    pub fn means_to_act(&self, acts: bool) {
        self.cluster.means_to_act(acts);
    }

    /// See [`Cluster::rival`].
    pub fn rival(&self) -> Option<String> {
        self.cluster.rival()
    }

    /// Takes over changed settings.
    pub fn set_config(&mut self, config: &Config) {
        for (&kind, pacer) in &mut self.pacers {
            pacer.set_pace(pace(kind, config));
        }
        self.cluster.settings_changed(config);
    }

    /// The pacer of a kind.
    #[must_use]
    pub fn pacer(&self, kind: Kind) -> Option<&Pacer> {
        self.pacers.get(&kind)
    }

    /// When `kind` was last asked for, Unix seconds.
    #[must_use]
    pub fn asked(&self, kind: Kind) -> Option<f64> {
        self.asked.get(&kind).copied()
    }

    /// How many jobs' marks are worth asking for at once.
    #[must_use]
    pub fn marks_at_once(&self) -> usize {
        self.cluster.marks_at_once()
    }

    /// Asks for the next reading of `kind` as soon as its pace allows.
    pub fn hasten(&mut self, kind: Kind, now: Instant) {
        if let Some(pacer) = self.pacers.get_mut(&kind) {
            pacer.hasten(now);
        }
    }

    /// slurmctld answers again: what failed is tried again at once, and what
    /// follows its settings is asked for soon.
    pub fn slurmctld_is_back(&mut self, now: Instant) {
        for (&kind, pacer) in &mut self.pacers {
            pacer.forget_failures(now);
            if matches!(kind, Kind::Partitions | Kind::Config | Kind::Reservations | Kind::Queue) {
                pacer.hasten(now);
            }
        }
    }

    /// Another controller answers from now on: what is in flight is given up (a
    /// command that waits for the old one waits long), and everything is due.
    pub fn begin_anew(&mut self) {
        // Dropped, the tasks and their commands end.
        self.tasks = JoinSet::new();
        self.running.clear();
        for pacer in self.pacers.values_mut() {
            pacer.begin_anew();
        }
    }

    /// When the next reading is due, of the kinds that are wanted.
    #[must_use]
    pub fn next(&self, now: Instant, wanted: impl Fn(Kind) -> bool) -> Option<Instant> {
        let wanted = self.pacers.iter().filter(|&(&kind, _)| wanted(kind));
        wanted.filter_map(|(_, pacer)| pacer.next(now)).min()
    }

    /// Whether a reading of `kind` is to be started now.
    #[must_use]
    pub fn ready(&self, kind: Kind, now: Instant) -> bool {
        self.pacers.get(&kind).is_some_and(|p| p.ready(now))
    }

    /// Starts a reading, unless one of its kind is in flight. `ids`: the jobs
    /// whose marks are wanted.
    pub fn start(&mut self, kind: Kind, now: Instant, ids: Vec<u32>) {
        let Some(pacer) = self.pacers.get_mut(&kind).filter(|p| !p.in_flight()) else { return };
        pacer.started(now);
        self.asked.insert(kind, unix_now());
        let cluster = self.cluster.clone();
        let task = self.tasks.spawn(async move {
            let asked = Asked::now();
            let started = Instant::now();
            let result = read(&*cluster, kind, ids).await;
            Arrival { kind, asked, took: started.elapsed(), result }
        });
        self.running.insert(task.id(), (kind, now));
    }

    /// The next reading that comes back, to be given to [`Reads::done`]; never,
    /// while none is in flight. Dropping this future loses nothing.
    pub async fn arrival(&mut self) -> Joined {
        match self.tasks.join_next_with_id().await {
            Some(joined) => joined,
            None => std::future::pending().await,
        }
    }

    /// For `gap` this process did not run.
    pub fn paused(&mut self, gap: Duration) {
        for pacer in self.pacers.values_mut() {
            pacer.paused(gap);
        }
    }

    /// A reading came back.
    pub fn done(&mut self, joined: Joined) -> Arrival {
        let now = Instant::now();
        let (id, arrival) = match joined {
            Ok((id, arrival)) => (id, Some(arrival)),
            Err(error) => (error.id(), None),
        };
        let entry = self.running.remove(&id);
        let arrival = arrival.unwrap_or_else(|| {
            // A panic in a reader: the kind fails like any other.
            let (kind, started) = entry.map_or((Kind::Nodes, now), |started| started);
            Arrival {
                kind,
                asked: Asked::now(),
                took: now.saturating_duration_since(started),
                result: Err(ReadError::CutOff(kind)),
            }
        });
        if let Some(pacer) = self.pacers.get_mut(&arrival.kind) {
            pacer.done(now, arrival.result.is_ok());
        }
        arrival
    }

    /// Ends all readings and waits until they are gone.
    pub async fn stop(&mut self) {
        self.tasks.shutdown().await;
        self.running.clear();
    }
}

async fn read<C: Cluster>(cluster: &C, kind: Kind, ids: Vec<u32>) -> Result<Reading, ReadError> {
    Ok(match kind {
        Kind::Nodes => Reading::Nodes(cluster.nodes().await?),
        Kind::Partitions => Reading::Partitions(cluster.partitions().await?),
        Kind::Config => Reading::Config(Box::new(cluster.config().await?)),
        Kind::Reservations => Reading::Reservations(cluster.reservations().await?),
        Kind::Queue => Reading::Queue(cluster.queue().await?),
        Kind::Qos => Reading::Qos(cluster.qos_caps().await?),
        Kind::Controller => Reading::Controller(cluster.acting_controller().await?),
        Kind::Associations => Reading::Associations(cluster.associations().await?),
        Kind::Limits => Reading::Limits(cluster.qos_limits().await?),
        Kind::Marks => {
            let records = cluster.marks(&ids).await?;
            Reading::Marks(ids, records)
        }
    })
}
