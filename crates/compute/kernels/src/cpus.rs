//! How many CPUs this process may use: its affinity, its container's quota, and what CPUs share.
//!
//! The files of the system are read through one function and parsed by pure ones.

use std::collections::BTreeSet;

/// Reads a file of the system; `None` where it isn't there.
pub(crate) type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(crate) fn read_file(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Threads that computing should use: the physical cores among the CPUs this process may run on, and no more
/// than the CPU time its control group is given, rounded up; at least 1.
///
/// Two hardware threads of a core share the units that kernels keep busy, so the second only competes for
/// the caches.
pub fn available_threads() -> usize {
    let cores = physical_cores(&allowed(), &read_file).max(1);
    quota(&read_file).map_or(cores, |quota| cores.min(quota))
}

/// CPUs this process may run on, ascending; never empty.
#[cfg(target_os = "linux")]
pub(crate) fn allowed() -> Vec<usize> {
    // SAFETY: zero bytes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most the size given; 0 is the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    // SAFETY: every index is below the set's size.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(is_set).collect();
    // More CPUs than the set has room for are an error.
    if result == 0 && !cpus.is_empty() { cpus } else { assumed() }
}

/// CPUs this process may run on, ascending; never empty.
#[cfg(not(target_os = "linux"))]
pub(crate) fn allowed() -> Vec<usize> {
    assumed()
}

fn assumed() -> Vec<usize> {
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

/// Keeps the calling thread on one CPU, where the system allows it.
#[cfg(target_os = "linux")]
pub(crate) fn pin(cpu: usize) {
    // SAFETY: zero bytes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu < libc::CPU_SETSIZE as usize {
        // SAFETY: the index was checked; 0 is the calling thread and the set outlives the call.
        unsafe {
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_cpu: usize) {}

/// Bytes of the last level of cache that the first CPU has; `None` where the system does not say.
pub(crate) fn last_cache_bytes(read: Read<'_>) -> Option<usize> {
    let sizes = (0..8).filter_map(|index| {
        let text = read(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size"))?;
        let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
        kib.checked_mul(1024)
    });
    sizes.max()
}

/// Numbers of a list such as `0-3,8`. What is no number is left out.
pub(crate) fn parse_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(first..=last).filter(|_| last < 1 << 20)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Groups of hardware threads that share a core, among `cpus`. One whose core is not told is one of its own.
fn physical_cores(cpus: &[usize], read: Read<'_>) -> usize {
    let siblings = |cpu: &usize| {
        let file = |name: &str| read(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}"));
        let text = file("core_cpus_list").or_else(|| file("thread_siblings_list")).unwrap_or_default();
        parse_list(&text).first().copied().unwrap_or(*cpu)
    };
    cpus.iter().map(siblings).collect::<BTreeSet<_>>().len()
}

/// CPUs' worth of time that the control groups of this process allow, rounded up; `None` without a limit.
fn quota(read: Read<'_>) -> Option<usize> {
    let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
    let folders = mounts.lines().filter_map(Mount::parse).flat_map(|mount| mount.folders(&groups));
    let limits = folders.filter_map(|(is_v2, folder)| {
        let file = |name: &str| read(&format!("{folder}/{name}"));
        if is_v2 {
            share(file("cpu.max")?.split_whitespace())
        } else {
            share([file("cpu.cfs_quota_us")?.trim(), file("cpu.cfs_period_us")?.trim()].into_iter())
        }
    });
    limits.min()
}

/// Quota and period in microseconds to whole CPUs; `max` or -1 is no limit.
fn share<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<usize> {
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok().filter(|period| *period > 0)?;
    Some((quota.div_ceil(period) as usize).max(1))
}

/// Where a hierarchy of control groups that can limit CPU time is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    is_v2: bool,
    /// The group that the mount shows as its root.
    root: &'a str,
    point: &'a str,
}

impl<'a> Mount<'a> {
    /// A line of `/proc/self/mountinfo`, see proc_pid_mountinfo(5).
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let (mut mount, mut kind) = (mount.split(' ').skip(3), kind.split(' '));
        let (root, point) = (mount.next()?, mount.next()?);
        let is_v2 = match kind.next()? {
            "cgroup2" => true,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "cpu") => false,
            _ => return None,
        };
        Some(Self { is_v2, root, point })
    }

    /// Folders of this process's group and of those above it, as far as they are mounted.
    fn folders(&self, groups: &str) -> Vec<(bool, String)> {
        let path = groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_ours =
                if self.is_v2 { controllers.is_empty() } else { controllers.split(',').any(|c| c == "cpu") };
            is_ours.then_some(path)
        });
        let root = self.root.trim_end_matches('/');
        let inner = path.and_then(|path| path.strip_prefix(root)).unwrap_or("");
        let mut inner = if inner.starts_with('/') && !inner.contains("..") { inner } else { "" };
        let mut folders = Vec::new();
        loop {
            inner = inner.trim_end_matches('/');
            folders.push((self.is_v2, format!("{}{inner}", self.point)));
            let Some((outer, _)) = inner.rsplit_once('/') else { return folders };
            inner = outer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |path| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(parse_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(parse_list("5"), [5]);
        assert_eq!(parse_list("\n"), []);
        assert_eq!(parse_list("x,2,3-y,9999999-99999999999,4"), [2, 4]);
    }

    #[test]
    fn hardware_threads_of_a_core_count_once() {
        let files = [
            ("/sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0,2\n"),
            ("/sys/devices/system/cpu/cpu2/topology/core_cpus_list", "0,2\n"),
            ("/sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3\n"),
            ("/sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "1,3\n"),
        ];
        let check = |cpus: &[usize], expected| {
            assert_eq!(physical_cores(cpus, &system(&files)), expected, "{cpus:?}");
        };
        check(&[0, 1, 2, 3], 2);
        check(&[0, 2], 1);
        check(&[2, 3], 2);
        check(&[7, 8], 2);
    }

    #[test]
    fn quotas_of_both_versions_are_found() {
        const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                          33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
                          32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
        let check = |mounts: &str, groups: &str, files: &[(&str, &str)], expected: Option<usize>| {
            let mut all = vec![("/proc/self/mountinfo", mounts), ("/proc/self/cgroup", groups)];
            all.extend_from_slice(files);
            assert_eq!(quota(&system(&all)), expected, "{groups} {files:?}");
        };
        check(V2, "0::/\n", &[("/sys/fs/cgroup/cpu.max", "150000 100000\n")], Some(2));
        check(V2, "0::/\n", &[("/sys/fs/cgroup/cpu.max", "max 100000\n")], None);
        check(V2, "0::/a/b\n", &[("/sys/fs/cgroup/a/cpu.max", "1000 100000")], Some(1));
        let nested =
            [("/sys/fs/cgroup/a/b/cpu.max", "400000 100000"), ("/sys/fs/cgroup/cpu.max", "300000 100000")];
        check(V2, "0::/a/b\n", &nested, Some(3));
        let (quota, period) = ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
        let groups = "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n";
        check(V1, groups, &[(quota, "250000\n"), (period, "100000\n")], Some(3));
        check(V1, groups, &[(quota, "-1\n"), (period, "100000\n")], None);
        check(V1, groups, &[(quota, "1"), (period, "0")], None);
        check(V1, "0::/../other\n", &[], None);
        check("", "", &[], None);
    }

    #[test]
    fn the_largest_cache_is_the_last() {
        let size = |index: u32| format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let (first, last) = (size(0), size(3));
        let files = [(first.as_str(), "48K\n"), (last.as_str(), "307200K\n")];
        assert_eq!(last_cache_bytes(&system(&files)), Some(300 << 20));
        assert_eq!(last_cache_bytes(&system(&[])), None);
    }

    #[test]
    fn this_machine_has_some() {
        assert!(available_threads() >= 1 && !allowed().is_empty());
    }
}
