//! From marks and log entries to sentences, and from outcomes to cells of the table.

use serde_json::Value;
use sjp_core::mark::Mark;

use crate::pass::Outcome;

/// The columns that every terminal has.
pub const WIDTH: usize = 80;
/// The widest cell of an outcome.
const CELL: usize = 18;

/// Where the jobs of a line are, in a cell.
pub fn place(outcome: &Outcome) -> String {
    if outcome.refused.is_some() {
        return "refused".into();
    }
    let nodes = outcome.nodes();
    let started = outcome.started();
    let mut parts: Vec<String> = nodes
        .iter()
        .map(|(node, jobs)| match outcome.wanted {
            1 => format!("runs on {node}"),
            _ => format!("{jobs}: {node}"),
        })
        .collect();
    match (outcome.wanted - started, started, outcome.reason()) {
        (0, _, _) => {}
        (_, 0, Some(reason)) if reason.len() + "waits ()".len() <= CELL => {
            parts.push(format!("waits ({reason})"));
        }
        (_, 0, _) => parts.push("waits".into()),
        (waiting, _, _) => parts.push(format!("{waiting} wait")),
    }
    parts.join(", ")
}

/// What sjp did with the jobs of a line and why, from their marks and, where a mark does
/// not say, from the decision log's entry that `logged` finds.
pub fn whys<'a>(outcome: &Outcome, logged: impl Fn(&Mark) -> Option<&'a Value>) -> Vec<String> {
    if let Some(said) = &outcome.refused {
        return vec![format!("Slurm refused it: {said}")];
    }
    let mut whys: Vec<String> = Vec::new();
    // Pins of several jobs: one sentence for each node, in the order of submission.
    let mut pins: Vec<(String, Vec<String>)> = Vec::new();
    for job in &outcome.jobs {
        let Some(mark) = Mark::parse(&job.admin_comment) else {
            whys.push("sjp wrote no mark".into());
            continue;
        };
        let free = mark.get("free").and_then(shape).map(|(cpus, _)| cpus.to_string());
        match (mark.get("pin"), free) {
            (Some(node), Some(cpus)) if outcome.ids.len() > 1 => {
                match pins.iter_mut().find(|(n, _)| n == node) {
                    Some((_, seen)) => seen.push(cpus),
                    None => pins.push((node.to_string(), vec![cpus])),
                }
            }
            _ => whys.push(why(&mark, logged(&mark))),
        }
    }
    whys.dedup();
    let pinned = pins.into_iter().map(|(node, seen)| {
        format!("{} pinned to {node}, which had {} CPUs free", seen.len(), seen.join(", then "))
    });
    pinned.chain(whys).collect()
}

/// What sjp did with one job and why.
fn why(mark: &Mark, logged: Option<&Value>) -> String {
    if let Some(reason) = mark.get("skipped") {
        return match about(reason) {
            "" => format!("left alone: {reason}"),
            about => format!("left alone: {reason} ({about})"),
        };
    }
    if let Some(node) = mark.get("pin") {
        let job = mark.get("job").and_then(shape);
        let free = mark.get("free").and_then(shape);
        return match (job, free) {
            (Some((_, job)), Some((cpus, free))) => format!(
                "pinned to {node}: the job wants {job} a CPU, {node} had {cpus} CPUs free with \
                 {free} each"
            ),
            _ => format!("pinned to {node}"),
        };
    }
    if let Some(list) = mark.get("open") {
        return format!("opened {list}: no node has room now, it starts where room comes first");
    }
    let Some(partitions) = mark.get("placed") else { return mark.to_comment() };
    match logged.and_then(|l| l["not_pinned"].as_str()) {
        None => format!("placed in {partitions}"),
        Some(words) => {
            format!("placed in {partitions}; no node chosen: {}", not_pinned_about(words))
        }
    }
}

/// CPUs and memory per CPU of a shape such as `4c,16G,4.0G/c`.
fn shape(text: &str) -> Option<(&str, String)> {
    let mut words = text.split(',');
    let cpus = words.next()?.strip_suffix('c')?;
    let per_cpu = words.nth(1)?.strip_suffix("G/c")?;
    Some((cpus, format!("{per_cpu} GB")))
}

/// Why sjp leaves such jobs alone.
fn about(reason: &str) -> &'static str {
    match reason {
        "multi-node" => "sjp places jobs of one node",
        "gpu" => "it asks for generic resources",
        "not batch" => "salloc and srun are left alone",
        _ => "",
    }
}

/// The log's words, for those who see them for the first time.
fn not_pinned_about(words: &str) -> &str {
    match words {
        "array" => "an array (its tasks may run anywhere)",
        "several tasks without -N 1" => "several tasks without -N 1 (Slurm may spread them)",
        "own nodelist" => "own nodelist (the user's choice stays)",
        "one node has room" => "only one node has room",
        other => other,
    }
}

/// `label`, then the text in lines that fit, all of them indented by `indent`.
pub fn wrapped(label: &str, text: &str, indent: usize) -> String {
    let mut out = format!("{label:<indent$}");
    let mut at = indent;
    let mut first = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !first && at + 1 + length > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            at = indent;
        } else if !first {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += length;
        first = false;
    }
    out.push('\n');
    out
}

/// Every line of a text with this indent.
pub fn indented(text: &str, indent: usize) -> String {
    let pad = " ".repeat(indent);
    text.trim_end()
        .lines()
        .map(|l| if l.trim().is_empty() { "\n".into() } else { format!("{pad}{l}\n") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn why_of(comment: &str, logged: Option<&Value>) -> String {
        why(&Mark::parse(comment).unwrap(), logged)
    }

    #[test]
    fn marks_become_sentences() {
        let pin = "sjp:pin=n16;from=slim;job=4c,16G,4.0G/c;free=8c,40G,5.0G/c;id=7f";
        assert_eq!(
            why_of(pin, None),
            "pinned to n16: the job wants 4.0 GB a CPU, n16 had 8 CPUs free with 5.0 GB each"
        );
        let log = json!({"not_pinned": "no node is better by the margins"});
        assert_eq!(
            why_of("sjp:placed=slim,fat;job=1c;id=1", Some(&log)),
            "placed in slim,fat; no node chosen: no node is better by the margins"
        );
        assert!(why_of("sjp:open=slim;job=1c;id=1", None).starts_with("opened slim: no node"));
        assert!(why_of("sjp:skipped=gpu", None).starts_with("left alone: gpu ("));
    }

    #[test]
    fn texts_are_wrapped_at_words() {
        let text = wrapped("  so:", &"word ".repeat(40), 8);
        assert!(text.starts_with("  so:   word word"), "{text}");
        assert!(text.lines().skip(1).all(|l| l.starts_with("        word")), "{text}");
        assert!(text.lines().all(|l| l.len() <= WIDTH), "{text}");
        assert_eq!(text.split_whitespace().count(), 41);
    }
}
