"""The links of one node: rate and queue at egress; delay, jitter and loss at ingress.

    python -m node.wire apply < plan.json   # make this node's links match the plan; again: change them in place
    python -m node.wire replay              # change them as traces say, by orders on standard input, until it ends
    python -m node.wire show                # print what is in force, and the kernel's counters
    python -m node.wire inspect             # that, and digests that show later whether anything was changed
    python -m node.wire clear               # remove everything that apply made
    python -m node.wire try                 # print which wires this kernel can run

`protocol.node_plan` and `protocol.link_report` define the plan and the output. Reading order: `layout` (links of a
device, numbered), `segmentation` (what a packet is), `egress` (the rate; `htb` writes the lines, `node_cap` limits a
node), `backends` (what the two wires have in common), `netem` (the kernel's own emulator), `nfqueue` (the wire for
kernels without it), `apply` (combines them), and `playback` (changes them many times a second).

What they use: `commands` (runs tc, ip, iptables), `devconf` (options of a device), `neighbours` (permanent entries),
`routes` (to every node), `iptables` (our rules), `isolation` (nodes without a link), `kernel_settings` (read and
checked), `state` (what apply must remember), `marks` (the digests of inspect), `host_counters` (CPU time withheld).
"""
