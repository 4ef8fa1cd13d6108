//! Marks: what sjp writes into a job's AdminComment, and reads back.
//!
//! `sjp:` then `key=value` joined by `;`. What the site wrote before `sjp:` is
//! kept. Values never hold `;` or `=`; a text that does not parse whole is no
//! mark at all.

use crate::decision::{Basis, Placement, Reason};
use crate::publication::Roster;
use crate::units::{Cpus, MemMb, tenths};

/// What every mark begins with.
pub const PREFIX: &str = "sjp:";

/// Keys that a mark may hold, in the order written.
const KEYS: [&str; 14] = [
    "pin", "placed", "open", "from", "was", "released", "moved", "qos", "skipped", "room", "eta",
    "job", "free", "id",
];

/// The mark of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The site's own text before the mark, without the blank between.
    pub before: String,
    fields: Vec<(String, String)>,
}

impl Mark {
    /// Reads an AdminComment. `None`: it holds no (whole) mark of sjp's.
    #[must_use]
    pub fn parse(comment: &str) -> Option<Self> {
        let at = find_prefix(comment)?;
        let (before, rest) = comment.split_at(at);
        let mut fields = Vec::new();
        for part in rest.strip_prefix(PREFIX)?.trim_end().split(';') {
            let (key, value) = part.split_once('=')?;
            if !KEYS.contains(&key) || !plain(value) || fields.iter().any(|(k, _)| k == key) {
                return None;
            }
            fields.push((key.to_owned(), value.to_owned()));
        }
        Some(Self { before: before.trim_end().to_owned(), fields })
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A list value (partitions), split at commas.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<String> {
        self.get(key)
            .map(|v| v.split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect())
            .unwrap_or_default()
    }

    /// Sets `key`; an unknown key or a value that could not be read back is
    /// refused with `false`.
    pub fn set(&mut self, key: &str, value: &str) -> bool {
        if !KEYS.contains(&key) || !plain(value) {
            return false;
        }
        match self.fields.iter_mut().find(|(k, _)| k == key) {
            Some((_, v)) => value.clone_into(v),
            None => self.fields.push((key.to_owned(), value.to_owned())),
        }
        true
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &str) {
        self.fields.retain(|(k, _)| k != key);
    }

    /// The whole AdminComment.
    #[must_use]
    pub fn to_comment(&self) -> String {
        let long: usize = self.fields.iter().map(|(k, v)| k.len() + v.len() + 2).sum();
        let mut out = String::with_capacity(self.before.len() + 1 + PREFIX.len() + long);
        out.push_str(&self.before);
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(PREFIX);
        let rank = |key: &str| KEYS.iter().position(|k| *k == key).unwrap_or(KEYS.len());
        let mut fields: Vec<_> = self.fields.iter().collect();
        fields.sort_by_cached_key(|(k, _)| rank(k));
        for (i, (key, value)) in fields.into_iter().enumerate() {
            if i > 0 {
                out.push(';');
            }
            out.push_str(key);
            out.push('=');
            out.push_str(value);
        }
        out
    }
}

/// Where a mark begins: at the start or after white space, the last such place.
fn find_prefix(comment: &str) -> Option<usize> {
    comment
        .match_indices(PREFIX)
        .map(|(i, _)| i)
        .filter(|&i| {
            comment.get(..i).is_some_and(|b| b.is_empty() || b.ends_with(char::is_whitespace))
        })
        .last()
}

/// Whether a value survives being written and read.
fn plain(value: &str) -> bool {
    // Most values are ASCII, where a byte is enough to tell.
    let bad = |c: char| c.is_control() || matches!(c, ';' | '=' | '\'' | '"' | '\\');
    !value.is_empty()
        && if value.is_ascii() {
            !value.bytes().any(|b| bad(char::from(b)))
        } else {
            !value.chars().any(bad)
        }
}

/// `4c,16G,4.0G/c`: CPUs, memory and memory per CPU.
#[must_use]
pub fn shape(cpus: Cpus, mem: Option<MemMb>) -> String {
    match mem {
        None => format!("{cpus}"),
        Some(mem) if cpus.0 == 0 => format!("{cpus},{mem}"),
        Some(mem) => {
            let per = tenths(mem.0, u64::from(cpus.0) * 1024);
            format!("{cpus},{mem},{}.{}G/c", per / 10, per % 10)
        }
    }
}

/// Names of partitions, joined by commas.
#[must_use]
pub fn partition_names(roster: &Roster, indices: &[u16]) -> String {
    let names: Vec<&str> = indices
        .iter()
        .filter_map(|&i| roster.partitions.get(usize::from(i)))
        .map(|p| p.name.as_str())
        .collect();
    names.join(",")
}

/// The AdminComment of a job placed as `placement` says: the site's text and
/// the mark. An older mark of sjp's in `existing` is replaced.
#[must_use]
pub fn for_placement(
    roster: &Roster,
    placement: &Placement,
    claim_id: u64,
    existing: Option<&str>,
) -> String {
    let mut mark = Mark { before: site_text(existing), fields: Vec::new() };
    let names = partition_names(roster, &placement.admitted);
    let key = match (placement.pin, placement.basis) {
        (Some(_), _) => "from",
        (None, Basis::Open) => "open",
        (None, Basis::Room | Basis::Shape) => "placed",
    };
    mark.set(key, &names);
    if let Some(node) = placement.pin.and_then(|n| roster.nodes.get(n as usize)) {
        mark.set("pin", node);
    }
    mark.set("job", &shape(placement.cpus, placement.mem));
    if placement.pin.is_some() {
        mark.set("free", &shape(placement.room.cpus, placement.room.mem));
    }
    mark.set("id", &format!("{claim_id:x}"));
    mark.to_comment()
}

/// The AdminComment of a job that was skipped; `None` where it is not empty
/// (the site's own text stays alone).
#[must_use]
pub fn skipped(reason: Reason, existing: Option<&str>) -> Option<String> {
    existing.is_none_or(str::is_empty).then(|| format!("{PREFIX}skipped={}", reason.words()))
}

/// The site's text in an AdminComment, without any mark.
fn site_text(existing: Option<&str>) -> String {
    let text = existing.unwrap_or_default();
    let site = find_prefix(text).and_then(|i| text.get(..i)).unwrap_or(text);
    site.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_design_s_example_reads_back() {
        let text = "sjp:pin=n16;from=slim1,slim2;job=4c,16G,4.0G/c;free=8c,40G,5.0G/c;id=7f3a";
        let mark = Mark::parse(text).unwrap();
        assert_eq!(mark.get("pin"), Some("n16"));
        assert_eq!(mark.list("from"), ["slim1", "slim2"]);
        assert_eq!(mark.to_comment(), text);
        assert_eq!(shape(Cpus(4), Some(MemMb(16384))), "4c,16G,4.0G/c");
    }

    #[test]
    fn the_site_s_text_is_kept() {
        let mark = Mark::parse("project=42; see wiki sjp:placed=slim;id=1").unwrap();
        assert_eq!(mark.before, "project=42; see wiki");
        assert_eq!(mark.to_comment(), "project=42; see wiki sjp:placed=slim;id=1");
        assert_eq!(site_text(Some("a sjp:placed=x")), "a");
        assert_eq!(site_text(Some("asjp:placed=x")), "asjp:placed=x");
    }

    #[test]
    fn half_a_mark_is_none() {
        for text in [
            "",
            "sjp:",
            "sjp:pin",
            "sjp:pin=",
            "sjp:pin=a;pin=b",
            "sjp:who=me",
            "sjp:pin=a;;id=1",
            "xsjp:pin=a",
            "sjp:pin=a=b",
            "sjp:pin=a\nid=3",
        ] {
            assert_eq!(Mark::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_set_is_read(node in "[a-z0-9.-]{1,12}", parts in "[a-z0-9_,]{1,30}", before in "[a-zA-Z0-9 =;]{0,20}") {
            let before = before.trim().to_owned();
            let mut mark = Mark { before: before.clone(), fields: Vec::new() };
            prop_assert!(mark.set("pin", &node));
            prop_assert!(mark.set("from", &parts));
            let back = Mark::parse(&mark.to_comment()).unwrap();
            prop_assert_eq!(back.get("pin"), Some(node.as_str()));
            prop_assert_eq!(back.get("from"), Some(parts.as_str()));
            prop_assert_eq!(back.before, before);
        }

        #[test]
        fn nothing_panics(text in ".{0,80}") {
            let _ = Mark::parse(&text);
            let _ = Mark::parse(&format!("sjp:{text}"));
        }
    }
}
