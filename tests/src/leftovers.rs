//! What is left of clusters whose test process was killed: found and removed.

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How the folders of clusters are called.
pub(crate) const PREFIX: &str = "c-";
/// Locked by the process that a cluster's folder belongs to.
pub(crate) const OWNER_LOCK: &str = "owner.lock";
/// Marks a folder that was kept for a look.
pub(crate) const KEEP_MARK: &str = "kept";

/// Kept folders go after a day.
const KEEP_FOR: Duration = Duration::from_secs(24 * 3600);

/// Removes the folders in `base` whose owner is gone, with processes of theirs.
///
/// What cannot be removed is left for the next time, with a message.
pub(crate) fn sweep(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let dir = entry.path();
        if !entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) || owned(&dir) {
            continue;
        }
        let kept = std::fs::metadata(dir.join(KEEP_MARK)).and_then(|m| m.modified());
        let fresh = kept.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < KEEP_FOR));
        if fresh {
            continue;
        }
        kill_strays(&dir.join("slurm.conf"));
        if let Err(error) = std::fs::remove_dir_all(&dir) {
            eprintln!("sjp-tests: cannot remove the leftover {}: {error}", dir.display());
        }
    }
}

/// Whether a living process holds the folder.
fn owned(dir: &Path) -> bool {
    let Ok(file) = OpenOptions::new().write(true).open(dir.join(OWNER_LOCK)) else {
        return false;
    };
    let lock: Result<Flock<File>, _> = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    lock.is_err()
}

/// Kills processes that have this cluster's `SLURM_CONF` in their environment.
pub(crate) fn kill_strays(conf: &Path) {
    let wanted = [b"SLURM_CONF=", conf.as_os_str().as_bytes()].concat();
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(environ) = std::fs::read(entry.path().join("environ")) else { continue };
        if environ.split(|b| *b == 0).any(|variable| variable == wanted) {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
