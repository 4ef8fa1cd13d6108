//! What a run may change at this moment: by its mode, the disable file, and
//! whether the controller that acts is on this host.

use super::world::{steady_now, unix_now};
use super::{Daemon, mode_word};
use crate::actuator::{Gate, Tempo, disabled};
use crate::config::{Active, Config};
use crate::journal::Entry;
use crate::ports::{Cluster, Kind};
use sjp_core::config::{Mode, Policy};
use std::fmt;
use std::sync::Arc;
use tokio::time::Instant;

/// What may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// Nothing: another host's sjpd acts.
    Watch,
    /// What sjp did is taken back in its time; nothing new is done.
    Undo,
    /// Everything that mode enforce does.
    Act,
}

/// Where this run stands among the controllers' hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It acts.
    Active,
    /// The controller of this host waits.
    Standby {
        /// The one that acts.
        acting: String,
    },
    /// Another sjpd on this host, with a state_dir of its own, acts.
    Rival {
        /// What is known of it.
        holder: String,
    },
    /// `[general] active = "never"`.
    Never,
    /// There are several controllers, and none is on this host.
    Elsewhere {
        /// This host.
        host: String,
    },
    /// Which controller acts has not been read yet.
    Asking,
    /// It cannot be read.
    Unknown,
}

impl Standing {
    /// By `[general] active`, the controllers' names in Slurm's order, this host's
    /// name, and which of them acts (by index).
    #[must_use]
    pub fn of(active: Active, controllers: &[String], host: &str, acting: Option<usize>) -> Self {
        match active {
            Active::Always => return Self::Active,
            Active::Never => return Self::Never,
            Active::Auto => {}
        }
        if controllers.len() < 2 {
            return Self::Active;
        }
        // As slurmctld finds itself: by its host's name, whole or up to the first dot.
        let short = host.split('.').next().unwrap_or(host);
        let Some(own) = controllers.iter().position(|c| c == host || c == short) else {
            return Self::Elsewhere { host: host.to_owned() };
        };
        match acting.and_then(|i| Some((i, controllers.get(i)?))) {
            None => Self::Unknown,
            Some((index, _)) if index == own => Self::Active,
            Some((_, name)) => Self::Standby { acting: name.clone() },
        }
    }

    /// One word for the status.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Standby { .. } => "standby",
            Self::Rival { .. } => "rival",
            Self::Never => "never",
            Self::Elsewhere { .. } => "elsewhere",
            Self::Asking => "asking",
            Self::Unknown => "unknown",
        }
    }

    /// Whether nobody may be taking pins back that the table of this run leads to.
    const fn nobody_undoes(&self) -> bool {
        matches!(self, Self::Never | Self::Elsewhere { .. } | Self::Asking | Self::Unknown)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active => f.write_str("acts on this host"),
            Self::Standby { acting } => {
                write!(f, "stands by: the slurmctld that acts is the one of {acting}")
            }
            Self::Rival { holder } => write!(
                f,
                "does not act: another sjpd of this host does ({holder}); stop one of the two, or \
                 give one [general] active = \"never\""
            ),
            Self::Never => f.write_str("does not act: [general] active is \"never\""),
            Self::Elsewhere { host } => write!(
                f,
                "does not act: {host} is none of Slurm's controllers (SlurmctldHost); run sjpd \
                 there, or set [general] active"
            ),
            Self::Asking => f.write_str("does not act yet: which slurmctld acts is being read"),
            Self::Unknown => f.write_str(
                "does not act: which slurmctld acts cannot be read from the heartbeat in \
                 StateSaveLocation; run sjpd as SlurmUser, or set [general] active",
            ),
        }
    }
}

/// This host's name, as the kernel has it.
#[must_use]
pub fn host_name() -> String {
    nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned()).unwrap_or_default()
}

impl<C: Cluster> Daemon<C> {
    /// What may be changed now. A dry run plans the same, and does nothing.
    pub(super) fn stance(&self) -> Stance {
        let general = &self.config.general;
        match general.mode {
            _ if self.standing != Standing::Active => Stance::Watch,
            Mode::Enforce if !disabled(&general.disable_file) => Stance::Act,
            Mode::Enforce | Mode::Observe | Mode::Advise => Stance::Undo,
        }
    }

    /// Whether it is known, as far as it can be, which controller acts.
    pub(super) fn standing_is_known(&self) -> bool {
        !self.asks_for_controller() || self.world.tried(Kind::Controller)
    }

    /// Whether it matters which controller acts.
    pub(super) fn asks_for_controller(&self) -> bool {
        self.config.general.active == Active::Auto && self.world.config.controllers.len() > 1
    }

    /// Settings or the acting controller may have changed. Whoever becomes active
    /// knows nothing of what the other did: marks and queue are read anew, and
    /// nothing is planned on an older queue.
    pub(super) fn take_standing(&mut self, now: Instant) {
        let active = self.config.general.active;
        let (controllers, acting) = (&self.world.config.controllers, self.world.acting);
        let standing = match Standing::of(active, controllers, &self.host, acting) {
            Standing::Unknown if !self.world.tried(Kind::Controller) => Standing::Asking,
            Standing::Active if !self.dry_run => match self.reads.rival() {
                Some(holder) => Standing::Rival { holder },
                None => Standing::Active,
            },
            known => known,
        };
        if standing == self.standing {
            return;
        }
        let before = std::mem::replace(&mut self.standing, standing);
        let words = format!("sjpd {}", self.standing);
        let rival = matches!(self.standing, Standing::Rival { .. });
        if rival || self.standing != Standing::Asking && self.standing.nobody_undoes() {
            tracing::warn!("{words}");
        } else {
            tracing::info!("{words}");
        }
        let entry = Entry::new("standing", words)
            .with("standing", self.standing.word())
            .with("before", before.word())
            .with("mode", mode_word(self.config.general.mode));
        self.journal.write(&entry);
        self.policy = policy(&self.config, self.dry_run, &self.standing);
        self.hands.set_tempo(tempo(&self.config, self.dry_run, &self.standing));
        self.waiting.begin_anew(unix_now());
        self.acts_since = steady_now();
        if self.standing == Standing::Active
            && matches!(before, Standing::Standby { .. } | Standing::Rival { .. })
        {
            self.reads.begin_anew();
        } else {
            self.reads.hasten(Kind::Queue, now);
        }
        if self.ready {
            self.publish();
        }
    }
}

/// The policy as published. Nobody must get pins that nobody takes back: a dry
/// run publishes mode observe, and one that does not act, though it does not know
/// of another that does, has no pins. One that stands by publishes what will be
/// in force: after a fail-over its slurmctld may place before it notices.
#[must_use]
pub fn policy(config: &Config, dry_run: bool, standing: &Standing) -> Policy {
    let mut policy = config.policy();
    if dry_run {
        policy.mode = Mode::Observe;
    } else if policy.mode == Mode::Enforce && standing.nobody_undoes() {
        policy.mode = Mode::Advise;
    }
    policy
}

/// How changes are made.
#[must_use]
pub fn tempo(config: &Config, dry_run: bool, standing: &Standing) -> Tempo {
    let gate = match (config.general.mode, dry_run) {
        _ if *standing != Standing::Active => Gate::Off,
        (_, true) => Gate::Dry,
        (Mode::Enforce, false) => Gate::On,
        (Mode::Observe | Mode::Advise, false) => Gate::Undo,
    };
    Tempo {
        gate,
        per_second: config.cadence.max_updates_per_second,
        disable_file: Some(Arc::new(config.general.disable_file.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_of_the_acting_controller_acts() {
        let two = ["ctl1".to_owned(), "ctl2.site.org".to_owned()];
        let auto = |host, acting| Standing::of(Active::Auto, &two, host, acting);
        assert_eq!(auto("ctl1", Some(0)), Standing::Active);
        assert_eq!(auto("ctl1.site.org", Some(0)), Standing::Active, "up to the first dot");
        assert_eq!(auto("ctl2.site.org", Some(1)), Standing::Active);
        assert_eq!(auto("ctl1", Some(1)), Standing::Standby { acting: "ctl2.site.org".into() });
        assert_eq!(auto("ctl2", Some(0)).word(), "elsewhere", "another name");
        for acting in [None, Some(2)] {
            assert_eq!(auto("ctl1", acting), Standing::Unknown);
        }
        assert_eq!(Standing::of(Active::Auto, &two[..1], "login", None), Standing::Active);
        assert_eq!(Standing::of(Active::Always, &two, "login", Some(1)), Standing::Active);
        assert_eq!(Standing::of(Active::Never, &two, "ctl1", Some(0)), Standing::Never);
    }

    #[test]
    fn nobody_gets_pins_that_nobody_takes_back() {
        let mut config = Config::default();
        config.general.mode = Mode::Enforce;
        let standby = Standing::Standby { acting: "b".into() };
        for (standing, mode, gate) in [
            (Standing::Active, Mode::Enforce, Gate::On),
            (standby, Mode::Enforce, Gate::Off),
            (Standing::Never, Mode::Advise, Gate::Off),
            (Standing::Elsewhere { host: "c".into() }, Mode::Advise, Gate::Off),
            (Standing::Unknown, Mode::Advise, Gate::Off),
        ] {
            assert_eq!(policy(&config, false, &standing).mode, mode, "{standing}");
            assert_eq!(policy(&config, true, &standing).mode, Mode::Observe, "{standing}");
            assert_eq!(tempo(&config, false, &standing).gate, gate, "{standing}");
        }
        assert_eq!(tempo(&config, true, &Standing::Active).gate, Gate::Dry);
        config.general.mode = Mode::Advise;
        assert_eq!(tempo(&config, false, &Standing::Active).gate, Gate::Undo);
    }
}
