//! What must hold, whatever happens.

use crate::admission::{self, Ask};
use crate::job::{Sim, State, same};
use crate::sjpd::Order;
use crate::slurm::Slurm;
use crate::world::{Load, World, add};
use sjp_core::cluster::Partition;
use sjp_core::config::UserChoice;
use sjp_core::mark::Mark;
use sjp_core::units::Limit;

fn value<'o>(order: &'o Order, key: &str) -> Option<&'o str> {
    let all = order.steps.iter().flatten();
    all.filter(|(k, _)| *k == key).map(|(_, v)| v.as_str()).next_back()
}

fn names(list: &str) -> Vec<String> {
    list.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect()
}

/// The node that an order promises.
fn promise(order: &Order) -> Option<&str> {
    let node = value(order, "reqnodelist").filter(|n| !n.is_empty())?;
    let mark = Mark::parse(value(order, "admincomment")?)?;
    mark.get("eta").is_none().then_some(node)
}

impl World {
    fn the_job(&self, id: u32) -> Result<&Sim, String> {
        self.slurm.job(id).ok_or(format!("there is no job {id}"))
    }

    /// Partitions that sjp sets are ones that Slurm takes this job into. `new`: at
    /// submission, where one that was down when the table was published is none to
    /// choose; later what once took the job may be given back.
    pub fn check_set(&self, job: &Sim, list: &[String], new: bool) -> Result<(), String> {
        let named = &job.asked.named;
        if self.slurm.bound.iter().any(|(uid, _)| *uid == job.uid) && list.len() > 1 {
            return Err(format!("job {}: its user may not name {list:?}", job.id));
        }
        for name in list {
            let p = self.slurm.partition(name).ok_or(format!("{name} does not exist"))?;
            let known = job.good.contains(name) && !new;
            let fine = || {
                let seen = self.states.get(name).filter(|_| new).unwrap_or(&p.state);
                if seen != "UP" {
                    return Err(format!("state {seen}"));
                }
                let p = Partition { state: seen.clone(), ..p.clone() };
                admission::accepts(&self.slurm, &p, &Ask::of(job))
            };
            if !known && let Err(why) = fine() {
                return Err(format!("job {} must not be in {name}: {why}", job.id));
            }
            if !named.is_empty() {
                let follow = self.setup.policy.user_partition == UserChoice::Follow;
                if follow && !named.contains(name) {
                    return Err(format!("job {} named {named:?}, not {name}", job.id));
                }
            }
            if !known && !self.gives_enough(job, name) {
                return Err(format!("job {} gets less time in {name} than by itself", job.id));
            }
        }
        Ok(())
    }

    /// Whether a job without a time limit gets as much in a partition as in one that
    /// it would be in without sjp.
    fn gives_enough(&self, job: &Sim, name: &str) -> bool {
        let minutes = |name: &String| {
            let p = self.slurm.partition(name);
            p.and_then(|p| Slurm::minutes(job, p)).map_or(u64::MAX, u64::from)
        };
        let own = job.asked.partitions.iter().map(minutes).min();
        job.limit != Limit::Unset || own.is_none_or(|own| minutes(&name.to_owned()) >= own)
    }

    /// A job that is pinned at submission fits on its node, beside all that runs there
    /// and is promised.
    pub fn check_pin(&mut self, job: &Sim) -> Result<(), String> {
        let Some(node) = self.promised(job) else { return Ok(()) };
        let mut sum = self.load.get(&node).copied().unwrap_or_default();
        add(&mut sum, self.share(job, &node));
        self.fits(&node, sum, &format!("job {} is pinned", job.id))?;
        self.load.insert(node, sum);
        self.counts("pin");
        Ok(())
    }

    fn fits(&self, node: &str, (cpus, mem): (u32, u64), what: &str) -> Result<(), String> {
        let n = self.slurm.node(node).ok_or(format!("{what} to {node}, which is none"))?;
        let has = n.mem.map_or(0, |m| m.0);
        if cpus > n.cpus.0 || mem > has {
            return Err(format!(
                "{what}: {node} is promised {cpus} of {} CPUs, {mem} of {has} MB",
                n.cpus.0
            ));
        }
        Ok(())
    }

    /// The orders of one look together, and those in hand, promise no more than there
    /// is beside what runs and what stays.
    pub fn check_promises(&self, before: &[Order], orders: &[Order]) -> Result<(), String> {
        let mut load = self.load_now(self.count);
        let all = || before.iter().chain(orders);
        for order in all() {
            let job = self.the_job(order.job)?;
            if value(order, "reqnodelist").is_some()
                && let Some(node) = self.promised(job)
                && let Some(sum) = load.get_mut(&node)
            {
                let share = self.share(job, &node);
                *sum = (sum.0 - share.0, sum.1 - share.1);
            }
        }
        for order in all() {
            let job = self.the_job(order.job)?;
            if let Some(node) = promise(order).filter(|_| job.state == State::Pending) {
                let sum = load.entry(node.to_owned()).or_default();
                add(sum, self.share(job, node));
            }
        }
        for order in orders {
            if let Some(node) = promise(order) {
                let sum = load.get(node).copied().unwrap_or_default();
                self.fits(node, sum, &format!("{} job {}", order.kind, order.job))?;
            }
        }
        Ok(())
    }

    /// What is in hand is promised already.
    pub fn promise_ahead(&mut self) {
        let mut load: Load = std::mem::take(&mut self.load);
        let hands = self.sjpd.iter().flat_map(|s| s.hands.iter());
        for order in hands {
            if let (Some(node), Some(job)) = (promise(order), self.slurm.job(order.job))
                && job.state == State::Pending
            {
                add(load.entry(node.to_owned()).or_default(), self.share(job, node));
            }
        }
        self.load = load;
    }

    /// What sjpd orders for a job, on a queue that it has just read: only for a job of
    /// its own, nothing that somebody else has chosen, and no partition that is not
    /// for this job.
    pub fn check_order(&self, order: &Order) -> Result<(), String> {
        let job = self.the_job(order.job)?;
        if !job.marked {
            return Err(format!("job {} is none of sjp's: {}", job.id, order.words));
        }
        let chosen = &job.chosen;
        if let Some(list) = value(order, "partition") {
            if chosen.partitions.is_some() {
                return Err(format!("job {}: somebody chose its partitions", job.id));
            }
            self.check_set(job, &names(list), false)?;
        }
        let touches_nodes = order.steps.iter().flatten().any(|(key, _)| *key == "reqnodelist");
        if touches_nodes && chosen.nodes.is_some() && !job.req_nodes.is_empty() && !job.raced {
            return Err(format!("job {}: somebody chose its nodes", job.id));
        }
        if let Some(qos) = value(order, "qos") {
            if chosen.qos.is_some() {
                return Err(format!("job {}: somebody chose its QOS", job.id));
            }
            let lent = qos == "flex" && self.setup.flexers.contains(&job.uid);
            if qos != job.asked.qos && !(order.kind == "flex" && lent) && !job.raced {
                return Err(format!("job {}: QOS {qos} is not for it", job.id));
            }
        }
        if let Some(comment) = value(order, "admincomment") {
            let from = Mark::parse(comment).map(|mark| mark.list("from")).unwrap_or_default();
            for name in &from {
                self.check_set(job, std::slice::from_ref(name), false)?;
            }
            let site = Mark::parse(comment).map_or(comment.to_owned(), |m| m.before);
            if site != job.asked.comment {
                return Err(format!("job {}: {site:?} in its AdminComment", job.id));
            }
        }
        Ok(())
    }

    /// slurmctld refused an update by itself: only where the cluster has changed since
    /// it was ordered.
    pub fn excuse_refusal(&mut self, order: &Order) -> Result<(), String> {
        let job = self.the_job(order.job)?;
        if self.closed > order.seen || job.touched > order.seen {
            self.counts("refused by itself");
            return Ok(());
        }
        Err(format!("job {}: slurmctld refuses {}", order.job, order.words))
    }

    /// Jobs start only where they might have without sjp.
    pub fn check_starts(&mut self) -> Result<(), String> {
        for i in std::mem::take(&mut self.slurm.started) {
            let job = &self.slurm.jobs[i];
            let State::Running { node, partition, .. } = &job.state else { continue };
            let words = format!("job {} started on {node} in {partition}", job.id);
            let asked = &job.asked;
            let wrong = if asked.exclude.contains(node) {
                Some("it excludes that node")
            } else if !asked.nodes.is_empty() && !asked.nodes.contains(node) && !job.raced {
                Some("it named another")
            } else if !job.good.contains(partition) {
                Some("nobody put it there")
            } else if !self.gives_enough(job, partition) && !job.raced {
                Some("it gets less time there")
            } else if job.qos != asked.qos && !self.setup.flexers.contains(&job.uid) {
                Some("it has another QOS")
            } else {
                None
            };
            if let Some(wrong) = wrong {
                return Err(format!("{words}, but {wrong}"));
            }
            self.log.push(format!("       {words}"));
        }
        Ok(())
    }

    /// A job that would start without sjp if nothing else ran, and does not. A
    /// partition that is drained takes no job any more: nobody could put one there. Jobs
    /// with nodes of their own are left to widening, which a site may switch off.
    pub fn stuck(&self) -> Option<&Sim> {
        let up = |name: &String| self.slurm.partition(name).is_some_and(|p| p.state == "UP");
        let cared_for = |j: &&Sim| {
            let own = !j.asked.nodes.is_empty() || !j.asked.exclude.is_empty();
            self.off || self.setup.waiting.widen || !own || !j.marked
        };
        let waits = |j: &&Sim| j.state == State::Pending && j.alone && !j.raced;
        self.slurm.jobs.iter().filter(waits).filter(cared_for).find(|j| {
            let mut alone = j.without_sjp();
            alone.partitions.retain(up);
            self.slurm.starts_alone(&alone)
        })
    }

    fn all_ends(&mut self) {
        for job in &mut self.slurm.jobs {
            if job.node().is_some() {
                job.state = State::Ended(crate::job::End::Completed);
            }
        }
    }

    /// Everything that runs ends, again and again: every job that would have started
    /// without sjp starts, with sjpd alive or after everything was undone.
    pub fn live_on(&mut self) -> Result<(), String> {
        for _ in 0..150 {
            self.all_ends();
            self.slurm.pass(0);
            self.check_starts()?;
            if self.stuck().is_none() && self.slurm.jobs.iter().all(|j| j.node().is_none()) {
                return Ok(());
            }
            self.all_ends();
            self.slurm.pass(130);
            self.check_starts()?;
            self.count += 1;
            if !self.off {
                self.look()?;
                self.hands()?;
            }
        }
        let Some(job) = self.stuck() else { return Ok(()) };
        let waiting = self.slurm.jobs.iter().filter(|j| j.state == State::Pending);
        let all: Vec<String> = waiting
            .map(|j| format!("{} {:?} {} {:?}", j.id, j.partitions, j.reason, j.plan))
            .collect();
        Err(format!(
            "job {} waits, and would not without sjp: {job:?}\nwaiting: {}",
            job.id,
            all.join("; ")
        ))
    }

    /// Switched off and undone, nothing of sjp's is left.
    pub fn undo(&mut self) -> Result<(), String> {
        self.off = true;
        for _ in 0..5 {
            // What was refused rests for a while.
            self.slurm.pass(10);
            self.check_starts()?;
            self.count += 1;
            self.look()?;
            self.hands()?;
            self.plan_undo()?;
            self.hands()?;
        }
        let pending: Vec<Sim> =
            self.slurm.jobs.iter().filter(|j| j.state == State::Pending).cloned().collect();
        for job in pending.iter().filter(|j| !j.raced) {
            if let Some(left) = self.left_of_sjp(job) {
                return Err(format!("after the undo job {} {left}: {job:?}", job.id));
            }
        }
        self.counts("undone");
        Ok(())
    }

    fn left_of_sjp(&self, job: &Sim) -> Option<String> {
        let asked = &job.asked;
        if job.comment != asked.comment {
            return Some(format!("has AdminComment {:?}", job.comment));
        }
        if job.req_nodes != asked.nodes {
            return Some(format!("requires {:?}", job.req_nodes));
        }
        if job.qos != asked.qos {
            return Some(format!("has QOS {}", job.qos));
        }
        // Of the partitions it came with, those that could ever take it; what was shut when
        // it was undone comes beside what sjp had chosen.
        let takes = |name: &&String| {
            let holds = |node: &String| {
                let node = self.slurm.node(node).filter(|n| n.partitions.contains(name));
                node.is_some_and(|n| self.slurm.holds(job, n))
            };
            let p = self.slurm.partition(name);
            let p = p.map(|p| Partition { state: "UP".to_owned(), ..p.clone() });
            p.is_some_and(|p| admission::accepts(&self.slurm, &p, &Ask::of(job)).is_ok())
                && asked.nodes.iter().all(holds)
        };
        let back: Vec<String> = asked.partitions.iter().filter(takes).cloned().collect();
        let known = job.partitions.iter().all(|p| job.good.contains(p));
        let exact = self.closed == 0 && job.alone && !back.is_empty();
        let fine = same(&job.partitions, &asked.partitions)
            || if exact { same(&job.partitions, &back) } else { known };
        (!fine).then(|| format!("is not back in {back:?}"))
    }
}
