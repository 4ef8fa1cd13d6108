//! `status.json`: what sjpd tells of itself, written into state_dir about once
//! a second, and read by `sjp status` and by whoever watches sjpd. It is the
//! whole file in one go: written beside itself, then renamed.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The file's name within state_dir.
pub const FILE: &str = "status.json";
/// The form of the file. A reader takes what it knows and ignores the rest;
/// this number rises when a known field changes its meaning.
pub const FORMAT: u32 = 1;
/// sjpd writes at least this often, in seconds.
pub const WRITE_EVERY: f64 = 1.0;

/// How the polls of one kind go. Times are Unix seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Poll {
    /// When slurmctld was last asked; `None`: not yet.
    pub asked_at: Option<f64>,
    /// When the last good answer came.
    pub ok_at: Option<f64>,
    /// How long the last answer took, in seconds.
    pub took: Option<f64>,
    /// What went wrong last; `None` after a good answer.
    pub error: Option<String>,
    /// Failures since the last good answer.
    pub failures: u64,
    /// How often this kind is asked now, in seconds (longer while backing off).
    pub interval: f64,
}

/// Counts since sjpd started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claims {
    /// Read from the ring.
    pub seen: u64,
    /// Matched with a job of the queue.
    pub matched: u64,
    /// No job appeared for them.
    pub expired: u64,
    /// Overwritten in the ring before they were read.
    pub lost: u64,
    /// Counted against nodes at this moment.
    pub open: u64,
}

/// Pins. All but `waiting` count since sjpd started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pins {
    /// Pending jobs that hold a pin of sjp's now.
    pub waiting: u64,
    /// Pins released.
    pub released: u64,
    /// Pins that should have been released by now and could not be.
    pub overdue: u64,
}

/// What was done for waiting jobs, since sjpd started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waits {
    /// Rechecks.
    pub rechecks: u64,
    /// Jobs moved to where there was room.
    pub moved: u64,
    /// Jobs given every partition, since there was no room.
    pub opened: u64,
    /// Of such, the ones narrowed again.
    pub narrowed: u64,
    /// Pins to nodes that are expected to have room first.
    pub waiting_for_room: u64,
    /// Jobs widened after their budget.
    pub widened: u64,
    /// Jobs that somebody else changed, and whose mark went.
    pub let_go: u64,
    /// Changes that the last recheck left for the next queues: now.
    pub left: u64,
}

/// Held jobs and raised caps (`[limits]`). `moved`, `returned`, `pulses` and
/// `lowered` count since sjpd started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// `[limits] mode`.
    pub mode: String,
    /// Jobs that only a CPU cap of their QOS held, at the last check.
    pub held: u64,
    /// The idle share of the placeable capacity then; `None`: not looked at.
    pub idle: Option<f64>,
    /// Jobs that wait in the flex QOS.
    pub in_flex: u64,
    /// Jobs moved to the flex QOS.
    pub moved: u64,
    /// Jobs given back their own QOS.
    pub returned: u64,
    /// Users who may not use the flex QOS, though jobs of theirs were held.
    pub denied: u64,
    /// Times that the caps of a QOS were raised.
    pub pulses: u64,
    /// Times that they were given back.
    pub lowered: u64,
    /// What is recorded as raised.
    pub raised: Vec<RaisedCaps>,
}

/// A QOS whose caps are recorded as raised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RaisedCaps {
    /// The QOS.
    pub qos: String,
    /// The caps to go back to, for people.
    pub base: String,
    /// The raised caps, for people.
    pub raised: String,
    /// Since when, Unix seconds.
    pub since: i64,
}

/// What the cluster looks like to sjpd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Nodes that Slurm shows.
    pub nodes: u64,
    /// Of those, the ones that a job may be placed on.
    pub usable: u64,
    /// Partitions that Slurm shows.
    pub partitions: u64,
    /// Of those, the ones that sjp assigns.
    pub open_partitions: u64,
    /// Pending jobs.
    pub pending: u64,
    /// Jobs that have nodes.
    pub running: u64,
}

/// An error worth telling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trouble {
    /// When, Unix seconds.
    pub at: f64,
    /// What sjpd was doing (`nodes`, `release of job 12`, `decision log`, ...).
    pub what: String,
    /// What went wrong.
    pub error: String,
}

/// The table as published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableState {
    /// Size of the mapping, bytes.
    pub bytes: u64,
    /// Nodes it has room for.
    pub node_capacity: u64,
    /// Claims its ring has room for.
    pub claim_capacity: u64,
    /// Publications since sjpd started.
    pub generation: u64,
    /// Why nothing could be published last; `None`: it could.
    pub error: Option<String>,
}

/// A log file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogState {
    /// Path; `None`: off.
    pub path: Option<PathBuf>,
    /// Lines written since sjpd started.
    pub lines: u64,
    /// Lines that could not be written.
    pub dropped: u64,
    /// Why the last line could not be written; `None`: it could.
    pub error: Option<String>,
}

/// All of `status.json`. Times are Unix seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// `FORMAT`.
    pub format: u32,
    /// When this was written.
    pub written: f64,
    /// sjpd's process id.
    pub pid: u32,
    /// Start of that process in clock ticks since boot (field 22 of
    /// /proc/PID/stat): another process that got the id has another.
    pub pid_start: u64,
    /// sjpd's version.
    pub version: String,
    /// When it started.
    pub started: f64,
    /// `observe`, `advise` or `enforce`.
    pub mode: String,
    /// `--dry-run`.
    pub dry_run: bool,
    /// Whether it may act here: false on the spare slurmctld host.
    pub active: bool,
    /// The same in more detail: `active`, `standby`, `rival` (another sjpd of this host
    /// acts), `never`, `elsewhere` (no
    /// controller's host), `asking` or `unknown`.
    pub standing: String,
    /// And in words, after "sjpd ".
    pub standing_words: String,
    /// Whether the disable file was there.
    pub disabled: bool,
    /// The settings file; `None`: there is none, the defaults apply.
    pub config_file: Option<PathBuf>,
    /// What is wrong with that file since a re-read; the older settings apply.
    pub config_error: Option<String>,
    /// Notices of that file.
    pub config_notices: Vec<String>,
    /// The cluster's name, once known.
    pub cluster: Option<String>,
    /// Slurm's version, once known.
    pub slurm_version: Option<String>,
    /// Nodes and partitions.
    pub nodes: Poll,
    /// The queue.
    pub queue: Poll,
    /// Slurm's configuration.
    pub config: Poll,
    /// Reservations.
    pub reservations: Poll,
    /// QOS caps.
    pub qos: Poll,
    /// Associations.
    pub associations: Poll,
    /// CPU caps as the database has them; asked for only while it matters.
    pub qos_limits: Poll,
    /// What the cluster looks like.
    pub counts: Counts,
    /// Claims.
    pub claims: Claims,
    /// Pins.
    pub pins: Pins,
    /// Waiting jobs.
    pub waits: Waits,
    /// Held jobs and raised caps.
    pub limits: Limits,
    /// The last errors, newest last; at most `MAX_ERRORS`.
    pub errors: Vec<Trouble>,
    /// The table.
    pub table: TableState,
    /// The decision log.
    pub log: LogState,
    /// The same in words.
    pub text_log: LogState,
}

/// How many errors are kept.
pub const MAX_ERRORS: usize = 10;

impl Status {
    /// Keeps an error, and drops the oldest when there are too many.
    pub fn trouble(&mut self, at: f64, what: impl Into<String>, error: impl Into<String>) {
        if self.errors.len() >= MAX_ERRORS {
            let too_many = self.errors.len() + 1 - MAX_ERRORS;
            self.errors.drain(..too_many);
        }
        self.errors.push(Trouble { at, what: what.into(), error: error.into() });
    }

    /// Writes the file into `state_dir`, readable by everyone, in one step: a
    /// reader sees the older or the newer one, never a part.
    ///
    /// # Errors
    /// What the system said about writing or renaming.
    pub fn write(&self, state_dir: &Path) -> io::Result<()> {
        use std::io::Write as _;
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let temporary = state_dir.join(".status.json.new");
        // A link planted there is not followed: it is removed first.
        match std::fs::remove_file(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&temporary)?;
        // The umask may have taken away what monitoring needs.
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.write_all(&text)?;
        file.write_all(b"\n")?;
        drop(file);
        std::fs::rename(&temporary, state_dir.join(FILE))
    }

    /// Reads the file from `state_dir`.
    ///
    /// # Errors
    /// What the system said; `InvalidData` where it is no status file.
    pub fn read(state_dir: &Path) -> io::Result<Self> {
        use std::io::Read as _;
        const MOST: u64 = 1 << 20;
        let file = std::fs::File::open(state_dir.join(FILE))?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
        }
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text)?;
        serde_json::from_str(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

/// Start of a process in clock ticks since boot; `None` where there is no such
/// process.
#[must_use]
pub fn process_start(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name stands in parentheses and may hold anything.
    let after = stat.rsplit_once(") ")?.1;
    after.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn written_and_read_again_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let mut status = Status { pid: 7, mode: "advise".into(), ..Status::default() };
        status.nodes.took = Some(0.25);
        for i in 0..MAX_ERRORS + 3 {
            status.trouble(i as f64, "nodes", format!("error {i}"));
        }
        assert_eq!(status.errors.len(), MAX_ERRORS);
        assert_eq!(status.errors.last().unwrap().error, format!("error {}", MAX_ERRORS + 2));
        status.write(dir.path()).unwrap();
        status.write(dir.path()).unwrap();
        assert_eq!(Status::read(dir.path()).unwrap(), status);
        let mode = dir.path().join(FILE).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn fields_of_other_versions_are_no_hindrance() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{\"pid\": 9, \"new\": [1]}").unwrap();
        assert_eq!(Status::read(dir.path()).unwrap().pid, 9);
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(Status::read(dir.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join(".status.json.new")).unwrap();
        Status::default().write(dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(victim).unwrap(), "kept");
    }

    #[test]
    fn a_process_has_a_start() {
        assert!(process_start(std::process::id()).is_some_and(|t| t > 0));
        assert_eq!(process_start(0), None);
    }
}
