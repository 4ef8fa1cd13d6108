//! Mode observe: for each new job, where Slurm put it, where sjp would have
//! put it, and why. Decided by the same code as in the Lua module, on the
//! rooms as they were published before the job was submitted.

use super::table::Published;
use super::world::seconds;
use crate::journal::Entry;
use sjp_core::cluster::{Job, JobState};
use sjp_core::decision::{Basis, Placement, Reason};
use sjp_core::mark;
use sjp_core::place::{Context, Scratch, choose};
use sjp_core::promises::Promises;
use sjp_core::publication::Roster;
use sjp_core::request::JobRequest;
use sjp_core::units::MemPer;
use std::collections::HashMap;

/// A job, or an array as a whole, by id and submit time.
type Key = (u32, i64);

/// What is known of a job that was seen.
#[derive(Clone, Debug)]
enum Seen {
    /// There before sjpd, or all has been said.
    Done,
    /// New at the last look, and pending.
    New(Box<Opinion>),
    /// Said to be pending; its start is still to be told.
    Waiting(Box<Opinion>),
}

/// Where sjp would have put a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Opinion {
    /// Partitions by name; empty where it would have been left alone.
    pub partitions: Vec<String>,
    /// The node, where it would have been pinned.
    pub node: Option<String>,
    /// Why, in words.
    pub why: String,
}

/// Compares Slurm's placements with sjp's.
#[derive(Debug, Default)]
pub struct Observer {
    seen: HashMap<Key, Seen>,
    primed: bool,
    /// Jobs of the first queue count as new from this second (Unix) on.
    since: i64,
    scratch: Scratch,
}

impl Observer {
    /// Nothing seen yet. Of the first queue, jobs submitted before the second of
    /// `since` (Unix) are not judged.
    #[must_use]
    pub fn new(since: f64) -> Self {
        Self { since: seconds(since), ..Self::default() }
    }

    /// Looks at a queue. `before` gives the rooms as they were before a time
    /// in Unix seconds. Answers what is to be logged.
    pub fn look<'p>(
        &mut self,
        jobs: &[Job],
        before: impl Fn(f64) -> Option<&'p Published>,
    ) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut next = HashMap::with_capacity(self.seen.len());
        // Jobs of one look are judged one after the other, as at submission:
        // what one was told counts for the next.
        let mut promised: HashMap<usize, Promises> = HashMap::new();
        let mut order: Vec<&Job> = jobs.iter().filter(|j| j.state != JobState::Ended).collect();
        order.sort_by_key(|j| (j.submit, j.id));
        for job in order {
            let key = (job.array_id.unwrap_or(job.id), job.submit);
            if next.contains_key(&key) && job.array_id.is_some() {
                continue;
            }
            let seen = match self.seen.remove(&key) {
                Some(seen) => self.again(job, seen, &mut entries),
                None if !self.primed && job.submit < self.since => Seen::Done,
                None => match before(job.submit as f64) {
                    None => Seen::Done,
                    Some(published) => {
                        let promises =
                            promised.entry(std::ptr::from_ref(published) as usize).or_default();
                        let opinion = self.judge(job, published, promises);
                        self.first(job, opinion, &mut entries)
                    }
                },
            };
            next.insert(key, seen);
        }
        self.seen = next;
        self.primed = true;
        entries
    }

    /// A job seen for the first time.
    fn first(&self, job: &Job, opinion: Opinion, entries: &mut Vec<Entry>) -> Seen {
        match job.state {
            JobState::Active => {
                entries.push(entry(job, &opinion, "started"));
                Seen::Done
            }
            JobState::Pending | JobState::Ended => Seen::New(Box::new(opinion)),
        }
    }

    /// A job seen before.
    fn again(&self, job: &Job, seen: Seen, entries: &mut Vec<Entry>) -> Seen {
        match (job.state, seen) {
            (JobState::Active, Seen::New(opinion) | Seen::Waiting(opinion)) => {
                entries.push(entry(job, &opinion, "started"));
                Seen::Done
            }
            (_, Seen::New(opinion)) => {
                entries.push(entry(job, &opinion, "pending"));
                Seen::Waiting(opinion)
            }
            (_, seen) => seen,
        }
    }

    /// Where sjp would have put the job.
    fn judge(&mut self, job: &Job, published: &Published, promises: &mut Promises) -> Opinion {
        let roster = &*published.roster;
        let nodelist = job.req_nodes.join(",");
        let partition = named(roster, job);
        let request = JobRequest::queued(job, &nodelist, partition.as_deref());
        let context = Context {
            roster,
            rooms: &*published.rooms,
            promised: promises.as_slice(),
            now: u64::try_from(job.submit).unwrap_or(0),
            permitted: None,
        };
        match choose(&context, &request, &mut self.scratch) {
            Ok(placement) => {
                for claim in &placement.claims {
                    promises.promise(claim.node, claim.cpus, claim.mem);
                }
                opinion(roster, &placement)
            }
            Err(reason) => {
                Opinion { partitions: Vec::new(), node: None, why: left_alone(reason).to_owned() }
            }
        }
    }
}

/// The partitions a job named, as far as the queue tells: who is in the default
/// partition alone has most likely named none. (A running job shows only the
/// partition it runs in.)
fn named(roster: &Roster, job: &Job) -> Option<String> {
    let default = roster.partitions.iter().find(|p| p.default).map(|p| p.name.as_str());
    match job.partitions.as_slice() {
        [] => None,
        [only] if Some(only.as_str()) == default => None,
        list => Some(list.join(",")),
    }
}

fn opinion(roster: &Roster, placement: &Placement) -> Opinion {
    let node = placement.pin.and_then(|n| roster.nodes.get(n as usize)).map(str::to_owned);
    let names = mark::partition_names(roster, &placement.partitions);
    let mut why = match placement.basis {
        Basis::Room => format!("least loss: {:.2} placeable CPUs", placement.loss),
        Basis::Shape => "no room; partitions by shape".to_owned(),
        Basis::Open => "no room; every partition that can hold it".to_owned(),
    };
    if node.is_some() {
        let free = mark::shape(placement.room.cpus, placement.room.mem);
        why = format!("{why}; the node has {free} free");
    } else if let Some(not) = placement.not_pinned {
        why = format!("{why}; not pinned: {not}");
    }
    Opinion { partitions: names.split(',').map(str::to_owned).collect(), node, why }
}

fn left_alone(reason: Reason) -> &'static str {
    reason.words()
}

/// CPUs and memory of a job, as marks write them.
#[must_use]
pub fn shape(job: &Job) -> String {
    let nodes = u64::from(job.node_count.max(1));
    let mem = match job.mem {
        MemPer::Unset => None,
        MemPer::Node(mem) => Some(sjp_core::units::MemMb(mem.0.saturating_mul(nodes))),
        MemPer::Cpu(mem) => Some(mem.times(job.cpus)),
    };
    mark::shape(job.cpus, mem)
}

fn entry(job: &Job, opinion: &Opinion, stage: &'static str) -> Entry {
    let (nodes, partitions) = (job.nodes.join(","), job.partitions.join(","));
    let slurm = if stage == "started" {
        format!("on {nodes} in {partitions}")
    } else {
        format!("waits in {partitions} ({})", job.reason)
    };
    let sjp = match (&opinion.node, opinion.partitions.as_slice()) {
        (_, []) => format!("would have left it alone ({})", opinion.why),
        (Some(node), list) => {
            format!("would have said {node} in {} ({})", list.join(","), opinion.why)
        }
        (None, list) => format!("would have said {} ({})", list.join(","), opinion.why),
    };
    let shape = shape(job);
    let words = format!("job {}: {shape}; Slurm: {slurm}; sjp {sjp}", job.id);
    let entry = Entry::new("observed", words)
        .with("job", job.id)
        .with("stage", stage)
        .with("uid", job.uid)
        .with("shape", shape)
        .with("partitions", &job.partitions)
        .with("would_partitions", &opinion.partitions)
        .with("would_node", &opinion.node)
        .with("why", &opinion.why);
    if stage == "started" {
        entry.with("nodes", &job.nodes)
    } else {
        entry.with("reason", &job.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sjp_core::cluster::{Node, Partition, SlurmConfig};
    use sjp_core::config::Policy;
    use sjp_core::ledger::Ledger;
    use sjp_core::publish::{Extra, RoomsInput, RosterInput, build_rooms, build_roster};
    use sjp_core::units::{Cpus, MemMb};
    use std::sync::Arc;

    fn published() -> Published {
        let node = |name: &str, mem, partition: &str| Node {
            name: name.into(),
            state: vec!["IDLE".into()],
            usable: true,
            cpus: Cpus(16),
            cpus_effective: Cpus(16),
            mem: Some(MemMb(mem)),
            threads_per_core: 1,
            weight: 1,
            partitions: vec![partition.into()],
            ..Node::default()
        };
        let nodes = [
            node("fat1", 512_000, "fat"),
            node("slim1", 64_000, "slim"),
            node("slim2", 64_000, "slim"),
        ];
        let partition = |name: &str, list: &[&str]| Partition {
            name: name.into(),
            state: "UP".into(),
            nodes: list.iter().map(|s| (*s).to_owned()).collect(),
            node_count: 1,
            tier: 1,
            default: name == "fat",
            over_subscribe: "NO".into(),
            ..Partition::default()
        };
        let config = SlurmConfig {
            select_type: "select/cons_tres".into(),
            select_params: vec!["CR_CPU_MEMORY".into()],
            ..SlurmConfig::default()
        };
        let partitions = [partition("fat", &["fat1"]), partition("slim", &["slim1", "slim2"])];
        let roster = build_roster(&RosterInput {
            nodes: &nodes,
            partitions: &partitions,
            config: &config,
            qos: &[],
            bound_users: &[],
            policy: &Policy::default(),
        });
        let rooms = build_rooms(
            &roster,
            &RoomsInput {
                nodes: &nodes,
                nodes_asked_at: 100.0,
                reservations: &[],
                jobs: &[],
                ledger: &Ledger::new(),
                qos: &[],
                config: &config,
                now: 100,
                extra: Extra::default(),
            },
        );
        Published { roster: Arc::new(roster), rooms: Arc::new(rooms), asked: 100.0 }
    }

    fn job(id: u32, state: JobState) -> Job {
        Job {
            batch: true,
            id,
            array_tasks: 1,
            uid: 1000,
            state,
            reason: "Priority".into(),
            partitions: vec!["fat".into()],
            nodes: if state == JobState::Active { vec!["fat1".into()] } else { Vec::new() },
            submit: 101,
            cpus: Cpus(2),
            mem: MemPer::Cpu(MemMb(2000)),
            node_count: 1,
            priority: 7,
            ..Job::default()
        }
    }

    #[test]
    fn a_partition_other_than_the_default_was_the_user_s_choice() {
        let published = published();
        let named = |list: &[&str]| {
            let partitions = list.iter().map(|s| (*s).to_owned()).collect();
            named(&published.roster, &Job { partitions, ..job(1, JobState::Pending) })
        };
        assert_eq!(named(&["fat"]), None, "the default");
        assert_eq!(named(&["slim"]).as_deref(), Some("slim"));
        assert_eq!(named(&["fat", "slim"]).as_deref(), Some("fat,slim"));
    }

    #[test]
    fn a_started_job_is_compared_with_what_sjp_would_have_said() {
        let published = published();
        let mut observer = Observer::new(200.0);
        assert!(observer.look(&[job(1, JobState::Active)], |_| Some(&published)).is_empty());
        let jobs = [job(1, JobState::Active), job(2, JobState::Active)];
        let entries = observer.look(&jobs, |_| Some(&published));
        assert_eq!(entries.len(), 1, "job 1 was there before sjpd");
        let e = &entries[0];
        assert_eq!(e.field("job"), Some(&2.into()));
        assert_eq!(e.field("nodes"), Some(&serde_json::json!(["fat1"])));
        assert_eq!(e.field("would_partitions"), Some(&serde_json::json!(["slim"])));
        assert!(e.words().contains("Slurm: on fat1 in fat; sjp would have said"), "{}", e.words());
        assert!(observer.look(&jobs, |_| Some(&published)).is_empty(), "said once");
    }

    #[test]
    fn a_pending_job_is_told_at_the_second_look_and_again_when_it_starts() {
        let published = published();
        let mut observer = Observer::new(200.0);
        observer.look(&[], |_| Some(&published));
        let stage = |e: &[Entry]| {
            let list: Vec<String> =
                e.iter().filter_map(|e| Some(e.field("stage")?.as_str()?.to_owned())).collect();
            list.join(",")
        };
        let pending = [job(3, JobState::Pending)];
        assert_eq!(stage(&observer.look(&pending, |_| Some(&published))), "");
        assert_eq!(stage(&observer.look(&pending, |_| Some(&published))), "pending");
        assert_eq!(stage(&observer.look(&pending, |_| Some(&published))), "");
        let started = [job(3, JobState::Active)];
        assert_eq!(stage(&observer.look(&started, |_| Some(&published))), "started");
        assert_eq!(stage(&observer.look(&started, |_| Some(&published))), "");
    }

    #[test]
    fn jobs_of_one_look_are_not_all_promised_the_same_room() {
        let published = published();
        let mut observer = Observer::new(200.0);
        observer.look(&[], |_| Some(&published));
        let whole = |id| Job {
            cpus: Cpus(16),
            mem: MemPer::Node(MemMb(60_000)),
            ..job(id, JobState::Active)
        };
        let jobs = [whole(1), whole(2), whole(3), whole(4)];
        let entries = observer.look(&jobs, |_| Some(&published));
        let told: Vec<String> =
            entries.iter().filter_map(|e| Some(e.field("why")?.as_str()?.to_owned())).collect();
        assert_eq!(told.len(), 4);
        assert_eq!(told.iter().filter(|w| *w == "no room").count(), 1, "{told:?}");
    }

    #[test]
    fn a_job_submitted_after_the_mode_changed_is_new_in_the_first_queue_already() {
        let published = published();
        let mut observer = Observer::new(150.5);
        let new = Job { submit: 151, ..job(2, JobState::Active) };
        let entries = observer.look(&[job(1, JobState::Active), new], |_| Some(&published));
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].field("job"), Some(&2.into()));
    }

    #[test]
    fn an_array_is_judged_once() {
        let published = published();
        let mut observer = Observer::new(200.0);
        observer.look(&[], |_| Some(&published));
        let task = |id| Job { array_id: Some(10), ..job(id, JobState::Active) };
        let entries = observer.look(&[task(11), task(12), task(10)], |_| Some(&published));
        assert_eq!(entries.len(), 1);
    }
}
