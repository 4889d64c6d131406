"""The language of the system: frozen, slotted dataclasses and the ports that move them. Standard library only.

ids -> blocks -> chunks -> documents -> access -> retrieval -> answers, and `ports` for the Protocols.
"""
