-- job_submit.lua for a site that has none: sjp places the job, and where no
-- node has room now, the job may wait for every partition that can hold it.
--
-- A site with a job_submit.lua of its own needs the lines marked (*), placed
-- after its own rules: what they set in job_desc.partition is then a choice
-- that sjp narrows and never widens.

package.path = "/usr/lib/sjp/?.lua;/usr/local/lib/sjp/?.lua;" .. package.path -- (*)
local found, sjp = pcall(require, "sjp") -- (*)
if not found then -- (*)
    slurm.log_error("job_submit: sjp does not load, jobs go on without it: %s", tostring(sjp)) -- (*)
    sjp = nil -- (*)
end -- (*)

function slurm_job_submit(job_desc, part_list, submit_uid)
    if sjp then -- (*)
        local placed, reason = sjp.place(job_desc, submit_uid, part_list) -- (*)
        if not placed and reason == "no room" then -- (*)
            sjp.open(job_desc, submit_uid, part_list) -- (*)
        end -- (*)
    end -- (*)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end
