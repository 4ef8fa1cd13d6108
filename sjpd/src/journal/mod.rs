//! The decision log: what sjpd saw, decided and changed, as JSON lines and
//! the same in words. A log that cannot be written never stops sjpd.

mod sink;

pub use sink::Sink;

use crate::status::LogState;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;

/// Where the decision log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalPaths {
    /// `[general] log_file`: JSON lines. `None`: off.
    pub json: Option<PathBuf>,
    /// `[general] text_log`: in words. `None`: off.
    pub text: Option<PathBuf>,
}

/// One thing worth remembering: an event name, fields for machines, words
/// for people.
#[derive(Clone, Debug)]
pub struct Entry {
    event: &'static str,
    fields: Map<String, Value>,
    words: String,
}

impl Entry {
    /// An entry. `words` are escaped when written; they may hold users' text.
    #[must_use]
    pub fn new(event: &'static str, words: impl Into<String>) -> Self {
        Self { event, fields: Map::new(), words: words.into() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        self.fields.insert(key.to_owned(), value);
        self
    }

    /// Adds a field where there is a value.
    #[must_use]
    pub fn with_some(self, key: &str, value: Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// The event's name.
    #[must_use]
    pub fn event(&self) -> &'static str {
        self.event
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &str {
        &self.words
    }

    /// A field's value.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&Value> {
        self.fields.get(key)
    }

    fn json_line(&self, now: Timestamp) -> String {
        let mut line = Map::new();
        line.insert("time".into(), Value::String(clock(now)));
        line.insert("event".into(), Value::String(self.event.into()));
        line.insert("words".into(), Value::String(self.words.clone()));
        line.extend(self.fields.iter().map(|(k, v)| (k.clone(), v.clone())));
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        text
    }

    fn text_line(&self, now: Timestamp) -> String {
        format!("{} {:<9} {}\n", clock(now), self.event, plain(&self.words))
    }
}

/// A time as the log writes it: UTC, to the millisecond.
#[must_use]
pub fn clock(now: Timestamp) -> String {
    format!("{now:.3}")
}

/// Text that may come from a user, fit for one line of a terminal: control
/// characters, line separators and direction overrides are written out.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let steers = matches!(c, '\u{2028}' | '\u{2029}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if c.is_control() || steers {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The decision log, shared by the loop and the hands that change things.
/// The lock is held for a write only, never across an await.
#[derive(Clone, Debug)]
pub struct Journal {
    sinks: Arc<Mutex<Sinks>>,
}

#[derive(Debug)]
struct Sinks {
    json: Option<Sink>,
    text: Option<Sink>,
}

impl Journal {
    /// Opens both logs; one that cannot be opened is tried again later.
    #[must_use]
    pub fn open(paths: &JournalPaths) -> Self {
        let sinks = Sinks {
            json: paths.json.clone().map(Sink::open),
            text: paths.text.clone().map(Sink::open),
        };
        Self { sinks: Arc::new(Mutex::new(sinks)) }
    }

    /// Writes one entry to both logs. Failures are counted, not returned.
    pub fn write(&self, entry: &Entry) {
        self.write_at(entry, Timestamp::now());
    }

    fn write_at(&self, entry: &Entry, now: Timestamp) {
        let sinks = &mut *self.sinks.lock();
        if let Some(sink) = &mut sinks.json {
            sink.write(&entry.json_line(now), |gap| gap.json_line(now));
        }
        if let Some(sink) = &mut sinks.text {
            sink.write(&entry.text_line(now), |gap| gap.text_line(now));
        }
    }

    /// Opens the logs again (SIGHUP), where `paths` say now.
    pub fn reopen(&self, paths: &JournalPaths) {
        let sinks = &mut *self.sinks.lock();
        for (sink, path) in [(&mut sinks.json, &paths.json), (&mut sinks.text, &paths.text)] {
            match (sink.as_mut(), path) {
                (Some(open), Some(path)) if open.path() == path => open.reopen(),
                (_, Some(path)) => *sink = Some(Sink::open(path.clone())),
                (_, None) => *sink = None,
            }
        }
    }

    /// How the JSON log and the text log fare (without their paths).
    #[must_use]
    pub fn states(&self) -> (LogState, LogState) {
        let sinks = self.sinks.lock();
        let state = |sink: &Option<Sink>| sink.as_ref().map(Sink::state).unwrap_or_default();
        (state(&sinks.json), state(&sinks.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn journal(dir: &std::path::Path) -> (Journal, JournalPaths) {
        let paths = JournalPaths {
            json: Some(dir.join("log/decisions.jsonl")),
            text: Some(dir.join("log/sjp.log")),
        };
        (Journal::open(&paths), paths)
    }

    fn json_lines(text: &str) -> Vec<Value> {
        text.lines().map(|l| serde_json::from_str(l).expect("a JSON line")).collect()
    }

    #[test]
    fn both_logs_tell_the_same_and_users_text_cannot_forge_lines() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, paths) = journal(dir.path());
        let evil = "job \u{1b}[2J \"x\"\n2026-01-01T00:00:00.000Z release   forged\u{202e}";
        journal.write(&Entry::new("placed", evil).with("job", 7).with("node", "n1"));
        let json = fs::read_to_string(paths.json.expect("set")).expect("written");
        let lines = json_lines(&json);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["event"], "placed");
        assert_eq!(lines[0]["job"], 7);
        assert_eq!(lines[0]["words"], evil);
        let text = fs::read_to_string(paths.text.expect("set")).expect("written");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
        assert!(text.contains(r"\u{1b}[2J"), "{text}");
    }

    #[test]
    fn logs_are_readable_by_owner_and_group_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, paths) = journal(dir.path());
        journal.write(&Entry::new("start", "x"));
        for path in [paths.json.expect("set"), paths.text.expect("set")] {
            let mode = fs::metadata(&path).expect("there").permissions().mode() & 0o777;
            assert_eq!(mode & 0o137, 0, "{path:?} has {mode:o}");
        }
    }

    #[test]
    fn reopening_follows_changed_paths() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, _) = journal(dir.path());
        journal.write(&Entry::new("start", "one"));
        let paths = JournalPaths { json: Some(dir.path().join("other.jsonl")), text: None };
        journal.reopen(&paths);
        journal.write(&Entry::new("reload", "two"));
        let json = fs::read_to_string(dir.path().join("other.jsonl")).expect("written");
        assert_eq!(json_lines(&json)[0]["words"], "two");
        let text = fs::read_to_string(dir.path().join("log/sjp.log")).expect("old one stays");
        assert!(!text.contains("two"));
    }

    #[test]
    fn times_are_in_utc_with_milliseconds() {
        let t = Timestamp::from_millisecond(1_767_323_045_007).expect("in range");
        assert_eq!(clock(t), "2026-01-02T03:04:05.007Z");
    }
}
