//! Free TCP ports, reserved across test processes that run at the same time.
//!
//! A port is taken by holding a lock on a file of its number; the lock goes with
//! the process. The range lies below the system's ephemeral ports.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

const FIRST: u16 = 12000;
const COUNT: u16 = 18000;

/// A set of reserved ports; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    held: Vec<(u16, Flock<File>)>,
}

impl Ports {
    /// Takes one more port that nobody listens on.
    pub fn take(&mut self, lock_dir: &Path) -> Result<u16> {
        let begin = self.held.last().map_or_else(any_offset, |(port, _)| port - FIRST + 1);
        for step in 0..COUNT {
            let port = FIRST + (begin % COUNT + step) % COUNT;
            let path = lock_dir.join(port.to_string());
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .with_context(|| format!("cannot open {}", path.display()))?;
            let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { continue };
            if TcpListener::bind(("0.0.0.0", port)).is_ok() {
                self.held.push((port, lock));
                return Ok(port);
            }
        }
        bail!("no free port between {FIRST} and {}", FIRST + COUNT - 1)
    }
}

/// A place to begin the search at, different from process to process.
fn any_offset() -> u16 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    let mixed = (nanos / 1000).wrapping_add(std::process::id().wrapping_mul(7919));
    u16::try_from(mixed % u32::from(COUNT)).unwrap_or(0)
}
