"""The report of a run: the content of its folder as one page, as Markdown and as tables.

Reading order: `run_data` (the values of a report), `read_run` (a run folder into these values) with `yaml_document`
(run.yml), `values` (untrusted JSON), `run_times` (plausible times), `experiment` (title, facts to reproduce it),
`link_figures` (asked, measured, carried), `link_stretches` (what links carried over time), `traced_rates` (what links
under traces could carry), `failures` (who failed, with the ends of logs) and `notes` (what was lost or left out).

The content: `lanes` (what ranks did over time), `sentences` (one above each section), `charts` (values into Vega-Lite),
`verdicts` (the strip of five answers), `sections` (sentences, charts, tables, logs), `compare` (several runs) with
`differences` (what distinguishes them).

The output: `render` (charts into SVG and PNG), `library` (Vega as one script), `page` (HTML), `markdown` (text),
`tables` (CSV), `trace` (Perfetto), `write` (writes the report) and `after_run` (does so after every launch).
"""
