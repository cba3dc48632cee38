//! The parts of a start, and the kinds of page faults.

/// A stretch of a start, made of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The parent makes a process.
    Fork,
    /// The new process, until it executes the program.
    Before,
    /// execve.
    Exec,
    /// The dynamic linker, until the program's entry.
    Link,
    /// The program itself.
    Program,
    /// The end of the process.
    Exit,
    /// The parent, until it learns of the end.
    Wait,
    /// Time that belongs to no stage.
    Others,
}

macro_rules! kinds {
    ($(#[$meta:meta])* $name:ident {
        $($variant:ident $key:literal $title:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $title] $variant,)*
        }

        impl $name {
            /// All of them, in the order in which they are shown.
            pub const ALL: &[$name] = &[$($name::$variant),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Its name in files.
            pub fn key(self) -> &'static str {
                match self { $($name::$variant => $key),* }
            }

            /// Its name for people.
            pub fn title(self) -> &'static str {
                match self { $($name::$variant => $title),* }
            }

            /// Returns the kind with this name.
            pub fn from_key(key: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|one| one.key() == key)
            }
        }
    };
}

kinds! {
    /// A part of a start. All time belongs to exactly one.
    StartPart {
        Fork "fork" "process made (fork, vfork)";
        Before "before" "child, until it executes";
        BeforeFaults "before-faults" "its page faults";
        Arguments "arguments" "arguments copied";
        LookUp "look-up" "files looked up";
        Read "read" "headers read";
        Parse "parse" "headers parsed, or their record found";
        Space "space" "space made, or a kept one restored";
        Attach "attach" "segments attached";
        Stack "stack" "stack built";
        Change "change" "program changed";
        ExecFaults "exec-faults" "page faults of exec";
        Link "link" "its own instructions";
        LinkCalls "link-calls" "its system calls";
        LinkFaults "link-faults" "its page faults";
        Program "program" "its own instructions";
        ProgramCalls "program-calls" "its system calls";
        ProgramFaults "program-faults" "its page faults";
        Exit "exit" "process ended";
        ExitSpace "exit-space" "space given up, or kept";
        ExitFaults "exit-faults" "page faults of exit";
        Wait "wait" "parent, besides making the process";
        Interrupts "interrupts" "interrupts, signals";
        Others "others" "other programs, the kernel's own work";
    }
}

kinds! {
    /// The kind of a page fault, by what was done for it.
    Fault {
        Mapped "mapped" "page of a file mapped";
        Read "read" "page of a file read, then mapped or copied";
        FileCopied "file-copied" "page of a file copied to be written";
        Copied "copied" "page copied on write";
        Zeroed "zeroed" "fresh page zeroed";
        ZeroMapped "zero-mapped" "page of zeroes mapped to be read";
        Allowed "allowed" "right given back, nothing copied";
        Other "other" "other, signals among them";
    }
}

impl StartPart {
    /// The stage it belongs to.
    pub fn stage(self) -> Stage {
        match self {
            StartPart::Fork => Stage::Fork,
            StartPart::Before | StartPart::BeforeFaults => Stage::Before,
            StartPart::Arguments
            | StartPart::LookUp
            | StartPart::Read
            | StartPart::Parse
            | StartPart::Space
            | StartPart::Attach
            | StartPart::Stack
            | StartPart::Change
            | StartPart::ExecFaults => Stage::Exec,
            StartPart::Link | StartPart::LinkCalls | StartPart::LinkFaults => Stage::Link,
            StartPart::Program | StartPart::ProgramCalls | StartPart::ProgramFaults => {
                Stage::Program
            }
            StartPart::Exit | StartPart::ExitSpace | StartPart::ExitFaults => Stage::Exit,
            StartPart::Wait => Stage::Wait,
            StartPart::Interrupts | StartPart::Others => Stage::Others,
        }
    }

    /// Returns the part for the page faults of a stage.
    pub fn faults(stage: Stage) -> StartPart {
        match stage {
            Stage::Fork | Stage::Before => StartPart::BeforeFaults,
            Stage::Exec => StartPart::ExecFaults,
            Stage::Link => StartPart::LinkFaults,
            Stage::Program => StartPart::ProgramFaults,
            Stage::Exit | Stage::Wait | Stage::Others => StartPart::ExitFaults,
        }
    }

    /// Whether this is the part for the page faults of its stage.
    pub fn is_faults(self) -> bool {
        self == StartPart::faults(self.stage())
    }
}

impl Stage {
    /// All, in the order of a start.
    pub const ALL: [Stage; 8] = [
        Stage::Fork,
        Stage::Before,
        Stage::Exec,
        Stage::Link,
        Stage::Program,
        Stage::Exit,
        Stage::Wait,
        Stage::Others,
    ];

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Stage::Fork => "fork",
            Stage::Before => "before exec",
            Stage::Exec => "exec",
            Stage::Link => "dynamic linking",
            Stage::Program => "program itself",
            Stage::Exit => "exit",
            Stage::Wait => "wait",
            Stage::Others => "others",
        }
    }

    /// Its name in files.
    pub fn key(self) -> &'static str {
        match self {
            Stage::Fork => "fork",
            Stage::Before => "before",
            Stage::Exec => "exec",
            Stage::Link => "linking",
            Stage::Program => "program",
            Stage::Exit => "exit",
            Stage::Wait => "wait",
            Stage::Others => "others",
        }
    }

    /// Returns the part for time of a stage that is neither a step of the kernel nor a fault.
    pub fn own(self) -> StartPart {
        match self {
            Stage::Fork | Stage::Before => StartPart::Before,
            Stage::Exec => StartPart::Change,
            Stage::Link => StartPart::Link,
            Stage::Program => StartPart::Program,
            Stage::Exit => StartPart::Exit,
            Stage::Wait => StartPart::Wait,
            Stage::Others => StartPart::Others,
        }
    }

    /// Returns the part for the system calls of a program in this stage.
    pub fn calls(self) -> StartPart {
        match self {
            Stage::Link => StartPart::LinkCalls,
            Stage::Program => StartPart::ProgramCalls,
            other => other.own(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for &part in StartPart::ALL {
            assert_eq!(StartPart::from_key(part.key()), Some(part));
        }
        for &fault in Fault::ALL {
            assert_eq!(Fault::from_key(fault.key()), Some(fault));
        }
        assert_eq!(StartPart::from_key("nothing"), None);
    }

    #[test]
    fn faults_stay_in_their_stage() {
        let with_faults = [Stage::Before, Stage::Exec, Stage::Link, Stage::Program, Stage::Exit];
        for stage in with_faults {
            assert_eq!(StartPart::faults(stage).stage(), stage);
            assert!(StartPart::faults(stage).is_faults());
            assert!(!stage.own().is_faults());
        }
        assert!(!StartPart::Others.is_faults());
    }
}
