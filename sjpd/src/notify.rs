//! What systemd is told: ready, reloading, alive, stopping. Without
//! NOTIFY_SOCKET every call does nothing.

use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::Instant;

/// The line to systemd.
#[derive(Debug)]
pub struct Notify {
    watchdog: Option<Duration>,
    last: Option<Instant>,
}

impl Notify {
    /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
    #[must_use]
    pub fn from_env() -> Self {
        // Twice in each period, as systemd advises.
        let watchdog = sd_notify::watchdog_enabled().map(|period| period / 2);
        Self { watchdog, last: None }
    }

    fn send(states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            tracing::warn!(%error, "cannot tell systemd");
        }
    }

    /// The first table is published.
    pub fn ready(&self, status: &str) {
        Self::send(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Settings are being read again; [`Notify::ready`] ends it.
    pub fn reloading(&self) {
        let mut states = vec![NotifyState::Reloading];
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            states.push(now);
        }
        Self::send(&states);
    }

    /// A stop has begun.
    pub fn stopping(&self) {
        Self::send(&[NotifyState::Stopping]);
    }

    /// When the loop must come around for the watchdog's sake.
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.watchdog.map(|every| self.last.map_or(now, |last| last + every))
    }

    /// Called each time the loop turns, and only there.
    pub fn alive(&mut self, now: Instant) {
        if self.next(now).is_some_and(|at| at <= now) {
            self.last = Some(now);
            Self::send(&[NotifyState::Watchdog]);
        }
    }
}
