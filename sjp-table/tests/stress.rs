//! Publisher, readers and claim writers at once, in threads and in processes,
//! with records that check themselves: every value of a publication follows
//! from its number. Processes are killed half-way.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod common;

use common::{Numbers, claim, roster, small};
use sjp_core::publication::{Claim, Group, NO_GROUP, RoomView, Rooms, Roster};
use sjp_table::{AttachError, Capacity, Meta, Publisher, PushError, ReadError, Reader, TableView};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);

/// Tells a child what to do, and where.
const ROLE: &str = "SJP_TABLE_TEST_ROLE";
const DIR: &str = "SJP_TABLE_TEST_DIR";

/// Waits until `look` finds something, or fails with what it saw last.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) if start.elapsed() > DEADLINE => {
                panic!("waited {DEADLINE:?} for {what}; last: {last}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn roster_id(n: u64) -> u64 {
    n / 5
}

fn nodes_of(id: u64) -> usize {
    20 + (id % 40) as usize
}

/// Publication number `n`.
fn publication(n: u64) -> (Roster, u64, Rooms, Meta) {
    let id = roster_id(n);
    let nodes = nodes_of(id) as u32;
    let groups = 1 + (n % u64::from(nodes)) as u32;
    let value = n as u32;
    let rooms = Rooms {
        groups: (0..groups)
            .map(|i| Group {
                cpus: value,
                mem: value ^ i,
                pset: (value % 3) as u16,
                step: value as u16,
                phi: f64::from(value),
                taken_at: value,
                cpus_then: value,
                mem_then: value,
                weight: value,
                first: i,
                count: 1,
            })
            .collect(),
        members: (0..groups).collect(),
        group_of: (0..nodes).map(|i| if i < groups { i } else { NO_GROUP }).collect(),
        qos_rooms: Vec::new(),
    };
    (roster(nodes as usize), id, rooms, Meta { data_time_ns: n, claims_taken: !n })
}

/// What is wrong with a view, if anything. Lets other threads in now and then,
/// so that publications pass while it reads.
fn check(view: &TableView<'_>, roster: &Roster, lazy: bool) -> Result<u64, String> {
    let n = view.meta().data_time_ns;
    let value = n as u32;
    let expect = |what: &str, found: u64, expected: u64| {
        if found == expected {
            Ok(())
        } else {
            Err(format!("publication {n}: {what} is {found}, not {expected}"))
        }
    };
    let nodes = nodes_of(roster_id(n));
    expect("claims_taken", view.meta().claims_taken, !n)?;
    expect("roster id", view.roster_id(), roster_id(n))?;
    expect("nodes", view.node_count() as u64, nodes as u64)?;
    expect("roster nodes", roster.nodes.len() as u64, nodes as u64)?;
    let groups = 1 + n % nodes as u64;
    expect("groups", view.group_count() as u64, groups)?;
    for i in 0..groups as usize {
        if lazy && i % 8 == 0 {
            std::thread::yield_now();
        }
        let group = view.group(i).ok_or("a group is missing")?;
        for (what, found) in [
            ("cpus", group.cpus),
            ("mem", group.mem ^ i as u32),
            ("taken_at", group.taken_at),
            ("cpus_then", group.cpus_then),
            ("mem_then", group.mem_then),
            ("weight", group.weight),
        ] {
            expect(what, found.into(), value.into())?;
        }
        expect("phi", group.phi as u64, value.into())?;
        expect("step", group.step.into(), (value as u16).into())?;
        expect("first", group.first.into(), i as u64)?;
        expect("member", view.member(i).unwrap_or(NO_GROUP).into(), i as u64)?;
    }
    for node in 0..nodes as u32 {
        let group = view.group_of(node).map_or(u64::MAX, u64::from);
        expect("group_of", group, if u64::from(node) < groups { node.into() } else { u64::MAX })?;
    }
    Ok(n)
}

#[test]
fn no_reader_ever_sees_a_mixture() {
    const ROUNDS: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::create(dir.path(), small()).unwrap();
    let link = publisher.link();
    let (done, reads, busy, reruns) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (done, reads, busy, reruns, link) = (&done, &reads, &busy, &reruns, &link);
        for lazy in [false, true, true] {
            scope.spawn(move || {
                let mut reader = Reader::attach(link).unwrap();
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    let mut runs = 0;
                    let answer = reader.read_with_roster(|view, roster| {
                        runs += 1;
                        check(view, roster, lazy)
                    });
                    match answer {
                        Ok(Ok(n)) => {
                            assert!(n >= last, "publication {n} after {last}");
                            last = n;
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(Err(mixture)) => panic!("{mixture}"),
                        Err(ReadError::Busy) => _ = busy.fetch_add(1, Ordering::Relaxed),
                        // A whole roster was replaced twice during each try.
                        Err(ReadError::Damaged(sjp_table::Damage::RosterSlot { .. })) => {
                            busy.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(ReadError::Empty) => {}
                        Err(other) => panic!("{other}"),
                    }
                    reruns.fetch_add(u64::from(runs > 1), Ordering::Relaxed);
                }
            });
        }
        let mut n = 0;
        // On a busy machine until the readers had their turn, too.
        let start = Instant::now();
        while n < ROUNDS || (reads.load(Ordering::Relaxed) < 100 && start.elapsed() < DEADLINE) {
            n += 1;
            let (roster, id, rooms, meta) = publication(n);
            publisher.publish(&roster, id, &rooms, meta).unwrap();
        }
        done.store(true, Ordering::Release);
    });
    println!("{reads:?} reads, {reruns:?} of them more than once, {busy:?} busy");
    assert!(reads.into_inner() >= 100);
}

/// A claim whose fields follow from its id.
fn check_claim(found: &Claim) {
    let n = found.roster - 1;
    assert_eq!(*found, Claim { seq: found.seq, ..claim(n) });
}

#[test]
fn claims_of_many_writers_all_arrive_or_are_counted_as_lost() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 5_000;
    for claims in [64, 32_768] {
        let dir = tempfile::tempdir().unwrap();
        let capacity = Capacity { claims, ..small() };
        let mut publisher = Publisher::create(dir.path(), capacity).unwrap();
        let link = publisher.link();
        let refused = AtomicU64::new(0);
        let mut seen = Vec::new();
        let mut lost = 0;
        std::thread::scope(|scope| {
            let (refused, link) = (&refused, &link);
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    let reader = Reader::attach(link).unwrap();
                    for n in 0..EACH {
                        match reader.push_claim(&claim(writer * EACH + n)) {
                            Ok(_) => {}
                            Err(PushError::Overtaken) => {
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
            let folding = scope.spawn(move || {
                let reader = Reader::attach(link).unwrap();
                let (mut list, mut last) = (Vec::new(), 0);
                while last < WRITERS * EACH {
                    list.clear();
                    reader.claims_since(last, &mut list).unwrap();
                    list.iter().for_each(check_claim);
                    last = list.last().map_or(last, |c| c.seq);
                    if reader.claims(last).unwrap().upto >= WRITERS * EACH {
                        break;
                    }
                }
            });
            let mut after = 0;
            wait_for("all claims", || {
                let found = publisher.claims_since(after).unwrap();
                found.list.iter().for_each(check_claim);
                seen.extend(found.list);
                lost += found.lost;
                after = found.upto;
                if after == WRITERS * EACH { Ok(()) } else { Err(format!("{after}")) }
            });
            folding.join().unwrap();
        });
        assert_eq!(seen.len() as u64 + lost, WRITERS * EACH);
        assert!(seen.windows(2).all(|two| two[0].seq < two[1].seq), "in order, each once");
        if claims > 20_000 {
            assert_eq!((lost, refused.into_inner()), (0, 0), "the ring never came round");
        }
    }
}

/// This test binary once more, as a process that does one thing.
#[expect(clippy::disallowed_methods, reason = "the test needs processes to kill")]
fn start(role: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_of_the_other_tests", "--nocapture"])
        .env(ROLE, role)
        .env(DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Does nothing, unless it was started by another test: then it publishes or
/// claims until it is killed.
#[test]
fn a_process_of_the_other_tests() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let dir = PathBuf::from(std::env::var_os(DIR).unwrap());
    // Whoever started it may die without killing it.
    let parent = std::os::unix::process::parent_id();
    let mut n = 0;
    match role.as_str() {
        "publish" => {
            let mut publisher = Publisher::create(&dir, small()).unwrap();
            while std::os::unix::process::parent_id() == parent {
                n += 1;
                let (roster, id, rooms, meta) = publication(n);
                publisher.publish(&roster, id, &rooms, meta).unwrap();
            }
        }
        "claim" => {
            let reader = Reader::attach(&dir.join("table")).unwrap();
            while std::os::unix::process::parent_id() == parent && !reader.is_closed() {
                n += 1;
                let _ = reader.push_claim(&claim(n));
            }
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn a_publisher_killed_half_way_leaves_a_whole_publication() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("table");
    let mut numbers = Numbers::new(7);
    for _ in 0..15 {
        let mut child = start("publish", dir.path());
        let mut reader = wait_for("the child's table", || match Reader::attach(&link) {
            Ok(reader) if reader.publisher_pid() == child.id() => Ok(reader),
            Ok(_) => Err("another's table".into()),
            Err(error) => Err(error.to_string()),
        });
        let enough = 1 + numbers.below(3000);
        let mut last = 0;
        wait_for("some publications", || {
            match reader.read_with_roster(|view, roster| check(view, roster, false)) {
                Ok(Ok(n)) => {
                    assert!(n >= last);
                    last = n;
                    if n >= enough { Ok(()) } else { Err(format!("{n} of {enough}")) }
                }
                Ok(Err(mixture)) => panic!("{mixture}"),
                Err(other) => Err(other.to_string()),
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();

        // Dead, it stands still, and what it left is whole, roster and all.
        let left = reader.read_with_roster(|view, roster| check(view, roster, false));
        let n = left.unwrap().unwrap();
        assert!(n >= last);
        assert!(!reader.is_closed(), "it had no time to say so");
        assert!(matches!(Reader::attach(&link), Err(AttachError::Dangling { .. })));
    }
}

#[test]
fn a_claim_writer_killed_half_way_holds_nobody_up_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = Capacity { claims: 1024, ..small() };
    let mut publisher = Publisher::create(dir.path(), capacity).unwrap();
    let reader = Reader::attach(&publisher.link()).unwrap();
    let mut after = 0;
    for _ in 0..10 {
        let mut child = start("claim", dir.path());
        let enough = after + 2_000;
        wait_for("the child's claims", || {
            let found = publisher.claims_since(after).unwrap();
            found.list.iter().for_each(check_claim);
            after = found.upto;
            if after >= enough { Ok(()) } else { Err(format!("{after} of {enough}")) }
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let seq = reader.push_claim(&claim(1)).unwrap();
        // At once for who folds, at the latest a second later for the publisher.
        let mut list = Vec::new();
        reader.claims_since(seq - 1, &mut list).unwrap();
        assert_eq!(list, [Claim { seq, ..claim(1) }]);
        wait_for("the claim after the dead writer's", || {
            let found = publisher.claims_since(after).unwrap();
            found.list.iter().for_each(check_claim);
            after = found.upto;
            if after == seq { Ok(()) } else { Err(format!("{after} of {seq}")) }
        });
    }
}
