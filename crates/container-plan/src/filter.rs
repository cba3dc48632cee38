//! The filter of system calls of a container: a program of classic BPF for seccomp(2), which the
//! shim compiles and the guest installs.

/// The most instructions of a program (`BPF_MAXINSNS`, Linux 6.1).
pub const MOST: usize = 4096;

/// A filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Flags of `SECCOMP_SET_MODE_FILTER`.
    pub flags: u32,
    /// The instructions, each a `struct sock_filter` as a number.
    pub program: Vec<u64>,
}

/// Returns an instruction (`struct sock_filter`) as a number.
pub const fn instruction(code: u16, if_true: u8, if_false: u8, value: u32) -> u64 {
    code as u64 | (if_true as u64) << 16 | (if_false as u64) << 24 | (value as u64) << 32
}

impl Filter {
    pub(crate) fn text(&self) -> String {
        self.program.iter().map(|instruction| format!("{instruction:016x}")).collect()
    }

    pub(crate) fn set_program(&mut self, text: &[u8]) -> Result<(), String> {
        let (words, rest) = text.as_chunks::<16>();
        if !rest.is_empty() || words.is_empty() || words.len() > MOST {
            return Err("a program that no filter has".into());
        }
        let number = |word: &[u8; 16]| {
            let text = std::str::from_utf8(word).map_err(|error| error.to_string())?;
            u64::from_str_radix(text, 16).map_err(|error| error.to_string())
        };
        self.program = words.iter().map(number).collect::<Result<_, _>>()?;
        Ok(())
    }
}
