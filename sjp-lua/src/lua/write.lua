-- Sets fields of job_desc, and puts them back where one of them is refused.
local pcall, tostring = pcall, tostring

local function put(d, key, value)
    d[key] = value
end

-- An unset string field is put back with nil where job_desc takes it, and
-- with "" where it does not (Slurm's own raises for nil, and "" clears).
local function restore(d, key, value)
    if not pcall(put, d, key, value) and value == nil then
        pcall(put, d, key, "")
    end
end

-- How far the last put_all got.
local step = 0

local function put_all(d, partition, req_nodes, exc_nodes, comment)
    step = 0
    if partition then
        step = 1
        d.partition = partition
    end
    if req_nodes then
        step = 2
        d.req_nodes = req_nodes
    end
    if exc_nodes then
        step = 3
        d.exc_nodes = exc_nodes
    end
    if comment then
        step = 4
        d.admin_comment = comment
    end
end

-- New values (nil: leave the field), then the old ones. Returns nil where all
-- went well, else what was raised.
return function(d, partition, req_nodes, exc_nodes, comment, o_partition, o_req, o_exc, o_comment)
    local ok, raised = pcall(put_all, d, partition, req_nodes, exc_nodes, comment)
    if ok then
        return nil
    end
    local reached = step
    if comment and reached >= 4 then
        restore(d, "admin_comment", o_comment)
    end
    if exc_nodes and reached >= 3 then
        restore(d, "exc_nodes", o_exc)
    end
    if req_nodes and reached >= 2 then
        restore(d, "req_nodes", o_req)
    end
    if partition and reached >= 1 then
        restore(d, "partition", o_partition)
    end
    local made, text = pcall(tostring, raised)
    return made and text or "an error that has no text"
end
