"""Which file system a path lies on: a log on a network file system is refused.

SQLite's WAL needs memory shared between processes and locks that hold; NFS, SMB and most FUSE
mounts give neither, and lose events without a word.
"""

import re
from pathlib import Path

_NETWORK = re.compile(
    r"nfs[34]?|cifs|smb[23]?|smbfs|ncpfs|afs|coda|ceph|glusterfs|lustre|gpfs|orangefs|pvfs2|beegfs"
    r"|fuse\.(?:sshfs|s3fs|rclone|gcsfuse|glusterfs|ceph|ceph-fuse|davfs|curlftpfs|smbnetfs|juicefs)"
    r"|davfs"
)
_POINT = 4
"""Which field of a line is the mount point."""
_MOUNTS = Path("/proc/self/mountinfo")


def network_file_system(path: Path) -> str | None:
    """The type of the network file system that `path` lies on, or None when it is local.

    Effects: reads the mount table; where there is none the answer is None.
    """
    try:
        table = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None
    kind = mounted_type(path.resolve(), table)
    return kind if _NETWORK.fullmatch(kind) else None


def mounted_type(path: Path, table: str) -> str:
    """The type of the innermost mount that holds `path`, by the text of `mountinfo`."""
    best, kind = -1, ""
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if len(fields) <= _POINT:
            continue
        point = Path(_unescaped(fields[_POINT]))
        depth = len(point.parts)
        # A later line on the same point covers the earlier one.
        if depth >= best and (point == path or point in path.parents):
            best, kind = depth, tail[0]
    return kind


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
