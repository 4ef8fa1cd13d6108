//! sjp at work on a throwaway real Slurm: the same job mix without and with sjp, a pin
//! that is taken back, `sjp place`, `sjp status`. `make demo` runs it.
//!
//! Progress goes to standard error, the report to standard output (`--json`: one JSON
//! value instead, with the report's text in it).

#[path = "../demo/mix.rs"]
mod mix;
#[path = "../demo/pass.rs"]
mod pass;
#[path = "../demo/release.rs"]
mod release;
#[path = "../demo/report.rs"]
mod report;
#[path = "../demo/words.rs"]
mod words;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sjp_core::mark::Mark;
use sjp_tests::{RunAs, Signal, Sjpd, TEST_USERS, TestCluster, shipped_job_submit, wait_for};

use pass::Pass;
use report::Report;

/// The longest that sjpd may take to see or log something.
const DEADLINE: Duration = Duration::from_secs(60);

const USAGE: &str = "usage: sjp-demo [--json]

Shows sjp at work on a throwaway real Slurm cluster. Needs root, Debian's Slurm, and
the modules of `make stage`; `make demo` sees to all of it.
";

fn main() -> ExitCode {
    let mut json = false;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--json" => json = true,
            "-h" | "--help" => {
                print!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => {
                eprintln!("sjp-demo: {other}: no such argument\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    match run(json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sjp-demo: failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Says what goes on, with the seconds since the start.
struct Progress(Instant);

impl Progress {
    fn say(&self, what: &str) {
        eprintln!("[{:3} s] {what}", self.0.elapsed().as_secs());
    }
}

/// The test users that this run has made, removed at its end.
struct Users<'a> {
    cluster: &'a TestCluster,
    made: Vec<&'static str>,
}

impl Drop for Users<'_> {
    fn drop(&mut self) {
        for name in &self.made {
            // userdel refuses as long as a process of theirs is on its way out.
            let removed = wait_for(DEADLINE, &format!("user {name} is removed"), || {
                let out = self.cluster.run(RunAs::Root, "userdel", &[name])?;
                Ok(if out.success() { Ok(()) } else { Err(out.stderr) })
            });
            if let Err(error) = removed {
                eprintln!("sjp-demo: {error:#}");
            }
        }
    }
}

/// The test users that are not there yet.
fn missing_users() -> Result<Vec<&'static str>> {
    let there = std::fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
    let known = |name: &str| there.lines().any(|l| l.split(':').next() == Some(name));
    Ok(TEST_USERS.iter().map(|(name, _)| *name).filter(|name| !known(name)).collect())
}

fn run(json: bool) -> Result<()> {
    let progress = Progress(Instant::now());
    let mut report = Report::new(json);
    let asks = mix::asks();
    let lua = shipped_job_submit()?;

    progress.say("starting a Slurm cluster: slurmctld, 7 nodes");
    let made = missing_users()?;
    let cluster = mix::cluster().start()?;
    let users = Users { cluster: &cluster, made };
    let value = show(&cluster, &progress, &mut report, &asks, &lua);
    if value.is_err() {
        cluster.keep();
    }
    // Whatever runs as the users ends first, or they could not be removed.
    progress.say("cleaning up");
    let emptied = cluster.cancel_all();
    drop(users);
    let value = value?;
    emptied?;
    let dir = cluster.dir().display().to_string();
    cluster.stop()?;
    report.say(&format!(
        "\nCleaned up: jobs ended, sjpd and Slurm stopped, {dir} removed. It took {} s.\n",
        progress.0.elapsed().as_secs()
    ))?;
    if json {
        let mut value = value;
        value["report"] = report.text().into();
        println!("{value:#}");
    }
    Ok(())
}

/// The demo itself; what it found, as JSON.
fn show(
    cluster: &TestCluster,
    progress: &Progress,
    report: &mut Report,
    asks: &[mix::Ask],
    lua: &str,
) -> Result<Value> {
    for (node, cpus, mem) in mix::FILLED {
        cluster.fill_node(node, cpus, mem)?;
    }
    let (jobs, submissions) = (asks.iter().map(mix::Ask::jobs).sum::<usize>(), asks.len());
    report.say(&format!(
        "\nA throwaway Slurm {}, part-filled with running jobs:\n\n{}\n\
         {jobs} jobs of {submissions} kinds come in, from three users, twice: without sjp and \
         with it.\n",
        cluster.version(),
        mix::DESCRIBED.iter().map(|l| format!("  {l}\n")).collect::<String>(),
    ))?;
    progress.say("first without sjp: submitting the jobs");
    let plain = Pass::run(cluster, asks)?;
    plain.end(cluster)?;

    progress.say("starting sjpd (mode enforce), with the job_submit.lua that sites install");
    cluster.stage()?;
    let mut sjpd = cluster.start_sjpd(SETTINGS)?;
    cluster.write_job_submit(lua)?;
    release::place_example(cluster, "s03", 16)?;
    progress.say("then with sjp: submitting the same jobs");
    let with_sjp = Pass::run(cluster, asks)?;
    let decisions = wait_logged(cluster, &with_sjp)?;
    let rows = report::rows(asks, &plain, &with_sjp, &decisions);
    report.say(&format!("\n{}\n{}\n", report::table(&rows), report::summary(&plain, &with_sjp)))?;
    let status_json = wait_taken_over(cluster)?;
    let status = cluster.sjp(&["status"])?;
    if !status.success() {
        bail!("`sjp status` ended with code {}: {}", status.code, status.stdout);
    }
    report.say(&format!("{}\n", report::command("sjp status", &status.stdout)))?;

    progress.say("these jobs end; one more job");
    with_sjp.end(cluster)?;
    reload(cluster, &mut sjpd)?;
    let said = release::place_example(cluster, "s03", 16)?;
    let words = ["place"].into_iter().chain(release::EXAMPLE).collect::<Vec<_>>();
    let place = cluster.sjp(&words)?.ok()?;
    let line = format!("sjp {}", words.join(" "));
    report.say(&format!("{}\n", report::command(&line, &place)))?;
    progress.say("submitting it, while somebody else takes that node");
    let release = release::run(cluster, &mut sjpd, &said)?;
    report.say(&report::released(&release))?;
    let code = sjpd.stop()?;
    if code != 0 {
        bail!("sjpd ended with code {code}");
    }
    let passes = (&plain, &with_sjp);
    Ok(report::json(&rows, passes, &release, &said, &status_json, cluster.version()))
}

/// Quick looks, so that the demo is short.
const SETTINGS: &str = "[cadence]\nqueue_poll_interval = 1.0\n";
/// For the release: soon, and with sjpd paused for longer than it usually may be.
const SOON: &str =
    "[cadence]\nqueue_poll_interval = 1.0\n[pin]\nrelease_after = 3.0\nmax_age = 60.0\n";

/// Makes sjpd take other settings.
fn reload(cluster: &TestCluster, sjpd: &mut Sjpd) -> Result<()> {
    cluster.write_sjp_toml(SOON)?;
    sjpd.signal(Signal::SIGHUP)?;
    wait_for(DEADLINE, "sjpd has taken the settings", || {
        let taken =
            cluster.decisions().iter().any(|d| d["event"] == "reload" && d["taken"] == true);
        Ok(if taken { Ok(()) } else { Err("no such entry in the decision log") })
    })
}

/// Waits until sjpd has found the job of every claim, and returns its status.
fn wait_taken_over(cluster: &TestCluster) -> Result<Value> {
    wait_for(DEADLINE, "sjpd has found the job of every claim", || {
        let out = cluster.sjp(&["--json", "status"])?;
        let status: Value = serde_json::from_str(&out.stdout)
            .with_context(|| format!("sjp status printed no JSON: {}", out.stderr))?;
        let claims = &status["status"]["claims"];
        let all = claims["seen"] != 0 && claims["seen"] == claims["matched"];
        Ok(if all { Ok(status) } else { Err(out.stdout) })
    })
}

/// Waits until the decision log has every job whose mark has a claim, and returns it.
fn wait_logged(cluster: &TestCluster, pass: &Pass) -> Result<Vec<Value>> {
    let claimed = |comment: &str| {
        let mark = Mark::parse(comment)?;
        let claimed = mark.get("pin").is_some() || mark.get("placed").is_some();
        mark.get("id").filter(|_| claimed).map(str::to_string)
    };
    let jobs = pass.outcomes.iter().flat_map(|o| &o.jobs);
    let ids: Vec<String> = jobs.filter_map(|j| claimed(&j.admin_comment)).collect();
    wait_for(DEADLINE, "the decision log has every job", || {
        let decisions = cluster.decisions();
        let missing = ids.iter().filter(|id| pass::logged(&decisions, id).is_none()).count();
        Ok(if missing == 0 { Ok(decisions) } else { Err(format!("{missing} are missing")) })
    })
}
