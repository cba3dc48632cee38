//! The head of the page: the measurements, their reliability, and the properties of the machine
//! that they show.

use crate::markup::escape;
use measure_data::Run;
use measure_data::run::Completion;
use measure_data::statistics::Noise;

/// The section.
pub fn section(runs: &[Run]) -> String {
    let mut out = String::from("<header><p class=\"kicker\">measure</p>");
    match runs {
        [one] => {
            out.push_str(&format!("<h1>{}</h1>{}", escape(&one.label), about(one)));
        }
        _ => {
            out.push_str(&format!("<h1>{} runs side by side</h1>", runs.len()));
            for (i, (run, name)) in runs.iter().zip(crate::names(runs)).enumerate() {
                let label = if name == run.label { name } else { format!("{name}: {}", run.label) };
                out.push_str(&format!(
                    "<p class=\"legend\"><span><i class=\"b{}\"></i><b>{}</b></span></p>{}",
                    i % crate::chart::COLOURS,
                    escape(&label),
                    about(run)
                ));
            }
        }
    }
    out.push_str("<nav>");
    for area in crate::areas(runs) {
        out.push_str(&format!("<a href=\"#{0}\">{0}</a>", escape(&area)));
    }
    out.push_str("<a href=\"#machine\">machine</a></nav></header>");
    out.push_str("<div class=\"tiles\">");
    for (run, name) in runs.iter().zip(crate::names(runs)) {
        out.push_str(&tiles(run, (runs.len() > 1).then_some(&name)));
    }
    out.push_str("</div>");
    out
}

fn about(run: &Run) -> String {
    let mut parts = vec![date(run.started), format!("{:.0} s", run.seconds)];
    parts.push(match run.settings.iterations {
        Some(n) => format!("{n} samples in each of {} passes", run.settings.passes),
        None => format!("{} passes", run.settings.passes),
    });
    if run.settings.quick {
        parts.push("quick".into());
    }
    if let Some(cpu) = run.settings.cpu {
        parts.push(format!("pinned to processor {cpu}"));
    }
    parts.push(format!("measure {}", run.suite.version));
    let stopped = if run.completion == Completion::Interrupted {
        " <span class=\"tag warn\">stopped before the end</span>"
    } else {
        ""
    };
    format!("<p class=\"soft\">{}{stopped}</p>", escape(&parts.join(" · ")))
}

fn tiles(run: &Run, name: Option<&String>) -> String {
    let mut out = String::new();
    let name = name.map_or(String::new(), |n| format!(": {n}"));
    let count = |noise| run.results.iter().filter(|r| r.summary.noise == noise).count();
    let words: Vec<String> =
        [Noise::Exact, Noise::Quiet, Noise::Fair, Noise::Noisy, Noise::TooNoisy]
            .into_iter()
            .filter(|n| count(*n) > 0)
            .map(|n| format!("{} {}", count(n), n.word()))
            .collect();
    let mut tile = |big: String, small: String| {
        out.push_str(&format!(
            "<div class=\"tile\"><b>{}</b><span class=\"soft\">{}</span></div>",
            escape(&big),
            escape(&small)
        ));
    };
    tile(format!("{} results", run.results.len()), format!("{}{name}", words.join(", ")));
    let ratios: Vec<f64> = run
        .results
        .iter()
        .filter_map(|r| r.ratio().filter(|ratio| *ratio > 0.0).map(|ratio| ratio.max(1.0 / ratio)))
        .collect();
    let wrong = run.results.iter().filter(|r| r.mispredicted()).count();
    if !ratios.is_empty() {
        let within = ratios.iter().filter(|r| **r <= 2.0).count();
        tile(
            format!("{:.0} %", within as f64 / ratios.len() as f64 * 100.0),
            format!("of predictions within a factor of two, {wrong} off by more than three{name}"),
        );
    }
    for i in run.inferred.iter().filter(|i| i.unit == "bytes") {
        let verdict = match i.agrees {
            Some(true) => "as the machine reports",
            Some(false) => "the machine reports another value",
            None => "the machine reports none",
        };
        tile(
            measure_data::units::size(i.value),
            format!("{} by its curve, {verdict}{name}", i.what),
        );
    }
    out
}

/// Seconds since 1970 as a date and time in UTC (the civil calendar of Howard Hinnant's
/// `days_from_civil`, reversed).
fn date(seconds: u64) -> String {
    if seconds == 0 {
        return "no date".into();
    }
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates() {
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_704_067_199), "2023-12-31 23:59 UTC");
        assert_eq!(date(0), "no date");
    }
}
