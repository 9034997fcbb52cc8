"""Files from D4RL's server or a mirror: resumed where they stopped, whole or absent, checked on every use.

A download grows in `NAME.part` and gets its name only when it is complete. Its SHA-256 is recorded beside it
(`NAME.json`) the first time; a file that no longer has it is refused.
"""

import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcol.data.tasks import D4RL_BASE, Task
from bcol.errors import InputError

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Patience:
    """How long to wait for a slow or broken server.

    Attributes:
        stall_s: seconds without a byte before a connection counts as dead.
        tries: connections per address that bring nothing new before the next address is tried.
        pause_s: seconds before the second try; doubled after each.
    """

    stall_s: float = 30.0
    tries: int = 4
    pause_s: float = 1.0


def cache_dir(cache: str | os.PathLike[str] | None = None) -> Path:
    """Where downloads are kept: the argument, else `BCOL_DATA`, else the user's cache folder."""
    if cache is not None or os.environ.get("BCOL_DATA"):
        return Path(os.fspath(cache) if cache is not None else os.environ["BCOL_DATA"]).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("bcol", appauthor=False))


def cached_file(task: Task, cache: str | os.PathLike[str] | None = None) -> Path:
    """Where a task's file is or will be."""
    return cache_dir(cache) / "d4rl" / task.file


def fetch(
    task: Task,
    *,
    cache: str | os.PathLike[str] | None = None,
    mirrors: Sequence[str] = (),
    patience: Patience | None = None,
    show_progress: bool = True,
) -> Path:
    """The task's file on this machine, downloaded if need be, with its checksum verified.

    Args:
        task: whose file.
        cache: see `cache_dir`.
        mirrors: base addresses to try first; then those in `BCOL_MIRRORS` (separated by spaces) and D4RL's.
        patience: how long to wait.
        show_progress: draw a progress bar.
    """
    path = cached_file(task, cache)
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot write to {path.parent} ({error.strerror}); set BCOL_DATA to a folder you own"
            ) from error
        bases = [*mirrors, *os.environ.get("BCOL_MIRRORS", "").split(), D4RL_BASE]
        _download([f"{base.rstrip('/')}/{task.file}" for base in bases], path, patience or Patience(), show_progress)
    _verify(path)
    return path


def _download(urls: list[str], path: Path, patience: Patience, show_progress: bool) -> None:
    part = path.with_name(path.name + ".part")
    reasons = []
    with _bar(path.name, show_progress) as advance:
        for url in urls:
            reason = _try_address(url, part, patience, advance)
            if reason is None:
                part.replace(path)
                _validator(part).unlink(missing_ok=True)
                return
            reasons.append(f"{urllib.parse.urlsplit(url).netloc or url}: {' '.join(reason.split())}")
    raise InputError(
        f"cannot download {path.name} ({'; '.join(reasons)}); "
        f"get it elsewhere and put it at {path}, or name a mirror in BCOL_MIRRORS"
    )


def _try_address(url: str, part: Path, patience: Patience, advance: Any) -> str | None:
    """Download until complete; or the reason why this address is given up."""
    reason, fruitless = "", 0
    while fruitless < patience.tries:
        if fruitless:
            time.sleep(patience.pause_s * 2 ** (fruitless - 1))
        before = part.stat().st_size if part.exists() else 0
        try:
            complete = _receive(url, part, patience.stall_s, advance)
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code}"
            error.close()
            if error.code == 416:  # the part is longer than the file: it is not a part of it
                part.unlink(missing_ok=True)
            elif error.code < 500 and error.code not in (408, 429):
                return reason
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(getattr(error, "reason", "") or error) or type(error).__name__
        else:
            if complete:
                with part.open("rb") as file:
                    if file.read(len(_HDF5_SIGNATURE)) == _HDF5_SIGNATURE:
                        return None
                part.unlink()
                return "answers with something that is not HDF5"
            reason = "stops before the end"
        after = part.stat().st_size if part.exists() else 0
        # A server that breaks off again and again still gets there, as long as each try brings something.
        fruitless = 0 if after > before else fruitless + 1
    return reason


def _receive(url: str, part: Path, stall_s: float, advance: Any) -> bool:
    """Append what is missing; whether the file is then complete."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "bcol"})
    validator = _validator(part)
    if start and validator.exists():
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", validator.read_text())
    with urllib.request.urlopen(request, timeout=stall_s) as answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if not resumed:
            if answer.status != 200:
                raise ValueError(f"unexpected answer {answer.status}")
            start = 0
        mark = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        if mark and not mark.startswith("W/"):
            validator.write_text(mark)
        elif not resumed:
            validator.unlink(missing_ok=True)  # what cannot be recognised cannot be resumed
        length = answer.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        # Written at its place rather than appended, so that two downloads at once write the same bytes twice.
        with part.open("r+b" if part.exists() else "w+b") as file:
            if not resumed:
                file.truncate(0)
            file.seek(start)
            advance(start, total)
            while block := answer.read1(_BLOCK):
                file.write(block)
                start += len(block)
                advance(start, total)
    return total is None or start == total


def _validator(part: Path) -> Path:
    """Where the server's mark of the version that a part belongs to is kept."""
    return part.with_name(part.name + ".etag")


def _verify(path: Path) -> None:
    """Record the checksum on first use; refuse the file if it ever changes."""
    record = path.with_name(path.name + ".json")
    digest = _sha256(path)
    if not record.exists():
        temporary = record.with_name(record.name + ".tmp")
        temporary.write_text(json.dumps({"sha256": digest, "bytes": path.stat().st_size}))
        temporary.replace(record)
        return
    try:
        expected = json.loads(record.read_text())["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{record} is damaged; delete it if you trust {path.name}") from error
    if digest != expected:
        raise InputError(
            f"{path} has changed since its first use (SHA-256 {digest[:12]}, recorded {expected[:12]}); "
            f"delete it to download it again, or delete {record.name} to accept it"
        )


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the file") from error


@contextmanager
def _bar(name: str, show: bool) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as progress:
        bar = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
