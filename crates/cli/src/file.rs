//! Names of files that the command makes.

use std::io;
use std::path::Path;

/// Makes the name of a new file durable, as its contents are.
#[cfg(unix)]
pub(crate) fn sync_name(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Elsewhere the file system does that by itself.
#[cfg(not(unix))]
pub(crate) fn sync_name(_path: &Path) -> io::Result<()> {
    Ok(())
}
