-- Reads everything a placement needs from job_desc in one protected call.
-- `Fields::take` in desc.rs takes the values in the order returned here.
--
-- job_desc finds a field by comparing its name with every name it knows: a
-- tenth of a microsecond for the first names, seven for the last. Reading is
-- the dearest part of a call, so nothing is read that cannot matter:
--   script         first: without it the job is no batch job, or a later
--                  component of a heterogeneous one (only the first has the
--                  script), and the comment is all that is needed
--   account, qos   where some partition or cap asks for them; their defaults
--                  (a search in slurmctld) where the job has none
--   alloc_node     where some partition takes jobs from some hosts only
--   user_id        where root or SlurmUser submits: nobody else may submit for
--                  another user
--   req_switch, ntasks_per_core, ntasks_per_socket
--                  where there are several tasks: one task is on one switch
--   ntasks_per_tres
--                  where the tasks are counted, since then (and without any
--                  other word of GPUs) it asks for GPUs
--   tres_per_socket
--                  where sockets are counted: it is refused without
--   not at all     pn_min_memory (a double loses the low digits of its per-CPU
--                  form); gres (another name of tres_per_node); cpus_per_tres
--                  and mem_per_tres (they need one of the other tres fields)
local type, next, concat = type, next, table.concat

local NO_VAL16, NO_VAL, INFINITE = 65534, 4294967294, 4294967295

local function is_set(value, no_val)
    return type(value) == "number" and value ~= no_val and value ~= NO_VAL and value ~= INFINITE
end

local function read(d, want_account, want_qos, want_owner, want_host)
    if d.script == nil then
        return false, d.admin_comment, d.het_job_offset
    end
    local account, qos, owner
    if want_account then
        account = d.account
        if account == nil or account == "" then
            account = d.default_account
        end
    end
    if want_qos then
        qos = d.qos
        if qos == nil or qos == "" then
            qos = d.default_qos
        end
    end
    if want_owner then
        owner = d.user_id
    end
    local per_cpu, per_node = d.min_mem_per_cpu, nil
    if per_cpu == nil then
        per_node = d.min_mem_per_node
    end
    local num_tasks, per_node_tasks = d.num_tasks, d.ntasks_per_node
    local counted = is_set(num_tasks, NO_VAL)
    local switches, per_core, per_socket, per_tres
    if (counted and num_tasks > 1) or (is_set(per_node_tasks, NO_VAL16) and per_node_tasks > 1) then
        switches = d.req_switch
        per_core = d.ntasks_per_core
        per_socket = d.ntasks_per_socket
    end
    if counted then
        per_tres = d.ntasks_per_tres
    end
    local sockets, socket_tres = d.sockets_per_node, nil
    if is_set(sockets, NO_VAL16) then
        socket_tres = d.tres_per_socket
    end
    return true,
        d.admin_comment,
        account,
        qos,
        owner,
        d.partition,
        d.req_nodes,
        d.exc_nodes,
        d.min_cpus,
        num_tasks,
        d.cpus_per_task,
        d.pn_min_cpus,
        per_node_tasks,
        d.min_nodes,
        d.max_nodes,
        per_cpu,
        per_node,
        d.time_limit,
        d.begin_time,
        d.priority,
        d.shared,
        d.array_inx,
        d.dependency,
        d.het_job_offset,
        d.reservation,
        d.features,
        d.prefer,
        d.tres_per_node,
        d.tres_per_job,
        socket_tres,
        d.tres_per_task,
        per_tres,
        d.contiguous,
        switches,
        d.cores_per_socket,
        sockets,
        d.threads_per_core,
        per_core,
        per_socket,
        d.pn_min_tmp_disk,
        want_host and d.alloc_node or nil
end

-- The names in part_list, one a line. Only keys are looked at, without
-- metamethods; what is not a string names no partition.
local function names(part_list)
    local list, n = {}, 0
    for name in next, part_list do
        if type(name) == "string" then
            n = n + 1
            list[n] = name
        end
    end
    return concat(list, "\n")
end

return read, names
