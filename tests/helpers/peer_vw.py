"""Vowpal Wabbit on dsjson, in the peers' environment: what it reads of every line, and what it chooses after training.

    .venv-peers/bin/python tests/helpers/peer_vw.py labels|train PROBLEM FILE [TEST FILE]

Prints JSON, a list with an entry a line.
"""

import faulthandler
import json
import sys
from typing import Any

import vowpalwabbit as vw

LEARNERS = {"cb": "--cb_explore_adf", "ccb": "--ccb_explore_adf", "slates": "--slates"}
SETTINGS = "--dsjson -q xa --epsilon 0 -b 20 --power_t 0 -l 0.2 --quiet"


def labels(problem: str, lines: list[str]) -> list[Any]:
    """[action counted from 0, probability, cost] of each slot, the weight, and which actions a slot may take."""
    workspace, found = vw.Workspace(f"{LEARNERS[problem]} {SETTINGS}"), []
    for line in lines:
        examples = workspace.parse(line)
        found.append({"cb": cb, "ccb": ccb, "slates": slates}[problem](examples))
        if len(examples) > 1:  # finishing a line that it passed over, or that it did not predict, would crash
            workspace.predict(examples)
            workspace.finish_example(examples)
    return found


def cb(examples: list[Any]) -> Any:
    """The label stands on the example of the action that was taken."""
    actions = [e.get_label(vw.LabelType.CONTEXTUAL_BANDIT) for e in examples]
    actions = actions[1:]  # the context comes first
    slots = [[at, c.probability, c.cost] for at, label in enumerate(actions) for c in label.costs]
    return {"slots": slots, "weight": actions[0].weight, "actions": len(actions)}


def ccb(examples: list[Any]) -> Any:
    found = [e.get_label(vw.LabelType.CONDITIONAL_CONTEXTUAL_BANDIT) for e in examples]
    slots = [label for label in found if label.type == vw.CCBLabelType.SLOT]
    outcomes = [label.outcome for label in slots if label.outcome is not None]
    chosen = [[o.action_probs[0].action, o.action_probs[0].score, o.cost] for o in outcomes]
    included = [list(label.explicit_included_actions) for label in slots]
    actions = sum(label.type == vw.CCBLabelType.ACTION for label in found)
    return {"slots": chosen, "weight": found[0].weight, "actions": actions, "included": included}


def slates(examples: list[Any]) -> Any:
    if len(examples) == 1:  # it passes over a line without a label
        return {"slots": [], "labelled": False}
    found = [e.get_label(vw.LabelType.SLATES) for e in examples]
    slots = [label for label in found if label.type == vw.SlatesLabelType.SLOT]
    chosen = [[p.action, p.score, found[0].cost] for label in slots for p in label.probabilities]
    return {
        "slots": chosen,
        "weight": found[0].weight,
        "labelled": found[0].labeled,
        "actions": len(found) - len(slots) - 1,
    }


def train(problem: str, lines: list[str], test: list[str]) -> list[int]:
    """The action, counted from 0, that it takes for the first slot of every test line after it has learned."""
    workspace = vw.Workspace(f"{LEARNERS[problem]} {SETTINGS}")
    for line in lines:
        examples = workspace.parse(line)
        workspace.learn(examples)
        workspace.finish_example(examples)
    found = []
    for line in test:
        examples = workspace.parse(line)
        chances = workspace.predict(examples)
        first = chances if problem == "cb" else [p for _, p in sorted(chances[0])]
        found.append(max(range(len(first)), key=first.__getitem__))
        workspace.finish_example(examples)
    return found


if __name__ == "__main__":
    faulthandler.enable()
    what, problem, *files = sys.argv[1:]
    read = []
    for file in files:
        with open(file) as opened:
            read.append(opened.read().splitlines())
    print(json.dumps(labels(problem, *read) if what == "labels" else train(problem, *read)))
