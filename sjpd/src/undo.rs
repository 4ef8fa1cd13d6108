//! `sjpd --undo` and `sjp undo`, the same for both: who else runs, what is printed,
//! how it ends. What is undone, see `daemon::undo`.

use crate::actuator::{CommandActuator, disabled};
use crate::cli::Exit;
use crate::config::{Config, Source};
use crate::daemon::{Change, Refused, journal_paths, undo};
use crate::journal::Journal;
use crate::lock::{LockError, StateLock};
use crate::slurm::SlurmCommands;
use crate::status::Status;
use serde_json::json;
use std::io::{self, Write as _};
use std::sync::Arc;

/// Undoes everything, and prints one line for each change and a summary, or all of
/// it as JSON.
#[must_use]
pub fn main(source: &Source, dry_run: bool, json: bool) -> Exit {
    let config = match source.load() {
        Ok((config, _)) => config,
        Err(errors) => {
            eprintln!("{errors}");
            return Exit::Config;
        }
    };
    // What was read goes to standard output; trouble on the way to standard error.
    let _level = crate::logging::start("error");
    let lock = match hold(&config, dry_run) {
        Ok(lock) => lock,
        Err((exit, why)) => {
            eprintln!("{why}");
            return exit;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start: {error}");
            return Exit::Warning;
        }
    };
    let mut changes: Vec<Change> = Vec::new();
    let mut tell = |change: &Change| {
        if json {
            changes.push(change.clone());
        } else {
            // Nobody may be reading: what is undone is undone all the same.
            let _ = writeln!(io::stdout(), "{}", crate::commands::one_line(&change.line()));
        }
    };
    let (cluster, actuator) = (SlurmCommands::new(&config), CommandActuator::from_config(&config));
    let journal = Journal::open(&journal_paths(&config));
    let beside = !dry_run && lock.is_none();
    let (cluster, actuator) = (Arc::new(cluster), Arc::new(actuator));
    let ended =
        runtime.block_on(undo(cluster, actuator, &config, journal, dry_run, beside, &mut tell));
    runtime.shutdown_background();
    leave(&config, lock);
    let undone = match ended {
        Ok(undone) => undone,
        Err(error) => {
            eprintln!("{error}");
            return match error {
                Refused::NotHere(_) => Exit::Held,
                Refused::NoRights(_) => Exit::NoRights,
                Refused::Unread(_) => Exit::Warning,
            };
        }
    };
    let summary = undone.summary(dry_run);
    let text = if json {
        let value = json!({
            "dry_run": dry_run, "changes": changes, "jobs": undone.jobs, "left": undone.left,
            "unread": undone.unread, "summary": summary,
        });
        format!("{value:#}\n")
    } else {
        let left = undone.left.iter().map(|(target, why)| format!("left: {target}: {why}\n"));
        left.map(|line| crate::commands::one_line(&line) + "\n").collect::<String>()
            + &summary
            + "\n"
    };
    let _ = io::stdout().write_all(text.as_bytes());
    if undone.all() { Exit::Ok } else { Exit::Warning }
}

/// Makes sure that no sjpd does again what is undone: takes the state folder, or
/// finds that the one that holds it does nothing new. A dry run disturbs nobody.
fn hold(config: &Config, dry_run: bool) -> Result<Option<StateLock>, (Exit, String)> {
    if dry_run {
        return Ok(None);
    }
    let dir = &config.general.state_dir;
    let since = crate::journal::clock(jiff::Timestamp::now());
    let holder = match StateLock::take(dir, &since) {
        Ok(lock) => return Ok(Some(lock)),
        Err(LockError::Held { holder, .. }) => holder,
        Err(error @ LockError::Foreign { .. }) => {
            let why = format!("nothing was changed: {error}; run this as that user");
            return Err((Exit::NoRights, why));
        }
        Err(error) => return Err((Exit::Warning, format!("nothing was changed: {error}"))),
    };
    let off = disabled(&config.general.disable_file);
    let mode = Status::read(dir).map(|status| status.mode);
    match mode {
        Ok(mode) if off || mode == "observe" || mode == "advise" => Ok(None),
        _ => Err((
            Exit::Held,
            format!(
                "nothing was changed: the sjpd that runs ({holder}) is in mode enforce, and would \
                 do it again: `touch {}`, or set another mode and reload it, or stop it",
                config.general.disable_file.display()
            ),
        )),
    }
}

/// Lets go of the state folder; one that was made for this is taken away, since it
/// may belong to another user than sjpd's.
fn leave(config: &Config, lock: Option<StateLock>) {
    let made = lock.as_ref().is_some_and(StateLock::made_dir);
    drop(lock);
    if made {
        let dir = &config.general.state_dir;
        let _ = std::fs::remove_file(dir.join("lock"));
        let _ = std::fs::remove_dir(dir);
    }
}
