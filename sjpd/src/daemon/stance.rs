//! What a run may change at this moment, by its mode and the disable file.

use super::Daemon;
use crate::actuator::{Gate, Tempo, disabled};
use crate::config::Config;
use sjp_core::config::{Mode, Policy};
use std::sync::Arc;

/// What may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// What sjp did is taken back in its time; nothing new is done.
    Undo,
    /// Everything that mode enforce does.
    Act,
}

impl<C> Daemon<C> {
    /// What may be changed now. A dry run plans the same, and does nothing.
    pub(super) fn stance(&self) -> Stance {
        let general = &self.config.general;
        match general.mode {
            Mode::Enforce if !disabled(&general.disable_file) => Stance::Act,
            Mode::Enforce | Mode::Observe | Mode::Advise => Stance::Undo,
        }
    }
}

/// The policy as published. A dry run must not have pins that nobody takes
/// back: it publishes mode observe.
#[must_use]
pub fn policy(config: &Config, dry_run: bool) -> Policy {
    let mut policy = config.policy();
    if dry_run {
        policy.mode = Mode::Observe;
    }
    policy
}

/// How changes are made, by the settings.
#[must_use]
pub fn tempo(config: &Config, dry_run: bool) -> Tempo {
    let gate = match (config.general.mode, dry_run) {
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
