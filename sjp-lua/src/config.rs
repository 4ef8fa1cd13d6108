//! `sjp.config`: read once for each Lua state, before its first call.

use crate::failure::Failure;
use mlua::{Lua, Table, Value};
use std::path::PathBuf;

/// Where the table and the disable file are, and how much is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The folder of sjpd's table.
    pub(crate) state_dir: PathBuf,
    /// While this file exists, nothing is placed. Empty: there is none.
    pub(crate) disable_file: PathBuf,
    /// One line in slurmctld's log for each decision.
    pub(crate) verbose: bool,
}

impl Config {
    /// The table that a fresh module holds.
    pub(crate) fn defaults(lua: &Lua) -> mlua::Result<Table> {
        let table = lua.create_table()?;
        table.set("state_dir", "/run/sjp")?;
        table.set("disable_file", "/etc/sjp/disable")?;
        table.set("verbose", false)?;
        Ok(table)
    }

    /// What the site made of it. A key that is nil has its default.
    ///
    /// # Errors
    /// A value of another type.
    pub(crate) fn read(table: &Table) -> Result<Self, Failure> {
        Ok(Self {
            state_dir: path(table, "state_dir", "/run/sjp")?,
            disable_file: path(table, "disable_file", "/etc/sjp/disable")?,
            verbose: match get(table, "verbose")? {
                Value::Nil => false,
                Value::Boolean(b) => b,
                other => return Err(wrong("verbose", &other, "true or false")),
            },
        })
    }
}

fn get(table: &Table, key: &'static str) -> Result<Value, Failure> {
    table.get(key).map_err(|source| Failure::Reading { what: "sjp.config", source })
}

fn path(table: &Table, key: &'static str, default: &str) -> Result<PathBuf, Failure> {
    match get(table, key)? {
        Value::Nil => Ok(PathBuf::from(default)),
        Value::String(s) => {
            use std::os::unix::ffi::OsStrExt as _;
            Ok(PathBuf::from(std::ffi::OsStr::from_bytes(&s.as_bytes())))
        }
        other => Err(wrong(key, &other, "a string")),
    }
}

fn wrong(key: &'static str, value: &Value, want: &'static str) -> Failure {
    Failure::Config { key, got: value.type_name(), want }
}
