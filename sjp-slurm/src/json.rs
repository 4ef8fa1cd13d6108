//! JSON from squeue, scontrol and slurmrestd, of all versions: numbers plain
//! or as `{set, infinite, number}`, states as one string or a list.
//!
//! Read as a stream: of a job only the few fields wanted are kept, so that a
//! queue of many megabytes costs little. Bytes rather than text, as names of
//! jobs need not be UTF-8. Slurm escapes users' text in JSON, so that a value
//! read here is the value.

use crate::{Parsed, Problem, nodes, state, tres};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sjp_core::cluster::{Gpus, MarkedJob, Node};
use sjp_core::units::{Cpus, Limit, MemMb};
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

/// Arguments for squeue. 22.05 prints every job, whatever else is asked; from
/// 24.11 on `-j ID,ID` filters.
pub const ARGS: &[&str] = &["-a", "--json"];

/// A number in any of Slurm's JSON forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Number {
    #[default]
    Unset,
    Infinite,
    At(u64),
}

impl Number {
    fn number(self) -> Option<u64> {
        match self {
            Self::At(n) => Some(n),
            Self::Unset | Self::Infinite => None,
        }
    }

    fn small(self) -> Option<u32> {
        self.number().and_then(|n| u32::try_from(n).ok())
    }

    fn seconds(self) -> Option<i64> {
        self.number().and_then(|n| i64::try_from(n).ok())
    }

    fn limit(self) -> Limit {
        match self {
            Self::Unset => Limit::Unset,
            Self::Infinite => Limit::Unlimited,
            // NO_VAL and INFINITE of versions that print them plain.
            Self::At(4_294_967_294) => Limit::Unset,
            Self::At(4_294_967_295) => Limit::Unlimited,
            Self::At(n) => u32::try_from(n).map_or(Limit::Unlimited, Limit::At),
        }
    }
}

/// Reads any JSON value as what it can be read as, and never fails on a value
/// of another kind.
struct Any<T>(PhantomData<T>);

/// What [`Any`] makes of the kinds of JSON values.
trait Lenient: Default {
    fn text(_: &str) -> Self {
        Self::default()
    }
    fn whole(_: u64) -> Self {
        Self::default()
    }
    fn map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
    fn list<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

impl<'de, T: Lenient> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E>(self, b: bool) -> Result<T, E> {
        Ok(T::whole(u64::from(b)))
    }
    fn visit_u64<E>(self, n: u64) -> Result<T, E> {
        Ok(T::whole(n))
    }
    fn visit_i64<E>(self, n: i64) -> Result<T, E> {
        Ok(u64::try_from(n).map_or_else(|_| T::default(), T::whole))
    }
    fn visit_f64<E>(self, n: f64) -> Result<T, E> {
        // Exact up to here; beyond it is no count of anything.
        let whole = (0.0..9_007_199_254_740_992.0).contains(&n);
        Ok(if whole { T::whole(n as u64) } else { T::default() })
    }
    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::text(text))
    }
    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::map(map)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        T::list(seq)
    }
}

impl Lenient for Number {
    fn text(text: &str) -> Self {
        match text {
            "UNLIMITED" | "INFINITE" => Self::Infinite,
            text => text.parse().map_or(Self::Unset, Self::At),
        }
    }
    fn whole(n: u64) -> Self {
        Self::At(n)
    }
    fn map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let (mut set, mut infinite, mut number) = (true, false, Self::Unset);
        while let Some(key) = map.next_key::<Text>()? {
            match key.0.as_str() {
                "set" => set = map.next_value::<Self>()? != Self::At(0),
                "infinite" => infinite = map.next_value::<Self>()? == Self::At(1),
                "number" => number = map.next_value()?,
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(match (set, infinite) {
            (_, true) => Self::Infinite,
            (false, _) => Self::Unset,
            (true, false) => number,
        })
    }
}

/// A string; anything but a string or a number is empty.
#[derive(Clone, Debug, Default)]
struct Text(String);

impl Lenient for Text {
    fn text(text: &str) -> Self {
        Self(text.to_owned())
    }
    fn whole(n: u64) -> Self {
        Self(n.to_string())
    }
}

/// A list of strings, or one string.
#[derive(Clone, Debug, Default)]
struct Words(Vec<String>);

impl Lenient for Words {
    fn text(text: &str) -> Self {
        let text = text.trim();
        Self(if text.is_empty() { Vec::new() } else { vec![text.to_owned()] })
    }
    fn list<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = seq.next_element::<Text>()? {
            let word = word.0.trim();
            if !word.is_empty() {
                words.push(word.to_owned());
            }
        }
        Ok(Self(words))
    }
}

macro_rules! lenient {
    ($($t:ty),*) => {$(
        impl<'de> Deserialize<'de> for $t {
            fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(Any(PhantomData))
            }
        }
    )*};
}
lenient!(Number, Text, Words);

/// An element of a list: the fields wanted, or `None` where it is no object.
struct Element<T>(Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Element<T> {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = Option<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(Some)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<T>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(None)
            }
            fn visit_bool<E>(self, _: bool) -> Result<Option<T>, E> {
                Ok(None)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Option<T>, E> {
                Ok(None)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Option<T>, E> {
                Ok(None)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Option<T>, E> {
                Ok(None)
            }
            fn visit_str<E>(self, _: &str) -> Result<Option<T>, E> {
                Ok(None)
            }
            fn visit_unit<E>(self) -> Result<Option<T>, E> {
                Ok(None)
            }
        }
        from.deserialize_any(Object(PhantomData)).map(Self)
    }
}

/// Walks the list under `key` at the top, giving each element to `take`;
/// errors of syntax go to the result, and what was taken before stays.
fn walk<T, F, R>(json: &[u8], key: &'static str, out: &mut Parsed<R>, mut take: F)
where
    T: for<'de> Deserialize<'de>,
    F: FnMut(T) -> Result<Option<R>, Problem>,
{
    struct Top<'a, T, F, R> {
        key: &'static str,
        out: &'a mut Parsed<R>,
        take: &'a mut F,
        found: &'a mut bool,
        kind: PhantomData<T>,
    }
    struct List<'a, T, F, R> {
        key: &'static str,
        out: &'a mut Parsed<R>,
        take: &'a mut F,
        kind: PhantomData<T>,
    }
    impl<'de, T, F, R> Visitor<'de> for Top<'_, T, F, R>
    where
        T: Deserialize<'de>,
        F: FnMut(T) -> Result<Option<R>, Problem>,
    {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an object with a list {:?}", self.key)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<Text>()? {
                if key.0 == self.key {
                    *self.found = true;
                    map.next_value_seed(List {
                        key: self.key,
                        out: &mut *self.out,
                        take: &mut *self.take,
                        kind: PhantomData,
                    })?;
                } else if key.0 == "errors" {
                    for error in map.next_value::<Vec<serde_json::Value>>()? {
                        self.out.error(0, Problem::Slurm, &error.to_string());
                    }
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(())
        }
    }
    impl<'de, T, F, R> DeserializeSeed<'de> for List<'_, T, F, R>
    where
        T: Deserialize<'de>,
        F: FnMut(T) -> Result<Option<R>, Problem>,
    {
        type Value = ();
        fn deserialize<D: de::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
            from.deserialize_seq(self)
        }
    }
    impl<'de, T, F, R> Visitor<'de> for List<'_, T, F, R>
    where
        T: Deserialize<'de>,
        F: FnMut(T) -> Result<Option<R>, Problem>,
    {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
            let mut index = 0;
            while let Some(Element(fields)) = seq.next_element::<Element<T>>()? {
                let taken = match fields {
                    Some(fields) => (self.take)(fields),
                    None => Err(Problem::Unknown { want: "an object" }),
                };
                match taken {
                    Ok(Some(record)) => self.out.records.push(record),
                    Ok(None) => {}
                    Err(what) => self.out.error(0, what, &format!("{}[{index}]", self.key)),
                }
                index += 1;
            }
            Ok(())
        }
    }
    let mut from = serde_json::Deserializer::from_slice(json);
    let mut found = false;
    let top =
        Top { key, out: &mut *out, take: &mut take, found: &mut found, kind: PhantomData::<T> };
    let read = de::Deserializer::deserialize_map(&mut from, top).and_then(|()| from.end());
    if let Err(e) = read {
        let line = json.split(|b| *b == b'\n').nth(e.line().saturating_sub(1)).unwrap_or(json);
        let text = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
        let what = Problem::Json { column: e.column(), message: e.to_string() };
        out.error(e.line(), what, text.trim());
    } else if !found {
        out.error(0, Problem::Missing { key }, "");
    }
}

/// The fields of a job that tell its marks.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Marks {
    job_id: Number,
    job_state: Words,
    admin_comment: Text,
    required_nodes: Text,
    partition: Text,
    submit_time: Number,
}

/// Reads the marks of the jobs in `squeue --json`, of all jobs or of those
/// whose raw id is among `wanted`.
#[must_use]
pub fn marks(json: &[u8], wanted: Option<&HashSet<u32>>) -> Parsed<MarkedJob> {
    let mut out = Parsed::default();
    walk(json, "jobs", &mut out, |job: Marks| {
        let id = id(job.job_id)?;
        if wanted.is_some_and(|w| !w.contains(&id)) {
            return Ok(None);
        }
        Ok(Some(MarkedJob {
            id,
            state: states(job.job_state)?,
            admin_comment: job.admin_comment.0,
            required_nodes: job.required_nodes.0,
            partitions: crate::list(&job.partition.0),
            submit: job.submit_time.seconds().unwrap_or_default(),
        }))
    });
    out
}

fn id(number: Number) -> Result<u32, Problem> {
    number.small().filter(|id| *id > 0).ok_or(Problem::Missing { key: "job_id" })
}

fn states(words: Words) -> Result<Vec<String>, Problem> {
    if words.0.is_empty() {
        return Err(Problem::Missing { key: "job_state" });
    }
    Ok(words.0)
}

/// A job of `squeue --json`, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsonJob {
    /// Its marks.
    pub marked: MarkedJob,
    /// Time limit in minutes.
    pub time_limit: Limit,
    /// CPUs.
    pub cpus: Option<u32>,
    /// Nodes asked for or allocated.
    pub node_count: Option<u32>,
    /// MB for each CPU.
    pub memory_per_cpu: Option<u64>,
    /// MB on each node.
    pub memory_per_node: Option<u64>,
    /// Allocated nodes, as printed.
    pub nodes: String,
    /// Planned nodes, as printed.
    pub scheduled_nodes: String,
    /// Why it waits.
    pub reason: String,
    /// Array tasks, as printed.
    pub array_tasks: String,
    /// The array's id.
    pub array_job_id: Option<u32>,
    /// Began or is expected to, Unix seconds.
    pub start: Option<i64>,
    /// QOS.
    pub qos: String,
    /// Priority.
    pub priority: Option<u32>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct JobFields {
    job_id: Number,
    job_state: Words,
    admin_comment: Text,
    required_nodes: Text,
    partition: Text,
    submit_time: Number,
    time_limit: Number,
    cpus: Number,
    node_count: Number,
    memory_per_cpu: Number,
    memory_per_node: Number,
    nodes: Text,
    scheduled_nodes: Text,
    state_reason: Text,
    array_task_string: Text,
    array_job_id: Number,
    start_time: Number,
    qos: Text,
    priority: Number,
}

/// Reads the jobs of `squeue --json` with what a person wants to see.
#[must_use]
pub fn jobs(json: &[u8]) -> Parsed<JsonJob> {
    let mut out = Parsed::default();
    walk(json, "jobs", &mut out, |job: JobFields| {
        Ok(Some(JsonJob {
            marked: MarkedJob {
                id: id(job.job_id)?,
                state: states(job.job_state)?,
                admin_comment: job.admin_comment.0,
                required_nodes: job.required_nodes.0,
                partitions: crate::list(&job.partition.0),
                submit: job.submit_time.seconds().unwrap_or_default(),
            },
            time_limit: job.time_limit.limit(),
            cpus: job.cpus.small(),
            node_count: job.node_count.small(),
            memory_per_cpu: job.memory_per_cpu.number(),
            memory_per_node: job.memory_per_node.number(),
            nodes: job.nodes.0,
            scheduled_nodes: job.scheduled_nodes.0,
            reason: job.state_reason.0,
            array_tasks: job.array_task_string.0,
            array_job_id: job.array_job_id.small().filter(|id| *id > 0),
            start: job.start_time.seconds().filter(|t| *t > 0),
            qos: job.qos.0,
            priority: job.priority.small(),
        }))
    });
    out
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct NodeFields {
    name: Text,
    state: Words,
    state_flags: Words,
    cpus: Number,
    effective_cpus: Number,
    alloc_cpus: Number,
    real_memory: Number,
    specialized_memory: Number,
    alloc_memory: Number,
    threads: Number,
    sockets: Number,
    cores: Number,
    weight: Number,
    gres: Text,
    gres_used: Text,
    tres: Text,
    tres_used: Text,
    partitions: Words,
    active_features: Words,
    reason: Text,
}

/// Reads nodes from JSON (`sinfo --json`, `scontrol show nodes --json`,
/// slurmrestd).
#[must_use]
pub fn nodes(json: &[u8]) -> Parsed<Node> {
    let mut out = Parsed::default();
    let mut used = Vec::new();
    walk(json, "nodes", &mut out, |n: NodeFields| {
        let node = node(&n)?;
        used.push(n.tres_used.0);
        Ok(Some(node))
    });
    let mut records = std::mem::take(&mut out.records);
    for (node, used) in records.iter_mut().zip(&used) {
        nodes::check(0, node, used, &mut out);
    }
    out.records = records;
    let lines = vec![0; out.records.len()];
    nodes::refuse_twice(&mut out, lines, "name", |n| &n.name);
    out
}

fn node(n: &NodeFields) -> Result<Node, Problem> {
    if n.name.0.is_empty() {
        return Err(Problem::Missing { key: "name" });
    }
    let words = state::node_words(&[&n.state.0[..], &n.state_flags.0[..]].concat().join("+"));
    if words.is_empty() {
        return Err(Problem::Missing { key: "state" });
    }
    let cpus = n.cpus.small().ok_or(Problem::Missing { key: "cpus" })?;
    let real = n.real_memory.number().ok_or(Problem::Missing { key: "real_memory" })?;
    let gpus = |key, text: &str| {
        tres::gpus(text).ok_or_else(|| Problem::Value {
            key,
            value: crate::excerpt(text),
            want: "a list of generic resources",
        })
    };
    let tracked = tres::get(&n.tres.0, "gres/gpu").is_some();
    Ok(Node {
        name: n.name.0.clone(),
        usable: state::node_usable(&words),
        state: words,
        cpus: Cpus(cpus),
        cpus_effective: Cpus(n.effective_cpus.small().filter(|e| *e > 0).unwrap_or(cpus)),
        cpus_alloc: Cpus(n.alloc_cpus.small().unwrap_or_default()),
        mem: (real > 1).then_some(MemMb(real)),
        mem_spec: MemMb(n.specialized_memory.number().unwrap_or_default()),
        mem_alloc: MemMb(n.alloc_memory.number().unwrap_or_default()),
        threads_per_core: crate::used_threads(
            n.threads.small().unwrap_or(1).max(1),
            cpus,
            n.sockets.small().unwrap_or(0).saturating_mul(n.cores.small().unwrap_or(0)),
        ),
        weight: n.weight.small().unwrap_or(1),
        gpus: Gpus {
            total: gpus("gres", &n.gres.0)?,
            used: if !n.gres_used.0.is_empty() {
                Some(gpus("gres_used", &n.gres_used.0)?)
            } else if tracked {
                let used = tres::get(&n.tres_used.0, "gres/gpu").and_then(tres::count);
                Some(u32::try_from(used.unwrap_or(0)).unwrap_or(u32::MAX))
            } else {
                None
            },
        },
        partitions: n.partitions.0.iter().flat_map(|p| crate::list(p)).collect(),
        features: n.active_features.0.iter().flat_map(|f| crate::list(f)).collect(),
        reason: (!n.reason.0.is_empty()).then(|| n.reason.0.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_in_every_form() {
        let json = br#"{"meta": {"jobs": [1]}, "jobs": [
          {"job_id": 4, "job_state": "PENDING", "admin_comment": "sjp:pin=s02",
           "required_nodes": "s02", "partition": "slim,fat", "submit_time": 1796056809,
           "name": "x \u00fc\"}", "array_task_id": null, "job_resources": {"nodes": [[{}]]}},
          {"job_id": 5, "job_state": ["RUNNING", "CONFIGURING"], "admin_comment": "",
           "required_nodes": "", "partition": "fat",
           "submit_time": {"set": true, "infinite": false, "number": 1796056810}},
          {"job_id": {"set": true, "infinite": false, "number": 6}, "job_state": ["PENDING "],
           "admin_comment": null, "submit_time": {"set": false, "infinite": false, "number": 0}},
          {"job_state": "PENDING"}, 17,
          {"job_id": 7}
        ], "errors": []}"#;
        let parsed = marks(json, None);
        let job =
            |id, state: &[&str], comment: &str, nodes: &str, parts: &[&str], submit| MarkedJob {
                id,
                state: state.iter().map(|s| (*s).to_owned()).collect(),
                admin_comment: comment.into(),
                required_nodes: nodes.into(),
                partitions: parts.iter().map(|s| (*s).to_owned()).collect(),
                submit,
            };
        let four = job(4, &["PENDING"], "sjp:pin=s02", "s02", &["slim", "fat"], 1_796_056_809);
        assert_eq!(
            parsed.records,
            [
                four.clone(),
                job(5, &["RUNNING", "CONFIGURING"], "", "", &["fat"], 1_796_056_810),
                job(6, &["PENDING"], "", "", &[], 0),
            ]
        );
        assert_eq!(
            parsed.errors.iter().map(|e| e.text.as_str()).collect::<Vec<_>>(),
            ["jobs[3]", "jobs[4]", "jobs[5]"]
        );
        assert_eq!(marks(json, Some(&HashSet::from([4]))).records, [four]);
    }

    #[test]
    fn names_that_are_not_utf8_do_no_harm() {
        let json =
            b"{\"jobs\": [{\"name\": \"\xff\xfe\", \"job_id\": 4, \"job_state\": \"PENDING\"}]}";
        let parsed = marks(json, None);
        assert_eq!((parsed.records.len(), parsed.errors.len()), (1, 0));
    }

    #[test]
    fn broken_json_keeps_what_came_before() {
        let json = b"{\"jobs\": [{\"job_id\": 4, \"job_state\": \"PENDING\"},\n {\"job_id\": 5, ";
        let parsed = marks(json, None);
        assert_eq!(parsed.records.len(), 1);
        assert_eq!(parsed.errors[0].line, 2);
        assert!(matches!(parsed.errors[0].what, Problem::Json { .. }));
        for bad in ["", "[]", "17", "{}", "{\"jobs\": 3}", "{\"jobs\": []} x"] {
            assert_eq!(marks(bad.as_bytes(), None).errors.len(), 1, "{bad}");
        }
        let parsed = marks(br#"{"jobs": [], "errors": [{"error": "no controller"}]}"#, None);
        assert_eq!(parsed.errors[0].what, Problem::Slurm);
        assert!(parsed.errors[0].text.contains("no controller"));
    }

    #[test]
    fn limits_in_every_form() {
        for (number, want) in [
            (Number::At(30_240), Limit::At(30_240)),
            (Number::Infinite, Limit::Unlimited),
            (Number::Unset, Limit::Unset),
            (Number::At(4_294_967_294), Limit::Unset),
            (Number::At(4_294_967_295), Limit::Unlimited),
        ] {
            assert_eq!(number.limit(), want);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = marks(&bytes, None);
            let _ = nodes(&bytes);
        }

        #[test]
        fn no_json_panics(text in "\\{\"(jobs|nodes)\": \\[\\{(\"(job_id|state|cpus|name)\"|:|,|[0-9]|\\{|\\}|\"a\"|null){0,20}") {
            let _ = marks(text.as_bytes(), None);
            let _ = jobs(text.as_bytes());
            let _ = nodes(text.as_bytes());
        }
    }
}
