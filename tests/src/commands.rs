//! What tests do with a running cluster: submit, look, change node states.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cluster::TestCluster;
use crate::process::{Background, Output};
use crate::root::RunAs;
use crate::wait::wait_for;

/// The name of the jobs that [`TestCluster::fill_node`] submits; the job_submit.lua
/// of the tests leaves them alone.
pub const FILL_JOB_NAME: &str = "sjp-fill";

/// How long a job may take to come to a state that nothing holds it from.
pub const JOB_DEADLINE: Duration = Duration::from_secs(60);

/// A job as `squeue --json` shows it, the same for all Slurm versions.
#[derive(Debug, Clone)]
pub struct Job {
    /// The raw job id.
    pub id: u32,
    /// The first (22.05: only) state, such as `PENDING`, `RUNNING`, `CONFIGURING`; a
    /// configuring job is `RUNNING` with the flag `CONFIGURING` in newer versions.
    pub state: String,
    /// The partition, or the list of them while pending.
    pub partition: String,
    /// The nodes that the job must have (`--nodelist`, or a pin).
    pub required_nodes: String,
    /// The nodes that the job must not have.
    pub excluded_nodes: String,
    /// The nodes it has; empty while pending.
    pub nodes: String,
    /// Why it waits.
    pub reason: String,
    /// AdminComment.
    pub admin_comment: String,
    /// Comment.
    pub comment: String,
    /// The job's name.
    pub name: String,
    /// QOS.
    pub qos: String,
    /// Account.
    pub account: String,
    /// The owner's uid.
    pub uid: u32,
    /// CPUs asked for or allocated.
    pub cpus: u64,
    /// The whole record, for anything else.
    pub raw: Value,
}

impl Job {
    fn from_json(raw: &Value) -> Result<Self> {
        let id = number(raw, "job_id").context("a job without a job_id")?;
        Ok(Job {
            id: u32::try_from(id).context("a job id beyond 32 bits")?,
            state: text(raw, "job_state"),
            partition: text(raw, "partition"),
            required_nodes: text(raw, "required_nodes"),
            excluded_nodes: text(raw, "excluded_nodes"),
            nodes: text(raw, "nodes"),
            reason: text(raw, "state_reason"),
            admin_comment: text(raw, "admin_comment"),
            comment: text(raw, "comment"),
            name: text(raw, "name"),
            qos: text(raw, "qos"),
            account: text(raw, "account"),
            uid: number(raw, "user_id").and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX),
            cpus: number(raw, "cpus").unwrap_or(0),
            raw: raw.clone(),
        })
    }

    /// Whether it waits.
    pub fn pending(&self) -> bool {
        self.state == "PENDING"
    }

    /// Whether it has its nodes.
    pub fn has_nodes(&self) -> bool {
        !self.nodes.is_empty() && matches!(self.state.as_str(), "RUNNING" | "CONFIGURING")
    }

    /// A number of the JSON that has no field here: plain in 22.05, later with `set`
    /// and `infinite` beside it.
    pub fn number(&self, key: &str) -> Option<u64> {
        number(&self.raw, key)
    }

    /// The partitions, sorted.
    pub fn partitions(&self) -> Vec<&str> {
        let mut list: Vec<&str> = self.partition.split(',').filter(|p| !p.is_empty()).collect();
        list.sort_unstable();
        list
    }
}

/// A field as text: a string, or the first of a list of strings.
fn text(record: &Value, key: &str) -> String {
    match &record[key] {
        Value::String(s) => s.clone(),
        Value::Array(list) => list.first().and_then(Value::as_str).unwrap_or_default().to_string(),
        Value::Number(n) => n.to_string(),
        _ => String::new(),
    }
}

/// A field as a number: plain (22.05), or `{set, infinite, number}` (later).
fn number(record: &Value, key: &str) -> Option<u64> {
    match &record[key] {
        Value::Object(parts) if parts.get("set") == Some(&Value::Bool(true)) => {
            parts.get("number").and_then(Value::as_u64)
        }
        plain => plain.as_u64(),
    }
}

/// A one-line record of `scontrol show ... -o` as keys and values.
///
/// Words without `=` belong to the value before them. Good for tests, which know
/// what their own records hold.
pub fn parse_record(line: &str) -> BTreeMap<String, String> {
    let mut record = BTreeMap::new();
    let mut last = None::<String>;
    for word in line.split_ascii_whitespace() {
        if let Some((key, value)) = word.split_once('=') {
            record.insert(key.to_string(), value.to_string());
            last = Some(key.to_string());
        } else if let Some(value) = last.as_ref().and_then(|key| record.get_mut(key)) {
            value.push(' ');
            value.push_str(word);
        }
    }
    record
}

impl TestCluster {
    /// Updates a job as `user` by `scontrol update`, again as long as it says EAGAIN: on
    /// a cluster without accounting 24.11 and 26.05 do so to most new partitions, by an
    /// old errno of the thread that answers.
    ///
    /// # Errors
    /// When it is refused, or says EAGAIN for a minute.
    pub fn update_job(&self, user: RunAs, id: u32, words: &[&str]) -> Result<()> {
        let job = format!("jobid={id}");
        let args: Vec<&str> = ["update", &job].into_iter().chain(words.iter().copied()).collect();
        wait_for(JOB_DEADLINE, "slurmctld has time for an update", || {
            let out = self.run(user, "scontrol", &args)?;
            if out.stderr.contains("temporarily unavailable") {
                return Ok(Err(out.stderr));
            }
            out.ok().map(|_| Ok(()))
        })
    }

    /// Runs a command as root and returns its standard output.
    ///
    /// # Errors
    /// When it fails; the message holds its standard error.
    pub fn cmd(&self, program: &str, args: &[&str]) -> Result<String> {
        self.run(RunAs::Root, program, args)?.ok()
    }

    /// Submits as root and returns the job id.
    ///
    /// # Errors
    /// When the submission is refused.
    pub fn sbatch(&self, args: &[&str]) -> Result<u32> {
        self.sbatch_as(RunAs::Root, args)
    }

    /// Submits as a user and returns the job id.
    ///
    /// # Errors
    /// When the submission is refused.
    pub fn sbatch_as(&self, user: RunAs, args: &[&str]) -> Result<u32> {
        let out = self.sbatch_output(user, args)?.ok()?;
        let id = out.trim().split(';').next().unwrap_or_default();
        id.parse().with_context(|| format!("no job id in what sbatch printed: {out:?}"))
    }

    /// Submits as a user; for submissions that may be refused.
    ///
    /// # Errors
    /// When sbatch cannot be started.
    pub fn sbatch_output(&self, user: RunAs, args: &[&str]) -> Result<Output> {
        let args: Vec<&str> = std::iter::once("--parsable").chain(args.iter().copied()).collect();
        self.run(user, "sbatch", &args)
    }

    /// Submits a script file with this text (a `#!` line first) as a user.
    ///
    /// # Errors
    /// When the submission is refused.
    pub fn sbatch_script(&self, user: RunAs, args: &[&str], script: &str) -> Result<u32> {
        let file = tempfile::Builder::new()
            .prefix("job-")
            .suffix(".sh")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempfile_in(self.dir().join("work"))
            .context("cannot make a script file")?;
        std::fs::write(file.path(), script).context("cannot write a script file")?;
        let path = file.path().display().to_string();
        let args: Vec<&str> = args.iter().copied().chain([path.as_str()]).collect();
        self.sbatch_as(user, &args)
    }

    /// `salloc --no-shell`: returns the job id once the allocation is granted.
    ///
    /// # Errors
    /// When it is refused or not granted in time.
    pub fn salloc(&self, user: RunAs, args: &[&str]) -> Result<u32> {
        let args: Vec<&str> = std::iter::once("--no-shell").chain(args.iter().copied()).collect();
        let out = self.run(user, "salloc", &args)?;
        let granted = "Granted job allocation ";
        let id = out.stderr.lines().find_map(|l| l.split_once(granted).map(|(_, id)| id.trim()));
        match id.and_then(|id| id.parse().ok()) {
            Some(id) if out.success() => Ok(id),
            _ => bail!("`{}` ended with code {}: {}", out.command, out.code, out.stderr),
        }
    }

    /// `srun` to its end.
    ///
    /// # Errors
    /// When srun cannot be started; not when it fails.
    pub fn srun(&self, user: RunAs, args: &[&str]) -> Result<Output> {
        self.run(user, "srun", args)
    }

    /// `srun` in the background, for jobs that wait or run long.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn srun_background(&self, user: RunAs, args: &[&str]) -> Result<Background> {
        self.spawn(user, "srun", "srun", args)
    }

    /// All jobs that slurmctld knows, finished ones too.
    ///
    /// # Errors
    /// When squeue fails, or prints no JSON.
    pub fn jobs(&self) -> Result<Vec<Job>> {
        let out = self.cmd("squeue", &["--json", "-t", "all"])?;
        let json: Value = serde_json::from_str(&out).context("squeue --json printed no JSON")?;
        let list = json["jobs"].as_array().context("squeue --json printed no jobs")?;
        list.iter().map(Job::from_json).collect()
    }

    /// A job by its raw id.
    ///
    /// # Errors
    /// When slurmctld does not know it (any more).
    pub fn job(&self, id: u32) -> Result<Job> {
        let jobs = self.jobs()?;
        let job = jobs.into_iter().find(|job| job.id == id);
        job.with_context(|| format!("slurmctld knows no job {id}"))
    }

    /// Looks at a job until `wanted` is true for it, and returns it then.
    ///
    /// # Errors
    /// When that is not so by the deadline; the message shows the job as last seen.
    pub fn wait_job(
        &self,
        id: u32,
        deadline: Duration,
        what: &str,
        wanted: impl Fn(&Job) -> bool,
    ) -> Result<Job> {
        wait_for(deadline, &format!("job {id} {what}"), || {
            let job = self.job(id)?;
            Ok(if wanted(&job) {
                Ok(job)
            } else {
                Err(format!(
                    "{} partition={} reason={} required={:?} nodes={:?} admin_comment={:?}",
                    job.state,
                    job.partition,
                    job.reason,
                    job.required_nodes,
                    job.nodes,
                    job.admin_comment
                ))
            })
        })
    }

    /// Waits until a job has its nodes (running, or configuring on cloud nodes).
    ///
    /// # Errors
    /// When it has none in a minute.
    pub fn wait_started(&self, id: u32) -> Result<Job> {
        self.wait_job(id, JOB_DEADLINE, "has its nodes", Job::has_nodes)
    }

    /// Cancels every job and waits until their resources are free.
    ///
    /// # Errors
    /// When that takes longer than a minute.
    pub fn cancel_all(&self) -> Result<()> {
        wait_for(JOB_DEADLINE, "no job is left", || {
            let out = self.cmd("squeue", &["-h", "-o", "%A %T"])?;
            let jobs: Vec<&str> = out.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
            let ids: Vec<&str> = jobs
                .iter()
                .filter_map(|line| line.split_once(' '))
                .filter(|(_, state)| *state != "COMPLETING")
                .map(|(id, _)| id)
                .collect();
            if !ids.is_empty() {
                // Some may have ended meanwhile, which scancel counts as a failure.
                self.run(RunAs::Root, "scancel", &ids)?;
            }
            Ok(if jobs.is_empty() { Ok(()) } else { Err(jobs.join(", ")) })
        })
    }

    /// Occupies part of a node with a running job of root's, and returns its id.
    ///
    /// # Errors
    /// When the node is in no partition, or the job does not start in a minute.
    pub fn fill_node(&self, node: &str, cpus: u32, mem_mb: u64) -> Result<u32> {
        let record = self.node(node)?;
        let partitions = record.get("Partitions").map(String::as_str).unwrap_or_default();
        let partition = partitions.split(',').next().filter(|p| !p.is_empty());
        let partition = partition.with_context(|| format!("node {node} is in no partition"))?;
        let id = self.sbatch(&[
            &format!("--job-name={FILL_JOB_NAME}"),
            &format!("--partition={partition}"),
            &format!("--nodelist={node}"),
            "--nodes=1",
            "--ntasks=1",
            &format!("--cpus-per-task={cpus}"),
            &format!("--mem={mem_mb}M"),
            "--output=/dev/null",
            "--wrap=exec sleep 100000",
        ])?;
        self.wait_started(id)?;
        Ok(id)
    }

    /// A node as `scontrol show node -o` prints it.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn node(&self, node: &str) -> Result<BTreeMap<String, String>> {
        Ok(parse_record(&self.cmd("scontrol", &["show", "node", node, "-o"])?))
    }

    fn update_node(&self, node: &str, state: &str, seen: &str) -> Result<()> {
        let (name, state) = (format!("NodeName={node}"), format!("State={state}"));
        wait_for(JOB_DEADLINE, &format!("node {node} is {seen}"), || {
            // Refused as long as a node has not registered with a fresh slurmctld.
            let out =
                self.run(RunAs::Root, "scontrol", &["update", &name, &state, "Reason=test"])?;
            let now = self.node(node)?.remove("State").unwrap_or_default();
            let resumed = seen == "usable"
                && !["DRAIN", "DOWN", "FAIL", "*"].iter().any(|word| now.contains(word));
            Ok(if resumed || now.contains(seen) { Ok(()) } else { Err(now + " " + &out.stderr) })
        })
    }

    /// Drains a node.
    ///
    /// # Errors
    /// When scontrol refuses.
    pub fn drain_node(&self, node: &str) -> Result<()> {
        self.update_node(node, "DRAIN", "DRAIN")
    }

    /// Sets a node down; its jobs are ended or requeued.
    ///
    /// # Errors
    /// When scontrol refuses.
    pub fn down_node(&self, node: &str) -> Result<()> {
        self.update_node(node, "DOWN", "DOWN")
    }

    /// Brings a drained or down node back.
    ///
    /// # Errors
    /// When scontrol refuses.
    pub fn resume_node(&self, node: &str) -> Result<()> {
        self.update_node(node, "RESUME", "usable")
    }

    /// `scontrol reconfigure`; waits until slurmctld answers again.
    ///
    /// # Errors
    /// When scontrol refuses.
    pub fn reconfigure(&self) -> Result<()> {
        self.cmd("scontrol", &["reconfigure"])?;
        self.wait_slurmctld()
    }

    /// Replaces job_submit.lua; the next submission runs the new one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_job_submit(&self, text: &str) -> Result<()> {
        let text = text.replace(crate::lua::DIR_MARK, &self.dir().display().to_string());
        let old = modified(&self.job_submit_path());
        let path = self.write("job_submit.lua", &text)?;
        touch(&path, old)
    }

    /// Sets job_submit.lua's time stamp so that the next submission loads it again.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn touch_job_submit(&self) -> Result<()> {
        let path = self.job_submit_path();
        touch(&path, modified(&path))
    }
}

fn modified(path: &Path) -> SystemTime {
    std::fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Sets the time stamp to now, and at least a second after `old`: slurmctld loads a
/// script again when its stamp, in whole seconds, is later than the loaded one's.
fn touch(path: &Path, old: SystemTime) -> Result<()> {
    let file = std::fs::OpenOptions::new()
        .append(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let stamp = SystemTime::now().max(old + Duration::from_secs(1));
    file.set_modified(stamp)
        .with_context(|| format!("cannot set the time stamp of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_words_without_a_key() {
        let record = parse_record("NodeName=s01 OS=Linux 6.1 SMP State=IDLE");
        assert_eq!(record["OS"], "Linux 6.1 SMP");
        assert_eq!(record["State"], "IDLE");
    }

    #[test]
    fn both_json_forms_are_read() {
        let old = serde_json::json!({"job_id": 7, "job_state": "RUNNING", "cpus": 4});
        let new = serde_json::json!({
            "job_id": 7, "job_state": ["RUNNING"],
            "cpus": {"set": true, "infinite": false, "number": 4}
        });
        for raw in [old, new] {
            let job = Job::from_json(&raw).unwrap();
            assert_eq!((job.id, job.state.as_str(), job.cpus), (7, "RUNNING", 4));
        }
    }
}
