//! A memory group: what the processes in it have together is limited, page cache included.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

const TOP: &str = "/sys/fs/cgroup";
/// A group can be removed only once the kernel has let go of its last process.
const REMOVE_TRIES: usize = 20;
const REMOVE_WAIT: Duration = Duration::from_millis(100);

/// Removed when dropped.
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes a group of so many bytes below `above`, or below the one that this process is in: what
    /// that one limits stays limited.
    pub fn new(above: Option<&Path>, limit: u64) -> Result<Self> {
        let above = match above {
            Some(above) => above.to_owned(),
            None => own()?,
        };
        let is_old = above.join("memory.limit_in_bytes").exists();
        let limit_file = if is_old { "memory.limit_in_bytes" } else { "memory.max" };
        if !is_old {
            let control = above.join("cgroup.subtree_control");
            fs::write(&control, "+memory").with_context(|| control.display().to_string())?;
        }
        let path = above.join(format!("kvb-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        // From here on it is removed, whatever happens.
        let group = Self { path };
        let limit_file = group.path.join(limit_file);
        let written = fs::write(&limit_file, limit.to_string());
        written.with_context(|| limit_file.display().to_string())?;
        Ok(group)
    }

    /// The file in which a process writes its number to be in the group.
    pub fn door(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..REMOVE_TRIES {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(REMOVE_WAIT);
        }
        eprintln!("    the group {} could not be removed", self.path.display());
    }
}

/// Puts this process into the group with this door.
pub fn enter(door: &Path) -> Result<()> {
    let entered = fs::write(door, std::process::id().to_string());
    entered.with_context(|| format!("enter {}", door.display()))
}

/// The group that this process is in.
fn own() -> Result<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let fields = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1).map(str::to_owned);
        Some((fields.next()?, fields.next()?))
    };
    let all: Vec<(String, String)> = groups.lines().filter_map(fields).collect();
    let is_memory = |names: &str| names.split(',').any(|name| name == "memory");
    // Version 1 has a tree for each controller, version 2 one for all, without a name.
    let old = all.iter().find(|(names, _)| is_memory(names));
    let new = all.iter().find(|(names, _)| names.is_empty());
    let (path, top) = match (old, new) {
        (Some((_, path)), _) => (path, Path::new(TOP).join("memory")),
        (None, Some((_, path))) => (path, PathBuf::from(TOP)),
        (None, None) => bail!("there are no memory groups"),
    };
    Ok(top.join(path.trim_start_matches('/')))
}
