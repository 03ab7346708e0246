//! Small trees that break a rule of the layers, each in one way, and some that break none.

use super::*;

const HOUSE: &[&[&str]] = &[
    &["src/disk", "src/region"],
    &["src/engine"],
    &["src/engine/memory"],
    &["src/lib"],
    &["src/python"],
    &["python/forebay/errors"],
    &["python/forebay"],
];

const FEW: &[(&str, &[&str])] = &[("src/disk/lock", &["src/disk", "src/engine/memory"])];

fn found(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<Source> = files
        .iter()
        .map(|(path, text)| Source::new(path, text))
        .collect();
    let findings = check_floors(&sources, HOUSE, FEW);
    let lines = findings
        .iter()
        .map(|it| format!("{}:{} {}", it.path, it.line, it.rule));
    lines.collect()
}

const NONE: [&str; 0] = [];

#[test]
fn imports_from_below_are_allowed() {
    let files = [
        ("src/disk/mod.rs", "mod lock;\npub use lock::Lock;\n"),
        ("src/disk/lock.rs", "use super::*;\npub struct Lock;\n"),
        ("src/engine/mod.rs", "mod memory;\nuse crate::disk::Disk;\n"),
        (
            "src/engine/memory.rs",
            "use crate::{disk::Lock, engine::Cursor};\n",
        ),
        (
            "src/lib.rs",
            "mod disk;\nmod engine;\npub use engine::Cursor;\n",
        ),
        (
            "src/python/mod.rs",
            "use crate::Cursor;\nuse std::disk::x;\n",
        ),
        ("python/forebay/errors.py", "import os\n"),
        (
            "python/forebay/__init__.py",
            "from forebay.errors import E\n",
        ),
    ];
    assert_eq!(found(&files), NONE);
}

#[test]
fn an_import_that_runs_up_is_found_however_it_is_written() {
    for import in [
        "use crate::engine::Cursor;",
        "use crate::{\n    engine::{Cursor, Row},\n};",
        "use crate::Cursor;",
        "pub(crate) use super::super::engine::Row as Line;",
        "fn f(cursor: &crate::engine::Cursor) {}",
        "#[cfg(test)]\nmod tests {\n    use super::super::super::engine::Cursor;\n}",
        "use super::Reexported;",
    ] {
        let lock = format!("{import}\n");
        let files = [
            ("src/disk/mod.rs", "pub use crate::engine::Reexported;\n"),
            ("src/disk/lock.rs", lock.as_str()),
            ("src/engine/mod.rs", "//! `Cursor` is not in crate::disk.\n"),
            ("src/lib.rs", "pub use engine::Cursor;\n"),
        ];
        let found = found(&files);
        let is_found = found.iter().any(|it| it.starts_with("src/disk/lock.rs:"));
        assert!(is_found, "{import}: {found:?}");
    }
    let python = [
        (
            "python/forebay/errors.py",
            "def f():\n    from forebay import (\n        x,\n    )\n",
        ),
        ("python/forebay/__init__.py", ""),
    ];
    assert_eq!(found(&python), ["python/forebay/errors.py:2 layers"]);
}

#[test]
fn a_path_through_a_module_inside_or_a_re_export_above_is_found() {
    let lib = ("src/lib.rs", "pub use disk::Disk;\n");
    let disk = ("src/disk.rs", "pub struct Disk;\n");
    let memory = ("src/engine/memory.rs", "pub fn open() {}\n");
    for code in [
        "fn f(disk: crate::Disk) {}\n",
        "use crate::Disk as Below;\n",
        "fn f() { memory::open() }\n",
        "fn f() { self::memory::open() }\n",
    ] {
        let files = [lib, disk, memory, ("src/engine/mod.rs", code)];
        assert_eq!(found(&files), ["src/engine/mod.rs:1 layers"], "{code}");
    }
}

#[test]
fn parts_of_one_floor_and_files_on_none_are_found() {
    let files = [
        ("src/disk/mod.rs", "use crate::region::Region;\n"),
        ("src/region.rs", "// use crate::disk::Disk;\n"),
        ("src/other.rs", ""),
    ];
    let expected = ["src/disk/mod.rs:1 layers", "src/other.rs:1 layers"];
    assert_eq!(found(&files), expected);
}

#[test]
fn bindings_that_bypass_the_re_exports_are_found() {
    let files = [
        ("src/engine/mod.rs", ""),
        ("src/lib.rs", "mod engine;\npub use engine::Cursor;\n"),
        (
            "src/python/mod.rs",
            "use crate::Cursor;\nuse crate::engine::Row;\n",
        ),
    ];
    assert_eq!(found(&files), ["src/python/mod.rs:2 re-exports"]);
}

#[test]
fn a_part_for_few_is_kept_from_others_also_through_a_re_export() {
    for import in ["crate::disk::lock::Lock", "crate::disk::Lock"] {
        let engine = format!("use crate::disk::Disk;\nuse {import};\n");
        let memory = format!("use {import};\n");
        let files = [
            ("src/disk/mod.rs", "mod lock;\npub use lock::Lock;\n"),
            ("src/disk/lock.rs", "pub struct Lock;\n"),
            ("src/engine/mod.rs", engine.as_str()),
            ("src/engine/memory.rs", memory.as_str()),
        ];
        assert_eq!(found(&files), ["src/engine/mod.rs:2 kept"], "{import}");
    }
}

#[test]
fn circles_of_files_are_found_however_they_are_written() {
    let face = "mod header;\nmod pack;\npub use pack::Pack as Packed;\n";
    for import in [
        "use super::pack::Pack;",
        "use super::{pack::{self, Pack}};",
        "use super::Packed;",
        "use crate::disk::Packed as Other;",
        "fn f(pack: &super::pack::Pack) {}",
        "#[cfg(test)]\nmod tests {\n    use super::super::pack;\n}",
    ] {
        let mut files = [
            ("src/disk/mod.rs", face),
            ("src/disk/header.rs", import),
            ("src/disk/pack.rs", "use super::Disk;\nuse super::table;\n"),
            ("src/disk/table.rs", "use super::header::Header;\n"),
        ];
        let circle = ["src/disk/header.rs:1 circle"];
        assert_eq!(found(&files), circle, "{import}");
        files[3].1 = "use super::Header;\n";
        assert_eq!(found(&files), NONE, "{import}");
    }
    let python = [
        ("python/forebay/app.py", "from forebay import facts as f\n"),
        (
            "python/forebay/facts.py",
            "def f():\n    import forebay.app\n",
        ),
    ];
    let circles = [
        "python/forebay/app:1 circle",
        "python/forebay/app.py:1 circle",
    ];
    assert_eq!(found(&python), circles);
}

#[test]
fn circles_of_folders_are_found() {
    let files = [
        ("src/engine/mod.rs", "use memory::cut::Cut;\n"),
        (
            "src/engine/log/mod.rs",
            "use crate::engine::queues::Queue;\n",
        ),
        ("src/engine/queues/mod.rs", "use super::index::Entry;\n"),
        ("src/engine/index.rs", ""),
        (
            "src/engine/index/test.rs",
            "use crate::engine::index::Entry;\n",
        ),
        (
            "src/engine/table/mod.rs",
            "use crate::engine::log::Walker;\n",
        ),
    ];
    assert_eq!(found(&files), NONE);
    let mut circular = files;
    circular[3].1 = "use crate::engine::table::Row;\n";
    let circles = ["src/engine/index:1 circle", "src/engine/index.rs:1 circle"];
    assert_eq!(found(&circular), circles);
}
