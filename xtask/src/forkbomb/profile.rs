//! Where the instructions go.

use crate::progress::Progress;
use crate::rows::Round;
use crate::table::{grouped_digits, styled};
use crate::workspace;
use anyhow::{Context, Result};
use comfy_table::CellAlignment;
use kernel_runner::{Event, Kernel, Level, Machine};
use serde::Serialize;
use std::time::Duration;
use transfers::{Marks, Symbol, build_plugin};

/// As many as fit beside each other in mind.
const SYMBOLS_SHOWN: usize = 10;

/// What a boot may take beyond what is measured.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// How many times as long as it should a round may take.
const SLOWER: u32 = 4;

/// What is profiled in one boot.
#[derive(Clone, Debug)]
pub struct Profiled {
    pub workload: String,
    pub strategies: Vec<String>,
    pub cpus: u32,
    pub live: u32,
    /// For each strategy.
    pub seconds: Duration,
}

/// One strategy's profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub workload: String,
    pub strategy: String,
    pub cpus: u32,
    pub lifetimes: u64,
    pub instructions_per_lifetime: f64,
    /// Most first.
    pub symbols: Vec<Symbol>,
}

impl Profiled {
    /// Boots the kernel under the plugin.
    pub fn count(&self, machine: &Machine, kernel: &Kernel, progress: &mut Progress, title: &str) -> Result<Vec<Row>> {
        let plugin = build_plugin(workspace::root())?;
        let marks = Marks::open(kernel.path(), workspace::root())?;
        let machine = Machine {
            cpus: self.cpus,
            time_limit: Some(TIME_LIMIT + self.seconds * self.strategies.len() as u32 * SLOWER),
            ..machine.clone()
        };
        let words = format!(
            "workloads={} strategies={} live={} seconds={} rounds=1",
            self.workload,
            self.strategies.join(","),
            self.live,
            self.seconds.as_secs_f64()
        );
        let mut rounds = Vec::new();
        let profiles = transfers::profile(&machine, &plugin, kernel, &marks, &words, |event| match event {
            Event::Row(row) => rounds.push(Round::from_fields(row.fields.iter().map(|(key, value)| (key.as_str(), value.as_str())))),
            Event::Progress(step) => progress.step(step.done, step.total, &format!("{title}: {}", step.label)),
            Event::Log(line) if line.level >= Some(Level::Warn) => progress.print(&line.to_string()),
            _ => {}
        })?;
        let rounds = rounds.into_iter().collect::<Result<Vec<_>>>()?;
        let row = |strategy: &String| {
            let missing = || format!("the kernel counted nothing for `{strategy}`");
            let round = rounds.iter().find(|round| round.strategy == *strategy).with_context(missing)?;
            let profile = profiles.iter().find(|profile| profile.op == *strategy).with_context(missing)?;
            Ok(Row {
                workload: self.workload.clone(),
                strategy: strategy.clone(),
                cpus: self.cpus,
                lifetimes: round.lifetimes,
                instructions_per_lifetime: profile.instructions as f64 / round.lifetimes.max(1) as f64,
                symbols: profile.symbols.clone(),
            })
        };
        self.strategies.iter().map(row).collect()
    }
}

/// The functions in which most of each strategy's instructions are.
pub fn render(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut table = styled(["strategy", "instructions/lifetime", "share", "function"]);
    if let Some(column) = table.column_mut(3) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for row in rows {
        for (nr, symbol) in row.symbols.iter().take(SYMBOLS_SHOWN).enumerate() {
            let (name, instructions) = match nr {
                0 => (row.strategy.clone(), grouped_digits(row.instructions_per_lifetime.round() as u64)),
                _ => Default::default(),
            };
            table.add_row([name, instructions, format!("{:.1} %", symbol.share * 100.0), symbol.symbol.clone()]);
        }
    }
    let cpus = crate::table::counted(first.cpus as usize, "CPU");
    format!(
        "kernel on {cpus}: {}, where the instructions are\n{table}\n\
         Counted, not sampled, by a plugin of QEMU's: what all CPUs executed between the begin and the end of their work, waiting for locks\n\
         included, also where interrupts are off. A function that was inlined counts by itself. Instructions are not time: QEMU has no caches.",
        first.workload
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_has_its_ten_largest_functions() {
        let symbols = (0..12).map(|nr| Symbol { symbol: format!("f{nr}"), share: 0.2 / f64::from(nr + 1) }).collect();
        let row =
            Row { workload: "exec".into(), strategy: "each".into(), cpus: 2, lifetimes: 10, instructions_per_lifetime: 1234.4, symbols };
        let text = render(&[row]);
        for part in ["kernel on 2 CPUs: exec", "1,234", "20.0 %", "f0", "f9"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(!text.contains("f10"), "{text}");
    }
}
