//! Where a start began, and what is known of the program's image.

use alloc::string::String;
use core::fmt;

/// Where a start began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Began {
    /// At the program's first instruction.
    #[default]
    First,
    /// There too, and it was recorded for an image.
    Recorded,
    /// At an image.
    Image,
    /// At a template.
    Template,
}

impl Began {
    /// All of them.
    pub const ALL: [Began; 4] = [Began::First, Began::Recorded, Began::Image, Began::Template];

    /// Its name in files.
    pub fn key(self) -> &'static str {
        match self {
            Began::First => "first",
            Began::Recorded => "recorded",
            Began::Image => "image",
            Began::Template => "template",
        }
    }

    /// Returns the beginning with this name.
    pub fn from_key(key: &str) -> Option<Began> {
        Began::ALL.into_iter().find(|one| one.key() == key)
    }
}

/// The state of the program's image when a start began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// It was taken at this system call.
    Taken(String),
    /// There is none yet, for this reason.
    Awaited(String),
    /// There is none, and other starts will not change that, for this reason.
    Refused(String),
}

impl Image {
    /// Its name in files, and the text behind it.
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Image::Taken(text) => ("taken", text),
            Image::Awaited(text) => ("awaited", text),
            Image::Refused(text) => ("refused", text),
        }
    }

    /// Returns the image of which these are the parts.
    pub fn from_parts(key: &str, text: &str) -> Option<Image> {
        let text = text.into();
        match key {
            "taken" => Some(Image::Taken(text)),
            "awaited" => Some(Image::Awaited(text)),
            "refused" => Some(Image::Refused(text)),
            _ => None,
        }
    }
}

impl Default for Image {
    fn default() -> Image {
        Image::Awaited(String::new())
    }
}

/// The two words of a line, and a text without control characters.
impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, text) = self.parts();
        write!(f, "{key} ")?;
        crate::text::put(f, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn names_lead_back() {
        for began in Began::ALL {
            assert_eq!(Began::from_key(began.key()), Some(began));
        }
        assert_eq!(Began::from_key("nowhere"), None);
    }

    proptest! {
        /// What is written of an image is read, whatever its text is; it stays on one line.
        #[test]
        fn an_image_leads_back(which in 0usize..3, text in "\\PC*|[\\x00-\\xff]*") {
            let image = match which {
                0 => Image::Taken(text),
                1 => Image::Awaited(text),
                _ => Image::Refused(text),
            };
            let line = image.to_string();
            prop_assert!(!line.contains('\n'));
            let (key, rest) = line.split_once(' ').unwrap();
            let read = Image::from_parts(key, rest).unwrap();
            prop_assert_eq!(read.parts().0, image.parts().0);
            let shown: String =
                image.parts().1.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            prop_assert_eq!(read.parts().1, shown);
        }

        /// A word that is none is refused.
        #[test]
        fn other_words_are_refused(word in "[a-z]{0,10}") {
            prop_assume!(!["taken", "awaited", "refused"].contains(&word.as_str()));
            prop_assert_eq!(Image::from_parts(&word, ""), None);
        }
    }
}
