//! sjp.toml: reading and checking it, and writing out what is in force.
//!
//! `settings` defines every key once; `read` turns a file into a `Config` with
//! all errors at once; `checks` looks at settings that only make sense
//! together; `render` writes the annotated file and the manual page.

mod checks;
mod error;
mod read;
mod render;
mod settings;
#[cfg(test)]
mod tests;
mod value;

pub use error::{ConfigError, ConfigErrors, Notice};
pub use render::{annotated, manual};
pub use settings::{
    Active, Cadence, Commands, Config, General, Guard, Limits, LimitsMode, LogLevel, Metrics, Pin,
    PolicySection, Recheck, SECTIONS, SETTINGS, Section, Setting, Starvation, Topology, Use,
};
pub use value::{Kind, Listen, MAX_DEMAND, MaybeFile, TimeUnit, Value};
pub(crate) use value::{check_path, nearest};

use sjp_core::config::{Mode, Policy};
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "/etc/sjp/sjp.toml";
/// A settings file above this size (in bytes) is refused.
const MAX_FILE: u64 = 1 << 20;

/// Where the settings come from: a file, and what the command line overrules.
/// Kept for the life of sjpd, so that a re-read applies the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// `--config`; `None`: `DEFAULT_FILE`, which need not exist.
    pub file: Option<PathBuf>,
    /// `--mode`.
    pub mode: Option<Mode>,
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
}

impl Source {
    /// The file that is read.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.as_deref().unwrap_or_else(|| Path::new(DEFAULT_FILE))
    }

    /// Reads and checks the settings.
    ///
    /// # Errors
    /// Every error of the file, or that it cannot be read. That the default
    /// file does not exist is a notice.
    pub fn load(&self) -> Result<(Config, Vec<Notice>), ConfigErrors> {
        let path = self.path();
        let (mut config, mut notices) = if self.file.is_none() && missing(path) {
            let text = "does not exist: the defaults apply";
            (Config::default(), vec![Notice::about_file(path, text)])
        } else {
            Config::load(path)?
        };
        if let Some(mode) = self.mode {
            config.general.mode = mode;
        }
        if let Some(dir) = &self.state_dir {
            config.general.state_dir.clone_from(dir);
        }
        notices.sort_by_key(|n| (n.line, n.column));
        Ok((config, notices))
    }
}

/// Whether nothing is there. A folder that may not be searched is not nothing.
fn missing(path: &Path) -> bool {
    matches!(path.symlink_metadata(), Err(e) if e.kind() == std::io::ErrorKind::NotFound)
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Every error in the file, in file order; or that it cannot be read.
    pub fn load(path: &Path) -> Result<(Self, Vec<Notice>), ConfigErrors> {
        let failed = |what: String| ConfigErrors::unreadable(path, what);
        let cannot = |e: std::io::Error| failed(format!("cannot be read: {}", error::io_words(&e)));
        let about = path.metadata().map_err(cannot)?;
        if !about.is_file() {
            return Err(failed("is not a regular file".into()));
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .map_err(cannot)?
            .take(MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(cannot)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(failed("is larger than 1 MB: not a settings file".into()));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(text, path),
            Err(e) => {
                let before = bytes.get(..e.valid_up_to()).unwrap_or_default();
                let line = 1 + before.iter().filter(|b| **b == b'\n').count();
                Err(failed(format!("line {line} is not UTF-8 text")))
            }
        }
    }

    /// Reads and checks the text of a file; `path` is named in errors.
    ///
    /// # Errors
    /// Every error in the text, in its order.
    pub fn parse(text: &str, path: &Path) -> Result<(Self, Vec<Notice>), ConfigErrors> {
        read::read(text, path)
    }

    /// What placement depends on.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let max_age = self.pin.max_age.min(self.cadence.policy_max_age);
        Policy {
            mode: self.general.mode,
            demand: self.policy.demand.clone(),
            tolerance: self.policy.tolerance,
            always_place: self.policy.always_place,
            no_room: self.policy.no_room,
            user_partition: self.policy.user_partition,
            user_nodes: self.policy.user_nodes,
            pin: self.pin.enabled,
            min_gain_share: self.pin.min_gain_share,
            min_gain: self.pin.min_gain,
            min_ratio_gain: self.pin.min_ratio_gain,
            tie: self.pin.tie,
            max_age_ms: u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX),
            batch_partitions: self.topology.batch_partitions.clone(),
            exclude_partitions: self.topology.exclude_partitions.clone(),
            exclude_interactive: self.topology.exclude_interactive,
            exclude_gpu_nodes: self.topology.exclude_gpu_nodes,
        }
    }
}

impl Commands {
    /// The path of `scontrol`, `squeue` or `sacctmgr`: as set, else the first
    /// in `search` (the value of PATH) that can be run.
    #[must_use]
    pub fn path(&self, name: &str, search: &OsStr) -> Option<PathBuf> {
        let set = match name {
            "scontrol" => &self.scontrol,
            "squeue" => &self.squeue,
            "sacctmgr" => &self.sacctmgr,
            _ => &None,
        };
        set.clone().or_else(|| find_in(search, name))
    }
}

/// The first regular file called `name` in `search` that this process may run.
fn find_in(search: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(search).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(
        |file| file.is_file() && nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok(),
    )
}
