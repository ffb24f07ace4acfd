"""How long prompts and responses are: a distribution of token counts from a CSV, drawn by its
inverse CDF.

    quantile,tokens                        inverse CDF, linear between rows, from quantile 0 to 1
    tokens                                 samples, one a row
    output_tokens,expected_requests[,cdf]  counts, as ServeGen writes them (input_tokens for
                                           prompts)
    ContextTokens,GeneratedTokens,...      requests, one a row: Azure's LLM inference traces
    input_length,output_length,...         Mooncake's, as CSV or as JSON lines
    in_tokens,out_tokens,...               calls of coding agents (kv-cache-tester)
    Request tokens,Response tokens,...     BurstGPT's
    num_prefill_tokens,num_decode_tokens   Vidur's
    prompt_tokens,completion_tokens,...    what servers of OpenAI's API count
    number_input_tokens,...                llmperf's responses, a JSON list
    {"metrics": {"input_sequence_length":  AIPerf's records, JSON lines
     {"value": 374}, ...}}
    input_lens, output_lens                lists in JSON: benchmarks of vLLM (--save-detailed)
                                           and SGLang (--output-details)
    chunk-N-dataset.json                   ServeGen's own: shares of tokens by window, by the rates
                                           in chunk-N-trace.csv

Bring your own CSV in any of these forms; lines that begin with # are comments. Where a file has
prompts and responses, `side` says which are meant. Where only statistics of a step are known,
`of_moments` makes a distribution that has them.
"""

import ast
import csv
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from ..errors import RFabricError
from ..files import kind_of, parse_json, read_text, twice

PARTS = 10_000  # of a distribution, for its mean
_TOKENS = ("tokens", "output_tokens", "input_tokens")
_KNOWN = (*_TOKENS, "quantile", "expected_requests", "cdf")
# Traces with a request a row, prompts and responses: Azure/AzurePublicDataset, kvcache-ai/Mooncake,
# callanjfox/kv-cache-tester, HPMLL/BurstGPT, microsoft/vidur; `usage` of OpenAI's API;
# ray-project/llmperf; `vllm bench serve` and sglang.bench_serving; ai-dynamo/aiperf.
_LISTS = ("input_lens", "output_lens")
_METRICS = ("input_sequence_length", "output_sequence_length")
_PAIRS = (
    ("ContextTokens", "GeneratedTokens"),
    ("input_length", "output_length"),
    ("in_tokens", "out_tokens"),
    ("Request tokens", "Response tokens"),
    ("num_prefill_tokens", "num_decode_tokens"),
    ("prompt_tokens", "completion_tokens"),
    ("number_input_tokens", "number_output_tokens"),
    _METRICS,
    _LISTS,
)
_OF_A_RUN = {*_LISTS, "total_output_tokens"}  # one of which each benchmark's result has
SIDES = ("prompt", "output")


@dataclass(frozen=True, eq=False)
class Lengths:
    """Inverse CDF of token counts: `tokens` (float64[n], ascending, >= 1) at `quantile`
    (float64[n], 0 to 1).

    `source` is what the comments of its file say.
    """

    name: str
    quantile: np.ndarray
    tokens: np.ndarray
    source: str = ""

    def __post_init__(self):
        for key in ("quantile", "tokens"):
            object.__setattr__(self, key, np.asarray(getattr(self, key), dtype=float))
        if len(self.tokens) != len(self.quantile) or len(self.tokens) < 2:
            raise RFabricError(
                f"lengths {self.name}: needs as many quantiles as tokens, two rows at least"
            )
        if (
            not ((self.tokens >= 1) & (self.tokens < 1e12)).all()
            or (np.diff(self.tokens) < 0).any()
        ):
            raise RFabricError(f"lengths {self.name}: tokens must ascend and be 1 or more")
        ends = self.quantile[0] == 0 and self.quantile[-1] == 1
        if not (ends and (np.diff(self.quantile) >= 0).all()):
            raise RFabricError(
                f"lengths {self.name}: quantiles must ascend from 0 to 1; add the missing rows"
            )

    @classmethod
    def read(cls, path: str | Path, side: str = "output") -> "Lengths":
        """The distribution in a file of one of the forms above; `side`: prompt or output, of files
        that have both. RFabricError for a file of another form, or without rows.
        """
        path = Path(path)
        if side not in SIDES:
            raise RFabricError(
                f"lengths {path}: side {side!r} is not known; use one of {', '.join(SIDES)}"
            )
        try:
            lines = read_text(path).splitlines(keepends=True)
            if kind_of(path) != ".json":
                rows = _rows(path, lines)
            elif (rows := _in_json(path, said := parse_json("".join(lines)))) is None:
                return _servegen(cls, path, said, side)
            rows = _each_request(path, rows)
        except RFabricError:
            raise
        except (OSError, ValueError, csv.Error) as error:  # text that is no UTF-8, JSON or number
            raise RFabricError(f"lengths {path}: {error}") from error
        if not rows:
            raise RFabricError(f"lengths {path}: holds no rows; a length a row is needed")
        source = " ".join(line.strip("# \r\n") for line in lines if line.startswith("#"))
        pair = next((pair for pair in _PAIRS if set(pair) <= set(rows[0])), None)
        if pair:
            return _requests(cls, path, rows, pair[SIDES.index(side)], source)
        return _from_columns(path.stem, _columns(path, rows), source, side)

    @classmethod
    def of_samples(cls, name: str, tokens, weights=None, source: str = "") -> "Lengths":
        """The distribution that takes exactly the values `tokens`, each as often as its weight
        says. RFabricError for weights that are negative, endless or all 0.
        """
        tokens = np.asarray(tokens, dtype=float)
        weights = np.ones(len(tokens)) if weights is None else np.asarray(weights, dtype=float)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise RFabricError(
                f"lengths {name}: the counts must be finite, not negative and not all 0"
            )
        order = np.argsort(tokens, kind="stable")
        upper = np.cumsum(weights[order]) / weights.sum()
        upper[-1] = 1.0
        steps = np.stack([np.concatenate(([0.0], upper[:-1])), upper], axis=1).ravel()
        return cls(name, steps, np.repeat(tokens[order], 2), source)

    @classmethod
    def of_moments(cls, name: str, mean: float, least: float, most: float, count: int) -> "Lengths":
        """The log-normal cut to `least` ..

        `most` whose mean is `mean` and of which the largest of `count` draws is `most`.

        The largest is taken at its median quantile, 2^(-1/count). RFabricError where there
        is none.
        """
        if not 1 <= least <= mean <= most:
            raise RFabricError(
                f"lengths {name}: mean {mean:g} must lie between {least:g} and "
                f"{most:g}, both 1 or more"
            )
        if count < 2 or least == most:
            return cls.of_samples(name, [mean])
        if mean < least + (most - least) / count:
            low = least + (most - least) / count
            raise RFabricError(
                f"lengths {name}: {count} draws, one of {most:g}, have a mean of {low:g} at "
                f"least, not {mean:g}"
            )
        quantile = np.linspace(0, 1, 1001)
        normal = NormalDist()
        z = np.array([normal.inv_cdf(q) for q in np.clip(quantile, 1e-6, 1 - 1e-6)])
        last = normal.inv_cdf(2 ** (-1 / count))

        def drawn(sigma: float) -> np.ndarray:
            return np.clip(most * np.exp(np.clip(sigma * (z - last), -700, 0)), least, most)

        low, high = 0.0, 20.0
        for _ in range(50):  # the mean falls as sigma grows
            sigma = (low + high) / 2
            low, high = (sigma, high) if _mean(quantile, drawn(sigma)) > mean else (low, sigma)
        return cls(
            name, quantile, drawn(low), f"log-normal of mean {mean:g}, largest of {count} {most:g}"
        )

    def at(self, quantile: float | np.ndarray) -> np.ndarray:
        """Whole tokens (int64) at `quantile` (0..1)."""
        return np.ceil(np.interp(quantile, self.quantile, self.tokens) - 1e-9).astype(np.int64)

    def mean(self, limit: int) -> float:
        """Tokens of a sequence that ends at `limit`, the mean."""
        return float(self._cut(limit).mean())

    def before(self, limit: int) -> float:
        """Tokens of a response before another one of it, the mean over all tokens of responses that
        end at `limit`: those of longer ones come more often.
        """
        tokens = self._cut(limit)
        return float((tokens**2).sum() / tokens.sum() / 2)

    def _cut(self, limit: int) -> np.ndarray:
        return np.minimum(self.at((np.arange(PARTS) + 0.5) / PARTS), limit).astype(float)

    def sample(self, random: np.random.Generator, count: int, limit: int) -> np.ndarray:
        """`count` lengths (int64); longer ones are cut at `limit`, as an engine ends a response at
        its maximum.
        """
        return np.minimum(self.at(random.random(count)), limit)


def _mean(quantile: np.ndarray, tokens: np.ndarray) -> float:
    return float(((tokens[1:] + tokens[:-1]) / 2 * np.diff(quantile)).sum())


def _rows(path: Path, lines: list[str]) -> list[dict]:
    """A mapping a row, of CSV (divided by commas, tabs or semicolons) or of JSON lines."""
    kept = [line for line in lines if not line.startswith("#")]
    if kind_of(path) != ".jsonl":
        head = next((line for line in kept if line.strip()), "")
        mark = next((mark for mark in ",\t;" if mark in head), ",")
        reader = csv.DictReader(kept, delimiter=mark, strict=True)
        if twice(reader.fieldnames or ()):
            raise RFabricError(
                f"lengths {path}: column {twice(reader.fieldnames)!r} stands twice; keep one"
            )
        # a column without a name is the index that pandas writes
        return [{name: cell for name, cell in row.items() if name != ""} for row in reader]
    return _objects(path, [parse_json(line) for line in kept if line.strip()])


def _in_json(path: Path, said: object) -> list[dict] | None:
    """The rows in what a JSON file says; None for ServeGen's windows."""
    if isinstance(said, dict) and not said.keys() & _OF_A_RUN:
        return None
    return _objects(path, said if isinstance(said, list) else [said])


def _objects(path: Path, rows: list) -> list[dict]:
    if not all(isinstance(row, dict) for row in rows):
        raise RFabricError(
            f"lengths {path}: each line must hold an object, such as {{'input_length': 6758, ...}}"
        )
    return rows


def _each_request(path: Path, rows: list[dict]) -> list[dict]:
    """A row a request, where rows are runs of a benchmark with lists of all requests, or metrics of
    one request, which has none where it failed.
    """
    if rows and isinstance(rows[0].get("metrics"), dict):
        return [{key: _value(row, key) for key in _METRICS} for row in rows]
    if not rows or not rows[0].keys() & _OF_A_RUN:
        return rows
    try:
        return [
            dict(zip(_LISTS, pair, strict=True))
            for run in rows
            for pair in zip(*(run[key] for key in _LISTS), strict=True)
        ]
    except (KeyError, TypeError, ValueError):
        raise RFabricError(
            f"lengths {path}: no input_lens and output_lens of each request; run the benchmark "
            "with --save-detailed (vLLM) or --output-details (SGLang)"
        ) from None


def _value(row: dict, key: str) -> object:
    metrics = row.get("metrics")
    said = metrics.get(key) if isinstance(metrics, dict) else None
    return said.get("value") if isinstance(said, dict) else 0


def _requests(
    cls: type[Lengths], path: Path, rows: list[dict], column: str, source: str
) -> Lengths:
    """Lengths of requests; those without a token are left out, and counted in the source."""
    tokens = _numbers(path, rows, column)
    kept = tokens[tokens != 0]
    if not len(kept):
        raise RFabricError(
            f"lengths {path}: all {len(tokens)} rows of {column} are 0; a length is 1 or more"
        )
    without = (
        f"; {len(tokens) - len(kept)} of {len(tokens)} without a token left out"
        if len(kept) < len(tokens)
        else ""
    )
    return cls.of_samples(path.stem, kept, source=f"{source}{column} of {path.name}{without}")


def _servegen(cls: type[Lengths], path: Path, windows: dict, side: str) -> Lengths:
    """A client of ServeGen: shares of tokens by window of a day, weighted by the rates in the trace
    beside it.
    """
    column = {"prompt": "input_tokens", "output": "output_tokens"}[side]
    rates = _servegen_rates(path)
    tokens, weights = [], []
    starts = sorted((float(start) for start in windows), reverse=True)
    for start, window in windows.items():
        try:
            shares = ast.literal_eval(window[column])
        except (KeyError, TypeError, ValueError, SyntaxError) as error:
            raise RFabricError(
                f"lengths {path}: window {start} has no {column} such as '{{45: 0.01}}'"
            ) from error
        rate = (
            1.0
            if rates is None
            else sum(
                r for at, r in rates if next((s for s in starts if s <= at), None) == float(start)
            )
        )
        tokens += list(shares)
        weights += [share * rate for share in shares.values()]
    if not tokens:
        raise RFabricError(
            f"lengths {path}: holds no windows of {column}; give ServeGen's chunk-N-dataset.json"
        )
    return cls.of_samples(path.stem, tokens, weights, f"ServeGen {path.name}, {column}")


def rates_beside(path: Path) -> Path | None:
    """The file of rates that is read with a file of lengths: ServeGen's trace beside a data set."""
    trace = path.with_name(path.name.replace("-dataset.json", "-trace.csv"))
    return trace if trace != path and trace.is_file() else None


def _servegen_rates(path: Path) -> list[tuple[float, float]] | None:
    """(start, requests/s) of ServeGen's trace beside a data set; None where there is none or it is
    all 0.
    """
    if (trace := rates_beside(path)) is None:
        return None
    cells = csv.reader(read_text(trace).splitlines())
    rates = [(float(row[0]), float(row[1])) for row in cells if len(row) > 1]
    return rates if any(rate for _, rate in rates) else None


def _numbers(path: Path, rows: list[dict], key: str) -> np.ndarray:
    try:
        return np.array([float(row[key]) for row in rows])
    except (KeyError, TypeError, ValueError) as error:
        raise RFabricError(f"lengths {path}: column {key} must hold numbers: {error}") from error


def _columns(path: Path, rows: list[dict]) -> dict[str, np.ndarray]:
    unknown = [key for key in rows[0] if key not in _KNOWN]
    if unknown:
        raise RFabricError(
            f"lengths {path}: unknown columns {unknown}; there are {', '.join(_KNOWN)}"
        )
    return {key: _numbers(path, rows, key) for key in rows[0]}


def _whole_cdf(name: str, cdf: np.ndarray) -> np.ndarray:
    """The shares as they stand. RFabricError where they end short of all."""
    if not any(abs(cdf[-1] / end - 1) < 1e-3 for end in (1, 100)):
        raise RFabricError(
            f"lengths {name}: cdf ends at {cdf[-1]:g}; the last row is 1 (or 100): is it whole?"
        )
    return cdf


def _from_columns(name: str, columns: dict[str, np.ndarray], source: str, side: str) -> Lengths:
    order = _TOKENS if side == "output" else (_TOKENS[0], *_TOKENS[:0:-1])
    tokens = next((columns[key] for key in order if key in columns), None)
    if tokens is None:
        raise RFabricError(
            f"lengths {name}: no column of tokens; name it one of {', '.join(_TOKENS)}"
        )
    if "quantile" in columns:
        return Lengths(name, columns["quantile"], tokens, source)
    counts = columns.get("expected_requests")
    if counts is None and "cdf" in columns:
        if (np.diff(tokens) < 0).any():
            raise RFabricError(f"lengths {name}: tokens fall beside a cdf; sort the rows by tokens")
        counts = np.diff(_whole_cdf(name, columns["cdf"]), prepend=0.0)
    return Lengths.of_samples(name, tokens, counts, source)
