-- sjp: places jobs at submission. This file is the loader: it finds the
-- native module for the Lua that runs it and hands it on.
--
--   package.path = "/usr/lib/sjp/?.lua;" .. package.path
--   local sjp = require("sjp")
--   local placed, reason = sjp.place(job_desc, submit_uid, part_list)
--
-- sjp.place(job_desc, submit_uid [, part_list]) -> placed, reason
--     Chooses partitions and, in enforce mode, a node. false and the reason
--     where the job keeps the fields it came with.
-- sjp.open(job_desc, submit_uid [, part_list]) -> placed, reason
--     Sets every partition that can hold the job and will accept it.
-- sjp.version   string
-- sjp.config    state_dir, disable_file, verbose: set before the first call
--
-- Nothing here raises: without a native module, place() and open() answer
-- false, "no native module", and the site's own rules stand.

local VERSION = "0.1.0"
-- Counts the changes of what this file and the native module expect of each
-- other. Both are installed together; a pair that differs is not used.
local INTERFACE = 1
local OPEN = "luaopen_sjp_native"

local arguments = { ... }

-- Says it once in slurmctld's log, where there is one.
local function tell(text)
    local log = type(slurm) == "table" and slurm.log_info
    if log then
        pcall(log, "%s", text)
    end
end

-- The folder of a file name, with its slash; "./" where it has none.
local function folder_of(file)
    return file:match("^(.*/)") or "./"
end

-- Where the native module may stand, best first: beside this file; then, for
-- a sjp.lua that is only a link, the absolute folders of package.cpath, and the
-- usual places.
local function folders()
    local list, seen = {}, {}
    local function add(folder)
        if not seen[folder] then
            seen[folder] = true
            list[#list + 1] = folder
        end
    end
    local info = debug and debug.getinfo and debug.getinfo(folders, "S")
    local source = info and info.source or ""
    if source:sub(1, 1) == "@" then
        add(folder_of(source:sub(2)))
    elseif type(arguments[2]) == "string" then
        add(folder_of(arguments[2]))
    end
    for template in tostring(package.cpath):gmatch("[^;]+") do
        local folder = template:match("^(/[^?]*/)%?%.so$")
        if folder then
            add(folder)
        end
    end
    add("/usr/lib/sjp/")
    add("/usr/local/lib/sjp/")
    return list
end

local function is_file(path)
    local file = io.open(path, "rb")
    if file then
        file:close()
    end
    return file ~= nil
end

-- The native module, or nil and why not.
local function load_native()
    local version = tostring(_VERSION):match("(%d+%.%d+)")
    if version ~= "5.1" and version ~= "5.3" and version ~= "5.4" then
        return nil, "there is none for " .. tostring(_VERSION) .. " (there are for 5.1, 5.3 and 5.4)"
    end
    local name = "sjp_native-" .. version .. ".so"
    local looked = folders()
    for _, folder in ipairs(looked) do
        local path = folder .. name
        if is_file(path) then
            local open, why = package.loadlib(path, OPEN)
            if not open then
                return nil, path .. " does not load: " .. tostring(why)
            end
            local native = open("sjp", path)
            if type(native) ~= "table" then
                return nil, path .. " gave a " .. type(native) .. " where a table was due"
            end
            if native.interface ~= INTERFACE then
                return nil, string.format(
                    "%s is of sjp %s (interface %s), this sjp.lua of %s (interface %d):"
                        .. " install both from the same release",
                    path, tostring(native.version), tostring(native.interface), VERSION, INTERFACE)
            end
            return native
        end
    end
    return nil, "no " .. name .. " in " .. table.concat(looked, " ")
end

local ok, native, why = pcall(load_native)
if ok and native then
    return native
end

local said = false
local function absent()
    if not said then
        said = true
        tell("sjp: jobs are not placed, no native module: " .. tostring(why))
    end
    return false, "no native module"
end
if not ok then
    why = native
end
-- slurmctld's log functions stand before a script runs; should they not, the
-- first call says it.
if type(slurm) == "table" and slurm.log_info then
    absent()
end

return {
    version = VERSION,
    config = { state_dir = "/run/sjp", disable_file = "/etc/sjp/disable", verbose = false },
    place = absent,
    open = absent,
}
