//! Waiting for conditions with a deadline. The only sleep of the tests is here.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks again and again until `look` gives `Ok(Ok(value))`.
///
/// `Ok(Err(state))` means "not yet", with the state seen, which is part of the
/// error when the deadline passes. An `Err` ends the wait at once.
///
/// # Errors
/// What `look` returned as an error, or that the deadline passed.
pub fn wait_for<T, S: Display>(
    deadline: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<std::result::Result<T, S>>,
) -> Result<T> {
    let begin = Instant::now();
    loop {
        let state = match look()? {
            Ok(value) => return Ok(value),
            Err(state) => state,
        };
        if begin.elapsed() >= deadline {
            bail!("not within {deadline:?}: {what}; last seen: {state}");
        }
        std::thread::sleep(PAUSE);
    }
}
