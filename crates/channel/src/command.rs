//! A program to start, and its surroundings: the payload of [`Message::Open`].
//!
//! It consists of [records](hayate_records), as a job does.
//!
//! [`Message::Open`]: crate::frame::Message::Open

use alloc::string::String;
use alloc::vec::Vec;

use hayate_records::{Records, number, read, unknown};

/// The PID namespace in which a program begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidNamespace {
    /// A new one, in which the program is number 1.
    New,
    /// That of this process of the guest.
    Of(u32),
}

/// A program to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments. Empty: the login shell of the root file system.
    pub arguments: Vec<Vec<u8>>,
    /// `NAME=VALUE`, beside the machine's own environment and before it.
    pub environment: Vec<Vec<u8>>,
    /// The working directory; `None`: that of the machine's job.
    pub directory: Option<Vec<u8>>,
    /// `USER[:GROUP]`, each by name or number; `None`: that of the machine's job.
    pub user: Option<Vec<u8>>,
    /// Rows and columns of its terminal; `None`: separate streams.
    pub terminal: Option<(u16, u16)>,
    /// The PID namespace; `None`: the machine's.
    pub pid_namespace: Option<PidNamespace>,
    /// The program is not started, only its dynamic linker, which lists its libraries. The program
    /// and they are read, so that they are in memory when it is started.
    pub rehearses: bool,
}

impl Command {
    /// Returns the command as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Records::default();
        out.put_all("argument", &self.arguments);
        out.put_all("environment", &self.environment);
        if let Some(directory) = &self.directory {
            out.put("directory", directory);
        }
        if let Some(user) = &self.user {
            out.put("user", user);
        }
        if let Some((rows, columns)) = self.terminal {
            out.show("rows", rows);
            out.show("columns", columns);
        }
        match self.pid_namespace {
            Some(PidNamespace::New) => out.put("pid-namespace", "new"),
            Some(PidNamespace::Of(process)) => out.show("pid-namespace", process),
            None => {}
        }
        if self.rehearses {
            out.put("rehearses", "yes");
        }
        out.finish()
    }

    /// Reads a command. The error names the wrong record.
    pub fn decode(bytes: &[u8]) -> Result<Command, String> {
        let mut command = Command::default();
        let (mut rows, mut columns) = (None, None);
        for record in read(bytes) {
            let (key, value) = record?;
            match key {
                b"argument" => command.arguments.push(value.to_vec()),
                b"environment" => command.environment.push(value.to_vec()),
                b"directory" => command.directory = Some(value.to_vec()),
                b"user" => command.user = Some(value.to_vec()),
                b"rows" => rows = Some(number(value)?),
                b"columns" => columns = Some(number(value)?),
                b"pid-namespace" => {
                    command.pid_namespace = Some(match value {
                        b"new" => PidNamespace::New,
                        process => PidNamespace::Of(number(process)?),
                    });
                }
                b"rehearses" if value == b"yes" => command.rehearses = true,
                _ => return Err(unknown(key)),
            }
        }
        command.terminal = rows.zip(columns);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            arguments in prop::collection::vec(prop::collection::vec(1_u8.., 0..9), 0..5),
            environment in prop::collection::vec(prop::collection::vec(1_u8.., 0..9), 0..5),
            directory in prop::option::of(prop::collection::vec(1_u8.., 0..9)),
            user in prop::option::of(prop::collection::vec(1_u8.., 0..9)),
            terminal in prop::option::of(any::<(u16, u16)>()),
            process in prop::option::of(prop::option::of(any::<u32>())),
            rehearses in any::<bool>(),
        ) {
            let named = |process: Option<u32>| process.map_or(PidNamespace::New, PidNamespace::Of);
            let pid_namespace = process.map(named);
            let command = Command {
                arguments,
                environment,
                directory,
                user,
                terminal,
                pid_namespace,
                rehearses,
            };
            prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Command::decode(&bytes);
        }
    }

    #[test]
    fn a_wrong_record_is_refused() {
        assert!(Command::decode(b"argument\0").is_err());
        assert!(Command::decode(b"argument=true").is_err());
        assert!(Command::decode(b"colour=blue\0").is_err());
        assert!(Command::decode(b"rows=70000\0").is_err());
        assert!(Command::decode(b"pid-namespace=old\0").is_err());
        assert!(Command::decode(b"rehearses=no\0").is_err());
        let shell = Command { terminal: Some((24, 80)), ..Command::default() };
        assert_eq!(Command::decode(b"rows=24\0columns=80\0"), Ok(shell));
        assert_eq!(Command::decode(b""), Ok(Command { arguments: vec![], ..Command::default() }));
    }
}
