//! What the demo prints: sections of text as they become known, and all of it as JSON.

use std::io::Write as _;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::mix::Ask;
use crate::pass::{Outcome, Pass, logged};
use crate::release::Release;
use crate::words::{self, indented, wrapped};

/// The text so far; printed as it comes, unless the output is to be JSON.
#[derive(Debug, Default)]
pub struct Report {
    quiet: bool,
    text: String,
}

impl Report {
    /// `quiet`: nothing is printed.
    pub fn new(quiet: bool) -> Self {
        Report { quiet, text: String::new() }
    }

    /// Adds a section.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn say(&mut self, section: &str) -> Result<()> {
        self.text.push_str(section);
        if !self.quiet {
            let mut out = std::io::stdout().lock();
            out.write_all(section.as_bytes())
                .and_then(|()| out.flush())
                .context("cannot write to standard output")?;
        }
        Ok(())
    }

    /// Everything that was said.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// One line of the mix with both outcomes.
#[derive(Debug)]
pub struct Row<'a> {
    ask: &'a Ask,
    plain: &'a Outcome,
    sjp: &'a Outcome,
    /// What sjp did and why: one sentence for each that differs.
    whys: Vec<String>,
}

/// The rows of the table. `decisions` is the decision log.
pub fn rows<'a>(
    asks: &'a [Ask],
    plain: &'a Pass,
    sjp: &'a Pass,
    decisions: &[Value],
) -> Vec<Row<'a>> {
    let outcomes = plain.outcomes.iter().zip(&sjp.outcomes);
    asks.iter()
        .zip(outcomes)
        .map(|(ask, (plain, sjp))| {
            let whys = words::whys(sjp, |mark| logged(decisions, mark.get("id")?));
            Row { ask, plain, sjp, whys }
        })
        .collect()
}

/// The table.
pub fn table(rows: &[Row<'_>]) -> String {
    let mut out = format!("{:<9} {:<26} {:<21} {}\n", "job", "asks for", "plain Slurm", "with sjp");
    out += &format!("{:-<9} {:-<26} {:-<21} {:-<21}\n", "", "", "", "");
    for row in rows {
        let (plain, sjp) = (words::place(row.plain), words::place(row.sjp));
        out += &format!("{:<9} {:<26} {plain:<21} {sjp}", row.ask.name, row.ask.asks);
        out.push('\n');
        for why in &row.whys {
            out += &wrapped("     sjp:", why, 10);
        }
    }
    out
}

/// Both passes in figures.
pub fn summary(plain: &Pass, sjp: &Pass) -> String {
    let ((plain_started, all), (sjp_started, _)) = (plain.started(), sjp.started());
    let mut out = format!("{:<36} {:<21} {}\n", "", "plain Slurm", "with sjp");
    let mut line = |what: &str, a: String, b: String| {
        out += &format!("{what:<36} {a:<21} {b}\n");
    };
    line(
        "started at once",
        format!("{plain_started} of {all} jobs"),
        format!("{sjp_started} of {all} jobs"),
    );
    line(
        "CPUs in use",
        format!("{} of {}", plain.cpus_used, plain.cpus),
        format!("{} of {}", sjp.cpus_used, sjp.cpus),
    );
    out.push('\n');
    out += &wrapped(
        "",
        "(plain Slurm: the same cluster, with a job_submit.lua that changes nothing. Jobs whose \
         users name no partition go to the default one, slim.)",
        0,
    );
    for outcome in &plain.outcomes {
        if let Some(said) = &outcome.refused {
            out += &wrapped("refused:", said, 10);
        }
    }
    out
}

/// The story of the pin that could not start.
pub fn released(release: &Release) -> String {
    let node = &release.node;
    let mut out = wrapped(
        "",
        &format!(
            "Now this job is submitted. Between two looks of sjpd somebody else takes what is \
             free on {node} (sjpd is paused for that moment), so the pin cannot start:"
        ),
        0,
    );
    let state = |job: &sjp_tests::Job| {
        let place = match (job.has_nodes(), job.reason.as_str()) {
            (true, _) => format!("runs on {}", job.nodes),
            (false, "None") => "waits".to_string(),
            (false, reason) => format!("waits ({reason})"),
        };
        let pin = match job.required_nodes.as_str() {
            "" => "not pinned".to_string(),
            node => format!("pinned to {node}"),
        };
        format!("job {} {place}, {pin}, partition {}", job.id, job.partition)
    };
    out.push('\n');
    out += &wrapped("  before:", &state(&release.before), 10);
    out += &wrapped("", &release.before.admin_comment, 10);
    for words in &release.log {
        out += &wrapped("  sjpd:", words, 10);
    }
    out += &wrapped("  after:", &state(&release.after), 10);
    out += &wrapped("", &release.after.admin_comment, 10);
    out += &wrapped("", "(here [pin] release_after is 3 s, to be quick; the default is 60 s.)", 0);
    out
}

/// A command of sjp's with what it printed.
pub fn command(words: &str, printed: &str) -> String {
    format!("$ {words}\n{}", indented(printed, 2))
}

/// Everything for programs.
pub fn json(
    rows: &[Row<'_>],
    passes: (&Pass, &Pass),
    release: &Release,
    place: &Value,
    status: &Value,
    version: &str,
) -> Value {
    let outcome = |o: &Outcome| {
        json!({
            "shown": words::place(o),
            "wanted": o.wanted,
            "started": o.started(),
            "refused": o.refused,
            "jobs": o.jobs.iter().map(job).collect::<Vec<_>>(),
        })
    };
    let pass = |pass: &Pass| {
        let (started, all) = pass.started();
        json!({"started": started, "jobs": all, "cpus_used": pass.cpus_used, "cpus": pass.cpus})
    };
    json!({
        "slurm": version,
        "jobs": rows.iter().map(|row| json!({
            "name": row.ask.name,
            "asks": row.ask.asks,
            "sbatch": row.ask.args,
            "plain": outcome(row.plain),
            "sjp": outcome(row.sjp),
            "why": row.whys,
        })).collect::<Vec<_>>(),
        "plain": pass(passes.0),
        "sjp": pass(passes.1),
        "release": {
            "node": release.node,
            "before": job(&release.before),
            "after": job(&release.after),
            "log": release.log,
        },
        "place": place,
        "status": status,
    })
}

fn job(job: &sjp_tests::Job) -> Value {
    json!({
        "id": job.id,
        "state": job.state,
        "partition": job.partition,
        "required_nodes": job.required_nodes,
        "nodes": job.nodes,
        "reason": job.reason,
        "admin_comment": job.admin_comment,
    })
}
