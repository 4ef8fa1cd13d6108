//! `sjp table`: what sjpd has published, node by node and partition by
//! partition.

use super::Answer;
use super::live::{self, Live};
use super::text::{Grid, clock, count, safe, span};
use crate::cli::{Exit, TableArgs};
use crate::config::{Config, nearest};
use serde_json::{Value, json};
use sjp_core::eligible;
use sjp_core::hostlist;
use sjp_core::publication::{Group, MEM_UNMANAGED, NEVER, RoomView as _};
use sjp_core::units::MemMb;
use std::fmt::Write as _;

/// Most nodes that --node may name.
const MAX_NAMED: usize = 131_072;

pub fn answer(config: &Config, args: &TableArgs, json: bool) -> Answer {
    let live = match live::read(config) {
        Ok(live) => live,
        Err(e) => return Answer::failed(e.exit(), json, &e.to_string()),
    };
    let nodes = match chosen(&live, args) {
        Ok(nodes) => nodes,
        Err(why) => return Answer::failed(Exit::Critical, json, &why),
    };
    if json {
        Answer::json(Exit::Ok, &as_json(&live, &nodes, config.policy.demand_median))
    } else {
        Answer::ok(as_text(&live, &nodes, args, config.policy.demand_median))
    }
}

/// The nodes asked for, by index, in order of their names.
fn chosen(live: &Live, args: &TableArgs) -> Result<Vec<u32>, String> {
    let roster = &live.roster;
    let names = || (0..roster.nodes.len()).filter_map(|i| roster.nodes.get(i));
    let mut nodes: Vec<u32> = match &args.node {
        None => (0..roster.nodes.len()).filter_map(|i| u32::try_from(i).ok()).collect(),
        Some(list) => {
            let named = hostlist::expand_within(list, MAX_NAMED)
                .map_err(|e| format!("--node {}: {e}", safe(list)))?;
            let (found, unknown): (Vec<_>, Vec<_>) =
                named.iter().map(|n| (n, roster.nodes.find(n))).partition(|(_, at)| at.is_some());
            if let Some((name, _)) = unknown.first() {
                let near = match nearest(name, names()) {
                    Some(n) => format!("; nearest is {n}"),
                    None => String::new(),
                };
                let more = match unknown.len() {
                    1 => String::new(),
                    n => format!(" (and {} more)", n - 1),
                };
                return Err(format!("no node {}{more} in the table{near}", safe(name)));
            }
            found.iter().filter_map(|(_, at)| at.and_then(|i| u32::try_from(i).ok())).collect()
        }
    };
    if let Some(name) = &args.partition {
        let at = roster.partitions.iter().position(|p| p.name == *name);
        let Some(index) = at.and_then(|i| u16::try_from(i).ok()) else {
            let known = roster.partitions.iter().map(|p| p.name.as_str());
            let near = match nearest(name, known) {
                Some(n) => format!("; nearest is {n}"),
                None => String::new(),
            };
            return Err(format!("no partition {} in the table{near}", safe(name)));
        };
        nodes.retain(|n| eligible::partitions_of(roster, *n).contains(&index));
    }
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes)
}

/// MB as people read them; `-` where memory is not managed.
fn mem(mb: u32) -> String {
    if mb == MEM_UNMANAGED { "-".into() } else { MemMb(u64::from(mb)).to_string() }
}

/// MB as a number, or null.
fn mem_json(mb: u32) -> Value {
    if mb == MEM_UNMANAGED { Value::Null } else { mb.into() }
}

fn group_of(live: &Live, node: u32) -> Option<Group> {
    live.rooms.group_of(node).and_then(|g| live.rooms.group(g as usize))
}

fn partition_names(live: &Live, indices: &[u16]) -> Vec<String> {
    indices
        .iter()
        .filter_map(|p| live.roster.partitions.get(usize::from(*p)))
        .map(|p| p.name.clone())
        .collect()
}

fn as_text(live: &Live, nodes: &[u32], args: &TableArgs, median: f64) -> String {
    let roster = &live.roster;
    let mut out = format!(
        "node data {} old{}, publication {} of sjpd {}\n\n",
        span(live.age.as_secs_f64()),
        if live.is_stale() { " (stale: place() does not answer)" } else { "" },
        live.generation,
        live.pid
    );
    let mut grid = Grid::new([
        "node",
        "cpus",
        "free",
        "memory",
        "free",
        "per cpu",
        "promised",
        "partitions",
        "later",
    ]);
    for &node in nodes {
        let kind = eligible::kind_of(roster, node).copied();
        let group = group_of(live, node);
        let free = |f: &dyn Fn(&Group) -> String| group.as_ref().map_or_else(|| "-".into(), f);
        let promised = live.promised_on(node);
        grid.cells(vec![
            roster.nodes.get(node as usize).unwrap_or_default().to_owned(),
            kind.map_or(0, |k| k.cpus.0).to_string(),
            free(&|g| g.cpus.to_string()),
            kind.and_then(|k| k.mem).map_or_else(|| "-".into(), |m| m.to_string()),
            free(&|g| mem(g.mem)),
            free(&|g| match (g.cpus, g.mem) {
                (0, _) | (_, MEM_UNMANAGED) => "-".into(),
                (c, m) => format!("{:.1}G", f64::from(m) / f64::from(c) / 1024.0),
            }),
            promised.map_or_else(|| "-".into(), |p| format!("{}c,{}", p.cpus, mem(p.mem))),
            partition_names(live, eligible::partitions_of(roster, node)).join(","),
            match &group {
                None => "not usable".into(),
                Some(g) if g.taken_at == NEVER => String::new(),
                Some(g) => format!(
                    "{}c,{} from {}",
                    g.cpus_then,
                    mem(g.mem_then),
                    clock(u64::from(g.taken_at))
                ),
            },
        ]);
    }
    out.push_str(&grid.render());
    if args.node.is_none() {
        out.push('\n');
        out.push_str(&partitions_text(live, args, median));
        let usable: u64 = live.rooms.groups.iter().map(|g| u64::from(g.count)).sum();
        let _ = writeln!(
            out,
            "\n{} in {}; {} not yet taken over",
            count(usable, "usable node"),
            count(live.rooms.groups.len() as u64, "shape"),
            count(live.claims.len() as u64, "claim")
        );
    }
    out
}

/// What a partition's nodes have left in all.
#[derive(Default)]
struct Sum {
    nodes: u64,
    usable: u64,
    cpus: u64,
    mem: u64,
    phi: f64,
    /// Free CPUs that the typical job cannot use for want of memory.
    stranded: f64,
}

fn sums(live: &Live, median: f64) -> Vec<Sum> {
    let roster = &live.roster;
    let mut sums: Vec<Sum> = roster.partitions.iter().map(|_| Sum::default()).collect();
    for node in 0..roster.nodes.len() {
        let Ok(node) = u32::try_from(node) else { continue };
        let group = group_of(live, node);
        for p in eligible::partitions_of(roster, node) {
            let Some(sum) = sums.get_mut(usize::from(*p)) else { continue };
            sum.nodes += 1;
            if let Some(g) = &group {
                sum.usable += 1;
                sum.cpus += u64::from(g.cpus);
                sum.phi += g.phi;
                if g.mem != MEM_UNMANAGED {
                    sum.mem += u64::from(g.mem);
                    sum.stranded += (f64::from(g.cpus) - f64::from(g.mem) / median).max(0.0);
                }
            }
        }
    }
    sums
}

fn partitions_text(live: &Live, args: &TableArgs, median: f64) -> String {
    let mut grid = Grid::new([
        "partition",
        "tier",
        "nodes",
        "usable",
        "free cpus",
        "free memory",
        "placeable",
        "stranded",
        "state",
    ]);
    for (rule, sum) in live.roster.partitions.iter().zip(sums(live, median)) {
        if args.partition.as_ref().is_some_and(|p| *p != rule.name) {
            continue;
        }
        let state = match rule.open {
            true if rule.default => "open, default".into(),
            true => "open".into(),
            false => format!("not used: {}", rule.closed_because),
        };
        grid.row([
            rule.name.clone(),
            rule.tier.to_string(),
            sum.nodes.to_string(),
            sum.usable.to_string(),
            sum.cpus.to_string(),
            MemMb(sum.mem).to_string(),
            format!("{:.1}", sum.phi),
            format!("{:.1}", sum.stranded),
            state,
        ]);
    }
    grid.render()
}

fn as_json(live: &Live, nodes: &[u32], median: f64) -> Value {
    let roster = &live.roster;
    let list: Vec<Value> = nodes
        .iter()
        .map(|&node| {
            let kind = eligible::kind_of(roster, node).copied();
            let group = group_of(live, node);
            let promised = live.promised_on(node);
            json!({
                "name": roster.nodes.get(node as usize),
                "usable": group.is_some(),
                "cpus": kind.map(|k| k.cpus.0),
                "mem_mb": kind.and_then(|k| k.mem).map(|m| m.0),
                "cpu_step": kind.map(|k| k.step),
                "cpus_free": group.map(|g| g.cpus),
                "mem_free_mb": group.map(|g| mem_json(g.mem)),
                "placeable": group.map(|g| g.phi),
                "weight": group.map(|g| g.weight),
                "partitions": partition_names(live, eligible::partitions_of(roster, node)),
                "promised": promised.map(|p| json!({"cpus": p.cpus, "mem_mb": p.mem})),
                "later": group.filter(|g| g.taken_at != NEVER).map(|g| json!({
                    "from": g.taken_at,
                    "cpus_free": g.cpus_then,
                    "mem_free_mb": mem_json(g.mem_then),
                })),
            })
        })
        .collect();
    let partitions: Vec<Value> = roster
        .partitions
        .iter()
        .zip(sums(live, median))
        .map(|(rule, sum)| {
            json!({
                "name": rule.name,
                "tier": rule.tier,
                "open": rule.open,
                "default": rule.default,
                "closed_because": (!rule.open).then_some(&rule.closed_because),
                "nodes": sum.nodes,
                "usable": sum.usable,
                "cpus_free": sum.cpus,
                "mem_free_mb": sum.mem,
                "placeable": sum.phi,
                "stranded": sum.stranded,
                "max_time_minutes": rule.max_time.number(),
            })
        })
        .collect();
    let groups: Vec<Value> = live
        .rooms
        .groups
        .iter()
        .map(|g| {
            let pset = roster.psets.get(usize::from(g.pset)).map_or(&[][..], Vec::as_slice);
            json!({
                "cpus_free": g.cpus,
                "mem_free_mb": mem_json(g.mem),
                "nodes": g.count,
                "placeable": g.phi,
                "partitions": partition_names(live, pset),
            })
        })
        .collect();
    json!({
        "age_seconds": live.age.as_secs_f64(),
        "stale": live.is_stale(),
        "generation": live.generation,
        "pid": live.pid,
        "mode": roster.policy.mode,
        "nodes": list,
        "partitions": partitions,
        "groups": groups,
        "claims": {
            "open": live.claims.len(),
            "lost": live.claims_lost,
        },
        "capacity": {
            "nodes": live.capacity.nodes,
            "groups": live.capacity.groups,
            "qos_rooms": live.capacity.qos_rooms,
            "roster_bytes": live.capacity.roster_bytes,
            "claims": live.capacity.claims,
        },
    })
}
