//! What happens, one event after the other, and what must hold all the while.

use crate::events::{Event, Setup};
use crate::job::{Change, End, Sim, State};
use crate::sjpd::{Order, Sjpd, Table, undo_all};
use crate::slurm::{Answer, Slurm};
use proptest::sample::Index;
use sjp_core::cluster::{Job, JobState, Node};
use sjp_core::mark::Mark;
use sjp_core::publication::Claim;
use std::collections::{BTreeMap, VecDeque};

/// CPUs and MB by node.
pub type Load = BTreeMap<String, (u32, u64)>;

/// Everything.
pub struct World {
    pub setup: Setup,
    pub slurm: Slurm,
    /// Claims ever written.
    pub ring: Vec<Claim>,
    /// What is published.
    pub table: Option<Table>,
    /// `None`: dead.
    pub sjpd: Option<Sjpd>,
    /// Counts what is done to jobs, by whomever.
    pub count: u64,
    /// When sjpd looked last, by that count.
    pub looked: u64,
    pub off: bool,
    /// When a partition was opened or closed last, by the count.
    pub closed: u64,
    /// What `sjp undo` has in hand.
    pub undoing: VecDeque<Order>,
    /// Updates until one is refused.
    refuse: Option<u32>,
    /// What nodes were loaded with when the table was published, and since.
    pub load: Load,
    /// The states of the partitions then.
    pub states: BTreeMap<String, String>,
    /// How often each kind of thing was done.
    pub tally: BTreeMap<&'static str, u32>,
    pub log: Vec<String>,
}

impl World {
    pub fn new(setup: Setup) -> Self {
        Self {
            slurm: setup.slurm.clone(),
            setup,
            ring: Vec::new(),
            table: None,
            sjpd: None,
            count: 1,
            looked: 0,
            off: false,
            closed: 0,
            undoing: VecDeque::new(),
            refuse: None,
            load: Load::new(),
            states: BTreeMap::new(),
            tally: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    pub fn tell(&mut self, words: String) {
        self.log.push(format!("{:>6} {words}", self.slurm.now - crate::slurm::DAWN));
    }

    pub fn counts(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// A job for which `which` holds.
    fn pick(&self, index: &Index, which: impl Fn(&Sim) -> bool) -> Option<usize> {
        let jobs = &self.slurm.jobs;
        let list: Vec<usize> = (0..jobs.len()).filter(|&i| which(&jobs[i])).collect();
        (!list.is_empty()).then(|| list[index.index(list.len())])
    }

    pub fn happen(&mut self, event: &Event) -> Result<(), String> {
        self.count += 1;
        let pending = |j: &Sim| j.state == State::Pending;
        let running = |j: &Sim| j.node().is_some();
        match event {
            Event::Submit(spec, fresh) => {
                if *fresh {
                    self.read_nodes();
                }
                self.submit(spec)?;
            }
            Event::Pass(seconds) => self.pass(*seconds)?,
            Event::Look => self.look()?,
            Event::Work => {
                self.look()?;
                self.hands()?;
            }
            Event::Hands(updates) => {
                for _ in 0..*updates {
                    self.hand()?;
                    self.undoing_hand()?;
                }
            }
            Event::Refuse(after) => self.refuse = Some(*after),
            Event::Cut(updates) => {
                self.look()?;
                for _ in 0..*updates {
                    self.hand()?;
                }
                self.kill();
            }
            Event::Kill => self.kill(),
            Event::Switch => {
                self.off = !self.off;
                // It runs only where nothing new is done.
                self.undoing.clear();
                self.tell(format!("switched {}", if self.off { "off" } else { "on" }));
            }
            Event::Undo => self.plan_undo()?,
            Event::Qos(which) => {
                if let Some(i) = self.pick(which, pending) {
                    let may = self.setup.flexers.contains(&self.slurm.jobs[i].uid);
                    let flexed = self.slurm.jobs[i].qos == "flex";
                    let qos = if may && !flexed { "flex" } else { "normal" };
                    self.change(i, Change::Qos(qos.to_owned()));
                }
            }
            Event::Requeue(which) => {
                if let Some(i) = self.pick(which, running) {
                    self.requeue(i);
                }
            }
            Event::Cancel(which) => {
                if let Some(i) = self.pick(which, |j| !matches!(j.state, State::Ended(_))) {
                    self.slurm.end(i, End::Cancelled);
                }
            }
            Event::End(which) => {
                if let Some(i) = self.pick(which, running) {
                    self.slurm.end(i, End::Completed);
                }
            }
            Event::Hold(which) => {
                if let Some(i) = self.pick(which, pending) {
                    let job = &mut self.slurm.jobs[i];
                    job.held = !job.held;
                    job.reason = if job.held { "JobHeldUser" } else { "None" }.to_owned();
                    job.touched = self.count;
                }
            }
            Event::Partitions(which, list) => {
                if let Some(i) = self.pick(which, pending) {
                    let list = self.names_for(i, list);
                    if !list.is_empty() {
                        self.change(i, Change::Partitions(list));
                    }
                }
            }
            Event::Nodes(which, node) => {
                if let Some(i) = self.pick(which, pending) {
                    // One on which it could run at all.
                    let job = &self.slurm.jobs[i];
                    let nodes = self.slurm.nodes.iter();
                    let nodes: Vec<&Node> = nodes.filter(|n| self.slurm.holds(job, n)).collect();
                    let node = node.as_ref().filter(|_| !nodes.is_empty());
                    let name = node.map(|n| nodes[n.index(nodes.len())].name.clone());
                    self.change(i, Change::Nodes(name.into_iter().collect()));
                }
            }
            Event::Comment(which, empty) => {
                if let Some(i) = self.pick(which, pending) {
                    let text = if *empty { "" } else { "see ticket 7" };
                    self.change(i, Change::Comment(text.to_owned()));
                }
            }
            Event::Node(which) => {
                let i = which.index(self.slurm.nodes.len());
                let up = !self.slurm.nodes[i].usable;
                self.slurm.nodes[i].usable = up;
                let name = self.slurm.nodes[i].name.clone();
                self.tell(format!("{name} is {}", if up { "up" } else { "down" }));
                for j in 0..self.slurm.jobs.len() {
                    if self.slurm.jobs[j].node() == Some(name.as_str()) {
                        self.requeue(j);
                    }
                }
            }
            Event::Partition(which, state) => {
                let i = which.index(self.slurm.partitions.len());
                (*state).clone_into(&mut self.slurm.partitions[i].state);
                self.closed = self.count;
                self.tell(format!("{} is {state}", self.slurm.partitions[i].name));
            }
            Event::Reserve(which, at) => {
                let node = self.slurm.nodes[which.index(self.slurm.nodes.len())].name.clone();
                self.tell(format!("{node} is reserved in {at} s"));
                self.slurm.reserve(&node, self.slurm.now + at);
            }
            Event::Unreserve => self.slurm.reservations.clear(),
        }
        self.check_starts()
    }

    fn kill(&mut self) {
        self.tell("sjpd is killed".to_owned());
        let hands = self.sjpd.iter().flat_map(|s| s.hands.front());
        if hands.chain(self.undoing.front()).any(|order| order.made > 0) {
            self.counts("killed half-way");
        }
        self.sjpd = None;
        self.undoing.clear();
    }

    fn requeue(&mut self, i: usize) {
        self.tell(format!("job {} is requeued", self.slurm.jobs[i].id));
        self.slurm.requeue(i);
        self.slurm.jobs[i].touched = self.count;
    }

    /// Partitions that Slurm lets the user of job `i` choose.
    fn names_for(&self, i: usize, list: &[Index]) -> Vec<String> {
        let (parts, job) = (&self.slurm.partitions, &self.slurm.jobs[i]);
        let mut names: Vec<String> = Vec::new();
        for index in list {
            let p = &parts[index.index(parts.len())];
            let ask = crate::admission::Ask::of(job);
            if !names.contains(&p.name) && crate::admission::accepts(&self.slurm, p, &ask).is_ok() {
                names.push(p.name.clone());
            }
        }
        if self.slurm.bound.iter().any(|(uid, _)| *uid == job.uid) {
            names.truncate(1);
        }
        names
    }

    fn change(&mut self, i: usize, change: Change) {
        self.tell(format!("somebody changes job {}: {change:?}", self.slurm.jobs[i].id));
        self.slurm.jobs[i].touched = self.count;
        self.slurm.jobs[i].choose(change);
    }

    fn pass(&mut self, seconds: i64) -> Result<(), String> {
        self.slurm.pass(seconds);
        self.check_starts()
    }

    /// sjpd reads the nodes and publishes, where it lives.
    fn read_nodes(&mut self) {
        let (looked, setup) = (self.looked, &self.setup);
        let Some(sjpd) = &mut self.sjpd else { return };
        self.table = Some(sjpd.read_nodes(&self.slurm, setup, &self.ring));
        self.load = self.load_now(looked);
        self.promise_ahead();
        self.note_states();
    }

    fn note_states(&mut self) {
        let states = self.slurm.partitions.iter().map(|p| (p.name.clone(), p.state.clone()));
        self.states = states.collect();
    }

    /// Whether no partition was opened or closed since.
    pub fn states_are_known(&self) -> bool {
        self.slurm.partitions.iter().all(|p| self.states.get(&p.name) == Some(&p.state))
    }

    /// What runs on the nodes, and what sjp has promised there: jobs that it has
    /// pinned, that could start, and that nobody has changed since `upto`.
    pub fn load_now(&self, upto: u64) -> Load {
        let mut load = Load::new();
        for node in &self.slurm.nodes {
            let mut sum = self.slurm.running_on(&node.name);
            for job in self.slurm.jobs.iter().filter(|j| j.touched <= upto) {
                if self.promised(job).as_deref() == Some(node.name.as_str()) {
                    add(&mut sum, self.share(job, &node.name));
                }
            }
            load.insert(node.name.clone(), sum);
        }
        load
    }

    /// The node that sjp has promised to a waiting job; one that is to wait for room
    /// there has no promise.
    pub fn promised(&self, job: &Sim) -> Option<String> {
        let mark = Mark::parse(&job.comment).filter(|_| job.marked)?;
        let pin = mark.get("pin").filter(|pin| job.req_nodes == [*pin])?;
        let now = mark.get("eta").is_none() && self.slurm.may_start(job);
        (now && job.state == State::Pending).then(|| pin.to_owned())
    }

    /// What a job takes on a node, all of its tasks together.
    pub fn share(&self, job: &Sim, node: &str) -> (u32, u64) {
        let Some(node) = self.slurm.node(node) else { return (0, 0) };
        let (cpus, mem) = self.slurm.takes(job, node);
        let tasks = u32::try_from(job.tasks.len().max(1)).unwrap();
        (cpus * tasks, mem * u64::from(tasks))
    }

    /// sjpd looks, plans, and takes its plans in hand. A dead one is started.
    pub fn look(&mut self) -> Result<(), String> {
        if self.sjpd.is_none() {
            self.sjpd = Some(Sjpd::start(&self.ring));
        }
        let sjpd = self.sjpd.as_mut().expect("just started");
        let before: Vec<Order> = sjpd.hands.iter().cloned().collect();
        let (table, look) = sjpd.look(&self.slurm, &self.setup, &self.ring, self.count, self.off);
        self.table = Some(table);
        self.looked = self.count;
        for order in &look.orders {
            self.tell(format!("order {} job {}: {}", order.kind, order.job, order.words));
            self.counts(order.kind);
            self.check_order(order)?;
        }
        self.check_promises(&before, &look.orders)?;
        self.load = self.load_now(self.count);
        self.promise_ahead();
        self.note_states();
        Ok(())
    }

    /// `sjp undo` looks, where nothing new is done.
    pub fn plan_undo(&mut self) -> Result<(), String> {
        if !self.off {
            return Ok(());
        }
        let orders = undo_all(&self.slurm, &self.setup, self.count);
        for order in &orders {
            self.tell(format!("order {} job {}: {}", order.kind, order.job, order.words));
            self.counts(order.kind);
            self.check_order(order)?;
        }
        self.undoing = orders.into();
        Ok(())
    }

    /// sjpd makes one update.
    pub fn hand(&mut self) -> Result<(), String> {
        let (off, now) = (self.off, self.slurm.now);
        let Some(sjpd) = &mut self.sjpd else { return Ok(()) };
        let Some(mut order) = sjpd.hands.pop_front() else { return Ok(()) };
        self.count += 1;
        if off && order.made == 0 && !order.takes_back() {
            // Not begun any more; what is begun is made whole.
            sjpd.reported(&order, Answer::Gone, self.count, now);
            return Ok(());
        }
        let answer = self.make(&mut order)?;
        let Some(sjpd) = &mut self.sjpd else { return Ok(()) };
        if answer == Answer::Made && order.made < order.steps.len() {
            sjpd.hands.push_front(order);
        } else {
            sjpd.reported(&order, answer, self.count, now);
        }
        Ok(())
    }

    /// `sjp undo` makes one update.
    pub fn undoing_hand(&mut self) -> Result<(), String> {
        let Some(mut order) = self.undoing.pop_front() else { return Ok(()) };
        self.count += 1;
        if self.make(&mut order)? == Answer::Made && order.made < order.steps.len() {
            self.undoing.push_front(order);
        }
        Ok(())
    }

    /// Makes the next update of an order.
    fn make(&mut self, order: &mut Order) -> Result<Answer, String> {
        let looked = self.slurm.job(order.job).map(|job| self.slurm.record(job));
        let differs = |job: &Job| job.state == JobState::Pending && order.differs(job);
        if self.setup.looks && looked.as_ref().is_some_and(differs) {
            self.tell(format!("{} job {}: it has changed", order.kind, order.job));
            self.counts("changed");
            return Ok(Answer::Changed);
        }
        let step = order.steps[order.made].clone();
        order.made += 1;
        let refused = self.refuse == Some(0);
        self.refuse = self.refuse.and_then(|after| after.checked_sub(1));
        let id = order.array.unwrap_or(order.job);
        let answer =
            if refused { Answer::Refused } else { self.slurm.update(id, &order.tasks, &step) };
        self.tell(format!("{} job {} {step:?}: {answer:?}", order.kind, order.job));
        match answer {
            Answer::Made => {
                self.made(order, &step);
                if let Some(job) = self.slurm.job(order.job) {
                    order.at = self.slurm.record(job);
                }
            }
            Answer::Changed => {}
            Answer::Gone => self.counts("gone"),
            Answer::Refused if refused => self.counts("refused"),
            Answer::Refused => self.excuse_refusal(order)?,
        }
        Ok(answer)
    }

    fn made(&mut self, order: &Order, step: &[(&'static str, String)]) {
        let id = order.array.unwrap_or(order.job);
        let which = |j: &&mut Sim| {
            j.is_named(id, &order.tasks) && (order.array.is_none() || j.state == State::Pending)
        };
        for job in self.slurm.jobs.iter_mut().filter(which) {
            // Of what others changed since, nothing is what is changed now.
            job.raced |= job.touched > order.seen && !self.setup.looks;
            for (key, value) in step {
                job.chosen.forget(key);
                match *key {
                    "partition" => job.good.extend(value.split(',').map(str::to_owned)),
                    "admincomment" => {
                        let mark = Mark::parse(value);
                        job.marked = mark.is_some();
                        if job.raced {
                            let site = mark.as_ref().map_or(value, |m| &m.before);
                            site.clone_into(&mut job.asked.comment);
                        }
                        if let Some(mark) = mark {
                            job.good.extend(mark.list("from"));
                            job.chosen.settle(&mark, &job.partitions, &job.req_nodes);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// sjpd works through everything that it has in hand.
    pub fn hands(&mut self) -> Result<(), String> {
        while self.sjpd.as_ref().is_some_and(|s| !s.hands.is_empty()) {
            self.hand()?;
        }
        while !self.undoing.is_empty() {
            self.undoing_hand()?;
        }
        Ok(())
    }
}

pub fn add(sum: &mut (u32, u64), more: (u32, u64)) {
    sum.0 += more.0;
    sum.1 += more.1;
}
