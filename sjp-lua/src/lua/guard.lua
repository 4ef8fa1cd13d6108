-- The last guard around the native functions: whatever is raised, the caller
-- gets an answer.
local pcall = pcall

local function second(ok, placed, reason)
    if ok then
        return placed, reason
    end
    return false, "error"
end

return function(native)
    return function(job_desc, submit_uid, part_list)
        return second(pcall(native, job_desc, submit_uid, part_list))
    end
end
