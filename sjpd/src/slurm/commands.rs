//! Slurm's commands as a cluster that can be read. Which arguments make Slurm
//! print what, and what the output means, is `sjp-slurm`'s business; this
//! adapter runs the commands.

use super::accounting::{Enforced, bound, counting, users_of, with_uids};
use super::heartbeat;
use super::runner::Runner;
use crate::config::{Config, LimitsMode};
use crate::daemon::preflight::release;
use crate::lock::{ActingLock, LockError};
use crate::ports::{Associations, Cluster, Kind, ReadError, Records};
use jiff::tz::TimeZone;
use parking_lot::RwLock;
use sjp_core::cluster::{Job, MarkedJob, Node, Partition, QosCaps, Reservation, SlurmConfig};
use sjp_core::limits::pulse::Caps;
use sjp_slurm::accounting::Qos;
use sjp_slurm::{Parsed, Problem, accounting, nodes, partitions, reservations, squeue};
use std::collections::HashSet;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// From here on `squeue --json -j IDS` gives these jobs only; before, it gives
/// the whole queue whatever is asked.
const JSON_BY_ID: u32 = 2411;
/// Up to here `OverSubscribe=NO` says that a job asked for whole nodes.
const NO_MEANS_EXCLUSIVE: u32 = 2411;
/// Jobs whose marks are asked for at once where they can be asked for singly:
/// an answer of a few MB.
const MARKS_AT_ONCE: usize = 400;

/// How long the limits of QOS are taken as they are; they change by an admin's
/// hand, and sacctmgr asks the database.
const LIMITS: Duration = Duration::from_secs(600);

/// What Slurm's settings say that other readings need.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// 2205 for 22.05; 0: not yet known.
    release: u32,
    cluster: String,
    /// `StateSaveLocation`.
    state: PathBuf,
    enforced: Enforced,
}

/// What the settings say of the commands.
#[derive(Clone, Debug)]
struct Tools {
    runner: Runner,
    scontrol: PathBuf,
    squeue: PathBuf,
    sacctmgr: PathBuf,
    /// Whether it matters who may use which QOS.
    flex: bool,
    /// sjpd's own, to be told to another.
    state_dir: PathBuf,
}

impl Tools {
    fn from(config: &Config) -> Self {
        let search = std::env::var_os("PATH").unwrap_or_default();
        // A command that is not found keeps its name: starting it fails, and
        // says so, until it is there.
        let path = |name: &str| config.commands.path(name, &search).unwrap_or_else(|| name.into());
        Self {
            runner: runner(config),
            scontrol: path("scontrol"),
            squeue: path("squeue"),
            sacctmgr: path("sacctmgr"),
            flex: config.limits.mode == LimitsMode::Flex,
            state_dir: config.general.state_dir.clone(),
        }
    }
}

/// The runner for these settings, with the environment that the readers need.
#[must_use]
pub fn runner(config: &Config) -> Runner {
    let mut runner = Runner::from_env(config.commands.timeout);
    for (name, value) in sjp_slurm::ENV {
        runner.set(name, value);
    }
    runner
}

/// A cluster behind Slurm's commands.
#[derive(Debug)]
pub struct SlurmCommands {
    tools: RwLock<Tools>,
    facts: RwLock<Facts>,
    /// Limits of every QOS, which sacctmgr knows, and when it was asked.
    limits: RwLock<Option<(Instant, Arc<Vec<Qos>>)>>,
    /// Whether this squeue has no column for the AdminComment.
    no_marks: AtomicBool,
    acting: RwLock<Acting>,
}

/// The right to change the cluster.
#[derive(Debug, Default)]
struct Acting {
    /// Whether it is wanted.
    wanted: bool,
    held: Option<ActingLock>,
    /// Who has it instead.
    rival: Option<String>,
}

impl SlurmCommands {
    /// With the commands that the settings name.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            tools: RwLock::new(Tools::from(config)),
            facts: RwLock::new(Facts::default()),
            limits: RwLock::new(None),
            no_marks: AtomicBool::new(false),
            acting: RwLock::default(),
        }
    }

    fn tools(&self) -> Tools {
        self.tools.read().clone()
    }

    fn facts(&self) -> Facts {
        self.facts.read().clone()
    }

    /// The limits of every QOS: asked for when they are old, or when there is
    /// a QOS that they do not have. `None` where sacctmgr never answered.
    async fn limits(&self, used: &[QosCaps]) -> Option<Arc<Vec<Qos>>> {
        let known = self.limits.read().clone();
        if let Some((at, limits)) = &known {
            let all = used.iter().all(|u| limits.iter().any(|q| q.name == u.name));
            let rest = if all { LIMITS } else { LIMITS / 20 };
            if at.elapsed() < rest {
                return Some(limits.clone());
            }
        }
        let read = self.read_limits().await;
        let limits = match read {
            Ok(records) => return Some(self.keep_limits(records.list)),
            Err(error) => {
                tracing::warn!("{error}; the limits of QOS stay as they were");
                known.map(|(_, limits)| limits)
            }
        };
        // A slurmdbd that is away is not asked each time either.
        let kept = limits.clone().unwrap_or_default();
        *self.limits.write() = Some((Instant::now(), kept));
        limits.filter(|l| !l.is_empty())
    }

    /// The limits of every QOS, from the database.
    async fn read_limits(&self) -> Result<Records<Qos>, ReadError> {
        let tools = self.tools();
        let output = tools.runner.run(&tools.sacctmgr, accounting::QOS_ARGS).await?;
        records("sacctmgr show qos", accounting::qos(&output.text))
    }

    fn keep_limits(&self, limits: Vec<Qos>) -> Arc<Vec<Qos>> {
        let limits = Arc::new(limits);
        *self.limits.write() = Some((Instant::now(), limits.clone()));
        limits
    }

    /// Takes the right to change the cluster, where it is wanted and not yet held.
    async fn take_right(&self, state: &str) {
        let wanted = {
            let acting = self.acting.read();
            acting.wanted && acting.held.is_none() && state.starts_with('/')
        };
        if !wanted {
            return;
        }
        let (state, own) = (PathBuf::from(state), self.tools.read().state_dir.clone());
        // It may lie on a shared file system, which may hang.
        let taken = tokio::task::spawn_blocking(move || ActingLock::take(&state, &own)).await;
        let mut acting = self.acting.write();
        acting.rival = None;
        match taken {
            Ok(Ok(held)) if acting.wanted => acting.held = Some(held),
            Ok(Ok(_)) => {}
            Ok(Err(LockError::Held { holder, .. })) => acting.rival = Some(holder),
            // Not SlurmUser, or a file system without locks.
            Ok(Err(error)) => tracing::debug!("whether another sjpd acts: {error}"),
            Err(error) => tracing::debug!("whether another sjpd acts: {error}"),
        }
    }

    async fn scontrol(&self, args: &[&str]) -> Result<String, ReadError> {
        let tools = self.tools();
        Ok(tools.runner.run(&tools.scontrol, args).await?.text)
    }

    async fn squeue(&self, query: &squeue::Query) -> Result<Parsed<Job>, ReadError> {
        let tools = self.tools();
        let args = query.args();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = tools.runner.run(&tools.squeue, &args).await?;
        Ok(query.read(&output.text, &TimeZone::UTC))
    }

    /// A call of squeue that nobody could foresee.
    fn query(&self) -> Result<squeue::Query, ReadError> {
        let mut query = squeue::Query::new(nonce()?);
        let release = self.facts().release;
        query.no_means_exclusive = release == 0 || release <= NO_MEANS_EXCLUSIVE;
        Ok(query)
    }
}

/// A setting of Slurm's as printed; empty where it is not there.
fn setting<'a>(config: &'a SlurmConfig, key: &str) -> &'a str {
    config.all.iter().find(|(k, _)| k == key).map_or("", |(_, value)| value)
}

/// 64 bits from the system's random numbers.
pub(crate) fn nonce() -> Result<u64, ReadError> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| ReadError::Unreadable { what: "/dev/urandom", why: e.to_string() })?;
    Ok(u64::from_ne_bytes(bytes))
}

/// What a reader made of an output: an error where it made nothing of it.
fn records<T>(what: &'static str, parsed: Parsed<T>) -> Result<Records<T>, ReadError> {
    for warning in &parsed.warnings {
        tracing::debug!(what, line = warning.line, "{}", warning.text);
    }
    let errors: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
    if parsed.records.is_empty()
        && let Some(first) = errors.first()
    {
        let more = errors.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
        return Err(ReadError::Unreadable { what, why: format!("{first}{more}") });
    }
    Ok(Records { list: parsed.records, errors })
}

/// Something that must not be empty: a cluster without nodes or partitions is
/// an answer that was cut off.
fn some<T>(what: &'static str, records: Records<T>) -> Result<Records<T>, ReadError> {
    if records.list.is_empty() {
        return Err(ReadError::Unreadable { what, why: "the answer is empty".into() });
    }
    Ok(records)
}

impl Cluster for SlurmCommands {
    async fn nodes(&self) -> Result<Records<Node>, ReadError> {
        let text = self.scontrol(nodes::ARGS).await?;
        some("scontrol show nodes", records("scontrol show nodes", nodes::read(&text))?)
    }

    async fn partitions(&self) -> Result<Records<Partition>, ReadError> {
        let text = self.scontrol(partitions::ARGS).await?;
        some(
            "scontrol show partitions",
            records("scontrol show partitions", partitions::read(&text))?,
        )
    }

    async fn config(&self) -> Result<SlurmConfig, ReadError> {
        let text = self.scontrol(sjp_slurm::config::ARGS).await?;
        let mut records = records("scontrol show config", sjp_slurm::config::read(&text))?;
        let config = records.list.pop().ok_or_else(|| ReadError::Unreadable {
            what: "scontrol show config",
            why: "the answer is empty".into(),
        })?;
        *self.facts.write() = Facts {
            release: release(&config.version).unwrap_or(0),
            cluster: config.cluster.clone(),
            state: setting(&config, "StateSaveLocation").into(),
            enforced: Enforced::from(&config),
        };
        self.take_right(setting(&config, "StateSaveLocation")).await;
        Ok(config)
    }

    fn means_to_act(&self, acts: bool) {
        let mut acting = self.acting.write();
        acting.wanted = acts;
        if !acts {
            (acting.held, acting.rival) = (None, None);
        }
    }

    fn rival(&self) -> Option<String> {
        self.acting.read().rival.clone()
    }

    async fn reservations(&self) -> Result<Records<Reservation>, ReadError> {
        let text = self.scontrol(reservations::ARGS).await?;
        records("scontrol show reservations", reservations::read(&text, &TimeZone::UTC))
    }

    async fn queue(&self) -> Result<Records<Job>, ReadError> {
        let mut query = self.query()?;
        if self.no_marks.load(Ordering::Relaxed) {
            query = query.without_marks();
        }
        let mut parsed = self.squeue(&query).await?;
        if parsed.errors.iter().any(|e| e.what == Problem::NoMarks) {
            tracing::info!("this squeue has no admin_comment column: marks are read from JSON");
            self.no_marks.store(true, Ordering::Relaxed);
            parsed = self.squeue(&self.query()?.without_marks()).await?;
        }
        records("squeue", parsed)
    }

    async fn marks(&self, jobs: &[u32]) -> Result<Records<MarkedJob>, ReadError> {
        let tools = self.tools();
        let ids: Vec<String> = jobs.iter().map(u32::to_string).collect();
        let ids = ids.join(",");
        let mut args = sjp_slurm::json::ARGS.to_vec();
        if self.facts().release >= JSON_BY_ID {
            args.extend(["-j", &ids]);
        }
        let output = tools.runner.run_bytes(&tools.squeue, &args).await?;
        let wanted: HashSet<u32> = jobs.iter().copied().collect();
        records("squeue --json", sjp_slurm::json::marks(&output.text, Some(&wanted)))
    }

    async fn qos_caps(&self) -> Result<Records<QosCaps>, ReadError> {
        let enforced = self.facts().enforced;
        if !enforced.stored {
            return Ok(Records::default());
        }
        let text = self.scontrol(accounting::ASSOC_MGR_ARGS).await?;
        let used = records("scontrol show assoc_mgr", accounting::assoc_mgr(&text))?;
        let limits = self.limits(&used.list).await;
        let caps = match &limits {
            Some(limits) => accounting::caps(limits, &used.list),
            None => used.list,
        };
        Ok(Records { list: counting(caps, enforced), errors: used.errors })
    }

    async fn qos_limits(&self) -> Result<Records<(String, Caps)>, ReadError> {
        let Records { list, errors } = self.read_limits().await?;
        let small = |n: Option<u64>| n.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let caps = |q: &Qos| {
            let user = small(q.max_cpus_per_user);
            (q.name.clone(), Caps { user, account: small(q.max_cpus_per_account) })
        };
        let caps = list.iter().map(caps).collect();
        self.keep_limits(list);
        Ok(Records { list: caps, errors })
    }

    async fn associations(&self) -> Result<Associations, ReadError> {
        let facts = self.facts();
        if !facts.enforced.associations {
            return Ok(Associations::default());
        }
        let tools = self.tools();
        let output = tools.runner.run(&tools.sacctmgr, accounting::ASSOC_ARGS).await?;
        let rows = records("sacctmgr show assoc", accounting::assoc(&output.text))?;
        let bound = bound(&rows.list, &facts.cluster);
        let users = tools.flex.then(|| users_of(&rows.list, &facts.cluster));
        // A directory service may take its time.
        let (mut read, unknown) = tokio::task::spawn_blocking(move || with_uids(bound, users))
            .await
            .map_err(|_| ReadError::CutOff(Kind::Associations))?;
        if !unknown.is_empty() {
            tracing::debug!(users = unknown.join(","), "users of associations not known here");
        }
        read.errors = rows.errors;
        Ok(read)
    }

    async fn acting_controller(&self) -> Result<usize, ReadError> {
        let file = self.facts().state.join(heartbeat::FILE);
        // It lies on a shared file system, which may hang.
        tokio::task::spawn_blocking(move || heartbeat::read(&file))
            .await
            .map_err(|_| ReadError::CutOff(Kind::Controller))?
    }

    fn marks_at_once(&self) -> usize {
        if self.facts().release >= JSON_BY_ID { MARKS_AT_ONCE } else { usize::MAX }
    }

    fn settings_changed(&self, config: &Config) {
        *self.tools.write() = Tools::from(config);
    }
}
