"""The tables of the file, readable with plain `sqlite3`.

`events` is the log: append-only (triggers refuse UPDATE and DELETE), repeats and void events
included. All other tables are made from it and can be made again, but for `blobs`. The view
`accepted` is what a person wants to look at: the events that count, with their seq.

`judgements.stream` is the position of the first record of the judged event's thread, and `.cause`
that of an earlier record with the id in `caused_by`, NULL if there is none: numbers that stand for
ids. Their indexes are small and grow at the end, where one over random ids is written all over:
at 15 events a turn an index over `caused_by` cost more than the inserts themselves.
"""

APPLICATION_ID = 0x54_4C_4F_47
"""`TLOG`, at offset 68 of the file: `file` and we tell our logs from other databases by it."""
USER_VERSION = 2
"""The schema below. A reader refuses a file with a higher one; version 1 had no traces and no times
of calls."""

COLUMNS = (
    "sequence",
    "event_id",
    "type",
    "version",
    "payload_json",
    "caused_by",
    "turn_id",
    "thread_id",
    "tenant_id",
    "workspace_id",
    "actor",
    "worker",
    "idempotency_key",
    "occurred_at",
    "source",
    "critical",
    "traceparent",
    "tracestate",
)
TRACE_COLUMNS = COLUMNS[-2:]

SCHEMA = """
CREATE TABLE events (
  sequence INTEGER PRIMARY KEY CHECK (sequence > 0),
  event_id TEXT NOT NULL,
  type TEXT NOT NULL,
  version INTEGER NOT NULL,
  payload_json TEXT NOT NULL,
  caused_by TEXT,
  turn_id TEXT,
  thread_id TEXT NOT NULL,
  tenant_id TEXT NOT NULL,
  workspace_id TEXT,
  actor TEXT NOT NULL,
  worker TEXT,
  idempotency_key TEXT,
  occurred_at TEXT NOT NULL,
  source TEXT NOT NULL,
  critical INTEGER NOT NULL,
  traceparent TEXT,
  tracestate TEXT
) STRICT;
CREATE INDEX events_by_id ON events (event_id);
CREATE INDEX events_by_thread ON events (thread_id, tenant_id);
CREATE TRIGGER events_never_change BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'an event is a fact: it is never changed'); END;
CREATE TRIGGER events_never_leave BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'an event is a fact: it is never deleted'); END;

CREATE TABLE judgements (
  position INTEGER PRIMARY KEY,
  stream INTEGER,
  cause INTEGER,
  seq INTEGER,
  void TEXT
) STRICT;
CREATE INDEX judgements_void ON judgements (stream) WHERE seq IS NULL;
CREATE INDEX judgements_by_cause ON judgements (cause) WHERE cause IS NOT NULL;
CREATE INDEX judgements_by_seq ON judgements (stream, seq) WHERE seq IS NOT NULL;
CREATE VIEW accepted AS
  SELECT j.seq, e.* FROM events e JOIN judgements j ON j.position = e.sequence
  WHERE j.seq IS NOT NULL;

CREATE TABLE watermark (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  position INTEGER NOT NULL
) STRICT;
INSERT INTO watermark VALUES (1, 0);

CREATE TABLE threads (
  tenant_id TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  title TEXT NOT NULL,
  status TEXT NOT NULL,
  head INTEGER NOT NULL,
  position INTEGER NOT NULL,
  turns INTEGER NOT NULL,
  open_turn TEXT,
  queued INTEGER NOT NULL,
  verdict TEXT,
  model TEXT,
  steps INTEGER NOT NULL,
  input INTEGER NOT NULL,
  output INTEGER NOT NULL,
  cache_read INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  reasoning INTEGER NOT NULL,
  cost_micros INTEGER,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  UNIQUE (thread_id, tenant_id)
) STRICT;
CREATE INDEX threads_by_position ON threads (tenant_id, position);
CREATE INDEX threads_open ON threads (status) WHERE status IN ('open', 'queued');

CREATE TABLE snapshots (
  tenant_id TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  position INTEGER NOT NULL,
  fold_version TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  state BLOB NOT NULL,
  UNIQUE (thread_id, tenant_id)
) STRICT;

CREATE TABLE usage_facts (
  position INTEGER PRIMARY KEY,
  event_id TEXT NOT NULL,
  tenant_id TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  input INTEGER NOT NULL,
  output INTEGER NOT NULL,
  cache_read INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  reasoning INTEGER NOT NULL,
  cost_micros INTEGER,
  occurred_at TEXT NOT NULL,
  tool_ms INTEGER
) STRICT;
CREATE INDEX usage_by_tenant ON usage_facts (tenant_id, thread_id);

CREATE TABLE dead_letters (
  position INTEGER PRIMARY KEY,
  reason TEXT NOT NULL
) STRICT;

CREATE TABLE blobs (
  tenant_id TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  media_type TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  touched_at_ms INTEGER NOT NULL,
  content BLOB NOT NULL,
  UNIQUE (sha256, tenant_id)
) STRICT;
"""

UPGRADE = (
    "".join(f"ALTER TABLE events ADD COLUMN {name} TEXT;" for name in TRACE_COLUMNS)
    + "ALTER TABLE usage_facts ADD COLUMN tool_ms INTEGER;"
)
"""Makes version 2 of a file of version 1. How long its calls took stays out of the sums."""
OLD_TABLES = f"""
CREATE TEMP VIEW events AS SELECT {", ".join(COLUMNS[:-2])},
  {", ".join(f"NULL AS {name}" for name in TRACE_COLUMNS)} FROM main.events;
CREATE TEMP VIEW usage_facts AS SELECT *, NULL AS tool_ms FROM main.usage_facts;
"""
"""Lets a connection that must not change a file of version 1 read it as one of version 2."""
