"""Logged decisions and their explanations as HTML."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from treetop.bandit.snapshot import logged_variant
from treetop.log.records import StoredEvent
from treetop.log.series import is_unlikely
from treetop.service import schema
from treetop.service.dashboard import words
from treetop.service.dashboard.board import Board
from treetop.service.dashboard.text import moment
from treetop.service.dashboard.words import SHOWN


def decision(board: Board, stored: StoredEvent) -> str:
    """A decision with its slots, in words, and on demand what else it could have shown."""
    event, name = stored.event, board.names.name
    unlikely = is_unlikely(event.explored, event.propensities)
    slots = "".join(
        _slot(name(int(arm)), board.category(int(arm)), bool(rare), float(reward))
        for arm, rare, reward in zip(event.arms[:SHOWN], unlikely, stored.rewards, strict=False)
    )
    if len(event) > SHOWN:
        slots += f"<li class='open'>and {len(event) - SHOWN:,} more</li>"
    variant = logged_variant(event.policy)
    how = f" · variant {escape(variant[1])}" if variant else ""
    return (
        f"<li data-event='{escape(event.event_id)}'><div class='line'><code>{escape(event.event_id)}</code>"
        f"<span class='soft'>{moment(event.time)} · model {escape(event.model)}{how}</span></div>"
        f"<ul class='slots'>{slots}</ul><p class='words'>{escape(words.decision(stored, name))}</p>"
        f"{alternatives(event.event_id)}</li>"
    )


def alternatives(event_id: str) -> str:
    """What else a decision could have shown, asked for when it is opened."""
    why = f"/dashboard/why/{quote(event_id, safe='')}"
    return (
        f"<details hx-get='{escape(why)}' hx-trigger='toggle once' hx-target='find .why'>"
        "<summary>What else it could have shown</summary><div class='why soft'>Asking the model …</div></details>"
    )


def _slot(arm: str, category: str, unlikely: bool, reward: float) -> str:
    known = reward == reward
    state = ("good" if reward > 0 else "zero") if known else "open"
    title = f"{'unlikely' if unlikely else 'likely'}, {f'reward {reward:g}' if known else 'no reward yet'}"
    title = f"{category}: {title}" if category else title
    value = f" <b>{reward:g}</b>" if known else ""
    return f"<li class='{'drawn' if unlikely else 'greedy'} {state}' title='{escape(title)}'>{escape(arm)}{value}</li>"


def explanation(answer: schema.ExplainAnswer) -> str:
    """The effective arms with the highest chances in a first slot that is drawn."""
    rows = []
    for e in answer.effective:
        who = escape(str(e.arm)) if e.node is None else f"<i>any of {e.arms_below:,} arms{_where(e)}</i>"
        who += f"<span class='path'>{escape(e.category)}</span>" if e.node is None and e.category else ""
        rows.append(f"<tr><td>{who}</td><td>{e.score:.3f}</td><td>{words.chance(e.probability)}</td></tr>")
    return (
        f"<p>{escape(answer.words)}</p><div class='scroll'><table><thead><tr><th>could show</th><th>score</th>"
        f"<th>chance in the first slot, if every slot were drawn</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _where(group: schema.Effective) -> str:
    """Which arms a group has: the category that all are in, else where they are in the tree."""
    return f" of {escape(group.category)}" if group.category else f" below node {group.node}"
