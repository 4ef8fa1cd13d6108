//! Job ids in every form Slurm prints: `12`, `12_3`, `12_[1-5%2]`, `12+0`.

/// A printed job id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRef {
    /// The id itself; of an array, the array's.
    pub id: u32,
    /// How many array tasks it stands for; 1 if none. Where the list of tasks
    /// was cut (`...`), those that can be seen.
    pub tasks: u32,
    /// Whether an array (or a task of one) is meant.
    pub array: bool,
    /// Whether the list of tasks was cut.
    pub cut: bool,
}

/// Reads a printed job id; `None` where it is none.
#[must_use]
pub fn job_ref(text: &str) -> Option<JobRef> {
    let alone = |id| Some(JobRef { id, tasks: 1, array: false, cut: false });
    if let Some((id, offset)) = text.split_once('+') {
        number(offset)?;
        return alone(number(id)?);
    }
    let Some((id, tasks)) = text.split_once('_') else {
        return alone(number(text)?);
    };
    let id = number(id)?;
    let Some(inside) = tasks.strip_prefix('[') else {
        number(tasks)?;
        return Some(JobRef { id, tasks: 1, array: true, cut: false });
    };
    let (tasks, cut) = match inside.strip_suffix(']') {
        Some(list) => task_count(list)?,
        None => (task_count(inside.strip_suffix("...")?.trim_end_matches(','))?.0, true),
    };
    Some(JobRef { id, tasks, array: true, cut })
}

/// The number of tasks in a task list (`1-5%2`, `1,3,7-9:2`), and whether it
/// was cut (`...`). `None` where it is no task list.
#[must_use]
pub fn task_count(list: &str) -> Option<(u32, bool)> {
    let list = match list.split_once('%') {
        Some((list, at_once)) => {
            if at_once != "..." {
                number(at_once)?;
            }
            list
        }
        None => list,
    };
    let (list, cut) = match list.strip_suffix("...") {
        Some(seen) => (seen.trim_end_matches([',', '-']), true),
        None => (list, false),
    };
    if cut && list.is_empty() {
        return Some((1, true));
    }
    let mut n = 0u64;
    for part in list.split(',') {
        let (range, step) = match part.split_once(':') {
            Some((range, step)) => (range, number(step).filter(|s| *s > 0)?),
            None => (part, 1),
        };
        let (lo, hi) = match range.split_once('-') {
            Some((lo, hi)) => (number(lo)?, number(hi)?),
            None => (number(range)?, number(range)?),
        };
        n += u64::from(hi.checked_sub(lo)? / step) + 1;
    }
    Some((u32::try_from(n).ok()?, cut))
}

fn number(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_every_printed_form() {
        for (text, id, tasks, array, cut) in [
            ("12", 12, 1, false, false),
            ("12_3", 12, 1, true, false),
            ("12_[1-5%2]", 12, 5, true, false),
            ("9_[9201-10000%500]", 9, 800, true, false),
            ("42271120_[7-8%1]", 42_271_120, 2, true, false),
            ("6_[1,3,5-9:2]", 6, 5, true, false),
            ("6_[7]", 6, 1, true, false),
            ("6_[1,3,5-9,...]", 6, 7, true, true),
            ("6_[1,3,5-9,...", 6, 7, true, true),
            ("6_[1,3,5,...%5]", 6, 3, true, true),
            ("12+0", 12, 1, false, false),
        ] {
            assert_eq!(job_ref(text), Some(JobRef { id, tasks, array, cut }), "{text}");
        }
        for text in [
            "",
            "x",
            "12_",
            "12_[",
            "12_[]",
            "12_[5-1]",
            "_3",
            "12_[1-5%]",
            "12+",
            "-1",
            "12_a",
            "99999999999",
            "12_[1-5:0]",
        ] {
            assert_eq!(job_ref(text), None, "{text}");
        }
    }
}
