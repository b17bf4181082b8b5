"""Handlers of everything but decisions and rewards: events, explanations, models, refits, arms, health, metrics."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import asdict
from typing import Any

from starlette.types import Scope

from treetop.arrays import Rows, as_rows
from treetop.bandit.arm_filter import ArmFilter, logged_filter
from treetop.bandit.growth import vector_rows
from treetop.bandit.retention import RetentionState
from treetop.bandit.snapshot import Snapshot
from treetop.errors import Problem
from treetop.records import Explanation
from treetop.service import logs, schema
from treetop.service.decide import (
    check_arm_count,
    context_row,
    event_text,
    load_arms_of,
    look_up_attributes,
    with_new_arms,
)
from treetop.service.http import Raw
from treetop.service.refit_scheduler import BUSY, NOTHING, SUPERSEDED
from treetop.service.service import Service
from treetop.tree.categories import category_text

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
REFIT_WAIT = 60.0  # seconds that a request waits at most for its refit
REFIT_ENDS: dict[int | None, tuple[int, str]] = {
    BUSY: (409, "busy"),
    NOTHING: (409, "nothing_to_learn"),
    SUPERSEDED: (409, "superseded"),
}


async def event(service: Service, scope: Scope) -> schema.EventAnswer:
    stored = await asyncio.to_thread(service.bandit.event, scope["path_params"]["event_id"])
    found = stored.event
    await load_arms_of(service, found)
    served = service.bandit.served(found)
    slots = [
        schema.EventSlot(slot.arm, slot.propensity, slot.score, slot.explored, slot.via, _or_null(reward), _or_null(at))
        for slot, reward, at in zip(served.slots, stored.rewards.tolist(), stored.times.tolist(), strict=True)
    ]
    return schema.EventAnswer(
        event_id=found.event_id,
        time=found.time,
        epoch=found.model_epoch,
        model=found.model,
        tree=found.tree,
        policy=json.loads(found.policy),
        eligible=found.eligible,
        features=schema.Sparse(found.index.tolist(), found.value.tolist()),
        slots=slots,
        keys=dict(found.keys),
        replaced=[schema.ReplacedReward(served.slots[r.slot].arm, r.value, r.time) for r in stored.replaced],
    )


def _or_null(number: float) -> float | None:
    return None if math.isnan(number) else number


async def explain(service: Service, request: schema.ExplainRequest) -> schema.ExplainAnswer:
    if (request.features is None) == (request.event_id is None):
        raise ValueError("give features or an event_id, one of the two")
    if request.event_id is not None and (
        request.eligible is not None or request.exclude is not None or request.where is not None
    ):
        raise ValueError("an event has its own eligible arms; eligible, exclude and where go with features")
    check_arm_count(service, request.eligible, request.exclude)
    if request.where:
        await look_up_attributes(service)
    return await with_new_arms(service, lambda: _explain(service, request), service.explanations.run)


def _explain(service: Service, request: schema.ExplainRequest) -> schema.ExplainAnswer:
    bandit = service.bandit
    if request.features is not None:
        snapshot = bandit.snapshot
        arm_filter = snapshot.arm_filter(request.eligible, request.exclude, request.where)
        view = snapshot.explain(snapshot.bounded(context_row(service, request.features)), arm_filter)
        return _explanation(snapshot, view, arm_filter, request.top)
    assert request.event_id is not None
    event = bandit.event(event_text(request.event_id)).event
    snapshot = service.explanations.snapshot_of(event)
    arm_filter = logged_filter(event, snapshot.model.tree, snapshot.arms, bandit.logged_sets())
    return _explanation(snapshot, snapshot.explain_logged(event, arm_filter), arm_filter, request.top)


def _explanation(snapshot: Snapshot, view: Explanation, arm_filter: ArmFilter, top: int) -> schema.ExplainAnswer:
    best = view.best(top)
    ids, tree, categories = snapshot.arms.ids, snapshot.model.tree, snapshot.attributes.categories
    effective = []
    for i in range(len(best)):
        node = int(best.id[i]) if best.is_node[i] else None
        below = 1 if node is None else arm_filter.eligible.count_below(tree, node)
        arm = ids[int(best.id[i])] if node is None else None
        route, score, chance = float(best.route[i]), float(best.score[i]), float(best.probability[i])
        category = None
        if categories is not None:
            path = categories.path(int(best.id[i])) if node is None else categories.common(tree.arms_below(node))
            category = category_text(path)
        effective.append(schema.Effective(arm, node, below, route, score, chance, category))
    nodes = int(view.is_node.sum())
    words = in_words(effective, len(view), nodes)
    return schema.ExplainAnswer(snapshot.model.epoch, snapshot.name, len(view) - nodes, nodes, words, effective)


def in_words(effective: list[schema.Effective], count: int, nodes: int) -> str:
    """One sentence on the effective arm with the highest score."""
    best = max(effective, key=lambda entry: entry.score)
    who = f"arm {best.arm}" if best.node is None else f"the {best.arms_below} arms below node {best.node}"
    who += f" ({best.category})" if best.category else ""
    return (
        f"Of {count} effective arms ({count - nodes} single arms and {nodes} groups), {who} scores highest with "
        f"{best.score:.3g}; if every slot were drawn, the first would show it with chance {best.probability:.3g}."
    )


async def model(service: Service, scope: Scope) -> schema.ModelAnswer:
    return await asyncio.to_thread(_model, service)


def _model(service: Service) -> schema.ModelAnswer:
    bandit, refits = service.bandit, service.refits.state()
    snapshot, state, counts = bandit.snapshot, bandit.folder.state(), service.counts()
    model, arms = snapshot.model, snapshot.arms
    refit = schema.RefitStatus(
        running=refits.running,
        observed=counts.observed,
        seen=state.refit_observed,
        new=state.schedule.new(counts),
        due=bandit.config.refit.next_at(state.schedule.observed) - state.schedule.observed,
        last=state.refit_time or None,
        failures=refits.in_a_row,
        error=refits.error,
        aside=refits.aside,
    )
    return schema.ModelAnswer(
        model=snapshot.name,
        epoch=model.epoch,
        n_seen=model.n_seen,
        arms=model.n_arms,
        removed=len(arms.removed),
        features=model.n_features,
        nodes=model.tree.n_nodes,
        tree=snapshot.tree,
        policy=asdict(snapshot.policy_config),
        kept=bandit.folder.models(),
        pinned=state.pinned,
        refit=refit,
        trouble=snapshot.trouble or None,
        retention=RetentionState.read(bandit.log).refused or None,
    )


async def refit(service: Service, request: schema.RefitRequest) -> Raw | schema.RefitAnswer:
    if (await asyncio.to_thread(service.counts)).decisions == 0:
        raise Problem(409, "nothing_to_learn", "there is no decision in the log to learn from")
    (await asyncio.to_thread(service.bandit.folder.state)).check_not_pinned()
    run = service.refits.start_now()
    if request.wait:
        await asyncio.wait([run], timeout=REFIT_WAIT)
    if not run.done():
        return Raw(schema.RefitAnswer("started"), 202)
    end = run.result()
    if end.code != 0:
        raise Problem(*REFIT_ENDS.get(end.code, (500, "refit_failed")), f"the refit made no model: {end.said}")
    await service.refresh()
    return schema.RefitAnswer("aside" if end.aside else "done", end.said)


async def rollback(service: Service, request: schema.RollbackRequest) -> schema.RollbackAnswer:
    try:
        name = await asyncio.to_thread(service.bandit.roll_back, request.model, request.pin)
    except ValueError as error:
        raise Problem(409, "no_such_model", str(error)) from None
    logs.log_event("rolled back", model=name, pinned=request.pin)
    return schema.RollbackAnswer(name, service.bandit.snapshot.model.epoch, request.pin)


async def unpin(service: Service, request: schema.UnpinRequest) -> schema.RollbackAnswer:
    name = await asyncio.to_thread(service.bandit.unpin)
    logs.log_event("unpinned", model=name)
    return schema.RollbackAnswer(name, service.bandit.snapshot.model.epoch, False)


async def arms(service: Service, request: schema.ArmsRequest) -> schema.ArmsAnswer:
    check_arm_count(service, request.add, request.remove)
    named = {"categories": request.categories, "like": request.like, "examples": request.examples}
    for name, given in [*named.items(), *(request.attributes or {}).items()]:
        if given is not None and len(given) != len(request.add):
            raise ValueError(f"{name!r} has {len(given)} values for {len(request.add)} new arms")
    if request.vectors is not None and len(request.vectors) != len(request.add):
        raise ValueError(f"{len(request.vectors)} vectors for {len(request.add)} new arms")
    await asyncio.to_thread(_change_arms, service, request)
    snapshot = service.bandit.snapshot
    logs.log_event("arms changed", added=len(request.add), removed=len(request.remove), model=snapshot.name)
    return schema.ArmsAnswer(snapshot.name, snapshot.model.n_arms, len(snapshot.arms.removed))


def _change_arms(service: Service, request: schema.ArmsRequest) -> None:
    bandit = service.bandit
    vectors: Any = None
    if request.vectors:
        import scipy.sparse as sp

        vectors = sp.vstack([_vector(service, features).csr() for features in request.vectors], format="csr")
    bandit.refresh()
    known = bandit.snapshot.arms
    known.add(known.split(request.add)[0]).find(request.remove)  # raises before anything is changed
    if request.add:
        examples = [[context_row(service, x) for x in each or ()] for each in request.examples or ()] or None
        more = request.categories, request.attributes, request.like, examples, request.new
        bandit.add_arms(request.add, vectors, *more)
    if request.remove:
        bandit.remove_arms(request.remove)


def _vector(service: Service, features: dict[str, Any] | list[float]) -> Rows:
    """The vector of a new arm: one of the items', or a context, unless contexts lie in a space of their own."""
    if isinstance(features, list):
        return vector_rows(service.bandit.snapshot.model, [features])
    if service.bandit.snapshot.model.context_map is None:
        return context_row(service, features)
    if len(features) != 1 or not isinstance(given := next(iter(features.values())), list):
        raise ValueError("contexts lie in a space of their own here: an arm's vector is a list of numbers")
    return as_rows([given], what="arm vectors")


async def new_arms(service: Service, scope: Scope) -> schema.NewArmsAnswer:
    def count() -> schema.NewArmsAnswer:
        with service.counting:
            arms, counted = service.bandit.snapshot.arms, service.new_arms
            counted.update(service.bandit.log, arms, service.bandit.folder.history())
            return schema.NewArmsAnswer(counted.trials, counted.cohorts(arms))

    return await asyncio.to_thread(count)


async def attributes(service: Service, request: schema.AttributesRequest) -> schema.CatalogueAnswer:
    check_arm_count(service, request.arms, changed=True)
    await with_new_arms(
        service, lambda: service.bandit.set_attributes(request.arms, request.attributes, request.new), asyncio.to_thread
    )
    logs.log_event("attributes changed", arms=len(request.arms), attributes=list(request.attributes))
    return await catalogue(service, {})


async def put_set(service: Service, request: schema.SetRequest, name: str) -> schema.CatalogueAnswer:
    check_arm_count(service, request.arms, changed=True)
    await with_new_arms(service, lambda: service.bandit.set_arms(name, request.arms), asyncio.to_thread)
    logs.log_event("set changed", set=name, arms=None if request.arms is None else len(request.arms))
    return await catalogue(service, {})


async def catalogue(service: Service, scope: Scope) -> schema.CatalogueAnswer:
    await look_up_attributes(service)
    table = service.bandit.snapshot.attributes
    return schema.CatalogueAnswer(
        {name: schema.AttributeAnswer(column.kind, len(column.order)) for name, column in table.columns.items()},
        {name: len(column.order) for name, column in table.sets.items()},
    )


async def healthz(service: Service, scope: Scope) -> schema.Health:
    return schema.Health("alive")


async def readyz(service: Service, scope: Scope) -> schema.Health:
    await service.readiness.check()
    return schema.Health("ready")


async def metrics(service: Service, scope: Scope) -> Raw:
    return Raw(await asyncio.to_thread(service.metrics.text), kind=TEXT)
