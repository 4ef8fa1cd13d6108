//! What slurmctld counts of its own work, as `sdiag` prints it.

use std::collections::BTreeMap;

/// RPCs of one type or user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rpcs {
    /// How many.
    pub count: u64,
    /// How long slurmctld was at them, in microseconds.
    pub micros: u64,
}

impl Rpcs {
    /// Microseconds of each.
    pub fn average(self) -> u64 {
        self.micros.checked_div(self.count).unwrap_or(0)
    }
}

impl std::iter::Sum for Rpcs {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), |a, b| Self {
            count: a.count + b.count,
            micros: a.micros + b.micros,
        })
    }
}

/// The counters since slurmctld started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sdiag {
    /// By message type.
    pub types: BTreeMap<String, Rpcs>,
    /// By user.
    pub users: BTreeMap<String, Rpcs>,
    /// Messages for slurmdbd that wait.
    pub dbd_queue: u64,
    /// Cycles of the main scheduler.
    pub cycles: u64,
    /// Microseconds of each, in the mean.
    pub mean_cycle: u64,
    /// Microseconds of a backfill cycle, in the mean.
    pub mean_backfill: u64,
}

impl Sdiag {
    /// Reads what `sdiag` prints. Fields that it does not show stay 0.
    pub fn read(text: &str) -> Self {
        let mut sdiag = Self::default();
        let mut section = "";
        for line in text.lines() {
            if !line.starts_with(['\t', ' ']) {
                if let Some((key, value)) = line.split_once(':') {
                    if key == "DBD Agent queue size" {
                        sdiag.dbd_queue = number(value);
                    }
                    // "Backfilling stats (WARNING: data obtained ...)" is a heading too.
                    if !value.trim().is_empty() && !key.starts_with("Backfilling") {
                        continue;
                    }
                }
                section = line.trim_end_matches(':');
                continue;
            }
            match section {
                s if s.ends_with("by message type") => insert(&mut sdiag.types, line),
                s if s.ends_with("by user") => insert(&mut sdiag.users, line),
                s => match (s.starts_with("Backfill"), line.trim().split_once(':')) {
                    (false, Some(("Total cycles", value))) => sdiag.cycles = number(value),
                    (false, Some(("Mean cycle", value))) => sdiag.mean_cycle = number(value),
                    (true, Some(("Mean cycle", value))) => sdiag.mean_backfill = number(value),
                    _ => {}
                },
            }
        }
        sdiag
    }

    /// What was counted since `before`; means and the queue are those of now.
    pub fn since(mut self, before: &Self) -> Self {
        for (mine, old) in [(&mut self.types, &before.types), (&mut self.users, &before.users)] {
            for (name, rpcs) in mine.iter_mut() {
                let old = old.get(name).copied().unwrap_or_default();
                rpcs.count = rpcs.count.saturating_sub(old.count);
                rpcs.micros = rpcs.micros.saturating_sub(old.micros);
            }
            mine.retain(|_, rpcs| rpcs.count > 0);
        }
        self.cycles = self.cycles.saturating_sub(before.cycles);
        self
    }
}

/// Takes a line such as `REQUEST_PING ( 1008) count:5 ave_time:120 total_time:600`.
fn insert(into: &mut BTreeMap<String, Rpcs>, line: &str) {
    let Some((name, rest)) = line.trim().split_once('(') else { return };
    let field = |key: &str| rest.split_once(key).map_or(0, |(_, value)| number(value));
    let rpcs = Rpcs { count: field("count:"), micros: field("total_time:") };
    into.insert(name.trim().to_string(), rpcs);
}

/// The number that the text begins with, else 0.
fn number(text: &str) -> u64 {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_and_subtracted() {
        let text = "*****\nsdiag output at Mon Nov 30 (1)\nServer thread count:  1\n\
            DBD Agent queue size: 3\n\nMain schedule statistics (microseconds):\n\
            \tLast cycle:   52\n\tTotal cycles: 7\n\tMean cycle:   61\n\nBackfilling stats (WARNING: data of now)\n\
            \tTotal cycles: 2\n\tMean cycle:   900\n\
            \nRemote Procedure Call statistics by message type\n\
            \tREQUEST_NODE_INFO                       ( 2007) count:4      ave_time:50     total_time:200\n\
            \tREQUEST_PING                            ( 1008) count:1      ave_time:20     total_time:20\n\
            \nRemote Procedure Call statistics by user\n\
            \troot            (       0) count:5      ave_time:44     total_time:220\n\
            \nPending RPC statistics\n\tNo pending RPCs\n";
        let after = Sdiag::read(text);
        assert_eq!((after.dbd_queue, after.cycles), (3, 7));
        assert_eq!((after.mean_cycle, after.mean_backfill), (61, 900));
        assert_eq!(after.users["root"], Rpcs { count: 5, micros: 220 });
        let before = Sdiag::read(&text.replace("count:4", "count:1").replace(":200", ":80"));
        let since = after.since(&before);
        assert_eq!(since.types["REQUEST_NODE_INFO"], Rpcs { count: 3, micros: 120 });
        assert_eq!(since.types["REQUEST_NODE_INFO"].average(), 40);
        assert!(!since.types.contains_key("REQUEST_PING"));
    }
}
