"""The report of a run: the content of its folder as one page, as Markdown and as tables.

read_run.py    a run folder -> run_data.py's values: the only module that knows file formats
link_stretches.py, traced_rates.py   links.csv -> what links carried over time, and could have carried
sentences.py   values -> the sentence above each section
charts/        values -> Vega-Lite specifications, plain dicts
sections.py    values -> sections: sentence, charts, tables, logs
render.py      specifications -> SVG, PNG (vl-convert, the extra `report`)
page.py        sections -> one HTML file; markdown.py and tables.py: the same as text and as CSV
write.py       writes all of that to a folder; after_run.py does so after every launch
"""
