//! Who may use which QOS, by associations.

use crate::ports::UserQos;
use sjp_core::cluster::Job;
use sjp_core::limits::flex::May;
use std::collections::HashMap;

/// Associations by user and account.
#[derive(Debug, Default)]
pub struct Access {
    known: bool,
    rows: HashMap<(u32, String), Vec<UserQos>>,
}

impl Access {
    /// By what was read; `None`: nothing is known.
    #[must_use]
    pub fn new(read: Option<&[UserQos]>) -> Self {
        let mut access = Self { known: read.is_some(), rows: HashMap::new() };
        for row in read.unwrap_or_default() {
            access.rows.entry((row.uid, row.account.clone())).or_default().push(row.clone());
        }
        access
    }

    /// Whether the job's user may use `qos` in all of the job's partitions. An
    /// association for a partition counts there before the one for all.
    #[must_use]
    pub fn may(&self, job: &Job, qos: &str) -> May {
        let (true, Some(account)) = (self.known, &job.account) else { return May::Unknown };
        let rows = self.rows.get(&(job.uid, account.clone())).map_or(&[][..], Vec::as_slice);
        let lets = |row: &UserQos| row.qos.iter().any(|q| q.eq_ignore_ascii_case(qos));
        let allowed = |partition: &String| {
            let of = |row: &&UserQos| row.partition.as_ref() == Some(partition);
            let own = rows.iter().find(of);
            own.or_else(|| rows.iter().find(|r| r.partition.is_none())).is_some_and(lets)
        };
        if job.partitions.iter().all(allowed) { May::Yes } else { May::No }
    }

    /// The name of a user.
    #[must_use]
    pub fn name(&self, uid: u32, account: &str) -> Option<&str> {
        let rows = self.rows.get(&(uid, account.to_owned()))?;
        rows.first().map(|row| row.user.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_association_for_the_partition_counts_first() {
        let row = |uid, account: &str, partition: Option<&str>, qos: &[&str]| UserQos {
            uid,
            user: format!("u{uid}"),
            account: account.into(),
            partition: partition.map(str::to_owned),
            qos: qos.iter().map(|q| (*q).to_owned()).collect(),
        };
        let rows = [
            row(1, "a", None, &["normal", "flex"]),
            row(1, "b", None, &["normal"]),
            row(2, "a", None, &["flex"]),
            row(2, "a", Some("fat"), &["normal"]),
            row(3, "a", Some("fat"), &["flex"]),
        ];
        let access = Access::new(Some(&rows));
        let may = |uid, account: &str, partitions: &[&str]| {
            let job = Job {
                uid,
                account: Some(account.into()),
                partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
                ..Job::default()
            };
            access.may(&job, "flex")
        };
        assert_eq!(may(1, "a", &["slim", "fat"]), May::Yes);
        assert_eq!(may(1, "b", &["slim"]), May::No);
        assert_eq!(may(2, "a", &["slim"]), May::Yes);
        assert_eq!(may(2, "a", &["slim", "fat"]), May::No);
        assert_eq!(may(3, "a", &["fat"]), May::Yes);
        assert_eq!(may(3, "a", &["slim"]), May::No);
        assert_eq!(may(4, "a", &["slim"]), May::No);
        assert_eq!(access.may(&Job::default(), "flex"), May::Unknown, "no account");
        assert_eq!(Access::default().may(&Job::default(), "flex"), May::Unknown);
        assert_eq!((access.name(2, "a"), access.name(2, "b")), (Some("u2"), None));
    }
}
