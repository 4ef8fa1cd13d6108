//! One pass: the whole mix is submitted, Slurm has looked at every job, and what came
//! of it is read from Slurm.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;
use sjp_tests::{JOB_DEADLINE, Job, RunAs, TEST_USERS, TestCluster, parse_record, wait_for};

use crate::mix::Ask;

/// Slurm's backfill looks every second here; a job that has not started after so long
/// waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of one line of the mix.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The ids that sbatch printed.
    pub ids: Vec<u32>,
    /// What sbatch said, where it was refused.
    pub refused: Option<String>,
    /// The jobs as Slurm shows them; the waiting tasks of an array are one record.
    pub jobs: Vec<Job>,
    /// How many jobs were wanted.
    pub wanted: usize,
}

impl Outcome {
    /// The jobs that have their nodes.
    pub fn started(&self) -> usize {
        self.jobs.iter().filter(|j| j.has_nodes()).count()
    }

    /// Node lists of started jobs, with how many jobs have each.
    pub fn nodes(&self) -> BTreeMap<&str, usize> {
        let mut nodes = BTreeMap::new();
        for job in self.jobs.iter().filter(|j| j.has_nodes()) {
            *nodes.entry(job.nodes.as_str()).or_default() += 1;
        }
        nodes
    }

    /// Slurm's word for why the first waiting job waits.
    pub fn reason(&self) -> Option<&str> {
        self.jobs.iter().find(|j| j.pending()).map(|j| j.reason.as_str())
    }

    fn settled(&self) -> bool {
        self.refused.is_some() || self.started() == self.wanted
    }
}

/// The whole mix, submitted once.
#[derive(Debug)]
pub struct Pass {
    /// In the order of the mix.
    pub outcomes: Vec<Outcome>,
    /// CPUs in use on the nodes, when Slurm had looked at every job.
    pub cpus_used: u64,
    /// CPUs of the nodes.
    pub cpus: u64,
}

impl Pass {
    /// Submits the mix, as ordinary users in turn, and waits until each job has started
    /// or Slurm has found that it cannot.
    ///
    /// # Errors
    /// When a command of Slurm's fails.
    pub fn run(cluster: &TestCluster, asks: &[Ask]) -> Result<Pass> {
        let mut outcomes = Vec::new();
        for (line, ask) in asks.iter().enumerate() {
            outcomes.push(submit(cluster, ask, RunAs::user(1 + line % TEST_USERS.len()))?);
        }
        let submitted = unix_now();
        let begin = Instant::now();
        wait_for(JOB_DEADLINE, "Slurm has looked at every job", || {
            let looked = looked_since(cluster, submitted)?;
            let jobs = cluster.jobs()?;
            for outcome in &mut outcomes {
                let own = |job: &&Job| outcome.ids.iter().any(|id| belongs(job, *id));
                outcome.jobs = jobs.iter().filter(own).cloned().collect();
            }
            let waiting = outcomes.iter().filter(|o| !o.settled()).count();
            let unseen = outcomes.iter().filter(|o| o.reason() == Some("None")).count();
            let done = waiting == 0 || (looked && unseen == 0) || begin.elapsed() > PATIENCE;
            Ok(if done { Ok(()) } else { Err(format!("{waiting} not started")) })
        })?;
        let (cpus_used, cpus) = cpus(cluster)?;
        Ok(Pass { outcomes, cpus_used, cpus })
    }

    /// The jobs that started, and all of them.
    pub fn started(&self) -> (usize, usize) {
        let started = self.outcomes.iter().map(Outcome::started).sum();
        (started, self.outcomes.iter().map(|o| o.wanted).sum())
    }

    /// Ends the jobs of the pass and waits until their resources are free.
    ///
    /// # Errors
    /// When that takes longer than a minute.
    pub fn end(&self, cluster: &TestCluster) -> Result<()> {
        let ids: Vec<u32> = self.outcomes.iter().flat_map(|o| o.ids.clone()).collect();
        end_jobs(cluster, &ids)
    }
}

/// Ends jobs and waits until their resources are free.
///
/// # Errors
/// When that takes longer than a minute.
pub fn end_jobs(cluster: &TestCluster, ids: &[u32]) -> Result<()> {
    let words: Vec<String> = ids.iter().map(u32::to_string).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Some may have ended meanwhile, which scancel counts as a failure.
    cluster.run(RunAs::Root, "scancel", &words)?;
    wait_for(JOB_DEADLINE, "the jobs have ended", || {
        let out = cluster.cmd("squeue", &["-h", "-o", "%F %T"])?;
        let left: Vec<&str> = out
            .lines()
            .filter(|l| l.split_whitespace().next().is_some_and(|id| words.contains(&id)))
            .collect();
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    })
}

/// Whether a record belongs to what sbatch called `id`.
fn belongs(job: &Job, id: u32) -> bool {
    let array = &job.raw["array_job_id"];
    let array = array.as_u64().or_else(|| array["number"].as_u64());
    job.id == id || array == Some(u64::from(id))
}

fn submit(cluster: &TestCluster, ask: &Ask, user: RunAs) -> Result<Outcome> {
    let mut outcome =
        Outcome { ids: Vec::new(), refused: None, jobs: Vec::new(), wanted: ask.jobs() };
    let always = ["-J", ask.name, "-o", "/dev/null", "-t", "60", "--wrap=exec sleep 1000"];
    let args: Vec<&str> = ask.args.iter().copied().chain(always).collect();
    for _ in 0..ask.copies {
        let out = cluster.sbatch_output(user, &args)?;
        if out.success() {
            let id = out.stdout.trim().split(';').next().unwrap_or_default();
            let id = id.parse().with_context(|| format!("sbatch printed {:?}", out.stdout))?;
            outcome.ids.push(id);
        } else {
            let said = out.stderr.trim().lines().map(|l| l.trim_start_matches("sbatch: error: "));
            outcome.refused = Some(said.collect::<Vec<_>>().join("; "));
        }
    }
    Ok(outcome)
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Whether backfill has had a cycle in a later second.
fn looked_since(cluster: &TestCluster, unix: u64) -> Result<bool> {
    let text = cluster.cmd("sdiag", &[])?;
    let (_, backfill) = text.split_once("Backfilling stats").unwrap_or(("", &text));
    let line = backfill.lines().find(|l| l.trim_start().starts_with("Last cycle when:"));
    let at = line
        .and_then(|l| l.rsplit_once('('))
        .and_then(|(_, rest)| rest.trim_end().trim_end_matches(')').parse::<u64>().ok());
    Ok(at.is_some_and(|at| at > unix))
}

/// CPUs in use and CPUs in all, of every node.
fn cpus(cluster: &TestCluster) -> Result<(u64, u64)> {
    let text = cluster.cmd("scontrol", &["show", "nodes", "-o"])?;
    let (mut used, mut all) = (0, 0);
    for node in text.lines().filter(|l| !l.trim().is_empty()).map(parse_record) {
        let number = |key: &str| -> Result<u64> {
            let word = node.get(key).with_context(|| format!("a node without {key}"))?;
            word.parse().with_context(|| format!("{key}={word}"))
        };
        used += number("CPUAlloc")?;
        all += number("CPUTot")?;
    }
    Ok((used, all))
}

/// The entry that the decision log has for a mark's `id`.
pub fn logged<'a>(decisions: &'a [Value], id: &str) -> Option<&'a Value> {
    decisions.iter().find(|d| d["event"] == "placed" && d["id"] == id)
}
