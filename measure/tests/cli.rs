//! The command as its users and their scripts meet it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Place(PathBuf);

impl Place {
    /// A fresh directory for a test's files.
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("measure-cli-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn measure(place: &Place, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_measure"))
        .args(arguments)
        .current_dir(&place.0)
        .env("TMPDIR", &place.0)
        .output()
        .unwrap()
}

/// Two processes against one come back with every round, pinned and not, and nothing stays behind.
#[test]
fn scaling_measures_one_and_two_in_turn() {
    let place = Place::new("scaling");
    let arguments = ["scaling", "--rounds", "2", "--milliseconds", "5", "--dir", "."];
    let out = measure(&place, &[&arguments[..], &["--json"]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let found: measure_data::scaling::Scaling = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(found.ceiling().unwrap().name, found.works[0].name);
    assert_eq!(found.works.len(), 9);
    for work in &found.works {
        assert_eq!((work.one.len(), work.two.len()), (2, 2), "{}", work.name);
        // Something was done in every round by everybody.
        assert!(work.one.iter().chain(&work.two).all(|done| *done > 0.0), "{work:?}");
    }
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 0);
    let out = measure(&place, &arguments);
    assert!(text(&out.stdout).contains("free/fork-exec"), "{}", text(&out.stdout));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A short run of something that every system has, saved as `name`.
fn short_run(place: &Place, name: &str) -> PathBuf {
    let file = place.file(name);
    let out = measure(
        place,
        &[
            "run",
            "cpu/loop",
            "cpu/call*",
            "cpu/syscall/get*",
            "--passes",
            "5",
            "--iterations",
            "10",
            "--json",
            file.to_str().unwrap(),
        ],
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
    file
}

#[test]
fn help_and_wrong_arguments() {
    let place = Place::new("arguments");
    let help = measure(&place, &["--help"]);
    assert!(help.status.success() && text(&help.stdout).contains("Exit status"));
    for (arguments, said) in [
        (&["run", "no/such*"][..], "no experiment matches no/such*"),
        (&["run", "--seconds", "0"], "seconds"),
        (&["run", "--memory-limit", "12"], "64M"),
        (&["run", "--cpu", "99999", "cpu/loop"], "--cpu 99999"),
        (&["run", "--remote", "nowhere", "cpu/loop"], "HOST:PORT"),
        (&["run", "--program", "a=/bin/true", "--warm", "b"], "--warm b"),
        (&["run", "--script", "a"], "NAME=SCRIPT"),
        (&["run", "--script", "a= "], "NAME=SCRIPT"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let out = measure(&place, arguments);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains(said), "{arguments:?}: {}", text(&out.stderr));
    }
}

#[test]
fn list_names_everything_with_its_method() {
    let place = Place::new("list");
    let out = measure(&place, &["list"]);
    let list = text(&out.stdout);
    for name in ["cpu/syscall/getppid", "memory/latency/64/32K", "net/tcp/round-trip", "file/fsync"]
    {
        assert!(list.contains(name), "{name}");
    }
    let out = measure(&place, &["list", "cpu/syscall*", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    for entry in list.as_array().unwrap() {
        assert!(entry["name"].as_str().unwrap().starts_with("cpu/syscall/"));
        assert!(!entry["method"].as_str().unwrap().is_empty());
    }
}

#[test]
fn machine_prints_a_fingerprint() {
    let place = Place::new("machine");
    let out = measure(&place, &["machine", "--json"]);
    let machine: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(!machine["facts"].as_array().unwrap().is_empty());
    assert!(text(&measure(&place, &["machine"]).stdout).contains("kernel"));
}

#[test]
fn a_run_writes_every_format_and_leaves_nothing_else() {
    let place = Place::new("formats");
    let out = measure(
        &place,
        &[
            "run",
            "cpu/loop",
            "cpu/process/vfork-exec-static",
            "net/remote*",
            "--passes",
            "2",
            "--iterations",
            "6",
            "--dir",
            ".",
            "--json",
            "r.json",
            "--csv",
            "r.csv",
            "--markdown",
            "r.md",
            "--html",
            "r.html",
        ],
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    assert!(shown.contains("cpu/loop") && shown.contains("predicted"), "{shown}");
    assert!(shown.contains("measure serve"), "the reason for skipping is not shown: {shown}");
    let read = |name| std::fs::read_to_string(place.file(name)).unwrap();
    let run: serde_json::Value = serde_json::from_str(&read("r.json")).unwrap();
    for result in run["results"].as_array().unwrap() {
        let rounds = result["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 2);
        assert!(rounds.iter().all(|r| r.as_array().unwrap().len() == 6));
        assert!(result["prediction"]["value"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(run["suite"]["binary_sha256"].as_str().unwrap().len(), 64);
    assert!(read("r.csv").starts_with("name,unit,samples,median"));
    assert!(read("r.md").contains("| cpu/loop |"));
    assert!(read("r.html").starts_with("<!DOCTYPE html>"));
    let mut left: Vec<String> = std::fs::read_dir(&place.0)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["r.csv", "r.html", "r.json", "r.md"]);
}

#[test]
fn json_on_standard_output_is_nothing_but_json() {
    let place = Place::new("stdout");
    let out = measure(&place, &["run", "cpu/loop", "--iterations", "5", "--json", "-"]);
    assert!(out.status.success());
    serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap();
}

/// A script keeps its spaces and quotes, is run by a shell each time, and counts only if it
/// succeeds.
#[test]
fn a_script_is_a_program() {
    let place = Place::new("script");
    let script = "script=printf '%s  %s;' a \"$(echo b)\" >>said; test -s said";
    let words = ["run", "program/*", "--script", script, "--script", "failing=exit 3", "--no-pin"];
    let rest = ["--passes", "1", "--iterations", "3", "--dir", ".", "--json", "-"];
    let out = measure(&place, &[&words[..], &rest].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let run: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(run["results"].as_array().unwrap().len(), 1, "{run}");
    assert_eq!(run["results"][0]["name"], "program/script");
    assert_eq!(run["results"][0]["rounds"][0].as_array().unwrap().len(), 3);
    assert_eq!(run["skipped"][0]["name"], "program/failing");
    assert!(run["settings"]["cpu"].is_null(), "it was pinned: {run}");
    // The first start is thrown away.
    assert_eq!(std::fs::read_to_string(place.file("said")).unwrap(), "a  b;".repeat(4));
}

#[test]
fn comparing_reports_and_exits_for_scripts() {
    let place = Place::new("compare");
    let a = short_run(&place, "a.json");
    let same = measure(&place, &["compare", a.to_str().unwrap(), a.to_str().unwrap(), "--all"]);
    assert!(!text(&same.stdout).contains("worse)"), "{}", text(&same.stdout));
    assert!(text(&same.stdout).contains("0 better, 0 worse"), "{}", text(&same.stdout));

    // Three times as slow: every tick of B tripled.
    let mut run: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&a).unwrap()).unwrap();
    for result in run["results"].as_array_mut().unwrap() {
        for round in result["rounds"].as_array_mut().unwrap() {
            for ticks in round.as_array_mut().unwrap() {
                *ticks = (ticks.as_u64().unwrap() * 3).into();
            }
        }
    }
    let b = place.file("b.json");
    std::fs::write(&b, run.to_string()).unwrap();
    let worse = measure(&place, &["compare", a.to_str().unwrap(), b.to_str().unwrap()]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse.stdout));
    assert!(text(&worse.stdout).contains("worse"));
    let better = measure(&place, &["compare", b.to_str().unwrap(), a.to_str().unwrap()]);
    assert!(text(&better.stdout).contains(" 0 worse"), "{}", text(&better.stdout));

    let report = measure(&place, &["report", a.to_str().unwrap(), b.to_str().unwrap()]);
    assert!(report.status.success(), "{}", text(&report.stderr));
    let page = std::fs::read_to_string(place.file("report.html")).unwrap();
    assert!(page.contains("2 runs side by side") && page.contains("worse"));
}

#[test]
fn selftest_compares_a_run_with_itself() {
    let place = Place::new("selftest");
    let out = measure(&place, &["selftest", "cpu/call*", "--passes", "5", "--iterations", "20"]);
    let said = text(&out.stdout);
    assert!(said.contains("of 8 no difference"), "{said}{}", text(&out.stderr));
    // On a machine that changes all the time it may find differences, and says so.
    assert!([Some(0), Some(1), Some(3)].contains(&out.status.code()), "{said}");
}

#[test]
fn bad_files_are_explained() {
    let place = Place::new("bad");
    let good = short_run(&place, "good.json");
    let whole = std::fs::read_to_string(&good).unwrap();
    for (name, contents, said) in [
        ("empty.json", String::new(), "empty"),
        ("half.json", whole[..whole.len() / 2].to_owned(), "cut off"),
        ("foreign.json", "{\"name\": \"package\"}".to_owned(), "not a run of measure"),
        ("text.json", "hello".to_owned(), "not a JSON file"),
        ("newer.json", whole.replacen("\"version\":1", "\"version\":9", 1), "format version 9"),
    ] {
        let bad = place.file(name);
        std::fs::write(&bad, contents).unwrap();
        for arguments in [
            &["compare", good.to_str().unwrap(), bad.to_str().unwrap()][..],
            &["report", bad.to_str().unwrap()],
        ] {
            let out = measure(&place, arguments);
            let error = text(&out.stderr);
            assert_eq!(out.status.code(), Some(5), "{name}: {error}");
            assert!(error.contains(name) && error.contains(said), "{name}: {error}");
        }
    }
    // Another suite that writes the same format is compared, and named.
    let other = place.file("other.json");
    let (mark, newer) = ("\"suite\":{\"version\":\"", "\"suite\":{\"version\":\"9.");
    std::fs::write(&other, whole.replacen(mark, newer, 1)).unwrap();
    let out = measure(&place, &["compare", good.to_str().unwrap(), other.to_str().unwrap()]);
    assert!(text(&out.stdout).contains("B by 9."), "{}{}", text(&out.stdout), text(&out.stderr));
    let missing = measure(&place, &["report", "missing.json"]);
    assert_eq!(missing.status.code(), Some(5));
}

#[test]
fn a_full_disk_loses_nothing() {
    let place = Place::new("full");
    let out = measure(&place, &["run", "cpu/loop", "--iterations", "5", "--json", "/dev/full"]);
    let error = text(&out.stderr);
    assert_eq!(out.status.code(), Some(6), "{error}");
    let rescued = error.split("saved as ").nth(1).unwrap().split(" instead").next().unwrap();
    assert!(Path::new(rescued).starts_with(&place.0));
    serde_json::from_str::<serde_json::Value>(&std::fs::read_to_string(rescued).unwrap()).unwrap();
    assert!(text(&out.stdout).contains("cpu/loop"), "the table is printed all the same");

    let early = Instant::now();
    let out = measure(&place, &["run", "--json", "no/such/directory/r.json"]);
    assert_eq!(out.status.code(), Some(6));
    assert!(early.elapsed() < Duration::from_secs(5), "found out only after measuring");
}

#[test]
fn ctrl_c_saves_what_was_measured() {
    let place = Place::new("stop");
    let child = Command::new(env!("CARGO_BIN_EXE_measure"))
        .args(["run", "--passes", "1000", "--dir", ".", "--json", "r.json"])
        .current_dir(&place.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("stopped before the end"));
    let run: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(place.file("r.json")).unwrap()).unwrap();
    assert_eq!(run["completion"], "interrupted");
    assert!(!run["results"].as_array().unwrap().is_empty());
    let left: Vec<_> = std::fs::read_dir(&place.0).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "files of the run are left: {left:?}");
}

#[test]
fn nothing_to_measure_has_a_status_of_its_own() {
    let place = Place::new("nothing");
    let out = measure(&place, &["run", "net/remote*"]);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("measure serve"));
}

#[test]
fn serve_answers_the_remote_experiments() {
    let place = Place::new("serve");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut server = Command::new(env!("CARGO_BIN_EXE_measure"))
        .args(["serve", "--listen", &address])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < deadline, "the server does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let out = measure(
        &place,
        &[
            "run",
            "net/remote/tcp*",
            "net/remote/udp*",
            "--remote",
            &address,
            "--passes",
            "1",
            "--iterations",
            "5",
            "--json",
            "r.json",
        ],
    );
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    let run: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(place.file("r.json")).unwrap()).unwrap();
    assert_eq!(run["results"].as_array().unwrap().len(), 6, "{}", text(&out.stdout));
}

#[test]
fn runs_of_different_builds_are_told_apart() {
    let place = Place::new("builds");
    let file = short_run(&place, "a.json");
    let other = place.file("b.json");
    let mut run: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let compared = |other: &Path| {
        text(&measure(&place, &["compare", "a.json", other.to_str().unwrap()]).stdout)
    };
    assert!(!compared(&file).contains("different builds"));
    run["suite"]["binary_sha256"] = "0".repeat(64).into();
    std::fs::write(&other, run.to_string()).unwrap();
    assert!(compared(&other).contains("different builds"));
}
