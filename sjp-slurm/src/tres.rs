//! Amounts: memory with units, TRES lists (`cpu=4,mem=16G,gres/gpu=2`) and
//! generic resources (`gpu:a100:4(S:0-1)`).

use sjp_core::units::MemMb;

/// A number with Slurm's unit suffix (`62.50G`, `112.50T`, `16384M`, `1024`),
/// in MB; without a suffix it is MB.
#[must_use]
pub fn mem(text: &str) -> Option<MemMb> {
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() || number.len() > 24 {
        return None;
    }
    let factor = match unit {
        "" | "M" | "MB" => 1.0,
        "K" => 1.0 / 1024.0,
        "G" => 1024.0,
        "T" => 1024.0 * 1024.0,
        "P" => 1024.0 * 1024.0 * 1024.0,
        "E" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    if factor == 1.0 && !number.contains('.') {
        return number.parse().ok().map(MemMb);
    }
    let mb = (number.parse::<f64>().ok()? * factor).ceil();
    // Beyond this a double is no longer exact, and no node has it.
    (mb <= 9_007_199_254_740_992.0).then_some(MemMb(mb as u64))
}

/// A count with Slurm's unit suffix for counts (`2K` is 2048).
#[must_use]
pub fn count(text: &str) -> Option<u64> {
    let (number, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        b'g' | b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1u64),
    };
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The value of one name in a TRES list, as printed.
#[must_use]
pub fn get<'a>(tres: &'a str, name: &str) -> Option<&'a str> {
    tres.split(',').find_map(|item| item.strip_prefix(name)?.strip_prefix('='))
}

/// The number of GPUs in a `Gres` or `GresUsed` value, over all types:
/// `gpu:a:2(S:0,1),gpu:b:2`, `gpu:8`, `gpu`. `None` where a GPU entry cannot
/// be read.
#[must_use]
pub fn gpus(gres: &str) -> Option<u32> {
    if crate::unset(gres) {
        return Some(0);
    }
    let mut total = 0u32;
    for entry in entries(gres) {
        let entry = entry.strip_prefix("gres:").or(entry.strip_prefix("gres/")).unwrap_or(entry);
        let Some(rest) = entry.strip_prefix("gpu") else { continue };
        let n = match rest.as_bytes().first() {
            None => 1,
            Some(b'(') => 1,
            Some(b':') => {
                let counted = rest.split('(').next().unwrap_or(rest);
                let last = counted.rsplit(':').next().unwrap_or(counted);
                match count(last) {
                    Some(n) => u32::try_from(n).ok()?,
                    // A type without a count is one of it.
                    None if counted.matches(':').count() == 1 => 1,
                    None => return None,
                }
            }
            // gpumem and the like.
            Some(_) => continue,
        };
        total = total.checked_add(n)?;
    }
    Some(total)
}

/// Comma-separated entries; commas within parentheses do not separate.
fn entries(gres: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    gres.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_with_units() {
        for (text, want) in [
            ("62.50G", Some(64_000)),
            ("112.50T", Some(117_964_800)),
            ("1312.50G", Some(1_344_000)),
            ("2T", Some(2_097_152)),
            ("16384M", Some(16_384)),
            ("1024", Some(1_024)),
            ("0G", Some(0)),
            ("10.5G", Some(10_752)),
            ("2048K", Some(2)),
            ("", None),
            ("G", None),
            ("1.2.3G", None),
            ("12X", None),
            ("-4G", None),
        ] {
            assert_eq!(mem(text).map(|m| m.0), want, "{text}");
        }
    }

    #[test]
    fn gpus_of_every_form() {
        for (text, want) in [
            ("(null)", Some(0)),
            ("gpu:8", Some(8)),
            ("gpu:model_a:2,gpu:model_b:2", Some(4)),
            ("gpu:NVlink_A100_40GB:4(S:0-1)", Some(4)),
            ("gpu:tesla:2(S:0,1),shard:h10", Some(2)),
            ("gpu:nvidia_a100_1g.5gb:0(IDX:N/A)", Some(0)),
            ("gpu:tesla_v100-sxm3-32gb:13(IDX:0-3,5-7,9-11,13-15)", Some(13)),
            ("gpu", Some(1)),
            ("gpu:tesla", Some(1)),
            ("gres:gpu:tesla:2", Some(2)),
            ("shard:4,gpumem:80G", Some(0)),
            ("gpu:a:b:c", None),
        ] {
            assert_eq!(gpus(text), want, "{text}");
        }
    }

    #[test]
    fn tres_lists() {
        let list = "cpu=192,mem=1312.50G,node=1,gres/gpu=8,gres/gpu:a100=8";
        assert_eq!(get(list, "cpu"), Some("192"));
        assert_eq!(get(list, "gres/gpu"), Some("8"));
        assert_eq!(get(list, "mem"), Some("1312.50G"));
        assert_eq!(get(list, "pu"), None);
        assert_eq!(get("", "cpu"), None);
    }
}
