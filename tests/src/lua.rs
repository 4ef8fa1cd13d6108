//! The job_submit.lua that tests run sjp from, and where its modules are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cluster::TestCluster;
use crate::commands::FILL_JOB_NAME;

/// Stands for the cluster's folder in the text of a job_submit.lua.
pub const DIR_MARK: &str = "@DIR@";

/// The job_submit.lua that sites install.
const SHIPPED: &str = include_str!("../../lua/job_submit.lua");

/// What the log lines of the tests' job_submit.lua begin with.
const LOG_MARK: &str = "sjp-test: ";

/// The folder of the build in use (`target/debug` or the like), from where the test
/// executable lies.
///
/// # Errors
/// When the system cannot tell where the executable is.
pub fn build_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("where is the test executable?")?;
    let dir = exe.parent().context("the test executable has no folder")?;
    let dir = match dir.file_name() {
        Some(name) if name == "deps" || name == "examples" => dir.parent().unwrap_or(dir),
        _ => dir,
    };
    Ok(dir.to_path_buf())
}

/// The folder with sjp.lua and the native modules: `SJP_STAGE`, or `sjp-stage/lib/sjp`
/// in the target folder, which `make stage` fills.
///
/// # Errors
/// When the system cannot tell where the executable is.
pub fn stage_dir() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("SJP_STAGE").filter(|v| !v.is_empty()) {
        return Ok(dir.into());
    }
    let build = build_dir()?;
    Ok(build.parent().unwrap_or(&build).join("sjp-stage/lib/sjp"))
}

/// The text of a job_submit.lua that asks sjp about every job, logs the answer, and
/// accepts the job.
///
/// `before` is Lua run in front of `sjp.place`, with `job_desc`, `part_list`,
/// `submit_uid` in reach; `after` follows it, with `ok`, `placed`, `reason` too.
/// sjp.lua and its modules are read from `sjp/` in the cluster's folder, where
/// [`TestCluster::stage`] puts them.
pub fn job_submit_text(before: &str, after: &str) -> String {
    format!(
        r#"package.path = "{DIR_MARK}/sjp/?.lua;" .. package.path
local loaded, sjp = pcall(require, "sjp")
if loaded then
    sjp.config.state_dir = "{DIR_MARK}/run"
    sjp.config.disable_file = "{DIR_MARK}/disable"
    sjp.config.verbose = true
    slurm.log_info("{LOG_MARK}loaded version=%s", tostring(sjp.version))
else
    slurm.log_error("{LOG_MARK}require failed: %s", tostring(sjp))
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    if job_desc.name == "{FILL_JOB_NAME}" then
        return slurm.SUCCESS
    end
    {before}
    local ok, placed, reason = false, false, "not loaded"
    if loaded then
        ok, placed, reason = pcall(sjp.place, job_desc, submit_uid, part_list)
    end
    slurm.log_info("{LOG_MARK}answer ok=%s placed=%s reason=%s name=%s",
        tostring(ok), tostring(placed), tostring(reason), tostring(job_desc.name))
    {after}
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
"#
    )
}

/// The shipped job_submit.lua, with the paths of the throwaway cluster.
///
/// # Errors
/// When its text does not have the places where the paths belong.
pub fn shipped_job_submit() -> Result<String> {
    let paths = [
        ("/usr/lib/sjp/?.lua;/usr/local/lib/sjp/?.lua;", format!("{DIR_MARK}/sjp/?.lua;")),
        (
            "function slurm_job_submit(",
            format!(
                "if sjp then\n    sjp.config.state_dir = \"{DIR_MARK}/run\"\n    \
                 sjp.config.disable_file = \"{DIR_MARK}/disable\"\nend\n\n\
                 function slurm_job_submit("
            ),
        ),
    ];
    let mut text = SHIPPED.to_string();
    for (from, to) in &paths {
        if text.matches(from).count() != 1 {
            bail!("lua/job_submit.lua does not have {from:?} once: adapt the test harness to it");
        }
        text = text.replace(from, to);
    }
    Ok(text)
}

/// What `sjp.place` answered for one submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether the call came back without a Lua error.
    pub ok: bool,
    /// The first result: placed or not (`nil` and anything else count as not).
    pub placed: bool,
    /// The second result as text, or the error's text.
    pub reason: String,
    /// The job's name.
    pub name: String,
}

impl TestCluster {
    /// Copies sjp.lua and the native modules into the cluster's `sjp` folder, where
    /// the text of [`job_submit_text`] looks for them.
    ///
    /// # Errors
    /// When the stage folder is not there; `make stage` makes it.
    pub fn stage(&self) -> Result<()> {
        let from = stage_dir()?;
        let to = self.dir().join("sjp");
        let entries = std::fs::read_dir(&from)
            .with_context(|| format!("no {}: run `make stage` first", from.display()))?;
        std::fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("reading {}", from.display()))?;
            install(&entry.path(), &to.join(entry.file_name()))?;
        }
        Ok(())
    }

    /// Every answer of `sjp.place` that the tests' job_submit.lua has logged, in order.
    pub fn answers(&self) -> Vec<Answer> {
        self.slurmctld_log().lines().filter_map(parse_answer).collect()
    }

    /// The last answer for a job of this name.
    pub fn answer_for(&self, name: &str) -> Option<Answer> {
        self.answers().into_iter().rev().find(|a| a.name == name)
    }
}

/// Copies a file to where it may be in use: under another name, then renamed.
pub(crate) fn install(from: &Path, to: &Path) -> Result<()> {
    let new = to.with_extension("installing");
    std::fs::copy(from, &new)
        .and_then(|_| std::fs::rename(&new, to))
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn parse_answer(line: &str) -> Option<Answer> {
    let rest = line.split_once(LOG_MARK)?.1.strip_prefix("answer ok=")?;
    let (ok, rest) = rest.split_once(" placed=")?;
    let (placed, rest) = rest.split_once(" reason=")?;
    let (reason, name) = rest.split_once(" name=")?;
    Some(Answer {
        ok: ok == "true",
        placed: placed == "true",
        reason: reason.into(),
        name: name.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_answers_are_read() {
        let line = "[2026-01-01T00:00:00.000] lua: sjp-test: answer ok=true placed=false \
                    reason=no room name=j 1";
        let answer = parse_answer(line).unwrap();
        assert!(answer.ok && !answer.placed);
        assert_eq!((answer.reason.as_str(), answer.name.as_str()), ("no room", "j 1"));
        assert_eq!(parse_answer("sjp-test: loaded version=1"), None);
    }
}
