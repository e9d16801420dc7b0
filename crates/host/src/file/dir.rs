//! A directory of the operating system.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{FileDisk, platform, sync_dir};
use crate::dir::{Dir, check_name, temporary};
use crate::disk::Disk;

/// Longest file that is read as a whole: what is replaced as a whole is small.
const READ_MAX: u64 = 16 << 20;

/// An existing directory, used by one process at a time.
#[derive(Debug)]
pub struct FileDir {
    path: PathBuf,
    /// Two replacements of one name would share a temporary file.
    replacing: Mutex<()>,
}

impl FileDir {
    /// Names a directory; it must exist when it is first used.
    pub fn new(path: impl AsRef<Path>) -> Self {
        FileDir { path: path.as_ref().to_owned(), replacing: Mutex::new(()) }
    }

    /// Makes a directory, and those above it that are not there, durably. Nobody but owner and group can enter them.
    pub fn make(path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let parent = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return Ok(()),
        };
        match platform::make_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                FileDir::make(parent)?;
                // Somebody else may make it meanwhile.
                match platform::make_dir(path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    made => made?,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                return Ok(());
            }
            made => made?,
        }
        sync_dir(parent)
    }

    /// Removes a directory with everything in it; nothing if there is none.
    pub fn remove_all(path: impl AsRef<Path>) -> io::Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Names of whatever is in a directory, in order; none if there is no such directory.
    pub fn list(path: impl AsRef<Path>) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // What is not text was not written by a store.
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    /// Fails if a name is a symbolic link. A directory that somebody made for others may have links in it that lead to their own files.
    pub fn refuse_link(path: impl AsRef<Path>) -> io::Result<()> {
        match fs::symlink_metadata(path.as_ref()) {
            Ok(meta) if meta.is_symlink() => {
                let name = path.as_ref().file_name().unwrap_or_default().to_string_lossy();
                let what = format!("{name} is a symbolic link, and a store keeps its files itself");
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn at(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        let path = self.path.join(name);
        FileDir::refuse_link(&path)?;
        Ok(path)
    }
}

impl Dir for FileDir {
    fn create(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(FileDisk::create_new(self.at(name)?)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(FileDisk::open(self.at(name)?)?))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.at(name)?;
        let meta = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            meta => meta?,
        };
        let too_large = || io::Error::new(io::ErrorKind::InvalidData, "not a small file");
        // A pipe would be waited for, and a device may never end.
        if !meta.is_file() || meta.len() > READ_MAX {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        let file = OpenOptions::new().read(true).open(&path)?;
        let read = file.take(READ_MAX + 1).read_to_end(&mut bytes)?;
        if u64::try_from(read).is_ok_and(|read| read <= READ_MAX) {
            Ok(Some(bytes))
        } else {
            Err(too_large())
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.at(name)?;
        let _alone = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let prepared = self.path.join(temporary(name));
        // A leftover of an interrupted replacement goes. Whatever it is, it is not written to: it may be a link to something else.
        match fs::remove_file(&prepared) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        platform::set_mode(&mut options);
        let mut file = options.open(&prepared)?;
        // Order: contents, sync, name, sync. Without the first sync the new name could survive with
        // no contents; without the second the old name could come back after this returned.
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&prepared, &path)?;
        sync_dir(&self.path)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name)?)?;
        sync_dir(&self.path)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // Names this directory would refuse cannot be files of the store.
            if let Ok(name) = entry.file_name().into_string()
                && check_name(&name).is_ok()
                && !entry.file_type()?.is_dir()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        sync_dir(&self.path)
    }
}
