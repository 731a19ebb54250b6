"""What the links of a cluster shall be: pure values, from a user's YAML to the plan of each node.

Reading order: `profiles` (ranges) and `regions`, `topology` (which pairs) and `topology_file`, `link` (one link, and
its draw from the seed), `link_spec` (all that was asked, and the plan that each node gets of it), `expected` (what must
come of a link when it is measured), `changes` and `traces` (links that do not stay as they are). `protocol.link` has
the type of a link and the bounds of every value, `schema` says all of it to editors.
"""
