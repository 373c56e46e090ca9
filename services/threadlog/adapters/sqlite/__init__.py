"""The embedded log: one SQLite file holds the log, the views, snapshots, blobs and dead letters.

`file.SqliteFile` opens it; `log`, `views`, `snapshots` and `blobs` implement the ports on it;
`lock.FileLock` keeps a second runtime out, and `members.LockMembers` says who is alive.
"""
