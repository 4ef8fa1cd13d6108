//! What accounting adds to a cluster, and when it counts at all: CPU caps of
//! QOS, and users whose associations are bound to partitions.

use crate::ports::{Associations, UserQos};
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

/// Who may use which QOS in `cluster`: the rows of users, still without uids.
#[must_use]
pub fn users_of(associations: &[Assoc], cluster: &str) -> Vec<UserQos> {
    let here = |a: &&Assoc| a.cluster.as_deref().is_none_or(|c| c.eq_ignore_ascii_case(cluster));
    let row = |a: &Assoc| {
        Some(UserQos {
            uid: 0,
            user: a.user.clone()?,
            account: a.account.clone(),
            partition: a.partition.clone(),
            qos: a.qos.clone(),
        })
    };
    associations.iter().filter(here).filter_map(row).collect()
}

/// Both with uids; users whom this host does not know are left out, and named.
/// May ask a directory service: not to be called on the loop's thread.
#[must_use]
pub fn with_uids(
    bound: Vec<(String, String, Vec<String>)>,
    users: Option<Vec<UserQos>>,
) -> (Associations, Vec<String>) {
    let mut uids: BTreeMap<String, Option<u32>> = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    let mut find = |user: &str| {
        let ask = || nix::unistd::User::from_name(user).ok().flatten().map(|u| u.uid.as_raw());
        let uid = *uids.entry(user.to_owned()).or_insert_with(ask);
        if uid.is_none() {
            unknown.insert(user.to_owned());
        }
        uid
    };
    let bound = bound
        .into_iter()
        .filter_map(|(user, account, partitions)| Some((find(&user)?, Some(account), partitions)))
        .collect();
    let known = |row: UserQos, uid: Option<u32>| Some(UserQos { uid: uid?, ..row });
    let qos = users.map(|rows| {
        let with_uid = |row: UserQos| {
            let uid = find(&row.user);
            known(row, uid)
        };
        rows.into_iter().filter_map(with_uid).collect()
    });
    (Associations { bound, qos, errors: Vec::new() }, unknown.into_iter().collect())
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
        let rows = ["root", "no such user here"].map(|user| Assoc {
            cluster: Some("here".into()),
            account: "a".into(),
            user: Some(user.into()),
            qos: vec!["flex".into()],
            ..Assoc::default()
        });
        let elsewhere = Assoc { cluster: Some("there".into()), ..rows[0].clone() };
        let account = Assoc { user: None, ..rows[0].clone() };
        let users = users_of(&[rows[0].clone(), rows[1].clone(), elsewhere, account], "Here");
        assert_eq!(users.len(), 2);
        let bound = vec![list("root"), list("no such user here")];
        let (read, unknown) = with_uids(bound, Some(users));
        assert_eq!(read.bound, [(0, Some("a".to_owned()), vec!["slim".to_owned()])]);
        let qos = read.qos.unwrap();
        assert_eq!(qos.len(), 1);
        assert_eq!((qos[0].uid, qos[0].user.as_str(), qos[0].qos.len()), (0, "root", 1));
        assert_eq!(unknown, ["no such user here"]);
    }
}
