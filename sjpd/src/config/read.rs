//! From the text of a file to a `Config`: walks the parsed TOML with the byte
//! ranges it kept, checks each value against the table of settings, and
//! collects every error and notice with its place.

use super::error::{ConfigError, ConfigErrors, Notice};
use super::settings::{Config, RENAMED, SECTIONS, SETTINGS, Setting, Use, WITHOUT_USE};
use super::value::{Kind, MAX_DEMAND, Value, check_name, clean, nearest, plain};
use sjp_core::config::Demand;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Where each setting was given: its full key and the start of its value.
pub(super) type Given = BTreeMap<&'static str, usize>;

/// A finding before its byte offset became a line and a column.
pub(super) struct Finding {
    pub at: usize,
    pub key: String,
    pub message: String,
}

pub(super) fn read(text: &str, file: &Path) -> Result<(Config, Vec<Notice>), ConfigErrors> {
    let (root, syntax) = DeTable::parse_recoverable(text);
    let mut walk = Walk {
        config: Config::default(),
        errors: Vec::new(),
        notices: Vec::new(),
        given: Given::new(),
        older: Vec::new(),
    };
    for e in &syntax {
        let span = e.span().unwrap_or(text.len()..text.len());
        walk.errors.push(Finding {
            at: span.start,
            key: String::new(),
            message: syntax_words(e.message(), text.get(span).unwrap_or_default()),
        });
    }
    // What the parser made up to go on after a syntax error is not judged.
    let lines = Lines::new(text);
    let broken: Vec<_> = walk.errors.iter().map(|e| lines.place(e.at).0).collect();
    walk.table(root.get_ref(), &mut Vec::new());
    walk.older_names();
    let mut kept = 0;
    let syntax_errors = broken.len();
    walk.errors.retain(|e| {
        kept += 1;
        kept <= syntax_errors || !broken.contains(&lines.place(e.at).0)
    });
    if !walk.errors.is_empty() {
        walk.errors.sort_by_key(|e| e.at);
        walk.errors.dedup_by(|a, b| a.at == b.at && a.message == b.message);
        return Err(ConfigErrors(walk.errors.into_iter().map(|e| lines.error(file, e)).collect()));
    }
    super::checks::check(&walk.config, &walk.given, &mut walk.errors, &mut walk.notices);
    if !walk.errors.is_empty() {
        walk.errors.sort_by_key(|e| e.at);
        return Err(ConfigErrors(walk.errors.into_iter().map(|e| lines.error(file, e)).collect()));
    }
    walk.notices.sort_by_key(|n| n.at);
    let notices = walk.notices.into_iter().map(|n| lines.notice(file, n)).collect();
    Ok((walk.config, notices))
}

/// The parser's words, with what they are about.
fn syntax_words(message: &str, found: &str) -> String {
    let found = found.trim();
    if found.is_empty() || found.contains('\n') {
        format!("not TOML: {message}")
    } else {
        format!("not TOML: {message}, at `{}`", clean(found))
    }
}

/// Byte offsets to lines and columns, both from 1.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let mut starts = vec![0];
        starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { text, starts }
    }

    fn place(&self, at: usize) -> (usize, usize) {
        let at = at.min(self.text.len());
        let line = self.starts.partition_point(|s| *s <= at).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let before = self.text.as_bytes().get(start..at).unwrap_or_default();
        // Continuation bytes of UTF-8 are no characters of their own.
        let column = before.iter().filter(|b| **b & 0xC0 != 0x80).count() + 1;
        (line, column)
    }

    fn error(&self, file: &Path, f: Finding) -> ConfigError {
        let (line, column) = self.place(f.at);
        ConfigError { file: file.into(), line, column, key: f.key, message: f.message }
    }

    fn notice(&self, file: &Path, f: Finding) -> Notice {
        let (line, column) = self.place(f.at);
        Notice { file: file.into(), line, column, key: f.key, message: f.message }
    }
}

/// What an older name was given, until it is known whether the present one is.
struct Older {
    at: usize,
    setting: &'static Setting,
    value: Value,
    key: String,
}

struct Walk {
    config: Config,
    errors: Vec<Finding>,
    notices: Vec<Finding>,
    given: Given,
    older: Vec<Older>,
}

/// `limits.state_file`, the way a setting is looked up.
fn full_key(setting: &Setting) -> String {
    format!("{}.{}", setting.section, setting.key)
}

fn find(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|s| full_key(s) == path)
}

/// `[section] key`, of a path that was given.
fn shown(path: &[&str]) -> String {
    match path {
        [] => String::new(),
        [one] => clean(one),
        [section, rest @ ..] => format!("[{}] {}", clean(section), clean(&rest.join("."))),
    }
}

/// Whether settings are below this path: a section, or a table in one.
fn is_table_path(path: &str) -> bool {
    let below = |key: String| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    SETTINGS.iter().any(|s| below(full_key(s)))
}

impl Walk {
    fn table<'t>(&mut self, table: &'t DeTable<'_>, path: &mut Vec<&'t str>) {
        for (key, value) in table {
            path.push(key.get_ref());
            self.entry(key.span(), value, path);
            path.pop();
        }
    }

    fn entry<'t>(
        &mut self,
        key: Range<usize>,
        value: &'t Spanned<DeValue<'_>>,
        path: &mut Vec<&'t str>,
    ) {
        let full = path.join(".");
        if let Some((_, why)) = WITHOUT_USE.iter().find(|(dead, _)| *dead == full) {
            let message = format!("accepted from older files, without effect: {why}");
            self.notice(key.start, shown(path), message);
        } else if let Some(setting) = find(&full) {
            self.setting(setting, value, shown(path));
        } else if let Some((_, new)) = RENAMED.iter().find(|(old, _)| *old == full) {
            if let Some(setting) = find(new) {
                self.older_setting(setting, value, shown(path));
            }
        } else if is_table_path(&full) {
            match value.get_ref() {
                DeValue::Table(table) => self.table(table, path),
                other => {
                    let what = if path.len() == 1 { "section" } else { "table" };
                    let message = format!(
                        "is a {what}: write [{}] with its keys below it, not {}",
                        full,
                        type_words(other)
                    );
                    self.error(value.span().start, shown(path), message);
                }
            }
        } else {
            self.unknown(key.start, path, matches!(value.get_ref(), DeValue::Table(_)));
        }
    }

    fn error(&mut self, at: usize, key: String, message: String) {
        self.errors.push(Finding { at, key, message });
    }

    fn notice(&mut self, at: usize, key: String, message: String) {
        self.notices.push(Finding { at, key, message });
    }

    fn unknown(&mut self, at: usize, path: &[&str], is_table: bool) {
        let (message, key) = match path {
            [name] if is_table || SECTIONS.iter().any(|s| s.name == *name) => {
                let near = nearest(name, SECTIONS.iter().map(|s| s.name));
                let message = match near {
                    Some(n) => format!("unknown section; nearest is [{n}]"),
                    None => format!("unknown section; the sections are {}", all_sections()),
                };
                (message, format!("[{}]", clean(name)))
            }
            [name] => {
                let message = match nearest_key("", name) {
                    Some(s) => format!("unknown key outside any section; nearest is {}", s.name()),
                    None => "unknown key outside any section".into(),
                };
                (message, shown(path))
            }
            [section, rest @ ..] => {
                let message = match nearest_key(section, &rest.join(".")) {
                    Some(s) if s.section == *section => {
                        format!("unknown key; nearest is {}", s.key)
                    }
                    Some(s) => format!("unknown key; nearest is {}", s.name()),
                    None => format!("unknown key; [{section}] has {}", keys_of(section)),
                };
                (message, shown(path))
            }
            [] => return,
        };
        self.error(at, key, message);
    }

    /// Reads a value for `setting`; reports what is wrong with it.
    fn value(
        &mut self,
        setting: &Setting,
        value: &Spanned<DeValue<'_>>,
        key: &str,
    ) -> Option<Value> {
        let at = value.span().start;
        let kind = setting.kind;
        let read = match value.get_ref() {
            DeValue::Boolean(on) if kind == Kind::Switch => Ok(Value::Switch(*on)),
            DeValue::Integer(_) | DeValue::Float(_) if kind.is_numeric() => {
                number_of(value.get_ref()).and_then(|n| kind.number(n))
            }
            DeValue::String(text) => kind.text(text),
            DeValue::Array(items) if kind == Kind::Names => {
                return self.names(items, key);
            }
            DeValue::Array(items) if kind == Kind::Demand => {
                return self.demand(items, at, key);
            }
            other => Err(format!("{} is not allowed", type_words(other))),
        };
        match read {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.error(at, key.to_owned(), format!("{wrong}; allowed: {}", kind.allowed()));
                None
            }
        }
    }

    fn names(&mut self, items: &DeArray<'_>, key: &str) -> Option<Value> {
        let before = self.errors.len();
        let mut names: Vec<String> = Vec::new();
        for item in items {
            let at = item.span().start;
            match item.get_ref() {
                DeValue::String(name) => match check_name(name) {
                    Ok(()) if names.iter().any(|n| n == name) => {
                        let message = format!("\"{}\" is listed twice", clean(name));
                        self.notice(at, key.to_owned(), message);
                    }
                    Ok(()) => names.push(name.clone().into_owned()),
                    Err(wrong) => {
                        let allowed = Kind::Names.allowed();
                        self.error(at, key.to_owned(), format!("{wrong}; allowed: {allowed}"));
                    }
                },
                other => {
                    let message = format!(
                        "{} is not allowed in the list; allowed: {}",
                        type_words(other),
                        Kind::Names.allowed()
                    );
                    self.error(at, key.to_owned(), message);
                }
            }
        }
        (self.errors.len() == before).then_some(Value::Names(names))
    }

    fn demand(&mut self, items: &DeArray<'_>, at: usize, key: &str) -> Option<Value> {
        let before = self.errors.len();
        let mut mix: Vec<Demand> = Vec::new();
        let allowed = Kind::Demand.allowed();
        if items.is_empty() || items.len() > MAX_DEMAND {
            let message = format!("{} pairs are not allowed; allowed: {allowed}", items.len());
            self.error(at, key.to_owned(), message);
            return None;
        }
        for item in items {
            let at = item.span().start;
            match pair(item.get_ref()) {
                Ok(d) => {
                    if mix.iter().any(|m| m.mb_per_cpu == d.mb_per_cpu) {
                        let message = format!("{} MB per CPU is listed twice", plain(d.mb_per_cpu));
                        self.notice(at, key.to_owned(), message);
                    }
                    mix.push(d);
                }
                Err(wrong) => {
                    self.error(at, key.to_owned(), format!("{wrong}; allowed: {allowed}"));
                }
            }
        }
        if self.errors.len() != before {
            return None;
        }
        let sum: f64 = mix.iter().map(|d| d.weight).sum();
        if (sum - 1.0).abs() > 0.005 {
            let message = format!("the weights add up to {}, and are scaled to 1", round3(sum));
            self.notice(at, key.to_owned(), message);
        }
        // A sum that is 1 but for rounding leaves the weights as written.
        if (sum - 1.0).abs() > 1e-9 {
            mix.iter_mut().for_each(|d| d.weight /= sum);
        }
        Some(Value::Demand(mix))
    }

    fn setting(&mut self, setting: &'static Setting, value: &Spanned<DeValue<'_>>, key: String) {
        let at = value.span().start;
        if let Some(value) = self.value(setting, value, &key) {
            self.put(setting, value, at, key);
        }
    }

    fn put(&mut self, setting: &'static Setting, value: Value, at: usize, key: String) {
        self.given.insert(setting_id(setting), at);
        if setting.used == Use::NotYet && value != setting.value(&Config::default()) {
            self.notice(at, key.clone(), "has no effect in this version".into());
        }
        if !(setting.set)(&mut self.config, value) {
            self.error(at, key, format!("not allowed; allowed: {}", setting.kind.allowed()));
        }
    }

    fn older_setting(
        &mut self,
        setting: &'static Setting,
        value: &Spanned<DeValue<'_>>,
        key: String,
    ) {
        let at = value.span().start;
        if let Some(value) = self.value(setting, value, &key) {
            self.older.push(Older { at, setting, value, key });
        }
    }

    /// An older name counts where the present one is not given.
    fn older_names(&mut self) {
        for Older { at, setting, value, key } in std::mem::take(&mut self.older) {
            let name = setting.name();
            if self.given.contains_key(setting_id(setting)) {
                let message = format!("is the older name of {name}, which is given too and counts");
                self.notice(at, key, message);
            } else {
                self.notice(at, key.clone(), format!("is the older name of {name}"));
                self.put(setting, value, at, key);
            }
        }
    }
}

/// What `Given` knows a setting by: unique, since `checks` looks for it.
fn setting_id(setting: &'static Setting) -> &'static str {
    static IDS: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    let ids = IDS.get_or_init(|| SETTINGS.iter().map(full_key).collect());
    SETTINGS
        .iter()
        .position(|s| std::ptr::eq(s, setting))
        .and_then(|i| ids.get(i))
        .map_or("", String::as_str)
}

fn round3(n: f64) -> String {
    plain((n * 1000.0).round() / 1000.0)
}

/// A number, of either of TOML's types.
fn number_of(value: &DeValue<'_>) -> Result<f64, String> {
    let too_large = |s: &str| format!("{} is not allowed", clean(s));
    match value {
        DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix())
            .map(|n| n as f64)
            .map_err(|_| too_large(n.as_str())),
        DeValue::Float(n) => n.as_str().parse().map_err(|_| too_large(n.as_str())),
        other => Err(format!("{} is not allowed", type_words(other))),
    }
}

/// One pair of the demand mix, as `[800, 0.1]` or `{mb_per_cpu = 800, weight = 0.1}`.
fn pair(item: &DeValue<'_>) -> Result<Demand, String> {
    let (mb_per_cpu, weight) = match item {
        DeValue::Array(both) => match &both[..] {
            [mb, weight] => (number_of(mb.get_ref())?, number_of(weight.get_ref())?),
            other => return Err(format!("a pair of {} values is not allowed", other.len())),
        },
        DeValue::Table(table) => {
            let (mut mb, mut weight) = (None, None);
            for (key, value) in table {
                match &**key.get_ref() {
                    "mb_per_cpu" => mb = Some(number_of(value.get_ref())?),
                    "weight" => weight = Some(number_of(value.get_ref())?),
                    other => {
                        return Err(format!(
                            "\"{}\" is unknown here; known are mb_per_cpu and weight",
                            clean(other)
                        ));
                    }
                }
            }
            match (mb, weight) {
                (Some(mb), Some(weight)) => (mb, weight),
                (None, _) => return Err("mb_per_cpu is missing".into()),
                (_, None) => return Err("weight is missing".into()),
            }
        }
        other => return Err(format!("{} is not allowed in the list", type_words(other))),
    };
    let good = |n: f64| n.is_finite() && n > 0.0 && n <= 1e9;
    if !good(mb_per_cpu) {
        Err(format!("{} MB per CPU is not allowed", plain(mb_per_cpu)))
    } else if !good(weight) {
        Err(format!("weight {} is not allowed", plain(weight)))
    } else {
        Ok(Demand { mb_per_cpu, weight })
    }
}

/// A TOML type with its article.
fn type_words(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The setting whose key is nearest: first in its own section, then anywhere.
fn nearest_key(section: &str, key: &str) -> Option<&'static Setting> {
    let own: Vec<_> = SETTINGS.iter().filter(|s| s.section == section).collect();
    let others: Vec<_> = SETTINGS.iter().filter(|s| s.section != section).collect();
    let near = |among: &[&'static Setting]| {
        let name = nearest(key, among.iter().map(|s| s.key))?;
        among.iter().find(|s| s.key == name).copied()
    };
    let close = near(&own);
    // The very key of another section beats a mere likeness in its own.
    let same = others.iter().find(|s| s.key == key).copied();
    if same.is_some() && close.is_none_or(|s| strsim::levenshtein(s.key, key) > 2) {
        return same;
    }
    let last = |s: &Setting| s.key.rsplit('.').next() == Some(key);
    close.or_else(|| own.iter().find(|s| last(s)).copied()).or_else(|| near(&others))
}

fn all_sections() -> String {
    SECTIONS.iter().map(|s| format!("[{}]", s.name)).collect::<Vec<_>>().join(", ")
}

fn keys_of(section: &str) -> String {
    SETTINGS.iter().filter(|s| s.section == section).map(|s| s.key).collect::<Vec<_>>().join(", ")
}
