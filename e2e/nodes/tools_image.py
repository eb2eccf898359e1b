"""A small image of busybox for nodes without a registry: pause image of local nodes, and the stories' own tools."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from image import archive, rootfs

TOOLS_IMAGE = "localhost/aibrix-e2e/tools:1"


def write(target: Path) -> None:
    """Write the archive: this machine's ``busybox`` under the name of each of its applets. It waits unless told else.

    Not the static one: glibc looks names up by libraries, which a static program cannot load.
    """
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("busybox is not installed: see e2e/nodes/packages.sh")
    with tempfile.TemporaryDirectory(prefix="aibrix-tools-image-") as scratch:
        root = Path(scratch)
        program = root / "bin/busybox"
        program.parent.mkdir()
        shutil.copy2(busybox, program)
        for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            link = program.with_name(applet)
            if not link.exists():
                link.symlink_to("busybox")
        rootfs.copy_libraries(root, [program])
        rootfs.write_accounts(root)
        image = archive.Image(
            TOOLS_IMAGE,
            entrypoint=[],
            command=["/bin/tail", "-f", "/dev/null"],
            environment={"PATH": "/bin"},
            user=rootfs.USER,
            labels={},
        )
        archive.write(root, image, target)
