//! `sjp parse`: what the readers make of captured output of Slurm's commands,
//! for support and tests.

use super::Answer;
use super::text::{Grid, clock, count, safe};
use crate::cli::{Exit, ParseArgs};
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use sjp_slurm::any::{self, Kind};
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::Path;

/// Most of a cell's text that is shown to people; JSON has it all.
const WIDE: usize = 40;

pub fn answer(args: &ParseArgs, json: bool) -> Answer {
    let kind: Kind = match args.kind.parse() {
        Ok(kind) => kind,
        Err(e) => return Answer::failed(Exit::Usage, json, &format!("{e}")),
    };
    let source = args.file.as_deref().filter(|f| *f != Path::new("-"));
    let name = source.map_or_else(|| "standard input".into(), |f| f.display().to_string());
    let bytes = match read(source) {
        Ok(bytes) => bytes,
        Err(e) => {
            let why = format!("{name}: cannot be read: {e}");
            return Answer::failed(Exit::Input, json, &why);
        }
    };
    let value = any::parse(kind, &bytes, &TimeZone::system());
    let list = |key: &str| value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (records, errors) = (list(kind.name()), list("errors"));
    let empty = bytes.iter().all(u8::is_ascii_whitespace);
    let exit = match (records.is_empty(), errors.is_empty()) {
        _ if empty => Exit::Input,
        (_, true) => Exit::Ok,
        (false, false) => Exit::Warning,
        (true, false) => Exit::Input,
    };
    if json {
        return Answer::json(exit, &value);
    }
    let mut err = String::new();
    if empty {
        let _ = writeln!(err, "sjp: {}: is empty", safe(&name));
    }
    for (what, key) in [("error", "errors"), ("warning", "warnings")] {
        for item in list(key) {
            let _ = writeln!(err, "sjp: {}: {what}: {}", safe(&name), words(item));
        }
    }
    let mut out = match kind {
        Kind::Config => settings(records),
        kind => table(kind, records),
    };
    let _ = writeln!(out, "{}: {}", kind.name(), count(records.len() as u64, "record"));
    Answer { exit, out, err }
}

fn read(file: Option<&Path>) -> io::Result<Vec<u8>> {
    match file {
        Some(file) => std::fs::read(file),
        None => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            Ok(bytes)
        }
    }
}

/// An error or a warning: line, what is wrong, the text it is about.
fn words(item: &Value) -> String {
    let get = |key: &str| match item.get(key) {
        Some(Value::String(s)) => safe(s),
        Some(Value::Number(n)) => n.to_string(),
        _ => String::new(),
    };
    let parts: Vec<String> =
        [get("what"), get("text")].into_iter().filter(|t| !t.is_empty()).collect();
    match get("line").as_str() {
        "" | "0" => parts.join(": "),
        line => format!("line {line}: {}", parts.join(": ")),
    }
}

/// What people are shown of a kind, in this order; empty: everything.
const fn columns(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Nodes => &[
            "name",
            "usable",
            "state",
            "cpus",
            "cpus_free",
            "mem_mb",
            "mem_free_mb",
            "gpus",
            "partitions",
            "reason",
        ],
        Kind::Partitions => &[
            "name",
            "state",
            "node_count",
            "tier",
            "default",
            "max_time_minutes",
            "allow_accounts",
            "deny_accounts",
            "allow_qos",
            "qos",
        ],
        Kind::Reservations => {
            &["name", "active", "start", "end", "whole_nodes", "nodes", "cores", "flags"]
        }
        Kind::Jobs => &[
            "id",
            "state",
            "reason",
            "partitions",
            "required_nodes",
            "cpus",
            "time_limit_minutes",
            "qos",
            "admin_comment",
        ],
        Kind::Config | Kind::Qos | Kind::Assoc => &[],
    }
}

/// Records as columns.
fn table(kind: Kind, records: &[Value]) -> String {
    let records: Vec<&Map<String, Value>> = records.iter().filter_map(Value::as_object).collect();
    let mut keys: Vec<&str> = columns(kind).to_vec();
    if keys.is_empty() {
        for key in records.iter().flat_map(|r| r.keys()) {
            if !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
        keys.sort_by_key(|k| !matches!(*k, "name" | "user"));
    }
    // A form of output that does not tell something has no column for it.
    keys.retain(|k| records.iter().any(|r| r.get(*k).is_some_and(|v| !v.is_null())));
    if keys.is_empty() {
        return String::new();
    }
    let mut grid = Grid::default();
    grid.cells(keys.iter().map(ToString::to_string).collect());
    for record in records {
        grid.cells(keys.iter().map(|k| short(&cell(k, record.get(*k)))).collect());
    }
    grid.render()
}

/// The configuration: one line for each value.
fn settings(records: &[Value]) -> String {
    let mut grid = Grid::default();
    for record in records.iter().filter_map(Value::as_object) {
        for (key, value) in record.iter().filter(|(k, _)| *k != "parameters") {
            grid.cells(vec![key.clone(), cell(key, Some(value))]);
        }
        if let Some(parameters) = record.get("parameters").and_then(Value::as_object) {
            for (key, value) in parameters {
                grid.cells(vec![format!("  {key}"), cell(key, Some(value))]);
            }
        }
    }
    grid.render()
}

/// A value for people.
fn cell(key: &str, value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".into(),
        Some(Value::Bool(on)) => if *on { "yes" } else { "no" }.into(),
        Some(Value::String(s)) => s.clone(),
        Some(Value::Array(items)) => {
            items.iter().map(|v| cell(key, Some(v))).collect::<Vec<_>>().join(",")
        }
        Some(Value::Object(map)) if map.values().all(Value::is_null) => "-".into(),
        Some(Value::Object(map)) => map
            .iter()
            .map(|(k, v)| format!("{k}={}", cell(k, Some(v))))
            .collect::<Vec<_>>()
            .join(" "),
        Some(Value::Number(n)) => match (key, n.as_u64()) {
            ("start" | "end", Some(at)) => clock(at),
            _ => n.to_string(),
        },
    }
}

/// Not endless.
fn short(text: &str) -> String {
    if text.chars().count() <= WIDE {
        return text.to_owned();
    }
    text.chars().take(WIDE - 3).chain("...".chars()).collect()
}
