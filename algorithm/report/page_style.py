"""The look of the pages: one column that fits a phone and a screen, light and dark."""

STYLE = """
:root {
  --paper: #ffffff; --panel: #f5f7f9; --ink: #20262c; --muted: #5b6670; --rule: #dde3e8; --faint: #9aa4ad;
  --c0: #1f6fb4; --c1: #c4501b; --c2: #2a7d46; --c3: #8a4fa3; --c4: #8a6d00; --c5: #b3325c;
  --warn: #8a4b00; --warn-paper: #fff4e0; --good: #2a7d46;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181c; --panel: #1d2329; --ink: #e6eaee; --muted: #a3afba; --rule: #333c45; --faint: #77828c;
    --c0: #6db3ee; --c1: #f0905f; --c2: #71c48c; --c3: #c79ade; --c4: #d9bb4c; --c5: #f083a6;
    --warn: #ffcb80; --warn-paper: #33270f; --good: #71c48c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 64rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 {
  font-size: 1.15rem; margin: 2.5rem 0 .75rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--rule);
}
h3 { font-size: .9rem; margin: 0; }
p { margin: .4rem 0; max-width: 48rem; }
a { color: var(--c0); }
.lead { color: var(--muted); overflow-wrap: anywhere; }
.notice {
  background: var(--warn-paper); color: var(--warn); border-left: 4px solid currentColor;
  padding: .5rem .75rem; overflow-wrap: anywhere;
}
.tiles {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .75rem;
  margin: 1.25rem 0;
}
.tile { background: var(--panel); border-radius: .5rem; padding: .7rem .85rem; }
.tile .label { color: var(--muted); font-size: .8rem; }
.tile .value {
  font-size: 1.35rem; font-weight: 650; line-height: 1.25; font-variant-numeric: tabular-nums;
}
.tile .note { color: var(--muted); font-size: .8rem; }
.charts {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(17.5rem, 1fr)); gap: 1.25rem 1rem;
}
figure { margin: 0; min-width: 0; }
figcaption {
  display: flex; flex-wrap: wrap; gap: .15rem .7rem; align-items: baseline; margin-bottom: .25rem;
}
.key { color: var(--muted); font-size: .8rem; white-space: nowrap; }
.key svg { width: 1.2rem; height: .6rem; vertical-align: baseline; margin-right: .25rem; }
svg { display: block; width: 100%; height: auto; }
.key svg { display: inline-block; }
svg text {
  fill: var(--muted);
  font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .band { stroke: none; opacity: .18; }
svg .seed { fill: none; stroke-width: 1; opacity: .35; }
svg .t0 { stroke: var(--c0); } svg .band.t0, svg .dot.t0 { fill: var(--c0); }
svg .t1 { stroke: var(--c1); } svg .band.t1, svg .dot.t1 { fill: var(--c1); }
svg .t2 { stroke: var(--c2); } svg .band.t2, svg .dot.t2 { fill: var(--c2); }
svg .t3 { stroke: var(--c3); } svg .band.t3, svg .dot.t3 { fill: var(--c3); }
svg .t4 { stroke: var(--c4); } svg .band.t4, svg .dot.t4 { fill: var(--c4); }
svg .t5 { stroke: var(--c5); } svg .band.t5, svg .dot.t5 { fill: var(--c5); }
svg .faint { fill: none; stroke: var(--faint); stroke-width: 1.2; opacity: .8; }
svg .aim { fill: none; stroke: var(--muted); stroke-width: 1.5; stroke-dasharray: 5 4; }
.narrow { display: none; }
@media (max-width: 40rem) { .wide { display: none; } .narrow { display: block; } }
.scroll { overflow-x: auto; margin: .5rem 0; }
table {
  border-collapse: collapse; width: max-content; font-size: .88rem; font-variant-numeric: tabular-nums;
}
th, td {
  text-align: left; vertical-align: top; padding: .3rem 1.25rem .3rem 0;
  border-bottom: 1px solid var(--rule);
}
thead th { color: var(--muted); font-weight: 600; }
tbody th { font-weight: 500; }
td { overflow-wrap: break-word; max-width: 22rem; }
.facts { margin: 0; }
.facts div {
  display: grid; grid-template-columns: minmax(6rem, 9rem) 1fr; gap: .75rem; padding: .15rem 0;
}
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
pre {
  background: var(--panel); border-radius: .4rem; padding: .55rem .75rem; margin: .15rem 0 .8rem;
  white-space: pre-wrap; overflow-wrap: anywhere; user-select: all;
}
code { font: .85rem/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
video { width: 100%; max-width: 32rem; border-radius: .5rem; background: #000; }
@media print { main { max-width: none; } section { break-inside: avoid; } }
"""
