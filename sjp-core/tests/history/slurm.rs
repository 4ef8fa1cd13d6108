//! A Slurm in memory: nodes, partitions, limits, jobs, and a scheduler that starts
//! whatever fits, the highest PriorityTier and priority first.

use crate::admission::{self, Ask};
use crate::job::{End, Sim, State};
use sjp_core::cluster::{
    Job, JobState, Node, Partition, QosCaps, Reservation, ReservedCores, SlurmConfig,
};
use sjp_core::units::{Cpus, Limit, MemMb, MemPer};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// When every history begins, Unix seconds.
pub const DAWN: i64 = 1_800_000_000;

/// A QOS: its CPU cap for each user, if any.
#[derive(Clone, Debug)]
pub struct Qos {
    pub name: &'static str,
    pub per_user: Option<u32>,
}

/// What slurmctld says to an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Made,
    Gone,
    Refused,
    /// It was not asked: the job is not as it was when that was decided.
    Changed,
}

/// The cluster.
#[derive(Clone, Debug)]
pub struct Slurm {
    pub now: i64,
    pub nodes: Vec<Node>,
    pub partitions: Vec<Partition>,
    pub reservations: Vec<Reservation>,
    pub config: SlurmConfig,
    pub qos: Vec<Qos>,
    /// Users with an association for one partition only.
    pub bound: Vec<(u32, String)>,
    /// Refuses partitions that do not hold the required node, as 26.05 does.
    pub strict_nodes: bool,
    pub jobs: Vec<Sim>,
    /// Jobs that have started since this was last looked at, by place in `jobs`.
    pub started: Vec<usize>,
    pub next_id: u32,
}

impl Slurm {
    pub fn job(&self, id: u32) -> Option<&Sim> {
        self.jobs.iter().find(|j| j.id == id)
    }

    pub fn partition(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.name == name)
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|n| n.name == name)
    }

    pub fn default_partition(&self) -> Vec<String> {
        self.partitions.iter().filter(|p| p.default).map(|p| p.name.clone()).collect()
    }

    /// CPUs and MB that a job takes on a node, once it runs there.
    pub fn takes(&self, job: &Sim, node: &Node) -> (u32, u64) {
        let cpus = Cpus(job.cpus).round_up(node.threads_per_core);
        let counted = if self.config.whole_cores() { cpus } else { Cpus(job.cpus) };
        let all = node.mem.map_or(0, |m| m.0);
        let mem = match job.mem {
            MemPer::Cpu(mb) => mb.times(counted).0,
            MemPer::Node(mb) if mb.0 > 0 => mb.0,
            MemPer::Node(_) | MemPer::Unset => all,
        };
        if job.exclusive { (node.cpus.0.max(cpus.0), all.max(mem)) } else { (cpus.0, mem) }
    }

    /// Whether the node, empty, is big enough for the job.
    pub fn holds(&self, job: &Sim, node: &Node) -> bool {
        let (cpus, mem) = self.takes(job, node);
        cpus <= node.cpus.0 && node.mem.is_none_or(|has| mem <= has.0)
    }

    /// What runs on a node: CPUs and MB.
    pub fn running_on(&self, name: &str) -> (u32, u64) {
        let Some(node) = self.node(name) else { return (0, 0) };
        let on = self.jobs.iter().filter(|j| j.node() == Some(name));
        on.map(|j| self.takes(j, node)).fold((0, 0), |sum, t| (sum.0 + t.0, sum.1 + t.1))
    }

    fn fits(&self, job: &Sim, node: &Node, empty: bool) -> bool {
        let used = if empty { (0, 0) } else { self.running_on(&node.name) };
        let takes = self.takes(job, node);
        takes.0 + used.0 <= node.cpus.0 && takes.1 + used.1 <= node.mem.map_or(0, |m| m.0)
    }

    /// Minutes that a job may run in a partition; `None`: without end.
    pub fn minutes(job: &Sim, partition: &Partition) -> Option<u32> {
        match job.limit {
            Limit::At(minutes) => Some(minutes),
            Limit::Unlimited => None,
            Limit::Unset => partition.default_time.number().or(partition.max_time.number()),
        }
    }

    /// Whether a job that starts now would meet a reservation on the node.
    fn reserved(&self, job: &Sim, partition: &Partition, node: &Node) -> bool {
        let over = Self::minutes(job, partition).map(|m| self.now + i64::from(m) * 60);
        self.reservations.iter().any(|r| {
            r.nodes.contains(&node.name)
                && r.end > self.now
                && over.is_none_or(|over| over > r.start)
        })
    }

    /// The node on which the job can start now in this partition.
    fn node_in(&self, job: &Sim, partition: &Partition, empty: bool) -> Option<&Node> {
        let ask = Ask::of(job);
        if !matches!(partition.state.as_str(), "UP" | "DRAIN")
            || admission::limits(partition, &ask).is_err()
        {
            return None;
        }
        let nodes =
            self.nodes.iter().filter(|n| n.usable && n.partitions.contains(&partition.name));
        let nodes = nodes.filter(|n| job.req_nodes.is_empty() || job.req_nodes == [n.name.clone()]);
        let nodes = nodes.filter(|n| !job.exc_nodes.contains(&n.name));
        let nodes = nodes.filter(|n| self.fits(job, n, empty) && !self.reserved(job, partition, n));
        nodes.min_by_key(|n| n.cpus.0 - self.running_on(&n.name).0)
    }

    /// Whether the job would start at once if nothing else were there.
    pub fn starts_alone(&self, job: &Sim) -> bool {
        let capped = self.qos_of(&job.qos).and_then(|q| q.per_user).is_some_and(|c| job.cpus > c);
        self.may_start(job)
            && !capped
            && self.partitions_of(job).iter().any(|p| self.node_in(job, p, true).is_some())
    }

    fn partitions_of(&self, job: &Sim) -> Vec<&Partition> {
        job.partitions.iter().filter_map(|name| self.partition(name)).collect()
    }

    pub fn qos_of(&self, name: &str) -> Option<&Qos> {
        self.qos.iter().find(|q| q.name == name)
    }

    /// CPUs that run under a QOS, by user.
    pub fn qos_use(&self, qos: &str) -> BTreeMap<u32, u32> {
        let mut used = BTreeMap::new();
        for job in self.jobs.iter().filter(|j| j.node().is_some() && j.qos == qos) {
            *used.entry(job.uid).or_default() += job.cpus;
        }
        used
    }

    fn over_cap(&self, job: &Sim) -> bool {
        let Some(cap) = self.qos_of(&job.qos).and_then(|q| q.per_user) else { return false };
        self.qos_use(&job.qos).get(&job.uid).copied().unwrap_or(0) + job.cpus > cap
    }

    /// Whether neither a hold, a begin time nor a dependency keeps it.
    pub fn may_start(&self, job: &Sim) -> bool {
        !job.held && job.begin <= self.now && !self.depends(job)
    }

    fn depends(&self, job: &Sim) -> bool {
        let of = job.after.and_then(|id| self.job(id));
        of.is_some_and(|j| !matches!(j.state, State::Ended(_)))
    }

    /// One pass of the scheduler, and the reasons of those that wait.
    pub fn schedule(&mut self) {
        for i in 0..self.jobs.len() {
            let may = self.may_start(&self.jobs[i]);
            let job = &mut self.jobs[i];
            match (may, job.eligible) {
                (true, None) => job.eligible = Some(self.now.max(job.begin)),
                (false, Some(_)) if job.begin <= self.now => job.eligible = None,
                _ => {}
            }
        }
        let mut queue = Vec::new();
        for (i, job) in self.jobs.iter().enumerate().filter(|(_, j)| j.state == State::Pending) {
            for p in self.partitions_of(job) {
                queue.push((Reverse(p.tier), Reverse(job.priority), job.id, i, p.name.clone()));
            }
        }
        queue.sort();
        for (.., i, name) in queue {
            // Of an array one task after the other.
            while self.jobs[i].state == State::Pending && self.start_in(i, &name) {}
        }
        self.tell_reasons();
    }

    /// Starts the job in the partition, if it can; of an array one task.
    fn start_in(&mut self, i: usize, partition: &str) -> bool {
        let job = &self.jobs[i];
        let Some(rule) = self.partition(partition) else { return false };
        if !self.may_start(job) || self.over_cap(job) {
            return false;
        }
        let Some(node) = self.node_in(job, rule, false) else { return false };
        let minutes = Self::minutes(job, rule);
        let (node, now) = (node.name.clone(), self.now);
        let state = State::Running { node, partition: partition.to_owned(), start: now, minutes };
        let i = if job.tasks.len() > 1 {
            let mut one = job.clone();
            one.tasks = vec![self.jobs[i].tasks.remove(0)];
            one.id = self.next_id;
            self.next_id += 1;
            self.jobs.push(one);
            self.jobs.len() - 1
        } else {
            i
        };
        let job = &mut self.jobs[i];
        job.state = state;
        job.reason = "None".to_owned();
        job.plan = None;
        self.started.push(i);
        true
    }

    fn tell_reasons(&mut self) {
        let mut order: Vec<usize> =
            (0..self.jobs.len()).filter(|&i| self.jobs[i].state == State::Pending).collect();
        order.sort_by_key(|&i| (Reverse(self.jobs[i].priority), self.jobs[i].id));
        let mut first = true;
        for i in order {
            let job = &self.jobs[i];
            let parts = self.partitions_of(job);
            let down = |name: &String| self.node(name).is_none_or(|n| !n.usable);
            let reason = if job.held {
                "JobHeldUser".to_owned()
            } else if self.depends(job) {
                "Dependency".to_owned()
            } else if job.begin > self.now {
                "BeginTime".to_owned()
            } else if self.over_cap(job) {
                "QOSMaxCpuPerUserLimit".to_owned()
            } else if parts.iter().all(|p| !matches!(p.state.as_str(), "UP" | "DRAIN")) {
                "PartitionDown".to_owned()
            } else if job.req_nodes.iter().any(down) {
                format!("ReqNodeNotAvail, UnavailableNodes:{}", job.req_nodes.join(","))
            } else if std::mem::take(&mut first) {
                "Resources".to_owned()
            } else {
                "Priority".to_owned()
            };
            let plan = (reason == "Resources").then(|| self.plan(&self.jobs[i])).flatten();
            self.jobs[i].reason = reason;
            self.jobs[i].plan = plan;
        }
    }

    /// Backfill's plan for a job: the node that is empty enough first.
    fn plan(&self, job: &Sim) -> Option<(String, i64)> {
        let nodes = self.partitions_of(job).into_iter().filter_map(|p| self.node_in(job, p, true));
        let ends = nodes.map(|n| {
            let on = self.jobs.iter().filter(|j| j.node() == Some(n.name.as_str()));
            let end = on.map(|j| j.ends_by().unwrap_or(self.now + 86_400)).max();
            (n.name.clone(), end.unwrap_or(self.now + 60))
        });
        ends.min_by_key(|(name, end)| (*end, name.clone()))
    }

    /// Lets time pass: jobs end, others start.
    pub fn pass(&mut self, seconds: i64) {
        let until = self.now + seconds;
        self.schedule();
        loop {
            let ends = self.jobs.iter().filter_map(Sim::ends);
            let begins = self.jobs.iter().filter(|j| j.state == State::Pending).map(|j| j.begin);
            let next = ends.chain(begins).filter(|&at| at > self.now).min();
            self.now = next.unwrap_or(until).min(until);
            for job in &mut self.jobs {
                if job.ends().is_some_and(|at| at <= self.now) {
                    job.state = State::Ended(job.how_it_ends());
                }
            }
            self.schedule();
            if self.now >= until {
                return;
            }
        }
    }

    pub fn end(&mut self, i: usize, how: End) {
        self.jobs[i].state = State::Ended(how);
        self.jobs[i].plan = None;
    }

    /// A running job waits again, as new.
    pub fn requeue(&mut self, i: usize) {
        let job = &mut self.jobs[i];
        job.state = State::Pending;
        job.reason = "None".to_owned();
        (job.submit, job.begin, job.eligible) = (self.now, self.now, None);
    }

    /// `scontrol update` by root, all of it or nothing. `tasks`: of array `id` those that
    /// wait.
    pub fn update(&mut self, id: u32, tasks: &[u32], set: &[(&'static str, String)]) -> Answer {
        let named = |j: &Sim| j.is_named(id, tasks);
        let tasks = !tasks.is_empty();
        let only_comment = set.iter().all(|(key, _)| *key == "admincomment");
        let lives = |j: &Sim| match j.state {
            State::Pending => true,
            State::Running { .. } => only_comment && !tasks,
            State::Ended(_) => false,
        };
        let which: Vec<usize> = (0..self.jobs.len())
            .filter(|&i| named(&self.jobs[i]) && lives(&self.jobs[i]))
            .collect();
        if which.is_empty() {
            return Answer::Gone;
        }
        let mut after = self.jobs.clone();
        for &i in &which {
            for (key, value) in set {
                if !self.set(&mut after[i], key, value) {
                    return Answer::Refused;
                }
            }
            let job = &after[i];
            let holds = |name: &String, p: &String| {
                self.node(name).is_some_and(|n| n.partitions.contains(p))
            };
            let held = |name| job.partitions.iter().all(|p| holds(name, p));
            let moves = set.iter().any(|(key, _)| *key == "partition");
            if self.strict_nodes && moves && !job.req_nodes.iter().all(held) {
                return Answer::Refused;
            }
        }
        self.jobs = after;
        Answer::Made
    }

    fn set(&self, job: &mut Sim, key: &str, value: &str) -> bool {
        let list = || -> Vec<String> {
            value.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect()
        };
        match key {
            "partition" => {
                let names = list();
                let known = names.iter().all(|n| self.partition(n).is_some());
                let first = names.first().and_then(|n| self.partition(n));
                if !known || first.is_none_or(|p| matches!(p.state.as_str(), "DRAIN" | "INACTIVE"))
                {
                    return false;
                }
                job.partitions = names;
            }
            "reqnodelist" => {
                job.req_nodes = list();
                if job.req_nodes.iter().any(|n| self.node(n).is_none()) {
                    return false;
                }
            }
            "admincomment" => value.clone_into(&mut job.comment),
            "qos" => {
                if self.qos_of(value).is_none() {
                    return false;
                }
                value.clone_into(&mut job.qos);
            }
            other => panic!("nobody should update {other}"),
        }
        true
    }

    /// `scontrol show node`.
    pub fn read_nodes(&self) -> Vec<Node> {
        let read = |node: &Node| {
            let (cpus, mem) = self.running_on(&node.name);
            Node { cpus_alloc: Cpus(cpus), mem_alloc: MemMb(mem), ..node.clone() }
        };
        self.nodes.iter().map(read).collect()
    }

    /// `squeue`.
    pub fn read_queue(&self) -> Vec<Job> {
        let alive = self.jobs.iter().filter(|j| !matches!(j.state, State::Ended(_)));
        alive.map(|j| self.record(j)).collect()
    }

    pub fn record(&self, job: &Sim) -> Job {
        let alloc = job.node().and_then(|n| self.node(n)).map(|n| self.takes(job, n));
        let first = job.partitions.first().and_then(|p| self.partition(p));
        let own = |p: &Partition| match Self::minutes(job, p) {
            Some(minutes) => Limit::At(minutes),
            None => Limit::Unlimited,
        };
        let mem = match (alloc, job.mem) {
            (Some((_, mem)), _) => MemPer::Node(MemMb(mem)),
            (None, MemPer::Unset) => MemPer::Node(MemMb(0)),
            // One CPU: it is not shown whether for a CPU or for the node.
            (None, MemPer::Cpu(mb)) if job.cpus == 1 => MemPer::Node(mb),
            (None, mem) => mem,
        };
        let tasks: Vec<String> = job.tasks.iter().map(u32::to_string).collect();
        let base = Job {
            id: job.id,
            array_id: job.array,
            array_tasks: u32::try_from(job.tasks.len().max(1)).unwrap(),
            task_ids: job.array.map(|_| tasks.join(",")),
            uid: job.uid,
            reason: job.reason.clone(),
            partitions: job.partitions.clone(),
            req_nodes: job.req_nodes.clone(),
            submit: job.submit,
            eligible: job.eligible.or((job.begin > self.now).then_some(job.begin)),
            time_limit: first.map_or(job.limit, own),
            cpus: Cpus(alloc.map_or(job.cpus, |a| a.0)),
            mem,
            node_count: 1,
            tasks: job.ntasks,
            batch: true,
            account: Some(job.account.to_owned()),
            qos: job.qos.clone(),
            priority: if job.held { 0 } else { job.priority },
            exclusive: job.exclusive,
            dependent: self.depends(job),
            admin_comment: Some(job.comment.clone()),
            state: JobState::Pending,
            state_word: "PENDING".to_owned(),
            ..Job::default()
        };
        match &job.state {
            State::Running { node, partition, start, minutes } => Job {
                state: JobState::Active,
                state_word: "RUNNING".to_owned(),
                partitions: vec![partition.clone()],
                nodes: vec![node.clone()],
                start: Some(*start),
                end: minutes.map(|m| start + i64::from(m) * 60),
                time_limit: minutes.map_or(Limit::Unlimited, Limit::At),
                ..base
            },
            State::Pending | State::Ended(_) => Job {
                sched_nodes: job.plan.iter().map(|(node, _)| node.clone()).collect(),
                start: job.plan.as_ref().map(|(_, at)| *at),
                ..base
            },
        }
    }

    /// `scontrol show assoc_mgr flags=qos`.
    pub fn read_qos(&self) -> Vec<QosCaps> {
        let read = |q: &Qos| QosCaps {
            name: q.name.to_owned(),
            max_cpus_per_user: q.per_user,
            used_by_user: self.qos_use(q.name).into_iter().collect(),
            ..QosCaps::default()
        };
        self.qos.iter().map(read).collect()
    }

    /// Keeps a node whole from `start` for an hour.
    pub fn reserve(&mut self, node: &str, start: i64) {
        self.reservations.push(Reservation {
            name: format!("r{}", self.reservations.len()),
            nodes: vec![node.to_owned()],
            whole_nodes: true,
            cores: Vec::<ReservedCores>::new(),
            start,
            end: start + 3600,
            active: start <= self.now,
            ..Reservation::default()
        });
    }
}
