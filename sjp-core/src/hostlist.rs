//! Hostlists: Slurm's short form for many names (`n[1-3,07-09]-ib[0-1]`):
//! expanding, looking a name up without expanding, and the way back.
//!
//! Names come out in the order written, padding kept (`[07-09]` is `07`,
//! `08`, `09`; `[9-10]` is `9`, `10`). Text may be hostile: how many names and
//! how long ones come out is bounded, and nothing is allocated before that is
//! known.

use std::fmt::Write as _;
use std::ops::ControlFlow;

/// The most names that [`expand`] gives: twice what Slurm itself can hold.
pub const MAX_NAMES: usize = 131_072;
/// The longest name, in bytes.
pub const MAX_NAME_LEN: usize = 255;
/// The most digits of a number within brackets.
const MAX_DIGITS: usize = 18;
/// The most bracket groups of one name.
const MAX_GROUPS: usize = 16;

/// Why a text is no hostlist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// A bracket without its partner, or one within another.
    #[error("hostlist {0:?}: brackets do not match")]
    Brackets(String),
    /// What stands within brackets is no list of numbers and ranges.
    #[error("hostlist: {0:?} within brackets is neither a number nor a range of numbers")]
    Range(String),
    /// More names than allowed.
    #[error("hostlist stands for more than {0} names")]
    TooMany(usize),
    /// A name longer than [`MAX_NAME_LEN`], or of more groups than any name has.
    #[error("hostlist holds a name longer than {MAX_NAME_LEN} bytes or of too many groups: {0:?}")]
    TooLong(String),
}

/// One range within brackets: numbers `lo..=hi`, padded with zeros to `width`.
#[derive(Clone, Copy, Debug)]
struct Range {
    lo: u64,
    hi: u64,
    width: usize,
}

impl Range {
    fn parse(text: &str) -> Result<Self, HostlistError> {
        let bad = || HostlistError::Range(cut(text));
        let number = |digits: &str| {
            let fits = !digits.is_empty()
                && digits.len() <= MAX_DIGITS
                && digits.bytes().all(|b| b.is_ascii_digit());
            if fits { digits.parse::<u64>().map_err(|_| bad()) } else { Err(bad()) }
        };
        let (lo_text, hi_text) = text.split_once('-').unwrap_or((text, text));
        let (lo, hi) = (number(lo_text)?, number(hi_text)?);
        if hi < lo {
            return Err(bad());
        }
        Ok(Self { lo, hi, width: lo_text.len() })
    }

    fn len(self) -> u64 {
        self.hi - self.lo + 1
    }

    /// Whether `digits` is how one number of this range is written.
    fn holds(self, digits: &str) -> bool {
        let Ok(n) = digits.parse::<u64>() else { return false };
        let natural = n.checked_ilog10().map_or(1, |l| l as usize + 1);
        self.lo <= n && n <= self.hi && digits.len() == natural.max(self.width)
    }
}

/// A name as written: text and bracket groups in turn.
enum Part<'a> {
    Text(&'a str),
    Group(Vec<Range>),
}

/// The comma-separated parts of a hostlist, brackets respected.
struct Items<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<&'a str, HostlistError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.rest = self.rest.trim_start_matches(is_separator);
            if self.rest.is_empty() {
                return None;
            }
            let mut inside = false;
            let mut end = self.rest.len();
            for (at, c) in self.rest.char_indices() {
                match c {
                    '[' if !inside => inside = true,
                    ']' if inside => inside = false,
                    '[' | ']' => return Some(Err(self.fail())),
                    c if !inside && is_separator(c) => {
                        end = at;
                        break;
                    }
                    _ => {}
                }
            }
            if inside {
                return Some(Err(self.fail()));
            }
            let (item, rest) = self.rest.split_at(end);
            self.rest = rest;
            if item != "(null)" {
                return Some(Ok(item));
            }
        }
    }
}

impl Items<'_> {
    fn fail(&mut self) -> HostlistError {
        let text = cut(self.rest);
        self.rest = "";
        HostlistError::Brackets(text)
    }
}

fn is_separator(c: char) -> bool {
    c == ',' || c.is_ascii_whitespace()
}

/// The start of a text, for an error.
fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

fn parts(item: &str) -> Result<Vec<Part<'_>>, HostlistError> {
    let mut parts = Vec::with_capacity(3);
    let mut rest = item;
    let mut groups = 0;
    while let Some((text, more)) = rest.split_once('[') {
        let Some((inside, after)) = more.split_once(']') else {
            return Err(HostlistError::Brackets(cut(item)));
        };
        groups += 1;
        if groups > MAX_GROUPS {
            return Err(HostlistError::TooLong(cut(item)));
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        parts.push(Part::Group(inside.split(',').map(Range::parse).collect::<Result<_, _>>()?));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    Ok(parts)
}

/// How many names an item stands for, saturating.
fn size(parts: &[Part<'_>]) -> u64 {
    parts.iter().fold(1u64, |n, p| match p {
        Part::Text(_) => n,
        Part::Group(ranges) => {
            n.saturating_mul(ranges.iter().fold(0, |m, r| m.saturating_add(r.len())))
        }
    })
}

/// Calls `visit` with every name of `text` in order, without holding them all,
/// until it breaks; gives back what it broke with.
///
/// # Errors
/// [`HostlistError`], where the text is no hostlist or a name is too long.
/// Names before the bad place may have been visited.
pub fn for_each<B>(
    text: &str,
    mut visit: impl FnMut(&str) -> ControlFlow<B>,
) -> Result<Option<B>, HostlistError> {
    let mut name = String::new();
    for item in (Items { rest: text }) {
        let item = item?;
        let flow = if item.contains('[') {
            name.clear();
            walk(&parts(item)?, &mut name, &mut visit)?
        } else if item.len() > MAX_NAME_LEN {
            return Err(HostlistError::TooLong(cut(item)));
        } else {
            visit(item)
        };
        if let ControlFlow::Break(b) = flow {
            return Ok(Some(b));
        }
    }
    Ok(None)
}

fn walk<B>(
    parts: &[Part<'_>],
    name: &mut String,
    visit: &mut impl FnMut(&str) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, HostlistError> {
    if name.len() > MAX_NAME_LEN {
        return Err(HostlistError::TooLong(cut(name)));
    }
    let Some((first, rest)) = parts.split_first() else {
        return Ok(visit(name));
    };
    let before = name.len();
    match first {
        Part::Text(text) => {
            name.push_str(text);
            let flow = walk(rest, name, visit)?;
            name.truncate(before);
            Ok(flow)
        }
        Part::Group(ranges) => {
            for range in ranges {
                for n in range.lo..=range.hi {
                    let width = range.width;
                    // Writing to a String cannot fail.
                    let _ = write!(name, "{n:0width$}");
                    let flow = walk(rest, name, visit)?;
                    name.truncate(before);
                    if flow.is_break() {
                        return Ok(flow);
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        }
    }
}

/// How many names `text` stands for (saturating), without expanding it.
///
/// # Errors
/// [`HostlistError`], where the text is no hostlist.
pub fn count(text: &str) -> Result<u64, HostlistError> {
    let mut n = 0u64;
    for item in (Items { rest: text }) {
        let item = item?;
        n = n.saturating_add(if item.contains('[') { size(&parts(item)?) } else { 1 });
    }
    Ok(n)
}

/// Every name of `text`, in order, at most [`MAX_NAMES`]. An empty text and
/// `(null)` hold none.
///
/// # Errors
/// [`HostlistError`], where the text is no hostlist, stands for too many names
/// or for one too long.
pub fn expand(text: &str) -> Result<Vec<String>, HostlistError> {
    expand_within(text, MAX_NAMES)
}

/// As [`expand`], with another bound on the number of names.
///
/// # Errors
/// As [`expand`].
pub fn expand_within(text: &str, max: usize) -> Result<Vec<String>, HostlistError> {
    let n = usize::try_from(count(text)?).unwrap_or(usize::MAX);
    if n > max {
        return Err(HostlistError::TooMany(max));
    }
    let mut names = Vec::with_capacity(n);
    for_each(text, |name| {
        names.push(name.to_owned());
        ControlFlow::<()>::Continue(())
    })?;
    Ok(names)
}

/// Whether `name` is among the names of `text`, without expanding it.
///
/// # Errors
/// [`HostlistError`], where the text is no hostlist.
pub fn contains(text: &str, name: &str) -> Result<bool, HostlistError> {
    let mut found = false;
    for item in (Items { rest: text }) {
        let item = item?;
        // The whole list is checked even when the name was found: a broken
        // list is an error wherever the name stands in it.
        found |= if item.contains('[') { matches(&parts(item)?, name) } else { item == name };
    }
    Ok(found)
}

/// Matches a name against an item. All places where the parts so far can end
/// are kept, so that no list makes this slow.
fn matches(parts: &[Part<'_>], name: &str) -> bool {
    let bytes = name.as_bytes();
    if bytes.len() > MAX_NAME_LEN {
        return false;
    }
    let mut ends = vec![0usize];
    for part in parts {
        let mut next: Vec<usize> = Vec::new();
        for &at in &ends {
            match part {
                Part::Text(text) => {
                    if bytes[at..].starts_with(text.as_bytes()) {
                        next.push(at + text.len());
                    }
                }
                Part::Group(ranges) => {
                    let run = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
                    for len in 1..=run.min(MAX_DIGITS) {
                        let digits = &name[at..at + len];
                        if !next.contains(&(at + len)) && ranges.iter().any(|r| r.holds(digits)) {
                            next.push(at + len);
                        }
                    }
                }
            }
        }
        if next.is_empty() {
            return false;
        }
        ends = next;
    }
    ends.contains(&bytes.len())
}

/// The names as Slurm prints them: runs of numbers at the end of names that
/// are otherwise equal become one bracket group, in the order given.
#[must_use]
pub fn compress<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let mut out = String::new();
    let mut open: Option<Open> = None;
    for name in names {
        let name = name.as_ref();
        let (prefix, number) = split_number(name);
        let Some(number) = number else {
            close(&mut out, open.take());
            separate(&mut out);
            out.push_str(name);
            continue;
        };
        match &mut open {
            Some(o) if o.prefix == prefix => o.add(number),
            _ => {
                close(&mut out, open.take());
                open = Some(Open { prefix: prefix.to_owned(), runs: vec![Run::new(number)] });
            }
        }
    }
    close(&mut out, open);
    out
}

/// Names with the same text before the number, being gathered.
struct Open {
    prefix: String,
    runs: Vec<Run>,
}

/// Numbers one after another, written alike.
struct Run {
    lo: u64,
    hi: u64,
    width: usize,
}

impl Run {
    fn new(digits: &str) -> Self {
        let n = digits.parse().unwrap_or_default();
        Self { lo: n, hi: n, width: digits.len() }
    }
}

impl Open {
    fn add(&mut self, digits: &str) {
        let run = Run::new(digits);
        if let Some(last) = self.runs.last_mut() {
            let next = Range { lo: last.hi + 1, hi: last.hi + 1, width: last.width };
            if next.holds(digits) {
                last.hi = run.hi;
                return;
            }
        }
        self.runs.push(run);
    }
}

fn separate(out: &mut String) {
    if !out.is_empty() {
        out.push(',');
    }
}

// Writing to a String cannot fail: the results below are dropped for that.
fn close(out: &mut String, open: Option<Open>) {
    let Some(Open { prefix, runs }) = open else { return };
    separate(out);
    out.push_str(&prefix);
    if let [Run { lo, hi, width }] = runs[..]
        && lo == hi
    {
        let _ = write!(out, "{lo:0width$}");
        return;
    }
    out.push('[');
    for (i, Run { lo, hi, width }) in runs.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        let _ = write!(out, "{lo:0width$}");
        if hi > lo {
            let _ = write!(out, "-{hi:0width$}");
        }
    }
    out.push(']');
}

/// A name's text and the number at its end, where there is one of sane length.
fn split_number(name: &str) -> (&str, Option<&str>) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (prefix, number) = name.split_at(name.len() - digits);
    if digits == 0 || digits > MAX_DIGITS { (name, None) } else { (prefix, Some(number)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> Vec<String> {
        expand(text).unwrap()
    }

    #[test]
    fn every_form_slurm_prints() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("(null)", &[]),
            ("n1", &["n1"]),
            ("n1,n2", &["n1", "n2"]),
            ("n[1-3]", &["n1", "n2", "n3"]),
            ("n[07-09]", &["n07", "n08", "n09"]),
            ("n[8-11]", &["n8", "n9", "n10", "n11"]),
            ("n[08-11]", &["n08", "n09", "n10", "n11"]),
            ("n[1,3,05-06]x", &["n1x", "n3x", "n05x", "n06x"]),
            ("a,n[1-2],b", &["a", "n1", "n2", "b"]),
            ("n[1-2]-ib[0-1]", &["n1-ib0", "n1-ib1", "n2-ib0", "n2-ib1"]),
            ("[1-2]", &["1", "2"]),
            ("r[1-2][00-01]", &["r100", "r101", "r200", "r201"]),
            ("gpu-2,c1-[6-7,19],x", &["gpu-2", "c1-6", "c1-7", "c1-19", "x"]),
            ("a,,b,", &["a", "b"]),
            ("n[0-0]", &["n0"]),
        ];
        for (text, want) in cases {
            assert_eq!(list(text), *want, "{text}");
            assert_eq!(count(text).unwrap(), want.len() as u64, "{text}");
            for name in *want {
                assert!(contains(text, name).unwrap(), "{name} in {text}");
            }
            assert!(!contains(text, "other").unwrap());
        }
        assert_eq!(list("n[1-3,07-09]-ib[0-1]").len(), 12);
    }

    #[test]
    fn names_that_are_not_in_the_list() {
        for (text, name) in [
            ("n[1-3]", "n01"),
            ("n[07-09]", "n7"),
            ("n[1-3]", "n4"),
            ("n[1-3]", "n"),
            ("n[1-3]", "n1x"),
            ("n[1-3]x", "n1"),
            ("n[1-2]-ib[0-1]", "n1-ib2"),
            ("n[1-3]", ""),
        ] {
            assert!(!contains(text, name).unwrap(), "{name} in {text}");
        }
        // Digits beside a group: every way to share them is tried.
        assert!(contains("n[1-20]5", "n125").unwrap());
        assert!(contains("n[1-20]5", "n15").unwrap());
        assert!(!contains("n[1-20]5", "n5").unwrap());
    }

    #[test]
    fn text_that_is_no_hostlist() {
        for text in
            ["n[1-3", "n1-3]", "n[1-[2]]", "n[]", "n[a-b]", "n[3-1]", "n[1-]", "n[-1]", "n[1,]"]
        {
            assert!(expand(text).is_err(), "{text}");
            assert!(contains(text, "n1").is_err(), "{text}");
        }
        assert!(matches!(expand("n[1-3,x]"), Err(HostlistError::Range(t)) if t == "x"));
    }

    #[test]
    fn hostile_lists_are_refused_before_anything_is_allocated() {
        assert_eq!(expand("n[1-999999999999999999]"), Err(HostlistError::TooMany(MAX_NAMES)));
        let nested = "a[0-9]".repeat(10);
        assert_eq!(expand(&nested), Err(HostlistError::TooMany(MAX_NAMES)));
        assert!(matches!(expand(&"n[1]".repeat(200)), Err(HostlistError::TooLong(_))));
        assert!(matches!(expand(&"n".repeat(300)), Err(HostlistError::TooLong(_))));
        let long = format!("{}[1-100000]", "n".repeat(300));
        assert!(matches!(expand(&long), Err(HostlistError::TooLong(_))));
        assert!(!contains("n[1-999999999999999999]", "x1").unwrap());
        assert!(contains("n[1-999999999999999999]", "n123456789").unwrap());
        let groups = "[0-9]".repeat(16);
        assert!(!contains(&groups, &"1".repeat(40)).unwrap());
        assert!(expand("n[99999999999999999999]").is_err());
    }

    #[test]
    fn a_walk_stops_when_told() {
        let mut seen = 0;
        let hit = for_each("n[1-999999999999]", |name| {
            seen += 1;
            if name == "n3" {
                ControlFlow::Break(name.to_owned())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert_eq!((hit, seen), (Ok(Some("n3".to_owned())), 3));
    }

    #[test]
    fn compressed_as_slurm_prints() {
        for (names, want) in [
            (vec!["n1", "n2", "n3"], "n[1-3]"),
            (vec!["n1"], "n1"),
            (vec!["n08", "n09", "n10", "n11"], "n[08-11]"),
            (vec!["n8", "n9", "n10"], "n[8-10]"),
            (vec!["n1", "n3", "x", "n4"], "n[1,3],x,n4"),
            (vec!["n1-ib0", "n1-ib1", "n2-ib0"], "n1-ib[0-1],n2-ib0"),
            (vec!["login", "n7"], "login,n7"),
            (vec![], ""),
        ] {
            assert_eq!(compress(names), want);
        }
    }

    proptest! {
        #[test]
        fn there_and_back(
            names in proptest::collection::vec("[a-c]{1,2}-?[0-9]{0,4}(x|-ib[0-9])?", 0..40)
        ) {
            let text = compress(&names);
            prop_assert_eq!(expand(&text).unwrap(), names.clone());
            for name in &names {
                prop_assert!(contains(&text, name).unwrap());
            }
        }

        #[test]
        fn no_text_panics(text in "[a-b0-2\\[\\],\\-()é ]{0,30}", name in "[ab0-9é]{0,6}") {
            let names = expand_within(&text, 1000);
            if let Ok(names) = names {
                prop_assert_eq!(names.len() as u64, count(&text).unwrap());
                prop_assert_eq!(contains(&text, &name).unwrap(), names.contains(&name));
            }
        }
    }
}
