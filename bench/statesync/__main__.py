"""``python -m bench.statesync``: how soon replicas know, and what it costs Redis."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.statesync import commands, fan_out
from bench.statesync.server import redis_server


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.statesync")
    parser.add_argument("--seconds", type=float, default=20, help="of each load of the fan-out")
    parser.add_argument("--minutes", type=float, default=6, help="of the fleet's time for each count of commands")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--output", type=Path, help="a file for the figures as JSON")
    return parser.parse_args()


async def run(args: argparse.Namespace, url: str) -> dict[str, Any]:
    found: dict[str, Any] = {"fan_out": {}, "commands": {}, "load": os.getloadavg()}
    for requests_per_s, blocks in ((1, 1), (20, 16), (100, 16), (100, 64)):
        name = f"{requests_per_s} requests/s of {blocks} blocks"
        found["fan_out"][name] = await fan_out.measure(url, requests_per_s, blocks, args.seconds)
    for mode in commands.MODES:
        found["commands"][mode.name] = await commands.measure(url, mode, args.replicas, args.entries, args.minutes)
    return found


def show(found: dict[str, Any], args: argparse.Namespace) -> None:
    console = Console(width=140)
    heads = ("changed", "applied", "messages", "p50 ms", "p99 ms", "slowest ms", "CPU s of A", "CPU s of B")
    table = Table("change of A → applied by B", *heads)
    for name, row in found["fan_out"].items():
        ages = [f"{row.get(p, float('nan')):.1f}" for p in ("p50", "p99", "p100")]
        cpu = [f"{row[c]:.2f}" for c in ("told_cpu_s", "heard_cpu_s")]
        table.add_row(name, *(f"{row[c]:,.0f}" for c in ("changed", "count", "messages")), *ages, *cpu)
    console.print(table)
    title = f"commands an hour, {args.replicas} replicas, {args.entries:,} entries"
    table = Table(title, "known at the end", "SCAN, MGET", "writes", "PUBLISH", "all")
    for name, row in found["commands"].items():
        table.add_row(name, *(f"{row[c]:,.0f}" for c in ("known", "reading", "writing", "publish", "all")))
    console.print(table)


def main() -> None:
    args = options()
    with redis_server() as url:
        found = asyncio.run(run(args, url))
    show(found, args)
    if args.output is not None:
        args.output.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
