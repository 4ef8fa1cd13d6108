//! `scontrol show partitions`, one line a partition (`-o`) or several.

use crate::record::{self, Record, Tokens};
use crate::{Parsed, Problem, nodes, time, tres};
use sjp_core::cluster::{Names, Partition};
use sjp_core::units::{Limit, MemPer};

/// Arguments for scontrol.
pub const ARGS: &[&str] = &["-a", "-o", "show", "partitions"];

/// Reads the output of `scontrol show partitions`.
#[must_use]
pub fn read(text: &str) -> Parsed<Partition> {
    let mut out = Parsed::default();
    let (records, before) = record::split(text, |line| line.starts_with("PartitionName="));
    if let Some(Record { line, text }) = before
        && !text.starts_with("No partitions in the system")
    {
        out.error(line, Problem::Unknown { want: "scontrol's list of partitions" }, text);
    }
    let mut lines = Vec::with_capacity(records.len());
    for record in records {
        match partition(record.text) {
            Ok(partition) => {
                if partition.nodes.len() != partition.node_count as usize {
                    out.warn(
                        record.line,
                        format!(
                            "{}: TotalNodes={} but Nodes holds {}",
                            partition.name,
                            partition.node_count,
                            partition.nodes.len()
                        ),
                    );
                }
                out.records.push(partition);
                lines.push(record.line);
            }
            Err(what) => out.error(record.line, what, record.text),
        }
    }
    nodes::refuse_twice(&mut out, lines, "PartitionName", |p| &p.name);
    out
}

fn partition(text: &str) -> Result<Partition, Problem> {
    let mut p = Partition::default();
    let mut seen = Seen::default();
    for (key, value) in pairs(text) {
        let value = value.trim();
        let yes = value == "YES";
        match key {
            "PartitionName" => p.name = value.to_owned(),
            "State" => {
                p.state = value.to_owned();
                seen.state = true;
            }
            "Nodes" => {
                p.nodes = record::hosts("Nodes", value)?;
                seen.nodes = true;
            }
            "TotalNodes" => {
                p.node_count = record::number("TotalNodes", Some(value))?;
                seen.node_count = true;
            }
            "PriorityTier" => {
                p.tier = record::number("PriorityTier", Some(value))?;
                seen.tier = true;
            }
            // Up to 16.05 the tier and the factor were one.
            "Priority" if !seen.tier => p.tier = record::number("Priority", Some(value))?,
            "Default" => p.default = yes,
            "MaxTime" => p.max_time = time::limit("MaxTime", value)?,
            "DefaultTime" => p.default_time = time::limit("DefaultTime", value)?,
            "MaxNodes" => p.max_nodes = count("MaxNodes", value)?,
            "MinNodes" => p.min_nodes = record::number_or("MinNodes", Some(value), 0)?,
            "MaxCPUsPerNode" => p.max_cpus_per_node = count("MaxCPUsPerNode", value)?,
            "MaxMemPerCPU" | "MaxMemPerNode" => p.max_mem = memory(key, value)?,
            "DefMemPerCPU" | "DefMemPerNode" => p.def_mem = memory(key, value)?,
            "AllowAccounts" => p.allow_accounts = names(value),
            "DenyAccounts" => p.deny_accounts = crate::list(value),
            "AllowQos" | "AllowQOS" => p.allow_qos = names(value),
            "DenyQos" | "DenyQOS" => p.deny_qos = crate::list(value),
            "AllowGroups" => p.allow_groups = names(value),
            "AllocNodes" => p.alloc_nodes = hosts_or_all(value)?,
            "QoS" | "QOS" => p.qos = (!crate::unset(value)).then(|| value.to_owned()),
            "RootOnly" => p.root_only = yes,
            "ReqResv" => p.req_resv = yes,
            "Hidden" => p.hidden = yes,
            "ExclusiveUser" => p.exclusive_user |= yes,
            // From 26.05 on.
            "Exclusive" => match value {
                "USER" => p.exclusive_user = true,
                "NODE" => seen.exclusive_node = true,
                _ => {}
            },
            "OverSubscribe" | "Shared" => p.over_subscribe = value.to_owned(),
            "LLN" => p.lln = yes,
            _ => {}
        }
    }
    if !seen.node_count {
        p.node_count = u32::try_from(p.nodes.len()).unwrap_or(u32::MAX);
    }
    if seen.exclusive_node {
        p.over_subscribe = "EXCLUSIVE".to_owned();
    }
    for (there, key) in
        [(!p.name.is_empty(), "PartitionName"), (seen.state, "State"), (seen.nodes, "Nodes")]
    {
        if !there {
            return Err(Problem::Missing { key });
        }
    }
    Ok(p)
}

/// What was found on the way through a record.
#[derive(Default)]
struct Seen {
    state: bool,
    nodes: bool,
    node_count: bool,
    tier: bool,
    exclusive_node: bool,
}

/// Keys and values; a token without `=` goes on with the value before it
/// (names of groups may hold blanks).
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut tokens = Tokens::new(text);
    let mut open: Option<(&str, usize, usize)> = None;
    let offset = move |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
    std::iter::from_fn(move || {
        loop {
            match tokens.next() {
                Some(("", word)) => {
                    if let Some((_, _, end)) = &mut open {
                        *end = offset(word) + word.len();
                    }
                }
                Some((key, value)) => {
                    let start = offset(value);
                    if let Some((k, s, e)) = open.replace((key, start, start + value.len())) {
                        return Some((k, &text[s..e]));
                    }
                }
                None => return open.take().map(|(k, s, e)| (k, &text[s..e])),
            }
        }
    })
}

fn count(key: &'static str, value: &str) -> Result<Limit, Problem> {
    match value {
        "UNLIMITED" | "INFINITE" => Ok(Limit::Unlimited),
        v if crate::unset(v) => Ok(Limit::Unset),
        v => record::number(key, Some(v)).map(Limit::At),
    }
}

/// `DefMemPerCPU=4315` and the like; 0 and `UNLIMITED` are no limit.
pub(crate) fn memory(key: &str, value: &str) -> Result<MemPer, Problem> {
    if crate::unset(value) || matches!(value, "UNLIMITED" | "0") {
        return Ok(MemPer::Unset);
    }
    let mem = tres::mem(value).ok_or_else(|| Problem::Value {
        key: "DefMem/MaxMem",
        value: crate::excerpt(value),
        want: "an amount of memory in MB",
    })?;
    Ok(if key.ends_with("CPU") { MemPer::Cpu(mem) } else { MemPer::Node(mem) })
}

fn names(value: &str) -> Names {
    match value {
        "ALL" | "(null)" | "" => Names::All,
        listed => Names::Listed(crate::list(listed)),
    }
}

fn hosts_or_all(value: &str) -> Result<Names, Problem> {
    match value {
        "ALL" | "(null)" | "" => Ok(Names::All),
        listed => record::hosts("AllocNodes", listed).map(Names::Listed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sjp_core::units::MemMb;

    const BATCH: &str = "PartitionName=batch AllowGroups=domain users,hpc DenyAccounts=a1,a2 \
        AllowQos=normal,high AllocNodes=login[1-2] Default=YES QoS=part DefaultTime=01:00:00 \
        DisableRootJobs=NO ExclusiveUser=YES GraceTime=0 Hidden=YES MaxNodes=2 MaxTime=7-00:00:00 \
        MinNodes=1 LLN=YES MaxCPUsPerNode=28 NodeSets=cpu Nodes=o[0002-0003,0005] \
        PriorityJobFactor=1000 PriorityTier=7 RootOnly=YES ReqResv=YES OverSubscribe=FORCE:2 \
        OverTimeLimit=NONE PreemptMode=OFF State=INACTIVE TotalCPUs=84 TotalNodes=3 \
        SelectTypeParameters=NONE JobDefaults=DefCpuPerGPU=3, DefMemPerCPU=4315 \
        MaxMemPerNode=8000 TRES=cpu=84,mem=12G,node=3\n";

    #[test]
    fn every_value_of_a_record() {
        let parsed = read(BATCH);
        assert!(parsed.errors.is_empty() && parsed.warnings.is_empty(), "{parsed:?}");
        let strings = |v: &[&str]| v.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            parsed.records,
            [Partition {
                name: "batch".into(),
                state: "INACTIVE".into(),
                nodes: strings(&["o0002", "o0003", "o0005"]),
                node_count: 3,
                tier: 7,
                default: true,
                max_time: Limit::At(10_080),
                default_time: Limit::At(60),
                max_nodes: Limit::At(2),
                min_nodes: 1,
                max_cpus_per_node: Limit::At(28),
                max_mem: MemPer::Node(MemMb(8000)),
                def_mem: MemPer::Cpu(MemMb(4315)),
                allow_accounts: Names::All,
                deny_accounts: strings(&["a1", "a2"]),
                allow_qos: Names::Listed(strings(&["normal", "high"])),
                deny_qos: vec![],
                allow_groups: Names::Listed(strings(&["domain users", "hpc"])),
                alloc_nodes: Names::Listed(strings(&["login1", "login2"])),
                qos: Some("part".into()),
                root_only: true,
                req_resv: true,
                hidden: true,
                exclusive_user: true,
                over_subscribe: "FORCE:2".into(),
                lln: true,
            }]
        );
        // The same over several lines, with a blank one within.
        let lines = BATCH.replacen(" AllocNodes", "\n   AllocNodes", 1);
        let lines = lines.replacen(" PriorityJobFactor", "\n   \n   PriorityJobFactor", 1);
        assert_eq!(read(&lines).records, parsed.records);
    }

    #[test]
    fn bad_records_are_errors_and_the_others_stay() {
        let text = BATCH.replace("batch", "a")
            + &BATCH.replace("batch", "b").replace("MaxTime=7-00:00:00", "MaxTime=soon")
            + &BATCH.replace("batch", "c").replace("0005]", "0005")
            + &BATCH.replace("batch", "d").replace(" State=INACTIVE", "")
            + &BATCH.replace("batch", "e");
        let parsed = read(&text);
        assert_eq!(parsed.records.iter().map(|p| &p.name).collect::<Vec<_>>(), ["a", "e"]);
        assert_eq!(parsed.errors.iter().map(|e| e.line).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(read("No partitions in the system\n").errors, []);
        assert_eq!(read("what?").errors.len(), 1);
    }

    #[test]
    fn whole_nodes_by_the_new_word() {
        let text = BATCH.replace("ExclusiveUser=YES", "Exclusive=NODE");
        let parsed = read(&text);
        assert_eq!(parsed.records[0].over_subscribe, "EXCLUSIVE");
        assert!(!parsed.records[0].exclusive_user);
        let text = BATCH.replace("ExclusiveUser=YES", "Exclusive=USER");
        assert!(read(&text).records[0].exclusive_user);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(PartitionName=[a-z]{0,3} |Nodes=|State=|MaxTime=|\n|.){0,60}") {
            let _ = read(&text);
        }
    }
}
