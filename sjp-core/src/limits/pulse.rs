//! Pulses: the CPU caps of a QOS are raised for a while, and given back.
//!
//! What was raised is recorded before it is raised. From the record, and from
//! the caps as they are now, it can always be told what is to be given back: a
//! cap that still is what sjp raised it to. Any other value is an admin's.

use super::{Cap, Settings, Trial, View, can_be_judged, held, idle};
use crate::mark::Mark;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The CPU caps of a QOS; `None`: not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// `MaxTRESPerUser` cpu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// `MaxTRESPerAccount` cpu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<u32>,
}

impl Caps {
    /// Whether none is set.
    #[must_use]
    pub fn none(&self) -> bool {
        self.user.is_none() && self.account.is_none()
    }
}

/// A pulse, as recorded: the caps that were raised, before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// What they were.
    pub base: Caps,
    /// What they were raised to.
    pub raised: Caps,
    /// When, Unix seconds.
    pub at: i64,
}

impl Raised {
    /// The pulse that raises caps that are `now`, at `at` (Unix seconds) to
    /// `ceiling` times that; `None`: nothing would rise.
    #[must_use]
    pub fn from(now: Caps, ceiling: f64, at: i64) -> Option<Self> {
        let lift = |cap: Option<u32>| {
            let cap = cap?;
            // Saturates.
            let to = (f64::from(cap) * ceiling).floor() as u32;
            (to > cap).then_some((cap, to))
        };
        let (user, account) = (lift(now.user), lift(now.account));
        let base = Caps { user: user.map(|u| u.0), account: account.map(|a| a.0) };
        let raised = Caps { user: user.map(|u| u.1), account: account.map(|a| a.1) };
        (!base.none()).then_some(Self { base, raised, at })
    }

    /// What is to be set to give back what still is as it was raised, where the
    /// caps are `now`. None set: nothing is left to give back.
    #[must_use]
    pub fn to_give_back(&self, now: Caps) -> Caps {
        let back = |base, raised: Option<u32>, now| {
            if raised.is_some() && raised == now { base } else { None }
        };
        Caps {
            user: back(self.base.user, self.raised.user, now.user),
            account: back(self.base.account, self.raised.account, now.account),
        }
    }

    /// The record without the caps that somebody has changed since; `None`:
    /// without any.
    #[must_use]
    pub fn still_ours(&self, now: Caps) -> Option<Self> {
        let base = self.to_give_back(now);
        let keep = |base: Option<u32>, raised: Option<u32>| base.and(raised);
        let raised = Caps {
            user: keep(base.user, self.raised.user),
            account: keep(base.account, self.raised.account),
        };
        (!base.none()).then_some(Self { base, raised, at: self.at })
    }

    /// Whether the caps are as they were before.
    #[must_use]
    pub fn is_base(&self, now: Caps) -> bool {
        let same = |base: Option<u32>, now: Option<u32>| base.is_none() || base == now;
        same(self.base.user, now.user) && same(self.base.account, now.account)
    }
}

/// What is remembered from one check to the next.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Checks in a row that spoke for a pulse, by QOS.
    streak: BTreeMap<String, u32>,
    /// When the last pulse ended, Unix seconds.
    ended: BTreeMap<String, i64>,
}

impl Memory {
    /// A pulse ended, or came to nothing, at `now` (Unix seconds).
    pub fn ended(&mut self, qos: &str, now: i64) {
        self.streak.remove(qos);
        self.ended.insert(qos.to_owned(), now);
    }

    /// Whether some QOS is on its way to a pulse.
    #[must_use]
    pub fn stirs(&self) -> bool {
        !self.streak.is_empty()
    }
}

/// Why a pulse is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Over {
    /// It lasted as long as it may, in seconds.
    Time(i64),
    /// The idle share fell below `lower_below`.
    Busy(f64),
    /// Pulses are switched off.
    Off,
    /// It is of an earlier run.
    Earlier,
    /// This run ends.
    End,
}

/// What one check found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Check {
    /// QOS whose caps are to be raised, and how many held jobs of theirs fit.
    pub raise: Vec<(String, usize)>,
    /// QOS whose pulse is over, and why.
    pub lower: Vec<(String, Over)>,
    /// Held jobs.
    pub held: usize,
    /// The idle share.
    pub idle: f64,
}

/// One check, to be made every `act_interval`. `on`: pulses that are recorded.
/// `marks`: of jobs that have one.
#[must_use]
pub fn check(
    view: &View<'_>,
    settings: &Settings,
    marks: &HashMap<u32, &Mark>,
    on: &BTreeMap<String, Raised>,
    memory: &mut Memory,
) -> Check {
    let share = idle(view, settings.count_pending).share();
    let held = held(view);
    let mut check = Check { held: held.len(), idle: share, ..Check::default() };
    for (qos, raised) in on {
        let lasted = view.now.saturating_sub(raised.at);
        if lasted >= settings.pulse || lasted < 0 {
            check.lower.push((qos.clone(), Over::Time(lasted)));
        } else if share < settings.lower_below {
            check.lower.push((qos.clone(), Over::Busy(share)));
        }
    }
    let mut fit: BTreeMap<&str, usize> = BTreeMap::new();
    if share >= settings.min_idle_share {
        let mut trial = Trial::new(view);
        for h in &held {
            let judged = marks.get(&h.job.id).is_none_or(|mark| can_be_judged(mark));
            // One that is larger than the raised cap would not start either.
            let lifted = f64::from(h.limit) * settings.ceiling;
            let within = f64::from(h.used.saturating_add(h.job.cpus.0)) <= lifted;
            if judged && within && trial.take_one(h.job).is_some() {
                *fit.entry(h.job.qos.as_str()).or_default() += 1;
            }
        }
    }
    memory.streak.retain(|qos, _| fit.contains_key(qos.as_str()));
    let (now, cooldown) = (view.now, settings.cooldown);
    memory.ended.retain(|_, &mut at| at <= now && now.saturating_sub(at) < cooldown);
    for (qos, jobs) in fit {
        if on.contains_key(qos) || memory.ended.contains_key(qos) {
            memory.streak.remove(qos);
            continue;
        }
        let streak = memory.streak.entry(qos.to_owned()).or_default();
        *streak = streak.saturating_add(1);
        if *streak >= settings.hysteresis {
            check.raise.push((qos.to_owned(), jobs));
        }
    }
    check
}

/// Cap keys as `sacctmgr modify qos set` takes them.
#[must_use]
pub fn settings_of(caps: Caps) -> Vec<(&'static str, String)> {
    let mut set = Vec::new();
    let mut add = |cap: Cap, value: Option<u32>| {
        let key = match cap {
            Cap::User => "MaxTRESPerUser",
            Cap::Account => "MaxTRESPerAccount",
        };
        if let Some(cpus) = value {
            set.push((key, format!("cpu={cpus}")));
        }
    };
    add(Cap::User, caps.user);
    add(Cap::Account, caps.account);
    set
}
