//! Marks: what sjp writes into a job's AdminComment, and reads back.
//!
//! `sjp:` then `key=value` joined by `;`. What the site wrote before `sjp:` is
//! kept. Values never hold `;` or `=`; a text that does not parse whole is no
//! mark at all.

use crate::config::UserChoice;
use crate::decision::{Basis, Placement, Reason};
use crate::eligible;
use crate::publication::Roster;
use crate::request::JobRequest;
use crate::units::{Cpus, Limit, MemMb, MemPer, tenths};

/// What every mark begins with.
pub const PREFIX: &str = "sjp:";

/// Keys that a mark may hold, in the order written.
///
/// Where the job is: `pin`, `placed` or `open`, with `from` for what a pin left
/// out. What it came with: `was` (partitions it named), `own` (`nodes`,
/// `exclude`: lists of its own that were followed), `left` (`time`, `mem`: what
/// it left to its partition), `per` (`cpu`: the memory of its one CPU is for each
/// CPU, where it will get a whole core), `had` (the partitions of a job that was skipped,
/// before sjpd changed them), `may` (partitions for some groups only that its
/// user may use: sjpd does not know who is in which). What sjpd did since:
/// `released`, `moved`, `widened` (the partitions before), `qos`, `at` (Unix
/// seconds of its last change), `eta` (Unix seconds at which the node of a pin
/// is expected to have room).
const KEYS: [&str; 21] = [
    "pin", "placed", "open", "from", "released", "moved", "widened", "qos", "skipped", "room",
    "eta", "at", "was", "own", "left", "per", "had", "may", "job", "free", "id",
];

/// Keys that outlive the mark of a job that somebody else has placed: what
/// still is to be given back.
const KEPT: [&str; 2] = ["qos", "id"];

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

    /// A number of Unix seconds.
    #[must_use]
    pub fn seconds(&self, key: &str) -> Option<i64> {
        self.get(key)?.parse().ok()
    }

    /// Whether sjp set partitions or a node for this job.
    #[must_use]
    pub fn places(&self) -> bool {
        ["pin", "placed", "open"].iter().any(|key| self.get(key).is_some())
    }

    /// Whether the list at `key` (`own`, `left`) has `what`.
    #[must_use]
    pub fn has(&self, key: &str, what: &str) -> bool {
        self.get(key).is_some_and(|list| list.split(',').any(|o| o == what))
    }

    /// The partitions that the job had before sjp; empty where it named none and
    /// so was in the default one.
    #[must_use]
    pub fn original(&self) -> Vec<String> {
        let had = self.list("had");
        if had.is_empty() { self.list("was") } else { had }
    }

    /// The AdminComment of a job that is no longer sjp's to place: the site's text,
    /// and what still is to be given back.
    #[must_use]
    pub fn let_go(&self) -> String {
        let owed = self.get("qos").is_some();
        let keep = |(key, _): &&(String, String)| owed && KEPT.contains(&key.as_str());
        let fields: Vec<_> = self.fields.iter().filter(keep).cloned().collect();
        Self { before: self.before.clone(), fields }.to_comment()
    }

    /// The whole AdminComment; of a mark that says nothing, the site's text alone.
    #[must_use]
    pub fn to_comment(&self) -> String {
        if self.fields.is_empty() {
            return self.before.clone();
        }
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

/// The AdminComment of `job` placed as `placement` says: the site's text and
/// the mark. An older mark of sjp's in `existing` is replaced. `permitted`: the
/// partitions that its user may use, by index; `None`: not known.
#[must_use]
pub fn for_placement(
    roster: &Roster,
    job: &JobRequest<'_>,
    placement: &Placement,
    permitted: Option<&[bool]>,
    claim_id: u64,
    existing: Option<&str>,
) -> String {
    let mut mark = Mark { before: site_text(existing), fields: Vec::new() };
    let known = |name: &str| roster.partitions.iter().any(|p| p.name == name);
    mark.name_own(job, known, roster.policy.user_nodes == UserChoice::Follow);
    let cores = || roster.kinds.iter().any(|kind| kind.step > 1);
    if job.cpus == Cpus(1) && matches!(job.mem, MemPer::Cpu(_)) && cores() {
        mark.set("per", "cpu");
    }
    mark.place(roster, placement);
    if let Some(permitted) = permitted {
        mark.name_restricted(roster, job, permitted);
    }
    mark.set("id", &format!("{claim_id:x}"));
    mark.to_comment()
}

/// The AdminComment of a job that was skipped; `None` where it is not empty
/// (the site's own text stays alone).
#[must_use]
pub fn skipped(job: &JobRequest<'_>, reason: Reason, existing: Option<&str>) -> Option<String> {
    if existing.is_some_and(|text| !text.is_empty()) {
        return None;
    }
    let mut mark = Mark::default();
    mark.set("skipped", reason.words());
    // Only a job that waits for room is looked at again.
    if reason == Reason::NoRoom {
        mark.name_own(job, |_| true, true);
        if job.cpus == Cpus(1) && matches!(job.mem, MemPer::Cpu(_)) {
            mark.set("per", "cpu");
        }
    }
    Some(mark.to_comment())
}

impl Mark {
    /// Writes down what the job named itself: `known` partitions in its order, and
    /// lists of nodes where they are followed.
    fn name_own(&mut self, job: &JobRequest<'_>, known: impl Fn(&str) -> bool, nodes: bool) {
        let names = job.partition.unwrap_or_default().split(',').map(str::trim);
        let named: Vec<&str> = names.filter(|n| !n.is_empty() && known(n)).collect();
        if !named.is_empty() {
            self.set("was", &named.join(","));
        }
        let given = |list: Option<&str>| list.is_some_and(|l| !l.is_empty());
        let own = [("nodes", given(job.nodelist)), ("exclude", given(job.exclude))];
        if nodes {
            self.set_list("own", &own);
        }
        let left = [("time", job.time_limit == Limit::Unset), ("mem", job.mem == MemPer::Unset)];
        self.set_list("left", &left);
    }

    /// Writes down which partitions for some groups only its user may use, of those that
    /// the job bounds itself to.
    fn name_restricted(&mut self, roster: &Roster, job: &JobRequest<'_>, permitted: &[bool]) {
        let rules = (0..=u16::MAX).zip(&roster.partitions).zip(permitted);
        let mut may = rules.filter(|((_, rule), may)| rule.restricted && **may).peekable();
        if may.peek().is_none() {
            return;
        }
        let named = eligible::named_partitions(roster, job);
        let bound = |index: &u16| named.as_ref().is_none_or(|named| named.contains(index));
        let may: Vec<u16> = may.map(|((index, _), _)| index).filter(bound).collect();
        self.set("may", &partition_names(roster, &may));
    }

    /// Sets `key` to the words that hold, if any.
    fn set_list(&mut self, key: &str, words: &[(&str, bool)]) {
        let list: Vec<&str> = words.iter().filter(|w| w.1).map(|w| w.0).collect();
        if !list.is_empty() {
            self.set(key, &list.join(","));
        }
    }

    /// Writes down where the job is now; what a mark said of that before goes.
    pub fn place(&mut self, roster: &Roster, placement: &Placement) {
        for key in ["pin", "placed", "open", "from", "free", "eta", "skipped"] {
            self.remove(key);
        }
        let names = partition_names(roster, &placement.admitted);
        let key = match (placement.pin, placement.basis) {
            (Some(_), _) => "from",
            (None, Basis::Open) => "open",
            (None, Basis::Room | Basis::Shape) => "placed",
        };
        self.set(key, &names);
        if let Some(node) = placement.pin.and_then(|n| roster.nodes.get(n as usize)) {
            self.set("pin", node);
        }
        self.set("job", &shape(placement.cpus, placement.mem));
        if placement.pin.is_some() {
            self.set("free", &shape(placement.room.cpus, placement.room.mem));
        }
    }
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
    use crate::publication::PartitionRule;
    use proptest::prelude::*;

    fn nowhere(partitions: Vec<u16>) -> Placement {
        Placement {
            partitions: partitions.clone(),
            admitted: partitions,
            pin: None,
            not_pinned: None,
            claims: Vec::new(),
            room: crate::decision::Room::default(),
            cpus: Cpus(0),
            mem: None,
            loss: 0.0,
            minutes: None,
            basis: Basis::Room,
        }
    }

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
    fn what_the_job_named_is_written_down() {
        let rule = |name: &str| PartitionRule { name: name.into(), ..PartitionRule::default() };
        let mut roster =
            Roster { partitions: vec![rule("fat"), rule("slim")], ..Roster::default() };
        let job = JobRequest {
            partition: Some("slim, nowhere,fat"),
            exclude: Some("n1"),
            mem: MemPer::Cpu(MemMb(10)),
            time_limit: Limit::At(5),
            ..JobRequest::default()
        };
        let room = skipped(&job, Reason::NoRoom, None).unwrap();
        assert_eq!(room, "sjp:skipped=no room;was=slim,nowhere,fat;own=exclude");
        assert_eq!(skipped(&job, Reason::Gpu, Some("")).unwrap(), "sjp:skipped=gpu");
        assert_eq!(skipped(&job, Reason::NoRoom, Some("mine")), None);
        let placement = nowhere(vec![1]);
        let placed =
            |roster: &Roster| for_placement(roster, &job, &placement, None, 7, Some("mine"));
        assert_eq!(
            placed(&roster),
            "mine sjp:placed=slim;was=slim,fat;own=exclude;job=0c;id=7",
            "partitions that are none are nobody's"
        );
        roster.policy.user_nodes = UserChoice::Ignore;
        assert_eq!(placed(&roster), "mine sjp:placed=slim;was=slim,fat;job=0c;id=7");
        let job = JobRequest { mem: MemPer::Unset, time_limit: Limit::Unset, ..job };
        let left = skipped(&job, Reason::NoRoom, None).unwrap();
        assert_eq!(left, "sjp:skipped=no room;was=slim,nowhere,fat;own=exclude;left=time,mem");
    }

    #[test]
    fn partitions_for_groups_are_written_down_where_the_user_is_in_them() {
        let rule = |name: &str, restricted| PartitionRule {
            name: name.into(),
            restricted,
            ..PartitionRule::default()
        };
        let rules = [rule("all", false), rule("ours", true), rule("theirs", true)];
        let mut roster = Roster { partitions: rules.to_vec(), ..Roster::default() };
        let job = JobRequest { time_limit: Limit::At(5), cpus: Cpus(1), ..JobRequest::default() };
        let job = JobRequest { mem: MemPer::Cpu(MemMb(10)), ..job };
        let placement = nowhere(vec![0]);
        let may = [true, true, false];
        let placed = |roster: &Roster, job: &JobRequest<'_>, may: Option<&[bool]>| {
            for_placement(roster, job, &placement, may, 7, None)
        };
        assert_eq!(placed(&roster, &job, Some(&may)), "sjp:placed=all;may=ours;job=0c;id=7");
        assert_eq!(placed(&roster, &job, None), "sjp:placed=all;job=0c;id=7");
        let named = JobRequest { partition: Some("all"), ..job.clone() };
        let text = "sjp:placed=all;was=all;job=0c;id=7";
        assert_eq!(placed(&roster, &named, Some(&may)), text, "it bounds itself");
        roster.partitions[1].restricted = false;
        assert_eq!(placed(&roster, &job, Some(&may)), "sjp:placed=all;job=0c;id=7");
    }

    #[test]
    fn what_is_owed_outlives_a_mark_that_is_let_go() {
        let mark = Mark::parse("site sjp:placed=slim;was=fat;moved=a>b;id=1").unwrap();
        assert_eq!((mark.let_go().as_str(), mark.original()), ("site", vec!["fat".to_owned()]));
        let mark = Mark::parse("sjp:pin=n1;from=slim;qos=normal>flex;had=slim;was=x;id=1").unwrap();
        assert_eq!(mark.let_go(), "sjp:qos=normal>flex;id=1");
        let mut owed = Mark::parse("site sjp:qos=normal>flex").unwrap();
        owed.remove("qos");
        assert_eq!(owed.to_comment(), "site", "nothing is left of it");
        assert_eq!(mark.original(), ["slim"]);
        assert!(mark.places() && !mark.has("own", "nodes"));
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
