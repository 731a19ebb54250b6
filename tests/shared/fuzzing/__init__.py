"""The parts of tests/fuzz.py: odd inputs, a sandbox to try them in, and the three families of inputs.

Reading order: `mutations` (good documents, made odd), `sandbox` (where they are tried, and what must hold), then the
families: `yaml_cases` (files that users write), `argument_cases` (words on the command line), `answer_cases` and
`fake_nodes` (what nodes send). `families` lists them.
"""
