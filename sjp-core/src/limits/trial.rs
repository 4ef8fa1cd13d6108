//! Whether held jobs fit on idle nodes now, one after the other, each taking
//! its room.

use super::View;
use crate::cluster::Job;
use crate::decision::Basis;
use crate::place::{Context, Scratch, choose};
use crate::promises::Promises;
use crate::request::JobRequest;

/// The room that is left while jobs are tried one after the other.
#[derive(Debug)]
pub struct Trial<'a> {
    view: View<'a>,
    promises: Promises,
    scratch: Scratch,
}

impl<'a> Trial<'a> {
    /// All room that is free.
    #[must_use]
    pub fn new(view: &View<'a>) -> Self {
        Self { view: *view, promises: Promises::new(), scratch: Scratch::new() }
    }

    /// Takes the room that the job (of an array, all of its waiting tasks) would
    /// have at once in the partitions it names, were its QOS `qos`. Answers the
    /// loss in placeable CPUs; `None`: it does not fit, or nothing can be said.
    pub fn take(&mut self, job: &Job, qos: &str) -> Option<f64> {
        self.take_tasks(job, qos, job.array_tasks.max(1))
    }

    /// The same with the job's own QOS, and of an array for one task.
    pub fn take_one(&mut self, job: &Job) -> Option<f64> {
        self.take_tasks(job, &job.qos, 1)
    }

    fn take_tasks(&mut self, job: &Job, qos: &str, tasks: u32) -> Option<f64> {
        let roster = self.view.roster;
        let names = job.partitions.join(",");
        let nodes = job.req_nodes.join(",");
        let permitted: Vec<bool> =
            roster.partitions.iter().map(|p| job.partitions.contains(&p.name)).collect();
        let queued = JobRequest::queued(job, &nodes, Some(&names));
        // Not to be pinned: then the node is asked for that Slurm would likely take.
        let request = JobRequest { qos: Some(qos), array_tasks: tasks, held: true, ..queued };
        let ctx = Context {
            roster,
            rooms: self.view.rooms,
            promised: self.promises.as_slice(),
            now: u64::try_from(self.view.now).unwrap_or(0),
            permitted: Some(&permitted),
        };
        let placement = choose(&ctx, &request, &mut self.scratch);
        let placement = placement.ok()?;
        if placement.basis != Basis::Room {
            return None;
        }
        let claimed: u64 = placement.claims.iter().map(|c| u64::from(c.cpus)).sum();
        if claimed < u64::from(placement.cpus.0) * u64::from(tasks) {
            return None;
        }
        for claim in &placement.claims {
            self.promises.promise(claim.node, claim.cpus, claim.mem);
        }
        Some(placement.loss * f64::from(tasks))
    }
}
