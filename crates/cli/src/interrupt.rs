//! Ctrl-C: the first one asks, the second one ends the process at once, and so does time. A bucket survives all of them.

use std::io::{self, Read};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exit::{INTERRUPTED, say};

/// Whoever was asked has so long to come to an end.
const GRACE: Duration = Duration::from_secs(10);

static ASKED: AtomicBool = AtomicBool::new(false);
static INSTALL: Once = Once::new();

/// From now on Ctrl-C asks instead of ending the process. Whoever calls this must look at [`is_asked`].
pub(crate) fn listen() {
    INSTALL.call_once(|| {
        // Without a handler the process just ends, which is safe too.
        let _ = ctrlc::set_handler(|| {
            if ASKED.swap(true, Ordering::SeqCst) {
                std::process::exit(INTERRUPTED.into());
            }
            std::thread::spawn(|| {
                std::thread::sleep(GRACE);
                std::process::exit(INTERRUPTED.into());
            });
        });
    });
}

/// Ends the process for whoever cannot be stopped otherwise.
pub(crate) fn end(words: &str) -> ! {
    say(words);
    std::process::exit(INTERRUPTED.into())
}

/// Standard input that Ctrl-C ends, also while nothing comes.
pub(crate) struct Stdin;

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        wait_for_input()?;
        read(buf)
    }
}

/// Past the buffer of the standard library: what lies there is nothing to wait for, and would be waited for.
#[cfg(unix)]
fn read(buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(io::stdin(), buf)?)
}

#[cfg(not(unix))]
fn read(buf: &mut [u8]) -> io::Result<usize> {
    io::stdin().lock().read(buf)
}

#[cfg(unix)]
fn wait_for_input() -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = io::stdin();
    let step = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    loop {
        if is_asked() {
            return Err(io::Error::other("interrupted"));
        }
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut waiting, Some(&step)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            _ => return Ok(()),
        }
    }
}

#[cfg(not(unix))]
fn wait_for_input() -> io::Result<()> {
    Ok(())
}

/// True if somebody pressed Ctrl-C.
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
