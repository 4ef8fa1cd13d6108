//! `sjpd --once`: reads everything once, says what was seen and what would be
//! published, and ends. Takes no lock, publishes nothing, changes nothing.

use super::preflight::{Finding, Me, findings};
use super::reads::Reads;
use super::stance::{Standing, host_name, policy};
use super::table::{plan_on, snapshot};
use super::world::{Reading, World};
use super::{
    waiting::{Scope, Waiting},
    world::unix_now,
};
use crate::config::{Active, Config};
use crate::ports::{Cluster, Kind};
use sjp_core::cluster::JobState;
use sjp_core::config::Mode;
use sjp_core::ledger::Ledger;
use std::fmt;
use std::sync::Arc;
use tokio::time::Instant;

/// What one look at the cluster found.
#[derive(Debug)]
pub struct Once {
    /// One line each: what was read, and what could not be.
    pub readings: Vec<(Kind, Result<String, String>)>,
    /// What preflight says; empty where too little could be read.
    pub findings: Vec<Finding>,
    /// What the table would hold; `None` where nothing could be published.
    pub table: Option<String>,
    /// What would be done for waiting jobs.
    pub actions: Vec<String>,
}

impl Once {
    /// Whether a table could have been published, and everything was read.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.table.is_some() && self.readings.iter().all(|(_, r)| r.is_ok())
    }
}

impl fmt::Display for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, result) in &self.readings {
            match result {
                Ok(seen) => writeln!(f, "{kind}: {seen}")?,
                Err(error) => writeln!(f, "{kind}: failed: {error}")?,
            }
        }
        for finding in &self.findings {
            let sign = if finding.warning { "warning: " } else { "" };
            writeln!(f, "{sign}{}", finding.words)?;
        }
        match &self.table {
            Some(table) => writeln!(f, "would publish: {table}")?,
            None => writeln!(f, "would publish nothing: too little could be read")?,
        }
        for action in &self.actions {
            writeln!(f, "would do: {action}")?;
        }
        Ok(())
    }
}

/// Reads everything once.
pub async fn once<C: Cluster>(cluster: Arc<C>, config: &Config, me: &Me) -> Once {
    let mut reads = Reads::new(cluster, config);
    let mut world = World::new();
    let mut waiting = Waiting::new(unix_now());
    let mut readings = Vec::new();
    // How marks are best read depends on Slurm's version: its settings first.
    let asked_for =
        |k: &Kind| !matches!(k, Kind::Marks | Kind::Config | Kind::Limits | Kind::Controller);
    let kinds = Kind::ALL.into_iter().filter(asked_for);
    for kind in std::iter::once(Kind::Config).chain(kinds) {
        look(&mut reads, &mut world, &mut waiting, kind, Vec::new(), &mut readings).await;
    }
    if config.general.active == Active::Auto && world.config.controllers.len() > 1 {
        let kind = Kind::Controller;
        look(&mut reads, &mut world, &mut waiting, kind, Vec::new(), &mut readings).await;
    }
    let controllers = &world.config.controllers;
    let standing = Standing::of(config.general.active, controllers, &host_name(), world.acting);
    let asked = world.asked(Kind::Queue).map_or(0.0, |a| a.steady());
    waiting.see_queue(&world.jobs, asked);
    let off = config.general.mode != Mode::Enforce;
    let wanted = waiting.wanted(&world.jobs, unix_now(), config, off, reads.marks_at_once());
    if !wanted.is_empty() {
        look(&mut reads, &mut world, &mut waiting, Kind::Marks, wanted, &mut readings).await;
    }
    let mut once = Once { readings, findings: Vec::new(), table: None, actions: Vec::new() };
    if world.complete() {
        let (roster, rooms) = snapshot(&world, &policy(config, me.dry_run, &standing));
        once.findings = findings(&world, &roster, config, me);
        let free: u64 = rooms.groups.iter().map(|g| u64::from(g.cpus) * u64::from(g.count)).sum();
        once.table = Some(format!(
            "{} nodes, {} of them to place on, in {} groups of equal room; {free} CPUs free; {} \
             partitions, {} of them open",
            roster.nodes.len(),
            rooms.members.len(),
            rooms.groups.len(),
            roster.partitions.len(),
            roster.partitions.iter().filter(|p| p.open).count(),
        ));
    }
    if world.complete() && standing == Standing::Active {
        let (roster, _) = snapshot(&world, &policy(config, me.dry_run, &standing));
        let ledger = Ledger::new();
        let on = plan_on(&world, &roster, &ledger, &[]);
        let scope = if off { Scope::Undo } else { Scope::All };
        let plan = waiting.plan(&on, unix_now(), Instant::now(), config, scope);
        once.actions = plan.actions.iter().map(|a| format!("{a}; {}", a.why)).collect();
    }
    once
}

async fn look<C: Cluster>(
    reads: &mut Reads<C>,
    world: &mut World,
    waiting: &mut Waiting,
    kind: Kind,
    ids: Vec<u32>,
    readings: &mut Vec<(Kind, Result<String, String>)>,
) {
    reads.start(kind, Instant::now(), ids);
    let joined = reads.arrival().await;
    let arrival = reads.done(joined);
    let result = match arrival.result {
        Ok(reading) => {
            if let Reading::Marks(asked, records) = &reading {
                waiting.learn(asked, &records.list, &world.jobs);
            }
            let seen = seen(&reading);
            world.take(reading, arrival.asked, arrival.took);
            let bad = world.last(kind).bad_records;
            let ms = arrival.took.as_millis();
            if bad == 0 {
                Ok(format!("{seen} ({ms} ms)"))
            } else {
                Err(format!("{bad} records cannot be read; {seen}"))
            }
        }
        Err(error) => {
            world.failed(kind, error.to_string());
            Err(error.to_string())
        }
    };
    readings.push((kind, result));
}

fn seen(reading: &Reading) -> String {
    match reading {
        Reading::Nodes(r) => {
            let usable = r.list.iter().filter(|n| n.usable).count();
            format!("{} nodes, {usable} usable", r.list.len())
        }
        Reading::Partitions(r) => format!("{} partitions", r.list.len()),
        Reading::Config(c) => format!("cluster {}, Slurm {}", c.cluster, c.version),
        Reading::Reservations(r) => format!("{} reservations", r.list.len()),
        Reading::Queue(r) => {
            let count = |state| r.list.iter().filter(|j| j.state == state).count();
            format!("{} pending, {} with nodes", count(JobState::Pending), count(JobState::Active))
        }
        Reading::Qos(r) => format!("{} QOS", r.list.len()),
        Reading::Associations(a) => format!("{} users bound to partitions", a.bound.len()),
        Reading::Limits(r) => format!("caps of {} QOS", r.list.len()),
        Reading::Controller(index) => format!("the one with index {index} acts"),
        Reading::Marks(_, r) => format!("{} marks", r.list.len()),
    }
}
