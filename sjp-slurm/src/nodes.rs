//! `scontrol show nodes`, one line a node (`-o`) or several, with `-d` or
//! without.
//!
//! Some values are text that people wrote: the operating system (from the node
//! itself), and `Reason`, `Comment` and `Extra` (from operators and scripts).
//! They may hold `=`, line breaks, and whole imitated records. So a key counts
//! where it stands first and before any of those texts, as Slurm prints every
//! value that is read here before them; a line begins a record only where it
//! goes on as Slurm's do; and a name that occurs twice is refused.

use crate::record::{self, Record, Tokens};
use crate::{Parsed, Problem, state, tres};
use sjp_core::cluster::{Gpus, Node};
use sjp_core::units::{Cpus, MemMb};
use std::collections::HashMap;

/// Arguments for scontrol.
pub const ARGS: &[&str] = &["-a", "-d", "-o", "show", "nodes"];

/// The values of a record that are read, as printed.
#[derive(Default)]
struct Values<'a> {
    state: Option<&'a str>,
    cpus: Option<&'a str>,
    cpus_effective: Option<&'a str>,
    cpus_alloc: Option<&'a str>,
    mem: Option<&'a str>,
    mem_spec: Option<&'a str>,
    mem_alloc: Option<&'a str>,
    threads: Option<&'a str>,
    sockets: Option<&'a str>,
    cores: Option<&'a str>,
    weight: Option<&'a str>,
    gres: Option<&'a str>,
    gres_used: Option<&'a str>,
    tres: Option<&'a str>,
    tres_alloc: Option<&'a str>,
    partitions: Option<&'a str>,
    features: Option<&'a str>,
    reason: Option<&'a str>,
}

/// Reads the output of `scontrol show nodes`.
#[must_use]
pub fn read(text: &str) -> Parsed<Node> {
    let mut out = Parsed::default();
    let (records, before) = record::split(text, begins);
    if let Some(Record { line, text }) = before
        && !text.starts_with("No nodes in the system")
    {
        out.error(line, Problem::Unknown { want: "scontrol's list of nodes" }, text);
    }
    out.records.reserve(records.len());
    let mut lines = Vec::with_capacity(records.len());
    for record in records {
        let values = scan(record.text);
        match node(&record, &values, &mut out) {
            Ok(node) => {
                out.records.push(node);
                lines.push(record.line);
            }
            Err(what) => out.error(record.line, what, record.text),
        }
    }
    refuse_twice(&mut out, lines, "NodeName", |n| &n.name);
    out
}

/// Whether a line begins a record: `NodeName=`, then what Slurm prints next.
/// Anything else that begins so is somebody's text.
fn begins(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("NodeName=") else { return false };
    if rest.starts_with([' ', '\n']) {
        return false;
    }
    let mut next = rest.split_ascii_whitespace().skip(1);
    next.find(|t| !t.starts_with("Arch=") && !t.starts_with("CpuBind="))
        .is_some_and(|t| t.starts_with("CoresPerSocket="))
}

/// Gathers the values up to the first free text.
fn scan(text: &str) -> Values<'_> {
    let mut v = Values::default();
    let mut tokens = Tokens::new(text);
    while let Some((key, value)) = tokens.next() {
        let slot = match key {
            "State" => &mut v.state,
            "CPUTot" => &mut v.cpus,
            "CPUEfctv" => &mut v.cpus_effective,
            "CPUAlloc" => &mut v.cpus_alloc,
            "RealMemory" => &mut v.mem,
            "MemSpecLimit" => &mut v.mem_spec,
            "AllocMem" => &mut v.mem_alloc,
            "ThreadsPerCore" => &mut v.threads,
            "Sockets" => &mut v.sockets,
            "CoresPerSocket" => &mut v.cores,
            "Weight" => &mut v.weight,
            "Gres" => &mut v.gres,
            "GresUsed" => &mut v.gres_used,
            "CfgTRES" => &mut v.tres,
            "AllocTRES" => &mut v.tres_alloc,
            "Partitions" => &mut v.partitions,
            "ActiveFeatures" => &mut v.features,
            "OS" => {
                // Up to what Slurm prints next.
                if let Some(at) = after_blank(tokens.rest(), "RealMemory=") {
                    tokens.skip(at);
                }
                continue;
            }
            "Reason" => {
                let start = text.len() - tokens.rest().len() - value.len();
                v.reason = Some(&text[start..]);
                break;
            }
            "Comment" | "Extra" => break,
            _ => continue,
        };
        if slot.is_none() {
            *slot = Some(value);
        }
    }
    v
}

/// Where `key` begins in `text`, right behind a blank or a line break.
fn after_blank(text: &str, key: &str) -> Option<usize> {
    text.match_indices(key)
        .map(|(at, _)| at)
        .find(|&at| at == 0 || text.as_bytes()[at - 1].is_ascii_whitespace())
}

fn node(record: &Record<'_>, v: &Values<'_>, out: &mut Parsed<Node>) -> Result<Node, Problem> {
    let name = record
        .text
        .strip_prefix("NodeName=")
        .and_then(|t| t.split_ascii_whitespace().next())
        .ok_or(Problem::Missing { key: "NodeName" })?;
    let words = state::node_words(v.state.ok_or(Problem::Missing { key: "State" })?);
    if words.is_empty() {
        return Err(Problem::Missing { key: "State" });
    }
    let cpus: u32 = record::number("CPUTot", v.cpus)?;
    let effective = record::number_or("CPUEfctv", v.cpus_effective, cpus)?;
    let real: u64 = record::number("RealMemory", v.mem)?;
    let mut node = Node {
        name: name.to_owned(),
        usable: state::node_usable(&words),
        state: words,
        cpus: Cpus(cpus),
        cpus_effective: Cpus(effective),
        cpus_alloc: Cpus(record::number("CPUAlloc", v.cpus_alloc)?),
        mem: (real > 1).then_some(MemMb(real)),
        mem_spec: MemMb(record::number_or("MemSpecLimit", v.mem_spec, 0)?),
        mem_alloc: MemMb(record::number_or("AllocMem", v.mem_alloc, 0)?),
        threads_per_core: {
            let threads = record::number_or("ThreadsPerCore", v.threads, 1)?.max(1);
            let sockets: u32 = record::number_or("Sockets", v.sockets, 0)?;
            let cores = record::number_or("CoresPerSocket", v.cores, 0)?;
            crate::used_threads(threads, cpus, sockets.saturating_mul(cores))
        },
        weight: record::number_or("Weight", v.weight, 1)?,
        gpus: gpus(v)?,
        partitions: crate::list(v.partitions.unwrap_or_default()),
        features: crate::list(v.features.unwrap_or_default()),
        reason: v.reason.map(one_line).filter(|r| !r.is_empty()),
    };
    check(record.line, &mut node, v.tres_alloc.unwrap_or_default(), out);
    Ok(node)
}

/// GPUs by `Gres`; those in use by `GresUsed`, or by `AllocTRES` where the
/// cluster counts GPUs there, else unknown.
fn gpus(v: &Values<'_>) -> Result<Gpus, Problem> {
    let count = |key, value: &str| {
        tres::gpus(value).ok_or_else(|| Problem::Value {
            key,
            value: crate::excerpt(value),
            want: "a list of generic resources",
        })
    };
    let total = count("Gres", v.gres.unwrap_or_default())?;
    let used = match (v.gres_used, v.tres, v.tres_alloc) {
        (Some(used), _, _) => Some(count("GresUsed", used)?),
        (None, Some(all), Some(alloc)) if tres::get(all, "gres/gpu").is_some() => {
            match tres::get(alloc, "gres/gpu") {
                Some(n) => tres::count(n).and_then(|n| u32::try_from(n).ok()),
                None => Some(0),
            }
        }
        _ => None,
    };
    Ok(Gpus { total, used })
}

/// Where the counters disagree with each other or with the state, takes what
/// leaves less room, and says so.
pub(crate) fn check(line: usize, node: &mut Node, tres_alloc: &str, out: &mut Parsed<Node>) {
    let cpus = tres::get(tres_alloc, "cpu").and_then(tres::count).unwrap_or(0);
    let cpus = Cpus(u32::try_from(cpus).unwrap_or(u32::MAX));
    let mem = tres::get(tres_alloc, "mem").and_then(tres::mem).unwrap_or_default();
    node.cpus_alloc = node.cpus_alloc.max(cpus);
    node.mem_alloc = node.mem_alloc.max(mem);
    if node.state.first().is_some_and(|s| s == "ALLOCATED") && node.cpus_alloc < node.cpus_effective
    {
        out.warn(
            line,
            format!(
                "{}: the state is ALLOCATED, yet only {} of {} CPUs are said to be allocated: \
                 counted as full",
                node.name, node.cpus_alloc.0, node.cpus_effective.0
            ),
        );
        node.cpus_alloc = node.cpus_effective;
    }
    if node.cpus_alloc > node.cpus {
        out.warn(
            line,
            format!(
                "{}: {} CPUs allocated of {}: counted as none free",
                node.name, node.cpus_alloc.0, node.cpus.0
            ),
        );
    }
    if node.mem.is_some_and(|m| node.mem_alloc > m) {
        out.warn(
            line,
            format!(
                "{}: {} MB allocated of {}: counted as none free",
                node.name,
                node.mem_alloc.0,
                node.mem.unwrap_or_default().0
            ),
        );
    }
}

/// A reason on one line, runs of blanks as one, without what Slurm prints
/// behind it.
fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let next = [" Comment=", " Extra=", " InstanceId=", " ReservationName="];
    if let Some(at) = next.iter().filter_map(|key| line.find(key)).min() {
        line.truncate(at);
    }
    line
}

/// Takes out every record whose name occurs more than once.
pub(crate) fn refuse_twice<T>(
    out: &mut Parsed<T>,
    lines: Vec<usize>,
    key: &'static str,
    name: impl Fn(&T) -> &String,
) {
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(out.records.len());
    for record in &out.records {
        *seen.entry(name(record)).or_default() += 1;
    }
    if seen.len() == out.records.len() {
        return;
    }
    let twice: Vec<bool> = out.records.iter().map(|r| seen[name(r).as_str()] > 1).collect();
    let records = std::mem::take(&mut out.records);
    for ((record, twice), line) in records.into_iter().zip(twice).zip(lines) {
        if twice {
            let value = name(&record).clone();
            out.error(line, Problem::Twice { key, value: value.clone() }, &value);
        } else {
            out.records.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record as 22.05 prints it, with text of our own in the free places.
    fn record(name: &str, os: &str, tail: &str) -> String {
        format!(
            "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=8 CPUEfctv=64 CPUTot=64 \
             CPULoad=0.11 AvailableFeatures=(null) ActiveFeatures=ib,big Gres=gpu:a:2,gpu:b:1 \
             GresDrain=N/A GresUsed=gpu:a:1(IDX:0),gpu:b:1(IDX:0) NodeAddr=127.0.0.1 \
             NodeHostName={name} Version=22.05.8 OS={os}  RealMemory=1024000 AllocMem=131072 \
             FreeMem=23255 Sockets=32 Boards=1 CoreSpecCount=1 MemSpecLimit=1000 State=MIXED \
             ThreadsPerCore=2 TmpDisk=0 Weight=3 Owner=N/A MCS_label=N/A Partitions=fat,slim  \
             BootTime=2026-11-30T15:50:27 SlurmdStartTime=2026-11-30T16:40:06 \
             LastBusyTime=2026-11-30T16:40:06 CfgTRES=cpu=64,mem=1000G,billing=64 \
             AllocTRES=cpu=8,mem=128G CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s \
             ExtSensorsWatts=0 ExtSensorsTemp=n/s{tail}\n"
        )
    }

    fn values() -> Node {
        Node {
            name: "f01".into(),
            state: vec!["MIXED".into()],
            usable: true,
            cpus: Cpus(64),
            cpus_effective: Cpus(64),
            cpus_alloc: Cpus(8),
            mem: Some(MemMb(1_024_000)),
            mem_spec: MemMb(1000),
            mem_alloc: MemMb(131_072),
            threads_per_core: 2,
            weight: 3,
            gpus: Gpus { total: 3, used: Some(2) },
            partitions: vec!["fat".into(), "slim".into()],
            features: vec!["ib".into(), "big".into()],
            reason: None,
        }
    }

    #[test]
    fn every_value_of_a_record() {
        let parsed = read(&record("f01", "Linux 6.1 #1 SMP", ""));
        assert_eq!(parsed.records, [values()]);
        assert!(parsed.errors.is_empty() && parsed.warnings.is_empty());
    }

    #[test]
    fn a_node_with_no_more_cpus_than_cores_counts_no_threads() {
        let text = record("f01", "Linux", "").replace("Sockets=32", "Sockets=64");
        let one = Node { threads_per_core: 1, ..values() };
        assert_eq!(read(&text).records, [one]);
    }

    #[test]
    fn free_text_changes_no_value_and_makes_no_node() {
        let forged = "NodeName=x State=IDLE CPUAlloc=0 CPUTot=999 RealMemory=9 AllocMem=0";
        let full = record("ghost", "Linux", "").trim_end().to_owned();
        for tail in [
            format!(" Reason=disk = bad, {forged} [root@2026-11-30T16:40:09]"),
            format!(" Reason=a [root@2026-11-30T16:40:09]        {forged}"),
            format!(" Reason=a\n   {forged}"),
            format!(" Reason=x {full}"),
            format!(" Comment={forged}"),
            format!(" Comment=a\n{forged}"),
            format!(" Comment=a\n\n{forged}\n\n"),
            format!(" Extra=\n   {full}"),
        ] {
            let parsed = read(&record("f01", "Linux", &tail));
            let mut node = values();
            node.reason = parsed.records[0].reason.clone();
            assert_eq!(parsed.records, [node], "{tail}");
            assert!(parsed.errors.is_empty(), "{tail}");
        }
        // The operating system's text cannot pass for what follows it.
        let parsed = read(&record("f01", "Linux State=DOWN CPUAlloc=0 CPUTot=1 Weight=9", ""));
        assert_eq!(parsed.records, [values()]);
    }

    #[test]
    fn a_whole_record_made_of_text_cannot_replace_a_node() {
        // Only an operator can write a line break and a whole record into a
        // comment; then neither of the two is taken.
        let forged = record("f02", "Linux", "");
        let text =
            record("f01", "Linux", &format!(" Comment=x\n{forged}")) + &record("f02", "Linux", "");
        let parsed = read(&text);
        assert_eq!(parsed.records.iter().map(|n| &n.name).collect::<Vec<_>>(), ["f01"]);
        assert_eq!(parsed.errors.len(), 2);
        assert!(matches!(&parsed.errors[0].what, Problem::Twice { value, .. } if value == "f02"));
    }

    #[test]
    fn a_broken_record_is_an_error_and_the_others_stay() {
        let text = record("f01", "Linux", "")
            + &record("f02", "Linux", "").replace("CPUTot=64", "CPUTot=many")
            + &record("f03", "Linux", "").replace("RealMemory=", "Memory=")
            + &record("f04", "Linux", "");
        let parsed = read(&text);
        assert_eq!(parsed.records.iter().map(|n| &n.name).collect::<Vec<_>>(), ["f01", "f04"]);
        let lines: Vec<_> = parsed.errors.iter().map(|e| e.line).collect();
        assert_eq!(lines, [2, 3]);
        assert!(parsed.errors[0].to_string().contains("CPUTot=\"many\" is not a number"));
        assert_eq!(parsed.errors[1].what, Problem::Missing { key: "RealMemory" });
        let parsed = read("slurm_load_node error: Unable to contact slurm controller");
        assert_eq!((parsed.records.len(), parsed.errors.len()), (0, 1));
        assert!(read("").errors.is_empty());
        assert!(read("No nodes in the system\n").errors.is_empty());
    }

    #[test]
    fn more_allocated_than_there_is_leaves_nothing_free_and_is_told() {
        let text = record("f01", "Linux", "")
            .replace("AllocTRES=cpu=8,mem=128G", "AllocTRES=cpu=192,mem=1312.50G");
        let parsed = read(&text);
        let node = &parsed.records[0];
        assert_eq!((node.cpus_alloc, node.mem_alloc), (Cpus(192), MemMb(1_344_000)));
        assert_eq!((node.cpus_free(), node.mem_free()), (Cpus(0), Some(MemMb(0))));
        assert_eq!(parsed.warnings.len(), 2);
    }

    proptest! {
        #[test]
        fn no_tail_changes_the_node_before_it(tail in "( |\n)(Reason|Comment|Extra)=(.|\n){0,80}") {
            let parsed = read(&record("f01", "Linux", &tail));
            prop_assert_eq!(parsed.records.len(), 1);
            let mut node = values();
            node.reason = parsed.records[0].reason.clone();
            prop_assert_eq!(&parsed.records[0], &node);
        }

        #[test]
        fn no_text_panics(text in "(NodeName=[a-z]{0,3} |CoresPerSocket=|State=|OS=|Reason=|\n|.){0,60}") {
            let _ = read(&text);
        }
    }
}
