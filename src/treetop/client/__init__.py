"""How does another program ask the service? Knows requests and answers, and nothing of models, logs or servers.

May import `bandit.results` and `bandit.arm_index`, what is under everything, and no HTTP library.
"""

from treetop.client.asynchronous import AsyncClient
from treetop.client.blocking import Client

__all__ = ["AsyncClient", "Client"]
