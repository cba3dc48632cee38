//! `measure list` and `measure machine`.

use crate::args::RunArguments;
use crate::exit::Failure;
use crate::session::{select, setting, suite};
use crate::{experiments, fingerprint};
use std::path::Path;

/// Prints names and methods.
pub fn list(globs: &[String], json: bool) -> Result<(), Failure> {
    // With the defaults of `run`, so that the list shows what a plain run would measure.
    let mut setting = setting(&RunArguments::usual())?;
    setting.caches = fingerprint::machine(&setting.directory).caches;
    let chosen = select(experiments::all(&setting), globs)?;
    if json {
        let entries: Vec<serde_json::Value> = chosen
            .iter()
            .map(|e| serde_json::json!({"name": e.name, "title": e.title, "method": e.method}))
            .collect();
        println!("{}", serde_json::Value::from(entries));
        return Ok(());
    }
    let mut last_method = "";
    for e in &chosen {
        println!("{:<32} {}", e.name, e.title);
        if e.method != last_method {
            println!("{:<32}   {}", "", e.method);
        }
        last_method = &e.method;
    }
    Ok(())
}

/// Prints the fingerprint.
pub fn machine(json: bool, directory: &Path) -> Result<(), Failure> {
    let machine = fingerprint::machine(directory);
    if json {
        let text = serde_json::to_string_pretty(&machine);
        println!("{}", text.map_err(|e| Failure::new(1, e))?);
        return Ok(());
    }
    let mut group = "";
    for fact in &machine.facts {
        if fact.group != group {
            println!("{}", fact.group);
            group = &fact.group;
        }
        println!("  {:<26} {}", fact.name, fact.value);
    }
    let suite = suite();
    println!("measure\n  {:<26} {}", "version", suite.version);
    if let Some(hash) = suite.binary_sha256 {
        println!("  {:<26} {hash}", "SHA-256");
    }
    Ok(())
}
