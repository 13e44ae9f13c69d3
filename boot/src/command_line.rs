//! The kernel's command line: words separated by blanks, some of them `key=value`.

/// The command line that QEMU's `-append` gave.
#[derive(Debug, Clone, Copy)]
pub struct CommandLine {
    text: &'static str,
}

impl CommandLine {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text }
    }

    /// Its words, in order.
    pub fn words(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.text.split_ascii_whitespace()
    }

    /// Whether `word` stands there alone.
    pub fn has(&self, word: &str) -> bool {
        self.words().any(|found| found == word)
    }

    /// The values of all words `key=value`, in order.
    pub fn values<'k>(&self, key: &'k str) -> impl Iterator<Item = &'static str> + use<'k> {
        self.words().filter_map(move |word| word.split_once('=').filter(|(found, _)| *found == key).map(|(_, value)| value))
    }

    /// The value of the last word `key=value`.
    pub fn value(&self, key: &str) -> Option<&'static str> {
        self.values(key).last()
    }
}
