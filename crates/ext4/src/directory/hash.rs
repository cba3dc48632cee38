//! Hashes of names, by which indexed directories are sorted (Linux
//! `Documentation/filesystems/ext4/directory.rst`, "Hash Tree Directories").
//!
//! The volume chooses one of three functions, and whether they take a name's bytes as signed
//! numbers, as some processors' `char` is. All begin with the volume's seed. The lowest bit of a
//! hash is not used: in an index it says that a hash goes on from one leaf to the next.

/// The largest hash, which stands for the end.
const END: u32 = 0x7fff_ffff << 1;

/// Which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Legacy,
    HalfMd4,
    Tea,
}

/// How a directory's names are hashed.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    pub function: Function,
    pub unsigned: bool,
    pub seed: [u32; 4],
}

impl Hasher {
    /// The function of number `version` in a directory or a superblock, if there is such a one.
    pub fn new(version: u8, unsigned: bool, seed: [u32; 4]) -> Option<Hasher> {
        let function = match version {
            0 => Function::Legacy,
            1 => Function::HalfMd4,
            2 => Function::Tea,
            _ => return None,
        };
        // A volume without a seed has the initial state of MD4.
        let default = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        let seed = if seed == [0; 4] { default } else { seed };
        Some(Hasher { function, unsigned, seed })
    }

    /// The hash of `name`, and a second one that orders names whose first is equal.
    pub fn hash(&self, name: &[u8]) -> (u32, u32) {
        let (major, minor) = match self.function {
            Function::Legacy => (self.legacy(name), 0),
            Function::HalfMd4 => {
                let mut state = self.seed;
                let mut rest = name;
                while !rest.is_empty() {
                    half_md4(&mut state, &self.words::<8>(rest));
                    rest = rest.get(32..).unwrap_or_default();
                }
                (state[1], state[2])
            }
            Function::Tea => {
                let mut state = self.seed;
                let mut rest = name;
                while !rest.is_empty() {
                    tea(&mut state, &self.words::<4>(rest));
                    rest = rest.get(16..).unwrap_or_default();
                }
                (state[0], state[1])
            }
        };
        let major = major & !1;
        (if major == END { END - 2 } else { major }, minor)
    }

    /// A byte of a name as a number.
    fn value(&self, byte: u8) -> u32 {
        if self.unsigned { byte.into() } else { i32::from(byte as i8) as u32 }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for &byte in name {
            let product = self.value(byte).wrapping_mul(7_152_373);
            let mut next = before.wrapping_add(last ^ product);
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            (before, last) = (last, next);
        }
        last << 1
    }

    /// The first `N` words of a name, big-endian; the rest is filled with the name's length.
    fn words<const N: usize>(&self, name: &[u8]) -> [u32; N] {
        let length = name.len() as u32;
        let pad = length | length << 8;
        let pad = pad | pad << 16;
        let mut pieces = name.get(..N * 4).unwrap_or(name).chunks(4);
        core::array::from_fn(|_| {
            let piece = pieces.next().unwrap_or_default();
            piece.iter().fold(pad, |word, &byte| self.value(byte).wrapping_add(word << 8))
        })
    }
}

/// A shortened MD4: three rounds of eight steps.
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    const ROUNDS: [(u32, [usize; 8], [u32; 4]); 3] = [
        (0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (round, (constant, order, shifts)) in ROUNDS.iter().enumerate() {
        for (step, &word) in order.iter().enumerate() {
            let mixed = match round {
                0 => d ^ (b & (c ^ d)),
                1 => (b & c).wrapping_add((b ^ c) & d),
                _ => b ^ c ^ d,
            };
            let sum = a.wrapping_add(mixed).wrapping_add(input[word]).wrapping_add(*constant);
            // The four numbers take turns.
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (number, add) in state.iter_mut().zip([a, b, c, d]) {
        *number = number.wrapping_add(add);
    }
}

/// The Tiny Encryption Algorithm, 16 rounds.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut x, mut y, mut sum) = (state[0], state[1], 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        let mix = |value: u32, one: u32, other: u32| {
            (value << 4).wrapping_add(one)
                ^ value.wrapping_add(sum)
                ^ (value >> 5).wrapping_add(other)
        };
        x = x.wrapping_add(mix(y, key[0], key[1]));
        y = y.wrapping_add(mix(x, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As debugfs's `dx_hash` says, with the seed 01234567-89ab-cdef-0123-456789abcdef.
    #[test]
    fn hashes_are_those_of_e2fsprogs() {
        let long = "a-longer-name-of-more-than-thirty-two-bytes-indeed.txt";
        let seed = [0x6745_2301, 0xefcd_ab89, 0x6745_2301, 0xefcd_ab89];
        let expected = [
            (0, "a", 0xe74b_53e2, 0),
            (0, "hello", 0x3225_2546, 0),
            (0, long, 0xd3fd_5ef0, 0),
            (0, "grün-ß", 0x214c_06da, 0),
            (1, "a", 0x35dc_0cc4, 0x3f1d_acef),
            (1, "hello", 0xa26e_4a80, 0x97e5_b7f7),
            (1, long, 0xd08a_7c5e, 0x3ec2_d7dd),
            (1, "grün-ß", 0x33de_a534, 0xdbd6_3b77),
            (2, "a", 0x6d0e_a4c0, 0xc189_22df),
            (2, "hello", 0x6f5b_b1a8, 0x2319_17c2),
            (2, long, 0xafe8_2c50, 0x86cd_1bcc),
            (2, "grün-ß", 0xa150_a146, 0x0d98_e577),
        ];
        for (version, name, major, minor) in expected {
            let hasher = Hasher::new(version, false, seed).unwrap();
            assert_eq!(hasher.hash(name.as_bytes()), (major, minor), "{version} {name}");
        }
        // Without a seed the state begins as MD4's.
        let hasher = Hasher::new(1, false, [0; 4]).unwrap();
        assert_eq!(hasher.hash(b"hello"), (0x1746_da32, 0x4200_13b5));
        assert!(Hasher::new(6, false, seed).is_none());
    }
}
