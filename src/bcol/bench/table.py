"""The report as a table, with what it means below."""

from rich.console import Console
from rich.table import Table

from bcol.bench.report import Report, Row


def show(report: Report, console: Console) -> None:
    """Print it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("case", no_wrap=True)
    table.add_column("")
    for title in ("us per\nstep", "min per\n1M steps", "TFLOP/s", "of\npeak", "PyTorch\neager us", "compiled\nus"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in report.rows:
        table.add_row(row.name, row.settings, *_cells(row))
    console.print(table)
    lines = [f"{report.machine['device']}, {report.machine['cores']} cores; batch 256, observation 17, action 6."]
    if report.peak_flop_per_second:
        kind = "bfloat16" if report.device == "gpu" else "float32"
        lines.append(f"Peak: {_number(report.peak_flop_per_second / 1e12)} TFLOP/s in a large {kind} matrix product.")
    if any(row.runs > 1 for row in report.rows):
        lines.append("Of runs side by side: time per run and step.")
    for line in lines + report.notes:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _cells(row: Row) -> list[str]:
    share = row.share_of_peak
    return [
        _number(row.microseconds),
        _number(row.minutes_per_million),
        _number(row.flop_per_second and row.flop_per_second / 1e12),
        "-" if share is None else f"{share:.0%}",
        _number(row.torch_eager_microseconds),
        _number(row.torch_compiled_microseconds),
    ]


def _number(x: float | None) -> str:
    """Three digits, or all before the point."""
    if x is None:
        return "-"
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}" if x >= 0.1 else f"{x:.2g}"
