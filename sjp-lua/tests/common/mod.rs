//! A small cluster published in a temporary folder, and a Lua that submits to
//! it as slurmctld's plugin does.
#![allow(dead_code, reason = "each test file uses its part of it")]

pub mod cluster;

use cluster::Cluster;
use mlua::{Function, Lua, Table};
use parking_lot::Mutex;
use sjp_native::Shared;
use sjp_table::{Capacity, Meta, Publisher};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Lua's side of a submission: a job_desc that behaves as Slurm's (fields are
/// metamethods, strings only by strings, "" clears) with Slurm's unset values.
const SLURM_LUA: &str = r##"
local NO_VAL16, NO_VAL, INFINITE = 65534.0, 4294967294.0, 4294967295.0
local unset = {
    script = "#!/bin/sh\nsleep 1\n", user_id = 1000.0,
    min_cpus = 1.0, num_tasks = NO_VAL, cpus_per_task = NO_VAL16, pn_min_cpus = NO_VAL16,
    ntasks_per_node = NO_VAL16, min_nodes = NO_VAL, max_nodes = NO_VAL,
    time_limit = NO_VAL, begin_time = 0.0, priority = NO_VAL, shared = NO_VAL16,
    het_job_offset = NO_VAL, ntasks_per_tres = NO_VAL16, contiguous = 0.0,
    req_switch = NO_VAL, cores_per_socket = NO_VAL16, sockets_per_node = NO_VAL16,
    threads_per_core = NO_VAL16, ntasks_per_core = NO_VAL16, ntasks_per_socket = NO_VAL16,
    pn_min_tmp_disk = NO_VAL, reboot = NO_VAL16,
}
function desc(given, refuse, refuse_reads)
    local store = {}
    for k, v in pairs(unset) do store[k] = v end
    for k, v in pairs(given) do store[k] = v ~= false and v or nil end
    local writes = {}
    local proxy = setmetatable({}, {
        __index = function(_, k)
            if refuse_reads == k then error("no such luck with " .. k) end
            return store[k]
        end,
        __newindex = function(_, k, v)
            if type(v) ~= "string" then
                error("bad argument #3 to '?' (string expected, got " .. type(v) .. ")")
            end
            if refuse == k then error("refused " .. k) end
            writes[#writes + 1] = k
            store[k] = v ~= "" and v or nil
        end,
    })
    return proxy, store, writes
end
logged = {}
slurm = {
    log_info = function(...) logged[#logged + 1] = "info " .. string.format(...) end,
    log_error = function(...) logged[#logged + 1] = "error " .. string.format(...) end,
}
"##;

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub placed: bool,
    pub reason: Option<String>,
    pub partition: Option<String>,
    pub req_nodes: Option<String>,
    pub exc_nodes: Option<String>,
    /// Bytes that are not UTF-8 replaced.
    pub comment: Option<String>,
    /// The fields written, in order.
    pub writes: Vec<String>,
}

impl Outcome {
    /// One value of the mark.
    pub fn mark(&self, key: &str) -> Option<String> {
        let mark = sjp_core::mark::Mark::parse(self.comment.as_deref()?)?;
        mark.get(key).map(str::to_owned)
    }
}

/// A Lua state with the module in it.
pub struct Submitter {
    pub lua: Lua,
    pub module: Table,
}

impl Submitter {
    pub fn new(shared: &'static Mutex<Shared>, dir: &std::path::Path) -> Self {
        let lua = Lua::new();
        lua.load(SLURM_LUA).exec().unwrap();
        let module = sjp_native::module_on(&lua, shared).unwrap();
        let config: Table = module.get("config").unwrap();
        config.set("state_dir", dir.to_str().unwrap()).unwrap();
        config.set("disable_file", dir.join("disable").to_str().unwrap()).unwrap();
        lua.globals().set("sjp", &module).unwrap();
        Self { lua, module }
    }

    /// Runs `call` (`place` or `open`) on a job with these fields (the inside
    /// of a Lua table) and this part_list (a Lua expression).
    pub fn call(&self, call: &str, fields: &str, part_list: &str) -> Outcome {
        self.call_desc(call, &format!("desc({{{fields}}})"), part_list)
    }

    /// The same with a job_desc of the caller's: an expression that gives the
    /// proxy, its store and its list of writes.
    pub fn call_desc(&self, call: &str, desc: &str, part_list: &str) -> Outcome {
        let chunk = format!(
            "local proxy, store, writes = {desc}\n\
             local placed, reason = sjp.{call}(proxy, 1000, {part_list})\n\
             assert(placed == true or placed == false)\n\
             local function text(v) return type(v) == 'string' and v or nil end\n\
             return placed, reason, text(store.partition), text(store.req_nodes), \
             text(store.exc_nodes), text(store.admin_comment), writes"
        );
        let (placed, reason, partition, req_nodes, exc_nodes, comment, writes) =
            self.lua.load(chunk).eval().unwrap();
        let comment: Option<mlua::LuaString> = comment;
        let comment = comment.map(|text| text.to_string_lossy());
        Outcome { placed, reason, partition, req_nodes, exc_nodes, comment, writes }
    }

    pub fn place(&self, fields: &str) -> Outcome {
        self.call("place", fields, "nil")
    }

    pub fn open(&self, fields: &str) -> Outcome {
        self.call("open", fields, "nil")
    }

    /// What any expression gives for `placed, reason`.
    pub fn raw(&self, expression: &str) -> (mlua::Value, mlua::Value) {
        self.lua.load(format!("return {expression}")).eval().unwrap()
    }

    pub fn function(&self, name: &str) -> Function {
        self.module.get(name).unwrap()
    }

    pub fn logged(&self) -> Vec<String> {
        self.lua.globals().get::<Vec<String>>("logged").unwrap()
    }
}

/// A cluster, its published table, and one submitter.
pub struct World {
    pub dir: tempfile::TempDir,
    pub cluster: Cluster,
    pub publisher: Publisher,
    pub shared: &'static Mutex<Shared>,
    pub submitter: Submitter,
    pub roster_id: u64,
    pub claims_taken: u64,
}

impl World {
    /// Publishes `cluster` and attaches nobody yet.
    pub fn new(cluster: Cluster) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let publisher =
            Publisher::create(dir.path(), Capacity::for_size(cluster.nodes.len())).unwrap();
        let shared: &'static Mutex<Shared> = Box::leak(Box::new(Mutex::new(Shared::new())));
        let submitter = Submitter::new(shared, dir.path());
        let mut world =
            Self { dir, cluster, publisher, shared, submitter, roster_id: 1, claims_taken: 0 };
        world.publish();
        world
    }

    /// Publishes the cluster as it is, with fresh data.
    pub fn publish(&mut self) {
        self.publish_at(sjp_table::now_ns());
    }

    /// Publishes the cluster as data of that time.
    pub fn publish_at(&mut self, data_time_ns: u64) {
        let roster = self.cluster.roster();
        let rooms = self.cluster.rooms(&roster);
        let meta = Meta { data_time_ns, claims_taken: self.claims_taken };
        self.publisher.publish(&roster, self.roster_id, &rooms, meta).unwrap();
    }

    /// Changes settings or partitions, and publishes.
    pub fn change(&mut self, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster);
        self.roster_id += 1;
        self.publish();
    }

    pub fn place(&self, fields: &str) -> Outcome {
        self.submitter.place(fields)
    }

    /// As `place`, on a cluster where nothing has been promised: whatever was
    /// placed before has ended.
    pub fn place_alone(&mut self, fields: &str) -> Outcome {
        self.claims_taken = self.publisher.claims_since(self.claims_taken).unwrap().upto;
        self.publish();
        self.place(fields)
    }

    pub fn open(&self, fields: &str) -> Outcome {
        self.submitter.open(fields)
    }

    pub fn disable_file(&self) -> PathBuf {
        self.dir.path().join("disable")
    }
}

/// Waits until `look` answers with something, and says at the deadline what
/// was seen last.
pub fn wait_until<T, S: std::fmt::Debug>(mut look: impl FnMut() -> Result<T, S>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() > deadline => {
                panic!("20 s have gone by; seen last: {seen:?}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// How often each value stands in a list.
pub fn counted<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_insert(0) += 1;
    }
    counts
}
