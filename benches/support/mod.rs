//! Support for all benches: the size and place of runs, medians of alternating runs, and the stores
//! to measure.

#![allow(dead_code, reason = "each bench is its own crate and uses a part")]

pub(crate) mod limit;
pub(crate) mod load;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Bytes of records in a run: 1 GiB, or `FOREBAY_BENCH_BYTES`.
///
/// More would reach the kernel's limits for dirty pages and measure the disk.
pub(crate) fn run_bytes() -> u64 {
    number("FOREBAY_BENCH_BYTES").unwrap_or(1 << 30)
}

/// Runs of each contestant: 5, or `FOREBAY_BENCH_ROUNDS`.
pub(crate) fn rounds() -> usize {
    number("FOREBAY_BENCH_ROUNDS").map_or(5, |rounds| rounds.max(1) as usize)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

/// The numbers in a variable, separated by commas; `None` if it is not set.
pub(crate) fn numbers(variable: &str) -> Option<Vec<u64>> {
    let text = std::env::var(variable).ok()?;
    let parse = |text: &str| text.trim().parse();
    let parsed: Result<_, _> = text.split(',').map(parse).collect();
    Some(parsed.unwrap_or_else(|_| panic!("{variable}={text} is not a list of numbers")))
}

/// Whether a group of figures is requested: all are, unless the command line names some.
pub(crate) fn is_wanted(group: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let first = names.next();
    first.is_none_or(|first| first == group || names.any(|name| name == group))
}

/// A directory on the disk of the sources, removed when it is dropped.
///
/// The directory for temporary files is not suitable: it may be in memory.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = target().join("bench-data").join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed stays in the build directory; nothing can be done.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target")
}

/// Figures of one bench: printed, and saved for the summary of `make bench`.
pub(crate) struct Report {
    file: fs::File,
}

impl Report {
    /// A report with the bench's name, which continues that of an earlier process of the bench.
    pub(crate) fn new(bench: &str) -> Report {
        let directory = target().join("bench");
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(format!("{bench}.tsv"));
        let file = fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        println!(
            "{bench}: runs of {} MiB, load {}",
            run_bytes() >> 20,
            load()
        );
        Report { file }
    }

    /// Adds the median of `values`.
    pub(crate) fn add(&mut self, name: &str, unit: &str, values: &[f64]) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        let median = median_of_sorted(&sorted);
        println!(
            "  {name:<52} {} {unit}  ({} to {}, {} runs)",
            short(median),
            short(min),
            short(max),
            sorted.len()
        );
        let line = format!("{name}\t{unit}\t{median}\t{min}\t{max}\t{}\n", sorted.len());
        self.file.write_all(line.as_bytes()).unwrap();
        median
    }
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

fn short(value: f64) -> String {
    if value >= 1e6 {
        format!("{:8.2} M", value / 1e6)
    } else if value >= 1e4 {
        format!("{:8.1} k", value / 1e3)
    } else {
        format!("{value:8.2}  ")
    }
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

/// One measurement of a run: name, unit and value.
pub(crate) type Figure = (String, &'static str, f64);

/// Measures one thread: elapsed time and CPU time.
///
/// The CPU time shows the cost of the code even if other processes compete for the CPUs.
pub(crate) struct Clock {
    began: Instant,
    on_cpu: f64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        let on_cpu = on_cpu("/proc/thread-self");
        let began = Instant::now();
        Clock { began, on_cpu }
    }

    pub(crate) fn stop(&self) -> Span {
        let wall = self.began.elapsed().as_secs_f64();
        let on_cpu = on_cpu("/proc/thread-self") - self.on_cpu;
        Span { wall, on_cpu }
    }
}

/// Elapsed seconds and CPU seconds.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) wall: f64,
    pub(crate) on_cpu: f64,
}

impl Span {
    /// Two figures: how many per second elapsed, and how many per second of CPU time.
    pub(crate) fn rates(&self, name: &str, unit: &'static str, count: f64) -> Vec<Figure> {
        vec![
            (name.to_owned(), unit, count / self.wall),
            (format!("{name} {ON_CPU}"), unit, count / self.on_cpu),
        ]
    }
}

/// Marks a figure that counts CPU time only.
pub(crate) const ON_CPU: &str = "[on CPU]";

/// CPU seconds of a thread, given its directory under `/proc`.
fn on_cpu(task: &str) -> f64 {
    let text = fs::read_to_string(format!("{task}/schedstat")).unwrap_or_default();
    let first = text.split(' ').next();
    first
        .and_then(|it| it.parse::<f64>().ok())
        .unwrap_or(f64::NAN)
        / 1e9
}

/// CPU seconds so far of the threads with this name.
pub(crate) fn on_cpu_of(thread: &str) -> f64 {
    let mut sum = 0.0;
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim_end() == thread {
            sum += on_cpu(&task.path().to_string_lossy());
        }
    }
    sum
}

/// Runs all contestants in turn, [`rounds`] times, and reports the median of each figure, so that
/// other load on the machine affects them equally. One round before is a warm-up and not counted.
pub(crate) fn contest(report: &mut Report, contestants: &mut [&mut dyn FnMut() -> Vec<Figure>]) {
    let mut figures: Vec<(String, &str, Vec<f64>)> = Vec::new();
    for round in 0..=rounds() {
        for contestant in contestants.iter_mut() {
            for (name, unit, value) in contestant() {
                if round == 0 {
                    figures.push((name, unit, Vec::new()));
                } else if let Some(figure) = figures.iter_mut().find(|it| it.0 == name) {
                    figure.2.push(value);
                }
            }
        }
    }
    for (name, unit, values) in figures {
        report.add(&name, unit, &values);
    }
}
