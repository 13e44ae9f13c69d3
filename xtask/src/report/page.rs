//! The page.

use super::data::Data;
use super::{bench_sections, forkbomb_sections, scale_section, transfers_section};
use crate::plot;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// Needs no other file and no script.
pub fn render(data: &Data) -> String {
    let sections: [Markup; 14] = [
        forkbomb_sections::lifetime(&data.forkbomb),
        forkbomb_sections::first_thread(&data.forkbomb),
        forkbomb_sections::second_thread(&data.forkbomb),
        forkbomb_sections::bomb(&data.forkbomb),
        forkbomb_sections::workloads(&data.forkbomb),
        forkbomb_sections::threads(&data.forkbomb),
        forkbomb_sections::accuracy(&data.forkbomb),
        forkbomb_sections::memory(&data.forkbomb),
        forkbomb_sections::list_lock(&data.forkbomb),
        transfers_section::transfers(&data.transfers),
        scale_section::scale(&data.scale),
        scale_section::latency(data),
        bench_sections::growth(&data.bench),
        bench_sections::operations(&data.bench),
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "pcpu: measurements" }
                style { (PreEscaped(STYLE)) (PreEscaped(plot::STYLE)) }
            }
            body {
                main {
                    header {
                        h1 { "pcpu: measurements" }
                        p { "Per-CPU memory and counters for kernels, beside plain atomics and beside an allocator and counters that work as Linux's do. "
                            "Each section ends with the command that makes it, the machine, and how far rounds were apart." }
                    }
                    @for section in &sections { (section) }
                }
            }
        }
    };
    page.into_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn all_sections_are_there_and_nothing_is_fetched() {
        let page = render(&fixture::data());
        assert!(!page.contains("Not measured") && !page.contains("NaN"), "{page}");
        assert_eq!(page.matches("<section").count(), 14);
        // The name of SVG's language is no address.
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        for fetched in ["<script", "src=", "<link", "http:", "https:", "url("] {
            assert!(!addresses.contains(fetched), "{fetched}");
        }
    }

    #[test]
    fn names_from_files_are_escaped() {
        let mut data = fixture::data();
        let stored = data.forkbomb.as_mut().unwrap();
        stored.machine.processor = "<script>alert(1)</script>".into();
        stored.rows.iter_mut().for_each(|row| row.strategy = row.strategy.replace("linux-lazy", "<script>"));
        assert!(!render(&data).contains("<script"));
    }

    #[test]
    fn a_missing_file_is_told_in_each_of_its_sections_and_nowhere_else() {
        let mut data = fixture::data();
        data.bench = Err("there is no bench.json".into());
        let page = render(&data);
        assert_eq!((page.matches("there is no bench.json").count(), page.matches("Not measured").count()), (2, 2));
    }

    #[test]
    fn rows_that_a_command_with_options_lacks_are_told() {
        let mut data = fixture::data();
        data.forkbomb.as_mut().unwrap().rows.retain(|row| row.setting.workload == "fork");
        let page = render(&data);
        assert!(page.contains("the command without options has these rows"), "{page}");
    }
}
