//! `./hayate experiment`: experiments described as data.
//!
//! A file in `experiments/` says what to run in which systems, how often, with which words on their
//! command lines, from which storage, and which limits Hayate must stay below. The results are
//! written as a table, pictures and data, so that one command reproduces every number in the
//! documents; all results so far are combined into one report.
//!
//! [`describe`] reads the description, [`results`] holds the results, [`grid`], [`picture`] and
//! [`curves`] show them, [`bars`] is the common kind of picture, [`scaling`] does all of that for
//! two processes against one, [`asked`] times a server in the machine from the host, [`counts`] and
//! [`kept`] ask further boots, [`page`] is one experiment as a page, [`joint`] the report.

mod asked;
mod bars;
mod counts;
mod curves;
mod describe;
mod grid;
mod joint;
mod kept;
mod page;
mod picture;
mod results;
mod scaling;

use crate::arguments::{Experiment, OUTPUT};
use crate::boot::{Disk, Missing, OtherEnd, Setup, System};
use crate::numbers::{counted, processors};
use crate::output::save;
use crate::suite::{measured_or_missing, names};
use anyhow::{Context, Result, bail, ensure};
use describe::{Dax, Description, Participant, Storage, Work};
use grid::Grid;
use hayate_cli::arguments::Profile;
use hayate_cli::failure::{Failure, USAGE};
use hayate_cli::guest::accel::settled;
use hayate_cli::image::default::{self, Recipe};
use hayate_cli::image::{convert, in_place, small};
use hayate_cli::{compile, paths};
use measure_data::Run;
use results::Results;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A measured value is above the limit of its description.
const ABOVE: u8 = 1;
/// For some value the comparison with its limit is undecided.
const UNKNOWN: u8 = 3;
/// One of several experiments, or a system of an experiment, could not be measured.
const FAILED: u8 = 4;

/// Runs the named experiments and writes their results.
pub fn experiment(options: &Experiment) -> Result<u8> {
    let known = describe::known()?;
    if options.names.is_empty() {
        for (name, path) in &known {
            println!("{name:<16} {}", describe::read(path)?.question);
        }
        return Ok(0);
    }
    let all = options.names.iter().any(|name| name == "all");
    if let Some(wrong) = options
        .names
        .iter()
        .find(|name| *name != "all" && known.iter().all(|(known, _)| known != *name))
    {
        let text = format!("no experiment {wrong}; ./hayate experiment lists them");
        return Err(Failure::error(USAGE, text));
    }
    if !options.only.is_empty() && options.output == Path::new(OUTPUT) {
        let text = "--only measures a part, which must not replace the results: name another \
            folder with --output";
        return Err(Failure::error(USAGE, text));
    }
    std::fs::create_dir_all(&options.output)
        .with_context(|| format!("cannot make {}", options.output.display()))?;
    let chosen: Vec<&(String, PathBuf)> =
        known.iter().filter(|(name, _)| all || options.names.contains(name)).collect();
    let (mut status, mut failed) = (0, Vec::new());
    for (at, (name, path)) in chosen.iter().enumerate() {
        if chosen.len() > 1 {
            eprintln!("hayate: experiment {} of {}: {name}", at + 1, chosen.len());
        }
        let read = describe::read(path).and_then(|mut what| {
            what.keep(&options.only)?;
            Ok(what)
        });
        match read.and_then(|what| one(options, name, &what)) {
            // A missed aim takes precedence over an undecided one.
            Ok(FAILED) => status = FAILED,
            Ok(ABOVE) if status != FAILED => status = ABOVE,
            Ok(UNKNOWN) if status == 0 => status = UNKNOWN,
            Ok(_) => {}
            // A failure of one of several experiments must not cost the others their report.
            Err(error) if chosen.len() > 1 => {
                eprintln!("hayate: {name}: {error:#}");
                failed.push((name.clone(), format!("{error:#}")));
                status = FAILED;
            }
            Err(error) => return Err(error),
        }
    }
    let names: Vec<String> = known.into_iter().map(|(name, _)| name).collect();
    let report = joint::earlier(&options.output, &names);
    // Draw the pages and pictures of earlier runs again with this version.
    report.iter().try_for_each(|results| draw(&options.output, results))?;
    joint::write(&options.output, &report, &failed)?;
    println!("{}", options.output.join("report.html").display());
    Ok(status)
}

/// Makes one experiment and writes its files; the status says whether an aim was missed.
fn one(options: &Experiment, name: &str, what: &Description) -> Result<u8> {
    let [first, further @ ..] = what.processors.as_slice() else { bail!("no processors") };
    let mut results = made(options, name, what, (what.counting, *first))?;
    for &cpus in further {
        let mut more = made(options, &format!("{name}-{cpus}"), what, (false, cpus))?;
        more.title = format!("{}, {}", what.title, processors(cpus));
        results.further.push(more);
    }
    if what.time {
        let mut time = made(options, &format!("{name}-time"), what, (false, *first))?;
        time.title = format!("{}, by the clock", what.title);
        // The limits are in instructions.
        time.lines.iter_mut().for_each(|line| line.at_most = None);
        (time.aims, time.limits) = (Vec::new(), Vec::new());
        results.time = Some(Box::new(time));
    }
    write(&options.output, &results)?;
    results.scaling.iter().for_each(|s| print!("{}", Grid::of_scaling(&results, s).text()));
    println!("{}", options.output.join(format!("{name}.md")).display());
    let failures = results.failures();
    failures.iter().for_each(|failure| eprintln!("hayate: {name}: {failure}"));
    Ok(match (results.above(), results.unknown()) {
        _ if !failures.is_empty() => FAILED,
        (true, _) => ABOVE,
        (false, true) => UNKNOWN,
        (false, false) => 0,
    })
}

/// Runs one experiment in all its systems, counting instructions or by the clock, on so many
/// processors.
fn made(
    options: &Experiment,
    name: &str,
    what: &Description,
    (counting, cpus): (bool, u8),
) -> Result<Results> {
    let measure = compile::measure()?;
    let setup = setup(options, what, (counting, cpus), &measure)?;
    let systems = systems(what, &measure)?;
    if let Some(wanted) = &what.scaling {
        return two_against_one(name, what, (wanted, &setup, &systems));
    }
    if let Some(wanted) = &what.asked {
        return asked::made(name, what, (wanted, &setup, &systems));
    }
    let found = measured_or_missing(&setup, &systems, what.boots, None)?;
    let runs: Vec<Option<&Run>> = found.iter().map(|found| found.as_ref().ok()).collect();
    let counts = if what.counts { counts::counts(&setup, what, &systems)? } else { Vec::new() };
    // Once, where instructions are counted and every boot is like the other.
    let kept = if what.kept && counting == what.counting {
        kept::kept(&setup, what, &systems)?
    } else {
        Vec::new()
    };
    let machine = format!(
        "{} MiB of memory, {}; {} of each system, {} of {}.",
        what.memory,
        processors(cpus),
        counted(what.boots, "boot", "boots"),
        counted(what.passes, "pass", "passes"),
        counted(what.iterations, "sample", "samples")
    );
    let of = systems.iter().zip(&found).map(|(system, found)| {
        let mut of = results::System::of(system);
        match found {
            Ok(run) => {
                of.release = run.machine.fact("kernel", "release").map(String::from);
                let skipped = run.skipped.iter();
                of.skipped = skipped.map(|s| (s.name.clone(), s.reason.clone())).collect();
            }
            Err(missing) => of.missing = Some(missing.to_string()),
        }
        of
    });
    let mut results = Results::new(name, what, counting, (machine, of.collect()));
    results.lines = results::lines(what, &runs);
    results.sweeps = curves::of(what, &runs);
    results.counts = counts;
    results.kept = kept;
    results.aims = results::aims(what, &results.systems, &results.lines);
    results.limits = results::limits(what, &results.systems, &results.lines);
    results.break_even = results::break_even(what, &results.systems, &results.lines);
    Ok(results)
}

/// The machine that all systems boot in, and the names and programs of the workload.
fn setup(
    options: &Experiment,
    what: &Description,
    (counting, cpus): (bool, u8),
    measure: &Path,
) -> Result<Setup> {
    let mut globs: Vec<String> = Vec::new();
    let of_suite = |work: &&Work| !work.is_program() && work.ask.is_none();
    for work in what.workload.iter().filter(of_suite) {
        globs.push(work.name.clone());
        globs.extend(work.total.then(|| format!("{}/total", work.name)));
    }
    globs.extend(what.sweeps.iter().map(|sweep| format!("{}*", sweep.results)));
    if !globs.is_empty() {
        names(measure, &globs)?;
    }
    let scripts = |work: &Work| Some((work.name.clone(), work.script.clone()?));
    let warm = what.workload.iter().filter(|work| work.warm);
    let warm = warm.flat_map(|work| work.programs().into_iter().chain(scripts(work)));
    Ok(Setup {
        counting,
        accel: if counting { options.accel } else { settled(options.accel, Profile::Release)? },
        cpus: if what.scaling.is_some() { 2 } else { cpus },
        memory: what.memory,
        kernel: options.kernel.clone(),
        profile: Profile::Release,
        image: small::get(measure)?,
        globs,
        programs: what.workload.iter().flat_map(Work::programs).collect(),
        scripts: what.workload.iter().filter_map(scripts).collect(),
        before: what.before.clone(),
        cold: what.cold,
        warm: warm.map(|(name, _)| name).collect(),
        passes: what.passes,
        iterations: what.iterations,
        memory_limit: what.memory_limit.clone(),
        timeout: Duration::from_secs(options.timeout),
        other_end: match (what.host, what.pair) {
            (true, _) => OtherEnd::Host(measure.to_owned()),
            (false, true) => OtherEnd::Pair,
            (false, false) => OtherEnd::None,
        },
        disk: what.disk,
        share: false,
    })
}

/// Like [`made`], for an experiment of two processes against one.
fn two_against_one(
    name: &str,
    what: &Description,
    (wanted, setup, systems): (&describe::Scaling, &Setup, &[System]),
) -> Result<Results> {
    setup.prepare(systems)?;
    let mut of: Vec<results::System> = systems.iter().map(results::System::of).collect();
    let mut all = Vec::new();
    for (at, system) in systems.iter().enumerate() {
        match scaling::measured(setup, wanted, (at, system)) {
            Ok((release, scaled)) => {
                of[at].release = Some(release);
                all.push(scaled);
            }
            // A failure in one system must not cost the others their results.
            Err(error) => {
                of[at].failed = !error.is::<Missing>();
                of[at].missing = Some(format!("{error:#}"));
            }
        }
    }
    let mut results = Results::new(name, what, false, (scaling::machine(what, wanted), of));
    let lacking = results.systems.iter().filter_map(|system| system.missing.as_deref());
    // A page without numbers must not replace an earlier one.
    ensure!(!all.is_empty(), "nothing was measured: {}", lacking.collect::<Vec<_>>().join("; "));
    results.scaling = all;
    Ok(results)
}

/// Returns the systems, each on each storage.
fn systems(what: &Description, measure: &Path) -> Result<Vec<System>> {
    let system = |p: &Participant, storage: Option<&Storage>, disk: Option<Disk>| {
        let part = |text: &str, of: fn(&Storage) -> &str, between: &str| match storage {
            Some(storage) => format!("{text}{between}{}", of(storage)),
            None => text.to_owned(),
        };
        System {
            key: part(&p.name, |s| &s.name, "-"),
            title: part(&p.title, |s| &s.title, ", "),
            linux: p.linux,
            words: p.words.clone(),
            needs: p.needs.clone(),
            launcher: p.launcher.clone(),
            qemu: p.qemu.clone(),
            disk,
        }
    };
    let Some(image) = &what.image else {
        return Ok(what.systems.iter().map(|p| system(p, None, None)).collect());
    };
    let recipe = default::recipe(image);
    let path = || paths::project().join(image);
    let plain = recipe.map_or_else(|| convert::disk(&path()), Recipe::get)?;
    let split = || recipe.map_or_else(|| convert::split(&path(), "*", false), |r| r.split("*"));
    let converted = what.systems.iter().any(|system| system.off2f).then(split).transpose()?;
    let folder = paths::build("measure")?;
    std::fs::copy(measure, folder.join("measure")).context("cannot copy the suite")?;
    let tools = convert::disk(&folder)?;
    let program = what.workload.iter().find_map(|work| work.run.as_ref()?.split(' ').next());
    let disk = |p: &Participant, storage: Option<&Storage>| {
        let converted = converted.as_ref().filter(|_| p.off2f);
        let options = storage.into_iter().flat_map(|storage| &storage.throttle);
        let options: Vec<String> =
            options.map(|(name, value)| format!("throttling.{name}={value}")).collect();
        anyhow::Ok(Disk {
            image: match p.dax {
                Some(Dax::Plain) => in_place::nvdimm(&plain, None)?,
                Some(Dax::Aligned) => in_place::nvdimm(&plain, program)?,
                None => converted.map_or(&plain, |split| &split.image).clone(),
            },
            tools: if p.dax.is_some() { measure.to_path_buf() } else { tools.clone() },
            throttle: options.join(","),
            texts: converted.map(|split| split.nvm.clone()),
            dax: p.dax.is_some(),
        })
    };
    if what.storage.is_empty() {
        let on = |p: &Participant| Ok(system(p, None, Some(disk(p, None)?)));
        return what.systems.iter().map(on).collect();
    }
    let all = what.storage.iter().flat_map(|storage| {
        let storage = Some(storage);
        what.systems.iter().map(move |p| (p, storage))
    });
    all.map(|(p, storage)| Ok(system(p, storage, Some(disk(p, storage)?)))).collect()
}

/// Writes table, pictures and data.
fn write(folder: &Path, r: &Results) -> Result<()> {
    let data = format!("{:#}\n", serde_json::to_value(r).context("results")?);
    save(&folder.join(format!("{}.json", r.name)), &data)?;
    draw(folder, r)
}

/// Writes table and pictures.
fn draw(folder: &Path, r: &Results) -> Result<()> {
    let place = |end: &str| folder.join(format!("{}{end}", r.name));
    if !r.lines.is_empty() {
        save(&place(".svg"), &picture::draw(r))?;
    }
    for part in r.parts() {
        save(&folder.join(format!("{}.svg", part.name)), &picture::draw(part))?;
    }
    if !r.scaling.is_empty() {
        save(&place(".svg"), &scaling::draw(r))?;
    }
    for (index, curve) in r.sweeps.iter().enumerate() {
        save(&place(&format!("-{}.svg", index + 1)), &curves::draw(r, curve))?;
    }
    save(&place(".md"), &page::markdown(r))
}
