//! What the status file says of a running daemon.

use super::Daemon;
use super::limits::caps_words;
use super::stance::Standing;
use super::world::unix_now;
use crate::config::{LimitsMode, Notice, Source};
use crate::ports::{Cluster, Kind};
use crate::status::{FORMAT, LogState, Poll, RaisedCaps, Status, process_start};
use sjp_core::cluster::JobState;

/// The status of a run that has just begun.
#[must_use]
pub fn first(started: f64, source: &Source, notices: &[Notice]) -> Status {
    let pid = std::process::id();
    Status {
        format: FORMAT,
        pid,
        pid_start: process_start(pid).unwrap_or(0),
        version: crate::cli::VERSION.to_owned(),
        started,
        active: true,
        config_file: Some(source.path().to_path_buf()).filter(|p| p.exists()),
        config_notices: notices.iter().map(ToString::to_string).collect(),
        ..Status::default()
    }
}

/// Fills in how things stand now.
pub fn fill<C: Cluster>(daemon: &mut Daemon<C>) {
    let polls = [Kind::Nodes, Kind::Queue, Kind::Config, Kind::Reservations, Kind::Qos]
        .map(|kind| poll(daemon, kind));
    let database = [Kind::Associations, Kind::Limits].map(|kind| poll(daemon, kind));
    let status = &mut daemon.status;
    let [nodes, queue, config, reservations, qos] = polls;
    (status.nodes, status.queue, status.config) = (nodes, queue, config);
    (status.reservations, status.qos) = (reservations, qos);
    [status.associations, status.qos_limits] = database;
    status.written = unix_now();
    status.mode = super::mode_word(daemon.policy.mode).to_owned();
    status.dry_run = daemon.dry_run;
    status.active = daemon.standing == Standing::Active;
    status.standing = daemon.standing.word().to_owned();
    status.standing_words = daemon.standing.to_string();
    status.disabled = crate::actuator::disabled(&daemon.config.general.disable_file);
    let world = &daemon.world;
    status.cluster = Some(world.config.cluster.clone()).filter(|c| !c.is_empty());
    status.slurm_version = Some(world.config.version.clone()).filter(|v| !v.is_empty());
    let counts = &mut status.counts;
    counts.nodes = world.nodes.len() as u64;
    counts.usable = world.nodes.iter().filter(|n| n.usable).count() as u64;
    counts.partitions = world.partitions.len() as u64;
    let open = daemon.table.roster().map(|r| r.partitions.iter().filter(|p| p.open).count());
    counts.open_partitions = open.unwrap_or(0) as u64;
    let jobs = |state| {
        let tasks = world.jobs.iter().filter(|j| j.state == state).map(|j| j.array_tasks.max(1));
        tasks.map(u64::from).sum()
    };
    counts.pending = jobs(JobState::Pending);
    counts.running = jobs(JobState::Active);
    let ledger = daemon.table.ledger();
    let seen = ledger.counts();
    status.claims.seen = seen.taken;
    status.claims.matched = seen.matched;
    status.claims.expired = seen.expired;
    status.claims.lost = daemon.table.lost();
    status.claims.open = ledger.open() as u64;
    status.pins.waiting = daemon.waiting.pinned() as u64;
    status.pins.released = daemon.waiting.released();
    status.pins.overdue = daemon.waiting.overdue() as u64;
    status.waits = daemon.waiting.counts();
    status.limits = limits(&daemon.limits, daemon.config.limits.mode);
    let publisher = daemon.table.publisher();
    status.table.bytes = publisher.bytes() as u64;
    status.table.node_capacity = publisher.capacity().nodes.into();
    status.table.claim_capacity = publisher.capacity().claims.into();
    status.table.generation = publisher.generation();
    status.table.error = daemon.table.error().map(str::to_owned);
    let (json, text) = daemon.journal.states();
    status.log = LogState { path: Some(daemon.config.general.log_file.clone()), ..json };
    status.text_log = LogState { path: daemon.config.general.text_log.0.clone(), ..text };
}

fn limits(limits: &super::limits::Limits, mode: LimitsMode) -> crate::status::Limits {
    let counts = limits.counts();
    let raised = limits.raised().iter().map(|(qos, r)| RaisedCaps {
        qos: qos.clone(),
        base: caps_words(r.base),
        raised: caps_words(r.raised),
        since: r.at,
    });
    crate::status::Limits {
        mode: mode.word().to_owned(),
        held: counts.held,
        idle: counts.idle,
        in_flex: counts.in_flex,
        moved: counts.moved,
        returned: counts.returned,
        denied: limits.denied() as u64,
        pulses: counts.pulses,
        lowered: counts.lowered,
        raised: raised.collect(),
    }
}

fn poll<C: Cluster>(daemon: &Daemon<C>, kind: Kind) -> Poll {
    let last = daemon.world.last(kind);
    let pacer = daemon.reads.pacer(kind);
    let answered = last.asked.map(|asked| asked.unix + last.took.as_secs_f64());
    Poll {
        asked_at: daemon.reads.asked(kind),
        ok_at: answered,
        took: last.asked.map(|_| last.took.as_secs_f64()),
        error: last.error,
        failures: pacer.map_or(0, |p| u64::from(p.failures())),
        interval: pacer.map_or(0.0, |p| p.gap().as_secs_f64()),
    }
}
