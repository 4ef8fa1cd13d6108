//! `Key=value` records of scontrol, one a line (`-o`) or over several lines:
//! where records begin, and their tokens.

use crate::Problem;
use sjp_core::hostlist;

/// A record's text and the line it begins on.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub line: usize,
    pub text: &'a str,
}

/// Cuts `text` into records: each begins at a line for which `begins` says so,
/// and runs to the next; blank lines and indented ones belong to the record.
/// Text before the first record is the second value, where it is not blank.
pub(crate) fn split<'a>(
    text: &'a str,
    begins: impl Fn(&str) -> bool,
) -> (Vec<Record<'a>>, Option<Record<'a>>) {
    let mut records = Vec::new();
    let mut before = None;
    // Start and line of the record being gathered.
    let mut open: Option<(usize, usize)> = None;
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if begins(line) {
            if let Some((start, first)) = open {
                records.push(Record { line: first, text: text[start..at].trim_end() });
            }
            open = Some((at, index + 1));
        } else if open.is_none() && before.is_none() && !line.trim().is_empty() {
            before = Some(Record { line: index + 1, text: line.trim() });
        }
        at += line.len();
    }
    if let Some((start, first)) = open {
        records.push(Record { line: first, text: text[start..].trim_end() });
    }
    (records, before)
}

/// Blank-separated tokens of a record with their places.
pub(crate) struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// What is left, from the next token on.
    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Goes on at `bytes` behind the last token.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The next token as key and value; a token without `=` has an empty key.
    pub(crate) fn next(&mut self) -> Option<(&'a str, &'a str)> {
        // Anything up to the blank parts tokens: one comparison a byte.
        let bytes = self.text.as_bytes().get(self.at..)?;
        let start = self.at + bytes.iter().position(|b| *b > b' ')?;
        let token = &self.text.as_bytes()[start..];
        let key = token.iter().position(|b| *b == b'=' || *b <= b' ').unwrap_or(token.len());
        if token.get(key) != Some(&b'=') {
            self.at = start + key;
            return Some(("", &self.text[start..self.at]));
        }
        let value = &token[key + 1..];
        let len = value.iter().position(|b| *b <= b' ').unwrap_or(value.len());
        let from = start + key + 1;
        self.at = from + len;
        Some((&self.text[start..start + key], &self.text[from..self.at]))
    }
}

/// A required value: present, and of its kind.
pub(crate) fn number<T: std::str::FromStr>(
    key: &'static str,
    value: Option<&str>,
) -> Result<T, Problem> {
    let value = value.ok_or(Problem::Missing { key })?;
    value.parse().map_err(|_| Problem::Value {
        key,
        value: crate::excerpt(value),
        want: "a number",
    })
}

/// A value that may be absent: then `default`.
pub(crate) fn number_or<T: std::str::FromStr>(
    key: &'static str,
    value: Option<&str>,
    default: T,
) -> Result<T, Problem> {
    match value {
        None => Ok(default),
        Some(v) if crate::unset(v) => Ok(default),
        value => number(key, value),
    }
}

/// A hostlist value, expanded; unset values and `None assigned` hold none.
pub(crate) fn hosts(key: &'static str, value: &str) -> Result<Vec<String>, Problem> {
    if crate::unset(value) || value == "None assigned" {
        return Ok(Vec::new());
    }
    hostlist::expand(value).map_err(|source| Problem::Hostlist { key, source })
}
