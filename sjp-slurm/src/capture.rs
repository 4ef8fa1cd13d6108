//! Captured tables of squeue and sinfo with a header line, in whatever columns
//! and with whatever separator somebody asked for them.
//!
//! For people who look into a captured output; nothing acts on what comes from
//! here. A table without a header is refused: nothing says which column is
//! which. A row with more cells than the header has a name or another free text
//! with the separator in it: it is read where only one way to put the cells
//! together leaves every number, time and state in its column, and refused
//! otherwise. So is a value that fills its column and may be cut.

use crate::{Parsed, Problem, array, record, state};
use std::collections::BTreeMap;

/// A job as a table shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableJob {
    /// The job's id; of pending arrays, the array's.
    pub id: u32,
    /// How many array tasks the row stands for; 1 if none.
    pub tasks: u32,
    /// State as Slurm words it, short forms written out.
    pub state: String,
    /// Partitions, where there is such a column.
    pub partitions: Option<Vec<String>>,
    /// Required nodes, as printed, where there is such a column.
    pub required_nodes: Option<String>,
    /// Reason, where there is such a column.
    pub reason: Option<String>,
}

/// A node as sinfo shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableNode {
    /// Its name.
    pub name: String,
    /// State words.
    pub state: Vec<String>,
    /// Partitions in which it was shown.
    pub partitions: Vec<String>,
}

const ADVICE: &str = "capture again without -h, or with a header of column names";

/// Reads a table of squeue.
#[must_use]
pub fn jobs(text: &str) -> Parsed<TableJob> {
    let mut out = Parsed::default();
    let Some(table) = Table::find(text, &[&["JOBID"], &["STATE", "ST"]]) else {
        no_header(text, &mut out);
        return out;
    };
    for (line, row) in table.rows(text) {
        match table.cells(row).and_then(|cells| job(&table, &cells)) {
            Ok(job) => {
                if job.1 {
                    out.warn(line, format!("{}: the list of array tasks was cut", job.0.id));
                }
                out.records.push(job.0);
            }
            Err(what) => out.error(line, what, row),
        }
    }
    out
}

/// A job and whether its list of array tasks was cut.
fn job(table: &Table<'_>, cells: &[&str]) -> Result<(TableJob, bool), Problem> {
    // JOBID may stand twice: as shown (`12_[1-5]`) and raw.
    let ids: Vec<&str> = table.all("JOBID", cells).collect();
    let shown = *ids.first().ok_or(Problem::Missing { key: "JOBID" })?;
    let bad_id = |value: &str| Problem::Value {
        key: "JOBID",
        value: crate::excerpt(value),
        want: "a job id",
    };
    let reference = array::job_ref(shown).ok_or_else(|| bad_id(shown))?;
    let id = match ids.get(1) {
        Some(raw) => array::job_ref(raw).ok_or_else(|| bad_id(raw))?.id,
        None => reference.id,
    };
    let word = table.one(&["STATE", "ST"], cells).unwrap_or_default();
    let word = state::job_word(word);
    if state::job(word).is_none() {
        return Err(Problem::Value {
            key: "STATE",
            value: crate::excerpt(word),
            want: "a job state",
        });
    }
    let hosts = |value: &str| if crate::unset(value) { String::new() } else { value.to_owned() };
    let reason = table.one(&["REASON"], cells).map(str::to_owned).or_else(|| {
        let both = table.one(&["NODELIST(REASON)"], cells)?;
        Some(both.strip_prefix('(')?.strip_suffix(')')?.to_owned())
    });
    let job = TableJob {
        id,
        tasks: reference.tasks,
        state: word.to_owned(),
        partitions: table.one(&["PARTITION"], cells).map(crate::list),
        required_nodes: table.one(&["REQ_NODES"], cells).map(hosts),
        reason,
    };
    Ok((job, reference.cut))
}

/// Reads a table of sinfo, of rows for nodes or for groups of nodes.
#[must_use]
pub fn nodes(text: &str) -> Parsed<TableNode> {
    let mut out = Parsed::default();
    let hosts: &[&str] = &["NODELIST", "HOSTNAMES", "HOSTNAME"];
    let Some(table) = Table::find(text, &[hosts, &["STATE"]]) else {
        no_header(text, &mut out);
        return out;
    };
    let mut nodes: BTreeMap<String, TableNode> = BTreeMap::new();
    for (line, row) in table.rows(text) {
        let read = table.cells(row).and_then(|cells| {
            let names = record::hosts("NODELIST", table.one(hosts, &cells).unwrap_or_default())?;
            // STATE may stand twice, short and long; they mean the same.
            let words = state::node_words(table.one(&["STATE"], &cells).unwrap_or_default());
            if words.is_empty() {
                return Err(Problem::Missing { key: "STATE" });
            }
            // The default partition's name ends in a star.
            let partition = table.one(&["PARTITION"], &cells).map(|p| p.trim_end_matches('*'));
            Ok((names, words, partition))
        });
        match read {
            Ok((names, words, partition)) => {
                for name in names {
                    let node = nodes.entry(name.clone()).or_insert_with(|| TableNode {
                        name,
                        state: words.clone(),
                        partitions: Vec::new(),
                    });
                    if let Some(p) = partition.filter(|p| !node.partitions.iter().any(|q| q == p)) {
                        node.partitions.push(p.to_owned());
                    }
                }
            }
            Err(what) => out.error(line, what, row),
        }
    }
    out.records = nodes.into_values().collect();
    out
}

fn no_header<T>(text: &str, out: &mut Parsed<T>) {
    for (index, line) in text.lines().enumerate() {
        if !line.trim().is_empty() {
            out.error(index + 1, Problem::NoHeader { advice: ADVICE }, line);
        }
    }
}

/// How rows are cut into cells.
enum Cut {
    /// At a separator.
    At(&'static str),
    /// At runs of blanks.
    Blanks,
    /// At places: columns aligned to the right of their headers, one blank
    /// between them; from and to, the last one to the end of the line.
    Places(Vec<(usize, usize)>),
}

struct Table<'a> {
    columns: Vec<&'a str>,
    cut: Cut,
    /// The header's line, from 1.
    line: usize,
}

impl<'a> Table<'a> {
    /// Finds the header: the first line, or the second below sinfo's date,
    /// that names one of each of `needed`.
    fn find(text: &'a str, needed: &[&[&str]]) -> Option<Self> {
        let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
        lines.take(2).find_map(|(index, header)| {
            let cut = ["|#", "\u{1f}", "|"]
                .into_iter()
                .find(|s| header.contains(s))
                .map_or_else(|| blank_layout(header), Cut::At);
            let columns = match &cut {
                Cut::At(separator) => split(header, separator),
                Cut::Blanks | Cut::Places(_) => header.split_ascii_whitespace().collect(),
            };
            let has = |names: &&[&str]| columns.iter().any(|c| is(c, names));
            needed.iter().all(has).then_some(Self { columns, cut, line: index + 1 })
        })
    }

    fn rows(&self, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
        text.lines()
            .enumerate()
            .skip(self.line)
            .map(|(index, line)| (index + 1, line))
            .filter(|(_, line)| !line.trim().is_empty())
    }

    fn cells(&self, row: &'a str) -> Result<Vec<&'a str>, Problem> {
        let cells = match &self.cut {
            Cut::At(separator) => split(row, separator),
            Cut::Blanks => row.split_ascii_whitespace().collect(),
            Cut::Places(places) => {
                let mut cells = Vec::with_capacity(places.len());
                for (&(from, to), column) in places.iter().zip(&self.columns) {
                    let cell = row
                        .get(from.min(row.len())..to.min(row.len()))
                        .ok_or(Problem::Unknown { want: "a row below the columns' names" })?;
                    if is(column, &["PARTITION"]) && !cell.starts_with(' ') {
                        return Err(Problem::Cut {
                            key: (*column).to_owned(),
                            value: cell.to_owned(),
                            advice: "capture again with -O or -o and no width",
                        });
                    }
                    cells.push(cell.trim());
                }
                cells
            }
        };
        if cells.len() == self.columns.len() {
            return Ok(cells);
        }
        let bad = Problem::Cells { found: cells.len(), want: self.columns.len() };
        let Some(extra) = cells.len().checked_sub(self.columns.len()) else { return Err(bad) };
        let mut fit = Fit { row, columns: &self.columns, ways: 0, tried: 0, cells: Vec::new() };
        fit.put(&cells, extra, &mut Vec::with_capacity(self.columns.len()));
        if fit.ways == 1 && fit.tried <= Fit::MOST { Ok(fit.cells) } else { Err(bad) }
    }

    /// The cells of every column of a name.
    fn all<'c>(&self, name: &str, cells: &[&'c str]) -> impl Iterator<Item = &'c str> {
        self.columns.iter().zip(cells).filter(move |(c, _)| is(c, &[name])).map(|(_, cell)| *cell)
    }

    /// The cell of the first column of one of the names.
    fn one<'c>(&self, names: &[&str], cells: &[&'c str]) -> Option<&'c str> {
        let at = self.columns.iter().position(|c| is(c, names))?;
        cells.get(at).copied()
    }
}

/// The ways to put more cells than columns together, free texts taking the
/// ones too many.
struct Fit<'t, 'a> {
    row: &'a str,
    columns: &'t [&'t str],
    /// Ways found in which every cell fits its column.
    ways: usize,
    /// Ways tried, of at most [`Self::MOST`].
    tried: usize,
    /// The cells of the last way found.
    cells: Vec<&'a str>,
}

impl<'a> Fit<'_, 'a> {
    const MOST: usize = 2_000;

    fn put(&mut self, left: &[&'a str], extra: usize, taken: &mut Vec<&'a str>) {
        if self.tried > Self::MOST || self.ways > 1 {
            return;
        }
        let Some(column) = self.columns.get(taken.len()) else {
            self.tried += 1;
            if left.is_empty() {
                self.ways += 1;
                self.cells.clone_from(taken);
            }
            return;
        };
        let most = if free_text(column) { extra } else { 0 };
        for more in 0..=most {
            let Some(parts) = left.get(..=more) else { break };
            let cell = self.join(parts);
            if fits(column, cell) {
                taken.push(cell);
                self.put(&left[more + 1..], extra - more, taken);
                taken.pop();
            } else {
                self.tried += 1;
            }
        }
    }

    /// The text of the row from the first part to the last.
    fn join(&self, parts: &[&'a str]) -> &'a str {
        let offset = |part: &str| part.as_ptr() as usize - self.row.as_ptr() as usize;
        match parts {
            [first, .., last] => &self.row[offset(first)..offset(last) + last.len()],
            [only] => only,
            [] => "",
        }
    }
}

/// Columns that hold text of users or operators.
fn free_text(column: &str) -> bool {
    is(
        column,
        &[
            "NAME",
            "COMMENT",
            "COMMAND",
            "WORK_DIR",
            "WCKEY",
            "ACCOUNT",
            "REASON",
            "NODELIST(REASON)",
        ],
    )
}

/// Whether a cell can stand in a column; any can in a column that is not
/// known here.
fn fits(column: &str, cell: &str) -> bool {
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is(column, &["JOBID"]) {
        return array::job_ref(cell).is_some();
    }
    if is(column, &["STATE", "ST"]) {
        return state::job(state::job_word(cell)).is_some()
            || !cell.is_empty() && cell.bytes().all(|b| !b.is_ascii_digit() && b != b' ');
    }
    if is(column, &["TIME", "TIME_LIMIT", "TIME_LEFT", "TIMELIMIT"]) {
        return crate::time::seconds(cell).is_some()
            || crate::unset(cell)
            || matches!(cell, "UNLIMITED" | "INVALID" | "NOT_SET" | "infinite");
    }
    if is(column, &["SUBMIT_TIME", "START_TIME", "END_TIME", "ELIGIBLE_TIME"]) {
        let zone = jiff::tz::TimeZone::UTC;
        return crate::time::instant("time", cell, &zone).is_ok();
    }
    if is(column, &["NODES", "CPUS", "MIN_CPUS", "UID", "PRIORITY", "ARRAY_JOB_ID", "WEIGHT"]) {
        return digits(cell.trim_end_matches(['K', 'M']));
    }
    if is(column, &["MIN_MEMORY", "MEMORY", "TMP_DISK", "MIN_TMP_DISK"]) {
        return crate::tres::mem(cell.trim_end_matches('+')).is_some();
    }
    if is(column, &["THREADS_PER_CORE", "CORES_PER_SOCKET", "SOCKETS_PER_NODE"]) {
        return cell == "*" || digits(cell);
    }
    if is(column, &["OVER_SUBSCRIBE"]) {
        return matches!(cell, "OK" | "YES" | "NO" | "USER" | "MCS");
    }
    if is(column, &["CONTIGUOUS"]) {
        return matches!(cell, "0" | "1");
    }
    if is(column, &["S:C:T"]) {
        return cell.split(':').count() == 3;
    }
    true
}

fn is(column: &str, names: &[&str]) -> bool {
    names.iter().any(|n| column.eq_ignore_ascii_case(n))
}

/// Cells at a separator, without the empty one behind a last separator.
fn split<'a>(line: &'a str, separator: &str) -> Vec<&'a str> {
    let line = line.trim_end_matches(' ');
    line.strip_suffix(separator).unwrap_or(line).split(separator).map(str::trim).collect()
}

/// A header that begins with a blank is aligned to the right.
fn blank_layout(header: &str) -> Cut {
    if !header.starts_with(' ') {
        return Cut::Blanks;
    }
    let mut places = Vec::new();
    let mut from = 0;
    let mut rest = 0;
    for name in header.split_ascii_whitespace() {
        let start = rest + header[rest..].find(name).unwrap_or(0);
        rest = start + name.len();
        // The last column is aligned to the left.
        let last = header[rest..].trim().is_empty();
        places.push(if last { (start, usize::MAX) } else { (from, rest) });
        from = rest + 1;
    }
    Cut::Places(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SQUEUE: &str = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n\
        \x20                2       fat running2     root  R       0:05      1 f01\n\
        \x20               16      slim x AdminC     root PD       0:00      1 (Priority)\n\
        \x20        6_[1-9%2]      slim      arr     root PD       0:00      1 (Job's a, not b)\n\
        \x20               15 slim,shor    multi     root PD       0:00      1 (Priority)\n";

    #[test]
    fn squeue_as_it_comes() {
        let parsed = jobs(SQUEUE);
        assert_eq!(
            parsed.records.iter().map(|j| (j.id, j.tasks)).collect::<Vec<_>>(),
            [(2, 1), (16, 1), (6, 9)]
        );
        assert_eq!(parsed.records[1].state, "PENDING");
        assert_eq!(parsed.records[2].reason.as_deref(), Some("Job's a, not b"));
        assert_eq!(parsed.records[2].partitions, Some(vec!["slim".to_owned()]));
        assert_eq!(parsed.errors.len(), 1);
        assert!(
            matches!(&parsed.errors[0].what, Problem::Cut { value, .. } if value == "slim,shor")
        );
    }

    #[test]
    fn a_name_with_separators_is_put_together_where_only_one_way_fits() {
        let text = "JOBID|NAME|STATE|CPUS|COMMENT\n7|a|b|RUNNING|4|x\n8|a|PENDING|4|x|y|z\n\
            9|a|PENDING|4|PENDING|4|x\n10|a|b|c\n";
        let parsed = jobs(text);
        assert_eq!(parsed.records.iter().map(|j| j.id).collect::<Vec<_>>(), [7, 8]);
        // Two ways fit the third row, none the last.
        assert_eq!(parsed.errors.iter().map(|e| e.line).collect::<Vec<_>>(), [4, 5]);
        let text = "NODELIST NODES STATE REASON\ns01 1 drained disk = bad, see #12\n";
        assert_eq!(nodes(text).records[0].state, ["DRAINED"]);
    }

    #[test]
    fn separators_and_columns_given_twice() {
        let text = "JOBID|NAME|JOBID|STATE|PARTITION|REQ_NODES\n7_3|a|9|RUNNING|p,q|n1\n\
            8|x|y|8|PENDING|p|\n9|z|9|LATER|p|\n";
        let parsed = jobs(text);
        assert_eq!(parsed.records.len(), 1);
        assert_eq!(
            (parsed.records[0].id, parsed.records[0].required_nodes.as_deref()),
            (9, Some("n1"))
        );
        assert_eq!(parsed.errors.iter().map(|e| e.line).collect::<Vec<_>>(), [3, 4]);
        let bare = jobs("bar,RUNNING,60\nfoo,bar,PENDING,60\n");
        assert!(bare.records.is_empty());
        assert_eq!(bare.errors.len(), 2);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "( JOBID| ST|NODELIST|\\||é| |\n|.){0,60}") {
            let _ = (jobs(&text), nodes(&text));
        }
    }
}
