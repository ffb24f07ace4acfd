"""A store of cells: one Parquet dataset, a row a cell, with where each came from.

    sweep/
        store.json                      the version of the store, and the code that all rows are of
        part-20250721-143005-9f3a.parquet

A part is written beside its name and renamed, so what is there is whole; several may write at
once. Cells are told by `key`, and one that stands twice counts once. A part is for any reader of
Parquet; all together are for `table_of_cells`, because a column that one job leaves empty may be of
another kind in the part of the next. Needs pyarrow, questions in SQL DuckDB (rfabric[store]).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import RFabricError
from ..files import read_json, replacing
from .folder import give_to_caller, new_name, write_text, writing
from .parquet import write_rows

VERSION = 1
ABOUT, PARTS = "store.json", "part-*.parquet"
TABLE = "cells"


def require_store(*libraries: str) -> None:
    """RFabricError where pyarrow, or one of `libraries`, is not installed."""
    for name in ("pyarrow", *libraries):
        if find_spec(name) is None:
            raise RFabricError(f"a store needs {name}; pip install 'rfabric[store]'")


def open_store(folder: Path, code: Mapping[str, str]) -> None:
    """Begin a store of this code, or go on with one; RFabricError for a folder that holds
    something else, or cells of other code.
    """
    require_store()
    if not (folder / ABOUT).exists():
        _begin(folder, code)
    _check_code(folder, read_about(folder)["code"], code)


def _begin(folder: Path, code: Mapping[str, str]) -> None:
    """Make store.json; others may do so just now, as the shards of a job array do."""
    with writing(folder):
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        if _is_other(folder) and not (folder / ABOUT).exists():
            raise RFabricError(f"{folder} is there and is no store; name another with --store")
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / ABOUT, _json({"version": VERSION, "code": dict(code)}))
        give_to_caller([*made, folder / ABOUT])


def _is_other(folder: Path) -> bool:
    """Whether something is there that is no store, nor one that is being begun."""
    if not folder.exists():
        return False
    return not folder.is_dir() or any(not path.match(f"{ABOUT}*") for path in folder.iterdir())


def _json(document: dict) -> str:
    return json.dumps(document, indent=2) + "\n"


def _check_code(folder: Path, its: Mapping[str, str], mine: Mapping[str, str]) -> None:
    if differing := [name for name in mine if its.get(name) != mine[name]]:
        raise RFabricError(
            f"{folder} holds cells of another rfabric ({', '.join(differing)} differ): the two "
            "are not to be compared; name another store with --store"
        )


def read_about(folder: str | Path) -> dict:
    """What store.json says; RFabricError where there is no store, or one of another version."""
    path = Path(folder) / ABOUT
    try:
        said = read_json(path)
    except FileNotFoundError as error:
        raise RFabricError(
            f"{folder} is no store of cells: it has no {ABOUT}; `rfabric sweep --store {folder}` "
            "makes one"
        ) from error
    except (OSError, ValueError) as error:
        raise RFabricError(f"{path}: cannot be read: {error}") from error
    if not isinstance(said, dict) or said.get("version") != VERSION:
        version = said.get("version") if isinstance(said, dict) else said
        raise RFabricError(
            f"{folder} is a store of version {version!r}; this rfabric reads version {VERSION}: "
            "use the rfabric that made it, or sweep again into another"
        )
    if not isinstance(said.get("code"), dict):
        raise RFabricError(f"{path}: does not say what code its cells are of")
    return said


def add_rows(folder: Path, rows: Sequence[dict]) -> None:
    """Put rows into a store, as one part; nothing where there are none."""
    if rows:
        path = folder / f"part-{new_name()}.parquet"
        with writing(path), replacing(path) as beside:
            write_rows(beside, rows)
        give_to_caller([path])


def keys_in(folder: Path) -> set[str]:
    """The keys of all cells."""
    return {key for part in _parts(folder, ["key"]) for key in part.column("key").to_pylist()}


def table_of_cells(folder: str | Path) -> Any:
    """All cells as a pyarrow Table, each once; RFabricError where there are none."""
    import pyarrow

    require_store()
    read_about(folder)
    if not (parts := list(_parts(Path(folder)))):
        raise RFabricError(f"{folder} holds no cell yet; `rfabric sweep --store {folder}` makes it")
    whole = pyarrow.concat_tables(parts, promote_options="permissive")
    first = {key: i for i, key in reversed(list(enumerate(whole.column("key").to_pylist())))}
    return whole.take(sorted(first.values()))


def _parts(folder: Path, columns: list[str] | None = None) -> Iterable[Any]:
    import pyarrow
    from pyarrow import parquet

    for path in sorted(folder.glob(PARTS)):
        try:
            yield parquet.read_table(path, columns=columns, partitioning=None)
        except (pyarrow.ArrowException, OSError) as error:
            raise RFabricError(
                f"{path} is damaged: {' '.join(str(error).split())}; remove it and sweep again: "
                "what this machine has run is known to it still"
            ) from error


def merge_stores(folders: Sequence[Path], into: Path) -> int:
    """Put the cells of several stores of one code into another, each once; how many are new."""
    codes = [read_about(folder)["code"] for folder in folders]
    for folder, code in zip(folders, codes, strict=True):
        _check_code(folder, code, codes[0])
    open_store(into, codes[0])
    there, new = keys_in(into), 0
    for folder in filter(keys_in, folders):  # a shard of few cells may have none
        rows = [row for row in table_of_cells(folder).to_pylist() if row["key"] not in there]
        add_rows(into, rows)
        there |= {row["key"] for row in rows}
        new += len(rows)
    return new


def asked_in_sql(folder: str | Path, question: str) -> tuple[list[str], list[tuple]]:
    """(names of columns, rows) of what DuckDB answers about the table `cells`.

    RFabricError for a question that it does not understand. It can reach the table alone: no file,
    and nothing of the store is changed.
    """
    require_store("duckdb")
    import duckdb

    with duckdb.connect() as database:
        database.register(TABLE, table_of_cells(folder))
        for name, value in (("enable_external_access", "false"), ("lock_configuration", "true")):
            database.execute(f"SET {name} = {value}")
        try:
            answer = database.execute(question)
            if answer is None:  # blanks or a comment
                raise RFabricError(f"query: {question!r} asks nothing; write for example 'from "
                                   f"{TABLE}'")  # fmt: skip
            return [name for name, *_ in answer.description or ()], answer.fetchall()
        except duckdb.Error as error:
            said = " ".join(line for line in str(error).splitlines() if line.strip())
            raise RFabricError(f"query: {said}; the table is called {TABLE}") from error
