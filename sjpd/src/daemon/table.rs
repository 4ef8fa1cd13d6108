//! From what is known of the cluster to the published table: claims first,
//! then the rooms they are counted in, then the publication that says so.

use super::world::{World, seconds, unix_now};
use crate::ports::Kind;
use sjp_core::config::Policy;
use sjp_core::ledger::{Ledger, Match};
use sjp_core::publication::{Rooms, Roster};
use sjp_core::publish::{Extra, Moving, RoomsInput, RosterInput, build_rooms, build_roster};
use sjp_core::waiting::Snapshot;
use sjp_table::{Capacity, CreateError, Meta, PublishError, Publisher};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// Earlier rosters that claims may still be meant in: a submission that read
/// the table before a change writes its claim within milliseconds after it.
const OLD_ROSTERS: usize = 4;
/// Earlier rooms that are kept for `observe`: where a job would have gone is
/// judged by the rooms as they were before it was submitted.
const OLD_ROOMS: usize = 16;

/// Nodes that the first table has room for, before the cluster is known; it
/// grows.
const FIRST_SIZE: usize = 1024;

/// Why nothing could be published.
#[derive(Debug, Error)]
pub enum TableError {
    /// The table cannot be made.
    #[error("cannot make the table: {0}")]
    Create(#[from] CreateError),
    /// It cannot be written.
    #[error("cannot publish: {0}")]
    Publish(#[from] PublishError),
}

/// One publication, kept.
#[derive(Clone, Debug)]
pub struct Published {
    /// Names and rules.
    pub roster: Arc<Roster>,
    /// Free room.
    pub rooms: Arc<Rooms>,
    /// When its nodes were asked for, Unix seconds.
    pub asked: f64,
}

/// The table, the rosters in it, and the claims out of it.
#[derive(Debug)]
pub struct Table {
    publisher: Publisher,
    roster: Option<Arc<Roster>>,
    roster_id: u64,
    old_rosters: VecDeque<(u64, Arc<Roster>)>,
    history: VecDeque<Published>,
    ledger: Ledger,
    claims_upto: u64,
    lost: u64,
    error: Option<String>,
}

impl Table {
    /// Makes the table in `state_dir` with its way in; nothing is published.
    ///
    /// # Errors
    /// Where the memory or the link cannot be made.
    pub fn create(state_dir: &Path) -> Result<Self, TableError> {
        let publisher = Publisher::create(state_dir, Capacity::for_size(FIRST_SIZE))?;
        Ok(Self {
            publisher,
            roster: None,
            // Ids of one sjpd must not meet those of the next one.
            roster_id: (unix_now() as u64) << 20,
            old_rosters: VecDeque::new(),
            history: VecDeque::new(),
            ledger: Ledger::new(),
            claims_upto: 0,
            lost: 0,
            error: None,
        })
    }

    /// The current roster.
    #[must_use]
    pub fn roster(&self) -> Option<&Arc<Roster>> {
        self.roster.as_ref()
    }

    /// The claims.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The publisher, for the status.
    #[must_use]
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Claims that were overwritten before they were read.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Why the last publication failed; `None`: it did not.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The last publication made of nodes that were asked for before `unix`
    /// seconds; the oldest one kept where all are younger.
    #[must_use]
    pub fn before(&self, unix: f64) -> Option<&Published> {
        let older = self.history.iter().rev().find(|p| p.asked < unix);
        older.or_else(|| self.history.front())
    }

    /// Reads the queue: which claims found their job.
    pub fn see_queue(&mut self, world: &World) -> Vec<Match> {
        let Some(asked) = world.asked(Kind::Queue) else { return Vec::new() };
        // Claims of jobs that this queue may show must be known before.
        self.take_claims();
        self.ledger.see_queue(&world.jobs, seconds(asked.unix))
    }

    /// Builds and publishes. `moving`: room that changes under way take. Answers how
    /// many new claims were taken over.
    ///
    /// # Errors
    /// The table keeps what it had.
    pub fn publish(
        &mut self,
        world: &mut World,
        policy: &Policy,
        moving: &[Moving],
    ) -> Result<usize, TableError> {
        let Some(asked) = world.asked(Kind::Nodes) else { return Ok(0) };
        // Claims before rooms: what is taken over is counted in these rooms,
        // and the module stops counting it when it sees them.
        let taken = self.take_claims();
        let roster = self.current_roster(world, policy);
        let rooms = Arc::new(build_rooms(&roster, &input(world, &self.ledger, asked.unix, moving)));
        let meta = Meta { data_time_ns: asked.mono_ns, claims_taken: self.claims_upto };
        match self.publisher.publish_or_grow(&roster, self.roster_id, &rooms, meta) {
            Ok(grown) => {
                if grown {
                    let bytes = self.publisher.bytes();
                    tracing::info!(bytes, "the table was too small; readers move to a larger one");
                }
                self.error = None;
            }
            Err(error) => {
                self.error = Some(error.to_string());
                return Err(error.into());
            }
        }
        if self.history.back().is_none_or(|p| p.asked != asked.unix) {
            if self.history.len() == OLD_ROOMS {
                self.history.pop_front();
            }
            self.history.push_back(Published { roster, rooms, asked: asked.unix });
        }
        Ok(taken)
    }

    /// A sign of life, where there is nothing new to say.
    pub fn heartbeat(&self) {
        self.publisher.heartbeat();
    }

    /// Closes the table and removes its link.
    pub fn close(&mut self) {
        self.publisher.close();
    }

    /// Takes new claims over into the ledger.
    fn take_claims(&mut self) -> usize {
        let claims = match self.publisher.claims_since(self.claims_upto) {
            Ok(claims) => claims,
            Err(error) => {
                if self.error.is_none() {
                    tracing::error!(%error, "the ring of claims holds nonsense");
                }
                self.error = Some(error.to_string());
                return 0;
            }
        };
        if claims.lost > 0 {
            tracing::warn!(lost = claims.lost, "claims were overwritten before they were read");
        }
        self.lost += claims.lost;
        let (id, current) = (self.roster_id, self.roster.as_deref());
        let old = &self.old_rosters;
        self.ledger.take(&claims.list, |wanted| {
            if wanted == id {
                return current;
            }
            old.iter().find(|(id, _)| *id == wanted).map(|(_, roster)| &**roster)
        });
        self.claims_upto = claims.upto;
        claims.list.len()
    }

    /// The roster for what is known now; a new id where it changed.
    fn current_roster(&mut self, world: &mut World, policy: &Policy) -> Arc<Roster> {
        if let Some(roster) = &self.roster
            && !world.roster_stale
            && roster.policy == *policy
        {
            return roster.clone();
        }
        let built = roster_of(world, policy);
        world.roster_stale = false;
        if let Some(roster) = self.roster.as_ref().filter(|r| ***r == built) {
            return roster.clone();
        }
        let built = Arc::new(built);
        if let Some(old) = self.roster.replace(built.clone()) {
            if self.old_rosters.len() == OLD_ROSTERS {
                self.old_rosters.pop_front();
            }
            self.old_rosters.push_back((self.roster_id, old));
        }
        self.roster_id += 1;
        built
    }
}

fn roster_of(world: &World, policy: &Policy) -> Roster {
    build_roster(&RosterInput {
        nodes: &world.nodes,
        partitions: &world.partitions,
        config: &world.config,
        qos: &world.qos,
        bound_users: &world.bound_users,
        policy,
    })
}

/// What the rooms of this world are made of.
fn input<'a>(
    world: &'a World,
    ledger: &'a Ledger,
    nodes_asked_at: f64,
    moving: &'a [Moving],
) -> RoomsInput<'a> {
    RoomsInput {
        nodes: &world.nodes,
        nodes_asked_at,
        reservations: &world.reservations,
        jobs: &world.jobs,
        ledger,
        qos: &world.qos,
        config: &world.config,
        now: seconds(unix_now()),
        extra: Extra { moving, ..Extra::default() },
    }
}

/// The cluster and its queue, to plan for waiting jobs on.
#[must_use]
pub fn plan_on<'a>(
    world: &'a World,
    roster: &'a Roster,
    ledger: &'a Ledger,
    moving: &'a [Moving],
) -> Snapshot<'a> {
    let asked = world.asked(Kind::Nodes).map_or(0.0, |a| a.unix);
    Snapshot { roster, input: input(world, ledger, asked, moving) }
}

/// What would be published of this world, claims apart.
#[must_use]
pub fn snapshot(world: &World, policy: &Policy) -> (Roster, Rooms) {
    let roster = roster_of(world, policy);
    let asked = world.asked(Kind::Nodes).map_or(0.0, |a| a.unix);
    let rooms = build_rooms(&roster, &input(world, &Ledger::new(), asked, &[]));
    (roster, rooms)
}
