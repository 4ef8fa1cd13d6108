//! sjp's Lua module: `place()` and `open()` for job_submit.lua.
//!
//! It runs inside slurmctld, under its locks, while submissions wait. So: it
//! never raises, never waits, starts no threads, sets no logger and no
//! allocator, and leaves the job alone in any doubt. What it decides is
//! sjp-core's; what it decides on, sjp-table's.
//!
//! Built once for each Lua version as a shared library that lua/sjp.lua loads
//! (feature `module`). What embeds Lua itself takes the same code as a library:
//! [`module`] is the table that `require("sjp")` gives.
#![deny(unsafe_code)]

mod config;
mod desc;
#[cfg(feature = "module")]
mod entry;
mod failure;
mod log;
mod number;
mod place;
mod plan;
mod shared;
mod tres;

pub use place::Call;
pub use shared::Shared;

use config::Config;
use mlua::{Function, Lua, Table, Value};
use parking_lot::Mutex;
use place::Native;
use std::rc::Rc;
use std::sync::LazyLock;

/// What lua/sjp.lua and this module expect of each other; sjp.lua has the same
/// number.
pub const INTERFACE: u32 = 1;

/// The attached table and what goes with it, one for the process: slurmctld
/// makes a new Lua state at each change of job_submit.lua, and the table and
/// the promises outlive it.
static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(|| Mutex::new(Shared::new()));

/// The module's table: `place`, `open`, `version`, `config`, `interface`.
///
/// # Errors
/// Out of memory, or a Lua without its base library.
pub fn module(lua: &Lua) -> mlua::Result<Table> {
    module_on(lua, &SHARED)
}

/// The same on a `Shared` of the caller's, for tests that need several.
///
/// # Errors
/// As for [`module`].
#[doc(hidden)]
pub fn module_on(lua: &Lua, shared: &'static Mutex<Shared>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let config = Config::defaults(lua)?;
    table.set("version", env!("CARGO_PKG_VERSION"))?;
    table.set("interface", INTERFACE)?;
    table.set("config", &config)?;
    let native = Rc::new(Native::new(lua, shared, table.clone())?);
    let guard: Function =
        lua.load(include_str!("lua/guard.lua")).set_name("=sjp guard.lua").call(())?;
    for call in [Call::Place, Call::Open] {
        let native = Rc::clone(&native);
        let function = lua.create_function(move |lua, args: (Value, Value, Value)| {
            Ok(native.answer(lua, call, &args.0, &args.1, &args.2))
        })?;
        table.set(call.name(), guard.call::<Function>(function)?)?;
    }
    Ok(table)
}
