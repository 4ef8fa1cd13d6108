//! Changes made by `scontrol update` and `sacctmgr modify`, and what their
//! messages mean.

use super::{Actuator, Answer, Look, Update};
use crate::config::Config;
use crate::slurm::runner::words;
use crate::slurm::{RunError, Runner, nonce, runner_for};
use jiff::tz::TimeZone;
use parking_lot::RwLock;
use sjp_slurm::{Problem, squeue};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes updates with `scontrol` and `sacctmgr`.
#[derive(Debug)]
pub struct CommandActuator {
    tools: RwLock<Tools>,
    /// Whether this squeue has no column for the AdminComment.
    no_marks: AtomicBool,
}

/// How the commands are run, and which ones.
#[derive(Clone, Debug)]
struct Tools {
    runner: Runner,
    scontrol: PathBuf,
    squeue: PathBuf,
    sacctmgr: PathBuf,
}

impl Tools {
    /// By the settings.
    fn from(config: &Config) -> Self {
        let search = std::env::var_os("PATH").unwrap_or_default();
        // One that is not found keeps its name: starting it fails, and says so.
        let path = |name: &str| config.commands.path(name, &search).unwrap_or_else(|| name.into());
        Self {
            runner: runner_for(config),
            scontrol: path("scontrol"),
            squeue: path("squeue"),
            sacctmgr: path("sacctmgr"),
        }
    }

    fn program(&self, update: &Update) -> &Path {
        match update {
            Update::Job { .. } | Update::Tasks { .. } => &self.scontrol,
            Update::Qos { .. } => &self.sacctmgr,
        }
    }
}

impl CommandActuator {
    /// With the commands that the settings name.
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        Self { tools: RwLock::new(Tools::from(config)), no_marks: AtomicBool::new(false) }
    }

    fn args(update: &Update) -> Vec<String> {
        let mut args = match update {
            Update::Job { id, .. } => vec!["update".to_owned(), format!("jobid={id}")],
            Update::Tasks { id, tasks, .. } => {
                vec!["update".to_owned(), format!("jobid={id}_[{tasks}]")]
            }
            Update::Qos { name, .. } => {
                let name = format!("name={name}");
                let words = ["-i", "modify", "qos", "where", &name, "set"];
                words.map(str::to_owned).to_vec()
            }
        };
        args.extend(update.set().iter().map(|(key, value)| format!("{key}={value}")));
        args
    }
}

impl Actuator for CommandActuator {
    async fn update(&self, update: &Update) -> Answer {
        let args = Self::args(update);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let tools = self.tools.read().clone();
        match tools.runner.run(tools.program(update), &args).await {
            // sacctmgr that found no such QOS ends well.
            Ok(output) if output.text.contains("Nothing modified") => {
                Answer::Refused("nothing was modified".into())
            }
            // scontrol can say that an update failed and still exit with 0.
            Ok(output) if output.warnings.is_empty() => Answer::Made,
            Ok(output) => judge(update, &output.warnings).unwrap_or(Answer::Made),
            Err(RunError::Failed { status, message, .. }) => {
                judge(update, &message).unwrap_or(Answer::Refused(format!("{status}: {message}")))
            }
            Err(error @ RunError::Timeout { .. }) => Answer::Busy(error.to_string()),
            Err(error @ RunError::Start { .. }) => Answer::Busy(error.to_string()),
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    async fn look(&self, job: u32) -> Look {
        let tools = self.tools.read().clone();
        loop {
            let mut query = match nonce() {
                Ok(nonce) => squeue::Query::new(nonce).of_job(job),
                Err(error) => return Look::Busy(error.to_string()),
            };
            let no_marks = self.no_marks.load(Ordering::Relaxed);
            if no_marks {
                query = query.without_marks();
            }
            let args = query.args();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let text = match tools.runner.run(&tools.squeue, &args).await {
                Ok(output) => output.text,
                Err(RunError::Failed { message, .. }) if is_gone(&message) => {
                    return Look::Gone(message);
                }
                Err(error) => return Look::Busy(error.to_string()),
            };
            let read = query.read(&text, &TimeZone::UTC);
            if !no_marks && read.errors.iter().any(|e| e.what == Problem::NoMarks) {
                self.no_marks.store(true, Ordering::Relaxed);
                continue;
            }
            if let Some(job) = read.records.into_iter().find(|j| j.id == job) {
                return Look::Job(Box::new(job));
            }
            return match read.errors.first() {
                Some(error) => Look::Busy(format!("squeue: {error}")),
                None => Look::Gone("it is not in the queue any more".to_owned()),
            };
        }
    }

    fn words(&self, update: &Update) -> String {
        let args = Self::args(update);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        words(self.tools.read().program(update), &args)
    }

    fn settings_changed(&self, config: &Config) {
        *self.tools.write() = Tools::from(config);
    }
}

/// Messages after which there is nothing left to do for a job that waited.
const GONE: [&str; 5] = [
    "no longer pending",
    "already completing or completed",
    "invalid job id",
    "already finished",
    "job has finished",
];

/// What slurmctld says to an empty node list for a job that runs: there it means a
/// shrink to these nodes. For a job that waits it is never said.
const GONE_BY_SHRINK: [&str; 2] = ["invalid node name", "operation not supported"];

/// Messages of a slurmctld that has no time, limits rates, or is away.
const BUSY: [&str; 11] = [
    "temporarily unable",
    "try again",
    "back off",
    "backoff",
    "rate limit",
    "timed out",
    "unable to contact slurm controller",
    "connection refused",
    "connection reset",
    "transport endpoint",
    "communications connection failure",
];

/// The words of EAGAIN.
const AGAIN: &str = "resource temporarily unavailable";

/// Whether a message says that there is nothing left to do for a job.
fn is_gone(message: &str) -> bool {
    let lower = message.to_ascii_lowercase();
    GONE.iter().any(|part| lower.contains(part))
}

/// What a message to an update means; `None`: nothing that is known here.
fn judge(update: &Update, message: &str) -> Option<Answer> {
    let lower = message.to_ascii_lowercase();
    let says = |list: &[&str]| list.iter().any(|part| lower.contains(part));
    let clears_node =
        update.set().iter().any(|(key, value)| *key == "reqnodelist" && value.is_empty());
    // Of an array one line for each group of tasks; some may have started.
    let some_made = matches!(update, Update::Tasks { .. }) && lower.contains("no error");
    if some_made {
        Some(Answer::Made)
    } else if says(&GONE) || (clears_node && says(&GONE_BY_SHRINK)) {
        Some(Answer::Gone(message.to_owned()))
    } else if lower.contains(AGAIN) {
        Some(Answer::Again(message.to_owned()))
    } else if says(&BUSY) {
        Some(Answer::Busy(message.to_owned()))
    } else if lower.contains("error") || lower.contains("invalid") {
        Some(Answer::Refused(message.to_owned()))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let update = |key, value: &str| Update::Job { id: 7, set: vec![(key, value.to_owned())] };
        let (unpin, widen) = (update("reqnodelist", ""), update("partition", "a,b"));
        let judge = |message| super::judge(&widen, message);
        let gone = [
            "slurm_update error: Job is no longer pending execution",
            "slurm_update error: Job/step already completing or completed",
            "Invalid job id specified",
        ];
        for m in gone {
            assert!(matches!(judge(m), Some(Answer::Gone(_))), "{m}");
        }
        let again = [
            "slurm_update error: Resource temporarily unavailable",
            "Resource temporarily unavailable for job 7",
        ];
        for m in again {
            assert!(matches!(judge(m), Some(Answer::Again(_))), "{m}");
        }
        let busy = [
            "slurm_update error: Socket timed out on send/recv operation",
            "RPC rate limit exceeded, backing off",
            "slurm_update error: Unable to contact slurm controller (connect failure)",
        ];
        for m in busy {
            assert!(matches!(judge(m), Some(Answer::Busy(_))), "{m}");
        }
        let refused = [
            "slurm_update error: Invalid partition name specified",
            "slurm_update error: Access/permission denied",
        ];
        for m in refused {
            assert!(matches!(judge(m), Some(Answer::Refused(_))), "{m}");
        }
        assert_eq!(judge("a note"), None);
        let tasks = Update::Tasks { id: 3, tasks: "1-40".into(), set: Vec::new() };
        let some = "3_1-4: Job is no longer pending execution\n3_5-40: No error";
        assert_eq!(super::judge(&tasks, some), Some(Answer::Made));
        let none = "3_1-40: Job is no longer pending execution";
        assert!(matches!(super::judge(&tasks, none), Some(Answer::Gone(_))));
        let shrink = ["Invalid node name specified for job 7", "Requested operation not supported"];
        for m in shrink {
            assert!(matches!(super::judge(&unpin, m), Some(Answer::Gone(_))), "{m}");
            assert!(!matches!(judge(m), Some(Answer::Gone(_))), "{m}");
        }
    }

    #[tokio::test]
    async fn an_update_is_one_argument_vector() {
        let dir = tempfile::tempdir().expect("a folder");
        let update = Update::Job {
            id: 12,
            set: vec![("reqnodelist", String::new()), ("admincomment", "a b; $(x)".into())],
        };
        assert_eq!(
            CommandActuator::args(&update),
            ["update", "jobid=12", "reqnodelist=", "admincomment=a b; $(x)"]
        );
        let tasks = Update::Tasks { id: 3, tasks: "1,5-9".into(), set: Vec::new() };
        assert_eq!(CommandActuator::args(&tasks), ["update", "jobid=3_[1,5-9]"]);
        let caps = Update::Qos { name: "q".into(), set: vec![("MaxTRESPU", "cpu=8".into())] };
        assert_eq!(
            CommandActuator::args(&caps),
            ["-i", "modify", "qos", "where", "name=q", "set", "MaxTRESPU=cpu=8"]
        );
        let mut config = Config::default();
        let mut with = |scontrol: PathBuf, sacctmgr: &str| {
            config.commands.scontrol = Some(scontrol);
            config.commands.sacctmgr = Some(sacctmgr.into());
            config.clone()
        };
        let actuator = CommandActuator::from_config(&with(dir.path().join("none"), "/bin/true"));
        assert!(matches!(actuator.update(&update).await, Answer::Busy(_)), "not there");
        assert_eq!(actuator.update(&caps).await, Answer::Made, "another program");
        actuator.settings_changed(&with("/bin/false".into(), "/bin/true"));
        assert!(matches!(actuator.update(&update).await, Answer::Refused(_)));
        actuator.settings_changed(&with("/bin/true".into(), "/bin/false"));
        assert_eq!(actuator.update(&update).await, Answer::Made, "another scontrol from now on");
        assert!(matches!(actuator.update(&caps).await, Answer::Refused(_)));
    }
}
