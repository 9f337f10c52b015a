//! How much memory this process may still take.
//!
//! The kernel grants almost any allocation and kills later (overcommit), so the server must know beforehand what it can
//! have. That is the least of
//!
//! * what the machine has left: `MemAvailable` of `/proc/meminfo` (free memory and what the kernel can take back at
//!   once, mostly page cache);
//! * what each enclosing control group has left: its limit minus what its members hold. Groups nest and every level
//!   counts, so all folders from the process's own group up to the mount are read. Page cache that was not used lately
//!   (`inactive_file`) is given back under pressure and does not count as held.
//!
//! Both generations of control groups are read, `memory.max` (v2) and `memory.limit_in_bytes` (v1), wherever
//! `/proc/self/mountinfo` says that they are mounted. "No limit" is `max` in v2 and a huge number in v1, which needs no
//! case of its own: the machine has less.
//!
//! Reading of texts and reading of files are apart, so that the former is tested on samples.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that this process may still take, or `None` where the system does not say.
pub fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_available(&text));
    let own_groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let groups = group_folders(&own_groups, &mounts);
    let left = groups.iter().flat_map(|(version, folders)| folders.iter().map(|folder| left_in(*version, folder)));
    left.chain([machine]).flatten().min()
}

/// Bytes that this process may have at most: those of the machine, or of the least limit of an enclosing control group.
pub fn limit() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_bytes(&text, "MemTotal:"));
    let own_groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let groups = group_folders(&own_groups, &mounts);
    let limits = groups.iter().flat_map(|(version, folders)| folders.iter().map(|folder| limit_of(*version, folder)));
    limits.chain([machine]).flatten().min()
}

fn limit_of(version: Version, folder: &Path) -> Option<u64> {
    fs::read_to_string(folder.join(version.files().0)).ok()?.trim().parse().ok()
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn meminfo_available(text: &str) -> Option<u64> {
    meminfo_bytes(text, "MemAvailable:")
}

/// A field of `/proc/meminfo`, in bytes.
fn meminfo_bytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The two generations of control groups; they name their files differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Version {
    /// Files of a group that hold its limit and its use, and the field of `memory.stat` with idle page cache.
    const fn files(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            Self::V2 => ("memory.max", "memory.current", "inactive_file"),
        }
    }
}

/// What the group in this folder may still take; `None` if it has no limit.
fn left_in(version: Version, folder: &Path) -> Option<u64> {
    let (limit, used, idle) = version.files();
    let read = |name| fs::read_to_string(folder.join(name)).unwrap_or_default();
    left(&read(limit), &read(used), &read("memory.stat"), idle)
}

/// [`left_in`] on the texts of the files. A use that cannot be read counts as 0, idle cache likewise.
fn left(limit: &str, used: &str, stat: &str, idle: &str) -> Option<u64> {
    let limit: u64 = limit.trim().parse().ok()?;
    let used: u64 = used.trim().parse().unwrap_or(0);
    let mut fields = stat.lines().filter_map(|line| line.split_once(' '));
    let idle = fields.find(|(name, _)| *name == idle).and_then(|(_, bytes)| bytes.trim().parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(idle)))
}

/// The folders of the groups that limit this process, its own first, for each generation that is mounted.
fn group_folders(own_groups: &str, mounts: &str) -> Vec<(Version, Vec<PathBuf>)> {
    let mounted = mounts.lines().filter_map(memory_mount);
    mounted
        .filter_map(|mount| {
            let group = own_group(own_groups, mount.version)?;
            Some((mount.version, levels(&mount, group)))
        })
        .collect()
}

/// A place where control groups that limit memory are mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    version: Version,
    /// The group that the folder shows.
    root: &'a str,
    folder: &'a str,
}

/// Reads a line of `mountinfo`: `id parent device root folder options … - type source superoptions`.
fn memory_mount(line: &str) -> Option<Mount<'_>> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, folder) = (place.next()?, place.next()?);
    let mut kind = kind.split(' ');
    let (kind, options) = (kind.next()?, kind.nth(1)?);
    let version = match kind {
        "cgroup2" => Version::V2,
        "cgroup" if options.split(',').any(|option| option == "memory") => Version::V1,
        _ => return None,
    };
    Some(Mount { version, root, folder })
}

/// The group of this process, from `/proc/self/cgroup`: lines `number:controllers:group`, v2 is `0::group`.
fn own_group(own_groups: &str, version: Version) -> Option<&str> {
    own_groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let fits = match version {
            Version::V1 => controllers.split(',').any(|controller| controller == "memory"),
            Version::V2 => number == "0" && controllers.is_empty(),
        };
        fits.then_some(group)
    })
}

/// The folder of a group and those above it, up to the mount. In a container that sees only its own part of the
/// hierarchy, the group's name may begin with a part that is not mounted; then the mount itself is the group.
fn levels(mount: &Mount<'_>, group: &str) -> Vec<PathBuf> {
    let top = Path::new(mount.folder);
    let below = Path::new(group).strip_prefix(mount.root).unwrap_or(Path::new(""));
    let plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let own = if plain { top.join(below) } else { top.to_path_buf() };
    own.ancestors().take_while(|folder| folder.starts_with(top)).map(Path::to_path_buf).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       24684084 kB\nMemFree:        23566980 kB\nMemAvailable:   24291216 kB\nBuffers:          105844 kB\n";

    #[test]
    fn the_machine_says_what_is_available() {
        assert_eq!(meminfo_available(MEMINFO), Some(24_291_216 * 1024));
        for other in [
            "",
            "MemTotal: 5 kB\n",
            "MemAvailable: x kB\n",
            "MemAvailable: 5\n",
            "MemAvailable: 99999999999999999999 kB",
        ] {
            assert_eq!(meminfo_available(other), None, "{other}");
        }
    }

    #[test]
    fn a_group_has_left_its_limit_minus_what_is_held() {
        let stat = "anon 300\nfile 250\ninactive_file 200\nactive_file 50\n";
        assert_eq!(left("1000\n", "600\n", stat, "inactive_file"), Some(600));
        assert_eq!(left("1000\n", "600\n", "", "inactive_file"), Some(400));
        assert_eq!(left("1000\n", "", "", "inactive_file"), Some(1000));
        assert_eq!(left("1000\n", "1500\n", "", "inactive_file"), Some(0));
        assert_eq!(left("1000\n", "100\n", stat, "inactive_file"), Some(1000), "more idle than used");
        assert_eq!(left("max\n", "600\n", stat, "inactive_file"), None);
        assert_eq!(left("", "", "", "inactive_file"), None);
        assert_eq!(left("9223372036854771712\n", "0", "", "total_inactive_file"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn version_2_every_level_up_to_the_mount() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n25 30 0:5 / /proc rw - proc proc rw";
        let folders = group_folders("0::/system.slice/seendb.service\n", mounts);
        let expected = ["/sys/fs/cgroup/system.slice/seendb.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"];
        assert_eq!(folders, [(Version::V2, expected.map(PathBuf::from).to_vec())]);
    }

    #[test]
    fn version_1_only_the_memory_controller() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        let folders = group_folders("8:pids:/\n4:memory:/jobs/4ccd\n1:cpu:/elsewhere\n", mounts);
        let expected = ["/sys/fs/cgroup/memory/jobs/4ccd", "/sys/fs/cgroup/memory/jobs", "/sys/fs/cgroup/memory"];
        assert_eq!(folders, [(Version::V1, expected.map(PathBuf::from).to_vec())]);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount() {
        let mounts = "40 35 0:32 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        let folders = group_folders("4:memory:/docker/ab12", mounts);
        assert_eq!(folders, [(Version::V1, vec![PathBuf::from("/sys/fs/cgroup/memory")])]);
        let folders = group_folders("0::/../other", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
        assert_eq!(folders, [(Version::V2, vec![PathBuf::from("/sys/fs/cgroup")])]);
    }

    #[test]
    fn lines_that_say_nothing_are_passed_over() {
        for mounts in ["", "garbage", "1 2 3 - cgroup2", "1 2 0:3 / /x rw - tmpfs tmpfs rw", " - \n - - -"] {
            assert!(group_folders("0::/\n4:memory:/", mounts).is_empty(), "{mounts}");
        }
        let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert!(group_folders("", mount).is_empty());
        assert!(group_folders("0:\n::\n4:memory:/", mount).is_empty());
    }

    #[test]
    fn this_machine_has_some() {
        if cfg!(target_os = "linux") {
            assert!(available().is_some_and(|bytes| bytes > 0));
        }
    }
}
