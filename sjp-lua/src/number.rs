//! Numbers of job_desc: Slurm's "unset" and "unlimited" in every width become
//! `None` here and nowhere else.
//!
//! Slurm hands every number over as a double. A field that nobody set holds
//! NO_VAL of its own width (8, 16, 32 or 64 bits); other versions hold another
//! width, or nothing at all. INFINITE counts as unset too, but for time
//! limits.

use mlua::Value;
use sjp_core::units::Limit;

/// How wide the field is in slurmctld, which tells which values mean unset:
/// the sentinels of its own width and of all larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// 8 and 16 bits. 8-bit NO_VAL (254) cannot be told from a number, and no
    /// field of 8 bits is read.
    W16,
    /// 32 bits.
    W32,
    /// 64 bits: memory in MB, times. The 32-bit sentinels (4 PB, the year 2106)
    /// are unset here too.
    W64,
}

const NO_VAL16: u64 = 0xfffe;
const INFINITE16: u64 = 0xffff;
const NO_VAL: u64 = 0xffff_fffe;
const INFINITE: u64 = 0xffff_ffff;
/// NO_VAL64 and INFINITE64 as doubles are 2^64; this is the double before.
const NEAR_NO_VAL64: u64 = 0xffff_ffff_ffff_f800;

/// What a Lua value is as a number that Slurm could mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// nil, a sentinel, or less than nothing.
    Unset,
    /// A number; fractions are cut off, as Slurm's own conversion does.
    Is(u64),
}

impl Number {
    /// The number, where there is one.
    pub(crate) fn get(self) -> Option<u64> {
        match self {
            Self::Unset => None,
            Self::Is(n) => Some(n),
        }
    }

    /// The number where there is one above zero.
    pub(crate) fn positive(self) -> Option<u64> {
        self.get().filter(|&n| n > 0)
    }
}

/// The whole, non-negative number in a Lua value. `Err`: neither nil nor a
/// number.
fn whole(value: &Value) -> Result<Option<u64>, &'static str> {
    match *value {
        Value::Nil => Ok(None),
        Value::Integer(i) => Ok(u64::try_from(i).ok()),
        // `as` saturates, and NaN is filtered by the comparison.
        Value::Number(f) if f >= 0.0 => Ok(Some(f as u64)),
        Value::Number(_) => Ok(None),
        ref other => Err(other.type_name()),
    }
}

/// Reads a numeric field. `Err` holds the type of a value that is neither nil
/// nor a number.
pub(crate) fn number(value: &Value, width: Width) -> Result<Number, &'static str> {
    Ok(match (whole(value)?, width) {
        (None | Some(NO_VAL | INFINITE | NEAR_NO_VAL64..), _)
        | (Some(NO_VAL16 | INFINITE16), Width::W16) => Number::Unset,
        (Some(n), _) => Number::Is(n),
    })
}

/// Reads a time limit in minutes: NO_VAL is unset, INFINITE unlimited.
pub(crate) fn time_limit(value: &Value) -> Result<Limit, &'static str> {
    Ok(match whole(value)? {
        None | Some(NO_VAL | NEAR_NO_VAL64..) => Limit::Unset,
        Some(INFINITE) => Limit::Unlimited,
        // Longer than Slurm can say: longer than any partition allows.
        Some(n) => Limit::At(u32::try_from(n).unwrap_or(NO_VAL as u32 - 1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentinel_is_unset() {
        let two_64 = 18_446_744_073_709_551_616.0;
        for width in [Width::W16, Width::W32, Width::W64] {
            for value in [
                Value::Nil,
                Value::Number(4_294_967_294.0),
                Value::Number(4_294_967_295.0),
                Value::Integer(4_294_967_294),
                Value::Integer(4_294_967_295),
                Value::Number(two_64),
                Value::Number(two_64 - 2048.0),
                Value::Number(f64::INFINITY),
                Value::Number(f64::NEG_INFINITY),
                Value::Number(f64::NAN),
                Value::Integer(-1),
                Value::Number(-2.0),
            ] {
                assert_eq!(number(&value, width), Ok(Number::Unset), "{value:?} as {width:?}");
            }
        }
        for sentinel in [65_534, 65_535] {
            assert_eq!(number(&Value::Integer(sentinel), Width::W16), Ok(Number::Unset));
            assert_eq!(
                number(&Value::Integer(sentinel), Width::W64),
                Ok(Number::Is(u64::try_from(sentinel).unwrap())),
                "an amount of memory like any other"
            );
        }
    }

    #[test]
    fn numbers_arrive_as_floats_and_as_integers() {
        assert_eq!(number(&Value::Number(4.0), Width::W16), Ok(Number::Is(4)));
        assert_eq!(number(&Value::Integer(4), Width::W32), Ok(Number::Is(4)));
        assert_eq!(number(&Value::Number(0.0), Width::W64), Ok(Number::Is(0)));
        assert_eq!(number(&Value::Boolean(true), Width::W16), Err("boolean"));
        assert_eq!(
            number(&Value::Integer(5_000_000_000), Width::W32),
            Ok(Number::Is(5_000_000_000))
        );
        assert_eq!(Number::Is(0).positive(), None);
        assert_eq!(Number::Is(3).positive(), Some(3));
    }

    #[test]
    fn time_limits_tell_unset_from_unlimited() {
        assert_eq!(time_limit(&Value::Nil), Ok(Limit::Unset));
        assert_eq!(time_limit(&Value::Number(4_294_967_294.0)), Ok(Limit::Unset));
        assert_eq!(time_limit(&Value::Number(4_294_967_295.0)), Ok(Limit::Unlimited));
        assert_eq!(time_limit(&Value::Integer(60)), Ok(Limit::At(60)));
        assert_eq!(time_limit(&Value::Number(f64::INFINITY)), Ok(Limit::Unset));
        assert_eq!(time_limit(&Value::Number(-1.0)), Ok(Limit::Unset));
    }
}
