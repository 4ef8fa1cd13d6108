//! A stand-in for slurmctld's job_desc: C functions behind metamethods, which
//! find a field by comparing its name with all names in turn, as
//! job_submit/lua does.
#![allow(unsafe_code, reason = "Lua's C interface, to cost what Slurm's own costs")]

use crate::JOBS;
use mlua::{Lua, ffi};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

/// The names that 22.05 knows, in its order.
const NAMES: [&CStr; 96] = [
    c"account",
    c"acctg_freq",
    c"admin_comment",
    c"alloc_node",
    c"argc",
    c"argv",
    c"array_inx",
    c"batch_features",
    c"begin_time",
    c"bitflags",
    c"boards_per_node",
    c"burst_buffer",
    c"clusters",
    c"comment",
    c"container",
    c"contiguous",
    c"cores_per_socket",
    c"cpu_freq_min",
    c"cpu_freq_max",
    c"cpu_freq_gov",
    c"cpus_per_task",
    c"cpus_per_tres",
    c"cron_job",
    c"default_account",
    c"default_qos",
    c"delay_boot",
    c"dependency",
    c"end_time",
    c"environment",
    c"extra",
    c"exc_nodes",
    c"features",
    c"gres",
    c"group_id",
    c"immediate",
    c"licenses",
    c"mail_type",
    c"mail_user",
    c"max_cpus",
    c"max_nodes",
    c"mem_per_tres",
    c"min_cpus",
    c"min_mem_per_node",
    c"min_mem_per_cpu",
    c"min_nodes",
    c"name",
    c"network",
    c"nice",
    c"ntasks_per_board",
    c"ntasks_per_core",
    c"ntasks_per_gpu",
    c"ntasks_per_node",
    c"ntasks_per_socket",
    c"ntasks_per_tres",
    c"num_tasks",
    c"pack_job_offset",
    c"het_job_offset",
    c"partition",
    c"prefer",
    c"power_flags",
    c"pn_min_cpus",
    c"pn_min_memory",
    c"pn_min_tmp_disk",
    c"priority",
    c"qos",
    c"reboot",
    c"req_context",
    c"req_nodes",
    c"req_switch",
    c"requeue",
    c"reservation",
    c"script",
    c"shared",
    c"oversubscribe",
    c"site_factor",
    c"sockets_per_board",
    c"sockets_per_node",
    c"spank_job_env",
    c"spank_job_env_size",
    c"std_err",
    c"std_in",
    c"std_out",
    c"threads_per_core",
    c"time_limit",
    c"time_min",
    c"tres_bind",
    c"tres_freq",
    c"tres_per_job",
    c"tres_per_node",
    c"tres_per_socket",
    c"tres_per_task",
    c"user_id",
    c"user_name",
    c"wait4switch",
    c"work_dir",
    c"wckey",
];

/// A field's value.
enum Value {
    Nil,
    Number(f64),
    Text(CString),
}

thread_local! {
    /// The job that is being submitted, by index into `NAMES`.
    static JOB: RefCell<Vec<Value>> = const { RefCell::new(Vec::new()) };
}

/// A comparison that costs a call, as xstrcmp does.
#[inline(never)]
fn same(a: *const c_char, b: *const c_char) -> bool {
    // SAFETY: both are strings that end in NUL: a literal of `NAMES`, and what
    // luaL_checkstring gave.
    !a.is_null() && !b.is_null() && unsafe { libc::strcmp(a, b) } == 0
}

fn find(name: *const c_char) -> Option<usize> {
    NAMES.iter().position(|known| same(name, known.as_ptr()))
}

unsafe extern "C-unwind" fn index(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua calls with a live state and (table, name) on its stack.
    unsafe {
        let name = ffi::luaL_checkstring(state, 2);
        ffi::lua_getmetatable(state, -2);
        ffi::lua_getfield(state, -1, c"_job_desc".as_ptr());
        let _ = ffi::lua_touserdata(state, -1);
        let found = find(name);
        JOB.with_borrow(|job| match found.and_then(|i| job.get(i)) {
            None | Some(Value::Nil) => ffi::lua_pushnil(state),
            Some(Value::Number(n)) => ffi::lua_pushnumber(state, *n),
            Some(Value::Text(text)) => {
                ffi::lua_pushstring(state, text.as_ptr());
            }
        });
    }
    1
}

unsafe extern "C-unwind" fn new_index(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: as above, with (table, name, value).
    unsafe {
        let name = ffi::luaL_checkstring(state, 2);
        ffi::lua_getmetatable(state, -3);
        ffi::lua_getfield(state, -1, c"_job_desc".as_ptr());
        let _ = ffi::lua_touserdata(state, -1);
        let text = CStr::from_ptr(ffi::luaL_checkstring(state, 3)).to_owned();
        if let Some(slot) = find(name) {
            JOB.with_borrow_mut(|job| job[slot] = Value::Text(text));
        }
    }
    0
}

unsafe extern "C-unwind" fn now(state: *mut mlua::lua_State) -> c_int {
    let now = if CPU_CLOCK.load(Ordering::Relaxed) { cpu_ns() } else { sjp_table::now_ns() };
    // SAFETY: Lua calls with a live state.
    unsafe { ffi::lua_pushnumber(state, now as f64) };
    1
}

/// Whether `now` counts this thread's CPU time instead of the wall clock's.
static CPU_CLOCK: AtomicBool = AtomicBool::new(false);

/// CPU time of this thread, nanoseconds.
fn cpu_ns() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    u64::try_from(time.tv_sec()).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap()
}

/// Sets up job number `n`: Slurm's unset values, and one of `JOBS`.
fn set_up(n: u64) {
    let (cpus, per_cpu) = JOBS[usize::try_from(n).unwrap_or(0) % JOBS.len()];
    JOB.with_borrow_mut(|job| {
        job.clear();
        job.extend(NAMES.iter().map(|name| {
            match name.to_bytes() {
                b"script" => Value::Text(
                    CString::new(
                        "#!/bin/bash\n#SBATCH --mem-per-cpu=4G\nsrun ./a.out\n".repeat(20),
                    )
                    .unwrap(),
                ),
                b"min_cpus" => Value::Number(f64::from(cpus)),
                b"cpus_per_task" => Value::Number(f64::from(cpus)),
                b"pn_min_cpus" => Value::Number(f64::from(cpus)),
                b"min_mem_per_cpu" => Value::Number(f64::from(per_cpu)),
                b"time_limit" => Value::Number(120.0),
                b"user_id" => Value::Number(1000.0),
                b"begin_time" | b"contiguous" => Value::Number(0.0),
                b"account" => Value::Text(c"physics".to_owned()),
                b"num_tasks" | b"min_nodes" | b"max_nodes" | b"priority" | b"het_job_offset"
                | b"pack_job_offset" | b"req_switch" | b"pn_min_tmp_disk" => {
                    Value::Number(4_294_967_294.0)
                }
                b"ntasks_per_node" | b"shared" | b"ntasks_per_tres" | b"cores_per_socket"
                | b"sockets_per_node" | b"threads_per_core" | b"ntasks_per_core"
                | b"ntasks_per_socket" | b"reboot" => Value::Number(65_534.0),
                _ => Value::Nil,
            }
        }));
    });
}

/// Job number `n` as a plain table, whose fields cost nothing to speak of.
fn plain(lua: &Lua, n: u64) -> mlua::Result<mlua::Table> {
    set_up(n);
    let table = lua.create_table()?;
    JOB.with_borrow(|job| {
        for (name, value) in NAMES.iter().zip(job) {
            let name = lua.create_string(name.to_bytes())?;
            match value {
                Value::Nil => {}
                Value::Number(number) => table.raw_set(name, *number)?,
                Value::Text(text) => table.raw_set(name, lua.create_string(text.to_bytes())?)?,
            }
        }
        Ok(table)
    })
}

/// Puts `job_desc`, `now`, `next_job`, `plain_job` and `load_read` into the globals.
pub fn register(lua: &Lua) {
    let cpu = std::env::var("SJP_BENCH_CLOCK").is_ok_and(|clock| clock == "cpu");
    CPU_CLOCK.store(cpu, Ordering::Relaxed);
    let globals = lua.globals();
    // SAFETY: functions of the signature Lua asks for, which leave the stack
    // as they say.
    let (index, new_index, now) = unsafe {
        (
            lua.create_c_function(index).unwrap(),
            lua.create_c_function(new_index).unwrap(),
            lua.create_c_function(now).unwrap(),
        )
    };
    let meta = lua.create_table().unwrap();
    meta.set("__index", index).unwrap();
    meta.set("__newindex", new_index).unwrap();
    meta.set("_job_desc", mlua::LightUserData(std::ptr::null_mut())).unwrap();
    let desc = lua.create_table().unwrap();
    desc.set_metatable(Some(meta)).unwrap();
    globals.set("job_desc", desc).unwrap();
    globals.set("now", now).unwrap();
    globals
        .set(
            "next_job",
            lua.create_function(|_, n: u64| {
                set_up(n);
                Ok(())
            })
            .unwrap(),
        )
        .unwrap();
    globals.set("plain_job", lua.create_function(plain).unwrap()).unwrap();
    let load_read = lua
        .create_function(|lua, ()| {
            lua.load(include_str!("../../src/lua/read.lua")).call::<mlua::MultiValue>(())
        })
        .unwrap();
    globals.set("load_read", load_read).unwrap();
}
