//! One sjpd for a state folder: an flock on `state_dir/lock`, which says who
//! holds it. And one on a host that changes a cluster, whatever its state folder: an
//! flock beside the state of slurmctld.

use nix::fcntl::{Flock, FlockArg};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why the state folder could not be taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another sjpd holds it.
    #[error(
        "another sjpd holds {path}: {holder}; stop that one, or give this one a state_dir of its own"
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// What stands in it, on one line.
        holder: String,
    },
    /// The folder or the file cannot be made or used.
    #[error("cannot {what} {path}: {source}; see [general] state_dir")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The folder is another user's: whoever owns it could put another table
    /// in the way of slurmctld.
    #[error(
        "{path} belongs to uid {owner}, and sjpd runs as uid {uid}; chown it, or set [general] state_dir"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This process' user.
        uid: u32,
    },
    /// The folder can be written by others.
    #[error("{path} can be written by others (mode {mode:04o}); chmod it to 0755")]
    Open {
        /// The folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// The held lock; let go when dropped (the file stays, empty).
#[derive(Debug)]
pub struct StateLock {
    file: Flock<File>,
    made_dir: bool,
}

impl StateLock {
    /// Makes the state folder where it is missing (0755) and takes its lock.
    /// `since` is the start time in words, for whoever finds it taken.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn take(state_dir: &Path, since: &str) -> Result<Self, LockError> {
        let io = |what, path: &Path| {
            let path = path.to_path_buf();
            move |source| LockError::Io { what, path, source }
        };
        let made_dir = !state_dir.exists();
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(state_dir)
            .map_err(io("make the folder", state_dir))?;
        let meta = std::fs::metadata(state_dir).map_err(io("look at", state_dir))?;
        let uid = nix::unistd::geteuid().as_raw();
        if meta.uid() != uid && meta.uid() != 0 {
            return Err(LockError::Foreign { path: state_dir.into(), owner: meta.uid(), uid });
        }
        if meta.mode() & 0o022 != 0 {
            return Err(LockError::Open { path: state_dir.into(), mode: meta.mode() & 0o7777 });
        }
        let file = hold(&state_dir.join("lock"), 0o644, &format!("since {since}\n"))?;
        Ok(Self { file, made_dir })
    }

    /// Whether the state folder was made for this run.
    #[must_use]
    pub fn made_dir(&self) -> bool {
        self.made_dir
    }
}

/// Takes the flock on a file, and writes there who has it.
fn hold(path: &Path, mode: u32, more: &str) -> Result<Flock<File>, LockError> {
    let io = |what, path: &Path| {
        let path = path.to_path_buf();
        move |source| LockError::Io { what, path, source }
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(mode)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(path)
        .map_err(io("open", path))?;
    let mut file = match Flock::lock(
        file.try_clone().map_err(io("open", path))?,
        FlockArg::LockExclusiveNonblock,
    ) {
        Ok(lock) => lock,
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
            let mut holder = String::new();
            let read = file.read_to_string(&mut holder);
            let holder = match read {
                Ok(_) if !holder.trim().is_empty() => holder.trim().replace('\n', ", "),
                _ => "(it does not say who)".into(),
            };
            return Err(LockError::Held { path: path.into(), holder });
        }
        Err((_, errno)) => return Err(io("lock", path)(errno.into())),
    };
    let host = nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned());
    let host = host.as_deref().unwrap_or("unknown");
    let text = format!("pid {}\nhost {host}\n{more}", std::process::id());
    let written =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
    written.map_err(io("write", path))?;
    Ok(file)
}

/// The held right to change a cluster from this host: an flock on a file in
/// StateSaveLocation, where only SlurmUser and root can open it. Two sjpd's with state
/// folders of their own, by an admin's mistake, would each raise what the other has
/// raised, and move jobs to and fro. Let go when dropped (the file stays).
#[derive(Debug)]
pub struct ActingLock {
    _file: Flock<File>,
}

impl ActingLock {
    /// Takes it. `state`: StateSaveLocation, which several hosts may share; each has a
    /// file of its own.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn take(state: &Path, state_dir: &Path) -> Result<Self, LockError> {
        let host = nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned());
        let path = state.join(format!("sjpd.{}.lock", host.as_deref().unwrap_or("unknown")));
        let more = format!("state_dir {}\n", state_dir.display());
        Ok(Self { _file: hold(&path, 0o600, &more)? })
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // Nobody holds it any more: it must not name anyone.
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!(%error, "cannot empty the lock file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_second_one_is_told_who_holds_it_and_later_gets_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join("run/sjp");
        let first = StateLock::take(&state, "2026-01-02T03:04:05Z").expect("free");
        assert!(first.made_dir());
        let mode = std::fs::metadata(&state).expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let error = StateLock::take(&state, "later").expect_err("taken");
        assert!(matches!(error, LockError::Held { .. }));
        let text = error.to_string();
        let pid = format!("pid {}", std::process::id());
        for part in [pid.as_str(), "since 2026-01-02T03:04:05Z", "host "] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        drop(first);
        assert!(!StateLock::take(&state, "now").expect("free again").made_dir());
    }

    #[test]
    fn one_acts_on_a_host_whatever_its_state_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = ActingLock::take(dir.path(), Path::new("/run/a")).expect("free");
        let error = ActingLock::take(dir.path(), Path::new("/run/b")).expect_err("taken");
        let LockError::Held { path, holder } = error else { panic!("{error}") };
        assert!(holder.contains("state_dir /run/a"), "{holder}");
        let mode = std::fs::metadata(path).expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(first);
        ActingLock::take(dir.path(), Path::new("/run/b")).expect("free again");
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(dir.path(), mode).expect("chmod");
        let error = StateLock::take(dir.path(), "now").expect_err("writable by all");
        assert!(error.to_string().contains("0777"), "{error}");
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_not_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").expect("written");
        let state = dir.path().join("state");
        std::fs::create_dir(&state).expect("made");
        std::os::unix::fs::symlink(&victim, state.join("lock")).expect("linked");
        assert!(StateLock::take(&state, "now").is_err());
        assert_eq!(std::fs::read_to_string(&victim).expect("still there"), "precious");
    }
}
