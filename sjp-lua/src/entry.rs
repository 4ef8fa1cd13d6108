//! The one symbol that the shared library exports, and the only unsafe code of
//! this crate: what Lua calls when sjp.lua loads the module.
#![allow(unsafe_code)]

use mlua::Lua;
use std::ffi::c_int;

/// Called by Lua with a live state; leaves the module's table on its stack.
// The name is the one that sjp.lua asks for; nothing else exports it.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn luaopen_sjp_native(state: *mut mlua::lua_State) -> c_int {
    // SAFETY: Lua calls this function as it calls any C function: with a
    // pointer to a state that lives for the whole call, on the thread that
    // runs that state. `entrypoint1` catches panics and raises them as Lua
    // errors, which the loader's pcall takes.
    unsafe { Lua::entrypoint1(state, crate::module) }
}
