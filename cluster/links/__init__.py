"""The requested links of a cluster: pure values, from a user's YAML to the plan of each node.

Reading order: `profiles` (ranges), `regions` (measured links instead of ranges), `topology` (which pairs) and
`topology_file` (a user's own), `link` (one link, and its draw from the seed), `underlay` (the network between hosts,
beneath the links), `link_spec` (all that was asked, and the plan that each node gets of it), `expected` (the
measurements to expect of a link), `changes` and `traces` (links that change over time). `protocol.link` has the type of
a link and the bounds of every value; `schema` exports all of it to editors.
"""
