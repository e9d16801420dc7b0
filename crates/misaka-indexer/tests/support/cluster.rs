//! A PostgreSQL server of this test's own: in a directory that is removed, on a socket in it, stopped in the end.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    programs: PathBuf,
    /// Whether it syncs: `on` or `off`.
    fsync: &'static str,
}

/// The newest server that Debian has installed; none if there is none. `KVB_POSTGRES=required` makes that a failure.
fn programs() -> Option<PathBuf> {
    let number = |path: &PathBuf| -> u32 {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.parse().ok()).unwrap_or(0)
    };
    let found = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = found.map(|entry| entry.unwrap().path().join("bin"));
    let newest = versions
        .filter(|programs| programs.join("initdb").exists())
        .max_by_key(|programs| programs.parent().map(|path| number(&path.to_owned())));
    if newest.is_none() {
        let is_required = std::env::var("KVB_POSTGRES").is_ok_and(|value| value == "required");
        assert!(!is_required, "there is no server: apt-get install postgresql");
        eprintln!("NOT TESTED: there is no PostgreSQL server under /usr/lib/postgresql");
    }
    newest
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

impl Cluster {
    /// Starts a server, if there is one. Nobody needs the files of a test after power loss; a server that is killed keeps what it wrote.
    pub(crate) fn start() -> Option<Cluster> {
        Cluster::start_with("off")
    }

    /// Starts one that syncs, or does not.
    pub(crate) fn start_with(fsync: &'static str) -> Option<Cluster> {
        let programs = programs()?;
        let dir = tempfile::Builder::new().prefix("pg").tempdir_in("/tmp").unwrap();
        if is_root() {
            let owner = Command::new("chown").arg("postgres").arg(dir.path()).status().unwrap();
            assert!(owner.success());
        }
        let cluster = Cluster { dir, programs, fsync };
        let data = cluster.data();
        let data = data.to_str().unwrap();
        let args = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"];
        cluster.run("initdb", &args);
        cluster.up();
        Some(cluster)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Runs a program of the server, as somebody who is not root.
    fn run(&self, program: &str, args: &[&str]) {
        let program = self.programs.join(program);
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("runuser");
                command.args(["-u", "postgres", "--"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        let mut log = tempfile::tempfile().unwrap();
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        // The server outlives the program that starts it, and would hold on to a pipe.
        command.stdout(log.try_clone().unwrap()).stderr(log.try_clone().unwrap());
        let status = command.status().unwrap();
        if !status.success() {
            let mut said = String::new();
            log.rewind().unwrap();
            log.read_to_string(&mut said).unwrap();
            panic!("{args:?}: {said}");
        }
    }

    pub(crate) fn up(&self) {
        let socket = self.dir.path().to_str().unwrap();
        let options = format!("-k {socket} -c listen_addresses='' -c fsync={}", self.fsync);
        let data = self.data();
        self.run("pg_ctl", &["-D", data.to_str().unwrap(), "-w", "-s", "-o", &options, "start"]);
    }

    /// Ends the server at once, as if it had crashed.
    pub(crate) fn crash(&self) {
        let data = self.data();
        self.run("pg_ctl", &["-D", data.to_str().unwrap(), "-w", "-s", "-m", "immediate", "stop"]);
    }

    /// Where a database is, which need not be there.
    pub(crate) fn address(&self, database: &str) -> String {
        format!("host={} user=postgres dbname={database}", self.dir.path().display())
    }

    /// The same as a URL.
    pub(crate) fn url(&self, database: &str) -> String {
        let host = self.dir.path().to_str().unwrap().replace('/', "%2F");
        format!("postgresql://postgres@{host}/{database}")
    }

    /// Makes a database.
    pub(crate) fn database(&self, name: &str) -> String {
        let socket = self.dir.path().to_str().unwrap();
        self.run("createdb", &["-h", socket, "-U", "postgres", name]);
        self.address(name)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may be down already.
        if self.data().join("postmaster.pid").exists() && !std::thread::panicking() {
            self.crash();
        } else if let Ok(pid) = std::fs::read_to_string(self.data().join("postmaster.pid"))
            && let Some(pid) = pid.lines().next()
        {
            let _ = Command::new("kill").args(["-QUIT", pid]).status();
        }
    }
}
