//! What the tests of placement share: a scheduler that can be stopped, and a desk at
//! which jobs are submitted, looked at and taken back.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use sjp_tests::{Answer, Job, RunAs, TestCluster, parse_record, wait_for};

/// The longest anything may take.
pub const SOON: Duration = Duration::from_secs(60);

/// Settings of sjpd that look often, so that tests need not wait.
pub const QUICK: &str = "[cadence]\nnode_poll_interval = 0.3\nqueue_poll_interval = 0.3\n\
                         reservation_poll_interval = 1.0\nconfig_poll_interval = 1.0\n";

/// Submitted jobs wait, with the fields that they were submitted with.
const HELD: &str = "defer,sched_interval=-1,bf_interval=10800";
/// They start at once.
const RUNNING: &str = "sched_min_interval=0,batch_sched_delay=0,bf_interval=3";

fn schedule(cluster: &TestCluster, parameters: &str) {
    let conf = std::fs::read_to_string(cluster.conf_path()).unwrap();
    let lines = conf.lines().map(|line| match line.strip_prefix("SchedulerParameters=") {
        Some(_) => format!("SchedulerParameters={parameters}\n"),
        None => format!("{line}\n"),
    });
    let conf: String = lines.collect();
    assert!(conf.contains(parameters), "no SchedulerParameters in slurm.conf:\n{conf}");
    cluster.write("slurm.conf", &conf).unwrap();
    cluster.reconfigure().unwrap();
    wait_for(SOON, "the scheduler has its parameters", || {
        let config = cluster.cmd("scontrol", &["show", "config"])?;
        Ok(if config.contains(parameters) { Ok(()) } else { Err(config) })
    })
    .unwrap();
}

/// Slurm starts no job from now on.
pub fn stop_scheduling(cluster: &TestCluster) {
    schedule(cluster, HELD);
}

/// Slurm starts jobs again.
pub fn go_on_scheduling(cluster: &TestCluster) {
    schedule(cluster, RUNNING);
}

/// What `sjp table --json` prints.
pub fn table(cluster: &TestCluster) -> Value {
    let text = cluster.sjp(&["table", "--json"]).unwrap().ok().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// What a partition's row in the published table looks like, by a wait.
pub fn wait_table(cluster: &TestCluster, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    wait_for(SOON, what, || {
        let now = table(cluster);
        Ok(if wanted(&now) { Ok(now) } else { Err(now.to_string()) })
    })
    .unwrap()
}

/// The row of a node in the table.
pub fn node_row<'a>(table: &'a Value, node: &str) -> &'a Value {
    let rows = table["nodes"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == node).unwrap_or_else(|| panic!("no {node} in {table}"))
}

/// The row of a partition in the table.
pub fn partition_row<'a>(table: &'a Value, partition: &str) -> &'a Value {
    let rows = table["partitions"].as_array().unwrap();
    rows.iter()
        .find(|row| row["name"] == partition)
        .unwrap_or_else(|| panic!("no {partition} in {table}"))
}

/// A job as it was left by its submission.
pub struct Seen {
    pub job: Job,
    /// What `sjp.place` answered.
    pub answer: Answer,
    /// What the module logged about it, such as `uid 0 to slim, not pinned: array`.
    pub words: String,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = &self.job;
        write!(
            f,
            "job {} {} partition={} required={} excluded={} nodes={} reason={} comment={:?}; \
             {:?}; {:?}",
            job.id,
            job.state,
            job.partition,
            job.required_nodes,
            job.excluded_nodes,
            job.nodes,
            job.reason,
            job.admin_comment,
            self.answer,
            self.words
        )
    }
}

impl Seen {
    /// The node of its mark, or "".
    pub fn pin(&self) -> String {
        mark(&self.job.admin_comment, "pin")
    }
}

/// The value of a key of a mark, or "".
pub fn mark(admin_comment: &str, key: &str) -> String {
    let text = admin_comment.split_once("sjp:").map_or("", |(_, text)| text);
    let pairs = text.split(';').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(k, _)| *k == key).map(|(_, v)| v.to_string()).next().unwrap_or_default()
}

/// Submits under a name that no other job has, and looks at what came of it.
pub fn submit(cluster: &TestCluster, user: RunAs, name: &str, args: &[&str]) -> Seen {
    let name_arg = format!("--job-name={name}");
    let mut all = vec![name_arg.as_str(), "--output=/dev/null"];
    all.extend_from_slice(args);
    all.push("--wrap=sleep 1000");
    let id = cluster.sbatch_as(user, &all).unwrap();
    let (answer, words) = answered(cluster, name);
    Seen { job: cluster.job(id).unwrap(), answer, words }
}

/// Waits until `place` answers from the table: the module looks for a new one at most
/// once a second.
pub fn wait_placing(cluster: &TestCluster) {
    let mut tries = 0;
    wait_for(SOON, "sjp places a job", || {
        tries += 1;
        let seen = submit(
            cluster,
            RunAs::Root,
            &format!("probe{tries}"),
            &["-H", "-c1", "--mem=1", "-t1"],
        );
        cluster.cmd("scancel", &[&seen.job.id.to_string()])?;
        Ok(if seen.answer.placed { Ok(()) } else { Err(format!("{seen:?}")) })
    })
    .unwrap();
}

/// The last answer about a job of this name, and what was logged with it.
pub fn answered(cluster: &TestCluster, name: &str) -> (Answer, String) {
    wait_for(SOON, "the answer is logged", || {
        let Some(answer) = cluster.answer_for(name) else { return Ok(Err("no answer")) };
        let log = cluster.slurmctld_log();
        let end = format!(" name={name}\n");
        let Some(at) = log.rfind(&end) else { return Ok(Err("half an answer")) };
        let line = log[..at].lines().rev().find_map(|line| line.split_once("sjp: place: "));
        Ok(Ok((answer, line.map(|(_, words)| words.to_string()).unwrap_or_default())))
    })
    .unwrap()
}

/// Submits one job after another to the same cluster: each is taken back, and the next
/// comes when nothing is left of it.
pub struct Desk<'c> {
    cluster: &'c TestCluster,
    /// The table's nodes as they are without a job.
    base: Value,
}

impl<'c> Desk<'c> {
    /// On the cluster as it stands: what the table has free is what Slurm has free, so
    /// that nothing is promised.
    pub fn new(cluster: &'c TestCluster) -> Self {
        let text = cluster.cmd("scontrol", &["show", "nodes", "-o"]).unwrap();
        let mut free = BTreeMap::new();
        for node in text.lines().filter(|l| l.starts_with("NodeName=")).map(parse_record) {
            let number = |key: &str| node[key].parse::<u64>().unwrap();
            let cpus = number("CPUTot") - number("CPUAlloc");
            let mem = number("RealMemory") - number("AllocMem");
            free.insert(node["NodeName"].clone(), (cpus, mem));
        }
        let now = wait_table(cluster, "nothing is promised", |t| {
            let rows = t["nodes"].as_array().unwrap();
            rows.iter().filter(|row| row["usable"] == true).all(|row| {
                let (cpus, mem) = free[row["name"].as_str().unwrap()];
                row["cpus_free"] == cpus && row["mem_free_mb"] == mem && row["promised"].is_null()
            })
        });
        Desk { cluster, base: now["nodes"].clone() }
    }

    /// Submits, looks, and takes the job back.
    pub fn try_out(&self, user: RunAs, name: &str, args: &[&str]) -> Seen {
        let seen = submit(self.cluster, user, name, args);
        self.take_back(&seen);
        seen
    }

    fn take_back(&self, seen: &Seen) {
        let id = seen.job.id;
        // What no node has room for is claimed nowhere, and not looked for.
        if seen.answer.placed && !seen.words.ends_with("no node has room now") {
            wait_for(SOON, "sjpd has seen the job", || {
                let known = self
                    .cluster
                    .decisions()
                    .iter()
                    .any(|d| d["event"] == "placed" && d["job"] == id);
                Ok(if known { Ok(()) } else { Err(format!("{seen:?}")) })
            })
            .unwrap();
        }
        self.cluster.cmd("scancel", &[&id.to_string()]).unwrap();
        wait_for(SOON, &format!("nothing is left of {seen:?}"), || {
            let now = table(self.cluster);
            let rows = now["nodes"].as_array().unwrap().iter();
            let others = rows.zip(self.base.as_array().unwrap()).filter(|(row, base)| row != base);
            let others: Vec<String> =
                others.map(|(row, base)| format!("{row}, was {base}")).collect();
            let gone = others.is_empty() && now["claims"]["open"] == 0;
            Ok(if gone { Ok(()) } else { Err(format!("{others:?} {}", now["claims"])) })
        })
        .unwrap();
    }
}
