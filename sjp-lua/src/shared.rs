//! What one process shares between its Lua states: the attached table, the
//! promises made since it was published, and the scratch memory.

use crate::failure::Failure;
use crate::log::Limiter;
use sjp_core::decision::Reason;
use sjp_core::place::Scratch;
use sjp_core::promises::Promises;
use sjp_core::publication::Claim;
use sjp_table::{AttachError, Damage, LINK_NAME, Reader};
use std::path::{Path, PathBuf};

/// Attaching is tried at most this often.
const ATTACH_PAUSE_NS: u64 = 1_000_000_000;
/// Data older than this makes the module look for a newer table, while it
/// still answers from the one it has.
const LOOK_AGAIN_NS: u64 = 3_000_000_000;

/// The attached table and what goes with it. Behind a mutex that is only ever
/// tried, never waited for.
#[derive(Default)]
pub struct Shared {
    attached: Option<Attached>,
    /// Where and when attaching was last tried.
    tried: Option<(PathBuf, u64)>,
    pub(crate) folded: Folded,
    pub(crate) scratch: Scratch,
    /// Partitions this user may use, by index.
    pub(crate) permitted: Vec<bool>,
    pub(crate) limiter: Limiter,
    counter: u64,
}

struct Attached {
    state_dir: PathBuf,
    reader: Reader,
}

/// The claims that the published rooms do not show yet, summed up by node.
#[derive(Default)]
pub(crate) struct Folded {
    /// Counts attachments, so that the sums of another table are not kept.
    table: u64,
    /// What the sums start from: (attachment, roster, claims taken by sjpd).
    base: (u64, u64, u64),
    /// Sequence number of the last claim in the sums.
    upto: u64,
    pub(crate) promises: Promises,
    buffer: Vec<Claim>,
}

impl Folded {
    /// Takes in the claims after those that the rooms of `base` account for,
    /// whoever wrote them. `base`: the roster, and how far sjpd has taken
    /// claims.
    pub(crate) fn update(&mut self, reader: &Reader, base: (u64, u64)) -> Result<(), Damage> {
        let (roster, taken) = base;
        let base = (self.table, roster, taken);
        if self.base != base {
            self.base = base;
            self.upto = taken;
            self.promises.clear();
        }
        self.buffer.clear();
        reader.claims_since(self.upto, &mut self.buffer)?;
        for claim in &self.buffer {
            self.upto = self.upto.max(claim.seq);
            // Node indices of another roster mean other nodes.
            if claim.roster == roster {
                self.promises.add(claim);
            }
        }
        Ok(())
    }
}

impl Shared {
    /// Nothing attached yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes sure that a table is attached, and looks for a newer one where
    /// this one is closed or its data grows old; at most once a second.
    /// `Some`: something for the log.
    pub(crate) fn attach(&mut self, state_dir: &Path, now_ns: u64) -> Option<Failure> {
        if self.attached.as_ref().is_some_and(|a| a.state_dir != state_dir) {
            self.attached = None;
        }
        let content = self.attached.as_ref().is_some_and(|a| {
            !a.reader.is_closed()
                && a.reader
                    .read(|view| view.meta().data_time_ns)
                    .is_ok_and(|at| now_ns.saturating_sub(at) < LOOK_AGAIN_NS)
        });
        let just_tried = self.tried.as_ref().is_some_and(|(path, at)| {
            path == state_dir && now_ns.saturating_sub(*at) < ATTACH_PAUSE_NS
        });
        if content || just_tried {
            return None;
        }
        self.tried = Some((state_dir.to_owned(), now_ns));
        match Reader::attach(&state_dir.join(LINK_NAME)) {
            Ok(reader) => {
                self.folded.table = self.folded.table.wrapping_add(1);
                self.attached = Some(Attached { state_dir: state_dir.to_owned(), reader });
                None
            }
            // A table that is still open and young is kept: its own age
            // decides. A closed one is of no use: nobody reads its claims.
            Err(error) => {
                if self.attached.as_ref().is_some_and(|a| a.reader.is_closed()) {
                    self.attached = None;
                }
                is_news(&error).then(|| Failure::Table {
                    state_dir: state_dir.display().to_string(),
                    why: error.to_string(),
                })
            }
        }
    }

    /// The attached table, and the sums and scratch that go with it.
    pub(crate) fn table(&mut self) -> Result<Table<'_>, Reason> {
        let Self { attached, folded, scratch, permitted, .. } = self;
        match attached {
            Some(a) if !a.reader.is_closed() => {
                Ok(Table { reader: &mut a.reader, folded, scratch, permitted })
            }
            _ => Err(Reason::NoTable),
        }
    }

    /// Forgets the table, so that the next call looks for it again.
    pub(crate) fn detach(&mut self) {
        self.attached = None;
    }

    /// An id for a claim: no two alike, in this process or another.
    pub(crate) fn claim_id(&mut self, now_ns: u64) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        let pid = u64::from(std::process::id());
        scatter(scatter(now_ns ^ (pid << 40)).wrapping_add(self.counter))
    }
}

/// What a decision reads and writes.
pub(crate) struct Table<'a> {
    pub(crate) reader: &'a mut Reader,
    pub(crate) folded: &'a mut Folded,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) permitted: &'a mut Vec<bool>,
}

/// Whether the log should say it. That there is no sjpd, or that it is about
/// to start or has stopped, is no fault.
fn is_news(error: &AttachError) -> bool {
    !matches!(
        error,
        AttachError::NoTable { .. } | AttachError::Dangling { .. } | AttachError::Closed { .. }
    )
}

/// One step of splitmix64: every input has its own output, and neighbours are
/// far apart.
fn scatter(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn claim_ids_differ() {
        let mut shared = Shared::new();
        let ids: HashSet<u64> =
            (0..20_000_u64).map(|i| shared.claim_id(1_000_000 + i / 100)).collect();
        assert_eq!(ids.len(), 20_000);
    }
}
