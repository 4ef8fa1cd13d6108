//! Pulses under way: what is recorded, what is to be raised, what is over, and
//! what of it the caps of the database allow to be done now.

use super::record::Record;
use crate::actuator::{Action, ActionKind, Outcome, Report, Target, Update};
use sjp_core::limits::pulse::{self, Caps, Memory, Over, Raised, settings_of};
use sjp_core::limits::{Settings, View};
use sjp_core::mark::Mark;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// A command that was begun may still be carried out this many seconds later,
/// whatever became of it here: slurmdbd may have been busy.
pub const SETTLE: i64 = 600;
/// First rest after a failure; it doubles.
const FIRST_REST: Duration = Duration::from_secs(30);
/// Longest rest.
const LAST_REST: Duration = Duration::from_secs(600);

/// What is known of a recorded pulse, beyond the record.
#[derive(Clone, Copy, Debug, Default)]
struct About {
    /// The caps were seen raised, or the command ended well.
    raised: bool,
    /// The caps were given back.
    lowered: bool,
    /// It is of an earlier run.
    earlier: bool,
    /// When sjpd changed the caps last, seconds of a clock that is never stepped.
    changed: f64,
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The QOS.
    pub qos: String,
    /// In words.
    pub words: String,
    /// Whether it is an error.
    pub error: bool,
}

/// What is to be done and told.
#[derive(Debug, Default)]
pub struct Orders {
    /// To be handed over, or given to [`Pulses::not_taken`].
    pub actions: Vec<Action>,
    /// To be logged.
    pub notes: Vec<Note>,
}

/// When it is.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Unix seconds, with fraction.
    pub unix: f64,
    /// Seconds of a clock that is never stepped.
    pub steady: f64,
    /// The same for waits.
    pub instant: Instant,
}

/// All pulses.
#[derive(Debug)]
pub struct Pulses {
    record: Record,
    memory: Memory,
    about: BTreeMap<String, About>,
    /// QOS to raise, and how many held jobs of theirs fit.
    wanting: BTreeMap<String, usize>,
    /// Pulses that are over, and why.
    over: BTreeMap<String, Over>,
    in_hand: HashSet<String>,
    resting: HashMap<String, (Instant, u32)>,
    /// What a dry run has told.
    told: HashSet<String>,
    /// Whether the caps are to be read.
    wants: bool,
    /// Whether sjpd ends.
    ending: bool,
    idle: f64,
}

impl Pulses {
    /// With what an earlier run has left behind.
    #[must_use]
    pub fn new(record: Record) -> Self {
        let earlier = About { earlier: true, ..About::default() };
        let about: BTreeMap<String, About> =
            record.qos().keys().map(|qos| (qos.clone(), earlier)).collect();
        Self {
            wants: !about.is_empty(),
            over: about.keys().map(|qos| (qos.clone(), Over::Earlier)).collect(),
            record,
            about,
            memory: Memory::default(),
            wanting: BTreeMap::new(),
            in_hand: HashSet::new(),
            resting: HashMap::new(),
            told: HashSet::new(),
            ending: false,
            idle: 0.0,
        }
    }

    /// What is recorded as raised.
    #[must_use]
    pub fn recorded(&self) -> &BTreeMap<String, Raised> {
        self.record.qos()
    }

    /// Whether the caps are to be read from the database.
    #[must_use]
    pub fn wants(&self) -> bool {
        self.wants
    }

    /// They are being read.
    pub fn asked(&mut self) {
        self.wants = false;
    }

    /// Settings changed.
    ///
    /// # Errors
    /// Where the record cannot be moved.
    pub fn settings_changed(&mut self, path: &std::path::Path) -> std::io::Result<()> {
        self.told.clear();
        self.record.move_to(path)
    }

    /// When the next pulse is over by its time.
    #[must_use]
    pub fn next_end(&self, settings: &Settings, time: Time) -> Option<Instant> {
        let ends = self.record.qos().values().map(|r| r.at.saturating_add(settings.pulse) as f64);
        let left = ends.map(|end| end - time.unix).filter(|&left| left > 0.0);
        let first = left.fold(f64::INFINITY, f64::min);
        (first < 1e9).then(|| time.instant + Duration::from_secs_f64(first + 0.1))
    }

    /// One check. Answers how many jobs are held, and the idle share.
    pub fn check(
        &mut self,
        view: &View<'_>,
        settings: &Settings,
        marks: &HashMap<u32, &Mark>,
        now: Instant,
    ) -> (usize, f64) {
        let check = pulse::check(view, settings, marks, self.record.qos(), &mut self.memory);
        self.idle = check.idle;
        self.over = check.lower.into_iter().collect();
        self.wanting = check.raise.into_iter().collect();
        let rests = |qos: &str| self.resting.get(qos).is_some_and(|&(until, _)| now < until);
        self.wanting.retain(|qos, _| !rests(qos) && !self.told.contains(qos));
        self.over_by_themselves();
        (check.held, check.idle)
    }

    /// One check where pulses are switched off: all of them are over.
    pub fn check_off(&mut self) {
        self.memory = Memory::default();
        self.wanting.clear();
        self.over = self.record.qos().keys().map(|qos| (qos.clone(), Over::Off)).collect();
        self.over_by_themselves();
    }

    /// sjpd ends: all of them are over, and what is given back is forgotten.
    pub fn ends(&mut self) {
        self.ending = true;
        self.check_off();
        for over in self.over.values_mut() {
            *over = Over::End;
        }
    }

    /// Whether a change is under way.
    #[must_use]
    pub fn changing(&self) -> bool {
        !self.in_hand.is_empty()
    }

    fn over_by_themselves(&mut self) {
        for (qos, _) in self.about.iter().filter(|(_, a)| a.earlier) {
            self.over.insert(qos.clone(), Over::Earlier);
        }
        self.wants = !self.record.qos().is_empty() || !self.wanting.is_empty();
    }

    /// What is to be done, where the caps in the database are `caps`, asked for
    /// at `asked` (seconds of a clock that is never stepped). `dry`: nothing will be done.
    pub fn plan(
        &mut self,
        caps: &[(String, Caps)],
        asked: f64,
        settings: &Settings,
        dry: bool,
        time: Time,
    ) -> Orders {
        let caps: HashMap<&str, Caps> = caps.iter().map(|(q, c)| (q.as_str(), *c)).collect();
        let mut orders = Orders::default();
        let recorded: Vec<(String, Raised)> =
            self.record.qos().iter().map(|(q, r)| (q.clone(), *r)).collect();
        for (qos, raised) in recorded {
            let about = self.about.get(&qos).copied().unwrap_or_default();
            if !self.in_hand.contains(&qos) && asked > about.changed {
                self.follow(&qos, raised, caps.get(qos.as_str()).copied(), time, &mut orders);
            }
        }
        for (qos, jobs) in std::mem::take(&mut self.wanting) {
            let free = !self.record.qos().contains_key(&qos) && !self.in_hand.contains(&qos);
            if let Some(&now) = caps.get(qos.as_str()).filter(|_| free) {
                self.raise(&qos, jobs, now, settings, dry, time, &mut orders);
            }
        }
        orders
    }

    /// A recorded pulse: whether it goes on, ends, or is none.
    fn follow(
        &mut self,
        qos: &str,
        raised: Raised,
        now: Option<Caps>,
        time: Time,
        orders: &mut Orders,
    ) {
        let about = self.about.entry(qos.to_owned()).or_default();
        let seconds = time.unix.floor() as i64;
        let Some(now) = now else {
            orders.notes.push(note(qos, "the QOS is gone, and its raised caps with it"));
            self.forget(qos, orders);
            return;
        };
        let back = raised.to_give_back(now);
        if back.none() {
            let settled =
                about.raised || about.lowered || seconds.abs_diff(raised.at) >= SETTLE as u64;
            if settled {
                if !raised.is_base(now) {
                    let words = format!("somebody has set its caps to {}: they stay", words(now));
                    orders.notes.push(note(qos, words));
                }
                self.memory.ended(qos, seconds);
                self.forget(qos, orders);
            }
            return;
        }
        about.raised = true;
        if let Some(ours) = raised.still_ours(now).filter(|ours| *ours != raised) {
            let said = format!("somebody has set one of its caps ({}): it stays", words(now));
            orders.notes.push(note(qos, said));
            if let Err(error) = self.record.put(qos, ours) {
                orders.notes.push(fault(qos, format!("the record of its caps: {error}")));
            }
        }
        let rests = self.resting.get(qos).is_some_and(|&(until, _)| time.instant < until);
        let (Some(over), false, false) = (self.over.get(qos), rests, self.told.contains(qos))
        else {
            return;
        };
        let why = match over {
            Over::Time(lasted) => format!("raised for {lasted} s"),
            Over::Busy(share) => format!("only {:.0} % idle", share * 100.0),
            Over::Off => "pulses are switched off".to_owned(),
            Over::End => "sjpd ends".to_owned(),
            Over::Earlier => "an earlier run of sjpd raised them".to_owned(),
        };
        orders.actions.push(Action {
            kind: ActionKind::Lower,
            target: Target::Qos(qos.to_owned()),
            updates: vec![Update::Qos { name: qos.to_owned(), set: settings_of(back) }],
            mark: None,
            seen: None,
            words: format!("caps back to {}", words(back)),
            why,
        });
        self.in_hand.insert(qos.to_owned());
    }

    #[allow(clippy::too_many_arguments, reason = "one call site, all of it the situation")]
    fn raise(
        &mut self,
        qos: &str,
        jobs: usize,
        now: Caps,
        settings: &Settings,
        dry: bool,
        time: Time,
        orders: &mut Orders,
    ) {
        let seconds = time.unix.floor() as i64;
        let Some(raised) = Raised::from(now, settings.ceiling, seconds) else {
            self.memory.ended(qos, seconds);
            return;
        };
        // On the disk before anything is done: whatever happens then can be undone.
        if !dry && let Err(error) = self.record.put(qos, raised) {
            orders.notes.push(fault(
                qos,
                format!("its caps are not raised, since they cannot be recorded: {error}"),
            ));
            self.rest(qos, time.instant);
            return;
        }
        self.about.insert(qos.to_owned(), About::default());
        orders.actions.push(Action {
            kind: ActionKind::Raise,
            target: Target::Qos(qos.to_owned()),
            updates: vec![Update::Qos { name: qos.to_owned(), set: settings_of(raised.raised) }],
            mark: None,
            seen: None,
            words: format!("caps {} raised to {}", words(raised.base), words(raised.raised)),
            why: format!(
                "{}, {:.0} % idle; for {} s",
                match jobs {
                    1 => "a job that only they hold fits".to_owned(),
                    jobs => format!("{jobs} jobs that only they hold fit"),
                },
                self.idle * 100.0,
                settings.pulse
            ),
        });
        self.in_hand.insert(qos.to_owned());
    }

    /// The hands' queue was full: planned again at the next check.
    pub fn not_taken(&mut self, action: &Action) -> Option<String> {
        self.undone(action)
    }

    /// What became of an action of a QOS. Answers the error, where it failed.
    pub fn reported(&mut self, report: &Report, time: Time) -> Option<String> {
        let Target::Qos(qos) = &report.action.target else { return None };
        let seconds = time.unix.floor() as i64;
        let raise = report.action.kind == ActionKind::Raise;
        match &report.outcome {
            Outcome::Done => {
                self.in_hand.remove(qos);
                self.resting.remove(qos);
                let about = self.about.entry(qos.clone()).or_default();
                about.changed = time.steady;
                if raise {
                    about.raised = true;
                } else {
                    about.lowered = true;
                    self.memory.ended(qos, seconds);
                }
                if self.ending && !raise {
                    self.forget(qos, &mut Orders::default());
                }
                self.wants = true;
                None
            }
            Outcome::Off => self.undone(&report.action),
            Outcome::Would => {
                self.told.insert(qos.clone());
                self.undone(&report.action)
            }
            // It may have been done, or be done later: the record stays until
            // the caps have shown for long that it was not.
            Outcome::Gone(said) | Outcome::Failed(said) | Outcome::Changed(said) => {
                self.in_hand.remove(qos);
                self.rest(qos, time.instant);
                Some(said.clone())
            }
        }
    }

    /// An action that was not begun.
    fn undone(&mut self, action: &Action) -> Option<String> {
        let Target::Qos(qos) = &action.target else { return None };
        self.in_hand.remove(qos);
        if action.kind != ActionKind::Raise {
            return None;
        }
        let mut orders = Orders::default();
        self.forget(qos, &mut orders);
        orders.notes.pop().map(|note| note.words)
    }

    fn rest(&mut self, qos: &str, now: Instant) {
        let times = self.resting.get(qos).map_or(0, |&(_, times)| times);
        let rest = FIRST_REST.saturating_mul(1 << times.min(10)).min(LAST_REST);
        self.resting.insert(qos.to_owned(), (now + rest, times + 1));
    }

    fn forget(&mut self, qos: &str, orders: &mut Orders) {
        self.about.remove(qos);
        self.over.remove(qos);
        if let Err(error) = self.record.remove(qos) {
            orders.notes.push(fault(qos, format!("the record of its caps: {error}")));
        }
    }
}

/// Caps for people.
pub fn words(caps: Caps) -> String {
    let cap = |name: &str, cap: Option<u32>| cap.map(|cpus| format!("{name} cpu={cpus}"));
    let list = [cap("MaxTRESPU", caps.user), cap("MaxTRESPA", caps.account)];
    let list: Vec<String> = list.into_iter().flatten().collect();
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

fn note(qos: &str, words: impl Into<String>) -> Note {
    Note { qos: qos.to_owned(), words: words.into(), error: false }
}

fn fault(qos: &str, words: impl Into<String>) -> Note {
    Note { error: true, ..note(qos, words) }
}
