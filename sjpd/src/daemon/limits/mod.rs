//! Jobs that only a CPU cap of their QOS holds, while much is idle: when they
//! are looked after, and what is known for it. What is to be done is planned by
//! `sjp-core`; the hands do it.

mod access;
mod pulses;
mod record;
#[cfg(test)]
mod tests;

pub use pulses::{SETTLE, words as caps_words};
pub use record::{Record, read as read_record};

use super::Daemon;
use super::intents::update;
use super::stance::Stance;
use super::table::plan_on;
use super::world::{seconds, steady_now, unix_now};
use crate::actuator::{Action, ActionKind, Outcome, Report, Seen, Target, Update};
use crate::config::{Config, LimitsMode};
use crate::journal::Entry;
use crate::ports::{Cluster, Kind};
use access::Access;
use pulses::{Orders, Pulses, Time};
use sjp_core::cluster::Job;
use sjp_core::config::Mode;
use sjp_core::limits::flex::{self, Back, Foreign, Move, Scope};
use sjp_core::limits::pulse::Raised;
use sjp_core::limits::{Cap, Idle, Settings, View};
use sjp_core::mark::Mark;
use sjp_core::publish::build_rooms;
use sjp_core::waiting::{Step, Waiting};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Counts since sjpd started, and what the last check saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Jobs moved to the flex QOS.
    pub moved: u64,
    /// Jobs given back their own.
    pub returned: u64,
    /// Times that caps of a QOS were raised.
    pub pulses: u64,
    /// Times that they were given back.
    pub lowered: u64,
    /// Held jobs, at the last check.
    pub held: u64,
    /// Jobs that wait in the flex QOS.
    pub in_flex: u64,
    /// The idle share; `None`: not looked at.
    pub idle: Option<f64>,
}

/// What the daemon keeps for `[limits]`.
#[derive(Debug)]
pub struct Limits {
    pulses: Pulses,
    flex: flex::Memory,
    access: Access,
    /// Users whom the log has named.
    denied: BTreeSet<(u32, String)>,
    /// Jobs whose move is under way.
    moving: HashSet<u32>,
    /// Jobs that are being given back, and their submit times.
    returning: HashMap<u32, i64>,
    /// When the next check is due.
    due: Instant,
    /// Whether the queue was asked for it.
    asked: bool,
    /// Whether another host's sjpd has acted since the record was read.
    watched: bool,
    counts: Counts,
}

impl Limits {
    /// With what an earlier run has recorded; and what is wrong with the record.
    #[must_use]
    pub fn new(config: &Config, now: Instant) -> (Self, Option<String>) {
        let (record, wrong) = Record::open(&config.limits.state_file);
        let limits = Self {
            pulses: Pulses::new(record),
            flex: flex::Memory::default(),
            access: Access::default(),
            denied: BTreeSet::new(),
            moving: HashSet::new(),
            returning: HashMap::new(),
            due: now,
            asked: false,
            watched: false,
            counts: Counts::default(),
        };
        (limits, wrong)
    }

    /// The clock was stepped by so many seconds.
    pub fn clock_stepped(&mut self, by: i64) {
        self.flex.clock_stepped(by);
    }

    /// Counts, for the status.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Users (and accounts) who may not use the flex QOS, though jobs of theirs
    /// were held.
    #[must_use]
    pub fn denied(&self) -> usize {
        self.denied.len()
    }

    /// What is recorded as raised.
    #[must_use]
    pub fn raised(&self) -> &BTreeMap<String, Raised> {
        self.pulses.recorded()
    }

    /// Whether the caps in the database are to be read.
    #[must_use]
    pub fn wants_caps(&self) -> bool {
        self.pulses.wants()
    }

    /// They are being read.
    pub fn caps_asked(&mut self) {
        self.pulses.asked();
    }

    /// When the queue is to be asked for a check.
    #[must_use]
    pub fn due(&self, config: &Config) -> Option<Instant> {
        let on = config.limits.mode != LimitsMode::Off && config.general.mode == Mode::Enforce;
        let needed = on || !self.pulses.recorded().is_empty();
        (needed && !self.asked).then_some(self.due)
    }

    /// It was asked.
    pub fn due_is_seen_to(&mut self) {
        self.asked = true;
    }
}

/// The plain settings of the planners.
#[must_use]
pub fn settings(config: &Config) -> Settings {
    let limits = &config.limits;
    let secs = |d: std::time::Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
    Settings {
        min_idle_share: limits.min_idle_share,
        count_pending: limits.count_pending,
        lower_below: limits.lower_below,
        hysteresis: limits.hysteresis,
        ceiling: limits.ceiling,
        pulse: secs(limits.pulse_seconds),
        cooldown: secs(limits.cooldown_seconds),
        flex_qos: limits.flex_qos_name.clone(),
        revert_after: secs(limits.flex_revert_after),
    }
}

fn time(now: Instant) -> Time {
    Time { unix: unix_now(), steady: steady_now(), instant: now }
}

impl<C: Cluster> Daemon<C> {
    /// A queue was read: looks after held jobs, where it is time.
    pub(super) fn look_after_limits(&mut self, now: Instant) {
        if now < self.limits.due {
            return;
        }
        let stance = self.stance();
        if stance == Stance::Watch {
            // Another host's sjpd acts, and keeps the record.
            self.limits.watched = true;
            return;
        }
        if std::mem::take(&mut self.limits.watched) {
            let (record, wrong) = Record::open(&self.config.limits.state_file);
            self.limits.pulses = Pulses::new(record);
            if let Some(wrong) = wrong {
                tracing::error!("{wrong}");
                self.status.trouble(unix_now(), "caps", wrong);
            }
        }
        let settings = settings(&self.config);
        // Switched off, what was done is still taken back, and nothing new is done.
        let act = stance == Stance::Act;
        let mode = self.config.limits.mode;
        let jobs = &self.world.jobs;
        let ours = self.waiting.ours(jobs, now);
        let flex = act && mode == LimitsMode::Flex;
        let flexed = ours.iter().any(|w| w.mark.get("qos").is_some());
        let pulse = act && mode == LimitsMode::Global;
        let roster = self.table.roster().cloned();
        let limits = &mut self.limits;
        (limits.due, limits.asked) = (now + self.config.cadence.act_interval, false);
        if !pulse {
            limits.pulses.check_off();
        }
        let Some(roster) = roster.filter(|_| flex || flexed || pulse) else {
            limits.counts = Counts { held: 0, in_flex: 0, idle: None, ..limits.counts };
            self.read_caps(now);
            return;
        };
        let moving = self.waiting.moving();
        let snapshot = plan_on(&self.world, &roster, self.table.ledger(), &moving);
        let view = View {
            roster: &roster,
            rooms: &build_rooms(&roster, &snapshot.input),
            jobs,
            partitions: &self.world.partitions,
            qos: &self.world.qos,
            now: seconds(unix_now()),
        };
        let mut actions = Vec::new();
        let mut denied = BTreeSet::new();
        limits.counts.in_flex = 0;
        if flex || flexed {
            let scope = if flex { Scope::All } else { Scope::Undo };
            let may = |job: &_, qos: &_| limits.access.may(job, qos);
            let memory = &mut limits.flex;
            let plan = flex::plan(&view, &settings, &ours, &limits.moving, may, scope, memory);
            limits.counts.in_flex = plan.in_flex as u64;
            limits.counts.held = plan.held as u64;
            limits.counts.idle = Some(plan.idle.share());
            limits.returning.extend(plan.back.iter().map(|b| (b.job, b.submit)));
            limits.moving.extend(plan.moves.iter().map(|m| m.job));
            let by_id: HashMap<u32, &Waiting<'_>> = ours.iter().map(|w| (w.job.id, w)).collect();
            let of = |id: u32| by_id.get(&id).copied();
            let idle = plan.idle;
            actions.extend(plan.foreign.into_iter().filter_map(|f| Some(foreign(of(f.job)?, f))));
            actions.extend(plan.back.into_iter().filter_map(|b| Some(back(of(b.job)?, b))));
            let moves = plan.moves.into_iter();
            actions.extend(moves.filter_map(|m| Some(flexed_to(of(m.job)?, m, idle))));
            denied = plan.denied;
        }
        if pulse {
            let marks: HashMap<u32, &Mark> = ours.iter().map(|w| (w.job.id, w.mark)).collect();
            let (held, idle) = limits.pulses.check(&view, &settings, &marks, now);
            (limits.counts.held, limits.counts.idle) = (held as u64, Some(idle));
            if let Some(end) = limits.pulses.next_end(&settings, time(now)) {
                limits.due = limits.due.min(end);
            }
        }
        drop(ours);
        for action in actions {
            self.waiting.begin(&action);
            if !self.hands.order(action.clone()) {
                self.waiting.not_taken(&action);
                self.limits.not_begun(&action);
            }
        }
        self.tell_denied(&denied, &settings.flex_qos);
        self.read_caps(now);
    }

    fn read_caps(&mut self, now: Instant) {
        if self.limits.wants_caps() {
            self.reads.hasten(Kind::Limits, now);
        }
    }

    /// Each user who may not use the flex QOS is named once.
    fn tell_denied(&mut self, denied: &BTreeSet<(u32, String)>, flex: &str) {
        for (uid, account) in denied {
            if !self.limits.denied.insert((*uid, account.clone())) {
                continue;
            }
            let name = self.limits.access.name(*uid, account);
            let user = name.map_or_else(|| uid.to_string(), str::to_owned);
            let command =
                format!("sacctmgr modify user where name={user} account={account} set qos+={flex}");
            let words = format!(
                "user {user} (account {account}) may not use QOS {flex}: held jobs stay; to \
                 allow it: {command}"
            );
            let entry = Entry::new("flex-denied", words)
                .with("uid", uid)
                .with("user", &user)
                .with("account", account)
                .with("command", command);
            self.journal.write(&entry);
        }
    }

    /// The caps in the database were read.
    pub(super) fn caps_read(&mut self, now: Instant) {
        // Another host's sjpd keeps the record.
        if self.stance() == Stance::Watch {
            return;
        }
        let Some(asked) = self.world.asked(Kind::Limits) else { return };
        if self.stance() == Stance::Watch {
            return;
        }
        let (settings, time) = (settings(&self.config), time(now));
        let pulses = &mut self.limits.pulses;
        let Orders { actions, notes } =
            pulses.plan(&self.world.limits, asked.steady(), &settings, self.dry_run, time);
        for note in notes {
            let words = format!("QOS {}: {}", note.qos, note.words);
            tracing::warn!("{words}");
            if note.error {
                self.status.trouble(time.unix, format!("caps of QOS {}", note.qos), note.words);
            }
            self.journal.write(&Entry::new("caps", words).with("qos", note.qos));
        }
        for action in actions {
            if !self.hands.order(action.clone()) {
                self.limits.pulses.not_taken(&action);
            }
        }
    }

    /// sjpd ends: raised caps are given back. May take as long as sacctmgr does.
    pub(super) async fn give_caps_back(&mut self, reports: &mut mpsc::Receiver<Report>) {
        if self.limits.raised().is_empty() || self.stance() == Stance::Watch {
            return;
        }
        self.reads.start(Kind::Limits, Instant::now(), Vec::new());
        loop {
            let joined = self.reads.arrival().await;
            let arrival = self.reads.done(joined);
            match (arrival.kind, arrival.result) {
                (Kind::Limits, Ok(reading)) => {
                    self.world.take(reading, arrival.asked, arrival.took);
                    break;
                }
                (Kind::Limits, Err(error)) => {
                    tracing::warn!("{error}; raised caps stay until the next sjpd");
                    return;
                }
                _ => {}
            }
        }
        self.limits.pulses.ends();
        self.caps_read(Instant::now());
        while self.limits.pulses.changing() {
            let Some(report) = reports.recv().await else { return };
            if let Some(error) = self.limits_reported(&report, Instant::now()) {
                tracing::warn!("{}: {error}", report.action);
            }
        }
    }

    /// Associations were read.
    pub(super) fn associations_read(&mut self) {
        self.limits.access = Access::new(self.world.user_qos.as_deref());
    }

    /// The hands report. Answers the error, where a change of a QOS failed.
    pub(super) fn limits_reported(&mut self, report: &Report, now: Instant) -> Option<String> {
        let error = self.limits.reported(report, time(now));
        if matches!((&report.action.target, &report.outcome), (Target::Qos(_), Outcome::Done)) {
            // What is published of caps, and what is to be done next.
            self.reads.hasten(Kind::Qos, now);
            self.reads.hasten(Kind::Limits, now);
        }
        error
    }

    /// Settings changed; `before`: the mode of `[limits]` until now.
    pub(super) fn limits_settings_changed(&mut self, before: LimitsMode, now: Instant) {
        self.limits.due = now;
        if self.config.limits.mode == LimitsMode::Flex && before != LimitsMode::Flex {
            self.reads.hasten(Kind::Associations, now);
        }
        if let Err(error) = self.limits.pulses.settings_changed(&self.config.limits.state_file) {
            let path = self.config.limits.state_file.display();
            let words = format!("the record of raised caps cannot be moved to {path}: {error}");
            tracing::warn!("{words}");
            self.status.trouble(unix_now(), "caps", words);
        }
    }
}

impl Limits {
    fn not_begun(&mut self, action: &Action) {
        if let Some(job) = action.job() {
            self.moving.remove(&job);
            self.returning.remove(&job);
        }
    }

    fn reported(&mut self, report: &Report, time: Time) -> Option<String> {
        let done = report.outcome == Outcome::Done;
        match report.action.kind {
            ActionKind::Flex => self.counts.moved += u64::from(done),
            ActionKind::FlexBack => {
                let job = report.action.job().unwrap_or_default();
                if let Some(submit) = self.returning.get(&job).filter(|_| done) {
                    self.flex.came_back(job, *submit, seconds(time.unix));
                    self.counts.returned += 1;
                }
            }
            ActionKind::Raise => self.counts.pulses += u64::from(done),
            ActionKind::Lower => self.counts.lowered += u64::from(done),
            _ => {}
        }
        self.not_begun(&report.action);
        self.pulses.reported(report, time)
    }
}

fn updates(job: &Job, steps: Vec<Step>) -> Vec<Update> {
    steps.into_iter().map(|set| update(job, set)).collect()
}

fn flexed_to(w: &Waiting<'_>, m: Move, idle: Idle) -> Action {
    let whose = match m.cap {
        Cap::User => "user",
        Cap::Account => "account",
    };
    Action {
        kind: ActionKind::Flex,
        target: Target::Job(m.job),
        updates: updates(w.job, m.steps()),
        mark: Some(m.comment),
        seen: Some(Seen::of(w.job, w.mark)),
        words: format!("QOS {} to {}", m.own, m.flex),
        why: format!(
            "only the cap of {} CPUs per {whose} holds it ({} in use); it fits, {:.0} % idle",
            m.limit,
            m.used,
            idle.share() * 100.0
        ),
    }
}

fn back(w: &Waiting<'_>, b: Back) -> Action {
    Action {
        kind: ActionKind::FlexBack,
        target: Target::Job(b.job),
        updates: updates(w.job, b.steps()),
        mark: Some(b.comment),
        seen: Some(Seen::of(w.job, w.mark)),
        words: format!("QOS {} back to {}", b.flex, b.own),
        why: match b.waited {
            Some(waited) => format!("did not start in {waited} s"),
            None => "moves to the flex QOS are switched off".to_owned(),
        },
    }
}

fn foreign(w: &Waiting<'_>, f: Foreign) -> Action {
    Action {
        kind: ActionKind::DropMark,
        target: Target::Job(f.job),
        updates: updates(w.job, f.steps()),
        mark: Some(f.comment),
        seen: Some(Seen::of(w.job, w.mark)),
        words: format!("let go of QOS {}", f.qos),
        why: format!("somebody has changed its QOS (the mark says {})", f.said),
    }
}
