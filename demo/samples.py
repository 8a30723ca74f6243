"""The small real files the words `image`, `voice`, … answer with."""

from __future__ import annotations

import shutil
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "adapter" / "hermes_mobile" / "samples"
"""The device door's scripted agent sends the same files."""


def sample_files(folder: Path, source: Path = SOURCE) -> dict[str, str]:
    """Copy the samples into `folder`, where Hermes may read them; kind -> absolute path."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, str] = {}
    for file in sorted(source.glob("*")):
        if file.is_file() and file.suffix != ".py":
            copy = folder.resolve() / file.name
            shutil.copyfile(file, copy)
            found[file.stem] = str(copy)
    return found
