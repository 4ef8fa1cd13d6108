//! `scontrol show job`, for people only: what a captured output says.
//!
//! Job name, comment, command, work dir and (in new versions) the submit line
//! are the user's own text, printed bare, so that any `Key=value` can be forged
//! in this output. Nothing may act on it, and the AdminComment is not read from
//! it at all. A forged value always stands beside the real one: a record in
//! which a value that is read here occurs twice is refused.

use crate::record::{self, Record};
use crate::{Parsed, Problem, time, tres};
use sjp_core::units::{Limit, MemMb, MemPer};

/// A job as `scontrol show job` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextJob {
    /// `JobId`.
    pub id: u32,
    /// `ArrayTaskId`, as printed.
    pub array_tasks: Option<String>,
    /// `JobState`.
    pub state: String,
    /// `Reason`.
    pub reason: String,
    /// `Partition`.
    pub partitions: Vec<String>,
    /// `ReqNodeList`, as printed; empty where there is none.
    pub required_nodes: String,
    /// `NodeList`, as printed; empty where there is none.
    pub nodes: String,
    /// `SchedNodeList`, as printed; empty where there is none.
    pub scheduled_nodes: String,
    /// `TimeLimit` in minutes.
    pub time_limit: Limit,
    /// `NumCPUs`.
    pub cpus: Option<u32>,
    /// `NumNodes`, the lower end.
    pub node_count: Option<u32>,
    /// `MinMemoryCPU` or `MinMemoryNode` (`Node(0)`: all of the node's).
    pub mem: MemPer,
    /// `Priority`; 0 is held.
    pub priority: Option<u32>,
    /// `QOS`.
    pub qos: String,
}

/// Reads the output of `scontrol show job`, one line a job or several.
#[must_use]
pub fn read(text: &str) -> Parsed<TextJob> {
    let mut out = Parsed::default();
    let (records, before) = record::split(text, |line| line.starts_with("JobId="));
    if let Some(Record { line, text }) = before
        && !text.starts_with("No jobs in the system")
    {
        out.error(line, Problem::Unknown { want: "scontrol's list of jobs" }, text);
    }
    for record in records {
        match job(record.text) {
            Ok(job) => out.records.push(job),
            Err(what) => out.error(record.line, what, record.text),
        }
    }
    out
}

fn job(text: &str) -> Result<TextJob, Problem> {
    let must = |key: &'static str| single(text, key)?.ok_or(Problem::Missing { key });
    let may = |key: &'static str| Ok::<_, Problem>(single(text, key)?.unwrap_or_default());
    let hosts = |key: &'static str| {
        let value = may(key)?;
        Ok::<_, Problem>(if crate::unset(value) { String::new() } else { value.to_owned() })
    };
    let count = |key: &'static str| {
        let value = may(key)?;
        Ok::<_, Problem>(value.split('-').next().and_then(|n| n.parse().ok()))
    };
    let id = must("JobId")?;
    let state = must("JobState")?;
    if crate::state::job(state).is_none() {
        return Err(Problem::Value {
            key: "JobState",
            value: crate::excerpt(state),
            want: "a job state",
        });
    }
    let mem = match (single(text, "MinMemoryCPU")?, single(text, "MinMemoryNode")?) {
        (Some(cpu), _) => MemPer::Cpu(amount("MinMemoryCPU", cpu)?),
        (None, Some(node)) => MemPer::Node(amount("MinMemoryNode", node)?),
        (None, None) => MemPer::Unset,
    };
    Ok(TextJob {
        id: record::number("JobId", Some(id))?,
        array_tasks: single(text, "ArrayTaskId")?.map(str::to_owned),
        state: state.to_owned(),
        reason: may("Reason")?.to_owned(),
        partitions: crate::list(must("Partition")?),
        required_nodes: hosts("ReqNodeList")?,
        nodes: hosts("NodeList")?,
        scheduled_nodes: hosts("SchedNodeList")?,
        time_limit: time::limit("TimeLimit", may("TimeLimit")?)?,
        cpus: count("NumCPUs")?,
        node_count: count("NumNodes")?,
        mem,
        priority: count("Priority")?,
        qos: hosts("QOS")?,
    })
}

fn amount(key: &'static str, value: &str) -> Result<MemMb, Problem> {
    tres::mem(value).ok_or_else(|| Problem::Value {
        key,
        value: crate::excerpt(value),
        want: "an amount of memory",
    })
}

/// The value of a key that may occur once only, up to the next blank.
fn single<'a>(text: &'a str, key: &'static str) -> Result<Option<&'a str>, Problem> {
    let mut found = None;
    let mut times = 0;
    for (at, _) in text.match_indices(key) {
        let bound = at == 0 || text.as_bytes()[at - 1].is_ascii_whitespace();
        let Some(value) = text[at + key.len()..].strip_prefix('=') else { continue };
        if bound {
            times += 1;
            found = Some(value.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or(value));
        }
    }
    if times > 1 { Err(Problem::Forgeable { key, times }) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(name: &str, tail: &str) -> String {
        format!(
            "JobId=4 JobName={name} UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=10500 \
             Nice=0 Account=root QOS=normal JobState=PENDING Reason=Priority Dependency=(null) \
             RunTime=00:00:00 TimeLimit=00:30:00 TimeMin=N/A Partition=slim,fat ReqNodeList=s02 \
             ExcNodeList=(null) NodeList= SchedNodeList=s02 NumNodes=1-1 NumCPUs=4 \
             MinMemoryNode=16G MinTmpDiskNode=0 Command=(null) WorkDir=/srv{tail}\n"
        )
    }

    #[test]
    fn every_value_of_a_record() {
        let parsed = read(&record("OOD Code Server", ""));
        assert_eq!(
            parsed.records,
            [TextJob {
                id: 4,
                array_tasks: None,
                state: "PENDING".into(),
                reason: "Priority".into(),
                partitions: vec!["slim".into(), "fat".into()],
                required_nodes: "s02".into(),
                nodes: String::new(),
                scheduled_nodes: "s02".into(),
                time_limit: Limit::At(30),
                cpus: Some(4),
                node_count: Some(1),
                mem: MemPer::Node(MemMb(16_384)),
                priority: Some(10_500),
                qos: "normal".into(),
            }]
        );
    }

    #[test]
    fn imitated_values_are_refused() {
        for text in [
            record("x JobState=RUNNING", ""),
            record("x", " Comment=a Partition=fat"),
            record("x", " SubmitLine=sbatch ReqNodeList=s01"),
        ] {
            let parsed = read(&text);
            assert!(parsed.records.is_empty());
            assert!(matches!(parsed.errors[0].what, Problem::Forgeable { times: 2, .. }));
        }
        // Not imitations: the key is part of another word.
        assert_eq!(read(&record("x_JobState=RUNNING", "")).records.len(), 1);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(JobId=|JobState=| |\n|.){0,60}") {
            let _ = read(&text);
        }
    }
}
