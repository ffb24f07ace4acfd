"""The Mininet world: build, shape, replay, guard."""
