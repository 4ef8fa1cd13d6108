//! What nodes have been promised since the rooms were published: the sum of
//! the claims by node.

use crate::publication::{Claim, Promised};

/// Promised room by node, sorted by node.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    nodes: Vec<Promised>,
}

impl Promises {
    /// Nothing promised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything; keeps its memory.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Adds one claim.
    pub fn add(&mut self, claim: &Claim) {
        self.promise(claim.node, claim.cpus, claim.mem);
    }

    /// Adds `cpus` CPUs and `mem` MB on `node`.
    pub fn promise(&mut self, node: u32, cpus: u32, mem: u32) {
        match self.nodes.binary_search_by_key(&node, |p| p.node) {
            Ok(i) => {
                if let Some(p) = self.nodes.get_mut(i) {
                    p.cpus = p.cpus.saturating_add(cpus);
                    p.mem = p.mem.saturating_add(mem);
                }
            }
            Err(i) => self.nodes.insert(i, Promised { node, cpus, mem }),
        }
    }

    /// Takes a promise back: the same numbers as it was made with.
    pub fn take_back(&mut self, node: u32, cpus: u32, mem: u32) {
        if let Ok(i) = self.nodes.binary_search_by_key(&node, |p| p.node)
            && let Some(p) = self.nodes.get_mut(i)
        {
            p.cpus = p.cpus.saturating_sub(cpus);
            p.mem = p.mem.saturating_sub(mem);
        }
    }

    /// What `node` was promised: CPUs and MB.
    #[must_use]
    pub fn of(&self, node: u32) -> (u32, u32) {
        let found = self.nodes.binary_search_by_key(&node, |p| p.node).ok();
        found.and_then(|i| self.nodes.get(i)).map_or((0, 0), |p| (p.cpus, p.mem))
    }

    /// One entry a node, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[Promised] {
        &self.nodes
    }
}
