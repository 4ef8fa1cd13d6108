//! What came of the days, as tables of docs/benchmarks.md.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::pass::Pass;
use crate::sdiag::{Rpcs, Sdiag};

/// What the commands that sjpd runs send. Draining and resuming a node sends a few too.
const OF_COMMANDS: [&str; 10] = [
    "REQUEST_ASSOC_MGR_INFO",
    "REQUEST_BUILD_INFO",
    "REQUEST_FED_INFO",
    "REQUEST_JOB_INFO",
    "REQUEST_JOB_INFO_SINGLE",
    "REQUEST_NODE_INFO",
    "REQUEST_PARTITION_INFO",
    "REQUEST_PING",
    "REQUEST_RESERVATION_INFO",
    "REQUEST_UPDATE_JOB",
];

/// All tables.
pub fn tables(passes: &[Pass]) -> String {
    let mut text = jobs(passes);
    let with: Vec<&Pass> = passes.iter().filter(|p| p.tally.is_some()).collect();
    if !with.is_empty() {
        text.push('\n');
        text.push_str(&changes(&with));
    }
    text.push('\n');
    text.push_str(&load(passes));
    text
}

/// A table that grows row by row.
struct Table(String);

impl Table {
    fn new<'a>(first: &str, heads: impl Iterator<Item = &'a str>) -> Self {
        let heads: Vec<&str> = heads.collect();
        let rule = "---|".repeat(heads.len() + 1);
        Self(format!("| {first} | {} |\n|{rule}\n", heads.join(" | ")))
    }

    fn row<P, S: ToString>(&mut self, name: &str, passes: &[P], cell: impl Fn(&P) -> S) {
        let cells: Vec<String> = passes.iter().map(|p| cell(p).to_string()).collect();
        let _ = writeln!(self.0, "| {name} | {} |", cells.join(" | "));
    }
}

/// The jobs.
fn jobs(passes: &[Pass]) -> String {
    let mut table = Table::new("jobs", passes.iter().map(|p| p.name.as_str()));
    table.row("submitted", passes, |p| p.jobs);
    table.row("refused", passes, |p| p.refused);
    table.row("started", passes, |p| p.started);
    table.row("completed", passes, |p| p.completed);
    table.row("ended otherwise", passes, |p| p.ended_otherwise);
    table.row("wait, mean (simulated minutes)", passes, |p| {
        format!("{:.1}", p.waits.iter().sum::<f64>() / p.waits.len().max(1) as f64)
    });
    for (name, share) in [("wait, median", 0.5), ("wait, p90", 0.9), ("wait, longest", 1.0)] {
        table.row(name, passes, |p| {
            let index = (p.waits.len() as f64 * share) as usize;
            let wait = p.waits.get(index.min(p.waits.len().saturating_sub(1)));
            format!("{:.1}", wait.copied().unwrap_or_default())
        });
    }
    table.row("CPU time allocated", passes, |p| format!("{:.1}%", 100.0 * p.used));
    table.row("latest event (simulated minutes)", passes, |p| format!("{:.1}", p.late));
    table.0
}

/// What sjp did.
fn changes(passes: &[&Pass]) -> String {
    let mut table = Table::new("sjp", passes.iter().map(|p| p.name.as_str()));
    let tallies = || passes.iter().filter_map(|p| p.tally.as_ref());
    let outcomes: BTreeSet<&String> = tallies().flat_map(|t| t.placements.keys()).collect();
    for outcome in outcomes {
        table.row(&format!("submissions {outcome}"), passes, |p| {
            p.tally.as_ref().and_then(|t| t.placements.get(outcome)).copied().unwrap_or(0)
        });
    }
    let usual =
        ["release", "move", "open", "narrow", "widen", "flex", "flex-back", "raise", "lower"];
    let others: BTreeSet<&str> = tallies()
        .flat_map(|t| t.changes.keys().map(String::as_str))
        .filter(|kind| !usual.contains(kind))
        .collect();
    for kind in usual.into_iter().chain(others) {
        table.row(&format!("{kind}: done, gone, failed; commands"), passes, |p| {
            let c = p.tally.as_ref().map(|t| t.changes(kind)).unwrap_or_default();
            format!("{}, {}, {}; {}", c.done, c.gone, c.failed, c.commands)
        });
    }
    table.row("commands that change something", passes, |p| {
        p.tally.as_ref().map_or(0, |t| t.commands())
    });
    table.row("claims seen, matched, expired, lost", passes, |p| {
        ["seen", "matched", "expired", "lost"]
            .map(|key| p.status["claims"][key].to_string())
            .join(", ")
    });
    table.row("CPU of sjpd, of its commands", passes, |p| {
        let (own, commands) = p.sjpd_cpu.unwrap_or_default();
        format!("{:.1} s, {:.1} s", own, commands)
    });
    table.0
}

/// The load of slurmctld.
fn load(passes: &[Pass]) -> String {
    let mut table = Table::new("slurmctld", passes.iter().map(|p| p.name.as_str()));
    table.row("CPU", passes, |p| {
        format!("{:.1} s, {:.2}% of a core", p.slurmctld_cpu, 100.0 * p.slurmctld_cpu / p.seconds)
    });
    table.row("cycles of the main scheduler, µs each", passes, |p| {
        format!("{}, {}", p.sdiag.cycles, p.sdiag.mean_cycle)
    });
    table.row("µs of a backfill cycle", passes, |p| p.sdiag.mean_backfill);
    table.row("RPCs a real second", passes, |p| {
        let all: Rpcs = p.sdiag.types.values().copied().sum();
        format!("{:.1}", all.count as f64 / p.seconds)
    });
    let cell = |rpcs: Rpcs| {
        format!("{}, {} µs, {:.0} ms", rpcs.count, rpcs.average(), rpcs.micros as f64 / 1e3)
    };
    table.row("**RPCs: number, mean, together**", passes, |p| {
        cell(p.sdiag.types.values().copied().sum())
    });
    table.row("of the types that sjpd's commands send", passes, |p| {
        let types = p.sdiag.types.iter();
        cell(types.filter(|(t, _)| OF_COMMANDS.contains(&t.as_str())).map(|(_, r)| *r).sum())
    });
    let names = |of: fn(&Sdiag) -> &std::collections::BTreeMap<String, Rpcs>| {
        let names: BTreeSet<String> =
            passes.iter().flat_map(|p| of(&p.sdiag).keys().cloned()).collect();
        names
    };
    for name in names(|s| &s.users) {
        table.row(&format!("of {name}"), passes, |p| {
            cell(p.sdiag.users.get(&name).copied().unwrap_or_default())
        });
    }
    for name in names(|s| &s.types) {
        table.row(&name, passes, |p| cell(p.sdiag.types.get(&name).copied().unwrap_or_default()));
    }
    table.0
}
