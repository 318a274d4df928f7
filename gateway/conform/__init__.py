"""The conformance kit: what an OpenAI-compatible endpoint, ours or an engine, keeps of the rules in docs/streams.md.

It stands on the client's side of the wire and needs nothing of llmgw but the grammar.
"""
