//! Placeable capacity: how many CPUs of a free shape the work that typically
//! arrives could use, and what a job takes away from that.

use crate::config::Demand;
use crate::publication::MEM_UNMANAGED;

/// phi of a free shape: the sum over the mix of `w * min(cpus, mem / q)`.
///
/// `cpus` in CPUs, `mem` in MB (`MEM_UNMANAGED`: memory refuses nothing).
/// The result is in placeable CPUs, between 0 and `cpus` for a mix whose
/// weights add up to one.
#[must_use]
pub fn phi(mix: &[Demand], cpus: u32, mem: u32) -> f64 {
    let cpus = f64::from(cpus);
    if mem == MEM_UNMANAGED {
        return mix.iter().map(|d| d.weight * cpus).sum();
    }
    let mem = f64::from(mem);
    mix.iter().map(|d| d.weight * cpus.min(mem / d.mb_per_cpu)).sum()
}

/// A demand mix with the divisions done once: what the hot path uses.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    /// Weights and weights / MB per CPU, in blocks of equal length; the rest
    /// of the last block is zero and adds nothing.
    blocks: Vec<([f64; BLOCK], [f64; BLOCK])>,
}

const BLOCK: usize = 8;
/// Memory that is not managed, as a number: more than any mix could use.
pub const BOUNDLESS: f64 = 1e30;

impl Mix {
    /// From the settings.
    #[must_use]
    pub fn new(mix: &[Demand]) -> Self {
        Self::default().reuse(mix)
    }

    /// The same from other settings, in the memory of this one.
    #[must_use]
    pub fn reuse(mut self, mix: &[Demand]) -> Self {
        self.blocks.clear();
        for chunk in mix.chunks(BLOCK) {
            let mut block = ([0.0; BLOCK], [0.0; BLOCK]);
            for ((d, w), per_mb) in chunk.iter().zip(&mut block.0).zip(&mut block.1) {
                *w = d.weight;
                *per_mb = d.weight / d.mb_per_cpu;
            }
            self.blocks.push(block);
        }
        self
    }

    /// phi, as [`phi`].
    #[inline]
    #[must_use]
    pub fn phi(&self, cpus: u32, mem: u32) -> f64 {
        let c = f64::from(cpus);
        // Finite, so that 0 times it is 0 in the padding.
        let m = if mem == MEM_UNMANAGED { BOUNDLESS } else { f64::from(mem) };
        let mut sum = [0.0; BLOCK];
        for (weights, per_mb) in &self.blocks {
            for ((sum, w), p) in sum.iter_mut().zip(weights).zip(per_mb) {
                let (by_cpu, by_mem) = (w * c, p * m);
                *sum += if by_cpu < by_mem { by_cpu } else { by_mem };
            }
        }
        sum.iter().sum()
    }
}

impl Mix {
    /// Takes phi of each shape `(cpus, mem)` off the number at its place: many
    /// at a time, several in one instruction. Memory that is not managed is
    /// [`BOUNDLESS`]. The three are of one length.
    pub fn take_off(&self, cpus: &[f64], mem: &[f64], from: &mut [f64]) {
        for (weights, per_mb) in &self.blocks {
            for (w, p) in weights.iter().zip(per_mb) {
                if *w == 0.0 {
                    continue;
                }
                for ((c, m), from) in cpus.iter().zip(mem).zip(from.iter_mut()) {
                    let (by_cpu, by_mem) = (w * c, p * m);
                    *from -= if by_cpu < by_mem { by_cpu } else { by_mem };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policy;
    use proptest::prelude::*;

    #[test]
    fn an_empty_slim_node_is_worth_what_its_memory_feeds() {
        // 64 CPUs, 256,000 MB = 4,000 MB per CPU: 800 and 1280 use all 64
        // CPUs; 4267 uses 59.995.., 7680 33.33.., 14178 18.056.., 30720 8.33...
        let by_hand = 0.10 * 64.0
            + 0.15 * 64.0
            + 0.25 * (256_000.0 / 4267.0)
            + 0.25 * (256_000.0 / 7680.0)
            + 0.15 * (256_000.0 / 14178.0)
            + 0.10 * (256_000.0 / 30720.0);
        let got = phi(&Policy::default().demand, 64, 256_000);
        assert!((got - by_hand).abs() < 1e-9, "{got} {by_hand}");
    }

    proptest! {
        #[test]
        fn both_forms_agree(c in 0u32..4096, m in 0u32..8_000_000) {
            let mix = Policy::default().demand;
            prop_assert!((phi(&mix, c, m) - Mix::new(&mix).phi(c, m)).abs() < 1e-6);
        }

        #[test]
        fn many_at_once_are_the_same(shapes in proptest::collection::vec((0u32..512, 0u32..2_000_000), 0..600)) {
            let mix = Mix::new(&Policy::default().demand);
            let (cpus, mem): (Vec<f64>, Vec<f64>) =
                shapes.iter().map(|&(c, m)| (f64::from(c), f64::from(m))).unzip();
            let mut left = vec![100.0; shapes.len()];
            mix.take_off(&cpus, &mem, &mut left);
            for ((c, m), left) in shapes.into_iter().zip(left) {
                prop_assert!((100.0 - mix.phi(c, m) - left).abs() < 1e-9);
            }
        }

        #[test]
        fn more_room_is_never_worth_less(c in 0u32..512, m in 0u32..2_000_000, dc in 0u32..64, dm in 0u32..100_000) {
            let mix = Mix::new(&Policy::default().demand);
            prop_assert!(mix.phi(c + dc, m + dm) >= mix.phi(c, m) - 1e-9);
            prop_assert!(mix.phi(c, m) <= f64::from(c) + 1e-9);
        }
    }
}
