//! `sjp status`: is sjpd alive, does sjp place jobs, and if not, why. Works
//! when sjpd is dead, hangs or was never there, and for users who may not read
//! the table. A monitoring check by its exit code.

use super::Answer;
use super::live::{self, Live, NoTable};
use super::text::{self, Grid, brief, count, safe, span};
use crate::cli::Exit;
use crate::config::{Config, Source};
use crate::status::{FILE, Limits, Poll, Status, process_start};
use nix::errno::Errno;
use nix::sys::signal::kill;
use serde_json::{Value, json};
use sjp_table::ReadError;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// sjpd writes its status every second: after this many seconds of silence it
/// is late.
const LATE: f64 = 5.0;

/// For so many seconds after its start, a table without content is no alarm.
const JUST_STARTED: f64 = 10.0;

/// What this process could find out.
struct Seen {
    config: Config,
    now: f64,
    status: io::Result<Status>,
    table: Result<Live, NoTable>,
    /// Whether the process of the status file is still that process.
    alive: bool,
    usage: Option<Usage>,
    disabled: bool,
}

/// What sjpd itself costs.
struct Usage {
    cpu_seconds: f64,
    memory_mb: f64,
}

/// One finding.
struct Finding {
    level: Exit,
    text: String,
}

pub fn answer(source: &Source, json: bool) -> Answer {
    let config = match source.load() {
        Ok((config, _)) => config,
        // For monitoring, settings that cannot be read are "cannot tell".
        Err(e) => {
            let why = format!("cannot tell: {e}");
            return Answer {
                out: if json {
                    text::json(&json!({"level": "unknown", "summary": why}))
                } else {
                    format!("sjp UNKNOWN: {}\n", text::lines(&why))
                },
                exit: Exit::Unknown,
                err: String::new(),
            };
        }
    };
    let seen = look(config);
    let findings = judge(&seen);
    let exit = findings.iter().map(|f| f.level).max().unwrap_or(Exit::Ok);
    let summary = match findings.iter().find(|f| f.level == exit && exit != Exit::Ok) {
        Some(f) => f.text.clone(),
        None => well(&seen),
    };
    if json {
        Answer::json(exit, &as_json(&seen, &findings, exit, &summary))
    } else {
        Answer { exit, out: as_text(&seen, &findings, exit, &summary), err: String::new() }
    }
}

fn look(config: Config) -> Seen {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    let status = Status::read(&config.general.state_dir);
    let table = live::read(&config);
    let alive = match &status {
        Ok(s) => is_alive(s.pid, s.pid_start),
        Err(_) => false,
    };
    let usage = status.as_ref().ok().filter(|_| alive).and_then(|s| usage(s.pid));
    let disabled = config.general.disable_file.symlink_metadata().is_ok();
    Seen { config, now, status, table, alive, usage, disabled }
}

/// Whether `pid` is the process that started at `start` (in clock ticks; 0: not
/// known).
fn is_alive(pid: u32, start: u64) -> bool {
    let Some(id) = i32::try_from(pid).ok().filter(|id| *id > 0) else { return false };
    match process_start(pid) {
        Some(found) => start == 0 || found == start,
        // /proc may hide the processes of others.
        None => kill(nix::unistd::Pid::from_raw(id), None) == Err(Errno::EPERM),
    }
}

fn usage(pid: u32) -> Option<Usage> {
    let pid = Pid::from_u32(pid);
    let mut system = System::new();
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[pid]),
        true,
        ProcessRefreshKind::nothing().with_cpu().with_memory(),
    );
    let process = system.process(pid)?;
    Some(Usage {
        cpu_seconds: process.accumulated_cpu_time() as f64 / 1000.0,
        memory_mb: process.memory() as f64 / 1_048_576.0,
    })
}

/// What stands in the way, or wants a look.
fn judge(seen: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |level, text: String| found.push(Finding { level, text });
    let dir = seen.config.general.state_dir.display();
    let status = match &seen.status {
        Ok(status) => status,
        Err(e) => {
            let (level, text) = match e.kind() {
                io::ErrorKind::NotFound if seen.table.is_ok() => {
                    (Exit::Warning, format!("there is a table, but no {dir}/{FILE}"))
                }
                io::ErrorKind::NotFound => (
                    Exit::Critical,
                    format!(
                        "sjpd is not running with state_dir {dir} (no {FILE} there): \
                         place() answers \"no table\""
                    ),
                ),
                io::ErrorKind::PermissionDenied => {
                    (Exit::Unknown, format!("cannot tell: no right to read {dir}/{FILE}"))
                }
                _ => (Exit::Unknown, format!("cannot tell: {dir}/{FILE}: {e}")),
            };
            say(level, text);
            if let Some((level, text)) = table_finding(seen, false) {
                say(level, text);
            }
            return found;
        }
    };
    let silent = seen.now - status.written;
    if !seen.alive {
        say(
            Exit::Critical,
            format!(
                "sjpd (pid {}) is gone, {} after its start; its last word is {} old: place() \
                 answers \"no table\" or \"stale\"",
                status.pid,
                span(status.written - status.started),
                span(silent)
            ),
        );
    } else if silent > LATE {
        let stale = seen.config.policy().max_age_ms as f64 / 1000.0;
        let level = if silent > stale { Exit::Critical } else { Exit::Warning };
        say(
            level,
            format!("sjpd (pid {}) lives, but has said nothing for {}", status.pid, span(silent)),
        );
    }
    if let Some((level, text)) = table_finding(seen, seen.alive) {
        say(level, text);
    }
    if let Some(error) = &status.table.error {
        say(Exit::Warning, format!("the table could not be published: {}", safe(error)));
    }
    if seen.disabled {
        let file = seen.config.general.disable_file.display();
        say(Exit::Warning, format!("place() is switched off: {file} exists"));
    }
    // What the dead could not read is no news.
    for (what, poll) in polls(status).into_iter().filter(|_| seen.alive) {
        if let Some(error) = poll.error.as_ref().filter(|_| poll.failures > 0) {
            say(
                Exit::Warning,
                format!("{what}: failed {}: {}", times(poll.failures), brief(error)),
            );
        }
    }
    if let Some(error) = &status.config_error {
        say(
            Exit::Warning,
            format!(
                "the settings were changed and are wrong; the older ones count: {}",
                safe(error)
            ),
        );
    }
    for log in [&status.log, &status.text_log] {
        if let (Some(error), Some(path)) = (&log.error, &log.path) {
            say(
                Exit::Warning,
                format!(
                    "{} cannot be written ({}); {} lost",
                    safe(&path.to_string_lossy()),
                    safe(error),
                    count(log.dropped, "line")
                ),
            );
        }
    }
    if status.standing == "rival" {
        say(Exit::Warning, format!("sjpd {}", safe(&status.standing_words)));
    }
    if matches!(status.standing.as_str(), "unknown" | "elsewhere") {
        say(Exit::Warning, format!("sjpd {}; no job is pinned", safe(&status.standing_words)));
    }
    let database = [("associations", &status.associations), ("qos limits", &status.qos_limits)];
    for (what, poll) in database.into_iter().filter(|_| seen.alive && status.limits.mode != "off") {
        if let Some(error) = poll.error.as_ref().filter(|_| poll.failures > 1) {
            let times = times(poll.failures);
            say(Exit::Warning, format!("{what}: failed {times}: {}", brief(error)));
        }
    }
    if status.pins.overdue > 0 {
        say(
            Exit::Warning,
            format!("{} should have been released by now", count(status.pins.overdue, "pin")),
        );
    }
    if seen.alive && status.nodes.ok_at.is_some() && status.counts.usable == 0 {
        say(Exit::Warning, "no node is usable".into());
    }
    found
}

/// What the table itself says, where it can be read.
fn table_finding(seen: &Seen, alive: bool) -> Option<(Exit, String)> {
    match &seen.table {
        Ok(live) if live.is_stale() => Some((
            Exit::Critical,
            format!(
                "the node data is {} old, above [pin] max_age ({}): place() answers \"stale\"",
                span(live.age.as_secs_f64()),
                span(live.max_age().as_secs_f64())
            ),
        )),
        // Whoever may not read it is told so below, by ages from the status.
        Ok(_) | Err(NoTable::NoRights { .. }) => None,
        Err(NoTable::Read { source: ReadError::Empty, .. }) if alive => {
            let Ok(status) = &seen.status else { return None };
            let young = seen.now - status.started < JUST_STARTED && status.nodes.failures == 0;
            let level = if young { Exit::Warning } else { Exit::Critical };
            let why = match &status.nodes.error {
                Some(error) => format!(" (nodes: {})", brief(error)),
                None => String::new(),
            };
            let since = span(seen.now - status.started);
            Some((level, format!("sjpd has published nothing since its start {since} ago{why}")))
        }
        Err(e) if alive => {
            Some((Exit::Critical, format!("sjpd lives, but its table cannot be read: {e}")))
        }
        Err(_) => None,
    }
}

fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{n} times in a row") }
}

fn polls(status: &Status) -> [(&'static str, &Poll); 5] {
    [
        ("nodes", &status.nodes),
        ("queue", &status.queue),
        ("config", &status.config),
        ("reservations", &status.reservations),
        ("qos", &status.qos),
    ]
}

/// The one sentence when nothing is wrong.
fn well(seen: &Seen) -> String {
    let Ok(status) = &seen.status else { return "running".into() };
    let doing = match status.mode.as_str() {
        "observe" => "observing, touches no job",
        "advise" => "choosing partitions",
        "enforce" => "placing and pinning jobs",
        _ => "running",
    };
    let dry = if status.dry_run { ", dry run" } else { "" };
    let doing = if status.standing == "standby" { "standing by" } else { doing };
    format!(
        "{doing} (mode {}{dry}); {} of {} usable, node data {} old",
        safe(&status.mode),
        status.counts.usable,
        count(status.counts.nodes, "node"),
        data_age(seen, status).map_or_else(|| "?".into(), span)
    )
}

/// Age of the node data in seconds: by the table, else by what sjpd says.
fn data_age(seen: &Seen, status: &Status) -> Option<f64> {
    match &seen.table {
        Ok(live) => Some(live.age.as_secs_f64()),
        Err(_) => status.nodes.ok_at.map(|at| (seen.now - at).max(0.0)),
    }
}

const fn level_word(level: Exit) -> &'static str {
    match level {
        Exit::Ok => "OK",
        Exit::Warning => "WARNING",
        Exit::Critical => "CRITICAL",
        _ => "UNKNOWN",
    }
}

fn as_text(seen: &Seen, findings: &[Finding], exit: Exit, summary: &str) -> String {
    let mut out = format!("sjp {}: {}\n", level_word(exit), text::lines(summary));
    for f in findings.iter().filter(|f| f.text != summary) {
        let _ = writeln!(out, "  {}: {}", level_word(f.level), text::lines(&f.text));
    }
    let mut line = |name: &str, words: String| {
        let _ = writeln!(out, "{name:<14}{words}");
    };
    if let Ok(s) = &seen.status {
        sjpd_lines(seen, s, &mut line);
    }
    match &seen.table {
        Ok(live) => table_lines(live, &mut line),
        Err(e) => line("table", text::lines(&e.to_string())),
    }
    if let Ok(s) = &seen.status {
        let mut grid = Grid::new(["poll", "answered", "took", "every", "state"]);
        for (what, poll) in polls(s) {
            let ago = |at: Option<f64>| {
                at.map_or_else(|| "never".into(), |at| format!("{} ago", span(seen.now - at)))
            };
            let state = match (&poll.error, poll.asked_at) {
                (Some(e), _) => format!("failed {}: {}", times(poll.failures.max(1)), brief(e)),
                (None, Some(_)) => "ok".into(),
                (None, None) => "not asked yet".into(),
            };
            let took = poll.took.map_or_else(|| "-".into(), |t| format!("{t:.2} s"));
            grid.row([what.into(), ago(poll.ok_at), took, span(poll.interval), state]);
        }
        out.push_str(&grid.render());
        for trouble in s.errors.iter().rev() {
            let _ = writeln!(
                out,
                "error {} ago: {}: {}",
                span(seen.now - trouble.at),
                safe(&trouble.what),
                brief(&trouble.error)
            );
        }
    }
    out
}

fn sjpd_lines(seen: &Seen, s: &Status, line: &mut dyn FnMut(&str, String)) {
    let mut words = format!(
        "{} pid {}, {}",
        safe(&s.version),
        s.pid,
        if seen.alive {
            format!("up {}", span(seen.now - s.started))
        } else {
            format!("gone; last word {} ago", span(seen.now - s.written))
        }
    );
    if let Some(u) = &seen.usage {
        let up = (seen.now - s.started).max(1.0);
        let _ = write!(
            words,
            ", {:.1} s of CPU ({:.2}% of a core), {:.1} MB",
            u.cpu_seconds,
            100.0 * u.cpu_seconds / up,
            u.memory_mb
        );
    }
    line("sjpd", words);
    let mut mode = safe(&s.mode);
    if s.dry_run {
        mode.push_str(", dry run: changes are logged, not made");
    }
    if !s.active {
        let _ = match s.standing_words.as_str() {
            "" => write!(mode, ", not acting on this host ([general] active)"),
            words => write!(mode, ", {}", safe(words)),
        };
    }
    line("mode", mode);
    let file = match &s.config_file {
        Some(file) => safe(&file.to_string_lossy()),
        None => "none: the defaults apply".into(),
    };
    let notices = match s.config_notices.len() {
        0 => String::new(),
        n => format!(" ({}: see sjpd --check-config)", count(n as u64, "notice")),
    };
    line("settings", format!("{file}{notices}"));
    if let Some(cluster) = &s.cluster {
        let version = s.slurm_version.as_deref().unwrap_or("?");
        line("cluster", format!("{}, Slurm {}", safe(cluster), safe(version)));
    }
    let c = &s.counts;
    line(
        "sees",
        format!(
            "{}, {} usable; {}, {} used; {} pending, {} running",
            count(c.nodes, "node"),
            c.usable,
            count(c.partitions, "partition"),
            c.open_partitions,
            count(c.pending, "job"),
            c.running
        ),
    );
    let k = &s.claims;
    line(
        "claims",
        format!(
            "{} seen, {} matched with a job, {} expired, {} lost, {} open",
            k.seen, k.matched, k.expired, k.lost, k.open
        ),
    );
    line("pins", format!("{} waiting, {} released", s.pins.waiting, s.pins.released));
    let w = &s.waits;
    line(
        "waiting",
        format!(
            "{}, {} moved, {} opened, {} narrowed, {} pinned to wait, {} widened, {} let go{}",
            count(w.rechecks, "recheck"),
            w.moved,
            w.opened,
            w.narrowed,
            w.waiting_for_room,
            w.widened,
            w.let_go,
            if w.left > 0 { format!("; {} left to do", w.left) } else { String::new() }
        ),
    );
    limits_lines(seen, &s.limits, line);
    for (name, log) in [("log", &s.log), ("text log", &s.text_log)] {
        if let Some(path) = &log.path {
            let state = match &log.error {
                Some(e) => format!("cannot be written: {}", safe(e)),
                None => format!("{} written", count(log.lines, "line")),
            };
            line(name, format!("{}: {state}", safe(&path.to_string_lossy())));
        }
    }
}

fn limits_lines(seen: &Seen, l: &Limits, line: &mut dyn FnMut(&str, String)) {
    let done = [l.moved, l.returned, l.pulses, l.denied, l.in_flex].iter().any(|&n| n > 0);
    if (l.mode != "off" && !l.mode.is_empty()) || done {
        let idle = l.idle.map_or_else(|| "?".into(), |i| format!("{:.0}%", i * 100.0));
        line(
            "limits",
            format!(
                "mode {}: {} held, {idle} idle; {} moved to the flex QOS, {} given back, {} there \
                 now; {}",
                safe(&l.mode),
                count(l.held, "job"),
                l.moved,
                l.returned,
                l.in_flex,
                count(l.pulses, "pulse"),
            ),
        );
    }
    for r in &l.raised {
        let since = span(seen.now - r.since as f64);
        let (qos, base, raised) = (safe(&r.qos), safe(&r.base), safe(&r.raised));
        line("raised", format!("QOS {qos}: {raised}, for {since}; goes back to {base}"));
    }
}

fn table_lines(live: &Live, line: &mut dyn FnMut(&str, String)) {
    line(
        "table",
        format!(
            "node data {} old, publication {}, {} of room for {}, {} not yet taken over",
            span(live.age.as_secs_f64()),
            live.generation,
            count(live.roster.nodes.len() as u64, "node"),
            live.capacity.nodes,
            count(live.claims.len() as u64, "claim")
        ),
    );
}

fn as_json(seen: &Seen, findings: &[Finding], exit: Exit, summary: &str) -> Value {
    let seconds = |d: Duration| d.as_secs_f64();
    json!({
        "level": level_word(exit).to_lowercase(),
        "summary": summary,
        "findings": findings.iter().map(|f| json!({
            "level": level_word(f.level).to_lowercase(),
            "text": f.text,
        })).collect::<Vec<_>>(),
        "sjpd": seen.status.as_ref().ok().map(|s| json!({
            "alive": seen.alive,
            "pid": s.pid,
            "uptime_seconds": seen.alive.then_some(seen.now - s.started),
            "silent_seconds": seen.now - s.written,
            "cpu_seconds": seen.usage.as_ref().map(|u| u.cpu_seconds),
            "memory_mb": seen.usage.as_ref().map(|u| u.memory_mb),
        })),
        "disabled": seen.disabled,
        "table": match &seen.table {
            Ok(live) => json!({
                "age_seconds": seconds(live.age),
                "silent_seconds": seconds(live.silent),
                "stale": live.is_stale(),
                "generation": live.generation,
                "nodes": live.roster.nodes.len(),
                "node_capacity": live.capacity.nodes,
                "claims_open": live.claims.len(),
            }),
            Err(e) => json!({"error": e.to_string()}),
        },
        "status": seen.status.as_ref().ok(),
        "status_error": seen.status.as_ref().err().map(ToString::to_string),
    })
}
