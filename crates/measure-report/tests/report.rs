//! The report is one self-contained, well-formed file, whatever the runs contain.

use measure_data::read_run;
use measure_report::html;

/// A run as `measure` writes it, with text in it that would break a page.
fn run(label: &str) -> measure_data::Run {
    let point = |name: &str, x: f64, ticks: u64| {
        serde_json::json!({
            "name": name, "title": "<script>alert(1)</script>", "method": "a & b",
            "quantity": "time", "work": 1.0, "subtracted_ticks": 0.0,
            "axis": {"series": "load latency, stride 64", "x": x, "unit": "bytes"},
            "prediction": {"value": 2.0, "terms": [{"kind": "hardware", "count": 2.0,
                "primitive": "l1", "each_ns": 1.0, "why": "\"quoted\""}]},
            "note": null, "rounds": [[ticks, ticks + 1, ticks + 2], [ticks, ticks, ticks + 5]],
            "summary": {"n": 6, "minimum": 1.0, "p5": 1.0, "median": ticks as f64,
                "interval": {"low": 1.0, "high": 3.0}, "p95": 3.0, "mean": 2.0,
                "deviation": 0.5, "outliers": {"low_severe": 0, "low_mild": 0, "high_mild": 0,
                "high_severe": 0}, "drift": 0.0, "noise": "quiet"}
        })
    };
    let value = serde_json::json!({
        "format": "hayate-measure", "version": 1,
        "suite": {"version": "0", "binary_sha256": null}, "label": label, "started": 0,
        "seconds": 1.0, "completion": "interrupted",
        "settings": {"quick": true, "passes": 2, "iterations": null, "seconds": 1.0, "cpu": 1},
        "machine": {"facts": [{"group": "cpu", "name": "model", "value": "<b>"}],
            "caches": [{"level": 1, "bytes": 32768, "line": 64, "source": "CPUID"}]},
        "clock": {"name": "tsc", "ticks_per_second": 1e9, "overhead_ticks": 1.0,
            "resolution_ticks": 1.0},
        "primitives": [{"name": "l1", "ns": 1.0, "method": "chase"}],
        "results": [point("memory/latency/64/1K", 1024.0, 1), point("memory/latency/64/64K", 65536.0, 4)],
        "skipped": [{"name": "net/x", "reason": "no <socket>"}],
        "inferred": [{"what": "L1 data cache", "value": 32768.0, "unit": "bytes",
            "reported": 32768.0, "agrees": true}]
    });
    read_run(&value.to_string()).unwrap()
}

/// Elements that HTML closes by itself.
const VOID: [&str; 2] = ["meta", "!DOCTYPE"];

/// Panics unless every element is closed in order.
fn assert_balanced(page: &str) {
    let style = page.find("<style>").unwrap()..page.find("</style>").unwrap();
    let page = format!("{}{}", &page[..style.start], &page[style.end + 8..]);
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("unclosed <{tag}"));
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes something else");
        } else if !tag.ends_with('/') && !VOID.contains(&name) && name != "br" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

#[test]
fn one_run_and_several() {
    for runs in [vec![run("one")], vec![run("one"), run("two"), run("two")], vec![]] {
        let page = html(&runs);
        assert_balanced(&page);
        assert!(!page.contains("NaN") && !page.contains(">inf"));
    }
}

#[test]
fn self_contained() {
    let page = html(&[run("label")]);
    for outside in ["http:", "https:", "<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "the page contains {outside}");
    }
}

#[test]
fn shows_what_matters() {
    let page = html(&[run("my <label>")]);
    for shown in [
        "my &lt;label&gt;",
        "stopped before the end",
        "L1 by the curve: 32 KiB",
        "no &lt;socket&gt;",
        "predicted",
        "prefers-color-scheme:dark",
        "@media print",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn a_prediction_that_is_far_off_is_marked() {
    let mut run = run("x");
    let near = html(&[run.clone()]);
    assert!(near.contains("0 off by more than three") && !near.contains("factor of three"));
    run.results[0].prediction.as_mut().unwrap().value = 0.25;
    let far = html(&[run]);
    assert!(far.contains("1 off by more than three") && far.contains("factor of three"));
}
