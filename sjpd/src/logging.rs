//! What sjpd says while it runs: to the journal (no times, no colours, a
//! priority on each line) or to a terminal. The decision log is apart.

use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::format::{self, Format, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, Layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// Changes the level while sjpd runs.
#[derive(Clone, Debug, Default)]
pub struct LogLevel {
    filter: Option<reload::Handle<EnvFilter, Registry>>,
}

impl LogLevel {
    /// Sets the level (`[general] log_level`), unless RUST_LOG is set.
    pub fn set(&self, level: &str) {
        if let Some(filter) = &self.filter
            && let Err(error) = filter.reload(filter_for(level))
        {
            tracing::warn!(%error, "cannot change the log level");
        }
    }
}

/// Starts logging to stderr. Called once, by main.
#[must_use]
pub fn start(level: &str) -> LogLevel {
    let (filter, handle) = reload::Layer::new(filter_for(level));
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let layer = Layer::new().with_writer(std::io::stderr);
    let registry = Registry::default().with(filter);
    let started = if journal {
        registry
            .with(layer.with_ansi(false).event_format(Lines(
                Format::default().without_time().with_level(false).with_target(false),
            )))
            .try_init()
    } else {
        let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
        registry.with(layer.with_ansi(colours).with_target(false)).try_init()
    };
    match started {
        Ok(()) => LogLevel { filter: Some(handle) },
        Err(_) => LogLevel::default(),
    }
}

fn filter_for(level: &str) -> EnvFilter {
    match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.trim().is_empty() => EnvFilter::new(directives),
        _ => EnvFilter::new(level),
    }
}

/// Lines for journald: `<priority>` before each.
struct Lines(Format<format::Full, ()>);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(ctx, writer, event)
    }
}

/// The syslog priority of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::io::{self, Write};
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(buf);
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn journal_lines_carry_a_priority_and_neither_time_nor_colour() {
        let kept = Kept::default();
        let writer = kept.clone();
        let format = Format::default().without_time().with_level(false).with_target(false);
        let layer = Layer::new().with_ansi(false).event_format(Lines(format));
        let subscriber = Registry::default().with(layer.with_writer(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(nodes = 3, "ready");
            tracing::error!("bad");
        });
        let text = String::from_utf8(kept.0.lock().clone()).expect("text");
        assert_eq!(text, "<6>ready nodes=3\n<3>bad\n");
    }
}
