//! What is wrong with a settings file, and what is only worth a word: each with
//! its file, line, column and key.

use std::fmt;
use std::path::{Path, PathBuf};

/// One error: where, and what is wrong, allowed or nearest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// Column in characters, from 1; 0 where the whole file is meant.
    pub column: usize,
    /// `[section] key`; empty where no key is meant.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

/// Something worth a word, which stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// Column in characters, from 1; 0 where the whole file is meant.
    pub column: usize,
    /// `[section] key`; empty where no key is meant.
    pub key: String,
    /// What there is to say.
    pub message: String,
}

impl Notice {
    pub(super) fn about_file(file: &Path, message: impl Into<String>) -> Self {
        Self { file: file.into(), line: 0, column: 0, key: String::new(), message: message.into() }
    }
}

/// Every error of one file, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl ConfigErrors {
    pub(super) fn unreadable(file: &Path, message: String) -> Self {
        Self(vec![ConfigError {
            file: file.into(),
            line: 0,
            column: 0,
            key: String::new(),
            message,
        }])
    }
}

fn place(
    f: &mut fmt::Formatter<'_>,
    file: &Path,
    (line, column): (usize, usize),
    key: &str,
    message: &str,
) -> fmt::Result {
    write!(f, "{}", file.display())?;
    if line > 0 {
        write!(f, ":{line}:{column}")?;
    }
    f.write_str(": ")?;
    if !key.is_empty() {
        write!(f, "{key}: ")?;
    }
    f.write_str(message)
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        place(f, &self.file, (self.line, self.column), &self.key, &self.message)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        place(f, &self.file, (self.line, self.column), &self.key, &self.message)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
impl std::error::Error for ConfigErrors {}

/// An I/O error for people: without the number.
pub(super) fn io_words(e: &std::io::Error) -> String {
    let text = e.to_string();
    match text.find(" (os error ") {
        Some(at) => text.get(..at).unwrap_or(&text).to_lowercase(),
        None => text,
    }
}
