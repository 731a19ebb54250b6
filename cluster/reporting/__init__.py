"""The report of a run: what its folder says, as one page, as Markdown and as tables.

read_run.py    a run's folder -> run_data.py's values: the only place that knows file formats
link_stretches.py, traced_rates.py   links.csv -> what links carried over time, and could have
sentences.py   values -> the one sentence above each section
charts/        values -> Vega-Lite specifications, plain dicts
sections.py    values -> sections: sentence, charts, tables, logs
render.py      specifications -> SVG, PNG (vl-convert, the extra `report`)
page.py        sections -> one HTML file; markdown.py and tables.py: the same as text and as CSV
write.py       all of that into a folder; after_run.py has every launch do so
"""
