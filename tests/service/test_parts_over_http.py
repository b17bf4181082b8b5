"""Contexts with several parts over HTTP, their vectors in a space of their own."""

from pathlib import Path
from typing import Any

import numpy as np
from helpers.running import running, settings

from treetop import Client
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue

PARTS: dict[str, Any] = {"vector": 5, "device": ["mobile", "desktop"], "age": None}


def test_parts_over_http(tmp_path: Path) -> None:
    V = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    Bandit.create(tmp_path / "shop", Catalogue(vectors=V), features=PARTS, config=settings()).close()
    context = {"vector": [1, 0, 0.5, 0, 2], "device": "mobile", "age": 35}
    with running(tmp_path / "shop") as shop:
        found = shop.post("/v1/decide", {"event_id": "visit-1", "features": context})
        assert found.status == 200
        again = {"indices": [0, 2, 4, 5, 7], "values": [1, 0.5, 2, 1, 35]}
        assert shop.post("/v1/decide", {"event_id": "visit-1", "features": again}).json == found.json
        assert shop.ask("GET", "/v1/events/visit-1").json["features"] == again
        for wrong, message in (
            ({"vector": [1, 2]}, "vector 'vector' has 2 numbers; it must be a list of 5 numbers"),
            ({"taste": [1, 2]}, "no vector 'taste'"),
            ({"vector": "mobile"}, "vector 'vector' is 'mobile'"),
            ({"age": "old"}, "feature 'age' must be a number"),
            ({"dense": [1.0], "vector": [1.0]}, "no vector 'dense'"),
        ):
            refused = shop.post("/v1/decide", {"features": wrong})
            assert (refused.status, refused.code) == (422, "invalid")
            assert message in refused.json["error"]["message"]
        batch = {"requests": [{"features": context}, {"features": {"vector": [1]}}, {"features": {"device": "watch"}}]}
        results = shop.post("/v1/decide/batch", batch).json["results"]
        assert [result["status"] for result in results] == [200, 422, 200]
        assert shop.post("/v1/explain", {"features": context, "top": 3}).status == 200
        grown = shop.post("/v1/arms", {"add": ["new"], "vectors": [{"vector": V[7].tolist()}]})
        assert grown.json["arms"] == 61
        assert shop.post("/v1/arms", {"add": ["other"], "vectors": [{"vector": [1.0] * 5}]}).status == 422
        plain = shop.post("/v1/arms", {"add": ["plain", "twin"], "vectors": [V[7].tolist(), V[8].tolist()]})
        assert (plain.status, plain.json["arms"]) == (200, grown.json["arms"] + 2)
        alike = shop.post("/v1/arms", {"add": ["alike"], "like": ["plain"]})
        assert (alike.status, alike.json["arms"]) == (200, grown.json["arms"] + 3)
        assert shop.post("/v1/arms", {"add": ["other"], "like": ["nobody"]}).status in (404, 422)
        assert shop.post("/v1/arms", {"add": ["other"], "vectors": [[1.0] * 5]}).status == 422
        assert shop.post("/v1/arms", {"add": ["other"], "like": []}).status == 422
        with Client(shop.url) as client:
            visitor = {"vector": np.ones(5, np.float32), "device": "desktop"}
            assert client.decide(visitor, eligible=["new"]).arms == ["new"]
            assert client.decide({**visitor, "devise": "mobile"}).unknown_features == ("devise=mobile",)
