//! One day on a fresh cluster: the events are played in their time, then Slurm's
//! accounting, sdiag and sjp's decision log say what came of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;
use sjp_tests::{
    ClusterSpec, JOB_DEADLINE, RunAs, TestCluster, cpu_seconds, shipped_job_submit, wait_for,
};

use crate::sdiag::Sdiag;
use crate::tally::Tally;
use crate::workload::{self, CAP, Event, FAT, SLIM, Submission, What};

/// A job_submit.lua without sjp: a job without a partition gets all that its user may
/// use, slim before fat.
const WITHOUT: &str = "function slurm_job_submit(job_desc, part_list, submit_uid)
    if job_desc.partition == nil then
        local names = {}
        for name in pairs(part_list) do
            names[#names + 1] = name
        end
        table.sort(names, function(a, b) return a > b end)
        job_desc.partition = table.concat(names, \",\")
    end
    return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end
return slurm.SUCCESS
";

/// How a day is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without sjp.
    Without,
    /// With sjp in mode enforce, and this `[limits] mode`.
    With(&'static str),
}

/// What came of a day.
#[derive(Debug, Default)]
pub struct Pass {
    /// What the columns are called.
    pub name: String,
    /// Slurm's version.
    pub slurm: String,
    /// Real seconds that the day took.
    pub seconds: f64,
    /// The longest that an event was late, in simulated minutes.
    pub late: f64,
    /// Jobs, array tasks counted each.
    pub jobs: u64,
    /// Jobs that sbatch refused.
    pub refused: u64,
    /// Jobs that have started.
    pub started: u64,
    /// Jobs that ended well.
    pub completed: u64,
    /// Jobs that ended otherwise.
    pub ended_otherwise: u64,
    /// Simulated minutes that each job waited since it was eligible, sorted; of those that
    /// had not started, until the end of the day.
    pub waits: Vec<f64>,
    /// Share of the CPUs' time that was allocated.
    pub used: f64,
    /// slurmctld's own counters.
    pub sdiag: Sdiag,
    /// CPU seconds of slurmctld.
    pub slurmctld_cpu: f64,
    /// CPU seconds of sjpd, and of the commands it ran.
    pub sjpd_cpu: Option<(f64, f64)>,
    /// What sjp did.
    pub tally: Option<Tally>,
    /// sjpd's status.json at the end of the day.
    pub status: Value,
}

/// A job as Slurm's accounting has it, in Unix seconds.
#[derive(Debug)]
struct Record {
    eligible: f64,
    start: Option<f64>,
    end: Option<f64>,
    cpus: f64,
    state: String,
}

/// Runs the events in `minutes` real minutes on a fresh cluster.
///
/// # Errors
/// When a command of Slurm's fails that should not.
pub fn run(kind: Kind, events: &[Event], minutes: f64) -> Result<Pass> {
    let factor = workload::DAY / minutes;
    let cluster = spec(kind)?.start()?;
    let result = replay(&cluster, kind, events, factor);
    if result.is_err() {
        cluster.keep();
    }
    let pass = result?;
    cluster.stop()?;
    Ok(pass)
}

fn spec(kind: Kind) -> Result<ClusterSpec> {
    let (slim, fat) = (format!("s[1-{}]", SLIM.0), format!("f[1-{}]", FAT.0));
    let spec = ClusterSpec::new()
        .nodes(&slim, SLIM.1, SLIM.2.into())
        .nodes(&fat, FAT.1, FAT.2.into())
        .partition("slim", &slim, "Default=YES")
        .partition("fat", &fat, "")
        .with_accounting("associations,limits,qos")
        .slurm_conf(
            "SlurmctldDebug=info\n\
             SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=1",
        );
    Ok(match kind {
        Kind::Without => spec.job_submit_lua(WITHOUT),
        Kind::With(_) => spec.with_sjp("", "").job_submit_lua(&shipped_job_submit()?),
    })
}

fn replay(cluster: &TestCluster, kind: Kind, events: &[Event], factor: f64) -> Result<Pass> {
    limits(cluster)?;
    let sjpd = match kind {
        Kind::Without => None,
        Kind::With(limits) => Some(cluster.start_sjpd(&settings(limits, factor))?),
    };
    let slurmctld = cluster.slurmctld_pid().context("slurmctld has ended")?;
    let name = match kind {
        Kind::Without => "without sjp".to_string(),
        Kind::With(limits) => format!("sjp, limits {limits}"),
    };
    let mut day = Day { cluster, factor, submitted: BTreeMap::new(), last: BTreeMap::new() };
    let mut pass = Pass { name, slurm: cluster.version().to_string(), ..Pass::default() };

    let (before, cpu_before) = (sdiag(cluster)?, cpu_seconds(slurmctld)?.own);
    let begin = Instant::now();
    let due = |at: f64| Duration::from_secs_f64(at * 60.0 / factor);
    for event in events {
        std::thread::sleep(due(event.at).saturating_sub(begin.elapsed()));
        let late = begin.elapsed().saturating_sub(due(event.at)).as_secs_f64() * factor / 60.0;
        pass.late = pass.late.max(late);
        match &event.what {
            What::Submit(job) => {
                pass.jobs += u64::from(job.tasks);
                if !day.submit(job)? {
                    pass.refused += u64::from(job.tasks);
                }
            }
            What::Drain(node) => cluster.drain_node(node)?,
            What::Resume(node) => cluster.resume_node(node)?,
            What::Reserve(node, from, minutes) => day.reserve(node, *from, *minutes)?,
        }
    }
    std::thread::sleep(due(workload::DAY).saturating_sub(begin.elapsed()));

    pass.seconds = begin.elapsed().as_secs_f64();
    pass.sdiag = sdiag(cluster)?.since(&before);
    pass.slurmctld_cpu = cpu_seconds(slurmctld)?.own - cpu_before;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    if let Some(sjpd) = sjpd {
        let cpu = cpu_seconds(sjpd.pid())?;
        pass.sjpd_cpu = Some((cpu.own, cpu.children));
        let path = cluster.dir().join("run/status.json");
        let said = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        pass.status = serde_json::from_str(&said).context("status.json is no JSON")?;
        sjpd.stop()?;
        pass.tally = Some(Tally::of(&cluster.decisions()));
    }
    day.settle(&mut pass, now)?;
    cluster.cancel_all()?;
    Ok(pass)
}

/// The QOS: user 1 has one with a cap, and user 1 and 2 may use the flex QOS.
fn limits(cluster: &TestCluster) -> Result<()> {
    let cap = format!("modify qos capped set MaxTRESPerUser=cpu={CAP}");
    for args in [
        "add qos capped,flex",
        cap.as_str(),
        "modify user sjpt1 set qos=capped,flex defaultqos=capped",
        "modify user sjpt2 set qos+=flex",
    ] {
        let args: Vec<&str> = std::iter::once("-i").chain(args.split(' ')).collect();
        cluster.cmd("sacctmgr", &args)?;
    }
    Ok(())
}

/// sjp.toml: the defaults, with each interval as much shorter as the day is, down to
/// what two looks at the queue, or the settings' own bounds, allow.
pub fn settings(limits: &str, factor: f64) -> String {
    let scaled = |value: f64, least: f64| (value / factor).max(least);
    format!(
        "[cadence]\nnode_poll_interval = {:.3}\nqueue_poll_interval = {:.3}\n\
         reservation_poll_interval = {:.3}\nqos_poll_interval = {:.3}\nact_interval = {:.3}\n\
         [pin]\nrelease_after = {:.3}\n[recheck]\ninterval = {:.3}\n\
         [starvation]\nbudget_hours.fat = {:.5}\nbudget_hours.slim = {:.5}\n\
         [limits]\nmode = {limits:?}\npulse_seconds = {:.3}\ncooldown_seconds = {:.3}\n\
         flex_revert_after = {:.3}\n",
        scaled(1.0, 0.5),
        scaled(8.0, 1.0),
        scaled(20.0, 1.0),
        scaled(15.0, 1.0),
        scaled(15.0, 1.0),
        scaled(60.0, 2.0),
        scaled(60.0, 2.0),
        scaled(1.0, 0.01),
        scaled(4.0, 0.01),
        scaled(60.0, 2.0),
        scaled(300.0, 2.0),
        scaled(60.0, 2.0),
    )
}

fn sdiag(cluster: &TestCluster) -> Result<Sdiag> {
    Ok(Sdiag::read(&cluster.cmd("sdiag", &[])?))
}

/// The day so far.
struct Day<'a> {
    cluster: &'a TestCluster,
    /// Simulated time in a unit of real time.
    factor: f64,
    /// Number of tasks, by what sbatch called the submission.
    submitted: BTreeMap<u32, u32>,
    /// The last submission of each user.
    last: BTreeMap<usize, u32>,
}

impl Day<'_> {
    /// Whether the submission was taken.
    fn submit(&mut self, job: &Submission) -> Result<bool> {
        let mut args = vec![
            format!("-c{}", job.cpus),
            format!("--mem={}M", job.cpus * job.mb_per_cpu),
            // Slurm counts time limits in whole minutes.
            format!("-t{}", (job.limit / self.factor).ceil().max(1.0)),
            "-o/dev/null".into(),
        ];
        if job.tasks > 1 {
            args.push(format!("--array=1-{}", job.tasks));
        }
        args.extend(job.partition.map(|name| format!("-p{name}")));
        if job.after_last
            && let Some(id) = self.last.get(&job.user)
        {
            args.push(format!("-dafterany:{id}"));
        }
        args.push(format!("--wrap=exec sleep {:.2}", job.run * 60.0 / self.factor));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let out = self.cluster.sbatch_output(RunAs::user(job.user), &args)?;
        if !out.success() {
            eprintln!("sjpd-day: refused: sbatch {}: {}", args.join(" "), out.stderr.trim());
            return Ok(false);
        }
        let id = out.stdout.trim().split(';').next().unwrap_or_default();
        let id = id.parse().with_context(|| format!("sbatch printed {:?}", out.stdout))?;
        self.submitted.insert(id, job.tasks);
        self.last.insert(job.user, id);
        Ok(true)
    }

    fn reserve(&self, node: &str, from: f64, minutes: f64) -> Result<()> {
        let seconds = |minutes: f64| (minutes * 60.0 / self.factor).round();
        let args = [
            "create".to_string(),
            "reservation".into(),
            "ReservationName=work".into(),
            format!("StartTime=now+{}", seconds(from)),
            format!("EndTime=now+{}", seconds(from + minutes)),
            format!("Nodes={node}"),
            "Users=root".into(),
            "Flags=MAINT,IGNORE_JOBS".into(),
        ];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.cluster.cmd("scontrol", &args).map(drop)
    }

    /// Counts the jobs as they were at Unix time `now`, from the accounting.
    fn settle(&self, pass: &mut Pass, now: f64) -> Result<()> {
        wait_for(JOB_DEADLINE, "slurmdbd has everything", || {
            let left = sdiag(self.cluster)?.dbd_queue;
            Ok(if left == 0 { Ok(()) } else { Err(format!("{left} messages")) })
        })?;
        let args = [
            "SLURM_TIME_FORMAT=%s",
            "sacct",
            "-anPX",
            "-Snow-1days",
            "-oJobID,Eligible,Start,End,AllocCPUS,State",
        ];
        let text = self.cluster.cmd("env", &args)?;
        let mut records: BTreeMap<u32, Vec<Record>> = BTreeMap::new();
        for line in text.lines() {
            let (id, record) = record(line, now).with_context(|| format!("sacct: {line:?}"))?;
            records.entry(id).or_default().extend(record);
        }
        for (id, tasks) in &self.submitted {
            // Jobs whose dependency has not ended yet are not in the accounting.
            self.count(pass, *tasks, records.get(id).map_or(&[], Vec::as_slice), now);
        }
        pass.waits.sort_by(f64::total_cmp);
        pass.used /= workload::capacity() * 60.0 / self.factor;
        Ok(())
    }

    fn count(&self, pass: &mut Pass, tasks: u32, list: &[Record], now: f64) {
        let minutes = |seconds: f64| seconds.max(0.0) * self.factor / 60.0;
        let mut left = tasks;
        for record in list {
            let Some(start) = record.start else { continue };
            left = left.saturating_sub(1);
            pass.started += 1;
            pass.waits.push(minutes(start - record.eligible));
            pass.used += record.cpus * (record.end.unwrap_or(now) - start);
            match record.state.as_str() {
                _ if record.end.is_none() => {}
                "COMPLETED" => pass.completed += 1,
                _ => pass.ended_otherwise += 1,
            }
        }
        // What waits of an array is one record.
        if let Some(waiting) = list.iter().find(|r| r.start.is_none()) {
            pass.waits.extend((0..left).map(|_| minutes(now - waiting.eligible)));
        }
    }
}

/// A line of sacct: what sbatch called the job, and the record as it was at `now`;
/// `None` for one that was not eligible by then.
fn record(line: &str, now: f64) -> Option<(u32, Option<Record>)> {
    let mut fields = line.split('|');
    let mut field = || fields.next();
    let id = field()?.split('_').next()?.parse().ok()?;
    // Times that are not known are words; what came later is of no account.
    let time = |word: &str| word.parse::<f64>().ok().filter(|at| *at <= now);
    let (eligible, start, end) = (time(field()?), time(field()?), time(field()?));
    let (cpus, state) = (field()?.parse().ok()?, field()?.to_string());
    Some((id, eligible.map(|eligible| Record { eligible, start, end, cpus, state })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_those_of_the_moment() {
        let (id, task) = record("12_3|100|160|Unknown|4|RUNNING", 200.0).unwrap();
        let task = task.unwrap();
        assert_eq!((id, task.start, task.end, task.cpus), (12, Some(160.0), None, 4.0));
        let (_, later) = record("12_[4-9]|100|Unknown|Unknown|0|PENDING", 200.0).unwrap();
        assert_eq!(later.unwrap().start, None);
        assert!(record("13|Unknown|Unknown|Unknown|0|PENDING", 200.0).unwrap().1.is_none());
        assert_eq!(record("14|100|190|250|1|COMPLETED", 200.0).unwrap().1.unwrap().end, None);
        assert!(record("JobID|x", 1.0).is_none());
    }

    #[test]
    fn intervals_shrink_with_the_day_and_not_below_the_bounds() {
        let text = settings("flex", 96.0);
        assert!(text.contains("budget_hours.fat = 0.01042\nbudget_hours.slim = 0.04167"), "{text}");
        assert!(text.contains("cooldown_seconds = 3.125") && text.contains("mode = \"flex\""));
        assert!(settings("off", 1.0).contains("release_after = 60.000"));
        assert!(settings("off", 1000.0).contains("budget_hours.slim = 0.01000"));
    }
}
