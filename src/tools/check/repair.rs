//! Cutting a damaged log.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use super::{Finding, Looked, log};
use crate::persist::files::Files;
use crate::persist::log::reader::read_manifest;
use crate::persist::log::repair;
use crate::tools::USAGE;
use crate::tools::json::Json;
use crate::tools::meter::{amount, confirm};

/// Repairs what was looked at, if it can be; otherwise what was found, or the status to end with.
pub fn repair(files: &Arc<dyn Files>, looked: Looked, yes: bool) -> Result<Finding, ExitCode> {
    let mut finding = looked.finding;
    if finding.sound {
        looked.log.iter().for_each(|folder| give_back(files, folder, &mut finding));
        return Ok(finding);
    }
    let Some(folder) = looked.log else {
        finding.line("nothing was changed: only a log as a whole, its folder, can be repaired".to_owned());
        return Ok(finding);
    };
    if !has_damage(&finding) && !super::lacks_manifest(files, &folder) {
        finding.line("nothing was changed: this is not mended by cutting the log".to_owned());
        return Ok(finding);
    }
    if let Some(process) = user_of(&folder) {
        finding.line(format!("nothing was changed: process {process} has the log open; stop it first"));
        return Ok(finding);
    }
    if !yes {
        let question = if has_damage(&finding) { "Cut the log there?" } else { "Make the manifest again?" };
        match confirm(&format!("{}{question}", super::text(&finding))) {
            Some(true) => {}
            Some(false) => {
                finding.line("nothing was changed".to_owned());
                return Ok(finding);
            }
            None => {
                eprintln!("seendb check: --fix needs --yes where nobody can be asked");
                return Err(ExitCode::from(USAGE));
            }
        }
    }
    Ok(cut(files, &folder, finding))
}

/// Gives back what a sound log has reserved and not used: nothing of the log is changed, so nobody is asked. What a server uses stays.
fn give_back(files: &Arc<dyn Files>, folder: &Path, finding: &mut Finding) {
    let lock = files.lock_folder(folder).ok().filter(|_| user_of(folder).is_none());
    if lock.is_none() {
        return;
    }
    match repair::give_back(files, folder) {
        Ok(0) => {}
        Ok(bytes) => {
            finding.line(format!("room that was reserved and not used is given back: {}", amount(bytes)));
            finding.set("given_back", bytes);
        }
        Err(error) => finding.line(format!("room that was reserved and not used cannot be given back: {error}")),
    }
}

fn has_damage(finding: &Finding) -> bool {
    finding.json.iter().any(|(name, value)| name == "damage" && *value != Json::Null)
}

fn cut(files: &Arc<dyn Files>, folder: &Path, mut finding: Finding) -> Finding {
    // Kept until the log is cut: a server that starts now does not get it.
    let _lock = match files.lock_folder(folder) {
        Ok(lock) => lock,
        Err(error) => {
            finding.fail(format!("not repaired: the folder is in use: {error}"));
            return finding;
        }
    };
    if super::lacks_manifest(files, folder) {
        return rebuild(files, folder, finding);
    }
    let kept = match repair::fix(files, folder) {
        Ok(outcome) => outcome.map(|(_, kept)| kept).unwrap_or_default(),
        Err(error) => {
            finding.fail(format!("not repaired: {error}"));
            return finding;
        }
    };
    let mut after = log::check_folder(folder);
    let what = match kept.is_empty() {
        true => "repaired: nothing had to be cut off".to_owned(),
        false => format!("repaired: what was cut off is in {}", kept.join(", ")),
    };
    let error = finding.json.into_iter().find(|(name, _)| name == "damage").map_or(Json::Null, |(_, value)| value);
    after.set("repaired", error);
    after.set("kept", Json::List(kept.into_iter().map(Json::from).collect()));
    after.lines.insert(0, what);
    after
}

fn newest(files: &Arc<dyn Files>, folder: &Path) -> Option<String> {
    read_manifest(&**files, folder).ok()??.segments.pop().map(|segment| segment.file)
}

fn rebuild(files: &Arc<dyn Files>, folder: &Path, mut finding: Finding) -> Finding {
    let kept = match repair::rebuild_manifest(files, folder) {
        Ok(kept) => kept,
        Err(reason) => {
            finding.line(format!(
                "nothing was changed: the manifest cannot be made again: {reason}; keep the folder, and restore a backup"
            ));
            return finding;
        }
    };
    let mut after = log::check_folder(folder);
    let kept = kept.map_or_else(String::new, |name| format!("; the damaged one is kept as {name}"));
    let last = newest(files, folder).map_or_else(String::new, |name| format!(" behind {name}"));
    after.lines.insert(0, format!("repaired: the manifest was made again from the other files{kept}"));
    after.lines.insert(1, format!("make sure that no segment{last} was lost too: no other file would tell"));
    after
}

/// A process that has a file of the folder open, as far as that can be seen.
fn user_of(folder: &Path) -> Option<u32> {
    let folder = folder.canonicalize().ok()?;
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(open) = std::fs::read_dir(process.path().join("fd")) else { continue };
        let inside = |link: std::fs::DirEntry| std::fs::read_link(link.path()).is_ok_and(|to| to.starts_with(&folder));
        if id != std::process::id() && open.flatten().any(inside) {
            return Some(id);
        }
    }
    None
}
