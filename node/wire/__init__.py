"""The links of one node: rate and queue at egress; delay, jitter and loss at ingress.

    python -m node.wire apply < plan.json   # make this node's links what the plan says; again: change them in place
    python -m node.wire replay              # change them as traces say, by orders on standard input, until that ends
    python -m node.wire show                # what is in force, and what the kernel has counted
    python -m node.wire clear               # remove all that apply made
    python -m node.wire try                 # which wires this kernel can do

`protocol.node_plan` and `protocol.link_report` define the plan and the output. Reading order: `layout`, `segmentation`
(what a packet is), `egress` (the rate; `htb` writes the lines, `node_cap` limits a node), `backends` (what the two
wires have in common), `netem` (the kernel's own emulator), `nfqueue/` (the wire for kernels without it), `apply`, which
puts them together, and `replay/`, which changes them many times a second.
"""
