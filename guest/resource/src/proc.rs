//! Reads and writes `/proc/hayate`.

use crate::Failure;
use crate::command::KINDS;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

const ROOT: &str = "/proc/hayate";

/// Fails if this kernel is not Hayate.
pub fn present() -> Result<(), Failure> {
    if Path::new(ROOT).join("resources").is_dir() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "there is no {ROOT}/resources: this system is not Hayate, or /proc is not mounted"
    )))
}

/// The attributes of a resource, in their order.
type Attributes = Vec<(String, String)>;

fn attributes(kind: &str, which: &str) -> std::io::Result<Attributes> {
    // A name with slashes is not a file name; it is searched in the list.
    let which = if which.contains('/') { by_name(kind, which)? } else { which.to_string() };
    let text = fs::read_to_string(format!("{ROOT}/resources/{kind}/{which}"))?;
    let pairs = text.lines().filter_map(|line| line.split_once(": "));
    Ok(pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect())
}

fn serials(kind: &str) -> std::io::Result<Vec<String>> {
    let folder = fs::read_dir(format!("{ROOT}/resources/{kind}"))?;
    folder.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn by_name(kind: &str, name: &str) -> std::io::Result<String> {
    for serial in serials(kind)? {
        if attributes(kind, &serial).is_ok_and(|all| value(&all, "name") == name) {
            return Ok(serial);
        }
    }
    Err(Error::from(ErrorKind::NotFound))
}

fn value<'a>(attributes: &'a Attributes, name: &str) -> &'a str {
    let found = attributes.iter().find(|(known, _)| known == name);
    found.map_or("", |(_, value)| value)
}

/// Numbers as numbers, everything else as text.
fn typed(value: &str) -> Value {
    let plain = value == "0" || !value.starts_with('0');
    value.parse::<u64>().ok().filter(|_| plain).map_or_else(|| value.into(), Value::from)
}

fn object(attributes: &Attributes) -> Value {
    let mut object = Map::new();
    for (name, value) in attributes {
        // A serial remains text, because it may have two parts.
        let value = if name == "serial" { value.as_str().into() } else { typed(value) };
        match object.get_mut(name) {
            None => {
                object.insert(name.clone(), value);
            }
            Some(Value::Array(list)) => list.push(value),
            Some(other) => *other = Value::Array(vec![other.take(), value]),
        }
    }
    Value::Object(object)
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Columns, the first `left` of them to the left, the rest to the right.
fn table(rows: &[Vec<String>], left: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = if left.contains(&column) {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `resource list`
pub fn list(kind: Option<&str>, name: Option<&str>, json: bool) -> Result<String, Failure> {
    let mut all = Vec::new();
    for kind in KINDS.into_iter().filter(|known| kind.is_none_or(|kind| kind == *known)) {
        for serial in serials(kind).map_err(|error| refused(kind, &error))? {
            // A resource that was dropped since the folder was read is left out.
            let Ok(found) = attributes(kind, &serial) else { continue };
            if name.is_none_or(|name| value(&found, "name") == name) {
                all.push(found);
            }
        }
    }
    if json {
        return Ok(pretty(&all.iter().map(object).collect()));
    }
    let columns = ["kind", "serial", "owner", "bytes", "state", "name"];
    let mut rows = vec![columns.map(str::to_uppercase).to_vec()];
    rows.extend(all.iter().map(|one| columns.map(|name| value(one, name).to_string()).to_vec()));
    Ok(table(&rows, &[0, 1, 4, 5]))
}

/// `resource show`
pub fn show(kind: &str, which: &str, json: bool) -> Result<String, Failure> {
    let found = attributes(kind, which).map_err(|error| missing(kind, which, &error))?;
    if json {
        return Ok(pretty(&object(&found)));
    }
    let rows: Vec<_> = found.into_iter().map(|(name, value)| vec![name, value]).collect();
    Ok(table(&rows, &[0, 1]))
}

/// `resource set`
pub fn set(kind: &str, which: &str, attribute: &str, new: &str) -> Result<String, Failure> {
    let found = attributes(kind, which).map_err(|error| missing(kind, which, &error))?;
    let serial = value(&found, "serial");
    fs::write(format!("{ROOT}/resources/{kind}/{serial}"), format!("{attribute} {new}"))
        .map(|()| String::new())
        .map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Failure::new(format!(
                "the {attribute} of a {kind} cannot be changed, or not to {new}"
            )),
            _ => missing(kind, which, &error),
        })
}

/// `resource pools`
pub fn pools(json: bool) -> Result<String, Failure> {
    let text = read("pools")?;
    let rows: Vec<Vec<String>> =
        text.lines().map(|line| line.split(' ').map(str::to_string).collect()).collect();
    if !json {
        let mut shown = rows;
        if let Some(head) = shown.first_mut() {
            head.iter_mut().for_each(|word| *word = word.to_uppercase());
        }
        return Ok(table(&shown, &[0]));
    }
    let (head, rows) =
        rows.split_first().ok_or_else(|| Failure::new("the kernel lists no pools"))?;
    let object = |row: &Vec<String>| -> Value {
        let pairs = head.iter().zip(row);
        Value::Object(pairs.map(|(name, value)| (name.clone(), typed(value))).collect())
    };
    Ok(pretty(&rows.iter().map(object).collect()))
}

/// `resource limit`
pub fn limit(kind: &str, bytes: u64) -> Result<String, Failure> {
    write("pools", &format!("limit {kind} {bytes}")).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => Failure::new(format!("the kernel keeps nothing of kind {kind}")),
        _ => not_root("change what may be kept", &error),
    })
}

/// `resource policy`
pub fn policy(json: bool) -> Result<String, Failure> {
    let text = read("policy")?;
    Ok(if json { pretty(&json!({ "policy": text.trim() })) } else { text })
}

/// `resource policy NEW`
pub fn set_policy(new: &str) -> Result<String, Failure> {
    write("policy", new).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => Failure::usage(format!("there is no policy {new}")),
        _ => not_root("change the policy", &error),
    })
}

/// `resource drop`
pub fn drop(kind: Option<&str>) -> Result<String, Failure> {
    let order = kind.map_or_else(|| "drop".to_string(), |kind| format!("drop {kind}"));
    write("pools", &order).map_err(|error| not_root("drop what is kept", &error))
}

/// `resource frames`
pub fn frames(json: bool) -> Result<String, Failure> {
    let text = read("frames")?;
    let pairs: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    if json {
        let all = pairs.iter().map(|(name, value)| (name.to_string(), typed(value)));
        return Ok(pretty(&Value::Object(all.collect())));
    }
    let rows: Vec<_> =
        pairs.iter().map(|(name, value)| vec![name.to_string(), value.to_string()]).collect();
    Ok(table(&rows, &[0]))
}

fn read(file: &str) -> Result<String, Failure> {
    fs::read_to_string(format!("{ROOT}/{file}"))
        .map_err(|error| Failure::new(format!("cannot read {ROOT}/{file}: {error}")))
}

fn write(file: &str, text: &str) -> std::io::Result<String> {
    fs::write(format!("{ROOT}/{file}"), text).map(|()| String::new())
}

fn missing(kind: &str, which: &str, error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::new(format!(
            "there is no {kind} {which}, or it is not yours; `resource list {kind}` lists all"
        )),
        ErrorKind::PermissionDenied => {
            Failure::new(format!("{kind} {which} is not yours; root may do this"))
        }
        _ => Failure::new(format!("{kind} {which}: {error}")),
    }
}

fn refused(kind: &str, error: &Error) -> Failure {
    Failure::new(format!("cannot list resources of kind {kind}: {error}"))
}

fn not_root(what: &str, error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::PermissionDenied => Failure::new(format!("only root may {what}")),
        _ => Failure::new(format!("cannot {what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_attributes_become_a_list() {
        let pairs = [("kind", "process"), ("serial", "7"), ("execution", "1"), ("execution", "2")];
        let all: Attributes = pairs.map(|(name, value)| (name.into(), value.into())).to_vec();
        let wanted = json!({ "kind": "process", "serial": "7", "execution": [1, 2] });
        assert_eq!(object(&all), wanted);
        assert_eq!(value(&all, "kind"), "process");
        assert_eq!(value(&all, "colour"), "");
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [["KIND", "N"], ["plate", "10"], ["work-area", "9"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| cell.to_string()).collect()).collect();
        assert_eq!(table(&rows, &[0]), "KIND        N\nplate      10\nwork-area   9\n");
    }

    #[test]
    fn numbers_are_numbers() {
        assert_eq!(typed("12"), json!(12));
        assert_eq!(typed("0"), json!(0));
        assert_eq!(typed("007"), json!("007"));
        assert_eq!(typed("rw-"), json!("rw-"));
    }
}
