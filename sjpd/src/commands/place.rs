//! `sjp place`: where a job would go now, why, and what came next. Decides with
//! the code and on the table that the Lua module uses; claims nothing.

use super::Answer;
use super::live::{self, Live, user_name};
use super::text::{Grid, count, safe, span};
use crate::cli::{Exit, PlaceArgs};
use crate::config::Config;
use nix::unistd::User;
use serde_json::{Value, json};
use sjp_core::config::Mode;
use sjp_core::decision::{Basis, Placement, Reason};
use sjp_core::explain::{Explanation, explain};
use sjp_core::mark;
use sjp_core::place::Context;
use sjp_core::request::JobRequest;
use sjp_core::units::{Cpus, Limit, MemMb, MemPer};
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runners-up in text; JSON has them all, up to this.
const SHOWN: usize = 10;
const MOST: usize = 10_000;

/// A user whom no cap and no association binds: what the table says of users
/// without any use.
const NOBODY_IN_PARTICULAR: u32 = u32::MAX;

pub fn answer(config: &Config, args: &PlaceArgs, json: bool) -> Answer {
    let wrong = |why: String| Answer::failed(Exit::Usage, json, &why);
    let job = match request(args) {
        Ok(job) => job,
        Err(why) => return wrong(why),
    };
    let live = match live::read(config) {
        Ok(live) => live,
        Err(e) => return Answer::failed(e.exit(), json, &e.to_string()),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let ctx = Context {
        roster: &live.roster,
        rooms: &live.rooms,
        promised: &live.promised,
        now,
        permitted: None,
    };
    let story = explain(&ctx, &job, if json { MOST } else { SHOWN });
    let disabled = config.general.disable_file.symlink_metadata().is_ok();
    let says = place_says(&live, &story, disabled);
    let exit = match (&story.outcome, says) {
        (Err(_), _) | (_, Some(Reason::Stale)) => Exit::Critical,
        _ => Exit::Ok,
    };
    if json {
        Answer::json(exit, &as_json(&live, &job, &story, says))
    } else {
        Answer { exit, out: as_text(&live, &job, &story, says), err: String::new() }
    }
}

/// The job of the command line.
fn request(args: &PlaceArgs) -> Result<JobRequest<'_>, String> {
    let mem = match (&args.mem, &args.mem_per_cpu) {
        (Some(text), _) => MemPer::Node(memory("--mem", text)?),
        (None, Some(text)) => MemPer::Cpu(memory("--mem-per-cpu", text)?),
        (None, None) => MemPer::Unset,
    };
    let uid = match &args.user {
        Some(name) => uid_of(name)?,
        None => NOBODY_IN_PARTICULAR,
    };
    let cpus = args
        .cpus
        .checked_mul(args.tasks)
        .ok_or_else(|| format!("--cpus {} times --tasks {} is too much", args.cpus, args.tasks))?;
    Ok(JobRequest {
        uid,
        account: args.account.as_deref(),
        qos: args.qos.as_deref(),
        partition: args.partition.as_deref(),
        nodelist: args.nodelist.as_deref(),
        exclude: args.exclude.as_deref(),
        cpus: Cpus(cpus),
        tasks: args.tasks,
        min_nodes: args.nodes.unwrap_or(1),
        max_nodes: args.nodes,
        mem,
        time_limit: args.time.as_deref().map_or(Ok(Limit::Unset), time)?,
        batch: true,
        array_tasks: 1,
        ..JobRequest::default()
    })
}

/// A size as sbatch takes it: MB, or with K, M, G or T.
fn memory(flag: &str, text: &str) -> Result<MemMb, String> {
    let wrong = || {
        format!(
            "{flag} {}: not a size; write a whole number of MB, or with K, M, G or T",
            safe(text)
        )
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    let suffix = text.get(digits.len()..).unwrap_or_default().to_ascii_uppercase();
    let mb = match suffix.strip_suffix('B').unwrap_or(&suffix) {
        "K" => Some(n.div_ceil(1024)),
        "" if suffix.is_empty() => Some(n),
        "M" => Some(n),
        "G" => n.checked_mul(1024),
        "T" => n.checked_mul(1024 * 1024),
        _ => None,
    };
    mb.map(MemMb).ok_or_else(wrong)
}

/// A time limit as sbatch takes it; 0 is none, as there.
fn time(text: &str) -> Result<Limit, String> {
    let wrong = || {
        format!(
            "--time {}: not a time limit; write minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, \
             D-HH:MM:SS or UNLIMITED",
            safe(text)
        )
    };
    if ["UNLIMITED", "INFINITE", "-1"].iter().any(|w| w.eq_ignore_ascii_case(text)) {
        return Ok(Limit::Unlimited);
    }
    let seconds = sjp_slurm::time::seconds(text).ok_or_else(wrong)?;
    match u32::try_from(seconds.div_ceil(60)) {
        Ok(0) => Ok(Limit::Unlimited),
        Ok(minutes) if minutes < u32::MAX - 1 => Ok(Limit::At(minutes)),
        _ => Err(wrong()),
    }
}

fn uid_of(name: &str) -> Result<u32, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => match name.parse::<u32>() {
            Ok(uid) if uid != NOBODY_IN_PARTICULAR => Ok(uid),
            _ => Err(format!("--user {}: no such user on this host", safe(name))),
        },
        Err(e) => Err(format!("--user {}: cannot be looked up: {e}", safe(name))),
    }
}

/// What `place()` answers for this job now, where it answers false.
fn place_says(live: &Live, story: &Explanation, disabled: bool) -> Option<Reason> {
    if disabled {
        Some(Reason::Disabled)
    } else if live.is_stale() {
        Some(Reason::Stale)
    } else if live.roster.policy.mode == Mode::Observe {
        Some(Reason::Observe)
    } else {
        story.outcome.as_ref().err().copied()
    }
}

fn node_name(live: &Live, node: u32) -> String {
    safe(live.roster.nodes.get(node as usize).unwrap_or("?"))
}

/// The answer in one sentence.
fn sentence(live: &Live, placed: &Placement) -> String {
    let names = |list: &[u16]| safe(&mark::partition_names(&live.roster, list));
    let how = match placed.basis {
        Basis::Room => "a node has room now",
        Basis::Shape => "no node has room now: by shape ([policy] always_place)",
        Basis::Open => "no node has room now: every partition that can hold it",
    };
    match placed.pin {
        Some(node) => {
            let back = match placed.admitted == placed.partitions {
                true => String::new(),
                false => format!("; {} on release", names(&placed.admitted)),
            };
            format!(
                "pinned to {} in {}{back}; loss {:.2} placeable CPUs",
                node_name(live, node),
                names(&placed.partitions),
                placed.loss
            )
        }
        None => {
            let why = placed.not_pinned.map_or_else(String::new, |w| format!("; not pinned: {w}"));
            format!("placed in {}: {how}{why}", names(&placed.partitions))
        }
    }
}

/// What the job asks for, in words.
fn asked(job: &JobRequest<'_>) -> String {
    let mut words = format!("{}", job.cpus);
    match job.mem {
        MemPer::Unset => words.push_str(", no memory given"),
        MemPer::Node(MemMb(0)) => words.push_str(", all of a node's memory"),
        MemPer::Node(m) => {
            let _ = write!(words, ", {m}");
        }
        MemPer::Cpu(m) => {
            let _ = write!(words, ", {m} for each CPU");
        }
    }
    match job.time_limit {
        Limit::Unset => words.push_str(", no time limit given"),
        Limit::Unlimited => words.push_str(", no time limit"),
        Limit::At(m) => {
            let _ = write!(words, ", {m} min");
        }
    }
    if job.tasks > 1 {
        let _ = write!(words, ", {} tasks", job.tasks);
    }
    for (what, value) in [
        ("partition", job.partition),
        ("account", job.account),
        ("QOS", job.qos),
        ("nodelist", job.nodelist),
        ("exclude", job.exclude),
    ] {
        if let Some(value) = value {
            let _ = write!(words, ", {what} {}", safe(value));
        }
    }
    if job.uid != NOBODY_IN_PARTICULAR {
        let _ = write!(words, ", user {}", safe(&user_name(job.uid)));
    }
    words
}

fn as_text(live: &Live, job: &JobRequest<'_>, story: &Explanation, says: Option<Reason>) -> String {
    let mut out = match &story.outcome {
        Ok(placed) => format!("{}\n", sentence(live, placed)),
        Err(reason) => format!("not placed: {reason}\n"),
    };
    match says {
        Some(Reason::Stale) => {
            let _ = writeln!(
                out,
                "by node data that is {} old: place() answers \"stale\" now",
                span(live.age.as_secs_f64())
            );
        }
        Some(reason) if story.outcome.is_ok() => {
            let _ = writeln!(out, "place() itself answers \"{reason}\" now");
        }
        _ => {}
    }
    let _ = writeln!(out, "job: {}", asked(job));
    let _ = writeln!(out, "node data {} old", span(live.age.as_secs_f64()));
    let mut grid = Grid::new(["partition", "tier", "cost", "verdict"]);
    for p in &story.partitions {
        let verdict = match (&p.refused, p.cost, p.admitted) {
            (Some(why), _, _) => why.clone(),
            (None, _, true) => "admitted".into(),
            (None, Some(_), false) => "dearer than the tolerance allows".into(),
            (None, None, false) => "no room now".into(),
        };
        let cost = p.cost.map_or_else(|| "-".into(), |c| format!("{c:.2}"));
        grid.row([p.name.clone(), p.tier.to_string(), cost, verdict]);
    }
    out.push('\n');
    out.push_str(&grid.render());
    if !story.candidates.is_empty() {
        let mut grid =
            Grid::new(["node", "free cpus", "free memory", "loss", "ratio", "partitions"]);
        for c in &story.candidates {
            grid.row([
                c.node.clone(),
                c.cpus.to_string(),
                c.mem.map_or_else(|| "-".into(), |m| MemMb(u64::from(m)).to_string()),
                format!("{:.2}", c.loss),
                format!("{:.2}", c.ratio),
                c.partitions.join(","),
            ]);
        }
        out.push('\n');
        out.push_str(&grid.render());
    }
    let more = story.with_room.saturating_sub(story.candidates.len() as u64);
    if more > 0 {
        let _ = writeln!(out, "and {} with room", count(more, "more node"));
    }
    out
}

fn as_json(live: &Live, job: &JobRequest<'_>, story: &Explanation, says: Option<Reason>) -> Value {
    let names = |list: &[u16]| {
        list.iter()
            .filter_map(|p| live.roster.partitions.get(usize::from(*p)))
            .map(|p| p.name.as_str())
            .collect::<Vec<_>>()
    };
    let placement = story.outcome.as_ref().ok().map(|p| {
        json!({
            "partitions": names(&p.partitions),
            "admitted": names(&p.admitted),
            "pin": p.pin.and_then(|n| live.roster.nodes.get(n as usize)),
            "not_pinned": p.not_pinned.map(|w| w.words()),
            "basis": match p.basis {
                Basis::Room => "room",
                Basis::Shape => "shape",
                Basis::Open => "open",
            },
            "cpus": p.cpus.0,
            "mem_mb": p.mem.map(|m| m.0),
            "loss": p.loss,
            "minutes": p.minutes,
        })
    });
    json!({
        "placed": story.outcome.is_ok(),
        "reason": story.outcome.as_ref().err().map(|r| r.words()),
        "place_answers": says.map(Reason::words),
        "placement": placement,
        "age_seconds": live.age.as_secs_f64(),
        "mode": live.roster.policy.mode,
        "job": {
            "cpus": job.cpus.0,
            "mem_mb": match job.mem { MemPer::Node(m) => Some(m.0), _ => None },
            "mem_per_cpu_mb": match job.mem { MemPer::Cpu(m) => Some(m.0), _ => None },
            "minutes": job.time_limit.number(),
            "tasks": job.tasks,
            "uid": (job.uid != NOBODY_IN_PARTICULAR).then_some(job.uid),
        },
        "partitions": story.partitions.iter().map(|p| json!({
            "name": p.name,
            "tier": p.tier,
            "refused": p.refused,
            "cost": p.cost,
            "admitted": p.admitted,
        })).collect::<Vec<_>>(),
        "nodes_with_room": story.with_room,
        "candidates": story.candidates.iter().map(|c| json!({
            "node": c.node,
            "partitions": c.partitions,
            "cpus_free": c.cpus,
            "mem_free_mb": c.mem,
            "loss": c.loss,
            "ratio": c.ratio,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_as_sbatch_takes_it() {
        for (text, mb) in [
            ("0", 0),
            ("100", 100),
            ("100M", 100),
            ("16G", 16_384),
            ("16gb", 16_384),
            ("2T", 2_097_152),
            ("1025K", 2),
        ] {
            assert_eq!(memory("--mem", text), Ok(MemMb(mb)), "{text}");
        }
        for text in [
            "",
            "G",
            "1.5G",
            "-1",
            "16X",
            "16GG",
            "99999999999999999999",
            "99999999999999T",
            "1 G",
            "5B",
        ] {
            assert!(memory("--mem", text).unwrap_err().starts_with("--mem "), "{text}");
        }
    }

    #[test]
    fn time_as_sbatch_takes_it() {
        for (text, limit) in [
            ("60", Limit::At(60)),
            ("1:00:00", Limit::At(60)),
            ("2-12", Limit::At(3600)),
            ("1-02:30", Limit::At(1590)),
            ("1-00:00:01", Limit::At(1441)),
            ("30:30", Limit::At(31)),
            ("0", Limit::Unlimited),
            ("unlimited", Limit::Unlimited),
            ("-1", Limit::Unlimited),
        ] {
            assert_eq!(time(text), Ok(limit), "{text}");
        }
        for text in ["", "x", "1:2:3:4", "-5", "1h", "9999999999"] {
            assert!(time(text).unwrap_err().starts_with("--time "), "{text}");
        }
    }

    #[test]
    fn users_by_name_and_number() {
        assert_eq!(uid_of("root"), Ok(0));
        assert_eq!(uid_of("4242"), Ok(4242));
        assert!(uid_of("no-such-user-here").unwrap_err().contains("no such user"));
        assert!(uid_of("4294967295").is_err());
    }
}
