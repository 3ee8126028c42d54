"""Write the pages: one HTML file, one script, one style sheet, and a folder of data that is read on demand.

    VIEW/index.html, app.js, app.css
    VIEW/data/index.js        runs, studies, and a line for every conversation: read at once
    VIEW/data/p00000.js ...   packs of conversations with their tokens: read when one of them is opened
    VIEW/data/search.js       the texts of all conversations: read for a search

The same folders give the same bytes. No text of a model, a user, a file or a setting gets into the HTML or
the script: it travels as data, and the script puts it on the page as text.
"""

import importlib.metadata
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from smopd.errors import UserError
from smopd.evaluation.statistics import accuracy_interval
from smopd.evaluation.store import load_identity, load_outcomes, load_summary
from smopd.pages import render
from smopd.runs import Run, is_run
from smopd.study.collect import collect
from smopd.study.results import Cell, Results
from smopd.study.run import StudyFolder, study_folders
from smopd.study.table_parts import Place, TableBuilder
from smopd.study.tables import comparison_sentences, verdict_lines
from smopd.tracking import Track, quiet
from smopd.viewer.pages import packing
from smopd.viewer.pages.conversations import Shown, evaluated, rollouts_of
from smopd.viewer.pages.packing import json_bytes, pack, script
from smopd.viewer.pages.runs import ConversationSource, read_run, sources_of
from smopd.viewer.pages.summary import improved


def make_view(paths: Sequence[Path], out: Path | None = None, live: float = 0, track: Track = quiet) -> Path:
    """Write the pages of runs, studies, evaluations or folders of them; return the file to open."""
    runs, studies = discover(paths)
    folder = out or paths[0] / "view"
    taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if taken and not (folder / "data").is_dir():
        problem = "is there and holds no pages of smopd; nothing was written, choose another --out"
        raise UserError(f"{folder}: {problem}")
    with track(f"reading {', '.join(map(str, paths))}"):
        index, written = _read(runs, studies, folder / "data")
    title, version = " and ".join(path.resolve().name for path in paths), importlib.metadata.version("smopd")
    index |= {"title": title, "live": live, "version": version}
    written.append(_put(folder / "data" / "index.js", script("index", json_bytes(index))))
    for old in set((folder / "data").glob("*.js")) - set(written):
        old.unlink()
    _put(folder / "app.js", packing.read_script(packing.SCRIPTS).encode())
    _put(folder / "app.css", packing.read_app(packing.STYLES, "css").encode())
    return _put(folder / "index.html", render("view.html", title=title[:200]).encode())


def discover(paths: Sequence[Path]) -> tuple[list[Path], list[StudyFolder]]:
    """Find the run folders (and evaluations that stand alone) and the studies among these paths."""
    runs, studies = list[Path](), list[StudyFolder]()
    for path in paths:
        if not path.is_dir():
            expected = "a run, a study, an evaluation or a folder of runs"
            raise UserError(f"{path}: no such folder; expected {expected}")
        if _is_run(path):
            runs.append(path)
        elif folder_studies := study_folders(path):
            studies += folder_studies
            runs += [run for study in folder_studies for run in study_runs(study)]
        else:
            inside = [p for p in sorted(chain(path.glob("*"), path.glob("*/*"))) if p.is_dir() and _is_run(p)]
            inside = [p for p in inside if not any(other in p.parents for other in inside)]
            if not inside:
                what = "holds no run (config.toml), no study (studies/*/study.json) and no evaluation"
                raise UserError(f"{path}: {what} (evaluation.json)")
            runs += inside
    return list(dict.fromkeys(runs)), studies


def _is_run(path: Path) -> bool:
    return is_run(path) or (path / "evaluation.json").exists()


def _put(path: Path, content: bytes) -> Path:
    """Write a file unless it is unchanged; no fsync, since pages can be made again."""
    try:
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(path.name + ".partial")
            partial.write_bytes(content)
            partial.replace(path)
    except OSError as error:
        raise UserError(f"{error.filename or path}: cannot be written: {error.strerror}") from None
    return path


def _read(
    folders: Sequence[Path], studies: Sequence[StudyFolder], data: Path
) -> tuple[dict[str, Any], list[Path]]:
    runs, sources = list[dict[str, Any]](), list[ConversationSource]()
    for number, path in enumerate(folders):
        whole = is_run(path)
        run, run_sources = (read_run(path), sources_of(number, path)) if whole else _read_alone(number, path)
        runs.append(run)
        sources += run_sources
    names = [run["name"] for run in runs]
    for path, run in zip(folders, runs, strict=True):
        if names.count(run["name"]) > 1:
            run["name"] = f"{path.resolve().parent.name}/{run['name']}"
    if studies:
        sources = [source for source in sources if source.kind != "training"]
    keys = [f"{runs[source.run]['name']}:{source.name}" for source in sources]
    written, texts, rows = list[Path](), list[str](), list[dict[str, Any]]()
    logged: dict[int, list[str]] = {}  # ids that have a token log, by source
    for number, batch in enumerate(_batches(sources)):
        for place, (source, shown, _) in enumerate(batch):
            texts.append(shown.text())
            rows.append({"source": source, "pack": number, "place": place, **_row(shown)})
            if shown.parts:
                logged.setdefault(source, []).append(shown.id)
        packed = pack([record for _, _, record in batch])
        written.append(_put(data / f"p{number:05d}.js", script(f"p{number:05d}", packed)))
    written.append(_put(data / "search.js", script("search", json_bytes(texts))))
    # One column per field; repeated words are stored by number.
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    distinct = {name: list(dict.fromkeys(columns.get(name, ()))) for name in ("view", "task", "status")}
    coded = {name: [*map(kinds.index, columns.get(name, ()))] for name, kinds in distinct.items()}
    numbers = {str(path.resolve()): number for number, path in enumerate(folders)}
    index = {
        "runs": runs,
        "sources": [_source_row(key, source) for key, source in zip(keys, sources, strict=True)],
        "rows": {**columns, **coded, "words": distinct},
        "studies": [study_payload(collect(study), study.path, numbers) for study in studies],
        "summaries": [] if studies else list(_summaries(runs, sources, keys, logged)),
    }
    return index, written


def _source_row(key: str, source: ConversationSource) -> dict[str, Any]:
    views = source.summary.get("views", {})
    intervals = {view: [v[name] for name in ("accuracy", "low", "high")] for view, v in views.items()}
    fields = {name: getattr(source, name) for name in ("run", "kind", "name", "data", "step")}
    return {"key": key, **fields, "views": intervals}


def _batches(sources: Sequence[ConversationSource]) -> Iterator[list[tuple[int, Shown, bytes]]]:
    batch, size = list[tuple[int, Shown, bytes]](), 0
    for number, source in enumerate(sources):
        files = Run(source.folder).rollout_files if source.kind == "training" else []
        played = chain.from_iterable(rollouts_of(source.folder, file) for file in files)
        for shown in played if source.kind == "training" else evaluated(source.folder):
            record = shown.packed()
            batch.append((number, shown, record))
            size += len(record)
            if size >= packing.PACK_BYTES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _row(shown: Shown) -> dict[str, Any]:
    known = [turn["right"] for turn in shown.turns if turn.get("right") is not None]
    fields = ("view", "task", "status", "shards", "number", "sample", "tokens")
    verdict = -1 if shown.verdict is None else int(shown.verdict)
    facts = {"id": shown.id[:500], "verdict": verdict, "logged": int(bool(shown.parts))}
    return (
        {name: getattr(shown, name) for name in fields} | facts | {"right": sum(known), "known": len(known)}
    )


def _summaries(
    runs: list[dict[str, Any]], sources: Sequence[ConversationSource], keys: list[str],
    logged: dict[int, list[str]],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Compare every trained model with an untrained one on the same examples, preferably of its own run."""
    for number, after in ((k, s) for k, s in enumerate(sources) if s.kind == "after"):
        same = [k for k, s in enumerate(sources) if s.kind == "before" and s.data == after.data]
        model = runs[after.run]["model"]
        same.sort(key=lambda k: (sources[k].run != after.run, runs[sources[k].run]["model"] != model))
        if same:
            outcomes = load_outcomes(sources[same[0]].folder), load_outcomes(after.folder)
            summary = improved(runs[after.run], after, *outcomes, set(logged.get(number, ())))
            yield {**summary, "before": keys[same[0]], "after": keys[number]}


def _read_alone(number: int, path: Path) -> tuple[dict[str, Any], list[ConversationSource]]:
    """An evaluation without a run folder, in the form of a run; without a source if it is unfinished."""
    identity, summary, name = load_identity(path), load_summary(path), path.resolve().name
    run: dict[str, Any] = {
        "name": name, "model": str(identity.get("model", "")), "method": "", "data": "",
        "seed": 0, "steps": 0, "done": 0, "rollouts": 0, "settings": {}, "metrics": {},
        "ended": "An evaluation; nothing was trained here.",
        **{key: [] for key in ("step", "evaluations", "starts", "warnings", "checkpoints")},
    }  # fmt: skip
    kind, examples = "after" if identity.get("adapter") else "before", str(identity.get("examples", ""))
    source = ConversationSource(number, kind, name, path, examples, summary=summary or {})
    return run, [] if summary is None else [source]


def study_runs(folder: StudyFolder) -> list[Path]:
    """The run folders of a study that exist: the untrained models, then the cells."""
    places = [folder.base(model.name) for model in folder.study.models]
    places += [folder.cell(cell) for cell in folder.study.cells]
    return [place for place in dict.fromkeys(places) if is_run(place)]


def study_payload(results: Results, folder: Path, numbers: dict[str, int]) -> dict[str, Any]:
    """The data of a study's page; `numbers`: by folder, the position of its runs among all runs."""
    make = TableBuilder(results)

    def arm(name: str, cells: list[Cell], view: str) -> dict[str, Any]:
        matrix = results.matrix(cells, view)
        low, high = accuracy_interval(matrix.mean(axis=0))
        seeds = []
        for cell, row in zip(cells, matrix, strict=True):
            run = numbers.get(str((folder / cell.source.folder).resolve()))
            seeds.append({"seed": cell.seed, "value": float(row.mean()), "run": run})
        ends = {"mean": float(matrix.mean()), "low": low, "high": high}
        return {"arm": name, **ends, "seeds": seeds, "flips": []}

    views = []
    for view in make.views:
        arms = [arm(f"untrained {cell.model}", [cell], view) for cell in results.base if view in cell.right]
        for place in make.places:
            if cells := make.cells(place, view):
                label = ", ".join(part for part in (place.arm, make.group(place)) if part)
                arms.append(arm(label, cells, view) | _against_reference(make, place, view))
        views.append({"view": view, "arms": arms})
    return {
        **{name: getattr(results, name) for name in ("name", "about", "reference", "missing")},
        "title": results.title or results.name,
        "verdicts": verdict_lines(make, results.missing),
        "sentences": comparison_sentences(make),
        "seeds": len(results.seeds),
        "items": len(results.items),
        "views": views,
    }


def _against_reference(make: TableBuilder, place: Place, view: str) -> dict[str, Any]:
    """The difference of an arm, and at most 100 items whose share of right runs differs by at least 0.5."""
    facts: dict[str, Any] = {"reference": place.arm == make.results.reference}
    if effect := make.effects[view].get(place):
        over, items = effect.clustered, make.results.items
        treatment, reference = (matrix.mean(axis=0) for matrix in make.matrices(place, view))
        change = np.abs(treatment - reference)
        order = [k for k in np.argsort(-change, kind="stable") if change[k] >= 0.5][:100]
        facts |= {
            "verdict": effect.verdict, "difference": effect.delta, "p": effect.p_adjusted,
            "low_difference": over.low if over else None, "high_difference": over.high if over else None,
            "flips": [{"id": items[k], "from": reference[k], "to": treatment[k]} for k in order],
        }  # fmt: skip
    return facts
