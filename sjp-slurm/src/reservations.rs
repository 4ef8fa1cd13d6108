//! `scontrol show reservations`, one line a reservation (`-o`) or several.
//!
//! Slurm prints the cores of a partial reservation only some time after it was
//! made; until then its nodes count as reserved whole.

use crate::record::{self, Record, Tokens};
use crate::{Parsed, Problem, array, nodes, time};
use jiff::tz::TimeZone;
use sjp_core::cluster::{Reservation, ReservedCores};

/// Arguments for scontrol.
pub const ARGS: &[&str] = &["-a", "-o", "show", "reservations"];

/// Reads the output of `scontrol show reservations`; `zone` is the time zone in
/// which it was printed (of no matter under [`crate::ENV`]).
#[must_use]
pub fn read(text: &str, zone: &TimeZone) -> Parsed<Reservation> {
    let mut out = Parsed::default();
    let (records, before) = record::split(text, |line| line.starts_with("ReservationName="));
    if let Some(Record { line, text }) = before
        && !text.starts_with("No reservations in the system")
    {
        out.error(line, Problem::Unknown { want: "scontrol's list of reservations" }, text);
    }
    let mut lines = Vec::with_capacity(records.len());
    for record in records {
        match reservation(record.text, zone) {
            Ok(reservation) => {
                out.records.push(reservation);
                lines.push(record.line);
            }
            Err(what) => out.error(record.line, what, record.text),
        }
    }
    nodes::refuse_twice(&mut out, lines, "ReservationName", |r| &r.name);
    out
}

fn reservation(text: &str, zone: &TimeZone) -> Result<Reservation, Problem> {
    let rest =
        text.strip_prefix("ReservationName=").ok_or(Problem::Missing { key: "ReservationName" })?;
    // The name may hold blanks: it goes up to what Slurm prints next.
    let end = rest.find(" StartTime=").ok_or(Problem::Missing { key: "StartTime" })?;
    let (name, rest) = rest.split_at(end);
    let mut r = Reservation { name: name.to_owned(), whole_nodes: true, ..Reservation::default() };
    let (mut start, mut end, mut seen_nodes) = (None, None, false);
    let mut core_node: Option<&str> = None;
    let mut tokens = Tokens::new(rest);
    while let Some((key, value)) = tokens.next() {
        match key {
            "StartTime" if start.is_none() => start = Some(value),
            "EndTime" if end.is_none() => end = Some(value),
            "Nodes" if !seen_nodes => {
                r.nodes = record::hosts("Nodes", value)?;
                seen_nodes = true;
            }
            "Flags" if r.flags.is_empty() => r.flags = crate::list(value),
            "State" => r.active = value == "ACTIVE",
            "NodeName" => core_node = Some(value),
            "CoreIDs" => {
                let cores = array::task_count(value).filter(|(_, cut)| !cut).map(|(n, _)| n);
                let cores = cores.ok_or_else(|| Problem::Value {
                    key: "CoreIDs",
                    value: crate::excerpt(value),
                    want: "a list of cores",
                })?;
                let hosts = core_node.take().ok_or(Problem::Missing { key: "NodeName" })?;
                for node in record::hosts("NodeName", hosts)? {
                    r.cores.push(ReservedCores { node, cores });
                }
                r.whole_nodes = false;
            }
            // A comment is the operator's text; nothing that is read follows.
            "Comment" => break,
            _ => {}
        }
    }
    if !seen_nodes {
        return Err(Problem::Missing { key: "Nodes" });
    }
    let instant = |key: &'static str, value: Option<&str>| {
        let value = value.ok_or(Problem::Missing { key })?;
        time::instant(key, value, zone)?.ok_or_else(|| Problem::Value {
            key,
            value: crate::excerpt(value),
            want: "a time",
        })
    };
    r.start = instant("StartTime", start)?;
    r.end = instant("EndTime", end)?;
    Ok(r)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COURSE: &str = "ReservationName=a course, part 2 StartTime=2026-11-30T16:40:09 \
        EndTime=2026-12-01T02:40:09 Duration=10:00:00 Nodes=f[01-02] NodeCnt=2 CoreCnt=12 \
        Features=(null) PartitionName=slim Flags=SPEC_NODES,IGNORE_JOBS   NodeName=f01 \
        CoreIDs=0-7   NodeName=f02 CoreIDs=0,2-4 TRES=cpu=12 Users=root Groups=(null) \
        Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a \
        MaxStartDelay=(null)\n";

    #[test]
    fn every_value_of_a_record() {
        let parsed = read(COURSE, &TimeZone::UTC);
        assert!(parsed.errors.is_empty(), "{parsed:?}");
        assert_eq!(
            parsed.records,
            [Reservation {
                name: "a course, part 2".into(),
                nodes: vec!["f01".into(), "f02".into()],
                whole_nodes: false,
                cores: vec![
                    ReservedCores { node: "f01".into(), cores: 8 },
                    ReservedCores { node: "f02".into(), cores: 4 },
                ],
                start: 1_796_056_809,
                end: 1_796_092_809,
                flags: vec!["SPEC_NODES".into(), "IGNORE_JOBS".into()],
                active: true,
            }]
        );
        // As printed under SLURM_TIME_FORMAT=%s.
        let text = COURSE
            .replace("2026-11-30T16:40:09", "1796056809")
            .replace("2026-12-01T02:40:09", "1796092809");
        assert_eq!(read(&text, &TimeZone::UTC).records, parsed.records);
    }

    #[test]
    fn relative_times_are_refused() {
        let text = COURSE.replace("2026-11-30T16:40:09", "14:24:22");
        let parsed = read(&(text + &COURSE.replace("course", "other")), &TimeZone::UTC);
        assert_eq!(parsed.records.len(), 1);
        assert_eq!(parsed.errors.len(), 1);
        assert!(parsed.errors[0].to_string().contains("SLURM_TIME_FORMAT"), "{parsed:?}");
    }

    #[test]
    fn none_at_all_is_no_error() {
        assert_eq!(read("No reservations in the system\n", &TimeZone::UTC), Parsed::default());
        assert_eq!(read("", &TimeZone::UTC), Parsed::default());
        assert_eq!(read("scontrol: error: x", &TimeZone::UTC).errors.len(), 1);
    }

    proptest! {
        #[test]
        fn no_text_panics(
            text in "(ReservationName=[a-z]{0,3} |StartTime=|EndTime=|Nodes=|CoreIDs=|\n|.){0,60}"
        ) {
            let _ = read(&text, &TimeZone::UTC);
        }
    }
}
