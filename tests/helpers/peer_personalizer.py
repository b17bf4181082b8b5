"""Microsoft's own client of Azure Personalizer, with another address: ADDRESS TOKEN. Prints what it was answered."""

import json
import sys

from azure.cognitiveservices.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer.models import RankableAction, RankRequest
from msrest.authentication import CognitiveServicesCredentials

address, token = sys.argv[1:]
client = PersonalizerClient(address, CognitiveServicesCredentials(token))
actions = [
    RankableAction(id="pasta", features=[{"taste": "salty"}, {"nutritionLevel": 5}]),
    RankableAction(id="ice cream", features=[{"taste": "sweet"}, {"nutritionLevel": 1}]),
    RankableAction(id="juice", features=[{"taste": "sweet"}]),
]
context = [{"timeOfDay": "morning"}, {"user": {"age": 33}}]
found = []
for name, deferred in (("shown", False), ("seen later", True)):
    request = RankRequest(
        actions=actions, context_features=context, excluded_actions=["juice"], event_id=name, defer_activation=deferred
    )
    answer = client.rank(rank_request=request)
    if deferred:
        client.events.activate(event_id=name)
    client.events.reward(event_id=name, value=1.0)
    ranking = {action.id: action.probability for action in answer.ranking}
    found.append({"event": answer.event_id, "shown": answer.reward_action_id, "ranking": ranking})
print(json.dumps(found))
