"""The style sheet of the page: light and dark, one column on a phone."""

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --ground: #ffffff; --card: #f5f7f9; --rule: #dde2e7;
  --accent: #0072b2; --good: #1a7f37; --bad: #c0392b; --win: 0, 114, 178; --lose: 213, 94, 0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #9aa4ae; --ground: #14171a; --card: #1d2125;
  --rule: #343a40; --accent: #56b4e9; --good: #57c774; --bad: #ff7b6b; --win: 86, 180, 233; --lose: 255, 140, 66; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 28px 18px 64px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 52px 0 6px; padding-top: 18px; border-top: 1px solid var(--rule); }
h3 { font-size: 0.98rem; margin: 26px 0 8px; }
p { margin: 6px 0 12px; max-width: 46rem; }
.lead, .note { color: var(--soft); }
.note { font-size: 0.88rem; }
nav { margin: 14px 0 0; font-size: 0.92rem; line-height: 2; }
nav a { margin-right: 16px; white-space: nowrap; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
.cards { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); margin: 22px 0; }
.card { background: var(--card); border-radius: 10px; padding: 13px 16px; }
.card b { display: block; overflow-wrap: break-word; margin-bottom: 4px; }
.card dl { display: grid; grid-template-columns: 1fr auto; gap: 1px 12px; margin: 0; font-size: 0.88rem; }
.card dt { color: var(--soft); }
.card dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.badge { display: inline-block; border: 1px solid currentColor; border-radius: 99px; padding: 0 9px; font-size: 0.78rem;
  font-weight: 600; white-space: nowrap; color: var(--soft); vertical-align: 1px; }
.some { white-space: normal; border-radius: 10px; }
.good { color: var(--good); } .bad { color: var(--bad); } .none { color: var(--soft); }
.panels { display: grid; gap: 18px 26px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr));
  margin: 18px 0; }
figure { margin: 0; min-width: 0; }
figure.wide { grid-column: 1 / -1; }
figure img { display: block; width: 100%; max-width: 540px; height: auto; }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; margin: 6px 0; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; min-width: 60%; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top; }
th { color: var(--soft); font-weight: 600; font-size: 0.82rem; vertical-align: bottom; }
th.left, td.left { text-align: left; }
td.long { min-width: 12rem; }
table.grid { min-width: 0; font-size: 0.85rem; }
table.grid td { text-align: center; padding: 9px 7px; white-space: nowrap; border: 2px solid var(--ground); }
table.grid th { text-align: center; padding: 6px 4px; font-size: 0.78rem; }
table.grid tr > th:first-child { text-align: left; padding-left: 0; white-space: nowrap; vertical-align: middle; }
td { white-space: nowrap; } table.stack td, td.mono { white-space: normal; }
.shown { margin: 14px 0; } .shown ul { margin: 4px 0; padding-left: 20px; }
details { margin: 12px 0; } summary { cursor: pointer; color: var(--accent); }
code, .mono { font: 0.85rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
footer { margin-top: 48px; padding-top: 16px; border-top: 1px solid var(--rule); font-size: 0.86rem;
  color: var(--soft); }
@media (max-width: 600px) {
  main { padding: 20px 14px 48px; } h1 { font-size: 1.45rem; }
  table { font-size: 0.82rem; } th, td { padding-right: 8px; } th { font-size: 0.74rem; }
  table.grid { font-size: 0.72rem; } table.grid td { padding: 7px 4px; } table.grid th { padding: 4px 2px; }
  table.grid th, table.grid tr > th:first-child { font-size: 0.68rem; white-space: normal; }
  table.stack thead { display: none; } table.stack, table.stack tbody { display: block; }
  table.stack tr { display: block; padding: 10px 0; border-bottom: 1px solid var(--rule); }
  table.stack td { display: block; border: 0; padding: 1px 0; text-align: left; min-width: 0; }
  table.stack td::before { content: attr(data-head) " "; color: var(--soft); font-size: 0.82rem; }
  table.stack td:first-child { font-weight: 600; } table.stack td:first-child::before { content: ""; }
}
@media print { details { display: block; } h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
"""
