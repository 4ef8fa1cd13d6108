//! slurmctld's log, through the `slurm` table that its Lua plugin provides.
//! Without that table nothing is said. Errors are limited to one line a minute
//! for each kind, so that a lasting fault does not flood the log.

use crate::failure::Failure;
use mlua::{Function, Lua, Table};

const PAUSE_NS: u64 = 60_000_000_000;

/// When each kind of error was last logged, in the whole process.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    last: [Option<u64>; Failure::KINDS],
    kept_back: [u32; Failure::KINDS],
}

impl Limiter {
    /// Whether an error of this kind may be logged now: `Some(how many were
    /// kept back since the last)`.
    pub(crate) fn pass(&mut self, kind: usize, now_ns: u64) -> Option<u32> {
        let (last, kept_back) = (self.last.get_mut(kind)?, self.kept_back.get_mut(kind)?);
        if last.is_some_and(|at| now_ns.saturating_sub(at) < PAUSE_NS) {
            *kept_back = kept_back.saturating_add(1);
            return None;
        }
        *last = Some(now_ns);
        Some(std::mem::take(kept_back))
    }
}

/// One line in slurmctld's log, as an error.
pub(crate) fn error(lua: &Lua, text: &str) {
    line(lua, "log_error", text);
}

/// One line in slurmctld's log, as information.
pub(crate) fn info(lua: &Lua, text: &str) {
    line(lua, "log_info", text);
}

/// What cannot be logged is not logged: there is nobody else to tell.
fn line(lua: &Lua, function: &str, text: &str) {
    let logged = lua
        .globals()
        .get::<Option<Table>>("slurm")
        .and_then(|slurm| match slurm {
            Some(slurm) => slurm.get::<Option<Function>>(function),
            None => Ok(None),
        })
        .and_then(|log| match log {
            // The text is an argument, never the format.
            Some(log) => log.call::<()>(("%s", text)),
            None => Ok(()),
        });
    drop(logged);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_for_each_kind() {
        let mut limiter = Limiter::default();
        assert_eq!(limiter.pass(1, 10), Some(0));
        assert_eq!(limiter.pass(1, 11), None);
        assert_eq!(limiter.pass(2, 11), Some(0), "another kind");
        assert_eq!(limiter.pass(1, 9 + PAUSE_NS), None);
        assert_eq!(limiter.pass(1, 10 + PAUSE_NS), Some(2));
        assert_eq!(limiter.pass(Failure::KINDS, 0), None);
    }
}
