//! One log file: appended to, opened again when it was renamed or removed,
//! and never a reason to stop. Lines that cannot be written are counted, and
//! the log says so once it works again.

use super::Entry;
use crate::status::LogState;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a file that cannot be opened is tried again, and an open one is
/// compared with what its path names now.
const LOOK: Duration = Duration::from_secs(1);

/// A log file.
#[derive(Debug)]
pub struct Sink {
    path: PathBuf,
    file: Option<File>,
    looked: Option<Instant>,
    /// Half a line may stand at the end of the file.
    torn: bool,
    dropped: u64,
    dropped_in_all: u64,
    lines: u64,
    error: Option<io::Error>,
}

impl Sink {
    /// Opens `path`, making its folder where it is missing. A failure is
    /// remembered and tried again at later writes.
    #[must_use]
    pub fn open(path: PathBuf) -> Self {
        let mut sink = Self {
            path,
            file: None,
            looked: None,
            torn: false,
            dropped: 0,
            dropped_in_all: 0,
            lines: 0,
            error: None,
        };
        sink.reopen();
        sink
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lines written and lost since the start, and why the last one was.
    #[must_use]
    pub fn state(&self) -> LogState {
        LogState {
            path: Some(self.path.clone()),
            lines: self.lines,
            dropped: self.dropped_in_all,
            error: self.error.as_ref().map(ToString::to_string),
        }
    }

    /// Opens the path again.
    pub fn reopen(&mut self) {
        self.looked = Some(Instant::now());
        match open(&self.path) {
            Ok(file) => {
                self.file = Some(file);
                self.torn = false;
            }
            Err(error) => {
                // The old file, if there is one, is better than none.
                self.failed("open", error);
            }
        }
    }

    /// Appends `line`; before it, if lines were lost, what `gap` makes of that.
    pub fn write(&mut self, line: &str, gap: impl FnOnce(&Entry) -> String) {
        self.look();
        if self.dropped > 0 && self.file.is_some() {
            let error = self.error.as_ref().map_or_else(String::new, ToString::to_string);
            let words = format!("{} lines were lost here: {error}", self.dropped);
            let entry = Entry::new("gap", words).with("dropped", self.dropped).with("error", error);
            if self.append(&gap(&entry)) {
                tracing::info!(log = %self.path.display(), dropped = self.dropped, "log works again");
                self.dropped = 0;
                self.error = None;
            } else {
                self.lost();
                return;
            }
        }
        if self.append(line) {
            self.lines += 1;
        } else {
            self.lost();
        }
    }

    fn lost(&mut self) {
        self.dropped += 1;
        self.dropped_in_all += 1;
    }

    /// Reopens where the path names another file by now, or none.
    fn look(&mut self) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        let same = match (&self.file, std::fs::metadata(&self.path)) {
            (Some(file), Ok(there)) => {
                file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == (there.dev(), there.ino()))
            }
            _ => false,
        };
        if !same {
            self.reopen();
        }
    }

    fn append(&mut self, line: &str) -> bool {
        let Some(file) = &mut self.file else { return false };
        let before = file.metadata().map(|m| m.len());
        let text = if self.torn { format!("\n{line}") } else { line.to_owned() };
        match file.write_all(text.as_bytes()) {
            Ok(()) => {
                self.torn = false;
                true
            }
            Err(error) => {
                // Part of the line may stand there: cut it off again.
                let cut = before.and_then(|len| file.set_len(len));
                self.torn = self.torn || cut.is_err();
                self.failed("write", error);
                false
            }
        }
    }

    fn failed(&mut self, what: &str, error: io::Error) {
        let known = self.error.as_ref().is_some_and(|e| e.kind() == error.kind());
        if !known {
            tracing::warn!(log = %self.path.display(), %error, "cannot {what} a decision log; going on");
        }
        self.error = Some(error);
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn gap(entry: &Entry) -> String {
        format!("GAP {}\n", entry.words())
    }

    /// As if the last look at the path had been a while ago.
    fn later(sink: &mut Sink) {
        sink.looked = None;
    }

    #[test]
    fn a_renamed_or_removed_file_is_followed_by_a_new_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.log");
        let mut sink = Sink::open(path.clone());
        sink.write("one\n", gap);
        fs::rename(&path, dir.path().join("a.log.1")).expect("renamed");
        later(&mut sink);
        sink.write("two\n", gap);
        assert_eq!(fs::read_to_string(&path).expect("new file"), "two\n");
        fs::remove_file(&path).expect("removed");
        later(&mut sink);
        sink.write("three\n", gap);
        assert_eq!(fs::read_to_string(&path).expect("new file"), "three\n");
        let old = fs::read_to_string(dir.path().join("a.log.1")).expect("old file");
        assert_eq!(old, "one\n");
    }

    #[test]
    fn a_full_disk_drops_lines_counts_them_and_says_so_afterwards() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.log");
        std::os::unix::fs::symlink("/dev/full", &path).expect("linked");
        let mut sink = Sink::open(path.clone());
        for _ in 0..3 {
            sink.write("lost\n", gap);
        }
        assert_eq!(sink.state().dropped, 3);
        fs::remove_file(&path).expect("removed");
        later(&mut sink);
        sink.write("kept\n", gap);
        let text = fs::read_to_string(&path).expect("new file");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("GAP 3 lines were lost here: No space left"), "{text}");
        assert_eq!(lines[1], "kept");
        sink.write("more\n", gap);
        assert_eq!(fs::read_to_string(&path).expect("file").lines().count(), 3, "one gap line");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_reason_to_stop() {
        let dir = tempfile::tempdir().expect("a folder");
        let blocker = dir.path().join("logs");
        fs::write(&blocker, "a file where the folder should be").expect("written");
        let path = blocker.join("a.log");
        let mut sink = Sink::open(path.clone());
        sink.write("lost\n", gap);
        fs::remove_file(&blocker).expect("removed");
        later(&mut sink);
        sink.write("kept\n", gap);
        let text = fs::read_to_string(&path).expect("folder and file were made");
        assert!(text.starts_with("GAP 1 lines") && text.ends_with("kept\n"), "{text}");
    }
}
