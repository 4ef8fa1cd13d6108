//! From the link in the state directory to an open, checked file, without ever
//! waiting. The link names a process and one of its files; when that process is
//! gone and its number in use again, the file may be anything. So nothing is
//! opened for reading or writing before it is known to be a table.

use crate::error::{AttachError, HeaderError};
use crate::header;
use crate::layout::{self, Layout, WORD};
use crate::map::{Access, Mapping, SEALS};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, open, readlink};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The name of the memfd, as it stands in /proc/PID/fd/N.
pub(crate) const MEMFD_NAME: &str = "sjp-table";

/// A file that was found to be a table.
pub(crate) struct Found {
    pub(crate) file: OwnedFd,
    pub(crate) layout: Layout,
}

/// Opens what `link` points to, if it is a table that belongs to `owner` or to
/// root.
///
/// No step can wait: reading links and `O_PATH` open nothing, and what is then
/// opened is a regular file in memory.
pub(crate) fn open_table(link: &Path, owner: u32) -> Result<Found, AttachError> {
    let system =
        |what| move |source| AttachError::System { link: link.to_path_buf(), what, source };
    let target = follow(link)?;

    // What it is, without opening it.
    let place = open(link, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| gone(link, &target, errno))?;
    let stat = fstat(&place).map_err(system("looking at it"))?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(AttachError::NotMemfd {
            link: link.to_path_buf(),
            target,
            found: "no regular file".into(),
        });
    }
    let kind = fstatfs(&place).map_err(system("looking at its file system"))?;
    if kind.filesystem_type() != TMPFS_MAGIC {
        return Err(AttachError::NotMemfd {
            link: link.to_path_buf(),
            target,
            found: "a file on disk".into(),
        });
    }
    if stat.st_uid != owner && stat.st_uid != 0 {
        return Err(AttachError::Owner {
            link: link.to_path_buf(),
            found: stat.st_uid,
            expected: owner,
        });
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(AttachError::Mode { link: link.to_path_buf(), mode: stat.st_mode & 0o7777 });
    }

    let own = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = open(own.as_str(), flags, Mode::empty()).map_err(system("opening it"))?;
    let seals = fcntl(&file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_retain);
    if !seals.is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(AttachError::Unsealed { link: link.to_path_buf() });
    }
    // Only now does the size stand.
    let size = fstat(&file).map_err(system("looking at its size"))?.st_size;
    let most = i64::MAX / 2;
    let bytes = u64::try_from(size).ok().filter(|_| size <= most && size % WORD as i64 == 0);
    let Some(bytes) = bytes else {
        return Err(AttachError::Size { link: link.to_path_buf(), bytes: size });
    };
    let refuse = |fault| AttachError::Header { link: link.to_path_buf(), fault };
    let least = layout::header::WORDS * WORD;
    if bytes < least as u64 {
        return Err(refuse(HeaderError::Short { bytes: bytes as usize }));
    }
    let head = Mapping::new(file.as_fd(), 0, layout::header::WORDS, Access::Read)
        .map_err(system("mapping its header"))?;
    let layout = header::check(head.words(), bytes).map_err(refuse)?;
    Ok(Found { file, layout })
}

/// Reads the link, and what the kernel says about the file it names.
fn follow(link: &Path) -> Result<PathBuf, AttachError> {
    let target = match readlink(link) {
        Ok(target) => PathBuf::from(target),
        Err(Errno::ENOENT | Errno::ENOTDIR) => {
            return Err(AttachError::NoTable { link: link.to_path_buf() });
        }
        Err(Errno::EINVAL) => {
            return Err(AttachError::NotALink {
                link: link.to_path_buf(),
                found: "not a link".into(),
            });
        }
        Err(source) => {
            let what = "reading the link";
            return Err(AttachError::System { link: link.to_path_buf(), what, source });
        }
    };
    if !is_process_file(&target) {
        return Err(AttachError::NotALink {
            link: link.to_path_buf(),
            found: target.display().to_string(),
        });
    }
    let name = readlink(&target).map_err(|errno| gone(link, &target, errno))?;
    let found = name.to_string_lossy();
    let memfd = found.strip_prefix("/memfd:").and_then(|rest| rest.strip_prefix(MEMFD_NAME));
    if !memfd.is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')) {
        return Err(AttachError::NotMemfd {
            link: link.to_path_buf(),
            target,
            found: found.into_owned(),
        });
    }
    Ok(target)
}

fn gone(link: &Path, target: &Path, errno: Errno) -> AttachError {
    match errno {
        Errno::ENOENT | Errno::ESRCH => {
            AttachError::Dangling { link: link.to_path_buf(), target: target.to_path_buf() }
        }
        // The publisher is of another user or group, or not dumpable; or it is
        // gone, and a process of another user has the number now.
        Errno::EACCES | Errno::EPERM => {
            AttachError::Denied { link: link.to_path_buf(), target: target.to_path_buf() }
        }
        source => {
            AttachError::System { link: link.to_path_buf(), what: "following the link", source }
        }
    }
}

/// `/proc/PID/fd/N` and nothing else.
fn is_process_file(target: &Path) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts: Option<Vec<&str>> = target.to_str().map(|text| text.split('/').collect());
    matches!(parts.as_deref(), Some(["", "proc", pid, "fd", fd]) if number(pid) && number(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_that_is_gone_is_told_from_one_that_is_not_ours() {
        let (link, target) = (Path::new("/run/sjp/table"), Path::new("/proc/1/fd/9"));
        assert!(matches!(gone(link, target, Errno::ENOENT), AttachError::Dangling { .. }));
        let denied = gone(link, target, Errno::EACCES);
        assert!(matches!(denied, AttachError::Denied { .. }));
        assert!(denied.to_string().contains("same user and primary group"), "{denied}");
    }
}
