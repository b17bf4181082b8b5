"""Everything but decisions and rewards: events, explanations, the model, refits, arms, health, metrics."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
from starlette.types import Scope

from treetop.bandit.results import slots
from treetop.bandit.snapshot import Live, limits_of, row_of
from treetop.errors import Problem
from treetop.model.model import Model
from treetop.records import Explanation
from treetop.service import logs, schema
from treetop.service.decide import check_listed, context, current, know_arms, name_of
from treetop.service.http import Raw
from treetop.service.problems import later
from treetop.service.service import Service

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
PATIENCE = 2.0  # seconds for the log to say that it is there


async def event(service: Service, scope: Scope) -> schema.EventAnswer:
    stored = await asyncio.to_thread(service.bandit.event, scope["path_params"]["event_id"])
    found = stored.event
    await know_arms(service, found)
    shown = zip(
        slots(found, service.bandit.live.catalogue), stored.rewards.tolist(), stored.times.tolist(), strict=True
    )
    return schema.EventAnswer(
        found.event_id, found.time, found.epoch, found.model, found.tree, json.loads(found.policy), found.eligible,
        schema.Sparse(found.index.tolist(), found.value.tolist()),
        [schema.EventSlot(*slot, _known(reward), _known(when)) for slot, reward, when in shown],
    )  # fmt: skip


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


async def explain(service: Service, ask: schema.ExplainRequest) -> schema.ExplainAnswer:
    if (ask.features is None) == (ask.event_id is None):
        raise ValueError("give features or an event_id, one of the two")
    if ask.event_id is not None and (ask.eligible is not None or ask.exclude is not None):
        raise ValueError("an event has its own eligible arms; eligible and exclude go with features")
    check_listed(service, ask.eligible, ask.exclude)
    return await current(service, lambda: _explained(service, ask), aside=True)


def _explained(service: Service, ask: schema.ExplainRequest) -> schema.ExplainAnswer:
    live = service.bandit.live
    if ask.features is not None:
        view = live.explain(context(service, ask.features), live.restricted(ask.eligible, ask.exclude))
        return _explanation(live, view, ask.top)
    assert ask.event_id is not None
    stored = service.bandit.event(name_of(ask.event_id)).event
    then = live if stored.model == live.name else _then(service, stored.model)
    limits = limits_of(stored, then.model, live.catalogue, service.bandit.log.eligible_set)
    policy = then.deciding.__class__(**json.loads(stored.policy)).policy()
    return _explanation(then, policy.explain(then.model, row_of(stored, then.model), limits.allowed), ask.top)


def _then(service: Service, name: str) -> Live:
    home = service.bandit.home
    if name not in home.models():
        raise Problem(409, "model_not_kept", f"model {name} decided it and is not kept any more")
    return Live(name, Model.load(home.model_path(name)), service.bandit.live.catalogue, service.bandit.config.policy)


def _explanation(live: Live, view: Explanation, top: int) -> schema.ExplainAnswer:
    order = np.lexsort((-view.score, -view.probability))[:top].tolist()
    ids, tree = live.catalogue.ids, live.model.tree
    effective = []
    for i in order:
        node = int(view.id[i]) if view.is_node[i] else None
        below = 1 if node is None else int(tree.sizes[node])
        arm = ids[int(view.id[i])] if node is None else None
        route, score, chance = float(view.route[i]), float(view.score[i]), float(view.probability[i])
        effective.append(schema.Effective(arm, node, below, route, score, chance))
    nodes = int(view.is_node.sum())
    words = in_words(effective, len(view), nodes)
    return schema.ExplainAnswer(live.model.epoch, live.name, len(view) - nodes, nodes, words, effective)


def in_words(effective: list[schema.Effective], count: int, nodes: int) -> str:
    """One sentence on who is ahead."""
    best = max(effective, key=lambda entry: entry.score)
    who = f"arm {best.arm}" if best.node is None else f"the {best.arms_below} arms below node {best.node}"
    return (
        f"Of {count} effective arms ({count - nodes} single arms and {nodes} groups), {who} scores highest with "
        f"{best.score:.3g}; a first draw takes it with chance {best.probability:.3g}."
    )


async def model(service: Service, scope: Scope) -> schema.ModelAnswer:
    return await asyncio.to_thread(_model, service)


def _model(service: Service) -> schema.ModelAnswer:
    bandit, refits = service.bandit, service.refits.state()
    live, state = bandit.live, bandit.home.state()
    made, catalogue = live.model, live.catalogue
    refit = schema.RefitState(
        refits.running, service.counts().observed, state.refit_observed, state.refit_time or None, refits.in_a_row,
        refits.error,
    )  # fmt: skip
    return schema.ModelAnswer(
        live.name, made.epoch, made.n_seen, made.n_arms, len(catalogue.removed), made.n_features, made.tree.n_nodes,
        live.tree, asdict(live.deciding), bandit.home.models(), refit, live.trouble or None,
    )  # fmt: skip


async def refit(service: Service, ask: schema.RefitRequest) -> Raw:
    if (await asyncio.to_thread(service.counts)).decisions == 0:
        raise Problem(409, "nothing_to_learn", "there is no decision in the log to learn from")
    service.refits.ask()
    return Raw(schema.RefitAnswer("started"), 202)


async def rollback(service: Service, ask: schema.RollbackRequest) -> schema.RollbackAnswer:
    try:
        name = await asyncio.to_thread(service.bandit.roll_back, ask.model)
    except ValueError as error:
        raise Problem(409, "no_such_model", str(error)) from None
    logs.say("rolled back", model=name)
    return schema.RollbackAnswer(name, service.bandit.live.model.epoch)


async def arms(service: Service, ask: schema.ArmsRequest) -> schema.ArmsAnswer:
    check_listed(service, ask.add, ask.remove)
    if ask.vectors is not None and len(ask.vectors) != len(ask.add):
        raise ValueError(f"{len(ask.vectors)} vectors for {len(ask.add)} new arms")
    await asyncio.to_thread(_change_arms, service, ask)
    live = service.bandit.live
    logs.say("arms changed", added=len(ask.add), removed=len(ask.remove), model=live.name)
    return schema.ArmsAnswer(live.name, live.model.n_arms, len(live.catalogue.removed))


def _change_arms(service: Service, ask: schema.ArmsRequest) -> None:
    bandit = service.bandit
    vectors: Any = None
    if ask.vectors:
        import scipy.sparse as sp

        vectors = sp.vstack([context(service, features).csr() for features in ask.vectors], format="csr")
    bandit.refresh()
    bandit.live.catalogue.add(ask.add).find(ask.remove)  # all of it is right, or nothing is done
    if ask.add:
        bandit.add_arms(ask.add, vectors)
    if ask.remove:
        bandit.remove_arms(ask.remove)


async def healthz(service: Service, scope: Scope) -> schema.Health:
    return schema.Health("alive")


async def readyz(service: Service, scope: Scope) -> schema.Health:
    try:
        await asyncio.wait_for(asyncio.to_thread(service.counts), PATIENCE)
    except (OSError, asyncio.TimeoutError):
        raise later(503, "log_unavailable", "the log cannot be read at the moment") from None
    return schema.Health("ready")


async def metrics(service: Service, scope: Scope) -> Raw:
    return Raw(await asyncio.to_thread(service.metrics.text), kind=TEXT)
