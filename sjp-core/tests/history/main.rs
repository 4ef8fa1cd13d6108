//! Histories of a cluster: whatever happens to it, no node is promised more than it
//! has, no job is put where it must not be, nobody's choice is overruled, every change
//! has its undo, and every job that would have started without sjp starts with it.
//!
//! A Slurm in memory (`slurm`, with jobs as in `job`) and its rules of admission
//! (`admission`), the module and sjpd around the real plans (`submit`, `sjpd`), a
//! generator of sites and of what happens to them (`events`, `world`), and what must
//! hold after each event and at the end (`invariants`).
//!
//! What it leaves out: jobs on several nodes, GPUs, pulses of caps, clocks that are set.
//! What nobody can tell is forgiven: a choice that is the same as sjp's, a change between
//! sjp's look and its update where it does not look again, and a mark that an admin took
//! away.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod admission;
mod events;
mod invariants;
mod job;
mod sjpd;
mod slurm;
mod submit;
mod world;

use events::{Event, Setup};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;
use world::World;

/// Histories of one run; `PROPTEST_CASES` for another number.
const CASES: u32 = 400;

fn run(setup: Setup, events: &[Event]) -> (World, Result<(), String>) {
    let undone = setup.undone;
    let mut world = World::new(setup);
    let mut outcome = events.iter().try_for_each(|event| world.happen(event));
    world.off = undone;
    if undone {
        outcome = outcome.and_then(|()| world.undo());
    }
    let outcome = outcome.and_then(|()| world.live_on());
    (world, outcome)
}

#[test]
fn whatever_happens() {
    let cases = match std::env::var("PROPTEST_CASES") {
        Ok(_) => Config::default().cases,
        Err(_) => CASES,
    };
    let config =
        Config { cases, failure_persistence: None, max_shrink_time: 20_000, ..Config::default() };
    let tally: RefCell<BTreeMap<&'static str, u32>> = RefCell::default();
    let outcome = TestRunner::new(config).run(&events::history(), |(setup, events)| {
        let (world, outcome) = run(setup, &events);
        for (what, times) in &world.tally {
            *tally.borrow_mut().entry(what).or_default() += times;
        }
        outcome.map_err(|why| TestCaseError::fail(format!("{why}\n{}", world.log.join("\n"))))
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, (setup, events))) => panic!("{why}\n\n{setup:?}\n\n{events:?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
    let tally = tally.into_inner();
    println!("{cases} histories: {tally:?}");
    // A generator that lets nothing happen would find nothing wrong.
    if cases >= CASES {
        let happens = [
            "pin",
            "release",
            "move",
            "narrow",
            "open",
            "wait",
            "flex",
            "drop-mark",
            "undo",
            "refused",
            "undone",
        ];
        for what in happens {
            assert!(tally.get(what).is_some_and(|&times| times > 0), "no {what} in {tally:?}");
        }
    }
}
