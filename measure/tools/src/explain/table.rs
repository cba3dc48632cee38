//! The table.

use super::account::{Explained, Line};
use crate::numbers::grouped;
use hayate_start_account::Image;
use std::fmt::Write;

const TITLE: usize = 46;
const VALUE: usize = 15;

/// The table for a terminal.
pub fn show(explained: &Explained) -> String {
    let mut out = String::new();
    let unit = if explained.counting {
        "instructions of the guest"
    } else {
        "time in nanoseconds, with what QEMU and the host did meanwhile"
    };
    let _ = writeln!(
        out,
        "hayate: {}, started {} by {}, until the parent knew of its end; {unit}\n",
        explained.command,
        times(explained.made),
        explained.how
    );
    let _ = write!(out, "{:TITLE$}", "");
    for name in explained.names() {
        let _ = write!(out, "{name:>VALUE$}");
    }
    out.push('\n');
    for line in explained.times() {
        row(&mut out, &line);
    }
    let total = explained.each(|start| explained.total(start));
    row(&mut out, &Line { title: "total".into(), depth: 0, values: total });
    let idle = explained.each(|start| start.account.idle());
    if idle.iter().any(|time| *time > 0) {
        let title = "besides, with nothing to run (ns)".into();
        row(&mut out, &Line { title, depth: 0, values: idle });
    }

    let faults = explained.faults();
    let all = explained.each(|start| {
        let kinds = hayate_start_account::Fault::ALL.iter();
        kinds.map(|kind| start.account.faults(*kind).0).sum()
    });
    out.push('\n');
    row(&mut out, &Line { title: "page faults".into(), depth: 0, values: all });
    for (line, times) in faults {
        row(&mut out, &line);
        let each: Vec<u64> = line
            .values
            .iter()
            .zip(&times)
            .map(|(count, time)| time.checked_div(*count).unwrap_or(0))
            .collect();
        row(&mut out, &Line { title: "each".into(), depth: 2, values: each });
    }
    for line in explained.pages() {
        if line.depth == 0 || line.values.iter().any(|value| *value > 0) {
            row(&mut out, &line);
        }
    }

    out.push_str("\nresources\n");
    for line in explained.resources() {
        row(&mut out, &line);
    }
    remarks(&mut out, explained);
    let _ = writeln!(out, "\nimage: {}", image(explained));
    out
}

fn times(count: usize) -> String {
    match count {
        1 => "once".into(),
        2 => "twice".into(),
        count => format!("{count} times"),
    }
}

/// Returns the image's horizon and what it saves, or why there is none.
fn image(explained: &Explained) -> String {
    let unit = if explained.counting { "instructions" } else { "ns" };
    match (&explained.image, explained.saved()) {
        (Image::Taken(horizon), Some(saved)) => {
            format!("taken at {horizon}, {} {unit} saved", grouped(saved))
        }
        (Image::Taken(horizon), None) => format!("taken at {horizon}, but no start began there"),
        (Image::Awaited(why), _) => {
            format!("none after {} starts: {why}", explained.made)
        }
        (Image::Refused(why), _) => format!("none: {why}"),
    }
}

fn row(out: &mut String, line: &Line) {
    let title = format!("{:indent$}{}", "", line.title, indent = 2 * line.depth);
    let _ = write!(out, "{title:<TITLE$}");
    for value in &line.values {
        let _ = write!(out, "{:>VALUE$}", grouped(*value));
    }
    out.push('\n');
}

/// Writes remarks on what the numbers do not show.
fn remarks(out: &mut String, explained: &Explained) {
    let started = explained.each(|start| start.started);
    if started.iter().any(|count| *count > 0) {
        row(
            out,
            &Line { title: "processes and threads it started".into(), depth: 0, values: started },
        );
    }
    let executed = explained.each(|start| start.executed);
    if executed.iter().any(|count| *count > 1) {
        let title = "programs it executed, one after the other".into();
        row(out, &Line { title, depth: 0, values: executed });
    }
    if explained.starts.len() == 1 {
        out.push_str("The second start did not come to its end.\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayate_start_account::{Account, Began, Fault, Moment, Runner, Start, StartPart, parse};

    /// Two starts, and one from an image that takes a thousandth of a second less.
    fn explained() -> Explained {
        let mut account = Account::begin(Moment::default());
        account.pass(Moment { now: 5_000, child: 1_000, parent: 3_900, idle: 0 });
        account.enter(StartPart::LookUp);
        account.skip(5_100, Runner::Child);
        account.pass(Moment { now: 1_005_100, child: 1_000_100, parent: 3_900, idle: 700 });
        account.enter(StartPart::LinkFaults);
        account.pass(Moment { now: 1_005_642, child: 1_000_642, parent: 3_900, idle: 700 });
        account.fault(Fault::Zeroed, 542);
        let one = Start {
            program: "/bin/ls".into(),
            pid: 9,
            began: Began::First,
            image: Image::Refused("the policy is without images".into()),
            executed: 1,
            linked: true,
            hertz: 1_000_000_000,
            started: 2,
            account,
            records: (0, 2),
            spaces: (0, 1),
            kept: 1,
            restored: (0, 0, 0),
            filled: (3, 4),
        };
        let mut account = Account::begin(Moment::default());
        account.pass(Moment { now: 4_842, child: 942, parent: 3_900, idle: 0 });
        let image = Image::Taken("write(1)".into());
        let last = Start { began: Began::Image, image, account, ..one.clone() };
        let starts = parse(&format!("{one}{one}{last}")).unwrap();
        let image = starts[2].image.clone();
        Explained { command: "ls".into(), counting: true, how: "vfork", image, made: 6, starts }
    }

    #[test]
    fn the_lines_add_up() {
        let explained = explained();
        for index in 0..2 {
            let lines = explained.times();
            let stages = lines.iter().filter(|line| line.depth == 0);
            let parts = lines.iter().filter(|line| line.depth == 1);
            let total = explained.total(&explained.starts[index]);
            assert_eq!(stages.map(|line| line.values[index]).sum::<u64>(), total);
            assert_eq!(parts.map(|line| line.values[index]).sum::<u64>(), total);
            assert_eq!(total, 1_005_642 - 700 - 100);
        }
    }

    #[test]
    fn the_last_line_tells_of_the_image() {
        let last = |explained: &Explained| show(explained).lines().last().unwrap().to_string();
        let mut explained = explained();
        assert_eq!(last(&explained), "image: taken at write(1), 1,000,000 instructions saved");
        explained.image = Image::Refused("its user may not read it".into());
        assert_eq!(last(&explained), "image: none: its user may not read it");
        explained.image = Image::Awaited("its memory differs".into());
        assert_eq!(last(&explained), "image: none after 6 starts: its memory differs");
        explained.image = Image::Taken("write(1)".into());
        explained.starts.truncate(2);
        assert_eq!(last(&explained), "image: taken at write(1), but no start began there");
    }

    #[test]
    fn the_table_says_what_was_counted() {
        let text = show(&explained());
        for line in [
            "hayate: ls, started 6 times by vfork",
            "   first start   second start     from image\n",
            "fork                                                    3,900          3,900          3,900",
            "  files looked up                                     999,000        999,000              0",
            "total                                               1,004,842      1,004,842          4,842",
            "besides, with nothing to run (ns)                         700            700              0",
            "  fresh page zeroed                                         1              1              0",
            "    each                                                  542            542              0",
            "pages zeroed                                                5              5              4",
            "processes and threads it started                            2              2              2",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("wait "), "{text}");
    }
}
