//! Hostlists: Slurm's short form for many names (`n[1-3,07-09]-ib[0-1]`).
