//! The daemon: one task owns what is known and decides; readings, changes and
//! signals come to it as messages.

mod intents;
pub(crate) mod limits;
mod marks;
mod observe;
mod once;
pub mod pacing;
mod placements;
pub mod preflight;
mod reads;
mod report;
mod rounds;
mod stance;
mod table;
mod turn;
mod undo;
mod waiting;
mod world;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use once::{Once, once};
pub use stance::Standing;
pub use undo::{Change, Refused, Undone, undo};
pub use world::unix_now;

use crate::actuator::{self, Actuator, Hands};
use crate::config::{Active, Config, Notice, Source};
use crate::journal::{Entry, Journal, JournalPaths};
use crate::lock::{LockError, StateLock};
use crate::logging::LogLevel;
use crate::notify::Notify;
use crate::ports::{Cluster, Kind};
use crate::status::Status;
use limits::Limits;
use observe::Observer;
use reads::Reads;
use sjp_core::config::{Mode, Policy};
use stance::{Stance, policy, tempo};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use table::{Table, TableError};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use waiting::Waiting;
use world::World;

/// What a stop waits for a change that is being made.
const LAST_CHANGE: Duration = Duration::from_secs(5);
/// The time of day and the steady clock may part by so many seconds in one turn of the
/// loop; by more, and the time of day was set.
const STEP: f64 = 5.0;
/// A status is written and a sign of life given at least this often.
const BEAT: Duration = Duration::from_secs(1);

/// What is asked of a running daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// SIGHUP: read the settings again, open the logs again.
    Reload,
    /// SIGTERM or SIGINT: stop.
    Stop,
}

/// What a daemon is started with.
#[derive(Debug)]
pub struct Setup<C, A> {
    /// Where the settings come from, for re-reads.
    pub source: Source,
    /// The settings.
    pub config: Config,
    /// Notices of the first read.
    pub notices: Vec<Notice>,
    /// `--dry-run`.
    pub dry_run: bool,
    /// The cluster.
    pub cluster: Arc<C>,
    /// The only way to change it.
    pub actuator: Arc<A>,
    /// The level of the log, to be changed by a re-read.
    pub log_level: LogLevel,
}

/// Why a daemon did not start, or stopped by itself.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The state folder is another's.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The table could not be made.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Runs until it is told to stop. A stop closes the table, takes its link and
/// the status away, and ends every task and child.
///
/// # Errors
/// Where the state folder or the table cannot be had.
pub async fn run<C: Cluster, A: Actuator>(
    setup: Setup<C, A>,
    mut controls: mpsc::Receiver<Control>,
) -> Result<(), DaemonError> {
    let started = unix_now();
    let since = crate::journal::clock(jiff::Timestamp::now());
    let state_dir = setup.config.general.state_dir.clone();
    let _lock = StateLock::take(&state_dir, &since)?;
    let table = Table::create(&state_dir)?;
    let journal = Journal::open(&journal_paths(&setup.config));
    let host = stance::host_name();
    let standing = Standing::of(setup.config.general.active, &[], &host, None);
    let policy = policy(&setup.config, setup.dry_run, &standing);
    let tempo = tempo(&setup.config, setup.dry_run, &standing);
    let (hands, mut reports) = actuator::start(setup.actuator.clone(), journal.clone(), tempo);
    let actuator = setup.actuator;
    let now = Instant::now();
    let (limits, wrong_record) = Limits::new(&setup.config, now);
    let mut daemon = Daemon {
        reads: Reads::new(setup.cluster, &setup.config),
        source: setup.source,
        config: setup.config,
        policy,
        host,
        standing,
        acts_since: 0.0,
        clock: (started, world::steady_now()),
        dry_run: setup.dry_run,
        log_level: setup.log_level,
        journal,
        world: World::new(),
        table,
        waiting: Waiting::new(started),
        limits,
        observer: Observer::new(started),
        marked: placements::Marked::default(),
        hands,
        retool: Box::new(move |config| actuator.settings_changed(config)),
        notify: Notify::from_env(),
        status: Status::default(),
        wanted: Vec::new(),
        ready: false,
        looks_again: false,
        published: now,
        wrote: now,
    };
    daemon.means_to_act();
    daemon.begin(started, &setup.notices);
    if let Some(wrong) = wrong_record {
        tracing::error!("{wrong}");
        daemon.status.trouble(started, "caps", wrong.as_str());
        daemon.journal.write(&Entry::new("caps", wrong).with("warning", true));
    }
    loop {
        let now = Instant::now();
        daemon.notify.alive(now);
        daemon.start_readings(now);
        daemon.beat(now);
        let wake = daemon.wake(now);
        let event = tokio::select! {
            control = controls.recv() => Event::Control(control),
            joined = daemon.reads.arrival() => Event::Arrival(joined),
            Some(report) = reports.recv() => Event::Report(report),
            () = sleep_until(wake) => Event::Clock,
        };
        let late = Instant::now().saturating_duration_since(wake);
        if late > BEAT {
            // Stopped, or starved: what was in flight looks dear and was not.
            daemon.reads.paused(late);
        }
        daemon.watch_clock();
        match event {
            Event::Control(Some(Control::Reload)) => daemon.reload(),
            Event::Control(Some(Control::Stop) | None) => break,
            Event::Arrival(joined) => {
                let arrival = daemon.reads.done(joined);
                daemon.arrived(arrival);
            }
            Event::Report(report) => daemon.reported(&report),
            Event::Clock => {}
        }
    }
    daemon.stop(&state_dir, &mut reports).await;
    Ok(())
}

/// What the loop wakes for.
enum Event {
    Control(Option<Control>),
    Arrival(reads::Joined),
    Report(actuator::Report),
    Clock,
}

/// Everything the owning task has.
struct Daemon<C> {
    source: Source,
    config: Config,
    policy: Policy,
    /// This host's name.
    host: String,
    standing: Standing,
    /// Nothing is planned on a queue that was asked for earlier, seconds of the steady
    /// clock.
    acts_since: f64,
    /// The time of day (Unix seconds) and the steady clock, when last looked at.
    clock: (f64, f64),
    dry_run: bool,
    log_level: LogLevel,
    journal: Journal,
    reads: Reads<C>,
    world: World,
    table: Table,
    waiting: Waiting,
    limits: Limits,
    observer: Observer,
    marked: placements::Marked,
    hands: Hands,
    /// Tells the actuator of changed settings.
    retool: Box<dyn Fn(&Config) + Send>,
    notify: Notify,
    status: Status,
    /// Jobs whose marks are to be read.
    wanted: Vec<u32>,
    /// Whether a table has been published.
    ready: bool,
    /// Whether waiting jobs are to be looked at with the next nodes.
    looks_again: bool,
    /// When it last was.
    published: Instant,
    /// When the status was last written.
    wrote: Instant,
}

impl<C: Cluster> Daemon<C> {
    /// Tells everyone that a run begins.
    fn begin(&mut self, started: f64, notices: &[Notice]) {
        for notice in notices {
            tracing::warn!("{notice}");
        }
        self.status = report::first(started, &self.source, notices);
        let mode = mode_word(self.config.general.mode);
        let words = format!(
            "sjpd {} starts: mode {mode}{}, settings {}",
            crate::cli::VERSION,
            if self.dry_run { ", dry run" } else { "" },
            self.source.path().display(),
        );
        tracing::info!("{words}");
        let entry = Entry::new("start", words)
            .with("version", crate::cli::VERSION)
            .with("mode", mode)
            .with("dry_run", self.dry_run)
            .with("pid", std::process::id())
            .with("state_dir", &self.config.general.state_dir);
        self.journal.write(&entry);
    }

    /// Sees that the time of day was set, by an admin, by NTP or while the machine slept:
    /// waits that began before count anew, so that no pin goes, no job is widened and
    /// none leaves the flex QOS for what only the clock says.
    fn watch_clock(&mut self) {
        let (unix, steady) = (unix_now(), world::steady_now());
        let by = (unix - self.clock.0) - (steady - self.clock.1);
        self.clock = (unix, steady);
        if by.abs() < STEP {
            return;
        }
        let words = format!(
            "the clock was set {} by {:.0} s: what waits is counted from now on",
            if by > 0.0 { "forward" } else { "back" },
            by.abs()
        );
        tracing::warn!("{words}");
        self.journal.write(&Entry::new("clock", words).with("seconds", by.round()));
        self.waiting.clock_stepped(unix);
        self.limits.clock_stepped(by.round() as i64);
    }

    /// SIGHUP.
    fn reload(&mut self) {
        self.notify.reloading();
        self.journal.reopen(&journal_paths(&self.config));
        match self.source.load() {
            Ok((config, notices)) => {
                for notice in &notices {
                    tracing::warn!("{notice}");
                }
                self.status.config_error = None;
                self.status.config_notices = notices.iter().map(ToString::to_string).collect();
                self.take_settings(config);
            }
            Err(errors) => {
                tracing::error!("the settings stay as they were: {errors}");
                let words = format!("the settings stay as they were: {errors}");
                self.journal.write(&Entry::new("reload", words).with("taken", false));
                self.status.config_error = Some(errors.to_string());
            }
        }
        self.status_now();
        if self.ready {
            self.notify.ready(&self.summary());
        }
    }

    /// A dry run, and one that never acts, leaves the cluster to another.
    fn means_to_act(&self) {
        let never = self.config.general.active == Active::Never;
        self.reads.means_to_act(!self.dry_run && !never);
    }

    /// Takes changed settings over.
    fn take_settings(&mut self, mut config: Config) {
        if config.general.state_dir != self.config.general.state_dir {
            let stays = self.config.general.state_dir.display();
            tracing::warn!("[general] state_dir changes with a restart only; {stays} stays");
            config.general.state_dir.clone_from(&self.config.general.state_dir);
        }
        let limits_before = self.config.limits.mode;
        let before = mode_word(self.config.general.mode);
        let mode = mode_word(config.general.mode);
        self.journal.reopen(&journal_paths(&config));
        self.log_level.set(config.general.log_level.word());
        let observed = self.policy.mode == Mode::Observe;
        self.policy = policy(&config, self.dry_run, &self.standing);
        if !observed {
            self.observer = Observer::new(unix_now());
        }
        self.hands.set_tempo(tempo(&config, self.dry_run, &self.standing));
        (self.retool)(&config);
        self.reads.set_config(&config);
        let meant = self.config.general.active;
        self.waiting.settings_changed();
        let left = self.waiting.pinned();
        let stance = self.stance();
        self.config = config;
        self.means_to_act();
        if meant != self.config.general.active {
            self.reads.hasten(Kind::Config, Instant::now());
        }
        let leaves = stance == Stance::Act && self.stance() == Stance::Undo;
        self.limits_settings_changed(limits_before, Instant::now());
        let words = if before == mode {
            format!("settings read again; mode {mode}")
        } else {
            format!("settings read again; mode {mode}, was {before}")
        };
        tracing::info!("{words}");
        self.journal.write(&Entry::new("reload", words).with("taken", true).with("mode", mode));
        if leaves && left > 0 {
            let words = format!(
                "{left} pinned jobs wait; their pins are taken back by and by, and nothing new is done"
            );
            tracing::info!("{words}");
            self.journal.write(&Entry::new("reload", words));
        }
        self.take_standing(Instant::now());
        if self.ready {
            self.tell_preflight();
            // The new policy is in force from now, not from the next nodes on.
            self.publish();
        }
    }

    /// Ends everything.
    async fn stop(mut self, state_dir: &Path, reports: &mut mpsc::Receiver<actuator::Report>) {
        tracing::info!("stopping");
        self.notify.stopping();
        // First of all nobody may place by this table any more.
        self.table.close();
        if tokio::time::timeout(LAST_CHANGE, self.give_caps_back(reports)).await.is_err() {
            tracing::warn!("raised caps could not be given back in time: the next sjpd does it");
        }
        self.reads.stop().await;
        self.hands.stop(LAST_CHANGE).await;
        match std::fs::remove_file(state_dir.join(crate::status::FILE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot remove the status");
            }
            _ => {}
        }
        self.journal.write(&Entry::new("stop", "sjpd stops"));
    }
}

/// Where the decision log goes, by the settings.
#[must_use]
pub fn journal_paths(config: &Config) -> JournalPaths {
    JournalPaths {
        json: Some(config.general.log_file.clone()),
        text: config.general.text_log.0.clone(),
    }
}

/// A mode as the settings spell it.
fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "observe",
        Mode::Advise => "advise",
        Mode::Enforce => "enforce",
    }
}
