//! What an image says about its program, and what a command line makes of that, as `docker run`.

use crate::blob::Digest;
use crate::{Error, Result, shown};
use oci_spec::image::{Arch, ImageConfiguration, Os};

/// What an image says about its program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The program, and its first arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments, or the program if there is no entrypoint.
    pub command: Vec<String>,
    /// `NAME=VALUE`.
    pub environment: Vec<String>,
    /// The working directory, if it names one.
    pub directory: Option<String>,
    /// `USER[:GROUP]`, each by name or number, if it names one.
    pub user: Option<String>,
    /// The signal that asks the program to end.
    pub stop_signal: Option<u8>,
    /// Ports on which it says that it listens.
    pub ports: Vec<Port>,
    /// Folders that it wants to be there.
    pub volumes: Vec<String>,
    /// The digests of the layers, unpacked.
    pub(crate) diffs: Vec<Digest>,
}

/// A port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// Whether it is one of UDP.
    pub udp: bool,
}

/// The most words, variables, ports or folders of one image.
const MOST: usize = 10_000;

impl Configuration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The text is none, or the image is for another machine.
    pub fn parse(text: &[u8]) -> Result<Configuration> {
        let read: ImageConfiguration = serde_json::from_slice(text)
            .map_err(|error| Error::new(format!("its configuration cannot be read: {error}")))?;
        if *read.os() != Os::Linux && !read.os().to_string().is_empty()
            || *read.architecture() != Arch::Amd64 && !read.architecture().to_string().is_empty()
        {
            let name = format!("{}/{}", read.os(), read.architecture());
            let name = shown(name.as_bytes());
            return Err(Error::new(format!("it is an image for {name}, not for linux/amd64")));
        }
        let diffs = read.rootfs().diff_ids().iter().map(|text| Digest::parse(text));
        let diffs = diffs.collect::<Result<_>>()?;
        let Some(of) = read.config() else {
            return Ok(Configuration { diffs, ..Configuration::default() });
        };
        let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let signal = text(of.stop_signal()).map(|name| {
            signal(&name)
                .ok_or_else(|| Error::new(format!("no stop signal: {}", shown(name.as_bytes()))))
        });
        let ports = list(of.exposed_ports());
        let mut ports =
            ports.iter().map(|port| self::ports(port)).collect::<Result<Vec<_>>>()?.concat();
        ports.sort_unstable();
        ports.dedup();
        let mut volumes = list(of.volumes());
        volumes.sort_unstable();
        let found = Configuration {
            entrypoint: list(of.entrypoint()),
            command: list(of.cmd()),
            environment: list(of.env()),
            directory: text(of.working_dir()),
            user: text(of.user()),
            stop_signal: signal.transpose()?,
            ports,
            volumes,
            diffs,
        };
        found.check()?;
        Ok(found)
    }

    /// Refuses what Linux cannot pass to a program.
    fn check(&self) -> Result<()> {
        let texts = [&self.entrypoint, &self.command, &self.environment, &self.volumes];
        let single = self.directory.iter().chain(&self.user);
        if texts.iter().any(|list| list.len() > MOST) || self.ports.len() > MOST {
            return Err(Error::new("its configuration has more words than an image needs"));
        }
        if texts.into_iter().flatten().chain(single).any(|text| text.contains('\0')) {
            return Err(Error::new("its configuration has a zero byte in a word"));
        }
        if self.environment.iter().any(|text| text.starts_with('=')) {
            return Err(Error::new("its configuration has a variable without a name"));
        }
        if self.directory.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return Err(Error::new("its working directory is no absolute path"));
        }
        Ok(())
    }

    /// The words to start: the entrypoint and the words of the command line, or the image's own
    /// where there are none. Another entrypoint replaces the image's words, too; an empty one
    /// is none.
    pub fn words(&self, entrypoint: Option<&[u8]>, command: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let own = |words: &[String]| words.iter().map(|word| word.clone().into_bytes()).collect();
        let first: Vec<Vec<u8>> = match entrypoint {
            None => own(&self.entrypoint),
            Some(b"") => Vec::new(),
            Some(word) => vec![word.to_vec()],
        };
        let rest = match (command.is_empty(), entrypoint) {
            (false, _) => command.to_vec(),
            (true, None) => own(&self.command),
            (true, Some(_)) => Vec::new(),
        };
        [first, rest].concat()
    }
}

/// Reads `80`, `80/tcp`, `53/udp` or `8000-8010/tcp`.
fn ports(text: &str) -> Result<Vec<Port>> {
    let wrong = || Error::new(format!("no port: {}", shown(text.as_bytes())));
    let (numbers, kind) = text.split_once('/').unwrap_or((text, "tcp"));
    let udp = match kind {
        "tcp" => false,
        "udp" => true,
        // Another protocol, which no machine here passes on.
        "sctp" => return Ok(Vec::new()),
        _ => return Err(wrong()),
    };
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    let number = |text: &str| match text.parse::<u16>() {
        Ok(number) if number != 0 && !text.starts_with('+') => Ok(number),
        _ => Err(wrong()),
    };
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(wrong());
    }
    Ok((first..=last).map(|number| Port { number, udp }).collect())
}

/// Signals of Linux on x86-64 (signal(7)), from 1.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// The first real-time signal that the C library leaves to programs, and the last.
const REAL_TIME: (u8, u8) = (34, 64);

/// Reads a signal by name, with or without SIG, or by number.
fn signal(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse::<u8>() {
        return (1..=REAL_TIME.1).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(at) = SIGNALS.iter().position(|known| *known == name) {
        return u8::try_from(at + 1).ok();
    }
    let offset = |text: &str, sign: char| match text {
        "" => Some(0),
        _ => text.strip_prefix(sign)?.parse::<u8>().ok(),
    };
    let number = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) => REAL_TIME.0.checked_add(offset(rest, '+')?)?,
        (_, Some(rest)) => REAL_TIME.1.checked_sub(offset(rest, '-')?)?,
        _ => return None,
    };
    (REAL_TIME.0..=REAL_TIME.1).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(config: &str) -> Result<Configuration> {
        let text = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{config},
                "rootfs":{{"type":"layers","diff_ids":[]}}}}"#
        );
        Configuration::parse(text.as_bytes())
    }

    #[test]
    fn what_docker_writes_is_read() {
        let found = of(r#"{
            "Hostname":"","Domainname":"","User":"web:www","AttachStdin":false,"Tty":false,
            "ExposedPorts":{"8000-8001/tcp":{},"80/tcp":{},"53/udp":{},"9/sctp":{}},
            "Env":["PATH=/bin","A="],"Cmd":["-g","daemon off;"],"Image":"sha256:00",
            "Volumes":{"/var/lib/x":{}},"WorkingDir":"/srv","Entrypoint":["/entry"],
            "OnBuild":null,"Labels":null,"StopSignal":"SIGQUIT",
            "Healthcheck":{"Test":["CMD","true"],"Interval":1000000000}
        }"#)
        .unwrap();
        assert_eq!(found.entrypoint, ["/entry"]);
        assert_eq!(found.command, ["-g", "daemon off;"]);
        assert_eq!(found.environment, ["PATH=/bin", "A="]);
        assert_eq!(found.directory.as_deref(), Some("/srv"));
        assert_eq!(found.user.as_deref(), Some("web:www"));
        assert_eq!(found.stop_signal, Some(3));
        let ports = found.ports.iter().map(|port| (port.number, port.udp));
        let wanted = [(53, true), (80, false), (8000, false), (8001, false)];
        assert_eq!(ports.collect::<Vec<_>>(), wanted);
        assert_eq!(found.volumes, ["/var/lib/x"]);
        let nothing = of(r#"{"Cmd":null,"Entrypoint":null,"Env":null,"User":"","WorkingDir":""}"#);
        assert_eq!(nothing.unwrap(), Configuration::default());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in [
            r#"{"StopSignal":"SIGNOTHING"}"#,
            r#"{"ExposedPorts":{"x":{}}}"#,
            r#"{"ExposedPorts":{"9-8/tcp":{}}}"#,
            r#"{"ExposedPorts":{"0/tcp":{}}}"#,
            r#"{"Env":["=x"]}"#,
            r#"{"Cmd":["a\u0000b"]}"#,
            r#"{"WorkingDir":"srv"}"#,
            "7",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        let other =
            br#"{"architecture":"arm64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
        let told = Configuration::parse(other).unwrap_err().to_string();
        assert_eq!(told, "it is an image for linux/arm64, not for linux/amd64");
        assert!(Configuration::parse(b"{}").is_err());
    }

    #[test]
    fn words_are_those_of_docker_run() {
        let image = of(r#"{"Entrypoint":["e","1"],"Cmd":["c"]}"#).unwrap();
        let words = |entrypoint: Option<&str>, command: &[&str]| {
            let command: Vec<_> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
            let words = image.words(entrypoint.map(str::as_bytes), &command);
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(None, &[]), ["e", "1", "c"]);
        assert_eq!(words(None, &["x", "y"]), ["e", "1", "x", "y"]);
        assert_eq!(words(Some("o"), &[]), ["o"]);
        assert_eq!(words(Some("o"), &["x"]), ["o", "x"]);
        assert_eq!(words(Some(""), &["x"]), ["x"]);
        assert!(words(Some(""), &[]).is_empty());
    }

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in [
            ("SIGTERM", 15),
            ("term", 15),
            ("9", 9),
            ("SIGSYS", 31),
            ("SIGRTMIN", 34),
            ("RTMIN+3", 37),
            ("SIGRTMAX-1", 63),
            ("64", 64),
        ] {
            assert_eq!(signal(text), Some(number), "{text}");
        }
        for wrong in ["", "0", "65", "SIG", "RTMIN+31", "RTMAX-31", "RTMIN-1", "é", "-1"] {
            assert_eq!(signal(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>, config: String) {
            let _ = Configuration::parse(&text);
            let _ = of(&config);
            let _ = signal(&config);
            let _ = ports(&config);
        }
    }
}
