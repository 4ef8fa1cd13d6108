//! What the readers make of a captured output, for support and tests: one call
//! for every kind, whatever form of it was captured, and the answer as JSON.

use crate::squeue::Query;
use crate::{Parsed, Problem, ReadError, Warning};
use crate::{accounting, capture, config, job_text, json, nodes, partitions, reservations};
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use sjp_core::cluster::{Job, Names, Node, Partition, Reservation, SlurmConfig};
use sjp_core::units::{Limit, MemPer};
use std::str::FromStr;

/// What a captured output is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nodes.
    Nodes,
    /// Partitions.
    Partitions,
    /// The configuration.
    Config,
    /// Reservations.
    Reservations,
    /// Jobs.
    Jobs,
    /// QOS.
    Qos,
    /// Associations.
    Assoc,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Nodes,
        Self::Partitions,
        Self::Config,
        Self::Reservations,
        Self::Jobs,
        Self::Qos,
        Self::Assoc,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Partitions => "partitions",
            Self::Config => "config",
            Self::Reservations => "reservations",
            Self::Jobs => "jobs",
            Self::Qos => "qos",
            Self::Assoc => "assoc",
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|k| k.name() == name).ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// No kind of output has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of nodes, partitions, config, reservations, jobs, qos, assoc")]
pub struct UnknownKind(String);

/// Reads a captured output of any form of its kind and gives
/// `{"KIND": [...], "errors": [...], "warnings": [...]}`. `zone` is the time
/// zone in which it was printed.
#[must_use]
pub fn parse(kind: Kind, bytes: &[u8], zone: &TimeZone) -> Value {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}');
    let is_json = text.trim_start().starts_with(['{', '[']);
    match kind {
        Kind::Nodes if is_json => answer(kind, json::nodes(bytes), node),
        Kind::Nodes if text.contains("NodeName=") || text.trim_start().starts_with("No nodes") => {
            answer(kind, nodes::read(text), node)
        }
        Kind::Nodes => answer(kind, capture::nodes(text), table_node),
        Kind::Jobs if is_json => answer(kind, json::jobs(bytes), json_job),
        Kind::Jobs => jobs(text, zone),
        _ if is_json => {
            let mut out: Parsed<Value> = Parsed::default();
            let want = "a text output (JSON is read for nodes and jobs)";
            out.error(1, Problem::Unknown { want }, text);
            answer(kind, out, Clone::clone)
        }
        Kind::Partitions => answer(kind, partitions::read(text), partition),
        Kind::Reservations => answer(kind, reservations::read(text, zone), reservation),
        Kind::Config if text.trim_start().starts_with("Configuration data as of") => {
            answer(kind, config::read(text), |c| configuration(c, true))
        }
        Kind::Config => answer(kind, config::read_file(text), conf_file),
        Kind::Qos if text.contains("QOS Records") => {
            answer(kind, accounting::assoc_mgr(text), |q| json!(q))
        }
        Kind::Qos => answer(kind, accounting::qos(text), |q| json!(q)),
        Kind::Assoc => answer(kind, accounting::assoc(text), |a| json!(a)),
    }
}

fn jobs(text: &str, zone: &TimeZone) -> Value {
    if let Some(query) = own_query(text) {
        return answer(Kind::Jobs, query.read(text, zone), job);
    }
    let start = text.trim_start();
    if start.starts_with("JobId=") || start.starts_with("No jobs in the system") {
        return answer(Kind::Jobs, job_text::read(text), text_job);
    }
    answer(Kind::Jobs, capture::jobs(text), table_job)
}

/// The query of a captured output of sjp's own call of squeue: its nonce
/// stands behind the first job id.
fn own_query(text: &str) -> Option<Query> {
    let (_, rest) = text.split_once("|b")?;
    let nonce = rest.get(..16).filter(|_| rest[16..].starts_with('|'))?;
    u64::from_str_radix(nonce, 16).ok().map(Query::new)
}

fn answer<T>(kind: Kind, parsed: Parsed<T>, view: impl Fn(&T) -> Value) -> Value {
    let mut top = Map::new();
    top.insert(kind.name().to_owned(), parsed.records.iter().map(view).collect());
    top.insert("errors".to_owned(), parsed.errors.iter().map(error).collect());
    top.insert("warnings".to_owned(), parsed.warnings.iter().map(warning).collect());
    Value::Object(top)
}

fn error(e: &ReadError) -> Value {
    json!({"line": e.line, "what": e.what.to_string(), "text": e.text})
}

fn warning(w: &Warning) -> Value {
    json!({"line": w.line, "text": w.text})
}

fn node(n: &Node) -> Value {
    json!({
        "name": n.name,
        "usable": n.usable,
        "state": n.state,
        "cpus": n.cpus,
        "cpus_alloc": n.cpus_alloc,
        "cpus_free": n.cpus_free(),
        "mem_mb": n.mem,
        "mem_alloc_mb": n.mem_alloc,
        "mem_free_mb": n.mem_free(),
        "gpus": n.gpus,
        "partitions": n.partitions,
        "features": n.features,
        "weight": n.weight,
        "reason": n.reason,
    })
}

/// A node of sinfo: what its table does not show is null.
fn table_node(n: &capture::TableNode) -> Value {
    json!({
        "name": n.name,
        "usable": crate::state::node_usable(&n.state),
        "state": n.state,
        "cpus": null,
        "cpus_alloc": null,
        "cpus_free": null,
        "mem_mb": null,
        "mem_alloc_mb": null,
        "mem_free_mb": null,
        "gpus": {"total": null, "used": null},
        "partitions": n.partitions,
    })
}

/// A limit: null where there is none.
fn limit(limit: Limit) -> Option<u32> {
    limit.number()
}

fn memory(mem: MemPer) -> Value {
    match mem {
        MemPer::Unset => Value::Null,
        MemPer::Cpu(mb) => json!({"per": "cpu", "mb": mb}),
        MemPer::Node(mb) => json!({"per": "node", "mb": mb}),
    }
}

/// The names let in; null for all.
fn names(names: &Names) -> Option<&[String]> {
    match names {
        Names::All => None,
        Names::Listed(list) => Some(list),
    }
}

fn partition(p: &Partition) -> Value {
    json!({
        "name": p.name,
        "state": p.state,
        "node_count": p.node_count,
        "tier": p.tier,
        "max_time_minutes": limit(p.max_time),
        "default_time_minutes": limit(p.default_time),
        "default": p.default,
        "nodes": p.nodes,
        "max_nodes": limit(p.max_nodes),
        "min_nodes": p.min_nodes,
        "max_cpus_per_node": limit(p.max_cpus_per_node),
        "def_mem": memory(p.def_mem),
        "max_mem": memory(p.max_mem),
        "allow_accounts": names(&p.allow_accounts),
        "deny_accounts": p.deny_accounts,
        "allow_qos": names(&p.allow_qos),
        "deny_qos": p.deny_qos,
        "allow_groups": names(&p.allow_groups),
        "qos": p.qos,
        "hidden": p.hidden,
        "root_only": p.root_only,
        "req_resv": p.req_resv,
        "over_subscribe": p.over_subscribe,
    })
}

fn reservation(r: &Reservation) -> Value {
    json!({
        "name": r.name,
        "nodes": r.nodes,
        "whole_nodes": r.whole_nodes,
        "cores": r.cores,
        "start": r.start,
        "end": r.end,
        "flags": r.flags,
        "active": r.active,
    })
}

/// `settled`: whether the settings are those in force, so that what is not
/// among them is not set (slurm.conf leaves defaults out).
fn configuration(c: &SlurmConfig, settled: bool) -> Value {
    let known = settled || !c.select_params.is_empty();
    let mut parameters = Map::new();
    for (key, value) in &c.all {
        parameters.entry(key.clone()).or_insert_with(|| Value::String(value.clone()));
    }
    let scheduler = c.all.iter().find(|(k, _)| k.eq_ignore_ascii_case("SchedulerParameters"));
    json!({
        "cluster": c.cluster,
        "version": c.version,
        "select_type": c.select_type,
        "select_params": c.select_params,
        "memory_consumable": known.then(|| c.memory_consumable()),
        "whole_cores": known.then(|| c.whole_cores()),
        "def_mem": memory(c.def_mem),
        "max_mem": memory(c.max_mem),
        "enforce_part_limits": c.enforce_part_limits,
        "accounting_enforce": c.accounting_enforce,
        "slurm_user": c.slurm_user,
        "controllers": c.controllers,
        "job_submit_plugins": c.job_submit_plugins,
        "scheduler_params": crate::list(scheduler.map_or("", |(_, v)| v)),
        "parameters": parameters,
    })
}

fn conf_file(f: &config::ConfFile) -> Value {
    let mut value = configuration(&f.config, false);
    if let Value::Object(top) = &mut value {
        let real = |d: &&config::Definition| d.names != ["DEFAULT"];
        let names: Vec<&String> = f.nodes.iter().filter(real).flat_map(|d| &d.names).collect();
        top.insert("nodes".to_owned(), json!(names));
        top.insert("node_lines".to_owned(), f.nodes.iter().map(definition).collect());
        top.insert("node_sets".to_owned(), f.node_sets.iter().map(definition).collect());
        top.insert("partitions".to_owned(), f.partitions.iter().map(definition).collect());
        top.insert("includes".to_owned(), json!(f.includes));
    }
    value
}

fn definition(d: &config::Definition) -> Value {
    let values: Map<String, Value> =
        d.values.iter().map(|(k, v)| (k.clone(), Value::String(v.clone()))).collect();
    json!({"names": d.names, "values": values})
}

fn job(j: &Job) -> Value {
    json!({
        "id": j.id,
        "state": j.state_word,
        "admin_comment": j.admin_comment,
        "required_nodes": sjp_core::hostlist::compress(&j.req_nodes),
        "partitions": j.partitions,
        "array_tasks": j.array_tasks,
        "reason": j.reason,
        "nodes": j.nodes,
        "scheduled_nodes": j.sched_nodes,
        "cpus": j.cpus,
        "mem": memory(j.mem),
        "time_limit_minutes": limit(j.time_limit),
        "priority": j.priority,
        "qos": j.qos,
    })
}

fn json_job(j: &json::JsonJob) -> Value {
    json!({
        "id": j.marked.id,
        "state": j.marked.state.join("+"),
        "admin_comment": j.marked.admin_comment,
        "required_nodes": j.marked.required_nodes,
        "partitions": j.marked.partitions,
        "array_job_id": j.array_job_id,
        "array_tasks": j.array_tasks,
        "reason": j.reason,
        "nodes": j.nodes,
        "scheduled_nodes": j.scheduled_nodes,
        "cpus": j.cpus,
        "node_count": j.node_count,
        "memory_per_cpu": j.memory_per_cpu,
        "memory_per_node": j.memory_per_node,
        "time_limit_minutes": limit(j.time_limit),
        "submit": j.marked.submit,
        "start": j.start,
        "priority": j.priority,
        "qos": j.qos,
    })
}

/// A job of `scontrol show job`: its AdminComment is not to be trusted there.
fn text_job(j: &job_text::TextJob) -> Value {
    json!({
        "id": j.id,
        "state": j.state,
        "admin_comment": null,
        "required_nodes": j.required_nodes,
        "partitions": j.partitions,
        "array_tasks": j.array_tasks,
        "reason": j.reason,
        "nodes": j.nodes,
        "scheduled_nodes": j.scheduled_nodes,
        "cpus": j.cpus,
        "node_count": j.node_count,
        "mem": memory(j.mem),
        "time_limit_minutes": limit(j.time_limit),
        "priority": j.priority,
        "qos": j.qos,
    })
}

fn table_job(j: &capture::TableJob) -> Value {
    json!({
        "id": j.id,
        "state": j.state,
        "admin_comment": null,
        "required_nodes": j.required_nodes,
        "partitions": j.partitions,
        "array_tasks": j.tasks,
        "reason": j.reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_by_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("node".parse::<Kind>().is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            head in "(|\\{|NodeName=a Arch=|JobId=1 |JOBID ST\n|1\\|b0123456789abcdef\\||1\\|bé0123456789abcde)"
        ) {
            let mut all = head.into_bytes();
            all.extend(bytes);
            for kind in Kind::ALL {
                let value = parse(kind, &all, &TimeZone::UTC);
                prop_assert!(value[kind.name()].is_array() && value["errors"].is_array());
            }
        }
    }
}
