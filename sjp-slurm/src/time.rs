//! Times, durations and limits as Slurm prints them.

use crate::Problem;
use jiff::civil;
use jiff::tz::TimeZone;
use sjp_core::units::Limit;

/// A point in time as Unix seconds; `None` for `Unknown`, `None`, `N/A` and
/// the like. `zone` is the time zone of the machine where Slurm printed.
///
/// # Errors
/// [`Problem::RelativeTime`], where the text is no full date and time: then a
/// `SLURM_TIME_FORMAT` of the caller's leaked into the command.
pub fn instant(key: &'static str, text: &str, zone: &TimeZone) -> Result<Option<i64>, Problem> {
    if crate::unset(text) || matches!(text, "Unknown" | "\"None\"" | "UNLIMITED" | "NOT_SET") {
        return Ok(None);
    }
    let bad = || Problem::RelativeTime { key, value: crate::excerpt(text) };
    if text.len() >= 6 && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map(Some).map_err(|_| bad());
    }
    let civil = civil_time(text).ok_or_else(bad)?;
    zone.to_ambiguous_timestamp(civil).compatible().map(|t| Some(t.as_second())).map_err(|_| bad())
}

/// `2026-11-30T16:40:09`, nothing else.
fn civil_time(text: &str) -> Option<civil::DateTime> {
    let b = text.as_bytes();
    if b.len() != 19 || b[4] != b'-' || b[7] != b'-' || b[10] != b'T' {
        return None;
    }
    if b[13] != b':' || b[16] != b':' {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i16> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let small = |from: usize| number(from, from + 2).and_then(|n| i8::try_from(n).ok());
    civil::DateTime::new(
        number(0, 4)?,
        small(5)?,
        small(8)?,
        small(11)?,
        small(14)?,
        small(17)?.min(59),
        0,
    )
    .ok()
}

/// A duration in seconds: `1-02:03:04`, `2-12` (days and hours), `5:00:00`,
/// `30:00` (minutes and seconds), `45` (minutes).
#[must_use]
pub fn seconds(text: &str) -> Option<u64> {
    let number = |t: &str| -> Option<u64> {
        let fits = !t.is_empty() && t.len() <= 10 && t.bytes().all(|b| b.is_ascii_digit());
        if fits { t.parse().ok() } else { None }
    };
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(number(days)?), clock),
        None => (None, text),
    };
    let mut fields = [0u64; 3];
    let mut n = 0;
    for part in clock.split(':') {
        *fields.get_mut(n)? = number(part)?;
        n += 1;
    }
    let [a, b, c] = fields;
    Some(match (days, n) {
        (Some(d), 1) => (d * 24 + a) * 3600,
        (Some(d), 2) => (d * 24 + a) * 3600 + b * 60,
        (Some(d), _) => (d * 24 + a) * 3600 + b * 60 + c,
        (None, 1) => a * 60,
        (None, 2) => a * 60 + b,
        (None, _) => a * 3600 + b * 60 + c,
    })
}

/// A time limit in minutes, rounded up; unset for `Partition_Limit`, `NONE`,
/// `N/A` and the like.
///
/// # Errors
/// [`Problem::Value`], where it is no limit (`INVALID` is none either).
pub fn limit(key: &'static str, text: &str) -> Result<Limit, Problem> {
    if crate::unset(text) || matches!(text, "NOT_SET" | "Partition_Limit" | "PARTITION_LIMIT") {
        return Ok(Limit::Unset);
    }
    if matches!(text, "UNLIMITED" | "INFINITE" | "infinite") {
        return Ok(Limit::Unlimited);
    }
    seconds(text).and_then(|s| u32::try_from(s.div_ceil(60)).ok()).map(Limit::At).ok_or_else(|| {
        Problem::Value {
            key,
            value: crate::excerpt(text),
            want: "a time limit (days-hours:minutes:seconds)",
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_every_printed_form() {
        for (text, want) in [
            ("7-15:37:35", Some(661_055)),
            ("2-05:32:24", Some(192_744)),
            ("2-12", Some(216_000)),
            ("1-02:30", Some(95_400)),
            ("5:00:00", Some(18_000)),
            ("30:00", Some(1_800)),
            ("2:43", Some(163)),
            ("45", Some(2_700)),
            ("365-00:00:00", Some(31_536_000)),
            ("INVALID", None),
            ("", None),
            ("1:2:3:4", None),
            ("-5", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(seconds(text), want, "{text}");
        }
    }

    #[test]
    fn limits() {
        for (text, want) in [
            ("20-20:00:00", Limit::At(30_000)),
            ("20:00", Limit::At(20)),
            ("00:00:30", Limit::At(1)),
            ("UNLIMITED", Limit::Unlimited),
            ("INFINITE", Limit::Unlimited),
            ("Partition_Limit", Limit::Unset),
            ("N/A", Limit::Unset),
            ("NONE", Limit::Unset),
        ] {
            assert_eq!(limit("TimeLimit", text), Ok(want), "{text}");
        }
        assert!(limit("TimeLimit", "INVALID").is_err());
    }

    #[test]
    fn points_in_time() {
        let utc = TimeZone::UTC;
        let berlin = TimeZone::fixed(jiff::tz::offset(1));
        assert_eq!(instant("T", "2026-11-30T16:40:09", &utc), Ok(Some(1_796_056_809)));
        assert_eq!(instant("T", "2026-11-30T17:40:09", &berlin), Ok(Some(1_796_056_809)));
        assert_eq!(instant("T", "1796056809", &utc), Ok(Some(1_796_056_809)));
        for none in ["Unknown", "None", "N/A", "(null)", "", "NONE"] {
            assert_eq!(instant("T", none, &utc), Ok(None), "{none}");
        }
        for bad in ["14:24:22", "Tomorr 14:24", "30 Nov 16:40", "2026-13-30T16:40:09", "Jan 3"] {
            assert!(matches!(instant("T", bad, &utc), Err(Problem::RelativeTime { .. })), "{bad}");
        }
    }
}
