//! The files that the documents name, checked to exist.
//!
//! A path is what stands between backquotes in a line of Markdown, begins with a folder of the
//! project, and has no sign of a pattern or of a name to be filled in.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::paths;

/// The folders with sources: `build/` and `target/` are made later.
const FOLDERS: [&str; 11] = [
    ".ci/",
    "cli/",
    "crates/",
    "docs/",
    "experiments/",
    "guest/",
    "kernel/",
    "machine/",
    "measure/",
    "shim/",
    "tests/",
];

/// Returns the places where a document names a file or folder that does not exist.
pub fn name_files_that_exist() -> Result<Vec<String>> {
    let root = paths::project();
    let mut documents: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from).into();
    for entry in root.join("docs").read_dir().context("cannot read docs/")? {
        documents.push(Path::new("docs").join(entry?.file_name()));
    }
    documents.retain(|name| name.extension().is_some_and(|end| end == "md"));
    documents.sort();
    let mut found = Vec::new();
    for name in documents {
        let text = std::fs::read_to_string(root.join(&name))
            .with_context(|| format!("cannot read {}", name.display()))?;
        for (line, path) in named(&text) {
            if !root.join(path).exists() {
                found
                    .push(format!("{}:{line}: names {path}, which does not exist", name.display()));
            }
        }
    }
    Ok(found)
}

/// Returns the paths that a text names, each with its line.
fn named(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate();
    let quoted = lines.flat_map(|(number, line)| {
        line.split('`').skip(1).step_by(2).map(move |word| (number + 1, word))
    });
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c);
    quoted
        .filter(|(_, word)| FOLDERS.iter().any(|folder| word.starts_with(folder)))
        .filter(|(_, word)| word.chars().all(plain) && !word.contains("..."))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_and_whole() {
        let text = "See `kernel/src/main.rs`, kernel/x and `tests/c/AREA.c`.\n\
                    `docs/` `crates/*/src` `docs/.../x` `/proc/1` `guest/init`";
        assert_eq!(named(text), [(1, "kernel/src/main.rs"), (2, "docs/"), (2, "guest/init")]);
    }
}
