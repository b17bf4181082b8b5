"""Draws docs/assets/search.svg: one decision over 24 arms, as treetop makes it. `python scripts/draw_search.py`

Colours are readable on white and on black, because the picture has no background of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import treetop

OUT = Path(__file__).parents[1] / "docs" / "assets" / "search.svg"
WIDTH, TOP, STEP = 960, 76, 78  # pixels: of the picture, above the root, between two levels
KEPT, PRUNED, ARM, GREY = "#0f8a7e", "#b26a00", "#3f6fd8", "#747e8b"
KEYS = ((KEPT, "kept by the beam"), (PRUNED, "pruned: one effective arm for all below"), (ARM, "single arms"))


def decision() -> tuple[treetop.Tree, treetop.Explanation, treetop.Decision]:
    """A tree over 24 arms that lie on a line, and a decision for a context among them: k = 3, one explored, beam 2."""
    places = np.arange(24) / 23
    vectors = np.exp(-(((places[:, None] - np.linspace(0, 1, 8)) / 0.12) ** 2))
    tree = treetop.Tree.from_vectors(vectors, max_leaf=3)
    model = treetop.Model.from_vectors(tree, vectors)
    policy = treetop.Policy(k=3, explore=1, beam=2, strategy=treetop.IGW(C=0.05))
    rows = np.random.default_rng(0).integers(0, 24, 400)
    shown = policy.decide_batch(model, vectors[rows], seed=0)
    near = np.exp(-(((places[rows][:, None] - places[shown.arms]) / 0.05) ** 2))
    model = treetop.refit(model, treetop.Feedback.of(vectors[rows], shown, near))
    x = vectors[7]
    events = (policy.decide(model, x, event_id=f"visit-{i}") for i in range(100))
    return tree, policy.explain(model, x), next(d for d in events if d.nodes[-1] >= 0)


def draw() -> str:
    """The picture as SVG."""
    tree, view, made = decision()
    pruned = {int(i) for i in view.id[view.is_node]}
    single = {int(i) for i in view.id[~view.is_node]}
    order = sorted(range(tree.n_arms), key=lambda arm: _path(tree, arm))
    at = {arm: 48 + (WIDTH - 96) * i / (tree.n_arms - 1) for i, arm in enumerate(order)}
    levels = tree.levels()
    middle = {node: float(np.mean([at[int(arm)] for arm in tree.arms_below(node)])) for node in range(tree.n_nodes)}
    height = {node: TOP + STEP * int(levels[node]) for node in range(tree.n_nodes)}
    bottom = TOP + STEP * (tree.depth + 1)
    hidden = {n for n in range(tree.n_nodes) if any(p in pruned for p in _above(tree, n))}
    out = [_text(WIDTH / 2, 24, "context x", 16, GREY), _line(WIDTH / 2, 32, middle[0], TOP - 18, GREY)]
    for node in range(1, tree.n_nodes):
        parent, faint = int(tree.parents[node]), node in hidden
        out.append(_line(middle[parent], height[parent], middle[node], height[node], GREY, 0.25 if faint else 0.9))
    for arm, x in at.items():
        leaf = int(tree.leaf_of[arm])
        shown = int(np.flatnonzero(made.arms == arm)[0]) if arm in made.arms else None
        out.append(
            _line(middle[leaf], height[leaf], x, bottom, GREY, 0.9 if arm in single or shown is not None else 0.25)
        )
        colour = ARM if arm in single else GREY
        out.append(_circle(x, bottom, 9, colour, 1.0 if arm in single else 0.35))
        if shown is not None:
            how = "explored" if made.explored[shown] else "greedy"
            out.append(_circle(x, bottom, 14, PRUNED if made.nodes[shown] >= 0 else ARM, 1.0, hollow=True))
            out.append(_text(x, bottom + 34, f"slot {shown + 1}", 14, GREY, bold=True))
            out.append(_text(x, bottom + 52, how, 13, GREY))
            out.append(_text(x, bottom + 70, f"p = {made.propensities[shown]:.2g}", 13, GREY))
    for node in range(tree.n_nodes):
        colour = PRUNED if node in pruned else GREY if node in hidden else KEPT
        out.append(_circle(middle[node], height[node], 16, colour, 0.35 if node in hidden else 1.0))
        if node in pruned:
            out.append(_text(middle[node], height[node] + 5, str(tree.sizes[node]), 14, "#ffffff", bold=True))
    for i, (colour, words) in enumerate(KEYS):
        out.append(_circle(30, 20 + 26 * i, 8, colour, 1.0))
        out.append(_text(46, 25 + 26 * i, words, 14, GREY, anchor="start"))
    box = f'viewBox="0 0 {WIDTH} {bottom + 84}" font-family="system-ui, sans-serif"'
    title = f"<title>A decision over {tree.n_arms} arms: {len(view)} effective arms, 3 slots</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>\n{title}\n' + "\n".join(out) + "\n</svg>\n"


def _above(tree: treetop.Tree, node: int) -> list[int]:
    found = []
    while (node := int(tree.parents[node])) >= 0:
        found.append(node)
    return found


def _path(tree: treetop.Tree, arm: int) -> tuple[float, ...]:
    """Sorts arms so that no two lines of the tree cross: by the first arm below each node on the way down."""
    leaf = int(tree.leaf_of[arm])
    return (*(float(tree.arms_below(node).min()) for node in [*reversed(_above(tree, leaf)), leaf]), arm)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, opacity: float = 0.9) -> str:
    points = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {points} stroke="{colour}" stroke-width="1.5" opacity="{opacity}"/>'


def _circle(x: float, y: float, r: float, colour: str, opacity: float, hollow: bool = False) -> str:
    paint = f'fill="none" stroke="{colour}" stroke-width="2.5"' if hollow else f'fill="{colour}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" {paint} opacity="{opacity}"/>'


def _text(x: float, y: float, words: str, size: int, colour: str, bold: bool = False, anchor: str = "middle") -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{colour}"{weight}>{words}</text>'


if __name__ == "__main__":
    OUT.write_text(draw())
