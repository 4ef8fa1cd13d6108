//! One turn of the loop: what a reading, a report or the clock sets off.

use super::reads::Arrival;
use super::stance::Stance;
use super::waiting::Scope;
use super::world::{Reading, steady_now, unix_now};
use super::{BEAT, Daemon, placements, preflight, report, table};
use crate::actuator::{Outcome, Report};
use crate::ports::{Cluster, Kind};
use sjp_core::config::Mode;
use std::collections::HashSet;
use tokio::time::Instant;

impl<C: Cluster> Daemon<C> {
    /// Starts what is due.
    pub(super) fn start_readings(&mut self, now: Instant) {
        if self.waiting.due().is_some_and(|due| due <= now) {
            self.waiting.due_is_seen_to();
            self.reads.hasten(Kind::Queue, now);
        }
        if self.limits.due(&self.config).is_some_and(|due| due <= now) {
            self.limits.due_is_seen_to();
            self.reads.hasten(Kind::Queue, now);
        }
        // How the queue and accounting are read depends on Slurm's settings.
        let configured = self.world.asked(Kind::Config).is_some();
        for kind in Kind::ALL.into_iter().filter(|&k| configured || !needs_config(k)) {
            let wanted = match kind {
                Kind::Marks | Kind::Limits => false,
                Kind::Controller => self.asks_for_controller(),
                _ => true,
            };
            if wanted && self.reads.ready(kind, now) {
                self.reads.start(kind, now, Vec::new());
            }
        }
        if configured && self.limits.wants_caps() && self.reads.ready(Kind::Limits, now) {
            self.limits.caps_asked();
            self.reads.start(Kind::Limits, now, Vec::new());
        }
        if !self.wanted.is_empty() && self.reads.ready(Kind::Marks, now) {
            let wanted = std::mem::take(&mut self.wanted);
            self.reads.start(Kind::Marks, now, wanted);
        }
    }

    /// When the loop turns next if nothing comes.
    pub(super) fn wake(&self, now: Instant) -> Instant {
        let beat = self.wrote + BEAT;
        let configured = self.world.asked(Kind::Config).is_some();
        let due = self.reads.next(now, |kind| match kind {
            Kind::Marks => !self.wanted.is_empty(),
            Kind::Controller => self.asks_for_controller(),
            Kind::Limits => configured && self.limits.wants_caps(),
            kind => configured || !needs_config(kind),
        });
        let alive = self.notify.next(now);
        let limits = self.limits.due(&self.config);
        [due, alive, self.waiting.due(), limits].into_iter().flatten().fold(beat, Instant::min)
    }

    /// Once a second: a sign of life and the status, whatever the readings do.
    pub(super) fn beat(&mut self, now: Instant) {
        if now < self.wrote + BEAT {
            return;
        }
        if self.ready && now >= self.published + BEAT {
            // No new nodes: the table grows old by itself, but claims made
            // meanwhile are counted.
            self.publish();
        }
        self.status_now();
    }

    /// A reading came back.
    pub(super) fn arrived(&mut self, arrival: Arrival) {
        let Arrival { kind, asked, took, result } = arrival;
        let now = Instant::now();
        match result {
            Err(error) => self.failed(kind, &error.to_string()),
            Ok(reading) => {
                let was_failing = self.world.last(kind).error.is_some();
                if was_failing {
                    tracing::info!(%kind, "can be read again");
                }
                if was_failing && kind == Kind::Nodes {
                    // It may have come back changed.
                    self.reads.slurmctld_is_back(now);
                }
                if let Reading::Marks(asked_for, records) = &reading {
                    self.waiting.learn(asked_for, &records.list, &self.world.jobs);
                }
                if let Reading::Nodes(records) = &reading
                    && self.world.tied_node_changed(&records.list)
                {
                    self.reads.hasten(Kind::Queue, now);
                }
                let boot = boot_time(&self.world);
                let had_roster = !self.world.roster_stale;
                self.world.take(reading, asked, took);
                self.follow_up(kind, now, boot, had_roster);
            }
        }
        if !self.ready && self.world.complete() && self.standing_is_known() {
            self.first_table();
        }
    }

    /// What a good reading leads to.
    fn follow_up(&mut self, kind: Kind, now: Instant, boot: Option<String>, had_roster: bool) {
        match kind {
            Kind::Nodes => {
                if self.looks_again {
                    self.look_after_waiting(now);
                } else if self.ready {
                    self.publish();
                }
                // Other nodes than before: partitions and settings may be others too.
                if had_roster && self.world.roster_stale {
                    self.reads.hasten(Kind::Partitions, now);
                    self.reads.hasten(Kind::Config, now);
                }
            }
            Kind::Queue => {
                self.placements();
                self.observe();
                let asked = self.world.asked(Kind::Queue).map_or(0.0, |a| a.steady());
                self.waiting.see_queue(&self.world.jobs, asked);
                self.look_after_waiting(now);
                self.look_after_limits(now);
            }
            Kind::Marks => self.look_after_waiting(now),
            Kind::Controller => self.take_standing(now),
            Kind::Config => {
                self.take_standing(now);
                if boot.is_some() && boot_time(&self.world) != boot {
                    tracing::info!("slurmctld was restarted or reconfigured");
                    for kind in
                        [Kind::Partitions, Kind::Reservations, Kind::Qos, Kind::Associations]
                    {
                        self.reads.hasten(kind, now);
                    }
                }
            }
            Kind::Limits => self.caps_read(now),
            Kind::Associations => self.associations_read(),
            Kind::Partitions | Kind::Reservations | Kind::Qos => {}
        }
    }

    /// A reading failed.
    fn failed(&mut self, kind: Kind, error: &str) {
        let known = self.world.last(kind).error;
        if known.as_deref() != Some(error) {
            tracing::warn!(%kind, "{error}");
            self.status.trouble(unix_now(), kind.word(), error);
        }
        self.world.failed(kind, error.to_owned());
        if kind == Kind::Controller {
            self.take_standing(Instant::now());
        }
    }

    /// Everything needed is known: the first table.
    fn first_table(&mut self) {
        if !self.publish() {
            return;
        }
        self.tell_preflight();
        self.ready = true;
        self.look_after_waiting(Instant::now());
        let summary = self.summary();
        tracing::info!("ready: {summary}");
        self.status_now();
        self.notify.ready(&summary);
    }

    /// Says what this run may do.
    pub(super) fn tell_preflight(&mut self) {
        let Some(roster) = self.table.roster().cloned() else { return };
        let uid = nix::unistd::geteuid();
        let user = nix::unistd::User::from_uid(uid).ok().flatten().map(|u| u.name);
        let me = preflight::Me { uid: uid.as_raw(), user, dry_run: self.dry_run };
        let findings = preflight::findings(&self.world, &roster, &self.config, &me);
        for finding in &findings {
            if finding.warning {
                tracing::warn!("{}", finding.words);
            } else {
                tracing::info!("{}", finding.words);
            }
        }
        for entry in preflight::entries(&findings) {
            self.journal.write(&entry);
        }
    }

    /// Publishes what is known; `false` where it could not.
    pub(super) fn publish(&mut self) -> bool {
        self.published = Instant::now();
        match self.table.publish(&mut self.world, &self.policy, &self.waiting.moving()) {
            Ok(claims) => {
                if claims > 0 {
                    self.reads.hasten(Kind::Queue, self.published);
                }
                true
            }
            Err(error) => {
                self.table.heartbeat();
                let error = error.to_string();
                if self.status.table.error.as_deref() != Some(error.as_str()) {
                    tracing::error!("{error}");
                    self.status.trouble(unix_now(), "table", error);
                }
                false
            }
        }
    }

    /// Logs the placements whose jobs have appeared.
    fn placements(&mut self) {
        let mut claimed = HashSet::new();
        for found in self.table.see_queue(&self.world) {
            claimed.insert(found.job);
            if let Some(entry) = placements::entry(&found, &self.world.jobs) {
                self.journal.write(&entry);
            }
        }
        for entry in self.marked.look(&self.world.jobs, &claimed) {
            self.journal.write(&entry);
        }
    }

    /// Mode observe: what sjp would have said.
    fn observe(&mut self) {
        if self.policy.mode != Mode::Observe {
            return;
        }
        let table = &self.table;
        for entry in self.observer.look(&self.world.jobs, |unix| table.before(unix)) {
            self.journal.write(&entry);
        }
    }

    /// Which marks to read, which pins to take back: in every mode, as pins of an
    /// earlier mode enforce are taken back too.
    fn look_after_waiting(&mut self, now: Instant) {
        let asked = self.world.asked(Kind::Queue).map_or(0.0, |a| a.steady());
        if self.stance() == Stance::Watch || asked < self.acts_since {
            self.wanted.clear();
            return;
        }
        let (jobs, unix) = (&self.world.jobs, unix_now());
        let most = self.reads.marks_at_once();
        // Switched off, what was done is still taken back, and nothing new is done.
        let off = self.stance() == Stance::Undo;
        self.wanted = self.waiting.wanted(jobs, unix, &self.config, off, most);
        // Planned on what is published, with the claims made until now.
        if !self.ready || !self.publish() {
            return;
        }
        let Some(roster) = self.table.roster().cloned() else { return };
        let moving = self.waiting.moving();
        let snapshot = table::plan_on(&self.world, &roster, self.table.ledger(), &moving);
        let asked = |kind| self.world.asked(kind).map_or(0.0, |a| a.steady());
        let scope = match (off, asked(Kind::Nodes) >= asked(Kind::Queue)) {
            (true, _) => Scope::Undo,
            (false, true) => Scope::All,
            (false, false) => Scope::Urgent,
        };
        self.looks_again = scope == Scope::Urgent;
        let plan = self.waiting.plan(&snapshot, unix, now, &self.config, scope);
        if let Some(entry) = &plan.entry {
            self.journal.write(entry);
        }
        for action in plan.actions {
            if !self.hands.order(action.clone()) {
                self.waiting.not_taken(&action);
            }
        }
        if self.waiting.moving() != moving {
            self.publish();
        }
    }

    /// The hands report.
    pub(super) fn reported(&mut self, report: &Report) {
        let now = Instant::now();
        let of_qos = self.limits_reported(report, now);
        if let Some(error) = self.waiting.reported(report, steady_now(), now).or(of_qos) {
            let what = format!("{} of {}", report.action.kind, report.action.target);
            tracing::warn!("{what}: {error}");
            self.status.trouble(unix_now(), what, error);
        }
        if matches!(report.outcome, Outcome::Done | Outcome::Changed(_)) {
            self.reads.hasten(Kind::Queue, now);
        }
    }

    /// Writes the status.
    pub(super) fn status_now(&mut self) {
        self.wrote = Instant::now();
        report::fill(self);
        if let Err(error) = self.status.write(&self.config.general.state_dir) {
            tracing::warn!(%error, "cannot write the status");
        }
    }

    /// One line on how things stand.
    pub(super) fn summary(&self) -> String {
        let usable = self.world.nodes.iter().filter(|n| n.usable).count();
        let open =
            self.table.roster().map_or(0, |r| r.partitions.iter().filter(|p| p.open).count());
        format!(
            "mode {}, {usable} of {} nodes usable, {open} of {} partitions open",
            super::mode_word(self.policy.mode),
            self.world.nodes.len(),
            self.world.partitions.len(),
        )
    }
}

/// Kinds whose command or meaning depends on Slurm's version and settings.
fn needs_config(kind: Kind) -> bool {
    matches!(kind, Kind::Queue | Kind::Qos | Kind::Associations | Kind::Marks | Kind::Limits)
}

/// When slurmctld came up, as it prints it.
fn boot_time(world: &super::world::World) -> Option<String> {
    let find = |(key, value): &(String, String)| (key == "BOOT_TIME").then(|| value.clone());
    world.config.all.iter().find_map(find)
}
