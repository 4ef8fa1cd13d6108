-- What slurmctld gives a job_submit.lua, and what it calls in there.
std = "lua51+lua53+lua54"
read_globals = { "slurm" }
max_line_length = 120
files["lua/job_submit.lua"] = {
    globals = { "slurm_job_submit", "slurm_job_modify" },
    unused_args = false,
}
