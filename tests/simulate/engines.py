"""The engine alone, built anew: who plays stories with it needs no other file of the core."""

from pathlib import Path

from rfabric.simulate.build import BASE, SOURCE, compile_to


def engine_alone(output: Path, *flags: str, source: Path = SOURCE) -> Path:
    """Compile `source` alone into `output`, with these flags besides those of every core."""
    compile_to(output, [*BASE, *flags, str(source)])
    return output
