//! What accounting adds to a cluster, and when it counts at all: CPU caps of
//! QOS, and users whose associations are bound to partitions.

use crate::ports::BoundUser;
use sjp_core::cluster::{QosCaps, SlurmConfig};
use sjp_slurm::accounting::Assoc;
use std::collections::{BTreeMap, BTreeSet};

/// Which parts of accounting slurmctld enforces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// There is an accounting storage to ask.
    pub stored: bool,
    /// A job needs an association.
    pub associations: bool,
    /// Limits of QOS and associations hold.
    pub limits: bool,
}

impl Enforced {
    /// By Slurm's settings.
    #[must_use]
    pub fn from(config: &SlurmConfig) -> Self {
        let find = |key: &str| config.all.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        let stored = match find("AccountingStorageType") {
            None | Some("" | "(null)") => false,
            Some(kind) => !kind.ends_with("/none"),
        };
        let any = |words: &[&str]| {
            config
                .accounting_enforce
                .iter()
                .any(|e| words.iter().any(|w| e.eq_ignore_ascii_case(w)))
        };
        let limits = any(&["limits", "safe", "all"]);
        Self {
            stored,
            associations: stored
                && (limits || any(&["associations", "qos", "wckeys", "nojobs", "nosteps"])),
            limits: stored && limits,
        }
    }
}

/// Caps as they count: none where limits are not enforced.
#[must_use]
pub fn counting(caps: Vec<QosCaps>, enforced: Enforced) -> Vec<QosCaps> {
    if enforced.limits {
        return caps;
    }
    let bare = |caps: QosCaps| QosCaps { name: caps.name, ..QosCaps::default() };
    caps.into_iter().map(bare).collect()
}

/// Users who have, in some account of `cluster`, associations for single
/// partitions: user, account, and those partitions (none where another
/// association lets the user into all).
#[must_use]
pub fn bound(associations: &[Assoc], cluster: &str) -> Vec<(String, String, Vec<String>)> {
    let mut by_user: BTreeMap<(&str, &str), (bool, BTreeSet<&str>)> = BTreeMap::new();
    for row in associations {
        let Some(user) = &row.user else { continue };
        if row.cluster.as_deref().is_some_and(|c| !c.eq_ignore_ascii_case(cluster)) {
            continue;
        }
        let entry = by_user.entry((user, &row.account)).or_default();
        match &row.partition {
            Some(partition) => _ = entry.1.insert(partition),
            None => entry.0 = true,
        }
    }
    by_user
        .into_iter()
        .filter(|(_, (_, partitions))| !partitions.is_empty())
        .map(|((user, account), (everywhere, partitions))| {
            let only = partitions.into_iter().filter(|_| !everywhere).map(str::to_owned);
            (user.to_owned(), account.to_owned(), only.collect())
        })
        .collect()
}

/// The same with uids; users whom this host does not know are left out, and
/// named. May ask a directory service: not to be called on the loop's thread.
#[must_use]
pub fn with_uids(bound: Vec<(String, String, Vec<String>)>) -> (Vec<BoundUser>, Vec<String>) {
    let mut uids: BTreeMap<String, Option<u32>> = BTreeMap::new();
    let (mut users, mut unknown) = (Vec::new(), BTreeSet::new());
    for (user, account, partitions) in bound {
        let uid = *uids.entry(user.clone()).or_insert_with(|| {
            nix::unistd::User::from_name(&user).ok().flatten().map(|u| u.uid.as_raw())
        });
        match uid {
            Some(uid) => users.push((uid, Some(account), partitions)),
            None => _ = unknown.insert(user),
        }
    }
    (users, unknown.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(storage: &str, enforce: &[&str]) -> SlurmConfig {
        SlurmConfig {
            accounting_enforce: enforce.iter().map(|s| (*s).to_owned()).collect(),
            all: vec![("AccountingStorageType".into(), storage.into())],
            ..SlurmConfig::default()
        }
    }

    #[test]
    fn what_counts_follows_slurm_s_settings() {
        let slurmdbd = "accounting_storage/slurmdbd";
        let all = Enforced { stored: true, associations: true, limits: true };
        assert_eq!(Enforced::from(&config(slurmdbd, &["associations", "limits", "qos"])), all);
        assert_eq!(Enforced::from(&config(slurmdbd, &["safe"])), all);
        let no_limits = Enforced { limits: false, ..all };
        assert_eq!(Enforced::from(&config(slurmdbd, &["associations"])), no_limits);
        assert_eq!(Enforced::from(&config(slurmdbd, &["qos"])), no_limits);
        let stored = Enforced { stored: true, ..Enforced::default() };
        assert_eq!(Enforced::from(&config(slurmdbd, &["none"])), stored);
        for none in ["accounting_storage/none", "(null)", ""] {
            assert_eq!(Enforced::from(&config(none, &["limits"])), Enforced::default());
        }
    }

    #[test]
    fn caps_that_nobody_enforces_do_not_count() {
        let caps = QosCaps {
            name: "q".into(),
            max_cpus_per_user: Some(8),
            can_reject: true,
            ..QosCaps::default()
        };
        let limits = Enforced { stored: true, associations: true, limits: true };
        assert_eq!(counting(vec![caps.clone()], limits), std::slice::from_ref(&caps));
        let bare = counting(vec![caps], Enforced { limits: false, ..limits });
        assert_eq!(bare, [QosCaps { name: "q".into(), ..QosCaps::default() }]);
    }

    #[test]
    fn bound_is_who_has_an_association_for_a_partition() {
        let row = |cluster: &str, account: &str, user: &str, partition: &str| Assoc {
            cluster: Some(cluster.into()),
            account: account.into(),
            user: Some(user.into()).filter(|u: &String| !u.is_empty()),
            partition: Some(partition.into()).filter(|p: &String| !p.is_empty()),
            ..Assoc::default()
        };
        let rows = [
            row("here", "a", "", ""),
            row("here", "a", "anna", "slim"),
            row("here", "a", "anna", "fat"),
            row("here", "b", "anna", ""),
            row("here", "a", "bert", "slim"),
            row("here", "a", "bert", ""),
            row("there", "a", "cleo", "slim"),
        ];
        let anna = ("anna".to_owned(), "a".to_owned(), vec!["fat".to_owned(), "slim".to_owned()]);
        let bert = ("bert".to_owned(), "a".to_owned(), Vec::new());
        assert_eq!(bound(&rows, "Here"), [anna, bert]);
    }

    #[test]
    fn users_become_uids_and_unknown_ones_are_named() {
        let list = |user: &str| (user.to_owned(), "a".to_owned(), vec!["slim".to_owned()]);
        let (users, unknown) = with_uids(vec![list("root"), list("no such user here")]);
        assert_eq!(users, [(0, Some("a".to_owned()), vec!["slim".to_owned()])]);
        assert_eq!(unknown, ["no such user here"]);
    }
}
