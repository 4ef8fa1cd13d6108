//! Text for terminals: made safe, aligned in columns, and in words.

use serde_json::Value;
use std::fmt::Write as _;

/// Whether a character could change how a terminal shows what is around it:
/// control characters, and those that turn the direction of writing.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Text that others wrote, safe for a terminal and on one line.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) {
            let _ = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// The same, keeping line ends.
pub fn lines(text: &str) -> String {
    text.lines().map(safe).collect::<Vec<_>>().join("\n")
}

/// As [`safe`], and a long text without its middle: what was tried stands at
/// the front, what came of it at the end.
pub fn brief(text: &str) -> String {
    const ENDS: usize = 70;
    let text = safe(text.trim());
    let count = text.chars().count();
    if count <= 2 * ENDS + 5 {
        return text;
    }
    let front: String = text.chars().take(ENDS).collect();
    let back: String = text.chars().skip(count - ENDS).collect();
    format!("{front} ... {back}")
}

/// Pretty JSON with a line end. What a terminal might obey is escaped, which
/// in JSON says the same.
pub fn json(value: &Value) -> String {
    let text = format!("{value:#}");
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if c != '\n' && is_unsafe(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out.push('\n');
    out
}

/// Columns, aligned. Cells are made safe.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Begins with a head line.
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a line.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|c| safe(c)).collect());
    }

    /// Adds a line of any length.
    pub fn cells(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|c| safe(c)).collect());
    }

    /// The text. A column whose cells are all numbers is aligned to the right.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width_of = |c: usize| {
            self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        let right: Vec<bool> = (0..columns).map(|c| self.is_numeric(c)).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let width = widths.get(c).copied().unwrap_or(0);
                if c > 0 {
                    line.push_str("  ");
                }
                if right.get(c) == Some(&true) {
                    let _ = write!(line, "{cell:>width$}");
                } else {
                    let _ = write!(line, "{cell:<width$}");
                }
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().skip(1).filter_map(|r| r.get(column)).peekable();
        cells.peek().is_some()
            && cells.all(|c| c == "-" || c.starts_with(|c: char| c.is_ascii_digit()))
    }
}

/// A length of time in words: `0.8 s`, `45 s`, `3 min`, `5 h`, `12 days`.
pub fn span(seconds: f64) -> String {
    let s = seconds.max(0.0);
    if s < 9.95 {
        format!("{s:.1} s")
    } else if s < 119.5 {
        format!("{s:.0} s")
    } else if s < 2.0 * 3600.0 {
        format!("{:.0} min", s / 60.0)
    } else if s < 48.0 * 3600.0 {
        format!("{:.0} h", s / 3600.0)
    } else {
        format!("{:.0} days", s / 86_400.0)
    }
}

/// `1 node`, `2 nodes`.
pub fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// A second since 1970 as local time, to the minute; `-` where it is none.
pub fn clock(unix: u64) -> String {
    i64::try_from(unix).ok().and_then(|s| jiff::Timestamp::from_second(s).ok()).map_or_else(
        || "-".into(),
        |t| t.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_terminal_might_obey_is_escaped() {
        assert_eq!(safe("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\u{a}");
        assert_eq!(safe("\u{9b}1m \u{202e}x \u{7f}"), "\\u{9b}1m \\u{202e}x \\u{7f}");
        assert_eq!(safe("größe 節点"), "größe 節点");
        assert_eq!(lines("a\r\nb\u{7}"), "a\nb\\u{7}");
    }

    #[test]
    fn a_long_text_loses_its_middle() {
        let long = format!("squeue -O {} : timed out \u{1b}", "x,".repeat(200));
        let short = brief(&long);
        assert!(short.starts_with("squeue -O x,") && short.ends_with(": timed out \\u{1b}"));
        assert_eq!(short.chars().count(), 145);
        assert_eq!(brief("short \n"), "short");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = json!({"a": "x\u{1b}\u{9b}\u{202e}\u{7f}\n", "b": [1]});
        let text = json(&value);
        assert!(!text.chars().any(|c| c != '\n' && is_unsafe(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn columns_line_up() {
        let mut grid = Grid::new(["name", "cpus", "what"]);
        grid.row(["n1".into(), "4".into(), "x\ty".into()]);
        grid.row(["n100".into(), "128".into(), String::new()]);
        assert_eq!(grid.render(), "name  cpus  what\nn1       4  x\\u{9}y\nn100   128\n");
    }

    #[test]
    fn spans_in_words() {
        for (s, words) in [
            (-3.0, "0.0 s"),
            (0.84, "0.8 s"),
            (45.2, "45 s"),
            (200.0, "3 min"),
            (20_000.0, "6 h"),
            (1e6, "12 days"),
        ] {
            assert_eq!(span(s), words);
        }
        assert_eq!((count(1, "node"), count(0, "node")), ("1 node".into(), "0 nodes".into()));
    }
}
