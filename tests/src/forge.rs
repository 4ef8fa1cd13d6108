//! Tables that are none, or that another sjpd would have made: for tests of what the
//! module makes of them.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::life::table_target;

/// Bytes of a word of the table.
pub const WORD: usize = 8;
/// The word that holds the layout's version.
pub const VERSION_WORD: usize = 1;
/// The word that says how many bytes the table has.
pub const TOTAL_WORD: usize = 4;

/// A file in memory, held open by this process.
#[derive(Debug)]
pub struct Forged {
    file: OwnedFd,
}

impl Forged {
    /// A file of this name with these bytes, for its owner only; sealed against a
    /// change of size where asked for.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(name: &str, bytes: &[u8], sealed: bool) -> Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(name, flags).context("memfd_create")?;
        let mut file = File::from(file);
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).context("fchmod")?;
        file.write_all(bytes).context("writing a file in memory")?;
        if sealed {
            let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
            fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).context("sealing a file in memory")?;
        }
        Ok(Forged { file: file.into() })
    }

    /// Lets everybody read and write it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open_to_all(self) -> Result<Self> {
        let file = File::from(self.file);
        file.set_permissions(std::fs::Permissions::from_mode(0o666)).context("fchmod")?;
        Ok(Forged { file: file.into() })
    }

    /// Gives it to a user.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn owned_by(self, uid: u32) -> Result<Self> {
        std::os::unix::fs::fchown(&self.file, Some(uid), None).context("fchown")?;
        Ok(self)
    }

    /// How others reach it.
    pub fn path(&self) -> PathBuf {
        path_of(&self.file)
    }
}

/// How others reach an open file of this process.
pub fn path_of(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// Makes `state_dir/table` lead to `target`, through a rename.
///
/// # Errors
/// When the folder cannot be written.
pub fn link_table(state_dir: &Path, target: &Path) -> Result<()> {
    let (link, new) = (state_dir.join("table"), state_dir.join("table.new"));
    std::fs::create_dir_all(state_dir).context("making the folder for a table")?;
    std::os::unix::fs::symlink(target, &new).context("making a link")?;
    std::fs::rename(&new, &link).context("renaming a link")
}

/// The bytes of the table that is there now.
///
/// # Errors
/// When there is none.
pub fn table_bytes(state_dir: &Path) -> Result<Vec<u8>> {
    let target = table_target(state_dir)?;
    let mut bytes = Vec::new();
    let mut file = File::open(&target).with_context(|| format!("opening {}", target.display()))?;
    file.read_to_end(&mut bytes).context("reading the table")?;
    Ok(bytes)
}

/// A word of a table.
pub fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[index * WORD..(index + 1) * WORD]);
    u64::from_ne_bytes(word)
}

/// Sets a word of a table.
pub fn set_word(bytes: &mut [u8], index: usize, value: u64) {
    bytes[index * WORD..(index + 1) * WORD].copy_from_slice(&value.to_ne_bytes());
}
