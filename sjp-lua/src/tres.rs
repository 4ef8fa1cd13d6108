//! The strings in which a job asks for counted things: TRES requests and
//! array ids.

/// Whether a TRES request asks for GPUs or other generic resources.
///
/// Forms seen: `gpu:2`, `gres:gpu:2`, `gres/gpu:2`, `gres/gpu:a100=2`, several
/// joined by commas. CPUs and licenses are none; `none` asks for nothing;
/// whatever is not known counts as generic, since sjp does not judge it.
pub(crate) fn asks_gres(request: &str) -> bool {
    request.split(',').map(str::trim).any(|item| {
        let name = item.split([':', '=', '/']).next().unwrap_or_default();
        !(name.is_empty()
            || name.eq_ignore_ascii_case("cpu")
            || name.eq_ignore_ascii_case("license")
            || item.eq_ignore_ascii_case("none")
            || item.eq_ignore_ascii_case("gres:none")
            || item.eq_ignore_ascii_case("gres/none"))
    })
}

/// The CPUs in a TRES request (`cpu=4`, `cpu:4`), where it names some.
pub(crate) fn cpus_in(request: &str) -> Option<u64> {
    request.split(',').map(str::trim).find_map(|item| {
        let (name, count) = item.split_once(['=', ':'])?;
        name.eq_ignore_ascii_case("cpu").then(|| count.parse().ok())?
    })
}

/// How many tasks of an array may run at once: `1-3` is three, `1-31:2` is
/// sixteen, `0-99%4` is four. At least one; a form that is not understood
/// counts as one.
pub(crate) fn array_tasks(ids: &str) -> u32 {
    let ids = ids.trim().trim_matches(['[', ']']);
    let (ids, at_once) = match ids.split_once('%') {
        Some((ids, limit)) => (ids, limit.trim().parse::<u64>().ok().filter(|&n| n > 0)),
        None => (ids, None),
    };
    let count = ids
        .split(',')
        .map(|part| tasks_in(part.trim()).unwrap_or(0))
        .fold(0_u64, u64::saturating_add);
    let count = at_once.map_or(count, |limit| count.min(limit)).max(1);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Tasks in one part of an array request: `7`, `1-9` or `1-9:2`.
fn tasks_in(part: &str) -> Option<u64> {
    let (range, step) = match part.split_once(':') {
        Some((range, step)) => (range, step.parse::<u64>().ok().filter(|&s| s > 0)?),
        None => (part, 1),
    };
    match range.split_once('-') {
        None => range.parse::<u64>().ok().map(|_| 1),
        Some((from, to)) => {
            let (from, to) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
            to.checked_sub(from).map(|span| (span / step).saturating_add(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gres_in_every_form_that_slurm_writes() {
        for yes in [
            "gpu:2",
            "gres:gpu:2",
            "gres/gpu:2",
            "gres/gpu=2",
            "gres/gpu:a100:2",
            "gpu",
            "cpu=4,gres/gpu:1",
            "shard:3",
            "gres:nvme:1",
            "bb/cray=1",
            "mem=4",
        ] {
            assert!(asks_gres(yes), "{yes}");
        }
        for no in ["", "cpu=4", "cpu:4", "none", "NONE", "license/abaqus:3", "cpu=4,license/x=1"] {
            assert!(!asks_gres(no), "{no}");
        }
        assert_eq!(cpus_in("cpu=4"), Some(4));
        assert_eq!(cpus_in("gres/gpu:1,cpu:8"), Some(8));
        assert_eq!(cpus_in("gres/gpu:1"), None);
        assert_eq!(cpus_in("cpu=many"), None);
    }

    #[test]
    fn array_ids_are_counted() {
        for (ids, tasks) in [
            ("1-3", 3),
            ("7", 1),
            ("1,5,7-9", 5),
            ("1-31:2", 16),
            ("0-99%4", 4),
            ("1-3%10", 3),
            ("[1-5%2]", 2),
            ("0-9000000000", u32::MAX),
            ("", 1),
            ("nonsense", 1),
            ("9-1", 1),
            ("1-9:0", 1),
            ("1-3%0", 3),
            ("1-3%x", 3),
        ] {
            assert_eq!(array_tasks(ids), tasks, "{ids}");
        }
    }
}
