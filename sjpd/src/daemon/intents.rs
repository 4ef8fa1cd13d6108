//! From what `sjp-core` plans for waiting jobs to what the hands do.

use crate::actuator::{Action, ActionKind, Seen, Settings as Keys, Target, Update};
use crate::config::Config;
use sjp_core::cluster::Job;
use sjp_core::mark::Mark;
use sjp_core::waiting::{Intent, Kind, Settings};
use std::time::Duration;

/// What the plans depend on, of the settings.
#[must_use]
pub fn settings_of(config: &Config) -> Settings {
    let interval = whole(config.recheck.interval);
    Settings {
        release_after: whole(config.pin.release_after),
        interval,
        open: config.recheck.open,
        wait_for_room: config.pin.wait_for_room
            && config.pin.enabled
            && config.policy.always_place
            && interval > 0,
        widen: config.starvation.enabled,
        budget_fat: whole(config.starvation.fat),
        budget_slim: whole(config.starvation.slim),
        fat_mb_per_cpu: config.starvation.fat_ratio_threshold,
        stepped: None,
    }
}

/// Whole seconds, rounded up: times of Slurm are whole.
fn whole(time: Duration) -> i64 {
    time.as_secs_f64().ceil() as i64
}

/// The action that carries an intent for `job`, which has this mark, out.
#[must_use]
pub fn action_of(intent: Intent, job: &Job, mark: &Mark) -> Action {
    Action {
        kind: kind_of(intent.kind),
        target: Target::Job(job.id),
        updates: intent.steps().into_iter().map(|set| update(job, set)).collect(),
        mark: Some(intent.comment),
        seen: Some(Seen::of(job, mark)),
        words: intent.words,
        why: intent.why,
    }
}

/// One update of a job; of an array, of the tasks that wait.
#[must_use]
pub fn update(job: &Job, set: Keys) -> Update {
    match (&job.task_ids, job.array_id) {
        (Some(tasks), Some(id)) => Update::Tasks { id, tasks: tasks.clone(), set },
        _ => Update::Job { id: job.id, set },
    }
}

fn kind_of(kind: Kind) -> ActionKind {
    match kind {
        Kind::DropMark => ActionKind::DropMark,
        Kind::Release => ActionKind::Release,
        Kind::Move => ActionKind::Move,
        Kind::Narrow => ActionKind::Narrow,
        Kind::Widen => ActionKind::Widen,
        Kind::WaitFor => ActionKind::WaitFor,
        Kind::Open => ActionKind::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent() -> Intent {
        Intent {
            kind: Kind::Move,
            job: 7,
            unpin: true,
            partitions: vec!["slim1".into(), "slim2".into()],
            pin: Some("n2".into()),
            comment: "sjp:pin=n2;from=slim1,slim2".into(),
            takes: Vec::new(),
            words: "move from n1 to n2".into(),
            why: "room there".into(),
        }
    }

    #[test]
    fn the_old_node_goes_first_and_the_mark_goes_with_what_it_describes() {
        let action = action_of(intent(), &Job { id: 7, ..Job::default() }, &Mark::default());
        let [first, second] = action.updates.as_slice() else { panic!("two updates") };
        assert_eq!(first.set(), [("reqnodelist", String::new())]);
        let keys: Vec<&str> = second.set().iter().map(|s| s.0).collect();
        assert_eq!(keys, ["partition", "reqnodelist", "admincomment"]);
        assert_eq!(action.mark.as_deref(), Some("sjp:pin=n2;from=slim1,slim2"));
        assert_eq!(action.to_string(), "job 7: move from n1 to n2");
        let intent = Intent { unpin: false, pin: None, partitions: Vec::new(), ..intent() };
        let action = action_of(intent, &Job { id: 7, ..Job::default() }, &Mark::default());
        assert_eq!(action.updates.len(), 1);
        assert_eq!(action.updates[0].set().len(), 1, "the mark alone");
    }

    #[test]
    fn the_tasks_of_an_array_are_named() {
        let job =
            Job { id: 9, array_id: Some(7), task_ids: Some("3,5-8".into()), ..Job::default() };
        let action = action_of(intent(), &job, &Mark::default());
        assert_eq!(action.job(), Some(9));
        assert!(
            action
                .updates
                .iter()
                .all(|u| matches!(u, Update::Tasks { id: 7, tasks, .. } if tasks == "3,5-8"))
        );
    }

    #[test]
    fn a_wait_for_room_needs_pins_rechecks_and_always_place() {
        let mut config = Config::default();
        config.pin.wait_for_room = true;
        assert!(!settings_of(&config).wait_for_room);
        config.policy.always_place = true;
        assert!(settings_of(&config).wait_for_room);
        config.recheck.interval = Duration::ZERO;
        assert!(!settings_of(&config).wait_for_room);
    }
}
