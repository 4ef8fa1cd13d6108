//! The published table, as the commands read it: attached, copied, let go.

use crate::config::Config;
use nix::unistd::{Uid, User, geteuid};
use sjp_core::promises::Promises;
use sjp_core::publication::{Claim, Promised, Rooms, Roster};
use sjp_table::{AttachError, Capacity, LINK_NAME, ReadError, Reader, now_ns};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One publication, copied.
#[derive(Clone, Debug)]
pub struct Live {
    /// Names, rules and settings.
    pub roster: Roster,
    /// Free room.
    pub rooms: Rooms,
    /// Promised since, by node.
    pub promised: Vec<Promised>,
    /// The claims that these promises are made of.
    pub claims: Vec<Claim>,
    /// Claims that could not be read.
    pub claims_lost: u64,
    /// Age of the node data.
    pub age: Duration,
    /// Time since the publisher's last sign of life.
    pub silent: Duration,
    /// Number of the publication.
    pub generation: u64,
    /// sjpd's process id.
    pub pid: u32,
    /// How much the table can hold.
    pub capacity: Capacity,
}

/// Why there is no publication to read.
#[derive(Debug, thiserror::Error)]
pub enum NoTable {
    /// This user may not.
    #[error("only root and {owner} may read the table in {}", dir.display())]
    NoRights {
        /// Who may.
        owner: String,
        /// state_dir.
        dir: PathBuf,
    },
    /// No state_dir.
    #[error("{}: {source}: is sjpd running, with this [general] state_dir?", dir.display())]
    NoDir {
        /// state_dir.
        dir: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It cannot be attached.
    #[error("{}", attach_words(.0))]
    Attach(#[from] AttachError),
    /// It cannot be read.
    #[error("the table in {}: {source}", dir.display())]
    Read {
        /// state_dir.
        dir: PathBuf,
        /// Why.
        source: ReadError,
    },
}

fn attach_words(e: &AttachError) -> String {
    match std::error::Error::source(e) {
        Some(source) => format!("{e}: {source}"),
        None => e.to_string(),
    }
}

/// A uid as a name, for people.
pub fn user_name(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => format!("uid {uid}"),
    }
}

/// Copies the current publication and what was promised since.
pub fn read(config: &Config) -> Result<Live, NoTable> {
    let dir = config.general.state_dir.as_path();
    let owner = may_read(dir)?;
    let mut reader = attach(dir, owner)?;
    match copy(&mut reader) {
        // sjpd has just made a larger table, or a new one.
        Err(ReadError::Closed) => {
            let mut reader = attach(dir, owner)?;
            copy(&mut reader)
        }
        read => read,
    }
    .map_err(|source| NoTable::Read { dir: dir.into(), source })
}

/// Whether this user may read the table; whose it must be if so.
fn may_read(dir: &Path) -> Result<u32, NoTable> {
    let owner = dir.metadata().map_err(|source| NoTable::NoDir { dir: dir.into(), source })?.uid();
    let me = geteuid();
    if me.is_root() || me.as_raw() == owner {
        Ok(owner)
    } else {
        Err(NoTable::NoRights { owner: user_name(owner), dir: dir.into() })
    }
}

fn attach(dir: &Path, owner: u32) -> Result<Reader, NoTable> {
    Ok(Reader::attach_owned_by(&dir.join(LINK_NAME), owner)?)
}

fn copy(reader: &mut Reader) -> Result<Live, ReadError> {
    let (rooms, meta, generation, roster_id, roster) =
        reader.read_with_roster(|view, roster| {
            (view.to_rooms(), view.meta(), view.generation(), view.roster_id(), roster.clone())
        })?;
    let mut claims = Vec::new();
    let claims_lost = reader.claims_since(meta.claims_taken, &mut claims)?;
    // Indices of another roster mean other nodes.
    claims.retain(|claim| claim.roster == roster_id);
    let mut promises = Promises::new();
    claims.iter().for_each(|claim| promises.add(claim));
    let now = now_ns();
    let since = |then: u64| Duration::from_nanos(now.saturating_sub(then));
    Ok(Live {
        rooms,
        roster,
        promised: promises.as_slice().to_vec(),
        claims,
        claims_lost,
        age: since(meta.data_time_ns),
        silent: since(reader.heartbeat_ns()),
        generation,
        pid: reader.publisher_pid(),
        capacity: reader.capacity(),
    })
}

impl Live {
    /// Whether `place()` answers "stale" by this age.
    pub fn is_stale(&self) -> bool {
        self.age > self.max_age()
    }

    /// `[pin] max_age`, as published.
    pub fn max_age(&self) -> Duration {
        Duration::from_millis(self.roster.policy.max_age_ms)
    }

    /// What has been promised on `node` since.
    pub fn promised_on(&self, node: u32) -> Option<Promised> {
        let at = self.promised.binary_search_by_key(&node, |p| p.node).ok()?;
        self.promised.get(at).copied()
    }
}

impl NoTable {
    /// How a command that needs the table ends.
    pub fn exit(&self) -> crate::cli::Exit {
        match self {
            Self::NoRights { .. } => crate::cli::Exit::NoRights,
            _ => crate::cli::Exit::Critical,
        }
    }
}
