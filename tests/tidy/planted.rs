//! Each check is tested with a violation and with something similar that is allowed.

use super::*;

fn rules(path: &str, text: &str) -> Vec<&'static str> {
    check(&Source::new(path, text))
        .into_iter()
        .map(|it| it.rule)
        .collect()
}

fn rust(body: &str) -> Vec<&'static str> {
    rules("src/planted.rs", &format!("//! Planted.\n{body}\n"))
}

const CLEAN: [&str; 0] = [];

#[test]
fn long_files_and_lines_are_found() {
    assert_eq!(rust(&"\n".repeat(798)), CLEAN);
    assert_eq!(rust(&"\n".repeat(799)), ["lines"]);
    assert_eq!(rust(&format!("// {}", "x".repeat(97))), CLEAN);
    assert_eq!(rust(&format!("// {}", "x".repeat(98))), ["columns"]);
    let long_prose = "word ".repeat(40);
    assert_eq!(rules("docs/planted.md", &long_prose), CLEAN);
}

#[test]
fn characters_outside_ascii_are_found_in_source_and_not_in_prose() {
    assert_eq!(rust("// gr\u{fc}n"), ["ascii"]);
    assert_eq!(
        rules("python/planted.py", "\"\"\"Gr\u{fc}n.\"\"\"\n"),
        ["ascii"]
    );
    assert_eq!(rules("docs/planted.md", "gr\u{fc}n"), CLEAN);
    assert_eq!(rust(r#"const GREEN: &str = "gr\u{fc}n";"#), CLEAN);
}

#[test]
fn files_without_a_header_are_found() {
    assert_eq!(rules("src/planted.rs", "use std::fs;\n"), ["header"]);
    assert_eq!(rules("src/planted.rs", ""), ["header"]);
    assert_eq!(rules("python/planted.py", "import os\n"), ["header"]);
    assert_eq!(
        rules(
            "python/planted.py",
            "#!/usr/bin/env python3\n\"\"\"Planted.\"\"\"\n"
        ),
        CLEAN
    );
}

#[test]
fn long_functions_are_found_despite_misleading_strings_and_comments() {
    let function = |lines: usize| {
        let filling = "    call('}', '\\'', \"}\\\"\", r#\"}\"#); /* } /* } */ */ // a }\n";
        format!(
            "fn long<'a>(x: [u8; 4]) {{\n{}}}",
            filling.repeat(lines - 2)
        )
    };
    assert_eq!(rust(&function(70)), CLEAN);
    assert_eq!(rust(&function(71)), ["function"]);
    let declaration = format!(
        "trait T {{\n    fn short(x: [u8; 4]);\n{}}}",
        "\n".repeat(90)
    );
    assert_eq!(rust(&declaration), CLEAN);
    assert_eq!(
        rust(&format!(
            "type F = fn(u8);\nstruct S {{\n{}}}",
            "\n".repeat(90)
        )),
        CLEAN
    );
}

#[test]
fn long_functions_are_found_in_python_without_their_docstrings() {
    let function = |lines: usize| {
        let filling = "    call(\n)  # a line that ends the brackets, not the function\n\n";
        let docstring = format!("    \"\"\"Planted.\n{}\"\"\"\n", "\ndef f():\n".repeat(40));
        let head = "@planted\nasync def long(\n    x: str = \"(\",\n) -> None:\n";
        let body = filling.repeat((lines - 4) / 3);
        format!("\"\"\"Planted.\"\"\"\n\n\n{head}{docstring}{body}    pass\n\n\nEND = 1\n")
    };
    assert_eq!(rules("python/planted.py", &function(70)), CLEAN);
    assert_eq!(rules("python/planted.py", &function(73)), ["function"]);
    let short = format!(
        "\"\"\"Planted.\"\"\"\n\n\ndef f(): ...\n{}",
        "x = 1\n".repeat(90)
    );
    assert_eq!(rules("python/planted.py", &short), CLEAN);
    let method = function(73)
        .replace("\n    ", "\n        ")
        .replace("async", "    async");
    assert_eq!(rules("python/planted.py", &method), ["function"]);
}

#[test]
fn unsafe_code_is_found_outside_its_files_only() {
    let text = "//! Planted.\nfn f() {\n    unsafe { g() }\n}\n";
    assert_eq!(rules("src/planted.rs", text), ["unsafe"]);
    assert_eq!(rules("src/region/mod.rs", text), CLEAN);
    assert_eq!(
        rust("// It is unsafe to shrink a file.\n#![deny(unsafe_code)]"),
        CLEAN
    );
    assert_eq!(rust("const WORD: &str = \"unsafe\";"), CLEAN);
}

#[test]
fn locks_of_the_whole_process_are_found_outside_their_files_only() {
    let once = "static A: OnceLock<u32> = OnceLock::new();";
    assert_eq!(rust(once), ["locks"]);
    assert_eq!(
        rust("pub static LONG_NAME:\n    Mutex<u32> = Mutex::new(0);"),
        ["locks"]
    );
    assert_eq!(rust("fn f() {\n    g(intern!(py, \"a\"));\n}"), ["locks"]);
    assert_eq!(
        rules("src/python/once.rs", &format!("//! Planted.\n{once}\n")),
        CLEAN
    );
    assert_eq!(
        rust("struct A {\n    once: OnceLock<&'static str>,\n}"),
        CLEAN
    );
    assert_eq!(
        rust("static A: AtomicU32 = AtomicU32::new(0);\nfn f(a: Mutex<u32>) {}"),
        CLEAN
    );
}

#[test]
fn unfinished_work_is_found() {
    assert_eq!(rust("fn f() {\n    todo!()\n}"), ["unfinished"]);
    assert_eq!(
        rust("fn f() {\n    unimplemented!(\"f\")\n}"),
        ["unfinished"]
    );
    assert_eq!(rust("// TODO: finish"), ["unfinished"]);
    assert_eq!(
        rules("python/planted.py", "\"\"\"Planted.\"\"\"\n# FIXME\n"),
        ["unfinished"]
    );
    assert_eq!(
        rust("// SCHEDULE_TOPIC_XXXX holds the delayed messages."),
        CLEAN
    );
}

#[test]
fn code_in_comments_is_found_and_prose_is_not() {
    for dead in [
        "// let end = self.end();",
        "// self.flush();",
        "// if ready {",
        "// }",
        "// });",
        "// use std::fs;",
        "// #[inline]",
        "/* position += size; */",
        "/*\n   store.close();\n*/",
    ] {
        assert_eq!(rust(dead), ["dead code"], "{dead}");
    }
    for prose in [
        "// The mark moves first; a reader that sees it may read.",
        "// If the file is short, use the one before it;",
        "// See `flush()`, which waits.",
        "/// ```\n/// let store = open();\n/// ```",
        "let url = \"http://host/a;b\"; // one address",
        "// SAFETY: the region outlives `self`.",
    ] {
        assert_eq!(rust(prose), CLEAN, "{prose}");
    }
}

#[test]
fn machine_paths_are_found_in_every_kind_of_file() {
    for path in ["docs/planted.md", "Makefile", ".ci/run"] {
        for folder in ["work", "root", "home"] {
            assert_eq!(
                rules(path, &format!("cd /{folder}/here\n")),
                ["machine path"]
            );
        }
    }
    assert_eq!(rules("docs/planted.md", "the workload of /tmp\n"), CLEAN);
}

#[test]
fn history_is_found_in_comments_and_prose() {
    assert_eq!(rust("// The reader now uses a map."), ["history"]);
    assert_eq!(rust("/// Previously a list."), ["history"]);
    assert_eq!(rules("docs/planted.md", "Formerly a list.\n"), ["history"]);
    assert_eq!(rules("CHANGELOG.md", "`open` now takes a path.\n"), CLEAN);
    assert_eq!(
        rust("// A new file is created when the last one is full."),
        CLEAN
    );
    assert_eq!(rust("const WORD: &str = \"formerly\";"), CLEAN);
}
