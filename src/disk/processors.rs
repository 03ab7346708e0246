//! Whether the machine has a processor to spare.

use std::fs::File;
use std::io::Read;
use std::thread;

/// The processors that this process may use.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    count: usize,
}

impl Processors {
    /// As many as the affinity of the caller and the limits of its group allow.
    pub fn of_process() -> Processors {
        Processors {
            count: thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Whether more threads want to run than there are processors, by a look at this moment. The
    /// threads are those of the whole machine. Where the system does not count them, the answer is
    /// no.
    pub fn are_short(&self) -> bool {
        let mut text = [0; 64];
        // Linux counts them when it is asked; the averages in the file are old.
        let read = File::open("/proc/loadavg").and_then(|mut file| file.read(&mut text));
        let text = text.get(..read.unwrap_or(0)).unwrap_or_default();
        running(text).is_some_and(|running| running > self.count)
    }
}

/// The number of threads that run or wait for a processor: `2` in `0.31 0.18 0.11 2/325 4711`.
fn running(text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    let (running, _) = text.split(' ').nth(3)?.split_once('/')?;
    running.parse().ok()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_threads_that_want_to_run_are_counted() {
        assert_eq!(running(b"0.31 0.18 0.11 2/325 4711\n"), Some(2));
        for text in [&b""[..], b"1 2 3 x/4 5", b"1 2 3", b"1 2 3 4", b"\xff"] {
            assert_eq!(running(text), None);
        }
    }

    /// The thread that looks is one.
    #[test]
    #[cfg(target_os = "linux")]
    fn without_processors_there_are_too_few() {
        assert!(Processors { count: 0 }.are_short());
        assert!(!Processors { count: usize::MAX }.are_short());
    }
}
