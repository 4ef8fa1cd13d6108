//! What a setting can hold: the kinds of value with their units and ranges,
//! how each is checked, written and described, and how it becomes a Rust type.

use sjp_core::config::{Demand, Mode, NoRoom, Tie, UserChoice};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A checked value, before it takes its place in the `Config`.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Not given, and without a default.
    Unset,
    /// `true` or `false`.
    Switch(bool),
    /// A number, in the setting's unit.
    Number(f64),
    /// A whole number.
    Count(u64),
    /// A length of time.
    Time(Duration),
    /// A word, a name, a path or an address.
    Text(String),
    /// Names.
    Names(Vec<String>),
    /// The demand mix, normalised.
    Demand(Vec<Demand>),
}

/// The unit in which a length of time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Hours.
    Hours,
}

impl TimeUnit {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Hours => "hours",
        }
    }

    const fn seconds(self) -> f64 {
        match self {
            Self::Seconds => 1.0,
            Self::Hours => 3600.0,
        }
    }
}

/// The kind of a setting: its type, unit and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An absolute path.
    Path,
    /// An absolute path, or `""` for off.
    PathOrOff,
    /// An absolute path; unset: found in PATH.
    Command,
    /// A length of time from `min` to `max`, in `unit`.
    Time {
        /// How it is written.
        unit: TimeUnit,
        /// Least, in `unit`.
        min: f64,
        /// Most, in `unit`.
        max: f64,
        /// Whether 0 is allowed besides, and means off.
        zero_is_off: bool,
    },
    /// A number from `min` to `max`.
    Number {
        /// Its unit, for people.
        unit: &'static str,
        /// Least.
        min: f64,
        /// Most.
        max: f64,
    },
    /// A whole number from `min` to `max`.
    Count {
        /// Its unit, for people.
        unit: &'static str,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// One name (of a QOS).
    Name,
    /// A list of names (of partitions).
    Names,
    /// MB per CPU and weight, pair by pair.
    Demand,
    /// A loopback address with a port, or `unix:` and an absolute path; `""` is off.
    Listen,
}

/// Shorthand: seconds from `min` to `max`.
pub(super) const fn seconds(min: f64, max: f64) -> Kind {
    Kind::Time { unit: TimeUnit::Seconds, min, max, zero_is_off: false }
}

/// Shorthand: hours from `min` to `max`.
pub(super) const fn hours(min: f64, max: f64) -> Kind {
    Kind::Time { unit: TimeUnit::Hours, min, max, zero_is_off: false }
}

/// Shorthand: a number of `unit` from `min` to `max`.
pub(super) const fn number(unit: &'static str, min: f64, max: f64) -> Kind {
    Kind::Number { unit, min, max }
}

/// Most entries that a demand mix may have: every placement walks the mix.
pub const MAX_DEMAND: usize = 64;

impl Kind {
    /// What is allowed, in a few words: `seconds, 0.2 to 3600`.
    #[must_use]
    pub fn allowed(self) -> String {
        match self {
            Self::Switch => "true or false".into(),
            Self::Choice(words) => one_of(words),
            Self::Path => "an absolute path".into(),
            Self::PathOrOff => "an absolute path, or \"\" for off".into(),
            Self::Command => "an absolute path; unset: found in PATH".into(),
            Self::Time { unit, min, max, zero_is_off } => {
                let off = if zero_is_off { ", or 0 for off" } else { "" };
                format!("{}, {} to {}{off}", unit.word(), plain(min), plain(max))
            }
            Self::Number { unit, min, max } => {
                format!("{unit}, {} to {}", plain(min), plain(max))
            }
            Self::Count { unit, min, max } => format!("{unit}, {min} to {max}"),
            Self::Name => "a name".into(),
            Self::Names => "a list of names".into(),
            Self::Demand => format!(
                "pairs [MB per CPU, weight], both above 0, at least 1 and at most {MAX_DEMAND}"
            ),
            Self::Listen => {
                "\"127.0.0.1:PORT\", \"[::1]:PORT\", \"unix:/PATH\", or \"\" for off".into()
            }
        }
    }

    /// Checks a number.
    pub(super) fn number(self, given: f64) -> Result<Value, String> {
        let outside = || Err(format!("{} is not allowed", plain(given)));
        if !given.is_finite() {
            return outside();
        }
        match self {
            Self::Time { unit, min, max, zero_is_off } => {
                if given == 0.0 && zero_is_off {
                    return Ok(Value::Time(Duration::ZERO));
                }
                if given < min || given > max {
                    return outside();
                }
                match Duration::try_from_secs_f64(given * unit.seconds()) {
                    Ok(time) => Ok(Value::Time(time)),
                    Err(_) => outside(),
                }
            }
            Self::Number { min, max, .. } if given >= min && given <= max => {
                Ok(Value::Number(given))
            }
            Self::Number { .. } => outside(),
            Self::Count { min, max, .. } => {
                if given.fract() != 0.0 {
                    return Err(format!("{} is not a whole number", plain(given)));
                }
                if given < min as f64 || given > max as f64 {
                    return outside();
                }
                Ok(Value::Count(given as u64))
            }
            _ => Err("a number is not allowed".into()),
        }
    }

    /// Checks a string.
    pub(super) fn text(self, given: &str) -> Result<Value, String> {
        let text = || Ok(Value::Text(given.to_owned()));
        match self {
            Self::Choice(words) if words.contains(&given) => text(),
            Self::Choice(words) => Err(match nearest(given, words.iter().copied()) {
                Some(word) => format!("\"{}\" is not known; nearest is \"{word}\"", clean(given)),
                None => format!("\"{}\" is not known", clean(given)),
            }),
            Self::PathOrOff | Self::Listen if given.is_empty() => text(),
            Self::Path | Self::PathOrOff | Self::Command => check_path(given).and_then(|()| text()),
            Self::Listen => Listen::parse(given).and_then(|_| text()),
            Self::Name => check_name(given).and_then(|()| text()),
            _ => Err(match given.trim().parse::<f64>() {
                Ok(_) => format!("\"{}\" is a string; write it without the quotes", clean(given)),
                Err(_) => "a string is not allowed".into(),
            }),
        }
    }

    /// Whether numbers are what this kind holds.
    pub(super) const fn is_numeric(self) -> bool {
        matches!(self, Self::Time { .. } | Self::Number { .. } | Self::Count { .. })
    }

    /// The value as TOML.
    #[must_use]
    pub fn toml(self, value: &Value) -> String {
        match value {
            Value::Unset => String::new(),
            Value::Switch(on) => on.to_string(),
            Value::Number(n) => float(*n),
            Value::Count(n) => n.to_string(),
            Value::Time(t) => {
                let unit = match self {
                    Self::Time { unit, .. } => unit.seconds(),
                    _ => 1.0,
                };
                float(t.as_secs_f64() / unit)
            }
            Value::Text(s) => quote(s),
            Value::Names(names) => {
                format!("[{}]", names.iter().map(|n| quote(n)).collect::<Vec<_>>().join(", "))
            }
            Value::Demand(mix) => {
                let mut text = String::from("[\n");
                for d in mix {
                    let _ = writeln!(text, "    [{}, {}],", plain(d.mb_per_cpu), plain(d.weight));
                }
                text.push(']');
                text
            }
        }
    }
}

/// `"a", "b" or "c"`.
fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => format!("\"{one}\""),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(|w| format!("\"{w}\"")).collect();
            format!("{} or \"{last}\"", first.join(", "))
        }
    }
}

/// A number for people: no trailing `.0`.
pub(super) fn plain(n: f64) -> String {
    n.to_string()
}

/// A number as a TOML float.
fn float(n: f64) -> String {
    if n.fract() == 0.0 && n.abs() < 1e15 { format!("{n:.1}") } else { n.to_string() }
}

/// A TOML basic string.
fn quote(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Text of the file as it may be shown: no control characters, not endless.
pub(super) fn clean(s: &str) -> String {
    let mut out: String = s.chars().take(64).flat_map(char::escape_debug).collect();
    if s.chars().nth(64).is_some() {
        out.push_str("...");
    }
    out.replace("\\'", "'")
}

/// The nearest of `known` to `given`, if any is near.
pub(crate) fn nearest<'a>(
    given: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if given.len() > 64 {
        return None;
    }
    let given = given.to_lowercase();
    let score = |k: &str| {
        let k = k.to_lowercase();
        let edits = strsim::normalized_damerau_levenshtein(&given, &k);
        edits.max(strsim::jaro_winkler(&given, &k) - 0.25)
    };
    known
        .into_iter()
        .map(|k| (score(k), k))
        .filter(|(s, _)| *s >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}

/// Refuses what is no absolute path.
pub(crate) fn check_path(given: &str) -> Result<(), String> {
    if given.is_empty() {
        Err("an empty path is not allowed".into())
    } else if given.starts_with('~') {
        Err(format!("\"{}\": ~ is not expanded; write the whole path", clean(given)))
    } else if !Path::new(given).is_absolute() {
        Err(format!("\"{}\" is a relative path", clean(given)))
    } else if given.chars().any(char::is_control) {
        Err(format!("\"{}\" holds a control character", clean(given)))
    } else {
        Ok(())
    }
}

/// Refuses what can be no name of a partition or a QOS.
pub(super) fn check_name(given: &str) -> Result<(), String> {
    if given.is_empty() {
        Err("an empty name is not allowed".into())
    } else if given.contains(',') {
        Err(format!("\"{}\" holds a comma; write each name by itself", clean(given)))
    } else if given.chars().any(|c| c.is_whitespace() || c.is_control()) {
        Err(format!("\"{}\" holds white space", clean(given)))
    } else {
        Ok(())
    }
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Reads an address; `""` (off) is not one.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(given: &str) -> Result<Self, String> {
        if let Some(path) = given.strip_prefix("unix:") {
            return check_path(path).map(|()| Self::Unix(path.into()));
        }
        let address: SocketAddr = given.parse().map_err(|_| {
            format!("\"{}\" is neither an IP address with a port nor unix:/PATH", clean(given))
        })?;
        if !address.ip().is_loopback() {
            return Err(format!("{address} is not a loopback address"));
        }
        if address.port() == 0 {
            return Err(format!("{address} has no port"));
        }
        Ok(Self::Tcp(address))
    }
}

/// A Rust type that a setting can have.
pub(super) trait Field: Sized {
    /// Takes a checked value; `None` where it is of another kind.
    fn take(value: Value) -> Option<Self>;
    /// The value again.
    fn show(&self) -> Value;
}

macro_rules! plain_field {
    ($ty:ty, $variant:ident) => {
        impl Field for $ty {
            fn take(value: Value) -> Option<Self> {
                match value {
                    Value::$variant(v) => Some(v),
                    _ => None,
                }
            }
            fn show(&self) -> Value {
                Value::$variant(self.clone())
            }
        }
    };
}
plain_field!(bool, Switch);
plain_field!(f64, Number);
plain_field!(Duration, Time);
plain_field!(String, Text);
plain_field!(Vec<String>, Names);
plain_field!(Vec<Demand>, Demand);

impl Field for u32 {
    fn take(value: Value) -> Option<Self> {
        match value {
            Value::Count(n) => n.try_into().ok(),
            _ => None,
        }
    }
    fn show(&self) -> Value {
        Value::Count(u64::from(*self))
    }
}

impl Field for Option<f64> {
    fn take(value: Value) -> Option<Self> {
        match value {
            Value::Unset => Some(None),
            Value::Number(n) => Some(Some(n)),
            _ => None,
        }
    }
    fn show(&self) -> Value {
        self.map_or(Value::Unset, Value::Number)
    }
}

impl Field for PathBuf {
    fn take(value: Value) -> Option<Self> {
        String::take(value).map(Into::into)
    }
    fn show(&self) -> Value {
        Value::Text(self.to_string_lossy().into_owned())
    }
}

/// A command's path; unset: found in PATH.
impl Field for Option<PathBuf> {
    fn take(value: Value) -> Option<Self> {
        match value {
            Value::Unset => Some(None),
            v => PathBuf::take(v).map(Some),
        }
    }
    fn show(&self) -> Value {
        self.as_ref().map_or(Value::Unset, Field::show)
    }
}

/// A file that `""` turns off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaybeFile(pub Option<PathBuf>);

impl Field for MaybeFile {
    fn take(value: Value) -> Option<Self> {
        let text = String::take(value)?;
        Some(Self((!text.is_empty()).then(|| text.into())))
    }
    fn show(&self) -> Value {
        self.0.as_ref().map_or_else(|| Value::Text(String::new()), Field::show)
    }
}

/// Where metrics are served; `None` is off.
impl Field for Option<Listen> {
    fn take(value: Value) -> Option<Self> {
        match String::take(value)? {
            off if off.is_empty() => Some(None),
            at => Listen::parse(&at).ok().map(Some),
        }
    }
    fn show(&self) -> Value {
        Value::Text(match self {
            None => String::new(),
            Some(Listen::Tcp(address)) => address.to_string(),
            Some(Listen::Unix(path)) => format!("unix:{}", path.display()),
        })
    }
}

/// A choice between words.
pub(super) trait Words: Copy + PartialEq + 'static {
    /// The words, in the order in which they are listed.
    const WORDS: &'static [&'static str];
    /// What they mean, in the same order.
    const MEANINGS: &'static [Self];
}

impl<T: Words> Field for T {
    fn take(value: Value) -> Option<Self> {
        let word = String::take(value)?;
        let at = T::WORDS.iter().position(|w| *w == word)?;
        T::MEANINGS.get(at).copied()
    }
    fn show(&self) -> Value {
        Value::Text(word_of(*self).to_owned())
    }
}

/// The word for a choice.
pub(super) fn word_of<T: Words>(choice: T) -> &'static str {
    T::MEANINGS
        .iter()
        .position(|m| *m == choice)
        .and_then(|at| T::WORDS.get(at).copied())
        .unwrap_or_default()
}

macro_rules! words {
    ($ty:ty: $($word:literal => $variant:ident),+) => {
        impl Words for $ty {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const MEANINGS: &'static [Self] = &[$(<$ty>::$variant),+];
        }
    };
}
pub(super) use words;

words!(Mode: "observe" => Observe, "advise" => Advise, "enforce" => Enforce);
words!(UserChoice: "follow" => Follow, "ignore" => Ignore);
words!(NoRoom: "leave" => Leave, "open" => Open);
words!(Tie: "ratio" => Ratio, "scarce" => Scarce);

/// The words of a choice, as a kind.
pub(super) const fn choice<T: Words>() -> Kind {
    Kind::Choice(T::WORDS)
}
