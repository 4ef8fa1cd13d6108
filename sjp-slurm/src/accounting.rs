//! Limits and associations: sacctmgr's QOS and association tables, and
//! `scontrol show assoc_mgr`.

use crate::{Parsed, Problem, time, tres};
use serde::Serialize;
use sjp_core::cluster::QosCaps;
use sjp_core::units::Limit;
use std::collections::HashMap;

/// Arguments for sacctmgr: every QOS. The header is kept, so that columns are
/// known by name.
pub const QOS_ARGS: &[&str] = &[
    "-P",
    "show",
    "qos",
    "format=Name,Priority,Flags,MaxTRES,MaxTRESPU,MaxTRESPA,GrpTRES,MaxWall,MaxJobsPU,\
     MaxSubmitPU,MaxJobsPA,MaxSubmitPA,GrpJobs,GrpSubmit,Preempt",
];

/// Arguments for sacctmgr: every association.
pub const ASSOC_ARGS: &[&str] =
    &["-P", "show", "assoc", "format=Cluster,Account,User,Partition,QOS,DefaultQOS"];

/// Arguments for scontrol: limits and use of every QOS.
pub const ASSOC_MGR_ARGS: &[&str] = &["show", "assoc_mgr", "flags=qos"];

/// Columns of a QOS table without a header, by their number.
const QOS_BARE: &[&str] =
    &["Name", "Priority", "MaxTRESPU", "MaxTRESPA", "GrpTRES", "MaxWall", "Preempt", "Flags"];
/// The same for associations.
const ASSOC_BARE: &[&str] =
    &["Cluster", "Account", "User", "Partition", "QOS", "DefaultQOS", "Share"];

/// The limits of one QOS; a limit that is not set is `None` (0 is a limit).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Qos {
    /// `Name`.
    pub name: String,
    /// `Priority`.
    pub priority: Option<u32>,
    /// `Flags`.
    pub flags: Vec<String>,
    /// CPUs of one job (`MaxTRES`, in newer versions `MaxTRESPerJob`).
    pub max_cpus_per_job: Option<u64>,
    /// CPUs of one user (`MaxTRESPU`).
    pub max_cpus_per_user: Option<u64>,
    /// GPUs of one user.
    pub max_gpus_per_user: Option<u64>,
    /// CPUs of one account (`MaxTRESPA`).
    pub max_cpus_per_account: Option<u64>,
    /// GPUs of one account.
    pub max_gpus_per_account: Option<u64>,
    /// CPUs of all together (`GrpTRES`).
    pub group_cpus: Option<u64>,
    /// `MaxWall` in minutes.
    pub max_wall_minutes: Option<u32>,
    /// `MaxJobsPU`.
    pub max_jobs_per_user: Option<u32>,
    /// `MaxSubmitPU`.
    pub max_submit_per_user: Option<u32>,
    /// `MaxJobsPA`.
    pub max_jobs_per_account: Option<u32>,
    /// `MaxSubmitPA`.
    pub max_submit_per_account: Option<u32>,
    /// `GrpJobs`.
    pub group_jobs: Option<u32>,
    /// `GrpSubmit`.
    pub group_submit: Option<u32>,
    /// `Preempt`: the QOS whose jobs it may preempt.
    pub preempt: Vec<String>,
}

impl Qos {
    /// Whether it can refuse a submission by itself.
    #[must_use]
    pub fn can_reject(&self) -> bool {
        self.flags.iter().any(|f| f.eq_ignore_ascii_case("DenyOnLimit"))
            || self.max_submit_per_user.is_some()
            || self.max_submit_per_account.is_some()
            || self.group_submit.is_some()
    }
}

/// One association.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Assoc {
    /// `Cluster`, where it was asked for.
    pub cluster: Option<String>,
    /// `Account`.
    pub account: String,
    /// `User`; `None` for the account's own association.
    pub user: Option<String>,
    /// `Partition`: an association for jobs in this one only.
    pub partition: Option<String>,
    /// `QOS`.
    pub qos: Vec<String>,
    /// `DefaultQOS`.
    pub default_qos: Option<String>,
}

/// Reads a QOS table of sacctmgr: with `-P` and a header, or without `-P`;
/// without a header only in the one form known.
#[must_use]
pub fn qos(text: &str) -> Parsed<Qos> {
    rows(text, &["Name"], QOS_BARE, |row| {
        let name = row.get(&["Name"]).ok_or(Problem::Missing { key: "Name" })?;
        let cpus = |names: &[&str], tres: &str| -> Result<Option<u64>, Problem> {
            let Some(value) = row.get(names).and_then(|list| tres::get(list, tres)) else {
                return Ok(None);
            };
            tres::count(value).map(Some).ok_or_else(|| bad("TRES", value))
        };
        let number = |names: &[&str]| -> Result<Option<u32>, Problem> {
            let Some(value) = row.get(names).filter(|v| !v.is_empty()) else { return Ok(None) };
            value.parse().map(Some).map_err(|_| bad("limit", value))
        };
        let wall = match row.get(&["MaxWall", "MaxWallDurationPerJob"]) {
            None | Some("") => Limit::Unset,
            Some(value) => time::limit("MaxWall", value)?,
        };
        const JOB: &[&str] = &["MaxTRES", "MaxTRESPerJob", "MaxTRESPJ"];
        const USER: &[&str] = &["MaxTRESPU", "MaxTRESPerUser"];
        const ACCOUNT: &[&str] = &["MaxTRESPA", "MaxTRESPerAccount"];
        Ok(Qos {
            name: name.to_owned(),
            priority: number(&["Priority"])?,
            flags: crate::list(row.get(&["Flags"]).unwrap_or_default()),
            max_cpus_per_job: cpus(JOB, "cpu")?,
            max_cpus_per_user: cpus(USER, "cpu")?,
            max_gpus_per_user: cpus(USER, "gres/gpu")?,
            max_cpus_per_account: cpus(ACCOUNT, "cpu")?,
            max_gpus_per_account: cpus(ACCOUNT, "gres/gpu")?,
            group_cpus: cpus(&["GrpTRES"], "cpu")?,
            max_wall_minutes: wall.number(),
            max_jobs_per_user: number(&["MaxJobsPU", "MaxJobsPerUser"])?,
            max_submit_per_user: number(&[
                "MaxSubmitPU",
                "MaxSubmitJobsPU",
                "MaxSubmitJobsPerUser",
            ])?,
            max_jobs_per_account: number(&["MaxJobsPA", "MaxJobsPerAccount"])?,
            max_submit_per_account: number(&[
                "MaxSubmitPA",
                "MaxSubmitJobsPA",
                "MaxSubmitJobsPerAccount",
            ])?,
            group_jobs: number(&["GrpJobs"])?,
            group_submit: number(&["GrpSubmit", "GrpSubmitJobs"])?,
            preempt: crate::list(row.get(&["Preempt"]).unwrap_or_default()),
        })
    })
}

fn bad(key: &'static str, value: &str) -> Problem {
    Problem::Value { key, value: crate::excerpt(value), want: "a number" }
}

/// Reads an association table of sacctmgr (`show assoc`, or `show user
/// withassoc`), as [`qos`] does.
#[must_use]
pub fn assoc(text: &str) -> Parsed<Assoc> {
    rows(text, &["Account"], ASSOC_BARE, |row| {
        let text = |name: &str| row.get(&[name]).filter(|v| !v.is_empty()).map(str::to_owned);
        Ok(Assoc {
            cluster: text("Cluster"),
            account: text("Account").ok_or(Problem::Missing { key: "Account" })?,
            user: text("User"),
            partition: text("Partition"),
            qos: crate::list(row.get(&["QOS"]).unwrap_or_default()),
            default_qos: text("DefaultQOS").or_else(|| text("Def QOS")),
        })
    })
}

/// The cells of a row by the names of their columns.
struct Row<'a> {
    columns: &'a [&'a str],
    cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn get(&self, names: &[&str]) -> Option<&'a str> {
        let at =
            self.columns.iter().position(|c| names.iter().any(|n| c.eq_ignore_ascii_case(n)))?;
        self.cells.get(at).copied()
    }
}

/// The name column of a table, and how its rows are cut into cells.
enum Layout {
    /// Cells between `|`; whether each row ends in one more.
    Pipes { trailing: bool },
    /// Cells below the dashes of the second line: from, to.
    Dashes(Vec<(usize, usize)>),
}

fn rows<T>(
    text: &str,
    keys: &[&str],
    bare: &[&str],
    read: impl Fn(&Row<'_>) -> Result<T, Problem>,
) -> Parsed<T> {
    let mut out = Parsed::default();
    let mut lines =
        text.lines().enumerate().map(|(i, l)| (i + 1, l)).filter(|(_, l)| !l.trim().is_empty());
    let Some((first, header)) = lines.clone().next() else { return out };
    let trailing = header.ends_with('|');
    let strip = |line: &'_ str| -> String { line.trim_end_matches('|').to_owned() };
    let names = strip(header);
    let mut columns: Vec<&str> = names.split('|').map(str::trim).collect();
    let named = |columns: &[&str]| {
        columns.len() > 1 && keys.iter().all(|k| columns.iter().any(|c| c.eq_ignore_ascii_case(k)))
    };
    let second = lines.clone().nth(1);
    let layout = if header.contains('|') && named(&columns) {
        lines.next();
        Layout::Pipes { trailing }
    } else if header.contains('|') && header.split('|').count() == bare.len() {
        out.warn(first, format!("no header: read as {}", bare.join("|")));
        columns = bare.to_vec();
        Layout::Pipes { trailing: false }
    } else if let Some((_, dashes)) =
        second.filter(|(_, l)| l.trim().bytes().all(|b| b == b'-' || b == b' '))
    {
        let places = runs(dashes);
        columns = places.iter().map(|&(a, b)| cell(header, a, b).unwrap_or("")).collect();
        if !named(&columns) {
            out.error(first, Problem::NoHeader { advice: ADVICE }, header);
            return out;
        }
        lines.by_ref().take(2).for_each(drop);
        Layout::Dashes(places)
    } else {
        out.error(first, Problem::NoHeader { advice: ADVICE }, header);
        return out;
    };
    for (line, text) in lines {
        let cells = match &layout {
            Layout::Pipes { trailing } => {
                let row = if *trailing { text.strip_suffix('|').unwrap_or(text) } else { text };
                Ok(row.split('|').map(str::trim).collect::<Vec<_>>())
            }
            Layout::Dashes(places) => uncut(text, places, &columns),
        };
        let record = cells.and_then(|cells| {
            if cells.len() != columns.len() {
                return Err(Problem::Cells { found: cells.len(), want: columns.len() });
            }
            read(&Row { columns: &columns, cells })
        });
        match record {
            Ok(record) => out.records.push(record),
            Err(what) => out.error(line, what, text),
        }
    }
    out
}

const ADVICE: &str = "read again with sacctmgr -P and a format=, without -n";

/// The places of the dashes below a header.
fn runs(dashes: &str) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    let mut start = None;
    for (at, b) in dashes.bytes().chain(std::iter::once(b' ')).enumerate() {
        match (b == b'-', start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                places.push((from, at));
                start = None;
            }
            _ => {}
        }
    }
    places
}

fn cell(line: &str, from: usize, to: usize) -> Option<&str> {
    let to = to.min(line.len());
    line.get(from.min(to)..to).map(str::trim)
}

/// Cells by place; one that sacctmgr cut (a `+` at its end) is an error.
fn uncut<'a>(
    line: &'a str,
    places: &[(usize, usize)],
    columns: &[&str],
) -> Result<Vec<&'a str>, Problem> {
    let mut cells = Vec::with_capacity(places.len());
    for (&(from, to), column) in places.iter().zip(columns) {
        let cell = cell(line, from, to)
            .ok_or(Problem::Unknown { want: "a row in the columns of the header" })?;
        if cell.len() == to - from && cell.ends_with('+') {
            return Err(Problem::Cut {
                key: (*column).to_owned(),
                value: cell.to_owned(),
                advice: "read again with sacctmgr -P",
            });
        }
        cells.push(cell);
    }
    Ok(cells)
}

/// Reads the QOS part of `scontrol show assoc_mgr`: the caps of each QOS and
/// who uses how much of them. A cap is printed only beside somebody's use, so
/// that a QOS that nobody uses shows none: sacctmgr has them all ([`qos`]).
#[must_use]
pub fn assoc_mgr(text: &str) -> Parsed<QosCaps> {
    #[derive(Clone, Copy, PartialEq)]
    enum Part {
        Qos,
        Accounts,
        Users,
    }
    let mut out: Parsed<QosCaps> = Parsed::default();
    let mut part = Part::Qos;
    let mut whose: Option<String> = None;
    let mut inside = false;
    let mut found = text.trim().is_empty();
    let lines = text
        .lines()
        .enumerate()
        .flat_map(|(index, line)| unrolled(line).into_iter().map(move |part| (index, part)));
    for (index, line) in lines {
        let line = line.as_str();
        found |= line.starts_with("Current Association Manager state");
        if line.trim() == "QOS Records" {
            (inside, found) = (true, true);
            continue;
        }
        let word = line.trim();
        if !inside || word.is_empty() {
            continue;
        }
        if let Some(named) = line.strip_prefix("QOS=") {
            let name = named.rsplit_once('(').map_or(named, |(name, _)| name);
            out.records.push(QosCaps { name: name.trim().to_owned(), ..QosCaps::default() });
            (part, whose) = (Part::Qos, None);
            continue;
        }
        let Some(record) = out.records.last_mut() else { continue };
        match word {
            "Account Limits" => part = Part::Accounts,
            "User Limits" => part = Part::Users,
            "No Accounts" | "No Users" => {}
            _ if part != Part::Qos && !word.contains('=') => whose = Some(word.to_owned()),
            _ => {
                let read = values(word, |key, value| match (key, part, &whose) {
                    ("MaxTRESPU", Part::Users, Some(user)) => {
                        let Some((limit, used)) = cpu(value)? else { return Ok(()) };
                        record.max_cpus_per_user = record.max_cpus_per_user.or(limit);
                        record.used_by_user.push((uid(user)?, used));
                        Ok(())
                    }
                    ("MaxTRESPA", Part::Accounts, Some(account)) => {
                        let Some((limit, used)) = cpu(value)? else { return Ok(()) };
                        record.max_cpus_per_account = record.max_cpus_per_account.or(limit);
                        record.used_by_account.push((account.clone(), used));
                        Ok(())
                    }
                    ("MaxSubmitJobsPU" | "MaxSubmitJobsPA" | "GrpSubmitJobs", _, _) => {
                        record.can_reject |= limit_and_use(value)?.0.is_some();
                        Ok(())
                    }
                    _ => Ok(()),
                });
                if let Err(what) = read {
                    out.error(index + 1, what, line);
                }
            }
        }
    }
    if !found {
        out.error(1, Problem::Unknown { want: "the output of scontrol show assoc_mgr" }, text);
    }
    out
}

/// A QOS on one line (`-o`) as the lines it has without: its own values, then
/// `NAME={...}` for each account and user. Any other line is given back alone.
fn unrolled(line: &str) -> Vec<String> {
    const ACCOUNTS: &str = " Account Limits=";
    const USERS: &str = " User Limits=";
    let parts = line.strip_prefix("QOS=").and_then(|_| {
        let (own, rest) = line.split_once(ACCOUNTS)?;
        let (accounts, users) = rest.split_once(USERS)?;
        Some((own, accounts, users))
    });
    let Some((own, accounts, users)) = parts else { return vec![line.to_owned()] };
    let (name, values) = own.split_once(' ').unwrap_or((own, ""));
    let mut lines = vec![name.to_owned(), format!("    {values}")];
    for (title, entries) in [(ACCOUNTS, accounts), (USERS, users)] {
        lines.push(title.trim_end_matches('=').to_owned());
        for entry in entries.split('}') {
            if let Some((name, values)) = entry.split_once("={") {
                lines.push(format!("      {}", name.trim()));
                lines.push(format!("        {values}"));
            }
        }
    }
    lines
}

fn values<'a>(
    line: &'a str,
    mut take: impl FnMut(&'a str, &'a str) -> Result<(), Problem>,
) -> Result<(), Problem> {
    line.split_ascii_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .try_for_each(|(key, value)| take(key, value))
}

/// The cpu entry of a list `cpu=160(9),mem=N(133072)`: limit and use.
fn cpu(tres: &str) -> Result<Option<(Option<u32>, u32)>, Problem> {
    tres::get(tres, "cpu").map(limit_and_use).transpose()
}

/// `160(9)` or `N(9)`.
fn limit_and_use(value: &str) -> Result<(Option<u32>, u32), Problem> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| bad("limit(used)", value));
    let (limit, used) = value
        .split_once('(')
        .and_then(|(limit, rest)| Some((limit, rest.strip_suffix(')')?)))
        .ok_or_else(|| bad("limit(used)", value))?;
    Ok((if limit == "N" { None } else { Some(number(limit)?) }, number(used)?))
}

/// A user as assoc_mgr prints one: `1000` (22.05) or `anna(1000)`.
fn uid(user: &str) -> Result<u32, Problem> {
    let id = match user.rsplit_once('(') {
        Some((_, id)) => id.trim_end_matches(')'),
        None => user,
    };
    id.parse().map_err(|_| bad("User", user))
}

/// The caps of every QOS: use, and limits where somebody's use shows them, from
/// slurmctld; the other limits and the flags from sacctmgr.
#[must_use]
pub fn caps(limits: &[Qos], used: &[QosCaps]) -> Vec<QosCaps> {
    let used: HashMap<&str, &QosCaps> = used.iter().map(|q| (q.name.as_str(), q)).collect();
    let small = |n: Option<u64>| n.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    // What slurmctld shows counts already; what sacctmgr said may be older.
    let live = |shown: Option<u32>, nobody: bool, said: Option<u32>| match nobody {
        true => shown.or(said),
        false => shown,
    };
    limits
        .iter()
        .map(|q| {
            let use_ = used.get(q.name.as_str()).copied().cloned().unwrap_or_default();
            QosCaps {
                name: q.name.clone(),
                max_cpus_per_user: live(
                    use_.max_cpus_per_user,
                    use_.used_by_user.is_empty(),
                    small(q.max_cpus_per_user),
                ),
                max_cpus_per_account: live(
                    use_.max_cpus_per_account,
                    use_.used_by_account.is_empty(),
                    small(q.max_cpus_per_account),
                ),
                can_reject: q.can_reject() || use_.can_reject,
                ..use_
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_come_from_the_header() {
        let text = "Name|MaxTRESPU|Flags|MaxWall|MaxSubmitPU|Priority\n\
            normal|cpu=160,gres/gpu=2||||0\n\
            high||DenyOnLimit|1-00:00:00||1000\n\
            hold|cpu=0|||0|0\n\
            short|cpu=a|||0|0\nfew|\n";
        let parsed = qos(text);
        assert_eq!(parsed.records.len(), 3);
        assert_eq!(
            parsed.records[0],
            Qos {
                name: "normal".into(),
                priority: Some(0),
                max_cpus_per_user: Some(160),
                max_gpus_per_user: Some(2),
                ..Qos::default()
            }
        );
        assert!(!parsed.records[0].can_reject() && parsed.records[1].can_reject());
        assert_eq!(parsed.records[1].max_wall_minutes, Some(1440));
        assert_eq!(parsed.records[2].max_cpus_per_user, Some(0));
        assert!(parsed.records[2].can_reject());
        assert_eq!(parsed.errors.iter().map(|e| e.line).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(qos("normal|0\n").errors.len(), 1);
        assert_eq!(qos(""), Parsed::default());
    }

    #[test]
    fn associations_of_partitions() {
        let text = "Cluster|Account|User|Partition|QOS|DefaultQOS\n\
            bar|acc||||\nbar|acc|anna|fat|high,normal|normal\n";
        let parsed = assoc(text);
        assert_eq!(
            parsed.records[1],
            Assoc {
                cluster: Some("bar".into()),
                account: "acc".into(),
                user: Some("anna".into()),
                partition: Some("fat".into()),
                qos: vec!["high".into(), "normal".into()],
                default_qos: Some("normal".into()),
            }
        );
        assert_eq!(parsed.records[0].user, None);
    }

    #[test]
    fn limits_and_use_together() {
        let text = "Current Association Manager state\n\nQOS Records\n\n\
            QOS=normal(1)\n    UsageRaw=0.000000\n    GrpSubmitJobs=N(24) GrpWall=N(0.00)\n\
            \x20   Account Limits\n      root\n        MaxSubmitJobsPA=N(24)\n\
            \x20       MaxTRESPA=cpu=200(60),mem=N(1)\n      a b\n        MaxTRESPA=cpu=200(4)\n\
            \x20   User Limits\n      0\n        MaxTRESPU=cpu=160(9),mem=N(1)\n\
            \x20     anna(1000)\n        MaxTRESPU=cpu=160(16)\n\
            QOS=capped(2)\n    GrpSubmitJobs=5(0)\n    Account Limits\n        No Accounts\n\
            \x20   User Limits\n        No Users\n";
        let parsed = assoc_mgr(text);
        assert_eq!(parsed.errors, []);
        assert_eq!(
            parsed.records,
            [
                QosCaps {
                    name: "normal".into(),
                    max_cpus_per_user: Some(160),
                    max_cpus_per_account: Some(200),
                    used_by_user: vec![(0, 9), (1000, 16)],
                    used_by_account: vec![("root".into(), 60), ("a b".into(), 4)],
                    can_reject: false,
                },
                QosCaps { name: "capped".into(), can_reject: true, ..QosCaps::default() },
            ]
        );
        let line = "QOS Records\nQOS=normal(1) UsageRaw=0.0 GrpSubmitJobs=N(24) Account Limits= \
            root={MaxSubmitJobsPA=N(24) MaxTRESPA=cpu=200(60),mem=N(1)} a b={MaxTRESPA=cpu=200(4)} \
            User Limits= 0={MaxTRESPU=cpu=160(9)} anna(1000)={MaxTRESPU=cpu=160(16)}\n\
            QOS=capped(2) GrpSubmitJobs=5(0) Account Limits=No Accounts User Limits=No Users\n";
        assert_eq!(assoc_mgr(line).records, parsed.records);
        let limits = [
            Qos { name: "flex".into(), max_cpus_per_user: Some(8), ..Qos::default() },
            Qos { name: "normal".into(), ..Qos::default() },
        ];
        let caps = caps(&limits, &parsed.records);
        assert_eq!(caps[0].max_cpus_per_user, Some(8));
        assert_eq!(caps[1], parsed.records[0]);
        // Raised or taken off since sacctmgr was asked.
        let old = Qos { name: "normal".into(), max_cpus_per_user: Some(8), ..Qos::default() };
        let live = super::caps(std::slice::from_ref(&old), &parsed.records);
        assert_eq!(live[0].max_cpus_per_user, Some(160));
        let open = QosCaps { max_cpus_per_user: None, ..parsed.records[0].clone() };
        assert_eq!(super::caps(&[old], &[open])[0].max_cpus_per_user, None);
        assert_eq!(assoc_mgr("no such thing").errors.len(), 1);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Name|Account|\\||-| |=|QOS=|QOS Records\n|MaxTRESPU=cpu=|\n|.){0,60}") {
            let _ = (qos(&text), assoc(&text), assoc_mgr(&text));
        }
    }
}
