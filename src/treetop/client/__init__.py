"""The other end of the service: how does another program ask it?

Reading order: messages (requests and answers), blocking (`Client`), asynchronous (`AsyncClient`). Imports what `bandit`
answers with, and no HTTP library; knows nothing of models, logs or servers.
"""
