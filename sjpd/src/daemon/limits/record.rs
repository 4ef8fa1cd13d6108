//! The caps to go back to while some are raised: `[limits] state_file`.
//!
//! Written whole, beside itself, then renamed, and on the disk before a change
//! is begun: whenever sjpd ends, the next one finds what is to be given back.

use serde::{Deserialize, Serialize};
use sjp_core::limits::pulse::Raised;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The form of the file.
const FORMAT: u32 = 1;
/// A file above this size, in bytes, is none of sjpd's.
const MOST: u64 = 1 << 20;

/// The file's text.
#[derive(Debug, Serialize, Deserialize)]
struct Text {
    format: u32,
    qos: BTreeMap<String, Raised>,
}

/// The record, in memory as on the disk.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    qos: BTreeMap<String, Raised>,
}

impl Record {
    /// Reads the file; where there is none, nothing is raised. A file that
    /// cannot be understood is put aside: what was wrong is answered too.
    pub fn open(path: &Path) -> (Self, Option<String>) {
        let (qos, wrong) = match read(path) {
            Ok(qos) => (qos, None),
            Err(error) => {
                let aside = beside(path, ".unreadable");
                let put = match std::fs::rename(path, &aside) {
                    Ok(()) => format!("put aside as {}", aside.display()),
                    Err(error) => format!("cannot be put aside: {error}"),
                };
                let wrong = format!(
                    "{}: {error}; {put}: look whether caps of a QOS are still raised \
                     (sacctmgr show qos format=name,maxtrespu,maxtrespa)",
                    path.display()
                );
                (BTreeMap::new(), Some(wrong))
            }
        };
        (Self { path: path.to_path_buf(), qos }, wrong)
    }

    /// What is raised, or may be.
    #[must_use]
    pub fn qos(&self) -> &BTreeMap<String, Raised> {
        &self.qos
    }

    /// Records a pulse: on the disk when this returns.
    ///
    /// # Errors
    /// What the system said; then nothing is recorded.
    pub fn put(&mut self, qos: &str, raised: Raised) -> io::Result<()> {
        let before = self.qos.insert(qos.to_owned(), raised);
        self.save().inspect_err(|_| {
            match before {
                Some(before) => self.qos.insert(qos.to_owned(), before),
                None => self.qos.remove(qos),
            };
        })
    }

    /// Takes a pulse out.
    ///
    /// # Errors
    /// What the system said: the file may still have it, which does no harm
    /// while the caps are not what it says.
    pub fn remove(&mut self, qos: &str) -> io::Result<()> {
        if self.qos.remove(qos).is_none() {
            return Ok(());
        }
        self.save()
    }

    /// Moves the record to another file.
    ///
    /// # Errors
    /// What the system said; then it stays where it is.
    pub fn move_to(&mut self, path: &Path) -> io::Result<()> {
        if path == self.path {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.path, path.to_path_buf());
        if self.qos.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.save() {
            self.path = old;
            return Err(error);
        }
        std::fs::remove_file(&old)
    }

    fn save(&self) -> io::Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        if self.qos.is_empty() {
            return match std::fs::remove_file(&self.path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => sync(dir),
            };
        }
        let text = Text { format: FORMAT, qos: self.qos.clone() };
        let text = serde_json::to_vec_pretty(&text).map_err(io::Error::other)?;
        let new = beside(&self.path, ".new");
        // A link planted there is not followed: it is removed first.
        match std::fs::remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
        file.write_all(&text)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        sync(dir)
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What a record holds; nothing where there is none.
///
/// # Errors
/// What the system said; `InvalidData` where it is no record.
pub fn read(path: &Path) -> io::Result<BTreeMap<String, Raised>> {
    use std::io::Read as _;
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other?,
    };
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text)?;
    let text: Text = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    if text.format != FORMAT {
        return Err(bad(format!("format {} (this sjpd reads {FORMAT})", text.format)));
    }
    Ok(text.qos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sjp_core::limits::pulse::Caps;

    fn raised(at: i64) -> Raised {
        Raised::from(Caps { user: Some(8), account: None }, 2.0, at).expect("it rises")
    }

    fn open(path: &Path) -> Record {
        let (record, wrong) = Record::open(path);
        assert_eq!(wrong, None);
        record
    }

    #[test]
    fn what_is_put_is_there_after_a_crash_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("limits.json");
        let mut record = open(&path);
        assert!(record.qos().is_empty() && !path.exists());
        record.put("normal", raised(7)).expect("saved");
        record.put("high", raised(8)).expect("saved");
        assert_eq!(open(&path).qos(), record.qos());
        record.remove("normal").expect("saved");
        assert_eq!(open(&path).qos().keys().collect::<Vec<_>>(), ["high"]);
        let elsewhere = dir.path().join("other.json");
        record.move_to(&elsewhere).expect("moved");
        assert!(!path.exists());
        assert_eq!(open(&elsewhere).qos(), record.qos());
        record.remove("high").expect("saved");
        record.remove("high").expect("nothing to do");
        assert_eq!(dir.path().read_dir().expect("a folder").count(), 0);
    }

    #[test]
    fn what_cannot_be_saved_is_not_recorded() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut record = open(&dir.path().join("missing/limits.json"));
        assert!(record.put("normal", raised(7)).is_err());
        assert!(record.qos().is_empty());
    }

    #[test]
    fn a_file_that_is_none_is_put_aside() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("limits.json");
        for text in ["", "{", "{\"format\":2,\"qos\":{}}", "{\"format\":1,\"qos\":{\"a\":7}}"] {
            std::fs::write(&path, text).expect("written");
            let (record, wrong) = Record::open(&path);
            assert!(record.qos().is_empty());
            assert!(wrong.is_some_and(|w| w.contains("put aside")), "{text}");
            assert!(!path.exists());
        }
    }

    #[test]
    fn the_form_of_the_file_is_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("limits.json");
        let text = "{\"format\":1,\"qos\":{\"normal\":{\"base\":{\"user\":8},\
                    \"raised\":{\"user\":16},\"at\":7}}}";
        std::fs::write(&path, text).expect("written");
        assert_eq!(open(&path).qos()["normal"], raised(7));
    }
}
