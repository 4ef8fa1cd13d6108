//! A submission: job_submit.lua calls place(), perhaps open(), and Slurm takes the job
//! or refuses it.

use crate::admission::{self, Ask};
use crate::events::Spec;
use crate::job::{Asked, Chosen, Sim, State};
use crate::world::World;
use proptest::sample::Index;
use sjp_core::config::UserChoice;
use sjp_core::decision::Reason;
use sjp_core::mark::{self, Mark};
use sjp_core::place::{self, Context, Scratch};
use sjp_core::promises::Promises;
use sjp_core::request::JobRequest;
use sjp_core::submission::{Stamp, Submission, permit};
use sjp_core::units::{Cpus, MemPer};

/// The fields of a job_desc that sjp may change.
#[derive(Clone, Debug, Default)]
struct Desc {
    partition: Option<String>,
    req_nodes: Option<String>,
    exc_nodes: Option<String>,
    admin_comment: Option<String>,
}

fn list(text: Option<&str>) -> Vec<String> {
    text.unwrap_or_default().split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect()
}

impl World {
    /// What place() makes of the job; the reason where it says no. Data older than
    /// `max_age` is stale.
    fn place(&mut self, desc: &mut Desc, job: &JobRequest<'_>) -> Result<(), Reason> {
        if self.off {
            return Err(Reason::Disabled);
        }
        let table = self.table.as_ref().ok_or(Reason::NoTable)?;
        if self.slurm.now - table.at > 10 {
            return Err(Reason::Stale);
        }
        let mut promises = Promises::new();
        for claim in &self.ring[table.taken..] {
            if claim.roster == table.roster_id {
                promises.add(claim);
            }
        }
        let names: Vec<&str> = self
            .slurm
            .partitions
            .iter()
            .filter(|p| admission::groups(p, job.uid))
            .map(|p| p.name.as_str())
            .collect();
        let mut permitted = Vec::new();
        permit(&table.roster, &names.join("\n"), &mut permitted);
        let ctx = Context {
            roster: &table.roster,
            rooms: &table.rooms,
            promised: promises.as_slice(),
            now: u64::try_from(self.slurm.now).unwrap(),
            permitted: Some(&permitted),
        };
        let mut scratch = Scratch::new();
        let placement = match place::choose(&ctx, job, &mut scratch) {
            Err(reason) => {
                if let Some(text) = mark::skipped(job, reason, desc.admin_comment.as_deref()) {
                    desc.admin_comment = Some(text);
                }
                if !self.setup.opens {
                    return Err(reason);
                }
                place::open(&ctx, job, &mut scratch)?
            }
            Ok(placement) => placement,
        };
        let id = self.ring.len() as u64 + 1;
        let stamp = Stamp { roster: table.roster_id, id, now: ctx.now };
        let existing = desc.admin_comment.as_deref();
        let change =
            Submission::new(&table.roster, &placement, job, Some(&permitted), existing, stamp);
        for mut claim in change.claims {
            claim.seq = self.ring.len() as u64 + 1;
            self.ring.push(claim);
        }
        for (field, new) in [
            (&mut desc.partition, change.partition),
            (&mut desc.req_nodes, change.req_nodes),
            (&mut desc.exc_nodes, change.exc_nodes),
            (&mut desc.admin_comment, Some(change.comment)),
        ] {
            if let Some(new) = new {
                *field = Some(new).filter(|text| !text.is_empty());
            }
        }
        Ok(())
    }

    /// Memory of a job that names none: that of its first partition.
    fn default_mem(&self, partitions: &[String], own: MemPer) -> MemPer {
        let first = partitions.first().and_then(|p| self.slurm.partition(p));
        match own {
            MemPer::Unset => first.map_or(MemPer::Unset, |p| p.def_mem),
            own => own,
        }
    }

    pub fn submit(&mut self, spec: &Spec) -> Result<(), String> {
        let parts = &self.slurm.partitions;

        let mut named: Vec<String> = Vec::new();
        for index in &spec.partitions {
            let name = &parts[index.index(parts.len())].name;
            if !named.contains(name) {
                named.push(name.clone());
            }
        }
        let nodes = &self.slurm.nodes;
        let one = |index: &Option<Index>| {
            index.as_ref().map(|i| nodes[i.index(nodes.len())].name.clone())
        };
        let account = if spec.uid == 2 { "chemistry" } else { "physics" };
        let ntasks = if spec.tasks { spec.cpus } else { 1 };
        let after = spec.after.as_ref().and_then(|i| {
            (!self.slurm.jobs.is_empty())
                .then(|| self.slurm.jobs[i.index(self.slurm.jobs.len())].id)
        });
        let came = Desc {
            partition: Some(named.join(",")).filter(|p| !p.is_empty()),
            req_nodes: one(&spec.node),
            exc_nodes: one(&spec.exclude),
            admin_comment: spec.comment.then(|| "grant 42".to_owned()),
        };
        let request = JobRequest {
            uid: spec.uid,
            account: Some(account),
            qos: spec.names_qos.then_some("normal"),
            partition: came.partition.as_deref(),
            nodelist: came.req_nodes.as_deref(),
            exclude: came.exc_nodes.as_deref(),
            cpus: Cpus(spec.cpus),
            tasks: ntasks,
            min_nodes: 1,
            max_nodes: spec.one_node.then_some(1),
            mem: spec.mem,
            time_limit: spec.limit,
            batch: true,
            array: spec.array > 1,
            array_tasks: spec.array,
            exclusive: spec.exclusive,
            held: spec.held,
            begins_later: spec.begin > 0,
            dependent: after.is_some(),
            ..JobRequest::default()
        };
        let mut desc = came.clone();
        let answer = self.place(&mut desc, &request);
        let placed = answer.is_ok();
        if !placed && desc.partition.is_none() {
            // The site's own rules.
            desc.partition = spec.site.as_ref().map(|i| parts_name(&self.slurm, i));
        }
        let default = self.slurm.default_partition();
        let or_default =
            |names: Vec<String>| if names.is_empty() { default.clone() } else { names };
        let partitions = or_default(list(desc.partition.as_deref()));
        let before = if placed { &came } else { &desc };
        let asked_partitions = or_default(list(before.partition.as_deref()));
        let ignored = placed && self.setup.policy.user_nodes == UserChoice::Ignore;
        let own = |text: &Option<String>| if ignored { Vec::new() } else { list(text.as_deref()) };
        let asked = Asked {
            mem: self.default_mem(&asked_partitions, spec.mem),
            named: named.clone(),
            partitions: asked_partitions.clone(),
            nodes: own(&came.req_nodes),
            exclude: own(&came.exc_nodes),
            qos: "normal".to_owned(),
            comment: came.admin_comment.clone().unwrap_or_default(),
        };
        let comment = desc.admin_comment.clone().unwrap_or_default();
        let id = self.slurm.next_id;
        let mut job = Sim {
            id,
            array: (spec.array > 1).then_some(id),
            tasks: if spec.array > 1 { (1..=spec.array).collect() } else { Vec::new() },
            uid: spec.uid,
            account,
            qos: "normal".to_owned(),
            mem: self.default_mem(&partitions, spec.mem),
            partitions,
            req_nodes: list(desc.req_nodes.as_deref()),
            exc_nodes: list(desc.exc_nodes.as_deref()),
            marked: Mark::parse(&comment).is_some(),
            comment,
            cpus: spec.cpus,
            ntasks,
            limit: spec.limit,
            exclusive: spec.exclusive,
            runs: spec.runs,
            submit: self.slurm.now,
            begin: self.slurm.now + spec.begin,
            eligible: None,
            after,
            held: spec.held,
            priority: spec.priority,
            state: State::Pending,
            reason: "None".to_owned(),
            plan: None,
            alone: true,
            good: asked_partitions.clone(),
            asked,
            chosen: Chosen::default(),
            touched: self.count,
            raced: false,
        };
        let fate = self.admit(&job);
        let alone = self.admit(&job.without_sjp());
        job.alone = alone.is_ok();
        let told = match &answer {
            Ok(()) => format!("placed {:?}", job.comment),
            Err(reason) => format!("left: {reason}"),
        };
        self.tell(format!(
            "submit {id}: {} CPUs {:?} {:?} uid {} named {named:?}: {told}; {fate:?}",
            job.cpus, spec.mem, spec.limit, job.uid
        ));
        if let Err(why) = fate {
            if alone.is_ok() && self.states_are_known() {
                return Err(format!("job {id} is refused because of sjp: {why}"));
            }
            return Ok(());
        }
        if placed {
            let mut given = job.partitions.clone();
            given.extend(Mark::parse(&job.comment).map(|m| m.list("from")).unwrap_or_default());
            self.check_set(&job, &job.partitions, true)?;
            for name in &given {
                self.check_set(&job, std::slice::from_ref(name), true)?;
            }
            self.check_pin(&job)?;
            job.good.extend(given);
        }
        job.good.extend(job.partitions.iter().cloned());
        self.slurm.next_id += 1;
        self.slurm.jobs.push(job);
        Ok(())
    }

    /// Whether Slurm takes the job, with EnforcePartLimits=ALL.
    fn admit(&self, job: &Sim) -> Result<(), String> {
        admission::accepts_list(&self.slurm, &job.partitions, &Ask::of(job))?;
        for node in &job.req_nodes {
            let within =
                |p: &String| self.slurm.node(node).is_some_and(|n| n.partitions.contains(p));
            if let Some(p) = job.partitions.iter().find(|p| !within(p)) {
                return Err(format!("{node} is not in {p}"));
            }
        }
        Ok(())
    }
}

fn parts_name(slurm: &crate::slurm::Slurm, index: &Index) -> String {
    slurm.partitions[index.index(slurm.partitions.len())].name.clone()
}
