//! Which slurmctld acts, where there are several.
//!
//! `scontrol ping` tells which ones answer, and one that stands by answers too;
//! no command tells which one acts. They find out among themselves by a file:
//! the one that acts writes `StateSaveLocation/heartbeat` at once when it takes
//! over, and then every quarter of SlurmctldTimeout, at most 30 s: the time and
//! its index in the list of SlurmctldHost, 64 bits each, in network byte order
//! (Slurm 22.05, 24.11 and 26.05 alike, seen with two of them). The index alone is
//! used: clocks differ, and as long as nobody else has taken over, whoever wrote
//! last is the one whose turn it is.

use crate::ports::ReadError;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// The file's name in StateSaveLocation.
pub const FILE: &str = "heartbeat";
/// It is unlinked for a moment while it is written anew.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// Reads the index of the controller that acts. May block for as long as the
/// file system does.
///
/// # Errors
/// Where it cannot be read, or is something else.
pub fn read(file: &Path) -> Result<usize, ReadError> {
    let mut tries = 1;
    loop {
        match read_once(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            Ok(bytes) => {
                return index(&bytes).ok_or_else(|| unreadable(file, "not as Slurm writes it"));
            }
            Err(error) => return Err(unreadable(file, &error.to_string())),
        }
    }
}

fn unreadable(file: &Path, why: &str) -> ReadError {
    ReadError::Unreadable {
        what: "slurmctld's heartbeat",
        why: format!("{}: {why}", file.display()),
    }
}

fn read_once(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The index in a heartbeat; `None`: it is none.
fn index(bytes: &[u8]) -> Option<usize> {
    let (time, index) = bytes.split_first_chunk::<8>()?;
    let index = <[u8; 8]>::try_from(index).ok()?;
    let index = usize::try_from(u64::from_be_bytes(index)).ok()?;
    (u64::from_be_bytes(*time) > 0 && index < 1024).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_names_its_controller() {
        // As 22.05 wrote it.
        let seen = [0, 0, 0, 0, 0x6b, 0x0d, 0xf1, 0x39, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(index(&seen), Some(1));
        for bad in [&seen[..15], &[0; 16], &[0xff; 16], &[seen, seen].concat(), b""] {
            assert_eq!(index(bad), None, "{bad:?}");
        }
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join(FILE);
        let error = read(&file).expect_err("not there").to_string();
        assert!(error.contains("heartbeat: No such file"), "{error}");
        std::fs::write(&file, seen).expect("written");
        assert_eq!(read(&file).expect("there"), 1);
    }

    #[test]
    fn a_moment_without_the_file_is_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join(FILE);
        let there = file.clone();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(PAUSE / 2);
            let new = there.with_extension("new");
            std::fs::write(&new, [[0, 0, 0, 0, 0, 0, 0, 9u8], [0; 8]].concat()).expect("written");
            std::fs::rename(&new, &there).expect("renamed");
        });
        assert_eq!(read(&file).expect("there by now"), 0);
        writer.join().expect("no panic");
    }
}
