//! The queue: the arguments that make squeue print what is read here, and the
//! reader for just that.
//!
//! Some of what squeue prints is text that users or the site wrote. Without
//! accounting, an account is any text, and a QOS too (24.11); required nodes may hold any name
//! beside a known one (24.11); a reason quotes names of accounts; the
//! AdminComment may hold what the site's job_submit.lua copied from a user.
//! Such text may hold separators, line breaks and whole imitated rows. So every
//! call of squeue carries a nonce that nobody knew when the jobs were
//! submitted, and records and those columns are cut at the nonce, never at line
//! ends: no text can begin, end, add or shift a row. The other columns are
//! numbers and names that Slurm checks.

use crate::{Parsed, Problem, array, record, state, time, tres};
use jiff::tz::TimeZone;
use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter};
use sjp_core::cluster::Job;
use sjp_core::units::{Cpus, MemMb, MemPer};

/// The columns behind the job id that hold no free text, in order.
const MIDDLE: &[&str] = &[
    "ArrayJobID",
    "ArrayTaskID",
    "UserID",
    "State",
    "Partition",
    "SchedNodes",
    "NodeList",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "NumCPUs",
    "NumNodes",
    "NumTasks",
    "BatchFlag",
    "MinMemory",
    "tres-alloc",
    "tres-per-job",
    "tres-per-node",
    "tres-per-socket",
    "tres-per-task",
    "PriorityLong",
    "OverSubscribe",
    "Dependency",
    "HetJobID",
];
/// The columns behind those, each up to the nonce with its letter.
const FREE: &[(&str, char)] =
    &[("Reservation", 'r'), ("ReqNodes", 'n'), ("QOS", 'q'), ("Account", 'c'), ("Reason", 'a')];

/// One call of squeue.
#[derive(Clone, Debug)]
pub struct Query {
    nonce: String,
    marks: bool,
    /// One job only.
    job: Option<u32>,
    /// Whether `OverSubscribe=NO` tells that a job asked for whole nodes (it
    /// does up to 24.11; 26.05 prints it for every job).
    pub no_means_exclusive: bool,
}

impl Query {
    /// A call with a nonce: 64 random bits, drawn anew for every call and
    /// after the jobs that it will show were submitted.
    #[must_use]
    pub fn new(nonce: u64) -> Self {
        Self { nonce: format!("{nonce:016x}"), marks: true, job: None, no_means_exclusive: true }
    }

    /// The same for a squeue without an `admin_comment` column
    /// ([`Problem::NoMarks`] tells).
    #[must_use]
    pub fn without_marks(mut self) -> Self {
        self.marks = false;
        self
    }

    /// The same for one job: slurmctld packs that one alone (of an array, every
    /// record it has).
    #[must_use]
    pub fn of_job(mut self, id: u32) -> Self {
        self.job = Some(id);
        self
    }

    /// The arguments for squeue; to be called under [`crate::ENV`].
    #[must_use]
    pub fn args(&self) -> Vec<String> {
        let n = &self.nonce;
        let mut columns = format!("JobID:0|b{n}|");
        for column in MIDDLE {
            columns.push_str(&format!(",{column}:0|"));
        }
        for (column, letter) in FREE {
            columns.push_str(&format!(",{column}:0|{letter}{n}|"));
        }
        // Without marks, the user's id stands in for the comment.
        let last = if self.marks { "admin_comment" } else { "UserID" };
        columns.push_str(&format!(",{last}:0|e{n}"));
        // All partitions, hidden ones too; memory in MB; by default jobs that
        // ended are left out, those completing are not.
        ["-a", "-h", "--noconvert", "-O"]
            .into_iter()
            .map(str::to_owned)
            .chain(std::iter::once(columns))
            .chain(self.job.into_iter().flat_map(|id| ["-j".to_owned(), id.to_string()]))
            .collect()
    }

    /// Reads what squeue printed; `zone` is the time zone in which it did (of
    /// no matter under [`crate::ENV`]).
    #[must_use]
    pub fn read(&self, text: &str, zone: &TimeZone) -> Parsed<Job> {
        let mut out = Parsed::default();
        let cuts = Cuts::new(&self.nonce);
        let end = cuts.end.needle().len();
        if self.marks && find(&cuts.begin, text).is_some() && find(&cuts.end, text).is_none() {
            out.error(0, Problem::NoMarks, text);
            return out;
        }
        let mut line = 1;
        let mut rest = text;
        while let Some(at) = find(&cuts.end, rest) {
            let row = &rest[..at];
            match self.row(row, &cuts, zone) {
                Ok(job) => out.records.push(job),
                Err(what) => out.error(line, what, row),
            }
            line += memchr_iter(b'\n', row.as_bytes()).count() + 1;
            rest = &rest[at + end..];
            rest = rest.strip_prefix('\n').unwrap_or(rest);
        }
        if !rest.trim().is_empty() {
            // A row cut short, or an error message instead of rows.
            out.error(line, Problem::Unknown { want: "a whole row of squeue" }, rest);
        }
        out
    }

    fn row(&self, row: &str, cuts: &Cuts, zone: &TimeZone) -> Result<Job, Problem> {
        let bad = || Problem::Unknown { want: "a row of the columns asked for" };
        let (id, mut row) = split_once(&cuts.begin, row).ok_or_else(bad)?;
        let mut middle = [""; MIDDLE.len()];
        for (found, cell) in middle.iter_mut().enumerate() {
            let at =
                memchr(b'|', row.as_bytes()).ok_or(Problem::Cells { found, want: MIDDLE.len() })?;
            (*cell, row) = (&row[..at], &row[at + 1..]);
        }
        let mut free = [""; FREE.len()];
        for (cell, cut) in free.iter_mut().zip(&cuts.free) {
            (*cell, row) = split_once(cut, row).ok_or_else(bad)?;
        }
        let [reservation, req_nodes, qos, account, reason] = free;
        let comment =
            self.marks.then(|| if row == "(null)" { String::new() } else { row.to_owned() });
        let mut cells = middle.into_iter();
        let mut next = || cells.next().ok_or_else(bad);
        let id: u32 = record::number("JobID", Some(id))?;
        let array_id: u32 = record::number("ArrayJobID", Some(next()?))?;
        let tasks = next()?;
        let uid = record::number("UserID", Some(next()?))?;
        let word = next()?;
        let state = state::job(word).ok_or_else(|| Problem::Value {
            key: "State",
            value: crate::excerpt(word),
            want: "a job state",
        })?;
        let partitions = crate::list(next()?);
        // Names that are no hostlist are the user's, and no node's.
        let req_nodes =
            record::hosts("ReqNodes", req_nodes).unwrap_or_else(|_| vec![req_nodes.to_owned()]);
        let sched_nodes = record::hosts("SchedNodes", next()?)?;
        let nodes = record::hosts("NodeList", next()?)?;
        let submit = time::instant("SubmitTime", next()?, zone)?.unwrap_or_default();
        let eligible = time::instant("EligibleTime", next()?, zone)?;
        let start = time::instant("StartTime", next()?, zone)?;
        let end = time::instant("EndTime", next()?, zone)?;
        let time_limit = time::limit("TimeLimit", next()?)?;
        let cpus = count("NumCPUs", next()?)?;
        let node_count = count("NumNodes", next()?)?;
        let tasks_in_all = count("NumTasks", next()?)?;
        let batch = next()? == "1";
        let min_memory = amount("MinMemory", next()?)?;
        let tres = next()?;
        let mem = memory(min_memory, tres)?;
        let mut gres = tres.contains("gres/");
        for _ in 0..4 {
            gres |= next()?.contains("gres");
        }
        let priority = record::number("PriorityLong", Some(next()?))?;
        let exclusive = self.no_means_exclusive && next()? == "NO";
        if !self.no_means_exclusive {
            next()?;
        }
        let dependency = next()?;
        let het = next()?;
        let array = !crate::unset(tasks);
        Ok(Job {
            id,
            array_id: array.then_some(array_id),
            array_tasks: if array { task_count(tasks)? } else { 1 },
            // Without the limit of tasks that run at once.
            task_ids: array.then(|| tasks.split('%').next().unwrap_or(tasks).to_owned()),
            uid,
            state,
            state_word: word.to_owned(),
            reason: reason.to_owned(),
            partitions,
            req_nodes,
            sched_nodes,
            nodes,
            submit,
            eligible,
            start,
            end,
            time_limit,
            cpus: Cpus(cpus),
            mem,
            node_count,
            tasks: tasks_in_all.max(1),
            batch,
            account: (!crate::unset(account)).then(|| account.to_owned()),
            qos: if crate::unset(qos) { String::new() } else { qos.to_owned() },
            priority,
            exclusive,
            gres,
            reservation: (!crate::unset(reservation)).then(|| reservation.to_owned()),
            dependent: !crate::unset(dependency),
            het: !crate::unset(het) && het != "0",
            admin_comment: comment,
        })
    }
}

/// Where records and columns are cut.
struct Cuts {
    begin: Finder<'static>,
    free: Vec<Finder<'static>>,
    end: Finder<'static>,
}

impl Cuts {
    fn new(nonce: &str) -> Self {
        let finder = |text: String| Finder::new(&text).into_owned();
        Self {
            begin: finder(format!("|b{nonce}|")),
            free: FREE.iter().map(|(_, letter)| finder(format!("|{letter}{nonce}|"))).collect(),
            end: finder(format!("|e{nonce}")),
        }
    }
}

fn find(finder: &Finder<'_>, text: &str) -> Option<usize> {
    finder.find(text.as_bytes())
}

fn split_once<'t>(finder: &Finder<'_>, text: &'t str) -> Option<(&'t str, &'t str)> {
    let at = find(finder, text)?;
    Some((&text[..at], &text[at + finder.needle().len()..]))
}

fn task_count(tasks: &str) -> Result<u32, Problem> {
    array::task_count(tasks).filter(|(_, cut)| !cut).map(|(n, _)| n).ok_or_else(|| Problem::Value {
        key: "ArrayTaskID",
        value: crate::excerpt(tasks),
        want: "a whole list of array tasks (SLURM_BITSTR_LEN=0 prints it whole)",
    })
}

/// A count, possibly with a unit; of a range (`1-4`) the lower end.
fn count(key: &'static str, value: &str) -> Result<u32, Problem> {
    let low = value.split('-').next().unwrap_or(value);
    tres::count(low).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| Problem::Value {
        key,
        value: crate::excerpt(value),
        want: "a number",
    })
}

fn amount(key: &'static str, value: &str) -> Result<MemMb, Problem> {
    tres::mem(value).ok_or_else(|| Problem::Value {
        key,
        value: crate::excerpt(value),
        want: "an amount of memory",
    })
}

/// Memory from `MinMemory`, which does not tell whether it is for each CPU or
/// each node, and the job's TRES, which holds the total and for how many CPUs
/// and nodes it is (before a job was looked at, not always those it will get).
fn memory(min: MemMb, tres: &str) -> Result<MemPer, Problem> {
    if min == MemMb(0) {
        // --mem=0, or no request and no default: all of the node's.
        return Ok(MemPer::Node(MemMb(0)));
    }
    let Some(total) = tres::get(tres, "mem") else { return Ok(MemPer::Node(min)) };
    let total = amount("tres-alloc", total)?;
    let of = |name| match tres::get(tres, name) {
        Some(n) => count("tres-alloc", n),
        None => Ok(1),
    };
    let (cpus, nodes) = (of("cpu")?, of("node")?);
    Ok(if cpus > nodes && total == min.times(Cpus(cpus)) {
        MemPer::Cpu(min)
    } else {
        MemPer::Node(MemMb(total.0.div_ceil(u64::from(nodes.max(1)))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sjp_core::cluster::JobState;
    use sjp_core::units::Limit;

    const NONCE: u64 = 0x0123_4567_89ab_cdef;

    fn row(id: &str, middle: &[(&str, &str)], reason: &str, comment: &str) -> String {
        let mut cells = Vec::new();
        let value = |column: &str| middle.iter().find(|(c, _)| *c == column).map(|(_, v)| *v);
        for column in MIDDLE {
            let default = match *column {
                "ArrayJobID" => id,
                "ArrayTaskID" | "tres-per-job" | "tres-per-node" | "tres-per-socket"
                | "tres-per-task" => "N/A",
                "UserID" => "1000",
                "State" => "PENDING",
                "Partition" => "slim,fat",
                "SchedNodes" | "Dependency" => "(null)",
                "SubmitTime" | "EligibleTime" => "1796056809",
                "StartTime" | "EndTime" => "N/A",
                "TimeLimit" => "1-00:00:00",
                "NumCPUs" => "4",
                "NumNodes" | "NumTasks" | "BatchFlag" => "1",
                "MinMemory" => "2000M",
                "tres-alloc" => "cpu=4,mem=8000M,node=1,billing=4",
                "PriorityLong" => "10500",
                "OverSubscribe" => "OK",
                "HetJobID" => "N/A",
                _ => "",
            };
            cells.push(value(column).unwrap_or(default));
        }
        cells.push(value("Reservation").unwrap_or("(null)"));
        let n = format!("{NONCE:016x}");
        let (nodes, qos) = (value("ReqNodes").unwrap_or(""), value("QOS").unwrap_or("normal"));
        let account = value("Account").unwrap_or("acc");
        format!(
            "{id}|b{n}|{}|r{n}|{nodes}|n{n}|{qos}|q{n}|{account}|c{n}|{reason}|a{n}|{comment}|e{n}\n",
            cells.join("|")
        )
    }

    fn read(text: &str) -> Parsed<Job> {
        Query::new(NONCE).read(text, &TimeZone::UTC)
    }

    fn plain() -> Job {
        Job {
            id: 7,
            array_tasks: 1,
            uid: 1000,
            state: JobState::Pending,
            state_word: "PENDING".into(),
            reason: "Priority".into(),
            partitions: vec!["slim".into(), "fat".into()],
            submit: 1_796_056_809,
            eligible: Some(1_796_056_809),
            time_limit: Limit::At(1440),
            cpus: Cpus(4),
            mem: MemPer::Cpu(MemMb(2000)),
            node_count: 1,
            tasks: 1,
            batch: true,
            account: Some("acc".into()),
            qos: "normal".into(),
            priority: 10_500,
            admin_comment: Some(String::new()),
            ..Job::default()
        }
    }

    #[test]
    fn the_arguments_hold_every_column_and_the_nonce() {
        let args = Query::new(NONCE).args();
        let columns = args.last().unwrap();
        assert!(columns.starts_with("JobID:0|b0123456789abcdef|,ArrayJobID:0|,"), "{columns}");
        assert!(columns.ends_with("|,admin_comment:0|e0123456789abcdef"), "{columns}");
        assert_eq!(columns.split(',').count(), MIDDLE.len() + FREE.len() + 2);
        let bare = Query::new(NONCE).without_marks().args();
        let one = Query::new(NONCE).of_job(7).args();
        assert_eq!(one[..args.len()], args);
        assert_eq!(one[args.len()..], ["-j", "7"]);
        assert!(bare.last().unwrap().ends_with("|,UserID:0|e0123456789abcdef"));
    }

    #[test]
    fn every_value_of_a_row() {
        assert_eq!(read(&row("7", &[], "Priority", "(null)")).records, [plain()]);
        let text = row(
            "21",
            &[
                ("ArrayJobID", "20"),
                ("ArrayTaskID", "1-9:2,20%4"),
                ("State", "CONFIGURING"),
                ("Partition", "slim"),
                ("ReqNodes", "s[01-02]"),
                ("SchedNodes", "s03"),
                ("NodeList", "s[02-03]"),
                ("EligibleTime", "N/A"),
                ("StartTime", "1796056900"),
                ("EndTime", "1796057900"),
                ("TimeLimit", "UNLIMITED"),
                ("NumCPUs", "2048"),
                ("NumNodes", "2"),
                ("MinMemory", "102400M"),
                ("tres-alloc", "cpu=2048,mem=200G,node=2,gres/gpu=4"),
                ("QOS", "high"),
                ("OverSubscribe", "NO"),
                ("Dependency", "afterok:5(unfulfilled)"),
                ("HetJobID", "21"),
                ("Reservation", "a | course"),
            ],
            "None",
            "site;sjp:pin=s02;id=7f",
        );
        let strings = |v: &[&str]| v.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            read(&text).records,
            [Job {
                id: 21,
                array_id: Some(20),
                array_tasks: 6,
                task_ids: Some("1-9:2,20".into()),
                uid: 1000,
                state: JobState::Active,
                state_word: "CONFIGURING".into(),
                reason: "None".into(),
                partitions: strings(&["slim"]),
                req_nodes: strings(&["s01", "s02"]),
                sched_nodes: strings(&["s03"]),
                nodes: strings(&["s02", "s03"]),
                submit: 1_796_056_809,
                eligible: None,
                start: Some(1_796_056_900),
                end: Some(1_796_057_900),
                time_limit: Limit::Unlimited,
                cpus: Cpus(2048),
                mem: MemPer::Node(MemMb(102_400)),
                node_count: 2,
                tasks: 1,
                batch: true,
                account: Some("acc".into()),
                qos: "high".into(),
                priority: 10_500,
                exclusive: true,
                gres: true,
                reservation: Some("a | course".into()),
                dependent: true,
                het: true,
                admin_comment: Some("site;sjp:pin=s02;id=7f".into()),
            }]
        );
    }

    #[test]
    fn memory_in_its_kinds() {
        for (min, tres, want) in [
            (2000, "cpu=4,mem=8000M,node=1", MemPer::Cpu(MemMb(2000))),
            (2000, "cpu=4,mem=2000M,node=1", MemPer::Node(MemMb(2000))),
            (2000, "cpu=2,mem=4000M,node=2", MemPer::Node(MemMb(2000))),
            (8192, "cpu=16,mem=16G,node=2", MemPer::Node(MemMb(8192))),
            // Of a job for two nodes, before the scheduler looked at it.
            (8192, "cpu=4,mem=8G,node=1", MemPer::Node(MemMb(8192))),
            (2000, "", MemPer::Node(MemMb(2000))),
            (0, "cpu=1,mem=2T", MemPer::Node(MemMb(0))),
        ] {
            assert_eq!(memory(MemMb(min), tres), Ok(want), "{min} {tres}");
        }
    }

    #[test]
    fn no_text_makes_or_changes_a_row() {
        let n = "fedcba9876543210";
        let forged = row("99", &[], "None", "sjp:pin=s01").replace("0123456789abcdef", n);
        for text in [
            "x\n99|PENDING|".to_owned(),
            format!("x\n{forged}"),
            format!("|e{n}\n{forged}"),
            "a|b||c\n\n".to_owned(),
        ] {
            let free = [("QOS", text.as_str()), ("ReqNodes", "a|b[c"), ("Reservation", &text)];
            let out = row("7", &free, &text, &text) + &row("8", &[], "Priority", "(null)");
            let parsed = read(&out);
            assert!(parsed.errors.is_empty(), "{parsed:?}");
            let mut first = plain();
            first.qos = text.clone();
            first.req_nodes = vec!["a|b[c".into()];
            first.reservation = Some(text.clone());
            first.reason = text.clone();
            first.admin_comment = Some(text);
            assert_eq!(parsed.records, [first, Job { id: 8, ..plain() }]);
        }
    }

    #[test]
    fn a_bad_row_is_an_error_and_the_others_stay() {
        let text = row("7", &[], "Priority", "(null)")
            + &row("8", &[("State", "bar")], "a\nb", "")
            + &row("9", &[("ArrayTaskID", "1,2,...")], "None", "")
            + &row("x", &[], "None", "")
            + &row("11", &[("Partition", "a|b")], "None", "")
            + &row("12", &[], "Priority", "(null)")
            + "13|b0123456789abcdef|13";
        let parsed = read(&text);
        assert_eq!(parsed.records, [plain(), Job { id: 12, ..plain() }]);
        assert_eq!(parsed.errors.iter().map(|e| e.line).collect::<Vec<_>>(), [2, 4, 5, 6, 8]);
        assert_eq!(read("slurm_load_jobs error: Unable to contact").errors.len(), 1);
        assert_eq!(read(""), Parsed::default());
    }

    #[test]
    fn a_squeue_without_admin_comment_is_told() {
        let n = "0123456789abcdef";
        let text = row("7", &[], "Priority", "").replace(&format!("|e{n}"), "");
        let parsed = read(&text);
        assert_eq!(parsed.errors[0].what, Problem::NoMarks);
        let text = row("7", &[], "Priority", "1000");
        let parsed = Query::new(NONCE).without_marks().read(&text, &TimeZone::UTC);
        assert_eq!(parsed.records, [Job { admin_comment: None, ..plain() }]);
    }

    proptest! {
        #[test]
        fn free_text_changes_nothing_else(reason in "(.|\n|\\|){0,60}", comment in "(.|\n|\\|){1,60}") {
            let parsed = read(&row("7", &[], &reason, &comment));
            prop_assert_eq!(parsed.errors, []);
            let job = Job { reason, admin_comment: Some(comment), ..plain() };
            prop_assert_eq!(parsed.records, [job]);
        }

        #[test]
        fn no_text_panics(cells in proptest::collection::vec("[0-9a-z\\[\\],:%|-]{0,12}", 20..30)) {
            let n = format!("{NONCE:016x}");
            let text = format!("1|b{n}|{}|r{n}||n{n}||q{n}||a{n}||e{n}", cells.join("|"));
            let _ = read(&text);
        }
    }
}
