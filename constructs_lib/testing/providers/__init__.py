"""Base of fake providers: HTTP servers in processes of their own, with books, idempotency keys, and planned troubles.

``books`` keeps keys and the journal of requests next to a provider's own tables; ``troubles`` are failures as data;
``server`` serves requests under both; ``control`` starts, stops and questions the process; ``process`` runs in it.
"""
