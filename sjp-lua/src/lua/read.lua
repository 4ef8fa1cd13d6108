-- Reads everything a placement needs from job_desc in one protected call.
-- The order of the values returned is that of `FIELDS` in desc.rs.
--
-- job_desc answers each field by comparing its name with every name it knows,
-- so a read costs time: nothing is read twice, and the default account and
-- QOS (a search in slurmctld) only where the roster asks for them. `script` is
-- the decisive one: without it the job is no batch job (or a later component
-- of a heterogeneous one: only the first has the script), and nothing more is
-- needed than the comment. Never read: pn_min_memory (a double loses the low
-- digits of its per-CPU form) and gres (since 18.08 another name of
-- tres_per_node).
local type, next, concat = type, next, table.concat

local function read(d, want_account, want_qos, want_host)
    if d.script == nil then
        return false, d.admin_comment, d.het_job_offset
    end
    local account, qos = d.account, d.qos
    if want_account and (account == nil or account == "") then
        account = d.default_account
    end
    if want_qos and (qos == nil or qos == "") then
        qos = d.default_qos
    end
    local per_cpu, per_node = d.min_mem_per_cpu, nil
    if per_cpu == nil then
        per_node = d.min_mem_per_node
    end
    return true,
        d.admin_comment,
        account,
        qos,
        d.user_id,
        d.partition,
        d.req_nodes,
        d.exc_nodes,
        d.min_cpus,
        d.num_tasks,
        d.cpus_per_task,
        d.pn_min_cpus,
        d.ntasks_per_node,
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
        d.tres_per_socket,
        d.tres_per_task,
        d.cpus_per_tres,
        d.mem_per_tres,
        d.ntasks_per_tres,
        d.contiguous,
        d.req_switch,
        d.cores_per_socket,
        d.sockets_per_node,
        d.threads_per_core,
        d.ntasks_per_core,
        d.ntasks_per_socket,
        d.pn_min_tmp_disk,
        d.reboot,
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
