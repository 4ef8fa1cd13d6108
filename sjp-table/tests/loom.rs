//! Model runs: loom tries every interleaving (in the larger models, all with up
//! to two or three preemptions) and every value that a relaxed load may see.
//!
//!     RUSTFLAGS="--cfg loom" cargo test -p sjp-table --release --test loom
//!
//! Each model counts the executions that it went through, and fails if they
//! were suspiciously few. Without `--cfg loom` this file holds no tests.
//!
//! All that runs at once is in threads of its own: loom (0.7) takes what the
//! main thread does first after a spawn for something that came before it.
#![cfg(loom)]
#![allow(missing_docs)]

use loom::sync::Arc;
use loom::thread;
use sjp_core::publication::Claim;
use sjp_table::Capacity;
use sjp_table::parts::{Plain, Small};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs a model through at least `least` executions; with a bound on
/// preemptions where all would take minutes.
fn model(name: &str, bound: Option<usize>, least: usize, run: impl Fn() + Sync + Send + 'static) {
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        run();
    });
    let count = count.load(Ordering::Relaxed);
    println!("model {name}: {count} executions");
    assert!(count >= least, "model {name}: only {count} executions");
}

fn in_thread<T: 'static, R: 'static>(
    shared: &Arc<T>,
    run: impl Fn(&T) -> R + 'static,
) -> thread::JoinHandle<R> {
    let shared = shared.clone();
    thread::spawn(move || run(&shared))
}

#[test]
fn a_reader_against_a_publisher() {
    model("reader against publisher", Some(3), 100, || {
        let table = Arc::new(Small::default());
        table.publish(1);
        let publisher = in_thread(&table, |table| {
            // The second of these writes the buffer that the reader may be in.
            table.publish(2);
            table.publish(3);
        });
        let reader = in_thread(&table, |table| {
            let mut last = 0;
            for _ in 0..2 {
                if let Some((a, b)) = table.read() {
                    assert_eq!(a, b, "a mixture");
                    assert!(a >= 1 && a >= last, "{a} after {last}");
                    last = a;
                }
            }
        });
        publisher.join().unwrap();
        reader.join().unwrap();
        assert_eq!(table.read(), Some((3, 3)));
    });
}

#[test]
fn a_publisher_that_dies_half_way() {
    for words in 0..=2 {
        model("publisher dies half-way", None, 20, move || {
            let table = Arc::new(Small::default());
            table.publish(1);
            let publisher = in_thread(&table, move |table| {
                table.publish(2);
                table.publish_and_die(3, words);
            });
            let reader = in_thread(&table, |table| {
                if let Some((a, b)) = table.read() {
                    assert_eq!(a, b, "a mixture");
                    assert!(a == 1 || a == 2);
                }
            });
            publisher.join().unwrap();
            reader.join().unwrap();
            assert_eq!(table.read(), Some((2, 2)), "the last whole one stands");
        });
    }
}

#[test]
fn a_reader_of_a_fresh_table() {
    model("reader of a fresh table", None, 10, || {
        let table = Arc::new(Small::default());
        let publisher = in_thread(&table, |table| _ = table.publish(1));
        let reader = in_thread(&table, |table| {
            let seen = table.read();
            assert!(seen.is_none() || seen == Some((1, 1)), "{seen:?}");
        });
        publisher.join().unwrap();
        reader.join().unwrap();
    });
}

fn tiny(claims: u32) -> Arc<Plain> {
    let capacity = Capacity { nodes: 1, groups: 1, qos_rooms: 1, roster_bytes: 8, claims };
    Arc::new(Plain::new(capacity).unwrap())
}

fn claim(n: u32) -> Claim {
    Claim {
        seq: 0,
        id: n.into(),
        roster: n.into(),
        time: n.into(),
        uid: n,
        node: n,
        cpus: n,
        mem: n,
        limit: n,
        flags: n,
    }
}

/// All that is read was written, whole.
fn check(list: &[Claim]) {
    for found in list {
        let n = found.uid;
        assert_eq!(*found, Claim { seq: found.seq, ..claim(n) }, "a mixture");
    }
    assert!(list.windows(2).all(|two| two[0].seq < two[1].seq));
}

#[test]
fn two_claim_writers_and_a_reader() {
    model("two claim writers and a reader", Some(2), 500, || {
        let table = tiny(2);
        let one = in_thread(&table, |table| table.push(&claim(1)).unwrap());
        let two = in_thread(&table, |table| table.push(&claim(2)).unwrap());
        let reader = in_thread(&table, |table| {
            let (seen, _) = table.claims(0, 0).unwrap();
            check(&seen.list);
            seen
        });
        let mut numbers = [one.join().unwrap(), two.join().unwrap()];
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2]);
        let seen = reader.join().unwrap();
        let (rest, pending) = table.claims(seen.upto, 0).unwrap();
        check(&rest.list);
        assert_eq!(seen.list.len() + rest.list.len(), 2, "each exactly once");
        assert_eq!((seen.lost + rest.lost, pending), (0, None));
    });
}

#[test]
fn a_claim_pushed_while_the_table_is_closed() {
    model("push against close", Some(3), 50, || {
        let table = tiny(2);
        let writer = in_thread(&table, |table| table.push(&claim(1)).is_ok());
        let publisher = in_thread(&table, |table| {
            table.close();
            table.claims(0, u64::MAX).unwrap().0.list.len()
        });
        let (pushed, carried_over) = (writer.join().unwrap(), publisher.join().unwrap());
        assert!(!pushed || carried_over == 1, "a claim that counts as pushed was left behind");
    });
}

#[test]
fn a_writer_comes_round_while_a_slot_is_read() {
    model("ring comes round", Some(2), 500, || {
        let table = tiny(1);
        table.push(&claim(1)).unwrap();
        let writer = in_thread(&table, |table| table.push(&claim(2)).unwrap());
        let reader = in_thread(&table, |table| {
            let (seen, _) = table.claims(0, u64::MAX).unwrap();
            check(&seen.list);
        });
        assert_eq!(writer.join().unwrap(), 2);
        reader.join().unwrap();
        let (seen, _) = table.claims(1, 0).unwrap();
        assert_eq!(seen.list.len(), 1);
        check(&seen.list);
    });
}

#[test]
fn two_writers_a_ring_apart_in_one_slot() {
    model("two writers in one slot", Some(1), 100, || {
        let table = tiny(1);
        // The slower one may find itself overtaken.
        let one = in_thread(&table, |table| table.push(&claim(1)).is_ok());
        let two = in_thread(&table, |table| table.push(&claim(2)).is_ok());
        let written = [one.join().unwrap(), two.join().unwrap()];
        assert!(written.contains(&true), "the last one cannot be overtaken");
        let (seen, _) = table.claims(0, u64::MAX).unwrap();
        check(&seen.list);
    });
}

#[test]
fn a_claim_writer_that_dies_half_way() {
    for filled in [false, true] {
        model("claim writer dies half-way", Some(2), 100, move || {
            let table = tiny(2);
            let dying = in_thread(&table, move |table| {
                let one = claim(1);
                table.push_and_die(filled.then_some(&one)).unwrap()
            });
            let writer = in_thread(&table, |table| table.push(&claim(2)).unwrap());
            let reader = in_thread(&table, |table| {
                let (seen, _) = table.claims(0, u64::MAX).unwrap();
                check(&seen.list);
                assert!(seen.list.iter().all(|c| c.uid == 2), "the dead one's is not believed");
            });
            let (dead, seq) = (dying.join().unwrap(), writer.join().unwrap());
            reader.join().unwrap();
            let (seen, _) = table.claims(0, dead).unwrap();
            assert_eq!(seen.list, [Claim { seq, ..claim(2) }], "the other is not lost");
            // The ring comes round.
            table.push(&claim(3)).unwrap();
            table.push(&claim(4)).unwrap();
            let (seen, _) = table.claims(2, 0).unwrap();
            assert_eq!(seen.list.iter().map(|c| c.uid).collect::<Vec<_>>(), [3, 4]);
        });
    }
}
